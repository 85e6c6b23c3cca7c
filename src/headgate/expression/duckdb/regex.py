"""Regular expressions in DuckDB, whose RE2 finds in some patterns what PostgreSQL's engine finds: the others are refused.

Forms of `implementation.regex`. What must hold: of a pattern that is asked only whether it matches, it is enough that it describes the
same strings; where the place of the match counts, it must have one way to match, as RE2 takes the first way and PostgreSQL the longest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb.value import DuckdbForm, Env, quote, refuse

_SET = r"\[\^?\]?(?:\[:(?:alpha|digit|alnum|upper|lower|space|punct|xdigit):\]|[^\[\]\\])*\]"
_ATOM = rf"(?:[^\\\[\](){{}}|*+?^$]|\\[^\w\s]|\\[dw]|{_SET})"
_PIECES = re.compile(
    rf"(?:{_ATOM}|\((?!\?)|\(\?:|[)|^$]|(?<![(|^])[*+?](?![*+?])|(?<![(|^])\{{\d{{1,3}}(?:,\d{{0,3}})?\}}(?![*+?]))*", re.DOTALL
)
"""What means the same in both engines."""
_ONE_WAY = re.compile(rf"\^?{_ATOM}*(?:{_ATOM}[*+])?\$?", re.DOTALL)
"""Atoms, the last of which may be repeated as often as it goes."""


def _constant(node: n.Expression, env: Env) -> str | None:
    inner = node
    while isinstance(inner, (n.Relabel, n.Collate, n.Param, n.CoerceViaIO)):
        inner = env.parameter(inner) if isinstance(inner, n.Param) else inner.arg
    if not isinstance(inner, n.Const):
        raise refuse("a regular expression that is not a constant", node)
    return inner.value


def _pattern(node: n.Expression, env: Env, *, one_way: bool = False) -> str:
    text = _constant(node, env)
    if text is None:
        return "CAST(NULL AS VARCHAR)"
    if text.startswith("***") or not (_ONE_WAY if one_way else _PIECES).fullmatch(text):
        raise refuse(f'the regular expression "{text}"', node)
    return quote(text)


def matches(options: str = "", *, negated: bool = False) -> DuckdbForm:
    """~ ~* !~ !~*, with RE2's options."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        made = f"regexp_matches({args[0]}, {_pattern(operands[1], env)}, 's{options}')"
        return f"(NOT {made})" if negated else made

    return build


def extracted(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """substring(text from pattern)."""
    pattern = _pattern(operands[1], env, one_way=True)
    return f"CASE WHEN regexp_matches({args[0]}, {pattern}, 's') THEN regexp_extract({args[0]}, {pattern}, 0, 's') END"


def replaced(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """regexp_replace(text, pattern, replacement [, flags])."""
    pattern = _pattern(operands[1], env, one_way=True)
    replacement = _constant(operands[2], env)
    flags = (_constant(operands[3], env) or "") if len(operands) > 3 else ""
    if replacement is None or "\\" in replacement or not set(flags) <= {"g"} or (flags and re.search(r"[*]\$?'?\Z", pattern)):
        raise refuse("this form of regexp_replace", node)
    return f"regexp_replace({args[0]}, {pattern}, {args[2]}, 's{flags}')"
