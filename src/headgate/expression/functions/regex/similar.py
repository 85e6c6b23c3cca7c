"""Match the patterns of LIKE and SIMILAR TO on single values (like_match.c, like.c, similar_escape_internal of regexp.c).

Used by `text` and `regex` if a pattern is not a constant, and for constants when they are planned.
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
    """The text ended before the pattern, so that a later start cannot match either."""


def like(text: str, pattern: str) -> bool:
    """Return ``text LIKE pattern`` with backslash as escape character. Raise 22025 if the match reaches an escape at the pattern's end."""
    return _match(text, 0, pattern, 0) is _Found.YES


def not_like(text: str, pattern: str) -> bool:
    """Return ``text NOT LIKE pattern``."""
    return not like(text, pattern)


def ilike(text: str, pattern: str) -> bool:
    """Return ``text ILIKE pattern``, which ignores the case of ASCII letters."""
    return like(lower(text), lower(pattern))


def not_ilike(text: str, pattern: str) -> bool:
    """Return ``text NOT ILIKE pattern``."""
    return not ilike(text, pattern)


_LOWER = {code: code + 32 for code in range(65, 91)}


def lower(text: str) -> str:
    """Convert ASCII letters to lower case, as the C collation does."""
    return text.translate(_LOWER)


def _match(text: str, at: int, pattern: str, place: int) -> _Found:
    """Match the rest of the text against the rest of the pattern (MatchText)."""
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
    """Match the rest of the text against the pattern after a per cent sign."""
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
        result = _match(text, at, pattern, place)
        if result is not _Found.NO:
            return result
        at = text.find(first, at + 1)
    return _Found.NEVER


def like_escape(pattern: str, escape: str) -> str:
    """Return the pattern converted to backslash as escape character."""
    if not escape:
        return pattern.replace("\\", "\\\\")
    if len(escape) > 1:
        raise _ESCAPE
    if escape == "\\":
        return pattern
    converted, escaped = "", False
    for character in pattern:
        if character == escape and not escaped:
            converted += "\\"
            escaped = True
            continue
        if character == "\\":
            converted += "\\" if escaped else "\\\\"
        else:
            converted += character
        escaped = False
    return converted


def similar_to_escape(pattern: str, escape: str = "\\") -> str:
    """Convert a SIMILAR TO pattern to an ARE. Raise 2200C for more than two escape-double-quote separators."""
    if len(escape) > 1:
        raise _ESCAPE
    converted, separators, escaped, in_class = "^(?:", 0, False, False
    for character in pattern:
        if escaped:
            escaped = False
            if character != '"' or in_class:
                converted += "\\" + character
            elif separators > 1:
                raise PostgresError("2200C", "SQL regular expression may not contain more than two escape-double-quote separators")
            else:
                converted += ("){1,1}?(", "){1,1}(?:")[separators]
                separators += 1
        elif character == escape:
            escaped = True
        elif in_class:
            converted += "\\\\" if character == "\\" else character
            in_class = character != "]"
        elif character == "[":
            converted += character
            in_class = True
        else:
            converted += _SIMILAR.get(character, character)
    return converted + ")$"


_SIMILAR = {"%": ".*", "_": ".", "(": "(?:", "\\": "\\\\", ".": "\\.", "^": "\\^", "$": "\\$"}


def similar_escape(pattern: str | None, escape: str | None) -> str | None:
    """Convert a SIMILAR TO pattern (the older function), in which a NULL escape character means backslash."""
    if pattern is None:
        return None
    return similar_to_escape(pattern, "\\" if escape is None else escape)
