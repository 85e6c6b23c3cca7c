"""Text in DuckDB: LIKE, concatenation, format(). Used by `implementation.character.text`, `string` and `system`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import cast
from headgate.expression.duckdb.value import DuckdbForm, Env, base_of, quote, raised, refuse
from headgate.types import registry as t

_TORN = re.compile(r"^(?:[^\\]|\\.)*\\$", re.DOTALL)
"""A pattern that ends with an escape character."""


LOWER = "translate({0}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
"""The template of a text in lower case, as the C collation folds it."""


def like(*, folded: bool = False, negated: bool = False) -> DuckdbForm:
    """Return the form of LIKE or ILIKE. An ESCAPE clause is a function call around the pattern."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        subject, pattern, escape, pattern_node = args[0], args[1], "'\\'", operands[1]
        if isinstance(pattern_node, n.FuncExpr) and builtin.function(pattern_node.function).key == "like_escape":
            escape = _escape(pattern_node.args[1])
        if folded:
            subject, pattern = LOWER.format(subject), LOWER.format(pattern)
        if not isinstance(pattern_node, n.Const) or _TORN.search(pattern_node.value or ""):
            torn = raised("22025", "LIKE pattern must not end with escape character", t.TEXT)
            pattern = (
                f"CASE WHEN regexp_matches({pattern}, {quote(_TORN.pattern)}) THEN {torn} ELSE {pattern} END"
                if escape == "'\\'"
                else pattern
            )
        return f"({subject} {'NOT ' if negated else ''}LIKE {pattern} ESCAPE {escape})"

    return build


def _escape(node: n.Expression) -> str:
    if not isinstance(node, n.Const):
        raise refuse("LIKE with an ESCAPE that is not a constant", node)
    return quote(node.value) if node.value is not None else "NULL"


def concat(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Concatenate the text forms of the arguments, skipping NULLs."""
    if isinstance(node, n.FuncExpr) and node.variadic:
        raise refuse("VARIADIC", node)
    return f"concat({', '.join(cast.text(operand, sql, env) for operand, sql in zip(operands, args, strict=True))})"


def concat_ws(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Concatenate with a separator, the first argument."""
    return "concat_ws" + concat(node, operands, args, env).removeprefix("concat")


def beside(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return ``anynonarray || text`` or the reverse. A boolean is written as true or false, as a cast writes it."""
    texts = [
        f"CASE WHEN {sql} THEN 'true' WHEN NOT {sql} THEN 'false' END"
        if base_of(operand.type.oid) == t.BOOL
        else cast.text(operand, sql, env)
        for operand, sql in zip(operands, args, strict=True)
    ]
    return f"({texts[0]} || {texts[1]})"


def format_text(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return format() with a constant pattern of %s, %I, %L."""
    pattern = operands[0]
    if not isinstance(pattern, n.Const) or pattern.value is None or (isinstance(node, n.FuncExpr) and node.variadic):
        raise refuse("format with a pattern that is not a constant", node)
    texts = [cast.text(operand, sql, env) for operand, sql in zip(operands[1:], args[1:], strict=True)]
    parts = []
    for piece in re.split(r"(%[%sIL])", pattern.value):
        if piece in ("%s", "%I", "%L"):
            if not texts:
                return raised("22023", "too few arguments for format()", t.TEXT)
            value = texts.pop(0)
            name = f"CASE WHEN {value} IS NULL THEN {raised('22004', 'null values cannot be formatted as an SQL identifier', t.TEXT)}"
            parts.append(
                {
                    "%s": f"coalesce({value}, '')",
                    "%I": f"{name} ELSE hg.quote_ident({value}) END",
                    "%L": f"coalesce(hg.quote_literal({value}), 'NULL')",
                }[piece]
            )
        elif "%" in piece.replace("%%", ""):
            raise refuse("this pattern of format", node)
        elif piece:
            parts.append(quote("%" if piece == "%%" else piece))
    return f"({' || '.join(parts) or quote('')})"
