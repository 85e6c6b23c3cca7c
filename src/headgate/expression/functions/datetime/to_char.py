"""to_char of timestamps and intervals: the words of a format, and what each prints (DCH_to_char of formatting.c), in English.

Called through `vectorised` from `implementation.datetime.formatting`. A format is parsed once per worker. Locale-dependent output
(``TM``) is that of PostgreSQL's C locale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.types import text_cache
from headgate.types.datetime import calendar
from headgate.types.datetime.interval import interval_of

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
ROMAN = ("XII", "XI", "X", "IX", "VIII", "VII", "VI", "V", "IV", "III", "II", "I")
_UPPER = (
    "A.D. A.M. AD AM B.C. BC CC DAY DDD DD DY Day Dy D FF1 FF2 FF3 FF4 FF5 FF6 FX HH24 HH12 HH IDDD ID IW IYYY IYY IY I J MI MM MONTH MON "
    "MS Month Mon OF P.M. PM Q RM SSSSS SSSS SS TZH TZM TZ US WW W Y,YYY YYYY YYY YY Y"
).split()
WORDS = (*_UPPER, *(word.lower() for word in _UPPER if word not in ("Day", "Dy", "Month", "Mon")))
"""The words of a format, in the order in which they are tried."""


@dataclass(frozen=True)
class FormatWord:
    """A word of the format (``fill``: without FM; ``ordinal``: TH or th after it), or literal text (no word)."""

    word: str = ""
    text: str = ""
    fill: bool = True
    ordinal: str = ""


@text_cache.limited(1 << 18, overhead=64)
def nodes_of(form: str) -> tuple[FormatWord, ...]:
    """Split a format into words and literal characters (parse_format)."""
    nodes: list[FormatWord] = []
    position = 0
    while position < len(form):
        fill = True
        if form.startswith(("FM", "fm", "TM", "tm"), position):
            fill = form[position].upper() != "F"
            position += 2
            if position >= len(form):
                break
        word = next((candidate for candidate in WORDS if form.startswith(candidate, position)), None)
        if word is not None:
            position += len(word)
            ordinal = form[position : position + 2] if form.startswith(("TH", "th"), position) else ""
            position += 2 if ordinal or form.startswith("SP", position) else 0
            nodes.append(FormatWord(word, "", fill, ordinal))
        elif form[position] == '"':
            position = _skip_quoted(form, position + 1, nodes)
        else:
            position += form.startswith('\\"', position)
            nodes.append(FormatWord(text=form[position]))
            position += 1
    return tuple(nodes)


def _skip_quoted(form: str, position: int, nodes: list[FormatWord]) -> int:
    while position < len(form):
        if form[position] == '"':
            return position + 1
        position += form[position] == "\\" and position + 1 < len(form)
        nodes.append(FormatWord(text=form[position]))
        position += 1
    return position


@dataclass(frozen=True)
class Fields:
    """The broken-down time to print. `year` is astronomical (for an interval, its years). `days` are since 1970."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    micros: int
    days: int = 0
    offset: int = 0
    zone: str = ""
    span: bool = False

    @property
    def day_of_year(self) -> int:
        """The day of the year, counted from 1. For an interval, approximately all of its days."""
        if self.span:
            return (self.year * 12 + self.month) * 30 + self.day
        return self.days - calendar.days_of(self.year, 1, 1) + 1

    @property
    def iso(self) -> tuple[int, int]:
        """(astronomical year, week) of the ISO calendar."""
        thursday = self.days - (calendar.weekday_of(self.days) + 6) % 7 + 3
        year = calendar.date_of(thursday)[0]
        return year, (thursday - calendar.days_of(year, 1, 1)) // 7 + 1


def _zeros(number: int, node: FormatWord) -> str:
    """Print as C's ``%02d``, one wider for a negative number. With FM, print without zeros."""
    return f"{number:0{2 + (number < 0)}d}" if node.fill else str(number)


def _shown_year(fields: Fields, year: int) -> int:
    return year if fields.span or year > 0 else 1 - year


def _remainder(number: int, by: int) -> int:
    return calendar.divmod_toward_zero(number, by)[1]


def _twelve(fields: Fields, node: FormatWord) -> str:
    hour = _remainder(fields.hour, 12) or 12
    width = 2 if fields.hour >= 0 else 3
    return f"{hour:0{width}d}" if node.fill else str(hour)


def _year(digits: int) -> Callable[[Fields, FormatWord], str]:
    def show(fields: Fields, node: FormatWord) -> str:
        year = _shown_year(fields, fields.iso[0] if node.word[0] in "Ii" else fields.year)
        cut = year if digits == 4 else _remainder(year, 10**digits)
        width = digits + (_shown_year(fields, fields.year) < 0)
        return str(cut) if not node.fill or digits == 1 else f"{cut:0{width}d}"

    return show


