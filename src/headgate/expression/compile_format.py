"""to_char of timestamps, timestamptz and intervals, to_date, to_timestamp: `date_format` and `date_parse` over Arrow columns.

They are STABLE in PostgreSQL, so that a row filter refuses them; timestamptz is printed in the session's TimeZone.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    own, seconds = zone.find(timezone), np.array([micros // 1_000_000], np.int64)
    offset = int(own.at(seconds)[0])
    return date_format.show(
        date_format.fields_of(micros + offset * 1_000_000, offset, own.abbreviations[int(own.places(seconds)[0])]), form
    )


BUILDERS: dict[str, Builder] = {
    "timestamp_to_char": scalar(date_format.timestamp_text, TEXT),
    "timestamptz_to_char": _timestamptz,
    "to_date": scalar(date_parse.to_date, DATE),
    "to_timestamp": _to_timestamp,
    "interval_to_char": scalar(date_format.interval_text, TEXT),
}
