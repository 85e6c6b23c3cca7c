"""A publisher's answers, taken for what they should be: text without a zero byte, numbers of their range, a SQLSTATE. Else 22021 or 08P01.

A publisher may be anybody. Called by `link` for every cell, and by whoever reads a number out of an answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headgate.errors import PostgresError


@dataclass(eq=False)
class PublisherError(PostgresError):
    """An error that the publisher reported, with its SQLSTATE; `message` is libpq's text, ``ERROR:  …`` with DETAIL and HINT lines."""


LARGEST = 64 << 20
"""Bytes of one answer that is held as a whole; the rows of a COPY and of the stream are not."""
ROW = 100
"""Bytes that a row costs beside its cells."""
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_STATE = re.compile(rb"[0-9A-Z]{5}")


def text(cell: bytes) -> str:
    """The text of a cell."""
    if b"\0" in cell:
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        return cell.decode()
    except UnicodeDecodeError as error:
        shown = " ".join(f"0x{byte:02x}" for byte in cell[error.start : error.end])
        raise PostgresError("22021", f'invalid byte sequence for encoding "UTF8": {shown}') from error


def number(cell: str | None, *, least: int = 0, most: int = 2**32 - 1) -> int:
    """A number; NULL is none."""
    found = int(cell) if cell is not None and _NUMBER.fullmatch(cell) else least - 1
    if not least <= found <= most:
        raise PostgresError("08P01", "invalid response from publisher", detail=f"Expected a number from {least} to {most}.")
    return found


def attnum(cell: str | None) -> int:
    """The number of a column."""
    return number(cell, most=2**15 - 1)


def sqlstate(field: bytes | None) -> str:
    """What an error says that it is; 08006 where it says nothing, 08P01 where that is no SQLSTATE."""
    if not field:
        return "08006"
    return field.decode() if _STATE.fullmatch(field) else "08P01"


def check_fields(got: int, wanted: int | None) -> None:
    """Raises unless the rows have so many fields."""
    if wanted is not None and got != wanted:
        raise PostgresError("08P01", "invalid response from publisher", detail=f"Expected {wanted} fields, got {got}.")
