"""Regular expressions in DuckDB. Patterns for which its RE2 may not find what PostgreSQL's engine finds are refused.

Used by `implementation.character.regex`. Invariant: if only the existence of a match counts, the pattern must describe the same
strings in both engines. If the position of the match counts, the pattern must have only one way to match, because RE2 takes the first way
and PostgreSQL the longest.
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
"""Pattern elements with the same meaning in both engines."""
_ONE_WAY = re.compile(rf"\^?{_ATOM}*(?:{_ATOM}[*+])?\$?", re.DOTALL)
"""A sequence of atoms, of which the last may be repeated without limit."""
_GROUP = re.compile(rf"\^?{_ATOM}*\((?!\?)({_ATOM}[*+]?)\){_ATOM}*(?:\.\*|\((?P<words>\w+(?:\|\w+)+)\))?\$?", re.DOTALL)
"""One atom in parentheses, which may be repeated, between others. It may be followed by any text, or by one of several words."""
_DOTS = re.compile(rf"\^?(?:{_ATOM}|\.(?:[*+]|\{{\d{{1,3}},\}}))*\((?!\?)\.[*+]\)(?:{_ATOM}|\.(?:[*+]|\{{\d{{1,3}},\}}))*\$?", re.DOTALL)
"""Single characters, and any text between them, once in parentheses. The match may end in several places. Both engines take the last end,
and then the longest text for each dot from left to right."""
_PIECE = re.compile(rf"(?P<open>\((?!\?))|(?P<close>\))|(?P<atom>{_ATOM})(?P<times>[*+?]?)", re.DOTALL)
_LONGEST = 1_000
"""Maximum length in characters of a pattern that is analyzed piece by piece."""
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
    """Return the form of ~ ~* !~ !~*, with RE2's options."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        test = f"regexp_matches({args[0]}, {_pattern(operands[1], env)}, 's{options}')"
        return f"(NOT {test})" if negated else test

    return build


def _groups(pattern: str) -> int | None:
    """Return the number of groups in a pattern of which both engines find the same match. Return None if that cannot be shown.

    An atom that may be repeated or missing ends where the next begins, if they have no character in common. If the same atom follows, the
    first one matches everything.
    """
    if len(pattern) > _LONGEST:
        return None
    if _DOTS.fullmatch(pattern):
        return 1
    whole = _GROUP.fullmatch(pattern)
    if whole is not None:
        words = (whole["words"] or "").split("|")
        return None if any(word.startswith(prefix) for word, prefix in itertools.permutations(words, 2)) else 1
    pieces: list[tuple[frozenset[str], str]] = []
    position, opened, closed = int(pattern.startswith("^")), 0, 0
    while position < len(pattern.removesuffix("$")):
        match = _PIECE.match(pattern, position)
        if match is None or "[:" in match[0]:
            return None
        position = match.end()
        opened, closed = opened + bool(match["open"]), closed + bool(match["close"])
        if match["atom"]:
            pieces.append(
                (frozenset(character for character in _CHARACTERS if re.fullmatch(match["atom"], character, re.DOTALL)), match["times"])
            )
    for place, (characters, times) in enumerate(pieces):
        for following, often in pieces[place + 1 :] if times else ():
            if characters & following and not (times == often == "*" and characters == following):
                return None
            if often not in ("*", "?"):
                break
    return opened if opened == closed <= 1 else None


def _position_pattern(node: n.Expression, env: Env) -> tuple[str, int]:
    """Return a pattern whose match position counts, and the number of its groups (0: none). Raise 0A000 if it may match in several ways."""
    text = _constant(node, env)
    group = 0 if text is None else _groups(text) or 0
    return (quote(text), group) if text is not None and group else (_pattern(node, env, one_way=True), 0)


def extracted(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return substring(text from pattern): the text of the group if there is one, otherwise of the match."""
    return _if_matched("{}", operands, args, env)


def matched(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return regexp_match(text, pattern): the same text as the only element of an array."""
    return _if_matched("[{}]", operands, args, env)


def _if_matched(result: str, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    pattern, group = _position_pattern(operands[1], env)
    text = f"regexp_extract({args[0]}, {pattern}, {group}, 's')"
    return f"CASE WHEN regexp_matches({args[0]}, {pattern}, 's') THEN {result.format(text)} END"


def replaced(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return regexp_replace(text, pattern, replacement [, flags]). The replacement may refer to the group."""
    pattern, group = _position_pattern(operands[1], env)
    replacement = _constant(operands[2], env)
    flags = (_constant(operands[3], env) or "") if len(operands) > 3 else ""
    is_plain = replacement is not None and "\\" not in (replacement.replace(r"\1", "") if group else replacement)
    if not is_plain or not set(flags) <= {"g"} or (flags and re.search(r"[*]\)?\$?'?\Z", pattern)):
        raise refuse("this form of regexp_replace", node)
    return f"regexp_replace({args[0]}, {pattern}, {args[2]}, 's{flags}')"