def _fraction(digits: int) -> Callable[[Fields, FormatWord], str]:
    def show(fields: Fields, node: FormatWord) -> str:
        unit = 10 ** (6 - digits)
        return f"{_quotient(fields.micros, unit):0{digits}d}"

    return show


def _apply_case(name: str, word: str) -> str:
    return name.upper() if word.isupper() else name.lower() if word.islower() else name


def _calendar_only(show: Callable[[Fields, FormatWord], str]) -> Callable[[Fields, FormatWord], str]:
    def checked(fields: Fields, node: FormatWord) -> str:
        if fields.span:
            raise PostgresError(
                "22007",
                "invalid format specification for an interval value",
                hint="Intervals are not tied to specific calendar dates.",
            )
        return show(fields, node)

    return checked


def _show_name(names: tuple[str, ...], pick: Callable[[Fields], int], size: int) -> Callable[[Fields, FormatWord], str]:
    def show(fields: Fields, node: FormatWord) -> str:
        name = _apply_case(names[pick(fields)], node.word)
        return name[:3] if size == 3 else f"{name:9}" if node.fill else name

    return _calendar_only(show)


def _century(fields: Fields, node: FormatWord) -> str:
    year = fields.year
    if fields.span:
        number = _quotient(year, 100)
    else:
        number = (year - 1) // 100 + 1 if year > 0 else _quotient(year, 100) - 1
    return _zeros(number, node) if -99 <= number <= 99 else str(number)


def _roman(fields: Fields, node: FormatWord) -> str:
    if not fields.month and not fields.year:
        return ""
    if not fields.month:
        place = 0 if fields.year >= 0 else 11
    else:
        place = -(fields.month + 1) if fields.month < 0 else 12 - fields.month
    numeral = ROMAN[place] if node.word.isupper() else ROMAN[place].lower()
    return f"{numeral:4}" if node.fill else numeral


def _thousands(fields: Fields, node: FormatWord) -> str:
    year = _shown_year(fields, fields.year)
    high = _quotient(year, 1000)
    return f"{high},{year - high * 1000:03d}"


