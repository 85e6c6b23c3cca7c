"""The session's text-form settings and the transaction's start, for STABLE date and time functions, while an expression is planned.

`compiler` sets them if an expression is evaluated for a session (`headgate.commands.query.evaluation`). A row filter has no session, so
that functions which depend on one are refused there, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from headgate.expression.spark.value import refuse
from headgate.types import text_column
from headgate.types.datetime import time_zone


@dataclass(frozen=True)
class SessionTime:
    """The settings that text forms depend on (`forms`), and the transaction's start in microseconds since 1970 (`instant`), if known."""

    forms: text_column.TextSettings = text_column.PLAIN
    instant: int | None = None


_current: ContextVar[SessionTime | None] = ContextVar("session_time", default=None)


@contextmanager
def planning(session: SessionTime | None) -> Iterator[None]:
    """Plan expressions for this session within the block."""
    token = _current.set(session)
    try:
        yield
    finally:
        _current.reset(token)


def session_zone(construct: str) -> time_zone.Zone:
    """Return the session's time zone. If there is no session, raise 0A000 for `construct`."""
    session = _current.get()
    if session is None:
        raise refuse(construct, "it depends on the session's TimeZone")
    return time_zone.find(session.forms.timezone)


def forms() -> text_column.TextSettings:
    """Return the settings that text forms depend on, or the default ones if there is no session."""
    session = _current.get()
    return session.forms if session else text_column.PLAIN


def now() -> int:
    """Return the transaction's start in microseconds since 1970, for AT TIME ZONE of a time."""
    session = _current.get()
    if session is None or session.instant is None:
        raise refuse("AT TIME ZONE of time with time zone", "it depends on the current time")
    return session.instant


def local_now(construct: str) -> int:
    """Return the session's local time at the transaction's start, in microseconds since 1970."""
    session = _current.get()
    if session is None or session.instant is None:
        raise refuse(construct, "it depends on the current date")
    offset = time_zone.find(session.forms.timezone).at(np.array([session.instant // 1_000_000], np.int64))
    return session.instant + int(offset[0]) * 1_000_000
