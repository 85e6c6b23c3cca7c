"""Validates a publisher's answers: text without a zero byte, numbers in their range, a SQLSTATE. Invalid ones are 22021 or 08P01.

A publisher is not trusted. Called by `link` for every cell, and by code that reads a number from an answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headgate.errors import PostgresError


@dataclass(eq=False)
class PublisherError(PostgresError):
    """An error reported by the publisher, with its SQLSTATE. `message` is libpq's text, ``ERROR:  …`` with DETAIL and HINT lines."""


LARGEST = 64 << 20
"""The most bytes of an answer that is held completely. It does not apply to the rows of a COPY and of the stream."""
ROW = 100
"""The bytes that a row takes in addition to its cells."""
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_STATE = re.compile(rb"[0-9A-Z]{5}")


def text(cell: bytes) -> str:
    """Return the text of a cell. Raise 22021 if it is not valid UTF-8 without zero bytes."""
    if b"\0" in cell:
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        return cell.decode()
    except UnicodeDecodeError as error:
        shown = " ".join(f"0x{byte:02x}" for byte in cell[error.start : error.end])
        raise PostgresError("22021", f'invalid byte sequence for encoding "UTF8": {shown}') from error


def number(cell: str | None, *, least: int = 0, most: int = 2**32 - 1) -> int:
    """Return a number. Raise 08P01 if it is NULL, not a number or out of range."""
    value = int(cell) if cell is not None and _NUMBER.fullmatch(cell) else least - 1
    if not least <= value <= most:
        raise PostgresError("08P01", "invalid response from publisher", detail=f"Expected a number from {least} to {most}.")
    return value


def attnum(cell: str | None) -> int:
    """Return a column number. Raise 08P01 if it is invalid."""
    return number(cell, most=2**15 - 1)


def sqlstate(field: bytes | None) -> str:
    """Return the SQLSTATE of an error: 08006 if the field is missing, 08P01 if it is invalid."""
    if not field:
        return "08006"
    return field.decode() if _STATE.fullmatch(field) else "08P01"


def check_fields(count: int, expected: int | None) -> None:
    """Raise 08P01 unless the rows have the expected number of fields."""
    if expected is not None and count != expected:
        raise PostgresError("08P01", "invalid response from publisher", detail=f"Expected {expected} fields, got {count}.")
