"""Accept expressions from a publisher's catalog only if they are harmless: defaults, generated columns, checks of domains.

Called by `remote_type`, `create_tables` and `schema_evolution`. The expressions are later evaluated with the rights of the role that writes
to the table. So only constants, operators, casts and functions that neither read nor change anything are accepted: functions with IMMUTABLE
and no VOLATILE variants, and those of `_PERMITTED`. For other expressions the result is None. The statement itself shows whether the binder
supports the rest.
"""

from __future__ import annotations

from headgate.errors import PostgresError
from headgate.expression.builtin import builtins
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse_expression, walk

LONGEST = 10_000
"""Maximum length of an accepted expression in characters."""
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
"""Functions that are not IMMUTABLE but only compute."""


def accepted(text: str | None) -> ParseNode | None:
    if text is None or len(text) > LONGEST:
        return None
    try:
        tree = parse_expression(text)
    except PostgresError:
        return None
    return tree if harmless(tree) else None


def harmless(tree: ParseNode) -> bool:
    return all(_harmless(node) for node in walk(tree))


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
    variants = builtins().functions_named.get(name[-1], ())
    kinds = {variant.volatility for variant in variants}
    return "i" in kinds and kinds <= {"i", "s"} and all(variant.kind == "f" for variant in variants)


def is_number_of_a_sequence(text: str | None) -> bool:
    """Return whether a default is the nextval of a sequence."""
    try:
        tree = None if text is None or len(text) > LONGEST else parse_expression(text)
    except PostgresError:
        return False
    return tree is not None and tree.DESCRIPTOR.name == "FuncCall" and names.strings(tree.funcname)[-1:] == ["nextval"]
