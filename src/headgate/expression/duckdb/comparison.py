"""Comparison in DuckDB: the types that DuckDB orders as PostgreSQL does, and the operators over them.

Called by `call` for = <> < <= > >= of every type, by `compiler` for IN, DISTINCT, NULLIF and rows, and for sorting and grouping.
"""

from __future__ import annotations

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb.value import FLOATS, OIDS, Env, base_of, element_of, refuse, scale
from headgate.types import registry as t

OPERATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_C = ("default", "C", "POSIX", "ucs_basic", "C.utf8")
_ACLITEM = 1033
_TEXTS = frozenset({t.TEXT, t.VARCHAR, t.NAME, t.CHAR, t.BPCHAR})
_MOMENTS = frozenset({t.DATE, t.TIMESTAMP, t.TIMESTAMPTZ})
_FAMILIES = (
    frozenset({*t.INTEGERS, *OIDS}), frozenset({*FLOATS}), frozenset({t.NUMERIC}), _TEXTS, frozenset({t.BOOL}), _MOMENTS,
    frozenset({t.INTERVAL}), frozenset({t.TIME}), frozenset({t.PG_LSN}), frozenset({t.BYTEA}), frozenset({t.UUID}),
    frozenset({t.XID8}), frozenset({t.XID, t.INT4}), frozenset({t.CID}), frozenset({_ACLITEM}),
)  # fmt: skip
"""Sets of types that DuckDB compares as PostgreSQL does, with values of types in the same set."""
_EQUAL_ONLY = frozenset({t.XID, t.CID, _ACLITEM})


def in_order(oid: int) -> bool:
    """Return whether DuckDB orders values of a type as PostgreSQL does."""
    oid = base_of(oid)
    element = element_of(oid)
    if element is not None:
        return in_order(element)
    return any(oid in family for family in _FAMILIES) and oid not in _EQUAL_ONLY


def sort_key(node: n.Expression, sql: str, env: Env) -> str:
    """Return SQL by which rows sort, group and differ as in PostgreSQL. Raise 0A000 for a type that DuckDB orders differently."""
    check_collation(node)
    if not in_order(node.type.oid) or (node.type.oid == t.NUMERIC and scale(node, env) is None):
        raise refuse(f"the order of type {t.format_type(node.type.oid)}", node)
    return _plain(node.type.oid, sql)


def _plain(oid: int, sql: str) -> str:
    return f"rtrim({sql}, ' ')" if base_of(oid) == t.BPCHAR else sql


def check_collation(node: n.Expression) -> None:
    """Raise 0A000 for text that does not sort by its bytes."""
    name = builtin.builtins().collation_names.get(node.type.collation, str(node.type.collation))
    if node.type.collation and name not in _C:
        raise refuse(f'collation "{name}"', node)


def compare(operator: builtin.Operator, left: n.Expression, right: n.Expression, a: str, b: str, env: Env) -> str:
    """Return ``a operator b`` over the operands' SQL."""
    kinds = {base_of(left.type.oid), base_of(right.type.oid)}
    elements = [element_of(operand.type.oid) for operand in (left, right)]
    if None not in elements:
        kinds = {element for element in elements if element is not None}
    is_supported = any(kinds <= family for family in _FAMILIES)
    if operator.name in ("=", "<>"):
        is_supported = is_supported or (len(kinds) == 1 and kinds <= _EQUAL_ONLY)
    elif kinds & _EQUAL_ONLY:
        is_supported = False
    if not is_supported or ({t.TIMESTAMPTZ} < kinds and not env.in_utc):
        raise refuse(f"operator {t.format_type(left.type.oid)} {operator.name} {t.format_type(right.type.oid)}", left)
    if kinds == {t.NUMERIC} and None in (scale(left, env), scale(right, env)):
        raise refuse("a numeric value whose scale is not known")
    if operator.name not in ("=", "<>"):
        check_collation(left)
        check_collation(right)
    if kinds == {t.XID, t.INT4}:  # the integer's bits, unsigned: '4294967295'::xid = -1
        a, b = (f"(CAST({sql} AS BIGINT) & 4294967295)" for sql in (a, b))
    if t.BPCHAR in kinds:
        a, b = _plain(t.BPCHAR, a), _plain(t.BPCHAR, b)
    return f"({a} {operator.name} {b})"
