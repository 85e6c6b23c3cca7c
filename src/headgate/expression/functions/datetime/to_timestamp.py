"""to_date and to_timestamp of a text by a format, on single values (DCH_from_char and do_to_timestamp of formatting.c).

Called through `vectorised` from `implementation.datetime.formatting`. The format's words are those of `to_char`. Errors are 22007 if the
text does not match the format, 22008 for fields out of range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headgate.errors import PostgresError
from headgate.expression.functions.datetime import timestamp
from headgate.expression.functions.datetime.to_char import DAYS, MONTHS, ROMAN, FormatWord, nodes_of
from headgate.types.datetime import calendar

_SPACE = " \t\n\v\f\r"
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?\d+)")
_ISO_WORDS = frozenset({"IYYY", "IYY", "IY", "I", "IW", "ID", "IDDD"})
_NO_MODE = frozenset({
    "A.D.", "B.C.", "AD", "BC", "A.M.", "P.M.", "AM", "PM", "CC", "J", "Q", "DAY", "DY", "HH", "HH12", "HH24", "MI", "SS", "MS", "US",
    "SSSS",
    "SSSSS", "FX", "TZ", "TZH", "TZM", "OF", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6",
})  # fmt: skip
_NO_DIGITS = frozenset({
    "A.D.", "B.C.", "AD", "BC", "A.M.", "P.M.", "AM", "PM", "DAY", "DY", "MONTH", "MON", "FX", "RM", "TZ", "TZH", "OF",
})  # fmt: skip
_PLAIN = {
    "HH": ("hh", 2), "HH12": ("hh", 2), "HH24": ("hh", 2), "MI": ("mi", 2), "SS": ("ss", 2), "SSSS": ("ssss", 4), "SSSSS": ("ssss", 5),
    "TZM": ("tzm", 2), "MM": ("mm", 2), "DDD": ("ddd", 3), "IDDD": ("ddd", 3), "DD": ("dd", 2), "D": ("d", 1), "WW": ("ww", 2),
    "IW": ("ww", 2), "Q": ("", 1), "CC": ("cc", 2), "W": ("w", 1), "J": ("j", 1),
}  # fmt: skip
_YEARS = {"YYYY": 4, "IYYY": 4, "YYY": 3, "IYY": 3, "YY": 2, "IY": 2, "Y": 1, "I": 1}
_NAMES: dict[str, tuple[str, ...]] = {
    "MONTH": MONTHS, "MON": tuple(name[:3] for name in MONTHS), "DAY": DAYS, "DY": tuple(name[:3] for name in DAYS), "RM": ROMAN,
    "AM": ("am", "pm"), "PM": ("am", "pm"), "A.M.": ("a.m.", "p.m."), "P.M.": ("a.m.", "p.m."), "AD": ("ad", "bc"), "BC": ("ad", "bc"),
    "A.D.": ("a.d.", "b.c."), "B.C.": ("a.d.", "b.c."),
}  # fmt: skip


_FIXED_WIDTH = 'If your source string is not fixed-width, try using the "FM" modifier.'


def _invalid(message: str, detail: str | None = None, hint: str | None = None) -> PostgresError:
    return PostgresError("22007", message, detail=detail, hint=hint)


@dataclass
class _Reader:
    """A text being read by a format: the `place` in it, the characters `skipped` beyond the format, and the fields `found`."""

    text: str
    nodes: tuple[FormatWord, ...]
    place: int = 0
    skipped: int = 0
    fixed: bool = False
    mode: str = ""
    twelve: bool = False
    year_size: int = 0
    zone_sign: int = 0
    precision: int = 6
    found: dict[str, int] = field(default_factory=dict)

    def get(self, name: str) -> int:
        """Return a field, or 0 if it is missing."""
        return self.found.get(name, 0)

    def run(self) -> None:
        """Read the text by the format (DCH_from_char)."""
        for number, node in enumerate(self.nodes):
            if self.place >= len(self.text):
                return
            action = bool(node.word)
            if not self.fixed and node.word.upper() != "FX" and (action or number == 0):
                self._skip_spaces()
            if action:
                self._field(number, node)
                if not self.fixed:
                    self.skipped = 0
                    self._skip_spaces()
            elif _is_separator(node.text) or node.text in _SPACE:
                self._separator()
            elif not self.fixed and self.skipped > 0:
                self.skipped -= 1
            else:
                self.place += 1

    def _skip_spaces(self) -> None:
        while self.place < len(self.text) and self.text[self.place] in _SPACE:
            self.place += 1
            self.skipped += 1

    def _separator(self) -> None:
        if self.fixed:
            self.place += 1
            return
        self.skipped -= 1
        if self.place < len(self.text) and (self.text[self.place] in _SPACE or _is_separator(self.text[self.place])):
            self.place += 1
            self.skipped += 1

    def _field(self, number: int, node: FormatWord) -> None:
        word = node.word.upper()
        self._set_mode(word)
        if word == "FX":
            self.fixed = True
        elif word in _NAMES:
            self._name(word, node)
        elif word in ("TZ", "OF"):
            raise PostgresError("0A000", f'formatting field "{node.word}" is only supported in to_char')
        elif word == "Y,YYY":
            self._thousands(node)
        elif word == "TZH":
            self._zone_hour(number, node)
        elif word in _YEARS:
            self._number("year", len(word), number, node, partial=_YEARS[word] < 4)
            self.year_size = _YEARS[word]
        elif word in ("MS", "US") or word.startswith("FF"):
            self._fraction(word, number, node)
        elif word == "ID":
            self._number("d", 1, number, node)
            self.found["d"] = self.get("d") + 1 if self.get("d") < 7 else 1
        else:
            name, length = _PLAIN[word]
            self._number(name, length, number, node)
            self.twelve = self.twelve or word in ("HH", "HH12")
            if word == "TZM" and not self.zone_sign:
                self.zone_sign = 1
        if node.ordinal and word not in _NAMES:
            self.place = min(self.place + 2, len(self.text))

    def _set_mode(self, word: str) -> None:
        mode = "" if word in _NO_MODE else "iso" if word in _ISO_WORDS else "gregorian"
        if mode and self.mode and mode != self.mode:
            hint = "Do not mix Gregorian and ISO week date conventions in a formatting template."
            raise _invalid("invalid combination of date conventions", hint=hint)
        self.mode = self.mode or mode

    def _set(self, name: str, value: int, node: FormatWord) -> None:
        if self.get(name) not in (0, value):
            raise _invalid(
                f'conflicting values for "{node.word}" field in formatting string',
                "This value contradicts a previous setting for the same field type.",
            )
        if name:
            self.found[name] = value

    def _number(self, name: str, length: int, number: int, node: FormatWord, *, partial: bool = False) -> int:
        """Read an integer field and return the number of characters (from_char_parse_int_len)."""
        start = self.place
        rest = self.text[start:].lstrip(_SPACE)
        begin = len(self.text) - len(rest)
        if not node.fill or self._before_separator(number):
            match = _NUMBER.match(self.text, start)
            value, end = (int(match[1]), match.end()) if match else (0, start)
        else:
            if len(rest) < length:
                raise _invalid(
                    f'source string too short for "{node.word}" formatting field',
                    f"Field requires {length} characters, but only {len(rest)} remain.",
                    _FIXED_WIDTH,
                )
            match = _NUMBER.match(rest[:length])
            used = match.end() if match else 0
            if 0 < used < length:
                raise _invalid(
                    f'invalid value "{rest[:length]}" for "{node.word}"',
                    f"Field requires {length} characters, but only {used} could be parsed.",
                    _FIXED_WIDTH,
                )
            value, end = int(match[1]) if match else 0, begin + used
        if end == start:
            raise _invalid(f'invalid value "{rest[:length]}" for "{node.word}"', "Value must be an integer.")
        if not -(2**31) <= value < 2**31:
            detail = "Value must be in the range -2147483648 to 2147483647."
            raise PostgresError("22008", f'value for "{node.word}" in source string is out of range', detail=detail)
        self.place = end
        self._set(name, value, node)
        if partial and end - start < 4:
            self.found["year"] = _near_2020(value)
        return end - start

    def _before_separator(self, number: int) -> bool:
        """Return whether the field is followed by something other than a digit (is_next_separator)."""
        if self.nodes[number].ordinal:
            return True
        if number + 1 == len(self.nodes):
            return True
        following = self.nodes[number + 1]
        if following.word:
            return following.word.upper() in _NO_DIGITS
        return not (following.text.isascii() and following.text.isdigit())

    def _fraction(self, word: str, number: int, node: FormatWord) -> None:
        name, length = ("ms", 3) if word == "MS" else ("us", 6 if word == "US" else int(word[2]))
        used = self._number(name, length, number, node)
        if word not in ("MS", "US"):
            self.precision = length
        digits = 3 if word == "MS" else 6
        self.found[name] *= 10 ** (digits - used) if 1 <= used < digits else 1

    def _name(self, word: str, node: FormatWord) -> None:
        rest = self.text[self.place :]
        matching = [index for index, name in enumerate(_NAMES[word]) if _lower(rest[: len(name)]) == _lower(name)]
        if not matching:
            raise _invalid(
                f'invalid value "{re.split(f"[{_SPACE}]", rest, maxsplit=1)[0]}" for "{node.word}"',
                "The given value did not match any of the allowed values for this field.",
            )
        place = matching[0]
        self.place += len(_NAMES[word][place])
        if word in ("AM", "PM", "A.M.", "P.M."):
            self._set("pm", place, node)
            self.twelve = True
        elif word in ("AD", "BC", "A.D.", "B.C."):
            self._set("bc", place, node)
        elif word in ("DAY", "DY"):
            self._set("d", place, node)
            self.found["d"] = place + 1
        else:
            self._set("mm", 12 - place if word == "RM" else place + 1, node)

    def _thousands(self, node: FormatWord) -> None:
        match = re.compile(r"[ \t\n\v\f\r]*([+-]?\d+),([ \t\n\v\f\r]*[+-]?\d{1,3})").match(self.text, self.place)
        if match is None:
            raise _invalid('invalid input string for "Y,YYY"')
        self._set("year", int(match[1]) * 1000 + int(match[2]), node)
        self.year_size = 4
        self.place = match.end()

    def _zone_hour(self, number: int, node: FormatWord) -> None:
        if self.text[self.place] in "+- ":
            self.zone_sign = -1 if self.text[self.place] == "-" else 1
            self.place += 1
        else:
            self.zone_sign = -1 if self.skipped > 0 and self.text[self.place - 1] == "-" else 1
        self._number("tzh", 2, number, node)


def _lower(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)


def _is_separator(text: str) -> bool:
    """Return whether a character is printable ASCII and neither letter nor digit."""
    return "!" <= text <= "~" and not text.isalnum()


def _near_2020(year: int) -> int:
    if year < 70:
        return year + 2000
    if year < 100:
        return year + 1900
    if year < 520:
        return year + 2000
    return year + 1000 if year < 1000 else year


@dataclass
class _Moment:
    """The broken-down time that the fields describe. `year` is astronomical, `precision` the number of digits of the seconds' fraction."""

    year: int = 0
    month: int = 1
    day: int = 1
    clock: int = 0
    precision: int = 6
    known: set[str] = field(default_factory=set)


