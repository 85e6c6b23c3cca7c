"""The input functions of date, timestamp and timestamptz for one value, for all forms that PostgreSQL accepts.

Called by `timestamp` for texts that are not plain ISO. `decoder` parses the text. This module converts its parts to days and microseconds
since 1970-01-01, in Python integers of any size until the range check.

Infinity and -infinity are the largest and smallest integers (`calendar`). Timestamps after 294247-01-10 are rejected with 0A000, because
the stored type cannot hold them (int64 microseconds since 1970; PostgreSQL, which counts from 2000, continues to 294276).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headgate.errors import PostgresError
from headgate.types.datetime import calendar, time_zone
from headgate.types.datetime.decoder import ZONE, Decoder, Parts
from headgate.types.datetime.field import Flawed
from headgate.types.text_column import TextSettings

Reader = Callable[[str], int]

MIN_MICROS = -211813488000000000 + calendar.EPOCH_MICROS
END_MICROS = 9223371331200000000 + calendar.EPOCH_MICROS
MIN_DAYS = -calendar.JULIAN_EPOCH
END_DAYS = 2147483494 - calendar.JULIAN_EPOCH


def date_of(text: str, session: TextSettings) -> int:
    """Return days since 1970-01-01 (date_in)."""
    parts = _read(text, "date", session)
    if parts.special:
        return _special(parts.special, calendar.INFINITE_DAY)
    if not MIN_DAYS <= parts.days < END_DAYS or parts.year > 5874897:
        raise PostgresError("22008", f'date out of range: "{text}"')
    return parts.days


def timestamp_of(text: str, session: TextSettings) -> int:
    """Return microseconds since 1970-01-01 without zone (timestamp_in)."""
    parts = _read(text, "timestamp", session)
    if parts.special:
        return _special(parts.special, calendar.INFINITE_MICROS)
    return _as_stored(parts.days * calendar.DAY + parts.clock, text)


def timestamptz_of(text: str, session: TextSettings) -> int:
    """Return microseconds since 1970-01-01 in UTC (timestamptz_in)."""
    parts = _read(text, "timestamp with time zone", session)
    if parts.special:
        return _special(parts.special, calendar.INFINITE_MICROS)
    local = parts.days * calendar.DAY + parts.clock
    offset = parts.offset
    if parts.named or not parts.mask & ZONE:
        own = parts.named or time_zone.find(session.timezone)
        offset = int(own.of_local(np.array([min(max(local, MIN_MICROS), END_MICROS) // 1_000_000], np.int64))[0])
    return _as_stored(local - offset * 1_000_000, text)


def _read(text: str, type_name: str, session: TextSettings) -> Parts:
    try:
        return Decoder(session).read(text)
    except Flawed as flawed:
        raise flawed.error(type_name, text) from None


def _as_stored(micros: int, text: str) -> int:
    if not MIN_MICROS <= micros < END_MICROS:
        raise PostgresError("22008", f'timestamp out of range: "{text}"')
    if micros >= calendar.INFINITE_MICROS:
        raise not_storable(text)
    return micros


def not_storable(text: str) -> PostgresError:
    """Return 0A000 for the last 29 years of PostgreSQL's calendar."""
    detail = "The last timestamp of a stored column is 294247-01-10 04:00:54.775806."
    return PostgresError("0A000", f'cannot store timestamp "{text}"', detail=detail)


def _special(word: str, infinite: int) -> int:
    return {"epoch": 0, "infinity": infinite, "-infinity": -infinite}[word]
