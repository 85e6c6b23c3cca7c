"""Time zones: the offset from UTC of many instants at once, by the same tz database that PostgreSQL reads.

Used by `moment`, `moment_input` and `moment_decoder` for timestamptz, whose text depends on the session's TimeZone. A zone is three NumPy
arrays: the instants where its offset changes, from the tz file and, behind the file's last one, from its rule for the
years up to 2500; from there on the calendar repeats every 400 years.
"""

from __future__ import annotations

import csv
import functools
import re
import struct
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headgate.errors import PostgresError

Seconds = npt.NDArray[np.int64]

_CYCLE = 146097 * 86400
"""Seconds in 400 years: the Gregorian calendar, weekdays included, repeats after them."""
_REPEATS = 15_000_000_000
"""An instant (in the year 2445) from which on only the file's rule holds."""
_POSIX = re.compile(r"(?:<([^>]+)>|([A-Za-z]{3,}))([+-]?)([0-9]{1,3})(?::([0-9]{2}))?(?::([0-9]{2}))?\Z")


@dataclass(frozen=True, eq=False)
class Zone:
    """One time zone. `instants` (Unix seconds, ascending) are its changes; between them hold `offsets` (seconds east).

    ``offsets[0]`` holds before ``instants[0]``, ``offsets[i + 1]`` from ``instants[i]`` on; `abbreviations` are what each is called.
    """

    name: str
    instants: Seconds
    offsets: Seconds
    abbreviations: tuple[str, ...]

    def at(self, instants: Seconds) -> Seconds:
        """The offset in force at each instant."""
        if len(self.offsets) == 1:
            return np.full(len(instants), self.offsets[0], np.int64)
        return self.offsets[self.places(instants)]

    def places(self, instants: Seconds) -> Seconds:
        """Where in `offsets` and `abbreviations` stands what is in force at each instant."""
        folded = np.where(instants >= _REPEATS, instants - ((instants - _REPEATS) // _CYCLE + 1) * _CYCLE, instants)
        return np.searchsorted(self.instants, folded, "right")

    def of_local(self, local: Seconds) -> Seconds:
        """The offset that belongs to each local time (DetermineTimeZoneOffset): in a gap and in an overlap, standard time.

        In a gap (spring) the offset before it, in an overlap (autumn) the offset after it.
        """
        if len(self.offsets) == 1:
            return np.full(len(local), self.offsets[0], np.int64)
        local = np.where(local >= _REPEATS, local - ((local - _REPEATS) // _CYCLE + 1) * _CYCLE, local)
        place = np.searchsorted(self.instants, local - 86400, "right")
        last = place >= len(self.instants)
        place = np.minimum(place, len(self.instants) - 1)
        before, after, boundary = self.offsets[place], self.offsets[place + 1], self.instants[place]
        early, late = local - before, local - after
        use_before = (early < boundary) & (late < boundary)
        use_after = (early >= boundary) & (late >= boundary)
        chosen = np.where(use_before, before, np.where(use_after, after, np.where(early > late, before, after)))
        return np.where(last, self.offsets[-1], chosen)


@functools.cache
def find(name: str) -> Zone:
    """The zone that SET TimeZone would take: a name of the tz database in any case, or a fixed offset as ``<+02>-02``.

    22023 for anything else.
    """
    posix = _POSIX.match(name)
    if name.upper() in ("UTC", "GMT", "Z", "ZULU"):
        return fixed(0, "UTC", "GMT" if name.upper() == "GMT" else "UTC")
    key = _names().get(name.lower())
    if key is not None:
        return _read(key)
    if posix and int(posix[4]) <= 167:
        seconds = int(posix[4]) * 3600 + int(posix[5] or 0) * 60 + int(posix[6] or 0)
        return fixed(seconds if posix[3] == "-" else -seconds, name, posix[1] or posix[2])
    raise PostgresError("22023", f'invalid value for parameter "TimeZone": "{name}"')


def find_or_none(name: str) -> Zone | None:
    """As `find`, None for what is no zone: for words in a timestamp."""
    try:
        return find(name)
    except PostgresError:
        return None


def fixed(seconds: int, name: str, abbreviation: str | None = None) -> Zone:
    """A zone with one offset, in seconds east; called by its name where nothing else is given."""
    return Zone(name, np.zeros(0, np.int64), np.array([seconds], np.int64), (abbreviation or name,))


@functools.cache
def abbreviations() -> dict[str, int]:
    """Seconds east of the abbreviations of PostgreSQL's default set (timezone_abbreviations), by lower-case name."""
    text = resources.files("headgate.types").joinpath("timezone_abbrev.csv").read_text(encoding="utf-8")
    return {row["abbrev"].lower(): int(row["seconds"]) for row in csv.DictReader(text.splitlines())}


@functools.cache
def _names() -> dict[str, str]:
    return {name.lower(): name for name in zoneinfo.available_timezones() if not name.startswith(("posix/", "right/"))}


def _file(key: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        path = Path(folder, key)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(key).read_bytes()


def _read(key: str) -> Zone:
    """Reads the 64-bit block of a TZif file (RFC 8536) and extends it by its rule."""
    data = _file(key)
    counts = struct.unpack_from(">6l", data, 20)
    start = 44 + counts[3] * 5 + counts[4] * 6 + counts[5] + counts[2] * 8 + counts[1] + counts[0]
    _, _, _, times, kinds, _ = struct.unpack_from(">6l", data, start + 20)
    start += 44
    instants = np.frombuffer(data, ">i8", times, start).astype(np.int64)
    chosen = np.frombuffer(data, np.uint8, times, start + times * 8)
    types = [struct.unpack_from(">lbb", data, start + times * 9 + place * 6) for place in range(kinds)]
    named = data[start + times * 9 + kinds * 6 :]
    names = [named[each[2] : named.index(b"\0", each[2])].decode() for each in types]
    east = np.array([each[0] for each in types], np.int64)
    offsets = np.concatenate([east[:1], east[chosen]])
    more_instants, more_offsets, more_names = _ruled(zoneinfo.ZoneInfo(key), int(instants[-1]) if times else 0, int(offsets[-1]))
    abbreviations = (names[0], *(names[each] for each in chosen.tolist()), *more_names)
    return Zone(key, np.concatenate([instants, more_instants]), np.concatenate([offsets, more_offsets]), abbreviations)


def _ruled(zone: zoneinfo.ZoneInfo, after: int, offset: int) -> tuple[Seconds, Seconds, list[str]]:
    """Changes after the file's last one, up to 2500: probed month by month, then by halving."""
    instants: list[int] = []
    offsets: list[int] = []
    names: list[str] = []
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    def local(instant: int) -> datetime:
        return (epoch + timedelta(seconds=instant)).astimezone(zone)

    def probe(instant: int) -> int:
        found = local(instant).utcoffset()
        return 0 if found is None else int(found.total_seconds())

    step, end = 28 * 86400, 16_725_225_600
    if all(probe(after + 1 + step * month) == offset for month in range(26)):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), []
    low = after
    while low < end:
        high = low + step
        if probe(high) != offset:
            known, changed = low, high
            while changed - known > 1:
                middle = (known + changed) // 2
                known, changed = (middle, changed) if probe(middle) == offset else (known, middle)
            offset = probe(changed)
            instants.append(changed)
            offsets.append(offset)
            names.append(local(changed).tzname() or "")
        low = high
    return np.array(instants, np.int64), np.array(offsets, np.int64), names