def _iso_week_day(year: int, week: int) -> int:
    """Return the Monday of an ISO week, in days since 1970."""
    january_4 = calendar.days_of(year, 1, 4)
    return january_4 - (calendar.weekday_of(january_4) + 6) % 7 + (week - 1) * 7


def _put_day(moment: _Moment, days: int) -> None:
    moment.year, moment.month, moment.day = calendar.date_of(days)
    moment.known |= {"year", "month", "day"}


def _year(read: _Reader, moment: _Moment) -> None:
    year, century = read.get("year"), read.get("cc")
    if not year and not century:
        return
    if read.get("bc") and century:
        century = -century
    if not year:
        moment.year = (century - 1) * 100 + 1 if century >= 0 else century * 100 + 1
    elif century and read.year_size <= 2:
        _, low = calendar.divmod_toward_zero(year, 100)
        if low:
            moment.year = low + (century - 1) * 100 if century >= 0 else (century + 1) * 100 - low + 1
        else:
            moment.year = century * 100 + (0 if century >= 0 else 1)
    else:
        moment.year = -year if read.get("bc") else year
        moment.year += moment.year < 0
    moment.known.add("year")


def _week_and_day(read: _Reader, moment: _Moment) -> None:
    day_of_year = read.get("ddd")
    if read.get("ww"):
        if read.mode == "iso":
            weekday = read.get("d")
            _put_day(moment, _iso_week_day(moment.year, read.get("ww")) + ((weekday - 2 if weekday > 1 else 6) if weekday else 0))
        else:
            day_of_year = (read.get("ww") - 1) * 7 + 1
    day = (read.get("w") - 1) * 7 + 1 if read.get("w") else read.get("dd")
    if day:
        moment.day = day
        moment.known.add("day")
    if read.get("mm"):
        moment.month = read.get("mm")
        moment.known.add("month")
    if day_of_year and (moment.month <= 1 or moment.day <= 1):
        _day_of_year(read, moment, day_of_year)


