"""Parses fields of composite values and bounds of ranges, whose quotes and backslashes follow the same rule.

Called by `base.range_type` (range_parse_bound) and `text.record` (record_in) for one value at a time.
"""

from __future__ import annotations

import functools
import re

_INSIDE = re.compile(r'\\(.)|"(")|([^"\\]+)', re.DOTALL)


@functools.cache
def _piece(ends: str) -> re.Pattern[str]:
    return re.compile(rf'(?P<text>[^"\\{re.escape(ends)}]+)|\\(?P<escaped>.)|(?P<quoted>"(?:[^"\\]|\\.|"")*+")', re.DOTALL)


def read(text: str, at: int, ends: str) -> tuple[str | None, int]:
    """Parse the field at index `at`. Return its text (None if it is empty) and the index of the character in `ends` after it.

    Raise ValueError if the text ends inside the field.
    """
    if text[at : at + 1] and text[at] in ends:
        return None, at
    parts: list[str] = []
    while not (text[at : at + 1] and text[at] in ends):
        piece = _piece(ends).match(text, at)
        if piece is None:
            raise ValueError(text)
        if piece["quoted"] is not None:
            parts += ["".join(part.groups("")) for part in _INSIDE.finditer(piece["quoted"][1:-1])]
        else:
            parts.append(piece["text"] or piece["escaped"])
        at = piece.end()
    return "".join(parts), at
