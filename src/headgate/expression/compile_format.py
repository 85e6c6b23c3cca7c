"""to_char of timestamps, timestamptz and intervals, to_date, to_timestamp: `date_format` and `date_parse` over Arrow columns.

They are STABLE in PostgreSQL, so that a row filter refuses them; timestamptz is printed in the session's TimeZone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from headgate.expression import date_format, date_parse
from headgate.expression.node import Expression
from headgate.expression.session_time import session_zone
from headgate.expression.value import DATE, TEXT, TIMESTAMPTZ, Value
from headgate.expression.vectorised import Builder, call, scalar
from headgate.types import calendar, zone


def _timestamptz(node: Expression, args: Sequence[Value]) -> Value:
    return call(timestamptz_text, TEXT, args, given=(session_zone("to_char of timestamp with time zone").name,))


def _to_timestamp(node: Expression, args: Sequence[Value]) -> Value:
    return call(date_parse.to_timestamp, TIMESTAMPTZ, args, given=(session_zone("to_timestamp").name,))


def timestamptz_text(timezone: str, micros: int, form: str) -> str | None:
    """to_char(timestamptz, text) in a zone."""
    if abs(micros) == calendar.INFINITE_MICROS:
        return None
    offset = int(zone.find(timezone).at(np.array([micros // 1_000_000], np.int64))[0])
    abbreviation = _abbreviation(timezone, micros // 1_000_000) if "tz" in form.lower() else ""
    return date_format.show(date_format.fields_of(micros + offset * 1_000_000, offset, abbreviation), form)


@functools.lru_cache(maxsize=4096)
def _abbreviation(timezone: str, seconds: int) -> str:
    """The zone's abbreviation at an instant (years beyond Python's: that of the same rule 400 years on)."""
    if timezone == "UTC":
        return "UTC"
    from zoneinfo import ZoneInfo

    folded = seconds
    if not -62_000_000_000 < seconds < 250_000_000_000:
        folded = seconds % 12_622_780_800 + (12_622_780_800 if seconds > 0 else -12_622_780_800 * 4)
    try:
        local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=folded)).astimezone(ZoneInfo(timezone))
    except (KeyError, ValueError):
        return timezone
    return local.tzname() or ""


BUILDERS: dict[str, Builder] = {
    "timestamp_to_char": scalar(date_format.timestamp_text, TEXT),
    "timestamptz_to_char": _timestamptz,
    "to_date": scalar(date_parse.to_date, DATE),
    "to_timestamp": _to_timestamp,
    "interval_to_char": scalar(date_format.interval_text, TEXT),
}
