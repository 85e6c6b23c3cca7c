"""Dates and times in DuckDB: range checks, functions that depend on TimeZone, and date_trunc.

Used by `implementation.datetime`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb.template import filled
from headgate.expression.duckdb.value import MAX_DIGITS, DuckdbForm, Env, quote, raised, refuse
from headgate.expression.functions.datetime import timestamp
from headgate.types import registry as t
from headgate.types.datetime import interval

_IN_RANGE = (
    "CASE WHEN ({0}) < CAST('4714-11-24 (BC) 00:00:00' AS TIMESTAMP) AND isfinite({0}) THEN <22008 timestamp out of range> ELSE ({0}) END"
)
_FIELDS = frozenset({"microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year"})


def in_range(moved: str) -> str:
    """Return the template of a timestamp that another template has moved. It raises 22008 if the timestamp is out of range."""
    return _IN_RANGE.format(moved)


def date_trunc(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return date_trunc of a field that DuckDB truncates at the same point."""
    field = operands[0]
    if not isinstance(field, n.Const) or (field.value or "").lower() not in _FIELDS or (node.type.oid == t.TIMESTAMPTZ and not env.in_utc):
        raise refuse("date_trunc of this field", node)
    return f"CAST(date_trunc({args[0]}, {args[1]}) AS TIMESTAMP)"


def moved_in_zone(template: str, *, back: bool = False) -> DuckdbForm:
    """Return timestamptz ± interval, in either order, by the template if TimeZone is UTC.

    In other zones, days and months are the zone's, which DuckDB does not know. Intervals of hours are the same in all zones, and a sum with
    now() and similar functions is a constant. Everything else is refused.
    """

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        moment, span = operands if operands[0].type.oid == t.TIMESTAMPTZ else reversed(operands)
        if env.in_utc:
            return filled(template, node, operands, args, env)
        if not isinstance(span, n.Const) or span.value is None:
            raise refuse("an operator that depends on TimeZone", node)
        parts = interval.normal(span.value)
        if not parts.days and not parts.months:
            return filled(template, node, operands, args, env)
        micros = env.moment(moment)
        if micros is None:
            raise refuse("an operator that depends on TimeZone", node)
        return f"make_timestamp({timestamp.moved_in_zone(-1 if back else 1, env.time_zone, micros, span.value)})"

    return build


def epoch(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return EXTRACT(epoch FROM …) or date_part('epoch', …) of a timestamp or an interval, with years of 365.25 and months of 30 days."""
    field = operands[0]
    if not isinstance(field, n.Const) or (field.value or "").lower() != "epoch":
        raise refuse("EXTRACT of this field", node)
    if operands[1].type.oid == t.INTERVAL:
        parts = {"year": 31_557_600, "month": 2_592_000, "day": 86_400, "hour": 3_600, "minute": 60}
        micros = " + ".join(f"date_part('{part}', {args[1]}) * CAST({seconds}000000 AS HUGEINT)" for part, seconds in parts.items())
        micros += f" + date_part('microsecond', {args[1]})"
    else:
        beyond = raised("0A000", "EXTRACT of infinity is not supported in a query on system catalogs", t.INT8)
        micros = f"CASE WHEN isfinite({args[1]}) THEN epoch_us({args[1]}) WHEN {args[1]} IS NOT NULL THEN {beyond} END"
    seconds_sql = f"CAST(CAST({micros} AS DECIMAL(31,0)) * CAST(0.000001 AS DECIMAL(7,6)) AS DECIMAL({MAX_DIGITS},6))"
    return seconds_sql if node.type.oid == t.NUMERIC else f"CAST({seconds_sql} AS DOUBLE)"


_SHOWN = {"YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S", "TZ": "UTC"}
_PARTS = re.compile(rf"{'|'.join(_SHOWN)}|[^A-Za-z\"%]")


def to_char(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return to_char of a timestamp by a constant format that uses only common words."""
    picture = operands[1].value if isinstance(operands[1], n.Const) else None
    in_zone = operands[0].type.oid == t.TIMESTAMPTZ
    if picture is None or _PARTS.sub("", picture) or (in_zone and not env.in_utc) or ("TZ" in picture and not in_zone):
        raise refuse("to_char with this format", node)
    formatted = f"strftime({args[0]}, {quote(_PARTS.sub(lambda part: _SHOWN.get(part[0], part[0]), picture))})"
    beyond = raised("0A000", "to_char of a year beyond 1000 to 9999 is not supported in a query on system catalogs", t.TEXT)
    return f"CASE WHEN year({args[0]}) BETWEEN 1000 AND 9999 THEN {formatted} WHEN {args[0]} IS NOT NULL THEN {beyond} END"
