"""Interprets the fields of a date or time text: DecodeDateTime and DecodeTimeOnly (PostgreSQL's datetime.c).

Called by `timestamp_input` for dates and timestamps and by `time_of_day` for times. `field.split` splits the text into typed fields.
`Decoder` determines the meaning of each field from what is known already (the bits in `mask`) and, for ambiguous numbers, from the order in
the session's DateStyle. `Decoder._finish` validates the whole. Numbers are Python integers of any size; the caller checks whether the
result fits into the type.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import numpy as np

from headgate.types.datetime import calendar, time_zone
from headgate.types.datetime.field import (
    MONTH_NAMES,
    UNIT_NAMES,
    WEEKDAY_NAMES,
    FieldKind,
    Flaw,
    Flawed,
    displacement,
    micros_of,
    small,
    split,
)
from headgate.types.text_column import TextSettings

YEAR, MONTH, DAY, TIME, ZONE, WEEKDAY, MERIDIEM, ERA, YEARDAY, SPECIAL = (1 << bit for bit in range(10))
DATE = YEAR | MONTH | DAY
_FIRST = {"MDY": MONTH, "DMY": DAY, "YMD": YEAR}


@dataclass
class Parts:
    """The values of the fields. `offset` is in seconds east; `named` is a zone whose offset depends on the time."""

    mask: int = 0
    year: int = 0
    month: int = 0
    day: int = 0
    hour: int = 0
    minute: int = 0
    second: int = 0
    micro: int = 0
    yearday: int = 0
    offset: int = 0
    named: time_zone.Zone | None = None
    special: str = ""
    julian: bool = False

    @property
    def clock(self) -> int:
        """The time of day in microseconds."""
        return ((self.hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micro

    @property
    def days(self) -> int:
        """The date as days since 1970-01-01."""
        return calendar.days_of(self.year, self.month, self.day)


class Decoder:
    """A decoder of one text (DecodeDateTime)."""

    def __init__(self, session: TextSettings) -> None:
        self.session = session
        self.parts = Parts()
        self.two_digits = False
        self.text_month = False
        self.before_christ = False
        self.meridiem = ""
        self.prefix = ""
        self.plain_number = False
        self.time_only = False

    def read(self, text: str, *, time_only: bool = False) -> Parts:
        """Decode a whole text. Raise Flawed if it is invalid."""
        fields = split(text)
        if not fields:
            raise Flawed(Flaw.FORMAT)
        self.time_only = time_only
        self.plain_number = time_only and (len(fields) == 1 or fields[-1][0] not in (FieldKind.DATE, FieldKind.TIME))
        for index, (kind, field) in enumerate(fields):
            following = fields[index + 1][0] if index + 1 < len(fields) else None
            mask = self._field(kind, field, following, time_only=time_only)
            if mask & self.parts.mask:
                raise Flawed(Flaw.FORMAT)
            self.parts.mask |= mask
        if self.prefix:
            raise Flawed(Flaw.FORMAT)
        if not self.parts.special:
            self._finish(time_only=time_only)
        return self.parts

    def _field(self, kind: FieldKind, field: str, following: FieldKind | None, *, time_only: bool) -> int:
        match kind:
            case FieldKind.DATE:
                return self._date_field(field, time_only=time_only)
            case FieldKind.TIME:
                if self.prefix not in ("", "time"):
                    raise Flawed(Flaw.FORMAT)
                self.prefix = ""
                return self._time(field)
            case FieldKind.ZONE:
                self.parts.offset = displacement(field)
                return ZONE
            case FieldKind.NUMBER:
                return self._number_field(field)
            case FieldKind.STRING | FieldKind.SPECIAL:
                return self._word(field, following, time_only=time_only)

    def _date_field(self, field: str, *, time_only: bool) -> int:
        parts = self.parts
        if self.prefix == "julian":
            zone_part = field.lstrip("0123456789")
            self.prefix = ""
            mask = self._julian(field.removesuffix(zone_part))
            parts.offset = displacement(zone_part)
            return mask | ZONE | TIME
        if not self.prefix and parts.mask & (MONTH | DAY) != MONTH | DAY and not (time_only and not field[0].isdigit()):
            return self._date(field)
        if self.prefix or field[0].isdigit():
            if self.prefix not in ("", "time") or parts.mask & TIME or "-" not in field:
                raise Flawed(Flaw.FORMAT)
            self.prefix = ""
            number, _, zone_part = field.partition("-")
            parts.offset = displacement("-" + zone_part)
            return self._run_together(number, parts.mask | DATE if time_only else parts.mask) | ZONE
        parts.named = time_zone.find_or_none(field)
        if parts.named is None:
            raise Flawed(Flaw.ZONE_NAME, field)
        return ZONE

    def _number_field(self, field: str) -> int:
        if self.prefix:
            prefix, self.prefix = self.prefix, ""
            return self._decode_prefixed(prefix, field)
        whole, dot, _ = field.partition(".")
        mask = self.parts.mask
        if self.plain_number:
            return self._run_together(field, mask | DATE)
        if dot and not mask & DATE:
            return self._date(field)
        if (dot and len(whole) > 2) or (len(field) >= 6 and (not mask & DATE or not mask & TIME)):
            return self._run_together(field, mask)
        return self._number(field, mask)

    def _decode_prefixed(self, prefix: str, field: str) -> int:
        whole, dot, fraction = field.partition(".")
        if prefix == "time":
            return self._run_together(field, self.parts.mask | DATE)
        if prefix == "julian":
            mask = self._julian(whole)
            if dot:
                micros = round(float("0." + (fraction or "0")) * calendar.DAY)
                self._set_clock(micros)
                mask |= TIME
            return mask
        if prefix in ("year", "month", "day") and not dot:
            setattr(self.parts, prefix, small(whole))
            return {"year": YEAR, "month": MONTH, "day": DAY}[prefix]
        raise Flawed(Flaw.FORMAT)

    def _julian(self, number: str) -> int:
        self.parts.year, self.parts.month, self.parts.day = calendar.date_of(small(number) - calendar.JULIAN_EPOCH)
        self.parts.julian = True
        return DATE

    def _set_clock(self, micros: int) -> None:
        seconds, self.parts.micro = divmod(micros, 1_000_000)
        self.parts.hour, self.parts.minute, self.parts.second = seconds // 3600, seconds // 60 % 60, seconds % 60

    def _word(self, field: str, following: FieldKind | None, *, time_only: bool) -> int:
        parts = self.parts
        abbreviation = time_zone.abbreviation(field)
        if abbreviation is not None:
            parts.named = abbreviation
            return ZONE
        if field in MONTH_NAMES:
            mask = MONTH
            if parts.mask & MONTH and not self.text_month and not parts.mask & DAY and 1 <= parts.month <= 31:
                parts.day, mask = parts.month, DAY
            self.text_month = True
            parts.month = MONTH_NAMES[field]
            return mask
        if field in WEEKDAY_NAMES:
            return WEEKDAY
        if field in ("am", "pm"):
            self.meridiem = field
            return MERIDIEM
        if field in ("ad", "bc"):
            self.before_christ = field == "bc"
            return ERA
        if field in ("at", "on"):
            return 0
        if field == "t":
            if (not time_only and parts.mask & DATE != DATE) or following not in (FieldKind.NUMBER, FieldKind.TIME, FieldKind.DATE):
                raise Flawed(Flaw.FORMAT)
            self.prefix = "time"
            return 0
        if field in UNIT_NAMES:
            self.prefix = UNIT_NAMES[field]
            return 0
        return self._special(field)

    def _special(self, field: str) -> int:
        parts = self.parts
        match field:
            case "now" | "today" | "tomorrow" | "yesterday":
                return self._current(field)
            case "allballs":
                self._set_clock(0)
                return TIME | ZONE
            case "epoch" | "infinity" | "-infinity":
                parts.special = field
                return SPECIAL  # a date or time beside it is parsed and ignored
            case _:
                parts.named = time_zone.find_or_none(field)
                if parts.named is None:
                    raise Flawed(Flaw.FORMAT)
                return ZONE

    def _current(self, field: str) -> int:
        micros = time.time_ns() // 1000 if self.session.instant is None else self.session.instant
        offset = int(time_zone.find(self.session.timezone).at(np.array([micros // 1_000_000]))[0])
        days, rest = divmod(micros + offset * 1_000_000, calendar.DAY)
        days += {"tomorrow": 1, "yesterday": -1}.get(field, 0)
        self.parts.year, self.parts.month, self.parts.day = calendar.date_of(days)
        if field != "now":
            return DATE
        self._set_clock(rest)
        self.parts.offset = offset
        return DATE | TIME | ZONE

    def _date(self, field: str) -> int:
        """Decode a date with delimiters (DecodeDate)."""
        pieces = re.findall(r"[0-9]+|[A-Za-z]+", field)
        if not field[-2:].strip("-/.+_:") or not 1 <= len(pieces) <= 25:
            raise Flawed(Flaw.FORMAT)
        known, decoded, text_month = self.parts.mask, 0, False
        for piece in [piece for piece in pieces if piece[0].isalpha()]:
            if piece in ("at", "on"):
                continue
            if piece not in MONTH_NAMES or known & MONTH:
                raise Flawed(Flaw.FORMAT)
            self.parts.month, text_month = MONTH_NAMES[piece], True
            known, decoded = known | MONTH, decoded | MONTH
        self.text_month, outer = text_month, self.text_month
        for piece in [piece for piece in pieces if piece[0].isdigit()]:
            mask = self._number(piece, known)
            if mask & known:
                raise Flawed(Flaw.FORMAT)
            known, decoded = known | mask, decoded | mask
        self.text_month = outer
        if known & ~(YEARDAY | ZONE) != DATE:
            raise Flawed(Flaw.FORMAT)
        return decoded

    def _number(self, field: str, known: int) -> int:
        """Decode a year, month or day, by what is known and by the number of digits (DecodeNumber)."""
        parts = self.parts
        whole, dot, fraction = field.partition(".")
        if not whole:
            raise Flawed(Flaw.FORMAT)
        value = small(whole)
        if dot:
            if len(whole) > 2:
                return self._run_together(field, known | DATE)
            parts.micro = micros_of(fraction)
        if len(field) == 3 and known & DATE == YEAR and 1 <= value <= 366:
            parts.yearday = value
            return YEARDAY | MONTH | DAY
        match known & DATE:
            case 0:
                mask = YEAR if len(field) >= 3 else _FIRST[self.session.date_order]
            case 1:  # YEAR
                mask = MONTH
            case 2:  # MONTH
                mask = YEAR if self.text_month and (len(field) >= 3 or self.session.date_order == "YMD") else DAY
            case 3 if self.text_month and len(field) >= 3 and self.two_digits:
                parts.day, parts.year, self.two_digits = parts.year, value, False
                return DAY
            case 3:  # YEAR | MONTH
                mask = DAY
            case 4:  # DAY
                mask = MONTH
            case 6:  # MONTH | DAY
                mask = YEAR
            case 7:
                return self._run_together(field, known)
            case _:
                raise Flawed(Flaw.FORMAT)
        setattr(parts, {YEAR: "year", MONTH: "month", DAY: "day"}[mask], value)
        if mask == YEAR:
            self.two_digits = len(field) <= 2
        return mask

    def _run_together(self, field: str, known: int) -> int:
        """Decode digits without delimiters (DecodeNumberField): 19990108, 990108, 040506.789, 0405."""
        parts = self.parts
        digits, dot, fraction = field.partition(".")
        if dot:
            parts.micro = micros_of(fraction)
        elif known & DATE != DATE and len(digits) >= 6:
            parts.year, parts.month, parts.day = small(digits[:-4]), small(digits[-4:-2]), small(digits[-2:])
            self.two_digits = len(digits) == 6
            return DATE
        if not known & TIME and len(digits) in (4, 6) and digits.isdigit():
            parts.hour, parts.minute, parts.second = int(digits[:2]), int(digits[2:4]), int(digits[4:] or 0)
            return TIME
        raise Flawed(Flaw.FORMAT)

    def _time(self, field: str) -> int:
        """Decode hh:mm, hh:mm:ss or hh:mm:ss.ffffff, and also mm:ss.ffffff (DecodeTime)."""
        parts = self.parts
        match = re.fullmatch(r"([0-9]+):([0-9]*)(?::([0-9]*))?(?:\.([0-9]*))?", field)
        if not match:
            raise Flawed(Flaw.FORMAT)
        hour, minute, second, micro = small(match[1]), small(match[2] or "0"), small(match[3] or "0"), micros_of(match[4] or "0")
        if match[3] is None and match[4] is not None:
            hour, minute, second = 0, hour, minute
        if minute > 59 or second > 60:
            raise Flawed(Flaw.RANGE)
        parts.hour, parts.minute, parts.second, parts.micro = hour, minute, second, micro
        if not self.time_only and (parts.hour > 24 or parts.clock > calendar.DAY):
            raise Flawed(Flaw.RANGE)
        return TIME

    def _finish(self, *, time_only: bool) -> None:
        """Validate the date (ValidateDate), apply AM and PM, and check that the fields are sufficient."""
        parts = self.parts
        if parts.mask & YEAR and not parts.julian:
            if self.before_christ:
                if parts.year <= 0:
                    raise Flawed(Flaw.RANGE)
                parts.year = 1 - parts.year
            elif self.two_digits:
                parts.year += 2000 if parts.year < 70 else 1900 if parts.year < 100 else 0
            elif parts.year <= 0:
                raise Flawed(Flaw.RANGE)
        if parts.mask & YEARDAY:
            day = calendar.days_of(parts.year, 1, 1) + parts.yearday - 1
            parts.year, parts.month, parts.day = calendar.date_of(day)
        if (parts.mask & MONTH and not 1 <= parts.month <= 12) or (parts.mask & DAY and not 1 <= parts.day <= 31):
            raise Flawed(Flaw.MONTH_DAY)
        if parts.mask & DATE == DATE and parts.day > calendar.days_in_month(parts.year, parts.month):
            raise Flawed(Flaw.RANGE)
        if self.meridiem and parts.hour > 12:
            raise Flawed(Flaw.RANGE)
        if self.meridiem == "am" and parts.hour == 12:
            parts.hour = 0
        elif self.meridiem == "pm" and parts.hour != 12:
            parts.hour += 12
        # DecodeDateTime does not validate hhmm: 2020-01-01 3000 is six o'clock of the next day
        if time_only and (parts.hour > 24 or parts.minute > 59 or parts.second > 60 or parts.clock > calendar.DAY):
            raise Flawed(Flaw.RANGE)
        if not parts.mask & TIME if time_only else parts.mask & DATE != DATE:
            raise Flawed(Flaw.FORMAT)
        if time_only and parts.mask & DATE not in (0, DATE) and (not parts.mask & ZONE or parts.named is not None):
            raise Flawed(Flaw.FORMAT)  # a zone's offset depends on the whole date
