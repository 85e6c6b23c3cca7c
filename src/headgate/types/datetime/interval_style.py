"""IntervalStyle: interval_out in the styles other than postgres, in which intervals are stored (EncodeInterval, datetime.c).

Called by `text`.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.types.datetime.interval import Interval, normal


def write_interval(stored: pa.StringArray, style: str) -> pa.StringArray:
    """Print a stored column as interval_out, each different interval once."""
    if style == "postgres":
        return stored
    write = {"postgres_verbose": _verbose, "sql_standard": _sql_standard, "iso_8601": _iso}[style]
    coded = stored.dictionary_encode()
    return pa.array([write(normal(text)) for text in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _seconds(seconds: int, fraction: int, width: int) -> str:
    """Print seconds without sign and without trailing zeros in the fraction (AppendSeconds)."""
    return f"{abs(seconds):0{width}}" + (f".{abs(fraction):06}".rstrip("0") if fraction else "")


def _verbose(interval: Interval) -> str:
    """Print ``@ 1 year 2 mons -3 days 4 hours 5 mins 6.7 secs``. A negative first field inverts all signs and adds "ago"."""
    *larger, seconds, fraction = interval.fields()
    parts = zip(larger, ("year", "mon", "day", "hour", "min"), strict=True)
    words = [(value, str(abs(value)), unit) for value, unit in parts if value]
    if seconds or fraction:
        words.append((seconds or fraction, _seconds(seconds, fraction, 1), "sec"))
    if not words:
        return "@ 0"
    ago = words[0][0] < 0
    shown = [f"{'-' if (value < 0) != ago else ''}{size} {unit}{_plural(unit, value, size, ago=ago)}" for value, size, unit in words]
    return f"@ {' '.join(shown)}{' ago' if ago else ''}"


def _plural(unit: str, value: int, size: str, *, ago: bool) -> str:
    """Return no s after 1, nor after one second of either sign. A -1 of another unit has one."""
    return "" if size == "1" and (unit == "sec" or (value < 0) == ago) else "s"


def _sql_standard(interval: Interval) -> str:
    """Print ``1-2`` or ``-3 4:05:06``, and with all signs if SQL has no such interval: ``+1-2 -3 +4:05:06``."""
    years, months, _, hours, minutes, seconds, fraction = interval.fields()
    values = (interval.months, interval.days, interval.micros)
    if not any(values):
        return "0"
    clock = f"{abs(hours)}:{abs(minutes):02}:{_seconds(seconds, fraction, 2)}"
    negative = min(values) < 0
    if (negative and max(values) > 0) or (interval.months and (interval.days or interval.micros)):
        signs = ["-" if value < 0 else "+" for value in values]
        return f"{signs[0]}{abs(years)}-{abs(months)} {signs[1]}{abs(interval.days)} {signs[2]}{clock}"
    sign = "-" if negative else ""
    if interval.months:
        return f"{sign}{abs(years)}-{abs(months)}"
    return f"{sign}{abs(interval.days)} {clock}" if interval.days else sign + clock


def _iso(interval: Interval) -> str:
    """Print ``P1Y2M-3DT4H5M6.7S``."""
    if interval == Interval():
        return "PT0S"
    years, months, days, hours, minutes, seconds, fraction = interval.fields()
    date = "".join(f"{value}{unit}" for value, unit in ((years, "Y"), (months, "M"), (days, "D")) if value)
    clock = "".join(f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M")) if value)
    if seconds or fraction:
        clock += f"{'-' if interval.micros < 0 else ''}{_seconds(seconds, fraction, 1)}S"
    return f"P{date}{'T' + clock if clock else ''}"
