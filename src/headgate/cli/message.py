"""The output of the command line: lines of a server log before there is one, and the short lines of pg_ctl.

Used by all modules of `cli`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from headgate.errors import PostgresError, Severity


class Failed(Exception):
    """Ends a command with exit code `code` after printing `lines` to stderr."""

    def __init__(self, *lines: str, code: int = 1) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code


def fail(message: str, *more: str, code: int = 1) -> NoReturn:
    """End the command with ``headgate: message`` and further lines, as pg_ctl does."""
    raise Failed(f"headgate: {message}", *more, code=code)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Convert a PostgreSQL error inside into the end of the command, with its message, DETAIL and HINT."""
    try:
        yield
    except PostgresError as error:
        fail(error.message, *(line for line in (error.detail, error.hint) if line))


def out(text: str = "", *, end: str = "\n") -> None:
    """Write to stdout at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def err(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def show_progress(text: str) -> None:
    """On a terminal, show the progress of a command in one line, which the next text replaces. An empty text clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}"[:200])
        sys.stderr.flush()


def count(number: int, noun: str) -> str:
    """Return a number of things.

    >>> count(1, "table"), count(1200, "table")
    ('1 table', '1,200 tables')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def log(error: PostgresError, severity: Severity | None = None) -> None:
    """Write an error like a server log, with PostgreSQL's default prefix (time, process id)."""
    now = datetime.datetime.now(datetime.UTC)
    prefix = f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03d} UTC [{os.getpid()}] "
    err(f"{prefix}{severity or error.severity}:  {error.message}")
    for name, text in (("DETAIL", error.detail), ("HINT", error.hint)):
        if text:
            err(f"{prefix}{name}:  " + text.replace("\n", "\n\t"))