def _offset(fields: Fields, node: FormatWord) -> str:
    size = abs(fields.offset)
    sign = "+" if fields.offset >= 0 else "-"
    hours = f"{size // 3600:02d}" if node.fill else str(size // 3600)
    return sign + hours + (f":{size % 3600 // 60:02d}" if size % 3600 else "")


def _half(fields: Fields, node: FormatWord) -> str:
    mark = "PM" if _remainder(fields.hour, 24) >= 12 else "AM"
    mark = f"{mark[0]}.M." if "." in node.word else mark
    return mark if node.word[0].isupper() else mark.lower()


def _era(fields: Fields, node: FormatWord) -> str:
    mark = "BC" if fields.year <= 0 else "AD"
    mark = f"{mark[0]}.{mark[1]}." if "." in node.word else mark
    return mark if node.word[0].isupper() else mark.lower()


def _quarter(fields: Fields, node: FormatWord) -> str:
    return str((fields.month - 1) // 3 + 1 if fields.month > 0 else 1 - (1 - fields.month) // 3) if fields.month else ""


def _iso_day_of_year(fields: Fields) -> int:
    year, _ = fields.iso
    january_4 = calendar.days_of(year, 1, 4)
    return fields.days - (january_4 - (calendar.weekday_of(january_4) + 6) % 7) + 1


_SHOW: dict[str, Callable[[Fields, FormatWord], str]] = {
    "HH": _twelve,
    "HH12": _twelve,
    "HH24": lambda fields, node: _zeros(fields.hour, node),
    "MI": lambda fields, node: _zeros(fields.minute, node),
    "SS": lambda fields, node: _zeros(fields.second, node),
    "MS": _fraction(3),
    "US": _fraction(6),
    **{f"FF{digits}": _fraction(digits) for digits in range(1, 7)},
    "SSSS": lambda fields, node: str(fields.hour * 3600 + fields.minute * 60 + fields.second),
    "SSSSS": lambda fields, node: str(fields.hour * 3600 + fields.minute * 60 + fields.second),
    **dict.fromkeys(("A.M.", "P.M.", "AM", "PM"), _half),
    **dict.fromkeys(("A.D.", "B.C.", "AD", "BC"), _calendar_only(_era)),
    "TZ": _calendar_only(lambda fields, node: fields.zone if node.word == "TZ" else fields.zone.lower()),
    "TZH": _calendar_only(lambda fields, node: f"{'+' if fields.offset >= 0 else '-'}{abs(fields.offset) // 3600:02d}"),
    "TZM": _calendar_only(lambda fields, node: f"{abs(fields.offset) % 3600 // 60:02d}"),
    "OF": _calendar_only(_offset),
    "MONTH": _show_name(MONTHS, lambda fields: fields.month - 1, 9),
    "MON": _show_name(MONTHS, lambda fields: fields.month - 1, 3),
    "MM": lambda fields, node: _zeros(fields.month, node),
    "DAY": _show_name(DAYS, lambda fields: calendar.weekday_of(fields.days), 9),
    "DY": _show_name(DAYS, lambda fields: calendar.weekday_of(fields.days), 3),
    "DDD": lambda fields, node: f"{fields.day_of_year:03d}" if node.fill else str(fields.day_of_year),
    "IDDD": lambda fields, node: f"{_iso_day_of_year(fields):03d}" if node.fill else str(_iso_day_of_year(fields)),
    "DD": lambda fields, node: f"{fields.day:02d}" if node.fill else str(fields.day),
    "D": _calendar_only(lambda fields, node: str(calendar.weekday_of(fields.days) + 1)),
    "ID": _calendar_only(lambda fields, node: str(calendar.weekday_of(fields.days) or 7)),
    "WW": lambda fields, node: f"{(fields.day_of_year - 1) // 7 + 1:02d}" if node.fill else str((fields.day_of_year - 1) // 7 + 1),
    "IW": lambda fields, node: f"{fields.iso[1]:02d}" if node.fill else str(fields.iso[1]),
    "Q": _quarter,
    "CC": _century,
    "Y,YYY": _thousands,
    **{"Y" * digits: _year(digits) for digits in (1, 2, 3, 4)},
    **{"I" + "Y" * (digits - 1): _year(digits) for digits in (1, 2, 3, 4)},
    "RM": _roman,
    "W": lambda fields, node: str((fields.day - 1) // 7 + 1),
    "J": lambda fields, node: str(fields.days + calendar.JULIAN_EPOCH),
    "FX": lambda fields, node: "",
}


def show(fields: Fields, form: str) -> str | None:
    """Return to_char, or NULL for an empty format."""
    if not form:
        return None
    return "".join(_show_node(fields, node) for node in nodes_of(form))


def _show_node(fields: Fields, node: FormatWord) -> str:
    if not node.word:
        return node.text
    text = _SHOW[node.word.upper()](fields, node)
    return text + _ending(text, node.ordinal) if node.ordinal and _has_ordinal(node.word) else text


def _has_ordinal(word: str) -> bool:
    return word.upper() not in {
        "A.D.", "B.C.", "AD", "BC", "A.M.", "P.M.", "AM", "PM", "TZ", "TZH", "TZM", "OF", "MONTH", "MON", "DAY", "DY", "RM", "FX",
    }  # fmt: skip


def _ending(number: str, ordinal: str) -> str:
    """Return the ordinal suffix of a number (get_th)."""
    teen = len(number) > 1 and number[-2] == "1"
    ending = "th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    return ending.upper() if ordinal == "TH" else ending


def timestamp_text(micros: int, form: str) -> str | None:
    """Return to_char(timestamp, text) of microseconds since 1970, or NULL for infinity."""
    if abs(micros) == calendar.INFINITE_MICROS:
        return None
    return show(fields_of(micros), form)


def fields_of(micros: int, offset: int = 0, zone: str = "") -> Fields:
    """Return the fields of local microseconds since 1970."""
    days, clock = divmod(micros, calendar.DAY)
    seconds, fraction = divmod(clock, 1_000_000)
    return Fields(*calendar.date_of(days), seconds // 3600, seconds // 60 % 60, seconds % 60, fraction, days, offset, zone)


def interval_text(text: str, form: str) -> str | None:
    """Return to_char(interval, text) of its stored text."""
    fields = interval_of(text).fields()
    return show(Fields(*fields, calendar_days(*fields[:3]), span=True), form)


def calendar_days(year: int, month: int, day: int) -> int:
    """Return date2j of an interval's fields, as PostgreSQL counts them for J, IW and IYYY, in days since 1970."""
    shifted, moved = (month + 1, year + 4800) if month > 2 else (month + 13, year + 4799)
    century = _quotient(moved, 100)
    julian = moved * 365 - 32167 + _quotient(moved, 4) - century + _quotient(century, 4) + _quotient(7834 * shifted, 256) + day
    return julian - calendar.JULIAN_EPOCH


def _quotient(number: int, by: int) -> int:
    return calendar.divmod_toward_zero(number, by)[0]
