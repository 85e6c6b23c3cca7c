"""One thing that was found: how bad it is, what it is about, what is wrong with it, what to do.

A finding names objects, files and counts, never values of rows: it goes to terminals and logs.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FindingSeverity(enum.StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Something is lost, or rows are not what the constraints say."""
    WARNING = "warning"
    """Nothing is lost, but this should not be there and will not go by itself."""
    NOTICE = "notice"
    """As it may be: the node tidies it up by itself."""


@dataclass(frozen=True)
class Finding:
    """See the module. `place`: ``table "public"."t" of database "x"``; `advice` may be empty."""

    severity: FindingSeverity
    place: str
    what: str
    advice: str = ""

    @property
    def line(self) -> str:
        """The finding as one line."""
        return f"{self.severity}: {self.place}: {self.what}" + (f" ({self.advice})" if self.advice else "")


RESTORE = "restore it from a backup"


def error(place: str, what: str, advice: str = RESTORE) -> Finding:
    """Something is lost or wrong."""
    return Finding(FindingSeverity.ERROR, place, what, advice)


def warning(place: str, what: str, advice: str = "") -> Finding:
    """Something should not be there."""
    return Finding(FindingSeverity.WARNING, place, what, advice)


def notice(place: str, what: str, advice: str = "") -> Finding:
    """Something that goes by itself."""
    return Finding(FindingSeverity.NOTICE, place, what, advice)
