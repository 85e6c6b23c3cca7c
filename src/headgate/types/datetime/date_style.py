"""Prints dates and timestamps in the styles of DateStyle: EncodeDateOnly and EncodeDateTime (PostgreSQL's datetime.c).

Called by `timestamp`. Columns are built from their ISO text, which Arrow prints, single values from their calendar fields. Years that do
not fit into four digits (before 1, after 9999) are printed one by one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.types.datetime import calendar
from headgate.types.text_column import TextSettings

_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_YEAR, _MONTH, _DAY = (0, 4), (5, 7), (8, 10)
"""Their start and end in an ISO date."""
_DELIMITER = {"SQL": "/", "Postgres": "-", "German": "."}


def _day_first(session: TextSettings) -> bool:
    return session.date_style == "German" or session.date_order == "DMY"


def dates(iso: pa.StringArray, session: TextSettings) -> pa.StringArray:
    """Print dates with four-digit years in the session's style, from their ISO text."""
    if session.date_style == "ISO":
        return iso
    year, month, day = (pc.utf8_slice_codeunits(iso, *part) for part in (_YEAR, _MONTH, _DAY))
    first, second = (day, month) if _day_first(session) else (month, day)
    return pc.binary_join_element_wise(first, second, year, _DELIMITER[session.date_style])


def timestamps(iso: pa.StringArray, micros: pa.Int64Array, session: TextSettings) -> tuple[pa.StringArray, ...]:
    """Return the parts, to be joined by blanks, of timestamps with four-digit years, from their ISO text and microseconds since 1970."""
    if session.date_style == "ISO":
        return (iso,)
    clock = pc.utf8_slice_codeunits(iso, 11)
    if session.date_style != "Postgres":
        return dates(iso, session), clock
    weekday = pa.array(_WEEKDAYS).take(pa.array((np.asarray(pc.fill_null(micros, 0)) // calendar.DAY + 4) % 7))
    year, number, day = (pc.utf8_slice_codeunits(iso, *part) for part in (_YEAR, _MONTH, _DAY))
    month = pa.array(_MONTHS).take(pc.subtract(pc.cast(number, pa.int8()), 1))
    return weekday, *((day, month) if _day_first(session) else (month, day)), clock, year


def print_date(days: int, session: TextSettings) -> str:
    """Print one finite date: ``0044-03-15 BC``, ``15.03.0044 BC``, ``01-31-12345``."""
    year, month, day = calendar.date_of(days)
    shown = f"{year if year > 0 else 1 - year:04}"
    if session.date_style == "ISO":
        text = f"{shown}-{month:02}-{day:02}"
    else:
        first, second = (day, month) if _day_first(session) else (month, day)
        text = f"{first:02}{{0}}{second:02}{{0}}{shown}".format(_DELIMITER[session.date_style])
    return text if year > 0 else text + " BC"


def print_timestamp(days: int, clock: str, zone: str, session: TextSettings) -> str:
    """Print one finite local timestamp from its day, time and zone: ``Tue Mar 15 12:00:00 0044 LMT BC``."""
    date, _, era = print_date(days, session).partition(" ")
    if session.date_style == "Postgres":
        _, number, day = calendar.date_of(days)
        month, year = _MONTHS[number - 1], date.rpartition("-")[2]
        first, second = (f"{day:02}", month) if _day_first(session) else (month, f"{day:02}")
        text = f"{_WEEKDAYS[calendar.weekday_of(days)]} {first} {second} {clock} {year}{zone}"
    else:
        text = f"{date} {clock}{zone}"
    return f"{text} {era}" if era else text
