"""Time zones: the offsets from UTC of many instants at once, from the same tz database as PostgreSQL's.

Used by `timestamp`, `timestamp_input` and `decoder` for timestamptz, whose text depends on the session's TimeZone. A zone consists of NumPy
arrays: the instants at which its offset changes, from the tz file and, after the file's last one, from its rule for the years up to 2500.
After that the calendar repeats every 400 years. A zone in POSIX format repeats in both directions.
"""

from __future__ import annotations

import csv
import functools
import struct
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headgate.errors import PostgresError, not_supported
from headgate.settings import posix_zone
from headgate.settings.check import zone_names

Seconds = npt.NDArray[np.int64]

_CYCLE = 146097 * 86400
"""The seconds in 400 years, after which the Gregorian calendar repeats, including weekdays."""
_REPEATS = 15_000_000_000
"""An instant (in the year 2445) from which only the file's rule applies."""
_BEGINS = -5_000_000_000
"""An instant (in the year 1811) before which POSIX's rules apply as after it."""
_POSIX_YEARS = range(1770, 2501)


@dataclass(frozen=True, eq=False)
class Zone:
    """One time zone. `instants` (Unix seconds, ascending) are its changes, between which `offsets` (seconds east) apply.

    ``offsets[0]`` applies before ``instants[0]``, ``offsets[i + 1]`` from ``instants[i]`` on. `abbreviations` are their names.
    `endless`: there is no first change.
    """

    name: str
    instants: Seconds
    offsets: Seconds
    abbreviations: tuple[str, ...]
    endless: bool = False

    def at(self, instants: Seconds) -> Seconds:
        if len(self.offsets) == 1:
            return np.full(len(instants), self.offsets[0], np.int64)
        return self.offsets[self.places(instants)]

    def places(self, instants: Seconds) -> Seconds:
        """Return the index in `offsets` and `abbreviations` for each instant."""
        return np.searchsorted(self.instants, self._fold(instants), "right")

    def _fold(self, seconds: Seconds) -> Seconds:
        """Map times into the range of the known changes, by whole cycles of the calendar."""
        folded = np.where(seconds >= _REPEATS, seconds - ((seconds - _REPEATS) // _CYCLE + 1) * _CYCLE, seconds)
        if not self.endless:
            return folded
        return np.where(folded < _BEGINS, folded + ((_BEGINS - folded - 1) // _CYCLE + 1) * _CYCLE, folded)

    def of_local(self, local: Seconds) -> Seconds:
        """Return the offset of each local time (DetermineTimeZoneOffset): standard time in gaps and overlaps.

        In a gap (spring) that is the offset before it, in an overlap (autumn) the offset after it.
        """
        if len(self.offsets) == 1:
            return np.full(len(local), self.offsets[0], np.int64)
        local = self._fold(local)
        index = np.searchsorted(self.instants, local - 86400, "right")
        is_last = index >= len(self.instants)
        index = np.minimum(index, len(self.instants) - 1)
        before, after, boundary = self.offsets[index], self.offsets[index + 1], self.instants[index]
        early, late = local - before, local - after
        use_before = (early < boundary) & (late < boundary)
        use_after = (early >= boundary) & (late >= boundary)
        chosen = np.where(use_before, before, np.where(use_after, after, np.where(early > late, before, after)))
        return np.where(is_last, self.offsets[-1], chosen)


@dataclass(frozen=True, eq=False)
class Abbreviation(Zone):
    """An abbreviation whose offset has changed in its zone: its last meaning by then, else its first (pg_interpret_timezone_abbrev).

    If the zone's data do not contain it (since 2017 the tz database has numbers instead of most), it means the zone's own offset.
    """

    called: str = ""

    def at(self, instants: Seconds) -> Seconds:
        return self._choose_instants(instants, super().at(instants))

    def of_local(self, local: Seconds) -> Seconds:
        own = super().of_local(local)
        return self._choose_instants(local - own, own)

    def _choose_instants(self, instants: Seconds, own: Seconds) -> Seconds:
        named = np.array([index for index, name in enumerate(self.abbreviations[1:]) if name == self.called], np.int64)
        if not len(named):
            return own
        latest = np.searchsorted(named, np.searchsorted(self.instants, instants, "right")) - 1
        return self.offsets[named[np.maximum(latest, 0)] + 1]


@functools.lru_cache(maxsize=1024)
def find(name: str) -> Zone:
    """Return the zone for a value of SET TimeZone: a name of the tz database in any case, or a POSIX specification.

    Raise 22023 for anything else, or 0A000 for a zone with leap seconds. PostgreSQL computes with those, but no setting may name one.
    """
    if name.upper() in ("UTC", "GMT", "Z", "ZULU"):
        return fixed(0, "UTC", "GMT" if name.upper() == "GMT" else "UTC")
    lower = name.lower().removeprefix(":")
    key = zone_names().get(lower.removeprefix("posix/"))
    if key is not None:
        return _read(key)
    if lower.startswith("right/") and lower.removeprefix("right/") in zone_names():
        raise not_supported(f'time zone "{name}" is not supported: it uses leap seconds')
    described = posix_zone.read(name)
    if described is not None:
        return _zone_of(described)
    raise PostgresError("22023", f'invalid value for parameter "TimeZone": "{name}"')


def find_or_none(name: str) -> Zone | None:
    """Return the zone as `find`, or None if there is none: for words in a timestamp."""
    try:
        return find(name)
    except PostgresError as error:
        if error.sqlstate != "22023":
            raise
        return None


def fixed(seconds: int, name: str, abbreviation: str | None = None) -> Zone:
    """Return a zone with one offset, in seconds east. The default abbreviation is its name."""
    return Zone(name, np.zeros(0, np.int64), np.array([seconds], np.int64), (abbreviation or name,))


def abbreviation(word: str) -> Zone | None:
    """Return the meaning of a lower-case word in PostgreSQL's default set (timezone_abbreviations), or None."""
    entry = _abbreviations().get(word)
    if entry is None:
        return None
    seconds, name = entry
    if not name:
        return fixed(seconds, word, word.upper())
    own = find(name)
    return Abbreviation(own.name, own.instants, own.offsets, own.abbreviations, own.endless, called=word.upper())


@functools.cache
def _abbreviations() -> dict[str, tuple[int, str]]:
    """Return seconds east, or the zone that determines them, by lower-case abbreviation."""
    text = resources.files("headgate.types").joinpath("timezone_abbrev.csv").read_text(encoding="utf-8")
    return {row["abbrev"].lower(): (int(row["seconds"]), row["zone"]) for row in csv.DictReader(text.splitlines())}


def _zone_of(described: posix_zone.PosixZone) -> Zone:
    changes = [change for year in _POSIX_YEARS for change in described.changes(year)]
    saving = described.saving
    if not changes:
        always = saving if saving is not None else described
        return fixed(always.offset, described.name, always.abbreviation)
    instants, offsets, names = zip(*changes, strict=True)
    first = (described.offset, described.abbreviation)
    return Zone(described.name, np.array(instants, np.int64), np.array([first[0], *offsets], np.int64), (first[1], *names), endless=True)


def _file(key: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        path = Path(folder, key)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(key).read_bytes()


def _read(key: str) -> Zone:
    """Read the 64-bit block of a TZif file (RFC 8536) and extend it by its rule."""
    data = _file(key)
    counts = struct.unpack_from(">6l", data, 20)
    start = 44 + counts[3] * 5 + counts[4] * 6 + counts[5] + counts[2] * 8 + counts[1] + counts[0]
    _, _, _, times, kinds, _ = struct.unpack_from(">6l", data, start + 20)
    start += 44
    instants = np.frombuffer(data, ">i8", times, start).astype(np.int64)
    chosen = np.frombuffer(data, np.uint8, times, start + times * 8)
    types = [struct.unpack_from(">lbb", data, start + times * 9 + index * 6) for index in range(kinds)]
    named = data[start + times * 9 + kinds * 6 :]
    names = [named[kind[2] : named.index(b"\0", kind[2])].decode() for kind in types]
    east = np.array([kind[0] for kind in types], np.int64)
    offsets = np.concatenate([east[:1], east[chosen]])
    more_instants, more_offsets, more_names = _later_changes(zoneinfo.ZoneInfo(key), int(instants[-1]) if times else 0, int(offsets[-1]))
    abbreviations = (names[0], *(names[index] for index in chosen.tolist()), *more_names)
    return Zone(key, np.concatenate([instants, more_instants]), np.concatenate([offsets, more_offsets]), abbreviations)


def _later_changes(zone: zoneinfo.ZoneInfo, after: int, offset: int) -> tuple[Seconds, Seconds, list[str]]:
    """Return the changes after the file's last one up to 2500. They are probed in steps of 28 days, then found by bisection."""
    instants: list[int] = []
    offsets: list[int] = []
    names: list[str] = []
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    def local(instant: int) -> datetime:
        return (epoch + timedelta(seconds=instant)).astimezone(zone)

    def probe(instant: int) -> int:
        delta = local(instant).utcoffset()
        return 0 if delta is None else int(delta.total_seconds())

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
