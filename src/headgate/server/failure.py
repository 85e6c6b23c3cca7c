"""What is not yet a PostgresError, made one at the edge of a session.

Called by the session and the walsender for whatever a statement raised. What must hold: a client never sees a Python traceback;
the log does, once, for errors that nobody foresaw.
"""

from __future__ import annotations

import logging
import re

from headgate.errors import PostgresError

_log = logging.getLogger("headgate.server")


def as_postgres_error(error: BaseException) -> PostgresError:
    """The error itself, or XX000 with the cause's first line."""
    if isinstance(error, PostgresError):
        return error
    if isinstance(error, MemoryError):
        return PostgresError("53200", "out of memory")
    if isinstance(error, RecursionError):
        return PostgresError("54001", "stack depth limit exceeded")
    raised = _raised_in_worker(error)
    if raised is not None:
        return raised
    _log.warning("unforeseen %s", type(error).__name__, exc_info=error)
    lines = str(error).strip().splitlines()
    return PostgresError("XX000", (lines[0] if lines else type(error).__name__)[:2000], detail=type(error).__name__)


def _raised_in_worker(error: BaseException) -> PostgresError | None:
    """A PostgresError that a Spark task raised arrives inside the text of Spark's own error."""
    found = re.search(r"headgate\.errors\.PostgresError: (.*)", str(error))
    return PostgresError("XX000", found[1].strip()) if found else None
