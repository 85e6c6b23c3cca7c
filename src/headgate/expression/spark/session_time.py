"""The session's settings of text forms and its moment while an expression is planned: what STABLE functions of dates and times depend on.

`compiler` puts it in place for whoever evaluates for a session (`headgate.commands.query.evaluation`); a row filter has none, so that
what depends on it is refused there, as PostgreSQL refuses it.
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
    """`forms`: the settings that text forms depend on. `instant`: the transaction's start in microseconds since 1970, None if unknown."""

    forms: text_column.TextSettings = text_column.PLAIN
    instant: int | None = None


_current: ContextVar[SessionTime | None] = ContextVar("session_time", default=None)


@contextmanager
def planning(session: SessionTime | None) -> Iterator[None]:
    """Plans for this session within the block."""
    token = _current.set(session)
    try:
        yield
    finally:
        _current.reset(token)


def session_zone(what: str) -> time_zone.Zone:
    """The session's time zone; refuses `what` where there is no session."""
    found = _current.get()
    if found is None:
        raise refuse(what, "it depends on the session's TimeZone")
    return time_zone.find(found.forms.timezone)


def forms() -> text_column.TextSettings:
    """The settings that text forms depend on, the plain ones where there is no session."""
    found = _current.get()
    return found.forms if found else text_column.PLAIN


def now(what: str) -> int:
    """The transaction's start in microseconds since 1970."""
    found = _current.get()
    if found is None or found.instant is None:
        raise refuse(what, "it depends on the current time")
    return found.instant


def local_now(what: str) -> int:
    """The session's local microseconds since 1970 at the transaction's start."""
    found = _current.get()
    if found is None or found.instant is None:
        raise refuse(what, "it depends on the current date")
    offset = time_zone.find(found.forms.timezone).at(np.array([found.instant // 1_000_000], np.int64))
    return found.instant + int(offset[0]) * 1_000_000
