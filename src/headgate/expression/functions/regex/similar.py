"""The patterns of LIKE and SIMILAR TO (like_match.c, like.c, similar_escape_internal of regexp.c), on single values.

Used by `text` and `regex` where a pattern is not a constant, and for constants when they are planned.
"""

from __future__ import annotations

import enum

from headgate.errors import PostgresError

_ENDS = PostgresError("22025", "LIKE pattern must not end with escape character")
_ESCAPE = PostgresError("22025", "invalid escape string", hint="Escape string must be empty or one character.")


class _Found(enum.Enum):
    YES = enum.auto()
    NO = enum.auto()
    NEVER = enum.auto()
    """The text is at its end: no later start can match either."""


def like(text: str, pattern: str) -> bool:
    """``text LIKE pattern`` with backslash as the escape character; 22025 if the match comes upon one that ends the pattern."""
    return _match(text, 0, pattern, 0) is _Found.YES


def not_like(text: str, pattern: str) -> bool:
    """``text NOT LIKE pattern``."""
    return not like(text, pattern)


def ilike(text: str, pattern: str) -> bool:
    """``text ILIKE pattern``, ASCII letters alike in either case."""
    return like(lower(text), lower(pattern))


def not_ilike(text: str, pattern: str) -> bool:
    """``text NOT ILIKE pattern``."""
    return not ilike(text, pattern)


_LOWER = {code: code + 32 for code in range(65, 91)}


def lower(text: str) -> str:
    """ASCII letters in lower case, as the C collation has it."""
    return text.translate(_LOWER)


def _match(text: str, at: int, pattern: str, place: int) -> _Found:
    """MatchText: whether the rest of the text matches the rest of the pattern."""
    while at < len(text) and place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
            if place >= len(pattern):
                raise _ENDS
            if pattern[place] != text[at]:
                return _Found.NO
        elif character == "%":
            return _any(text, at, pattern, place + 1)
        elif character not in ("_", text[at]):
            return _Found.NO
        at += 1
        place += 1
    if at < len(text):
        return _Found.NO
    return _Found.YES if not pattern[place:].strip("%") else _Found.NEVER


def _any(text: str, at: int, pattern: str, place: int) -> _Found:
    """What stands behind a per cent sign."""
    while place < len(pattern) and pattern[place] in "%_":
        if pattern[place] == "_":
            if at >= len(text):
                return _Found.NEVER
            at += 1
        place += 1
    if place >= len(pattern):
        return _Found.YES
    first = pattern[place]
    if first == "\\":
        if place + 1 >= len(pattern):
            raise _ENDS
        first = pattern[place + 1]
    at = text.find(first, at)
    while at >= 0:
        found = _match(text, at, pattern, place)
        if found is not _Found.NO:
            return found
        at = text.find(first, at + 1)
    return _Found.NEVER


def like_escape(pattern: str, escape: str) -> str:
    """The pattern with backslash as its escape character."""
    if not escape:
        return pattern.replace("\\", "\\\\")
    if len(escape) > 1:
        raise _ESCAPE
    if escape == "\\":
        return pattern
    done, escaped = "", False
    for each in pattern:
        if each == escape and not escaped:
            done += "\\"
            escaped = True
            continue
        if each == "\\":
            done += "\\" if escaped else "\\\\"
        else:
            done += each
        escaped = False
    return done


def similar_to_escape(pattern: str, escape: str = "\\") -> str:
    """The ARE of a pattern of SIMILAR TO; 2200C for more than two separators of a SUBSTRING's parts."""
    if len(escape) > 1:
        raise _ESCAPE
    done, separators, escaped, in_class = "^(?:", 0, False, False
    for each in pattern:
        if escaped:
            escaped = False
            if each != '"' or in_class:
                done += "\\" + each
            elif separators > 1:
                raise PostgresError("2200C", "SQL regular expression may not contain more than two escape-double-quote separators")
            else:
                done += ("){1,1}?(", "){1,1}(?:")[separators]
                separators += 1
        elif each == escape:
            escaped = True
        elif in_class:
            done += "\\\\" if each == "\\" else each
            in_class = each != "]"
        elif each == "[":
            done += each
            in_class = True
        else:
            done += _SIMILAR.get(each, each)
    return done + ")$"


_SIMILAR = {"%": ".*", "_": ".", "(": "(?:", "\\": "\\\\", ".": "\\.", "^": "\\^", "$": "\\$"}


def similar_escape(pattern: str | None, escape: str | None) -> str | None:
    """The older form, in which a NULL escape character means backslash."""
    if pattern is None:
        return None
    return similar_to_escape(pattern, "\\" if escape is None else escape)
