"""date, timestamp, timestamptz, time, timetz and interval. `TYPES` describes them, `types.datetime` implements them.

Dates count days and timestamps microseconds, since 1970 in storage and since 2000 on the wire. The infinities are the ends of both ranges.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import buffers, registry
from headgate.types.base.base_type import (
    BaseType,
    Hashing,
    Key,
    Reader,
    Receiver,
    Wire,
    Writer,
    fixed_rows,
    key_of_text,
    singly,
    whole_key,
)
from headgate.types.base.number import bytes_of, numbers
from headgate.types.datetime import calendar, interval, interval_style, time_of_day, timestamp, timestamp_input
from headgate.types.text_column import PLAIN, TextSettings

_EARLY_DAY, _LATE_DAY = np.iinfo(np.int32).min, np.iinfo(np.int32).max
_EARLY_MICROS, _LATE_MICROS = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""-infinity and infinity on the wire."""
_MOMENT = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-]\d\d(?::\d\d){0,2})?)?( BC)?\Z")
_MOMENTS = {
    registry.TIMESTAMP: pa.timestamp("us"),
    registry.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
}


def _receive_date(wire: Wire, _modifier: int) -> pa.Date32Array:
    values = wire.rows(4).view(">i4").ravel().astype(np.int32)
    late, early = values == _LATE_DAY, values == _EARLY_DAY
    days = np.where(late | early, 0, values.astype(np.int64)) + calendar.EPOCH_DAYS
    if (days < timestamp_input.MIN_DAYS).any() or (days >= timestamp_input.END_DAYS).any():
        raise PostgresError("22008", "date out of range")
    held = np.select([late, early], [calendar.INFINITE_DAY, -calendar.INFINITE_DAY], days).astype(np.int32)
    return pc.cast(numbers(held, wire.mask, pa.int32()), pa.date32())


def _receive_timestamp(oid: int) -> Receiver:
    def receive(wire: Wire, modifier: int) -> pa.TimestampArray:
        held = numbers(_micros(wire.rows(8).view(">i8").ravel().astype(np.int64)), wire.mask, pa.int64())
        return pc.cast(timestamp.rounded(held, oid, modifier), _MOMENTS[oid])

    return receive