def _day_of_year(read: _Reader, moment: _Moment, day_of_year: int) -> None:
    if not moment.year and not read.get("bc"):
        raise _invalid("cannot calculate day of year without year information")
    if read.mode == "iso":
        _put_day(moment, _iso_week_day(moment.year, 1) - 1 + day_of_year)
        return
    before, month = 0, 1
    while month <= 12 and day_of_year > before + calendar.days_in_month(moment.year, month):
        before += calendar.days_in_month(moment.year, month)
        month += 1
    if moment.month <= 1:
        moment.month = month
    if moment.day <= 1:
        moment.day = day_of_year - before
    moment.known |= {"month", "day"}


def _check_twelve(read: _Reader) -> None:
    hour = read.get("hh") or read.get("ssss") // 3600
    if read.twelve and not 1 <= hour <= 12:
        raise PostgresError(
            "22007",
            f'hour "{hour}" is invalid for the 12-hour clock',
            hint="Use the 24-hour clock, or give an hour between 1 and 12.",
        )


def _clock(read: _Reader, text: str) -> int:
    hour, rest = divmod(read.get("ssss"), 3600)
    minute, second = divmod(rest, 60)
    hour, minute, second = read.get("hh") or hour, read.get("mi") or minute, read.get("ss") or second
    if read.twelve:
        hour = hour % 12 + (12 if read.get("pm") else 0)
    micros = read.get("ms") * 1000 + read.get("us")
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= micros < 1_000_000):
        raise _out_of_range(text)
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros


