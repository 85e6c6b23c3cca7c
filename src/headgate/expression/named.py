"""Named arguments of a call (``make_interval(days => 3)``), put into their places among the others (manual, 4.3).

Called by `calls`. What must hold: behind it a call is as if written by position; parameters that are left out before the last one given
have their default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headgate.errors import PostgresError
from headgate.expression.context import BindContext
from headgate.expression.location import location_of
from headgate.expression.node import Expression
from headgate.sql import names
from headgate.sql.parser import parse_expression, unwrap

_DATE: dict[str, str | None] = {"year": None, "month": None, "day": None}
_TIME: dict[str, str | None] = {"hour": None, "min": None, "sec": None}
_TIMESTAMP: dict[str, str | None] = {"year": None, "month": None, "mday": None, **_TIME}
_SPAN: dict[str, str | None] = dict.fromkeys(("years", "months", "weeks", "days", "hours", "mins"), "0")
_CHANGED: dict[str, str | None] = {"jsonb_in": None, "path": None, "replacement": None}
PARAMETERS: dict[str, dict[str, str | None]] = {
    "make_date": _DATE,
    "make_time": _TIME,
    "make_timestamp": _TIMESTAMP,
    "make_timestamptz": {**_TIMESTAMP, "timezone": None},
    "make_interval": {**_SPAN, "secs": "0.0::float8"},
    "jsonb_set": {**_CHANGED, "create_if_missing": "true"},
    "jsonb_insert": {**_CHANGED, "insert_after": "false"},
    "jsonb_set_lax": {**_CHANGED, "create_if_missing": "true", "null_value_treatment": "'use_json_null'::text"},
}
"""The functions whose parameters have names, in their order, each with its default (pg_proc)."""


def name_of(argument: Any) -> str | None:
    """The name that is written before an argument of a FuncCall."""
    inner = unwrap(argument)
    return inner.name if inner.DESCRIPTOR.name == "NamedArgExpr" else None


def placed(node: Any, args: Sequence[Expression], context: BindContext, bind: Callable[[Any], Expression]) -> list[Expression]:
    """The arguments of a FuncCall in the order of the function's parameters; `bind` is for the defaults.

    Raises 42601 for a name that is used twice or an argument without a name behind one that has one, 42883 for a name that no function
    of this name has, or where a parameter without a default is left out.
    """
    given = [name_of(each) for each in node.args]
    plain = next((place for place, name in enumerate(given) if name is not None), len(given))
    for place, name in enumerate(given):
        if place > plain and (name is None or name in given[:place]):
            message = "positional argument cannot follow named argument" if name is None else f'argument name "{name}" used more than once'
            where = location_of(args[place]) if name is None else unwrap(node.args[place]).location
            raise PostgresError("42601", message, position=context.position(where))
    parameters = PARAMETERS.get(names.strings(node.funcname)[-1], {})
    found = dict(zip(list(parameters)[:plain], args, strict=False))
    for name, value in zip(given[plain:], args[plain:], strict=True):
        if name not in parameters or name in found:
            raise unknown(node, args, context)
        found[str(name)] = value
    last = max(list(parameters).index(name) for name in found)
    done = []
    for name, default in list(parameters.items())[: last + 1]:
        if name not in found and default is None:
            raise unknown(node, args, context)
        done.append(found[name] if name in found else bind(parse_expression(str(default))))
    return done


def unknown(node: Any, args: Sequence[Expression], context: BindContext) -> PostgresError:
    """42883 as PostgreSQL shows a call with names."""
    given = [name_of(each) for each in node.args]
    shown = [f"{'' if name is None else f'{name} => '}{context.show_type(each.type.oid)}" for name, each in zip(given, args, strict=True)]
    return PostgresError(
        "42883",
        f"function {'.'.join(names.strings(node.funcname))}({', '.join(shown)}) does not exist",
        hint="No function matches the given name and argument types. You might need to add explicit type casts.",
        position=context.position(node.location),
    )
