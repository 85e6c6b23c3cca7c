"""Text forms of date, timestamp and timestamptz on whole columns.

Called by `text`. Arrow reads the ISO forms that all clients send. All other texts, including unusual years, are read by `timestamp_input`.
The texts that Arrow reads mean the same in every order of DateStyle. Arrow prints ISO, from which `date_style` builds the other styles.
Years that Arrow cannot print (before 1, after 9999) are printed one by one. The stored form is days and microseconds since 1970,
timestamptz in UTC.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.types import registry, text_column, typmod
from headgate.types.datetime import calendar, date_style, time_zone, timestamp_input
from headgate.types.text_column import PLAIN, TextSettings

_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_OFFSET = r"(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)"
_FIRST_DAY, _END_DAY = calendar.days_of(1, 1, 1), calendar.days_of(10000, 1, 1)
_LAST_ROUNDED = (1 << 63) - 1 - calendar.EPOCH_MICROS - 1_000_000
_FIRST, _END = _FIRST_DAY * calendar.DAY, _END_DAY * calendar.DAY


def read_date(strings: pa.StringArray, session: TextSettings) -> pa.Date32Array:
    dates = text_column.attempt(strings, pa.date32())
    if dates is not None and len(dates) and not pc.any(pc.less(pc.cast(dates, pa.int32()), _FIRST_DAY), min_count=0).as_py():
        return dates
    usual = pc.and_not(text_column.matches(strings, rf"\A{_DATE}\z"), pc.starts_with(strings, "0000"))

    def bulk(texts: pa.StringArray) -> pa.Array:
        return pc.cast(_cast(texts, pa.date32(), lambda text: timestamp_input.date_of(text, session)), pa.int32())

    return pc.cast(text_column.read(strings, usual, bulk, lambda text: timestamp_input.date_of(text, session)), pa.date32())


def read_timestamp(strings: pa.StringArray, modifier: int, session: TextSettings) -> pa.TimestampArray:
    """Read timestamps as timestamp_in. As in PostgreSQL, a zone in the text is ignored."""
    target = pa.timestamp("us")

    def scalar(text: str) -> int:
        return timestamp_input.timestamp_of(text, session)

    usual = pc.and_not(text_column.matches(strings, rf"\A{_DATE}[ T]{_CLOCK}\z"), pc.starts_with(strings, "0000"))
    micros = text_column.read(strings, usual, lambda texts: pc.cast(_cast(texts, target, scalar), pa.int64()), scalar)
    return pc.cast(rounded(micros, registry.TIMESTAMP, modifier), target)


def read_timestamptz(strings: pa.StringArray, modifier: int, session: TextSettings) -> pa.TimestampArray:
    """Read timestamps as timestamptz_in. Without a zone in the text the time is local to the session's TimeZone."""
    target = pa.timestamp("us", tz="UTC")

    def scalar(text: str) -> int:
        return timestamp_input.timestamptz_of(text, session)

    odd_year = pc.starts_with(strings, "0000")
    zoned = pc.and_not(text_column.matches(strings, rf"\A{_DATE}[ T]{_CLOCK}{_OFFSET}\z"), odd_year)
    local = pc.and_not(text_column.matches(strings, rf"\A{_DATE}[ T]{_CLOCK}\z"), odd_year)

    def bulk(texts: pa.StringArray) -> pa.Array:
        nothing = pa.scalar(None, pa.string())
        instants = pc.cast(_cast(pc.if_else(zoned, texts, nothing), target, scalar), pa.int64())
        if not pc.any(local, min_count=0).as_py():
            return instants
        naive = _cast(pc.if_else(local, texts, nothing), pa.timestamp("us"), scalar)
        return pc.coalesce(instants, _to_utc(pc.cast(naive, pa.int64()), time_zone.find(session.timezone)))

    micros = text_column.read(strings, pc.or_(zoned, local), bulk, scalar)
    return pc.cast(rounded(micros, registry.TIMESTAMPTZ, modifier), target)


def _cast(strings: pa.StringArray, target: pa.DataType, scalar: timestamp_input.Reader) -> pa.Array:
    """Cast values of the usual shape with Arrow. That fails only for dates such as 31 February, whose error the scalar reader raises."""
    result = text_column.attempt(strings, target)
    if result is None:
        for text in strings.drop_null().to_pylist():
            scalar(text)
        raise AssertionError("Arrow rejects a value of the usual shape that moment_input accepts")
    return result


