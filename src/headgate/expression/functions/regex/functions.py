"""The functions of regular expressions on single values (regexp.c, varlena.c): regexp_match, regexp_replace, substring.

Run by `vectorised` in Spark's workers, and for constants when a call is planned. Results that are arrays are PostgreSQL's array text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headgate.errors import PostgresError
from headgate.expression.functions.array import written
from headgate.expression.functions.regex.lexer import OPTIONS, Flag
from headgate.expression.functions.regex.matcher import MatchSubject, Spans
from headgate.expression.functions.regex.parser import parse
from headgate.expression.functions.regex.similar import similar_to_escape


def options(letters: str, function: str = "") -> tuple[Flag, bool]:
    """Return (flags, global) for a flags argument. `function` names a function that does not accept "g"."""
    flags, everywhere = Flag.ADVANCED, False
    for letter in letters:
        if letter == "g":
            everywhere = True
        elif letter in OPTIONS:
            flags = (flags | OPTIONS[letter][0]) & ~OPTIONS[letter][1]
        else:
            raise PostgresError("22023", f'invalid regular expression option: "{letter}"')
    if everywhere and function:
        hint = "Use the regexp_matches function instead." if function == "regexp_match()" else None
        raise PostgresError("22023", f'{function} does not support the "global" option', hint=hint)
    return flags, everywhere


def matches(flags: int, text: str, pattern: str) -> bool:
    """Return ``text ~ pattern``."""
    return MatchSubject(parse(pattern, Flag(flags)), text).matches()


def differs(flags: int, text: str, pattern: str) -> bool:
    """Return ``text !~ pattern``."""
    return not matches(flags, text, pattern)


def regexp_like(text: str, pattern: str, letters: str = "") -> bool:
    """Return whether the pattern matches, with the letters of a flags argument."""
    return matches(int(options(letters, "regexp_like()")[0]), text, pattern)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise PostgresError("22023", f'invalid value for parameter "{name}": {value}')


def _find_all(text: str, pattern: str, flags: Flag, start: int) -> Iterator[Spans]:
    """Yield all matches from left to right. After an empty match, the search continues one character further."""
    parsed = parse(pattern, flags)
    subject = MatchSubject(parsed, text)
    while start <= len(text):
        spans = subject.find(start)
        if spans is None:
            return
        yield spans
        begin, end = _span(spans)
        start = end + (begin == end)


def _span(spans: Spans) -> tuple[int, int]:
    span = spans[0]
    assert span is not None
    return span


def _piece(text: str, span: tuple[int, int] | None) -> str | None:
    return None if span is None else text[span[0] : span[1]]


def substring(text: str, pattern: str) -> str | None:
    """Return ``substring(text from pattern)``: the first group, or the whole match if there are no groups."""
    spans = next(_find_all(text, pattern, Flag.ADVANCED, 0), None)
    return None if spans is None else _piece(text, spans[min(1, len(spans) - 1)])


def substring_similar(text: str, pattern: str, escape: str) -> str | None:
    """Return ``substring(text similar pattern escape escape)``."""
    return substring(text, similar_to_escape(pattern, escape))


def regexp_match(text: str, pattern: str, letters: str = "") -> str | None:
    """Return the groups of the first match, or the match itself if there are no groups, as an array."""
    flags, _ = options(letters, "regexp_match()")
    spans = next(_find_all(text, pattern, flags, 0), None)
    if spans is None:
        return None
    return written([_piece(text, span) for span in spans[1:] or spans[:1]])


def regexp_matches(text: str, pattern: str, letters: str = "") -> list[tuple[str]]:
    """Return the rows of regexp_matches: the result of `regexp_match` for the first match, or for all matches with flag g."""
    flags, everywhere = options(letters)
    rows = []
    for spans in _find_all(text, pattern, flags, 0):
        rows.append((written([_piece(text, span) for span in spans[1:] or spans[:1]]),))
        if not everywhere:
            break
    return rows


def regexp_split_to_table(text: str, pattern: str, letters: str = "") -> list[tuple[str]]:
    """Return the rows of regexp_split_to_table: the text between matches."""
    return [(piece,) for piece in _pieces(text, pattern, options(letters, "regexp_split_to_table()")[0])]


def regexp_split_to_array(text: str, pattern: str, letters: str = "") -> str:
    """Return the text between matches as an array. An empty match at the end of the previous match does not split."""
    return written(_pieces(text, pattern, options(letters, "regexp_split_to_array()")[0]))


def _pieces(text: str, pattern: str, flags: Flag) -> list[str]:
    pieces = []
    piece_start = previous = 0
    for spans in _find_all(text, pattern, flags, 0):
        begin, end = _span(spans)
        if begin < len(text) and end > previous:
            pieces.append(text[piece_start:begin])
            piece_start = end
        previous = end
    return [*pieces, text[piece_start:]]


def regexp_count(text: str, pattern: str, start: int = 1, letters: str = "") -> int:
    _at_least("start", start, 1)
    flags, _ = options(letters, "regexp_count()")
    return sum(1 for _ in _find_all(text, pattern, flags, start - 1))


def _nth(text: str, pattern: str, start: int, count: int, flags: Flag, group: int) -> tuple[int, int] | None:
    """Return the span of a group (0: the match) of the count-th match. In a pattern without groups, group 1 is the match."""
    for number, spans in enumerate(_find_all(text, pattern, flags, start - 1), 1):
        if number == count:
            if group and len(spans) == 1:
                return spans[0] if group == 1 else None
            return spans[group] if group < len(spans) else None
    return None


def regexp_instr(text: str, pattern: str, start: int = 1, count: int = 1, behind: int = 0, letters: str = "", group: int = 0) -> int:
    """Return where the count-th match, or a group of it, begins, or (`behind` = 1) the position after its end. Return 0 for no match."""
    _at_least("start", start, 1)
    _at_least("n", count, 1)
    if behind not in (0, 1):
        raise PostgresError("22023", f'invalid value for parameter "endoption": {behind}')
    _at_least("subexpr", group, 0)
    flags, _ = options(letters, "regexp_instr()")
    span = _nth(text, pattern, start, count, flags, group)
    return 0 if span is None else span[behind] + 1


def regexp_substr(text: str, pattern: str, start: int = 1, count: int = 1, letters: str = "", group: int = 0) -> str | None:
    """Return the text of the count-th match, or of a group of it."""
    _at_least("start", start, 1)
    _at_least("n", count, 1)
    _at_least("subexpr", group, 0)
    flags, _ = options(letters, "regexp_substr()")
    return _piece(text, _nth(text, pattern, start, count, flags, group))


def regexp_replace(text: str, pattern: str, new: str, letters: str = "") -> str:
    """Replace the first match, or all matches with flag g."""
    if letters[:1] in set("0123456789"):
        raise PostgresError(
            "22023",
            f'invalid regular expression option: "{letters[0]}"',
            hint="If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
        )
    flags, everywhere = options(letters)
    return _replace(text, pattern, new, flags, 0, 0 if everywhere else 1)


def regexp_replace_from(text: str, pattern: str, new: str, start: int, count: int | None = None, letters: str = "") -> str:
    """Replace the count-th match from `start` on, or all for count 0. Without a count, replace all with flag g, otherwise one."""
    _at_least("start", start, 1)
    _at_least("n", count or 0, 0)
    flags, everywhere = options(letters)
    if count is None:
        count = 0 if everywhere else 1
    return _replace(text, pattern, new, flags, start - 1, count)


def _replace(text: str, pattern: str, new: str, flags: Flag, start: int, count: int) -> str:
    parts, copied = [], 0
    for number, spans in enumerate(_find_all(text, pattern, flags, start), 1):
        if count and number != count:
            continue
        begin, end = _span(spans)
        parts += [text[copied:begin], _fill(text, new, spans)]
        copied = end
        if count:
            break
    return "".join(parts) + text[copied:]


_ESCAPED = re.compile(r"\\([1-9&\\])?")


def _fill(text: str, new: str, spans: Spans) -> str:
    r"""Return the replacement with ``\1`` to ``\9``, ``\&`` and ``\\`` substituted. A backslash before any other character is literal."""

    def put(match: re.Match[str]) -> str:
        mark = match[1]
        if mark is None or mark == "\\":
            return "\\"
        number = 0 if mark == "&" else int(mark)
        return (_piece(text, spans[number]) if number < len(spans) else None) or ""

    return _ESCAPED.sub(put, new)
