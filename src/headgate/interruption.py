"""Lets long-running Python code end when its statement is cancelled.

The server sets the check of a statement for the statement's thread (`watched`). Long-running code calls `check` periodically, and the error
that it raises ends the statement. Do not call `check` between two steps that must both be done or neither. Outside a statement `check` does
nothing, and neither does it in Spark's workers, because Spark ends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.errors import PostgresError

_thread = threading.local()


@contextmanager
def watched(check_statement: Callable[[], None]) -> Iterator[None]:
    """Have `check` call `check_statement` inside the context."""
    outer = getattr(_thread, "check", None)
    _thread.check = check_statement
    try:
        yield
    finally:
        _thread.check = outer


def check() -> None:
    """Raise an error if the statement is cancelled."""
    check_statement: Callable[[], None] | None = getattr(_thread, "check", None)
    if check_statement is not None:
        check_statement()


def pending(check_statement: Callable[[], None] = check) -> PostgresError | None:
    """Return the error that a check would raise, or None."""
    try:
        check_statement()
    except PostgresError as error:
        return error
    return None
