"""What is not yet a PostgresError, made one at the edge of a session.

Called by the session and the walsender for whatever a statement raised. What must hold: a client never sees a Python traceback;
the log does, once, for errors that nobody foresaw.
"""

from __future__ import annotations

import logging

from headgate.errors import PostgresError
from headgate.storage.spark.failure import frames, from_spark

_log = logging.getLogger("headgate.server")


LONGEST = 64 << 10
"""Characters of a field beyond which it is cut: a message may quote all of a value, and each step with it holds the interpreter's lock."""


def as_postgres_error(error: BaseException) -> PostgresError:
    """Return the error itself, or XX000 with the cause's first line; fields that are longer than `LONGEST` are cut."""
    known = _known(error)
    known.message = _cut(known.message)
    known.detail, known.hint, known.context = (text and _cut(text) for text in (known.detail, known.hint, known.context))
    known.log_detail = known.log_detail and _cut(known.log_detail)
    return known


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _known(error: BaseException) -> PostgresError:
    if isinstance(error, PostgresError):
        stack = frames(error) if error.sqlstate == "XX000" else ""
        if stack:
            _log.warning("unforeseen error in Spark:\n%s", stack)
        return error
    if isinstance(error, MemoryError):
        return PostgresError("53200", "out of memory")
    if isinstance(error, RecursionError):
        return PostgresError("54001", "stack depth limit exceeded")
    known = from_spark(error)
    if known.sqlstate != "XX000":
        return known
    _log.warning("unforeseen %s", type(error).__name__, exc_info=error)
    return PostgresError("XX000", known.message[:2000] or type(error).__name__, detail=type(error).__name__)
