"""One result of a check: its severity, the object, the problem, the suggested action.

A finding names objects, files and counts, never values of rows: it is shown in terminals and logs.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FindingSeverity(enum.StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Data is lost, or rows violate the constraints."""
    WARNING = "warning"
    """No data is lost, but the object should not exist and will not disappear by itself."""
    NOTICE = "notice"
    """A normal state that the node tidies up by itself, or a constraint that cannot be checked without a session."""


@dataclass(frozen=True)
class Finding:
    """One result (see the module). `place`: ``table "public"."t" of database "x"``; `advice` may be empty."""

    severity: FindingSeverity
    place: str
    what: str
    advice: str = ""

    @property
    def line(self) -> str:
        return f"{self.severity}: {self.place}: {self.what}" + (f" ({self.advice})" if self.advice else "")


RESTORE = "restore it from a backup"


def error(place: str, what: str, advice: str = RESTORE) -> Finding:
    """Return a finding for data that is lost or wrong."""
    return Finding(FindingSeverity.ERROR, place, what, advice)


def warning(place: str, what: str, advice: str) -> Finding:
    """Return a finding for an object that should not exist."""
    return Finding(FindingSeverity.WARNING, place, what, advice)


def notice(place: str, what: str, advice: str = "") -> Finding:
    """Return a finding for a normal state, or for what was not checked."""
    return Finding(FindingSeverity.NOTICE, place, what, advice)