def _out_of_range(text: str) -> PostgresError:
    return PostgresError("22008", f'date/time field value out of range: "{text}"')


def _validate(moment: _Moment, text: str) -> None:
    if "month" in moment.known and not 1 <= moment.month <= 12:
        raise _out_of_range(text)
    if "day" in moment.known and not 1 <= moment.day <= 31:
        raise _out_of_range(text)
    if moment.known == {"year", "month", "day"} and moment.day > calendar.days_in_month(moment.year, moment.month):
        raise _out_of_range(text)


def _parse(text: str, form: str) -> tuple[_Moment, int | None]:
    """Return the local time, and seconds east of UTC if the text contains them (do_to_timestamp)."""
    read = _Reader(text, nodes_of(form))
    read.run()
    moment = _Moment()
    _check_twelve(read)
    _year(read, moment)
    if read.get("j"):
        _put_day(moment, read.get("j") - calendar.JULIAN_EPOCH)
    _week_and_day(read, moment)
    _validate(moment, text)
    moment.clock, moment.precision = _clock(read, text), read.precision
    if not read.zone_sign:
        return moment, None
    hours, minutes = read.get("tzh"), read.get("tzm")
    if not (0 <= hours <= 15 and 0 <= minutes < 60):
        raise _out_of_range(text)
    return moment, read.zone_sign * (hours * 60 + minutes) * 60


def _days(moment: _Moment) -> int:
    """Return the day since 1970 (date2j). A day beyond the month's end counts into the next month."""
    return calendar.days_of(moment.year, moment.month, 1) + moment.day - 1


def to_date(text: str, form: str) -> int:
    """Convert a text to a date by a format, in days since 1970."""
    moment, _ = _parse(text, form)
    days = _days(moment)
    if days < timestamp.FIRST_DAY or days >= 2_147_483_494 - calendar.JULIAN_EPOCH:
        raise PostgresError("22008", f'date out of range: "{text}"')
    return days


def to_timestamp(timezone: str, text: str, form: str) -> int:
    """Convert a text to an instant by a format, in the session's zone unless the text contains one."""
    moment, east = _parse(text, form)
    days = _days(moment)
    if days < timestamp.FIRST_DAY:
        raise timestamp.out_of_range()
    local = days * calendar.DAY + moment.clock
    instant = timestamp.instant_of(timezone, local) if east is None else local - east * 1_000_000
    return timestamp.storable(_rounded(instant, moment.precision))


def _rounded(instant: int, precision: int) -> int:
    """Round to some digits of seconds, half away from 2000-01-01 (AdjustTimestampForTypmod)."""
    unit: int = 10 ** (6 - precision)
    since = instant - calendar.EPOCH_MICROS
    size = (abs(since) + unit // 2) // unit * unit
    return calendar.EPOCH_MICROS + (size if since >= 0 else -size)
