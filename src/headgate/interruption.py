"""Whether the statement of this thread shall go on: asked by work in Python that may take long.

The server says who knows it, for the time of a statement (`watched`); who works through something long asks now and then (`look`), and what
that raises ends the work. It must not be asked between two steps that belong together: what is half done stays so. Outside of a statement,
and in Spark's workers, which are ended from outside, nothing is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_asked = threading.local()


@contextmanager
def watched(check: Callable[[], None]) -> Iterator[None]:
    """Inside, `look` calls `check`."""
    before = getattr(_asked, "check", None)
    _asked.check = check
    try:
        yield
    finally:
        _asked.check = before


def look() -> None:
    """Raises what ends the statement, if anything does."""
    check: Callable[[], None] | None = getattr(_asked, "check", None)
    if check is not None:
        check()
