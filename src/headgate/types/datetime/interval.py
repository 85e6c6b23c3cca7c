"""Interval, which is stored as text in IntervalStyle postgres: interval_in, interval_out in that style, interval(p), the binary form.

`base.datetime` describes the type. A port of DecodeInterval, DecodeISO8601Interval and EncodeInterval (datetime.c). `interval_style` prints
the other styles.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import normal_form, registry, text_column, typmod
from headgate.types.datetime.calendar import divmod_toward_zero
from headgate.types.datetime.field import FieldKind, Flaw, Flawed, micros_of, split

_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_UNITS = {
    "microsecond": ("us usec usecs usecond useconds microsecon microsecond microseconds"),
    "millisecond": "ms msec msecs msecond mseconds millisecon millisecond milliseconds",
    "second": "s sec secs second seconds",
    "minute": "m min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days",
    "week": "w week weeks",
    "month": "mon mons month months",
    "year": "y yr yrs year years",
    "decade": "dec decs decade decades",
    "century": "c cent century centuries",
    "millennium": "mil mils millennia millennium",
}
_UNIT = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_MICROS = {"microsecond": 1, "millisecond": 1000, "second": _SECOND, "minute": _MINUTE, "hour": _HOUR}
_YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
_SECONDS = frozenset({"second", "millisecond", "microsecond"})
_RIGHTMOST = {
    "year": "year", "month": "month", "year to month": "month", "day": "day", "hour": "hour", "day to hour": "hour",
    "minute": "minute", "hour to minute": "minute", "day to minute": "minute",
}  # fmt: skip
_ISO_NUMBER = re.compile(r"-?(?:([0-9]+)\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass
class Interval:
    """Months, days and microseconds, each with its own sign. `years`, only used while reading: the part of the months given as years."""

    months: int = 0
    days: int = 0
    micros: int = 0
    years: int = dataclasses.field(default=0, compare=False, repr=False)

    def add(self, unit: str, value: int, fraction: float) -> None:
        """Add `value` and a fraction of one unit. As in PostgreSQL, fractions carry down: years to months, months to days."""
        if unit in _MICROS:
            self.micros += value * _MICROS[unit] + round(fraction * _MICROS[unit])
        elif unit in ("day", "week"):
            size = 7 if unit == "week" else 1
            self.days += value * size
            self._fraction_of_days(fraction * size)
        elif unit == "month":
            self.months += value
            self._fraction_of_days(fraction * 30)
        else:
            self.years += value * _YEARS[unit]
            self.months += value * 12 * _YEARS[unit] + round(fraction * 12 * _YEARS[unit])

    def _fraction_of_days(self, days: float) -> None:
        self.days += int(days)
        self.micros += round((days - int(days)) * _DAY)

    @property
    def compared(self) -> int:
        """The microseconds by which intervals are compared (interval_cmp): a month counts as 30 days, a day as 24 hours."""
        return (self.months * 30 + self.days) * _DAY + self.micros

    def negated(self) -> Interval:
        """Return the interval with all signs inverted."""
        return Interval(-self.months, -self.days, -self.micros, -self.years)

    def fields(self) -> tuple[int, int, int, int, int, int, int]:
        """Return years, months, days, hours, minutes, seconds and microseconds, each with the sign of the number that it is a part of."""
        years, months = divmod_toward_zero(self.months, 12)
        minutes, micros = divmod_toward_zero(self.micros, _MINUTE)
        return years, months, self.days, *divmod_toward_zero(minutes, 60), *divmod_toward_zero(micros, _SECOND)

    def print(self) -> str:
        """Print in style postgres (EncodeInterval): ``1 year 2 mons -3 days +04:05:06.7``."""
        years, months, days, *_ = self.fields()
        words: list[str] = []
        negative = False
        for value, unit in ((years, "year"), (months, "mon"), (days, "day")):
            if value:
                words.append(f"{'+' if negative and value > 0 else ''}{value} {unit}{'' if value == 1 else 's'}")
                negative = value < 0
        if self.micros or not words:
            seconds, fraction = divmod(abs(self.micros), _SECOND)
            mark = "-" if self.micros < 0 else "+" if negative else ""
            tail = f".{fraction:06}".rstrip("0") if fraction else ""
            words.append(f"{mark}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{tail}")
        return " ".join(words)


def read_interval(strings: pa.StringArray, modifier: int, style: str) -> pa.StringArray:
    """Read intervals as interval_in with the modifier into normal text. Raise 22007, 22008 or 22015."""
    if style == "sql_standard" or typmod.interval_fields(modifier) or typmod.fraction_digits(registry.INTERVAL, modifier) is not None:
        usual = pa.scalar(False)
    else:
        usual = normal_form.interval(strings)
    return text_column.read(strings, usual, lambda texts: texts, lambda text: interval_of(text, modifier, style).print())


def interval_of(text: str, modifier: int = -1, style: str = "postgres") -> Interval:
    """Read one interval with its modifier. Only the style sql_standard is read differently: one sign may apply to all fields."""
    try:
        decoded = _decode(text, typmod.interval_fields(modifier) or "", style)
    except Flawed as flawed:
        try:
            decoded = _iso(text)
        except Flawed as other:
            flaw = other if flawed.flaw is Flaw.FORMAT else flawed
            if flaw.flaw is Flaw.RANGE:
                raise PostgresError("22015", f'interval field value out of range: "{text}"') from None
            raise flaw.error("interval", text) from None
    parts = (decoded.years, decoded.months - 12 * decoded.years, decoded.days)
    if not (all(_fits(part, 31) for part in parts) and _fits(decoded.micros, 63)):
        raise PostgresError("22015", f'interval field value out of range: "{text}"')
    if not _fits(decoded.months, 31):  # years and months are one number from here on
        raise PostgresError("22008", "interval out of range")
    return adjusted(decoded, modifier)


_NORMAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)


def normal(text: str) -> Interval:
    """Parse the normal text of a stored interval. It is faster than `interval_of`."""
    match = _NORMAL.fullmatch(text)
    if match is None:
        return interval_of(text)
    years, months, days, sign, hours, minutes, seconds, fraction = match.groups()
    micros = 0
    if hours is not None:
        micros = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * _SECOND + (int(fraction.ljust(6, "0")) if fraction else 0)
    return Interval(int(years or 0) * 12 + int(months or 0), int(days or 0), -micros if sign == "-" else micros)


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits) <= value < 1 << bits


def _decode(text: str, declared: str, style: str) -> Interval:
    """Decode fields from right to left, so that a unit is known before its number (DecodeInterval)."""
    decoded, unit, seen, is_negated = Interval(), "", set[str](), False
    fields = split(text)
    signs = [field[0] for _, field in fields if field[0] in "+-"]
    all_negative = style == "sql_standard" and signs == ["-"] and fields[0][1][0] == "-"
    for kind, field in reversed(fields):
        clock = (
            re.fullmatch(r"([+-]?)([0-9]+):([0-9]*)(?::([0-9]*))?(?:\.([0-9]*))?", field)
            if kind in (FieldKind.TIME, FieldKind.ZONE)
            else None
        )
        if clock:
            micros = _clock_micros(clock[2], clock[3], clock[4], clock[5], in_minutes=declared == "minute to second")
            _mark(seen, {"hour", "minute", *_SECONDS})
            decoded.micros += -micros if clock[1] == "-" or all_negative else micros
            unit = "day"
        elif kind in (FieldKind.NUMBER, FieldKind.DATE, FieldKind.ZONE):
            unit = _add_number(decoded, field, unit or _RIGHTMOST.get(declared, "second"), seen, all_negative=all_negative)
        elif field == "ago":
            is_negated = True
        elif field in ("at", "on"):
            continue
        elif field[:10] in _UNIT:
            unit = _UNIT[field[:10]]
        else:
            raise Flawed(Flaw.FORMAT)
    if not seen:
        raise Flawed(Flaw.FORMAT)
    return decoded.negated() if is_negated else decoded


def _clock_micros(hours: str, minutes: str, seconds: str | None, fraction: str | None, *, in_minutes: bool) -> int:
    hour, minute, second = int(hours), int(minutes or 0), int(seconds or 0)
    if seconds is None and (fraction is not None or in_minutes):
        hour, minute, second = 0, hour, minute
    if minute > 59 or second > 60:
        raise Flawed(Flaw.RANGE)
    return hour * _HOUR + minute * _MINUTE + second * _SECOND + micros_of(fraction or "0")


def _add_number(decoded: Interval, field: str, unit: str, seen: set[str], *, all_negative: bool) -> str:
    """Add a number. Return the unit of the number before it if that has no unit of its own."""
    years = re.fullmatch(r"([+-]?)([0-9]+)-([0-9]+)", field)
    if years:
        if int(years[3]) >= 12:
            raise Flawed(Flaw.RANGE)
        months = int(years[2]) * 12 + int(years[3])
        key, value, fraction, unit = "month", -months if years[1] == "-" or all_negative else months, 0.0, "month"
    else:
        number = re.fullmatch(r"([+-]?)([0-9]*)(?:\.([0-9]*))?", field)
        if not number or not (number[2] or number[3]):
            raise Flawed(Flaw.FORMAT)
        sign = -1 if number[1] == "-" or all_negative else 1
        key, value, fraction = unit, sign * int(number[2] or 0), sign * float("0." + (number[3] or "0"))
    if value and abs(value) >= 1 << 63:
        raise Flawed(Flaw.RANGE)
    _mark(seen, _SECONDS if key == "second" and fraction else {key})
    decoded.add(unit, value, fraction)
    return "day" if unit == "hour" else unit


def _mark(seen: set[str], units: AbstractSet[str]) -> None:
    """Mark units as used. Raise if one of them already is."""
    if seen & units:
        raise Flawed(Flaw.FORMAT)
    seen |= units


def _iso(text: str) -> Interval:
    """Decode the format with designators, P1Y2M3DT4H5M6S, or the alternative format, P0001-02-03T04:05:06 (DecodeISO8601Interval)."""
    if len(text) < 2 or text[0] != "P":
        raise Flawed(Flaw.FORMAT)
    decoded = Interval()
    date, _, time = text[1:].partition("T")
    _add_iso(decoded, date, {"Y": "year", "M": "month", "W": "week", "D": "day"}, ("year", "month", "day"), "-", 8)
    _add_iso(decoded, time, {"H": "hour", "M": "minute", "S": "second"}, ("hour", "minute", "second"), ":", 6)
    return decoded


def _add_iso(decoded: Interval, text: str, designators: Mapping[str, str], units: Sequence[str], separator: str, width: int) -> None:
    """Add one half of a text in an ISO format. A number of `width` digits without a designator has all units of the alternative format."""
    position = 0
    while position < len(text):
        number = _ISO_NUMBER.match(text, position)
        if number is None:
            raise Flawed(Flaw.FORMAT)
        mark = text[number.end() : number.end() + 1]
        if mark in designators:
            decoded.add(designators[mark], *_iso_number(number[0]))
            position = number.end() + 1
        elif position == 0 and not mark and len(number[1]) == width:
            value, fraction = _iso_number(number[0])
            sign = -1 if value < 0 else 1
            for unit, part in zip(units, (abs(value) // 10000, abs(value) // 100 % 100, abs(value) % 100), strict=True):
                decoded.add(unit, sign * part, 0.0)
            decoded.add("microsecond" if units[-1] == "second" else units[-1], 0, fraction)  # PostgreSQL does not scale that of a time
            return
        elif position == 0 and mark in ("", separator):
            _add_separated(decoded, text, units, separator)
            return
        else:
            raise Flawed(Flaw.FORMAT)


def _add_separated(decoded: Interval, text: str, units: Sequence[str], separator: str) -> None:
    """Add numbers of the alternative format, such as 0001-02-03. The last ones may be missing."""
    position = 0
    for unit in units:
        number = _ISO_NUMBER.match(text, position)
        if number is None:
            raise Flawed(Flaw.FORMAT)
        decoded.add(unit, *_iso_number(number[0]))
        position = number.end()
        if position == len(text):
            return
        if text[position] != separator:
            raise Flawed(Flaw.FORMAT)
        position += 1
    raise Flawed(Flaw.FORMAT)


def _iso_number(text: str) -> tuple[int, float]:
    """Return the whole part and the fraction of a number. Raise Flawed if it is greater than 1e15."""
    value = float(text)
    if abs(value) > 1e15:
        raise Flawed(Flaw.RANGE)
    return int(value), value - int(value)


def _toward_zero(value: int, unit: int) -> int:
    return value - divmod_toward_zero(value, unit)[1]


def adjusted(decoded: Interval, modifier: int) -> Interval:
    """Drop the fields below the declared ones and round the seconds (AdjustIntervalForTypmod). `decoded` may be changed."""
    match typmod.interval_fields(modifier):
        case "year":
            return Interval(_toward_zero(decoded.months, 12))
        case "month" | "year to month":
            return Interval(decoded.months)
        case "day":
            return Interval(decoded.months, decoded.days)
        case "hour" | "day to hour":
            decoded.micros = _toward_zero(decoded.micros, _HOUR)
        case "minute" | "hour to minute" | "day to minute":
            decoded.micros = _toward_zero(decoded.micros, _MINUTE)
        case _:
            pass
    digits = typmod.fraction_digits(registry.INTERVAL, modifier)
    if digits is not None and digits < 6:
        unit = 10 ** (6 - digits)
        half = unit // 2 if decoded.micros >= 0 else -(unit // 2)
        decoded.micros = _toward_zero((decoded.micros + half + (1 << 63)) % (1 << 64) - (1 << 63), unit)  # 64 bits wrap, as in PostgreSQL
    return decoded


def receive(raw: bytes) -> str:
    """Read the format of interval_recv: microseconds, days, months."""
    micros, days, months = struct.unpack(">qii", raw)
    return Interval(months, days, micros).print()


def send(text: str) -> bytes:
    """Convert normal text to the format of interval_send."""
    decoded = interval_of(text)
    return struct.pack(">qii", decoded.micros, decoded.days, decoded.months)
