"""Converts any exception of a statement to a PostgresError.

Called by the session and the walsender. Invariant: a client never receives a Python traceback. The log gets it, once, for unexpected
errors.
"""

from __future__ import annotations

import logging

from headgate.errors import PostgresError
from headgate.storage.spark.failure import frames, from_spark

_log = logging.getLogger("headgate.server")


LONGEST = 64 << 10
"""The length in characters to which a field is cut. A message may quote a whole value, and each copy holds the interpreter's lock."""


def as_postgres_error(error: BaseException) -> PostgresError:
    """Return the error itself, or XX000 with the first line of the cause. Fields longer than `LONGEST` are cut."""
    converted = _as_postgresql(error)
    converted.message = _cut(converted.message)
    converted.detail, converted.hint, converted.context, converted.internal_query = (
        text and _cut(text) for text in (converted.detail, converted.hint, converted.context, converted.internal_query)
    )
    converted.log_detail = converted.log_detail and _cut(converted.log_detail)
    return converted


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _as_postgresql(error: BaseException) -> PostgresError:
    if isinstance(error, PostgresError):
        stack = frames(error) if error.sqlstate == "XX000" else ""
        if stack:
            _log.warning("unforeseen error in Spark:\n%s", stack)
        return error
    if isinstance(error, MemoryError):
        return PostgresError("53200", "out of memory")
    if isinstance(error, RecursionError):
        return PostgresError("54001", "stack depth limit exceeded")
    converted = from_spark(error)
    if converted.sqlstate != "XX000":
        return converted
    _log.warning("unforeseen %s", type(error).__name__, exc_info=error)
    return PostgresError("XX000", converted.message[:2000] or type(error).__name__, detail=type(error).__name__)
