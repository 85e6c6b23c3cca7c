"""Time zones in POSIX notation (manual, B.5): ``EST5EDT,M3.2.0,M11.1.0``, ``<+0530>-05:30``, and so ``+05:30``, which lies west.

`read` accepts what PostgreSQL accepts (localtime.c: tzparse), which is more than POSIX: an abbreviation of any characters, or none. A zone
with daylight saving time but without rules has the rules of the United States. Used by `check` for settings, and by
`headgate.types.datetime.time_zone` for values.

Offsets are seconds east of UTC, opposite to the sign in the text.
"""

from __future__ import annotations

import calendar
import datetime
import re
from dataclasses import dataclass
from functools import lru_cache

_USUAL_RULES = ",M3.2.0,M11.1.0"
_LONGEST = 255
_DAY = 86400
_MOST_HOURS = 167
_NAME = re.compile(r"<([^>]*)>|([^0-9,+-]*)")
_CLOCK = re.compile(r"([+-]?)([0-9]+)(?::([0-9]+)(?::([0-9]+))?)?")
_RULE = re.compile(r"J([0-9]+)|M([0-9]+)\.([0-9]+)\.([0-9]+)|([0-9]+)")
_EPOCH = datetime.datetime.fromordinal(datetime.date(1970, 1, 1).toordinal())
"""The epoch without a zone, like local times."""


class _Malformed(Exception):
    """Raised for a text that is not a time zone."""


