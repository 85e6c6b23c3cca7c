"""Constants in DuckDB's SQL: a value's normal text form, which the binder has read, as a literal of the DuckDB type.

Called by `compiler`, and by `cast` for constants that are cast from text. The reg… types name objects, which the query looks up
(`Env.resolve`).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb.value import (
    FLOATS,
    MAX_DIGITS,
    OIDS,
    REGISTERED,
    Env,
    base_of,
    duckdb_type,
    element_of,
    null,
    quote,
    refuse,
)
from headgate.lsn import Lsn
from headgate.types import registry as t
from headgate.types.datetime import interval
from headgate.types.text.array import parts


def constant(node: n.Const, env: Env) -> str:
    return null(node.type.oid) if node.value is None else _sql(node.value, base_of(node.type.oid), node, env)


def _sql(text: str, oid: int, node: n.Const, env: Env) -> str:
    if oid in REGISTERED:
        where = node.location + 1 if node.location >= 0 else None
        return f"CAST({env.resolve(text, oid, where)} AS UINTEGER)"
    if oid == t.INT4:
        return text
    if oid in t.INTEGERS or oid in OIDS or oid in (t.XID, t.CID, t.XID8):
        return f"CAST({text} AS {duckdb_type(oid)})"
    if oid == t.BOOL:
        return "TRUE" if text == "t" else "FALSE"
    if oid == t.NUMERIC:
        return _decimal(text, node)
    if oid in FLOATS:
        return f"CAST({quote(text)} AS {duckdb_type(oid)})"
    if oid == t.PG_LSN:
        return f"CAST({int(Lsn.parse(text))} AS UBIGINT)"
    if oid == t.BYTEA:
        return f"from_hex({quote(text[2:])})"
    if oid == t.INTERVAL:
        parsed = interval.normal(text)
        return f"(to_months({parsed.months}) + to_days({parsed.days}) + to_microseconds({parsed.micros}))"
    if oid in (t.TIMESTAMP, t.TIMESTAMPTZ, t.DATE, t.TIME):
        if text.endswith("BC") or len(text.split("-", maxsplit=1)[0]) > 4:
            raise refuse("a date before Christ, or after the year 9999,", node)
        return f"CAST({quote(_in_utc(text, node) if oid == t.TIMESTAMPTZ else text)} AS {duckdb_type(oid)})"
    built_in = t.builtin().find(oid)
    if built_in is not None and built_in.is_vector:
        return _list(text.split(), built_in.element, node, env)
    element = element_of(oid)
    return quote(text) if element is None else _list(_elements(text, node), element, node, env)


def _in_utc(text: str, node: n.Const) -> str:
    """Return a timestamptz, whose text is in the session's time zone, as a timestamp in UTC. DuckDB's cast ignores the zone."""
    if text.endswith("infinity"):
        return text
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except OverflowError as error:
        raise refuse("a date before Christ, or after the year 9999,", node) from error
    return moment.replace(tzinfo=None).isoformat(sep=" ")


def _elements(text: str, node: n.Const) -> Sequence[str | None]:
    shape, items = parts(text)
    if len(shape.lengths) > 1 or any(lower != 1 for lower in shape.lowers):
        raise refuse("an array of several dimensions or with a lower bound of its own", node)
    return items


def _list(elements: Sequence[str | None], element: int, node: n.Const, env: Env) -> str:
    if element == t.NUMERIC:
        raise refuse("an array of numeric values", node)
    literals = ", ".join("NULL" if item is None else _sql(item, element, node, env) for item in elements)
    return f"CAST([{literals}] AS {duckdb_type(element)}[])"


def _decimal(text: str, node: n.Const) -> str:
    digits = text.lstrip("-")
    whole, _, fraction = digits.partition(".")
    if not digits[:1].isdigit() or len(whole) + len(fraction) > MAX_DIGITS or len(fraction) == MAX_DIGITS:
        raise refuse("a numeric value of more than 38 digits, or none", node)
    return f"CAST({quote(text)} AS DECIMAL({MAX_DIGITS},{len(fraction)}))"