def _micros(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    late, early = values == _LATE_MICROS, values == _EARLY_MICROS
    values = np.where(late | early, 0, values)
    if (values < timestamp_input.MIN_MICROS - calendar.EPOCH_MICROS).any() or (
        values >= timestamp_input.END_MICROS - calendar.EPOCH_MICROS
    ).any():
        raise PostgresError("22008", "timestamp out of range")
    if (values >= np.iinfo(np.int64).max - calendar.EPOCH_MICROS).any():
        raise timestamp_input.not_storable(timestamp.print_timestamp(int(values.max()) + calendar.EPOCH_MICROS))
    return np.select([late, early], [calendar.INFINITE_MICROS, -calendar.INFINITE_MICROS], values + calendar.EPOCH_MICROS)


def _send_date(array: pa.Date32Array, _encoding: Encoding) -> pa.LargeBinaryArray:
    values, mask = _numbers_of(array, pa.int32())
    ends = values == calendar.INFINITE_DAY, values == -calendar.INFINITE_DAY
    days = np.select(ends, (_LATE_DAY, _EARLY_DAY), values.astype(np.int64) - calendar.EPOCH_DAYS)
    return fixed_rows(bytes_of(days, ">i4"), mask)


def _send_timestamp(array: pa.TimestampArray, _encoding: Encoding) -> pa.LargeBinaryArray:
    values, mask = _numbers_of(array, pa.int64())
    ends = values == calendar.INFINITE_MICROS, values == -calendar.INFINITE_MICROS
    moved = np.where(ends[0] | ends[1], 0, values) - calendar.EPOCH_MICROS
    return fixed_rows(bytes_of(np.select(ends, (_LATE_MICROS, _EARLY_MICROS), moved), ">i8"), mask)


def _numbers_of(array: pa.Array, kind: pa.DataType) -> tuple[npt.NDArray[np.int64], buffers.Mask | None]:
    """Return the numbers of a column, 0 for NULL, and the mask of values that are not NULL."""
    mask = buffers.valid(array)
    plain = array.cast(kind)
    return np.asarray((plain.fill_null(0) if mask is not None else plain).to_numpy(zero_copy_only=False)), mask


def _key_of_moment(text: str) -> bytes:
    """Return the key of a date, timestamp or timestamptz: its microseconds, with the infinities at the ends."""
    if text.endswith("infinity"):
        return whole_key(-(1 << 126) if text.startswith("-") else 1 << 126)
    match = _MOMENT.match(text)
    assert match is not None, "not a date in normal form"
    year = 1 - int(match[1]) if match[9] else int(match[1])
    micros = calendar.days_of(year, int(match[2]), int(match[3])) * calendar.DAY
    if match[4]:
        seconds = (int(match[4]) * 60 + int(match[5])) * 60 + int(match[6])
        micros += seconds * 1_000_000 + int((match[7] or "0").ljust(6, "0"))
    return whole_key(micros - _east(match[8]) * 1_000_000)


def _east(offset: str | None) -> int:
    """Return the seconds east of ``+05:30``, ``-04:56:02``."""
    if not offset:
        return 0
    hours, minutes, seconds = (int(part) for part in (offset[1:] + ":0:0").split(":")[:3])
    total = (hours * 60 + minutes) * 60 + seconds
    return -total if offset[0] == "-" else total


def _key_of_timetz(text: str) -> bytes:
    """Return the key of a timetz (timetz_cmp): by the instant, then by the zone, westward greater."""
    micros, east = time_of_day.parts_of(text)
    return struct.pack(">QQ", micros - east * 1_000_000 + (1 << 62), -east + (1 << 62))


def interval_key(text: str) -> bytes:
    """Return the key of an interval (interval_cmp): a month counts as 30 days, a day as 24 hours."""
    return whole_key(interval.interval_of(text).compared)


def _other_style(settings: TextSettings) -> bool:
    return settings.date_style != PLAIN.date_style


def _timestamp(oid: int, read: Reader, write: Writer, restyled: Callable[[TextSettings], bool]) -> BaseType:
    return BaseType(
        read=read,
        write=write,
        receive=_receive_timestamp(oid),
        send=_send_timestamp,
        stored=_MOMENTS[oid],
        restyled=restyled,
        key=_key_of_moment,
        in_order=True,
        hashing=Hashing.LONG,
        code=">i8",
    )


def _time(oid: int, receive: Callable[[bytes], str], send: Callable[[str], bytes], key: Key) -> BaseType:
    def read(strings: pa.StringArray, modifier: int, settings: TextSettings) -> pa.StringArray:
        return time_of_day.read_time(strings, oid, modifier, settings)

    plain = oid == registry.TIME
    return replace(singly(read, receive, send, key, in_order=plain), hashing=Hashing.LONG if plain else None)


TYPES = {
    registry.DATE: BaseType(
        read=lambda strings, _modifier, settings: timestamp.read_date(strings, settings),
        write=timestamp.write_date,
        receive=_receive_date,
        send=_send_date,
        stored=pa.date32(),
        restyled=_other_style,
        key=_key_of_moment,
        in_order=True,
        hashing=Hashing.WORD,
        code=">i4",
    ),
    registry.TIMESTAMP: _timestamp(registry.TIMESTAMP, timestamp.read_timestamp, timestamp.write_timestamp, _other_style),
    registry.TIMESTAMPTZ: _timestamp(
        registry.TIMESTAMPTZ,
        timestamp.read_timestamptz,
        timestamp.write_timestamptz,
        lambda settings: _other_style(settings) or settings.timezone != PLAIN.timezone,
    ),
    registry.TIME: _time(registry.TIME, time_of_day.receive_time, time_of_day.send_time, key_of_text),
    registry.TIMETZ: _time(registry.TIMETZ, time_of_day.receive_timetz, time_of_day.send_timetz, _key_of_timetz),
    registry.INTERVAL: replace(
        singly(
            lambda strings, modifier, settings: interval.read_interval(strings, modifier, settings.interval_style),
            interval.receive,
            interval.send,
            interval_key,
        ),
        write=lambda values, settings: interval_style.write_interval(values, settings.interval_style),
        restyled=lambda settings: settings.interval_style != PLAIN.interval_style,
        one_text=False,
    ),
}
