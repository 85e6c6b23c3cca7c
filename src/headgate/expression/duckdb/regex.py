"""Regular expressions in DuckDB, whose RE2 finds in some patterns what PostgreSQL's engine finds: the others are refused.

Forms of `implementation.character.regex`. What must hold: of a pattern that is asked only whether it matches, it is enough that it
describes the same strings; where the place of the match counts, it must have one way to match, as RE2 takes the first way and PostgreSQL
the longest.
"""

from __future__ import annotations

import itertools
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
_GROUP = re.compile(rf"\^?{_ATOM}*\((?!\?)({_ATOM}[*+]?)\){_ATOM}*(?:\.\*|\((?P<words>\w+(?:\|\w+)+)\))?\$?", re.DOTALL)
"""One atom in parentheses that may be repeated, between others; behind it all the rest, or one of some words."""
_PIECE = re.compile(rf"(?P<open>\((?!\?))|(?P<close>\))|(?P<atom>{_ATOM})(?P<times>[*+?]?)", re.DOTALL)
_LONGEST = 1_000
"""Characters of a pattern that is looked at piece by piece."""
_CHARACTERS = [chr(code) for code in range(128)]


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


def _groups(pattern: str) -> int | None:
    """How many pairs of parentheses are in a pattern that matches any text in one way at most; None for others, as far as is seen here.

    An atom that may be repeated or missing ends where the next begins, if no character is in both; where the same comes again, the first
    takes all that there is.
    """
    if len(pattern) > _LONGEST:
        return None
    whole = _GROUP.fullmatch(pattern)
    if whole is not None:
        words = (whole["words"] or "").split("|")
        return None if any(one.startswith(other) for one, other in itertools.permutations(words, 2)) else 1
    pieces: list[tuple[frozenset[str], str]] = []
    at, opened, closed = int(pattern.startswith("^")), 0, 0
    while at < len(pattern.removesuffix("$")):
        found = _PIECE.match(pattern, at)
        if found is None or "[:" in found[0]:
            return None
        at = found.end()
        opened, closed = opened + bool(found["open"]), closed + bool(found["close"])
        if found["atom"]:
            pieces.append((frozenset(each for each in _CHARACTERS if re.fullmatch(found["atom"], each, re.DOTALL)), found["times"]))
    for place, (characters, times) in enumerate(pieces):
        for following, often in pieces[place + 1 :] if times else ():
            if characters & following and not (times == often == "*" and characters == following):
                return None
            if often not in ("*", "?"):
                break
    return opened if opened == closed <= 1 else None


def _located(node: n.Expression, env: Env) -> tuple[str, int]:
    """A pattern of which it counts where it matches, and the number of its parentheses (0: none); 0A000 if it may match in several ways."""
    text = _constant(node, env)
    group = 0 if text is None else _groups(text) or 0
    return (quote(text), group) if text is not None and group else (_pattern(node, env, one_way=True), 0)


def extracted(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """substring(text from pattern): what the parentheses have matched, if there are some."""
    pattern, group = _located(operands[1], env)
    return f"CASE WHEN regexp_matches({args[0]}, {pattern}, 's') THEN regexp_extract({args[0]}, {pattern}, {group}, 's') END"


def replaced(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """regexp_replace(text, pattern, replacement [, flags]); the replacement may name what the parentheses have matched."""
    pattern, group = _located(operands[1], env)
    replacement = _constant(operands[2], env)
    flags = (_constant(operands[3], env) or "") if len(operands) > 3 else ""
    is_plain = replacement is not None and "\\" not in (replacement.replace(r"\1", "") if group else replacement)
    if not is_plain or not set(flags) <= {"g"} or (flags and re.search(r"[*]\)?\$?'?\Z", pattern)):
        raise refuse("this form of regexp_replace", node)
    return f"regexp_replace({args[0]}, {pattern}, {args[2]}, 's{flags}')"