def _to_utc(local: pa.Int64Array, own: time_zone.Zone) -> pa.Int64Array:
    """Convert local microseconds to UTC. NULL stays NULL."""
    values = np.asarray(pc.fill_null(local, 0).to_numpy(zero_copy_only=False), np.int64)
    shifted = values - own.of_local(values // 1_000_000) * 1_000_000
    return pc.if_else(pc.is_valid(local), pa.array(shifted), pa.scalar(None, pa.int64()))


def rounded(micros: pa.Int64Array, oid: int, modifier: int) -> pa.Int64Array:
    """Round to the declared digits, half away from 2000-01-01 (AdjustTimestampForTypmod)."""
    digits = typmod.fraction_digits(oid, modifier)
    if digits is None or digits >= 6:
        return micros
    unit = 10 ** (6 - digits)
    whole = np.asarray(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), np.int64)
    infinite = np.abs(whole) == calendar.INFINITE_MICROS
    values = np.where(infinite, 0, whole) - calendar.EPOCH_MICROS
    if len(values) and int(values.max()) > _LAST_ROUNDED:
        raise timestamp_input.not_storable(print_timestamp(int(values.max()) + calendar.EPOCH_MICROS))
    rounded = np.sign(values) * ((np.abs(values) + unit // 2) // unit * unit) + calendar.EPOCH_MICROS
    return pc.if_else(pc.is_valid(micros), pa.array(np.where(infinite, whole, rounded)), pa.scalar(None, pa.int64()))


def write_date(values: pa.Date32Array, session: TextSettings = PLAIN) -> pa.StringArray:
    days = pc.cast(values, pa.int32())
    odd = pc.or_(pc.less(days, _FIRST_DAY), pc.greater_equal(days, _END_DAY))
    shown = pc.cast(pc.if_else(odd, pa.scalar(0, pa.date32()), values), pa.string())
    return text_column.write(days, odd, date_style.dates(shown, session), lambda day: print_date(day.as_py(), session))


def write_timestamp(values: pa.TimestampArray, session: TextSettings = PLAIN) -> pa.StringArray:
    micros = pc.cast(values, pa.int64())
    return _write_local(micros, pa.scalar(""), session)


def write_timestamptz(values: pa.TimestampArray, session: TextSettings) -> pa.StringArray:
    """Print the session's local time with its offset, or in styles other than ISO with the zone's abbreviation (timestamptz_out)."""
    micros = pc.cast(values, pa.int64())
    own = time_zone.find(session.timezone)
    instants = np.asarray(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), np.int64)
    seconds = instants // 1_000_000
    offsets = own.at(seconds)
    infinite = np.abs(instants) == calendar.INFINITE_MICROS
    shifted = instants + np.where(infinite, 0, offsets) * 1_000_000
    local = pc.if_else(pc.is_valid(micros), pa.array(shifted), pa.scalar(None, pa.int64()))
    if session.date_style == "ISO":
        return _write_local(local, _suffix(offsets, print_offset), session)
    return _write_local(local, _suffix(own.places(seconds), lambda place: f" {own.abbreviations[place]}"), session)


def _suffix(kinds: npt.NDArray[np.int64], show: Callable[[int], str]) -> pa.StringArray | pa.StringScalar:
    """Print each number with `show`. Return a scalar if all are equal."""
    if (kinds == kinds[:1]).all():
        return pa.scalar(show(int(kinds[0])) if len(kinds) else "")
    different, places = np.unique(kinds, return_inverse=True)
    return pa.array([show(int(kind)) for kind in different]).take(pa.array(places))


def _write_local(micros: pa.Int64Array, suffix: pa.StringArray | pa.StringScalar, session: TextSettings) -> pa.StringArray:
    odd = pc.or_(pc.less(micros, _FIRST), pc.greater_equal(micros, _END))
    usual = pc.if_else(odd, 0, micros)
    iso = pc.ascii_rtrim(pc.ascii_rtrim(pc.cast(pc.cast(usual, pa.timestamp("us")), pa.string()), characters="0"), characters=".")
    shown, *rest = date_style.timestamps(iso, usual, session)
    if rest:
        shown = pc.binary_join_element_wise(shown, *rest, " ")
    if isinstance(suffix, pa.Array) or suffix.as_py():
        shown = pc.binary_join_element_wise(shown, suffix, "")
    if not pc.any(odd, min_count=0).as_py():
        return shown
    ends = suffix if isinstance(suffix, pa.Array) else pa.nulls(len(micros), pa.string()).fill_null(suffix)
    pairs = zip(micros.filter(odd).to_pylist(), ends.filter(odd).to_pylist(), strict=True)
    printed = pa.array([print_timestamp(*pair, session) for pair in pairs], pa.string())
    return pc.replace_with_mask(shown, pc.fill_null(odd, False), printed)


def print_date(days: int, session: TextSettings) -> str:
    """Print one date: ``0044-03-15 BC``, ``12345-01-01``, ``infinity``."""
    if abs(days) == calendar.INFINITE_DAY:
        return "infinity" if days > 0 else "-infinity"
    return date_style.print_date(days, session)


def print_timestamp(micros: int, suffix: str = "", session: TextSettings = PLAIN) -> str:
    """Print one local timestamp with the text of its zone: ``0044-03-15 12:00:00.5+00 BC``, ``infinity``."""
    if abs(micros) == calendar.INFINITE_MICROS:
        return "infinity" if micros > 0 else "-infinity"
    days, rest = divmod(micros, calendar.DAY)
    return date_style.print_timestamp(days, print_clock(rest), suffix, session)


def print_clock(micros: int) -> str:
    """Print the time of day, without trailing zeros in the fraction."""
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:06}".rstrip("0") if fraction else "")


def print_offset(seconds: int) -> str:
    """Print an offset as in timestamptz: ``+00``, ``-03:30``, ``-04:56:02``."""
    minutes, rest = divmod(abs(seconds), 60)
    text = f"{'-' if seconds < 0 else '+'}{minutes // 60:02}"
    return text + (f":{minutes % 60:02}" if minutes % 60 or rest else "") + (f":{rest:02}" if rest else "")
