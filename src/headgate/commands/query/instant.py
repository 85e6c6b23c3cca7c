"""Constants for now() and similar functions, the same for queries of tables and of catalogs."""

from __future__ import annotations

from headgate.catalog.session import SessionContext
from headgate.expression.binding import literal
from headgate.expression.binding.context import BindContext
from headgate.expression.node import Const, TypeRef
from headgate.settings import check
from headgate.types import registry

FUNCTIONS = frozenset({"now", "transaction_timestamp", "statement_timestamp", "clock_timestamp"})
_PATTERNS = {
    registry.DATE: "%Y-%m-%d",
    registry.TIMESTAMP: "%Y-%m-%d %H:%M:%S.%f",
    registry.TIME: "%H:%M:%S.%f",
    registry.TIMETZ: "%H:%M:%S.%f%z",
}


def constant(session: SessionContext, target: TypeRef, context: BindContext, function: str = "now") -> Const:
    """Return the result of `function` as a constant of a date, time or timestamp type."""
    moment = session.moment(function)
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f+00")
    if target.oid != registry.TIMESTAMPTZ:
        text = moment.astimezone(check.zone(context.forms.timezone)).strftime(_PATTERNS[target.oid])
    return Const(type=target, value=literal.read(text, target.oid, target.typmod, context))
