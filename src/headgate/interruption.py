"""Lets long-running Python code end when its statement is cancelled.

The server sets the check of a statement for the statement's thread (`watched`). Long-running code calls `look` periodically, and the error
that it raises ends the statement. Do not call `look` between two steps that must both be done or neither. Outside a statement `look` does
nothing, and neither does it in Spark's workers, because Spark ends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_thread = threading.local()


@contextmanager
def watched(check: Callable[[], None]) -> Iterator[None]:
    """Have `look` call `check` inside the context."""
    outer = getattr(_thread, "check", None)
    _thread.check = check
    try:
        yield
    finally:
        _thread.check = outer


def look() -> None:
    """Raise an error if the statement is cancelled."""
    check: Callable[[], None] | None = getattr(_thread, "check", None)
    if check is not None:
        check()