@dataclass(frozen=True)
class Rule:
    """A day of each year and a local time on it, in seconds.

    `month`, `week`, `weekday` (Mm.w.d; the fifth week is the last), or `day`: from 0, or from 1 and without 29 February (`julian`).
    """

    time: int
    day: int = 0
    julian: bool = False
    month: int = 0
    week: int = 0
    weekday: int = 0

    def seconds(self, year: int) -> int:
        """Return the local seconds since the beginning of the year (transtime)."""
        if not self.month:
            skipped = self.julian and calendar.isleap(year) and self.day >= 60
            return (self.day - self.julian + skipped) * _DAY + self.time
        folded = 2000 + year % 400  # the weekdays of a year come again after 400
        first, length = calendar.monthrange(folded, self.month)
        day = (self.weekday - (first + 1)) % 7
        day += 7 * min(self.week - 1, (length - 1 - day) // 7)
        before = datetime.date(folded, self.month, 1) - datetime.date(folded, 1, 1)
        return (before.days + day) * _DAY + self.time


@dataclass(frozen=True)
class Saving:
    """Daylight saving time: its abbreviation, its offset, its start (in standard time) and its end (in daylight saving time)."""

    abbreviation: str
    offset: int
    start: Rule
    end: Rule


class PosixZone(datetime.tzinfo):
    """A POSIX time zone. `name` is the text in capitals, as PostgreSQL shows it."""

    def __init__(self, name: str, abbreviation: str, offset: int, saving: Saving | None) -> None:
        self.name, self.abbreviation, self.offset, self.saving = name, abbreviation, offset, saving

    def changes(self, year: int) -> list[tuple[int, int, str]]:
        """Return the changes of a year: the instant in seconds since 1970, the offset from then on, and its abbreviation."""
        saving = self.saving
        if saving is None:
            return []
        start = saving.start.seconds(year) - self.offset
        end = saving.end.seconds(year) - saving.offset
        length = (365 + calendar.isleap(year)) * _DAY
        if start <= end and not (start < end and end - start < length + saving.offset - self.offset):
            return []
        begin = _begin(year)
        on, off = (begin + start, saving.offset, saving.abbreviation), (begin + end, self.offset, self.abbreviation)
        return [on, off] if start < end else [off, on]

    @property
    def always_saving(self) -> bool:
        """Whether daylight saving time never ends."""
        return self.saving is not None and not any(self.changes(year) for year in range(2000, 2400))

    def at(self, instant: int) -> tuple[int, str]:
        """Return the offset and the abbreviation in force at an instant."""
        if self.saving is None:
            return self.offset, self.abbreviation
        year = (_EPOCH + datetime.timedelta(seconds=instant)).year
        past = [change for near_year in (year - 1, year, year + 1) for change in self.changes(near_year) if change[0] <= instant]
        if past:
            return past[-1][1:]
        return (self.saving.offset, self.saving.abbreviation) if self.always_saving else (self.offset, self.abbreviation)

    def fromutc(self, dt: datetime.datetime) -> datetime.datetime:
        """Return the local time of a time in UTC. `fold` is set if the local time occurs for the second time."""
        naive = dt.replace(tzinfo=None)
        offset = self.at(_seconds(naive))[0]
        local = naive + datetime.timedelta(seconds=offset)
        again = self._of_local(local)[0] != offset
        return local.replace(tzinfo=self, fold=int(again))

    def utcoffset(self, dt: datetime.datetime | None) -> datetime.timedelta:
        """Return the offset of a local time."""
        return datetime.timedelta(seconds=self.offset if dt is None else self._of_local(dt)[0])

    def tzname(self, dt: datetime.datetime | None) -> str:
        """Return the abbreviation of a local time."""
        return self.abbreviation if dt is None else self._of_local(dt)[1]

    def dst(self, dt: datetime.datetime | None) -> datetime.timedelta:
        """Return the difference between daylight saving and standard time at a local time."""
        return self.utcoffset(dt) - datetime.timedelta(seconds=self.offset)

    def _of_local(self, dt: datetime.datetime) -> tuple[int, str]:
        local = _seconds(dt.replace(tzinfo=None))
        offsets = {self.offset} | ({self.saving.offset} if self.saving else set())
        readings = sorted({reading for offset in offsets if (reading := self.at(local - offset))[0] == offset}, reverse=True)
        return readings[-1 if dt.fold else 0] if readings else self.at(local - self.offset)

    def __reduce__(self) -> tuple[object, ...]:
        return (read, (self.name,))


@lru_cache(maxsize=256)
def read(text: str) -> PosixZone | None:
    """Return the zone that a text describes, or None if PostgreSQL does not accept it."""
    name = "".join(character.upper() if character.isascii() else character for character in text)
    try:
        return None if len(name.encode()) > _LONGEST else _read(name)
    except _Malformed:
        return None


def _read(name: str) -> PosixZone:
    standard, rest = _name(name)
    offset, rest = _offset(rest)
    if not rest:
        return PosixZone(name, standard, offset, None)
    abbreviation, rest = _name(rest)
    if not abbreviation:
        raise _Malformed
    ahead = offset + 3600
    if rest and rest[0] not in ",;":
        ahead, rest = _offset(rest)
    rest = rest or _USUAL_RULES
    if rest[0] not in ",;":
        raise _Malformed
    start, rest = _rule(rest[1:])
    if not rest.startswith(","):
        raise _Malformed
    end, rest = _rule(rest[1:])
    if rest:
        raise _Malformed
    return PosixZone(name, standard, offset, Saving(abbreviation, ahead, start, end))


def _name(text: str) -> tuple[str, str]:
    """Read an abbreviation. Return it and the rest of the text."""
    match = _NAME.match(text)
    if match is None or (text.startswith("<") and match[1] is None):
        raise _Malformed
    return match[1] if match[1] is not None else match[2], text[match.end() :]


def _offset(text: str) -> tuple[int, str]:
    """Read an offset. Return its seconds east and the rest of the text."""
    west, rest = _clock(text)
    return -west, rest


def _clock(text: str) -> tuple[int, str]:
    """Read a time of up to a week (getoffset). Return its seconds and the rest of the text."""
    match = _CLOCK.match(text)
    if match is None or (match[4] is None and text[match.end() :].startswith(":")):
        raise _Malformed
    hours, minutes, seconds = (_number(match[place] or "0", 0, most) for place, most in ((2, _MOST_HOURS), (3, 59), (4, 60)))
    total = hours * 3600 + minutes * 60 + seconds
    return -total if match[1] == "-" else total, text[match.end() :]


def _rule(text: str) -> tuple[Rule, str]:
    """Read the rule of a change. Return it and the rest of the text."""
    match = _RULE.match(text)
    if match is None:
        raise _Malformed
    time, rest = 2 * 3600, text[match.end() :]
    if rest.startswith("/"):
        time, rest = _clock(rest[1:])
    if match[2]:
        month, week, weekday = _number(match[2], 1, 12), _number(match[3], 1, 5), _number(match[4], 0, 6)
        return Rule(time, month=month, week=week, weekday=weekday), rest
    if match[1]:
        return Rule(time, _number(match[1], 1, 365), julian=True), rest
    return Rule(time, _number(match[5], 0, 365)), rest


def _number(text: str, least: int, most: int) -> int:
    number = int(text)
    if not least <= number <= most:
        raise _Malformed
    return number


def _seconds(moment: datetime.datetime) -> int:
    return int((moment.replace(microsecond=0, fold=0) - _EPOCH).total_seconds())


def _begin(year: int) -> int:
    """Return the first second of any year in UTC, since 1970."""
    cycles, folded = divmod(year - 1, 400)
    return (cycles * 146097 + datetime.date(folded + 1, 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()) * _DAY
