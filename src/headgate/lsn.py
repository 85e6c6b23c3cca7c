"""LSN: a position in a log, PostgreSQL's WAL or a node's transaction log (pg_lsn; manual, 8.20).

Used by every floor. An `Lsn` is an int of 64 bits, so it orders and adds like one; its text form is PostgreSQL's
``%X/%X``: the high and the low 32 bits in upper-case hexadecimal.
"""

from __future__ import annotations

import re

from headgate.errors import PostgresError

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")


class Lsn(int):
    """A log position.

    >>> str(Lsn.parse("16/B374D848"))
    '16/B374D848'
    >>> Lsn.parse("0/10") + 8 == Lsn.parse("0/18")
    True
    """

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Parse the text form. Raise 22P02 if it is invalid."""
        match = _TEXT.match(text.strip())
        if not match:
            raise PostgresError("22P02", f'invalid input syntax for type pg_lsn: "{text}"')
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({str(self)!r})"


INVALID = Lsn(0)
"""`InvalidXLogRecPtr`, printed 0/0: no position."""
