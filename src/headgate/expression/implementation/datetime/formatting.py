"""to_char of timestamps, timestamptz and intervals, to_date, to_timestamp: `functions.datetime` over Arrow columns.

They are STABLE in PostgreSQL, so row filters cannot use them. timestamptz is printed in the session's TimeZone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.expression.duckdb import datetime
from headgate.expression.functions.datetime import to_char, to_timestamp
from headgate.expression.implementation.implementation import Implementation, Table
from headgate.expression.node import Expression
from headgate.expression.spark.session_time import session_zone
from headgate.expression.spark.value import DATE, TEXT, TIMESTAMPTZ, Value
from headgate.expression.spark.vectorised import call, scalar
from headgate.types.datetime import calendar, time_zone


def _timestamptz(node: Expression, args: Sequence[Value]) -> Value:
    return call(timestamptz_text, TEXT, args, prefix=(session_zone("to_char of timestamp with time zone").name,))


def _to_timestamp(node: Expression, args: Sequence[Value]) -> Value:
    return call(to_timestamp.to_timestamp, TIMESTAMPTZ, args, prefix=(session_zone("to_timestamp").name,))


def timestamptz_text(timezone: str, micros: int, form: str) -> str | None:
    """Return to_char(timestamptz, text) in a zone."""
    if abs(micros) == calendar.INFINITE_MICROS:
        return None
    own, seconds = time_zone.find(timezone), np.array([micros // 1_000_000], np.int64)
    offset = int(own.at(seconds)[0])
    return to_char.show(to_char.fields_of(micros + offset * 1_000_000, offset, own.abbreviations[int(own.places(seconds)[0])]), form)


IMPLEMENTATIONS: Table = {
    "timestamp_to_char": Implementation(scalar(to_char.timestamp_text, TEXT), duckdb=datetime.to_char),
    "timestamptz_to_char": Implementation(_timestamptz, duckdb=datetime.to_char),
    "to_date": scalar(to_timestamp.to_date, DATE),
    "to_timestamp": _to_timestamp,
    "interval_to_char": scalar(to_char.interval_text, TEXT),
}
