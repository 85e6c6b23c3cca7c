"""The texts of fields of composite values and of bounds of ranges, which hold quotes and backslashes by one rule.

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
    """Return the field that begins at a place, and the place of the character (one of `ends`) behind it; None if nothing is there.

    ValueError if the text ends in the field.
    """
    if text[at : at + 1] and text[at] in ends:
        return None, at
    made: list[str] = []
    while not (text[at : at + 1] and text[at] in ends):
        piece = _piece(ends).match(text, at)
        if piece is None:
            raise ValueError(text)
        if piece["quoted"] is not None:
            made += ["".join(part.groups("")) for part in _INSIDE.finditer(piece["quoted"][1:-1])]
        else:
            made.append(piece["text"] or piece["escaped"])
        at = piece.end()
    return "".join(made), at
