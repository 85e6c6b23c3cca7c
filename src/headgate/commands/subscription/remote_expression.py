"""Expressions that a publisher's catalog says: defaults, generated columns, checks of domains. Only those that can do no harm.

Called by `remote_type`, `create_tables` and `schema_evolution`. An expression is evaluated here as whoever writes to the table, so that
of what a publisher says only constants, operators, casts and functions are taken that read and change nothing: IMMUTABLE ones, and those of
`_PERMITTED`. What is not taken is None; whether the binder knows the rest is seen when the statement runs.
"""

from __future__ import annotations

from headgate.errors import PostgresError
from headgate.expression.builtin import builtins
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse_expression, walk

LONGEST = 10_000
"""Characters."""
_NODES = frozenset({
    "A_Const", "A_Expr", "A_ArrayExpr", "BoolExpr", "BooleanTest", "CaseExpr", "CaseWhen", "CoalesceExpr", "ColumnRef", "FuncCall",
    "Integer", "Float", "Boolean", "BitString", "List", "MinMaxExpr", "NullTest", "SQLValueFunction", "String", "TypeCast", "TypeName",
    "A_Indirection", "A_Indices", "CollateClause",
})  # fmt: skip
_PERMITTED = frozenset({
    "now", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "timeofday", "random", "gen_random_uuid", "to_char",
    "to_date", "to_timestamp", "date_part", "date_trunc", "extract", "timezone", "age", "concat", "concat_ws", "format",
    "make_timestamptz", "to_json", "to_jsonb",
})  # fmt: skip
"""Functions that are not IMMUTABLE and do nothing but compute."""


def accepted(text: str | None) -> ParseNode | None:
    """The tree of an expression; None for one that is not taken."""
    if text is None or len(text) > LONGEST:
        return None
    try:
        tree = parse_expression(text)
    except PostgresError:
        return None
    return tree if harmless(tree) else None


def harmless(tree: ParseNode) -> bool:
    """Whether a tree that was taken apart elsewhere is nothing but such an expression."""
    return all(_harmless(each) for each in walk(tree))


def _harmless(node: ParseNode) -> bool:
    kind = node.DESCRIPTOR.name
    if kind == "FuncCall":
        return _computes(names.strings(node.funcname))
    return kind in _NODES


def _computes(name: list[str]) -> bool:
    if len(name) > 2 or (len(name) == 2 and name[0] != "pg_catalog"):
        return False
    if name[-1] in _PERMITTED:
        return True
    found = builtins().functions_named.get(name[-1], ())
    kinds = {each.volatility for each in found}
    return "i" in kinds and kinds <= {"i", "s"} and all(each.kind == "f" for each in found)


def is_number_of_a_sequence(text: str | None) -> bool:
    """Whether a default is the next number of some sequence."""
    try:
        tree = None if text is None or len(text) > LONGEST else parse_expression(text)
    except PostgresError:
        return False
    return tree is not None and tree.DESCRIPTOR.name == "FuncCall" and names.strings(tree.funcname)[-1:] == ["nextval"]
