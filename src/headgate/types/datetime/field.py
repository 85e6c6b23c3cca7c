"""Splits a date, time or interval text into fields: ParseDateTime, and the small decoders shared by its callers (datetime.c).

Called by `decoder` and `interval`. `split` classifies fields only by their characters; the caller interprets them. All errors are `Flawed`,
which `timestamp_input`, `time_of_day` and `interval` convert to PostgreSQL's error for their type.
"""

from __future__ import annotations

import enum
import re

from headgate.errors import PostgresError

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december")
MONTH_NAMES = (
    {name[:3]: index + 1 for index, name in enumerate(_MONTHS)} | {name: index + 1 for index, name in enumerate(_MONTHS)} | {"sept": 9}
)
WEEKDAY_NAMES = {
    "sun", "sunday", "mon", "monday", "tue", "tues", "tuesday", "wed", "weds", "wednesday", "thu", "thur", "thurs", "thursday",
    "fri", "friday", "sat", "saturday",
}  # fmt: skip
UNIT_NAMES = {
    "j": "julian",
    "jd": "julian",
    "julian": "julian",
    "y": "year",
    "mm": "month",
    "d": "day",
    "h": "hour",
    "m": "month",
    "s": "second",
}
_WORDS = {
    *MONTH_NAMES, *WEEKDAY_NAMES, *UNIT_NAMES, "am", "pm", "ad", "bc", "at", "on", "t", "now", "today", "tomorrow", "yesterday", "epoch",
    "infinity", "-infinity", "allballs", "dst", "dow", "doy", "isodow", "isoyear",
}  # fmt: skip


class Flaw(enum.Enum):
    """The error in a date or time (DTERR_…)."""

    FORMAT = enum.auto()
    RANGE = enum.auto()
    MONTH_DAY = enum.auto()
    DISPLACEMENT = enum.auto()
    ZONE_NAME = enum.auto()


class Flawed(Exception):
    """An error inside the decoder. `error` converts it to PostgreSQL's error."""

    def __init__(self, flaw: Flaw, word: str = "") -> None:
        super().__init__(flaw)
        self.flaw = flaw
        self.word = word

    def error(self, type_name: str, text: str) -> PostgresError:
        """Return PostgreSQL's error (DateTimeParseError)."""
        match self.flaw:
            case Flaw.FORMAT:
                return PostgresError("22007", f'invalid input syntax for type {type_name}: "{text}"')
            case Flaw.RANGE:
                return PostgresError("22008", f'date/time field value out of range: "{text}"')
            case Flaw.MONTH_DAY:
                hint = 'Perhaps you need a different "datestyle" setting.'
                return PostgresError("22008", f'date/time field value out of range: "{text}"', hint=hint)
            case Flaw.DISPLACEMENT:
                return PostgresError("22009", f'time zone displacement out of range: "{text}"')
            case Flaw.ZONE_NAME:
                return PostgresError("22023", f'time zone "{self.word}" not recognized')


class FieldKind(enum.Enum):
    """The syntactic kind of a field (DTK_NUMBER, …)."""

    NUMBER = enum.auto()
    STRING = enum.auto()
    DATE = enum.auto()
    TIME = enum.auto()
    ZONE = enum.auto()
    SPECIAL = enum.auto()


_FIELD = re.compile(
    r"(?P<time>[0-9]+:[0-9:.]*)"
    r"|(?P<date>[0-9]+(?P<delim>[-/.])(?:[0-9]+(?:(?P=delim)(?:[0-9]|(?P=delim))*)?|(?=[^0-9])(?:[A-Za-z0-9]|(?P=delim))*))"
    r"|(?P<number>[0-9]+|\.[0-9]*)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<zone>[+-][ \t\n\v\f\r]*[0-9][0-9:.\-]*)"
    r"|(?P<special>[+-][ \t\n\v\f\r]*[A-Za-z]+)"
    r"|(?P<skip>[ \t\n\v\f\r]+|[!-*,/:-@\[-`{-~])"
)
_NAME = re.compile(r"[A-Za-z0-9+\-/_.:]*")


def split(text: str) -> list[tuple[FieldKind, str]]:
    """Return the text's fields in order, words in lower case (ParseDateTime)."""
    fields: list[tuple[FieldKind, str]] = []
    position = 0
    while position < len(text):
        token = _FIELD.match(text, position)
        if not token or len(fields) >= 25:
            raise Flawed(Flaw.FORMAT)
        part, position = token[0], token.end()
        match token.lastgroup if token["date"] is None else "date":
            case "time":
                fields.append((FieldKind.TIME, part))
            case "date":
                plain = re.fullmatch(r"[0-9]+\.[0-9]*", part)
                fields.append((FieldKind.NUMBER if plain and part[-1] != "." else FieldKind.DATE, part.lower()))
            case "number":
                fields.append((FieldKind.NUMBER, part))
            case "word":
                rest = text[position : position + 1]
                if (rest and rest in "-/.") or ((rest == "+" or rest.isdigit()) and part.lower() not in _WORDS):
                    more = _NAME.match(text, position)
                    part, position = part + (more[0] if more else ""), more.end() if more else position
                    fields.append((FieldKind.DATE, part.lower()))
                else:
                    fields.append((FieldKind.STRING, part.lower()))
            case "zone":
                fields.append((FieldKind.ZONE, part[0] + part[1:].lstrip()))
            case "special":
                fields.append((FieldKind.SPECIAL, (part[0] + part[1:].lstrip()).lower()))
            case _:
                pass
    return fields


def small(digits: str) -> int:
    """Return a field's number. Raise Flawed if it exceeds 32 bits."""
    if not digits:
        raise Flawed(Flaw.FORMAT)
    if len(digits.lstrip("0")) > 10 or int(digits) > 0x7FFFFFFF:
        raise Flawed(Flaw.RANGE)
    return int(digits)


def micros_of(fraction: str) -> int:
    """Return the microseconds of the digits after the point, rounded in binary floating point as in PostgreSQL."""
    return round(float("0." + (fraction or "0")) * 1e6)


def displacement(field: str) -> int:
    """Return the seconds east of ``+2``, ``-03``, ``+0530``, ``+05:30`` or ``+05:30:15`` (DecodeTimezone)."""
    match = re.fullmatch(r"([+-])([0-9]+)(?::([0-9]*)(?::([0-9]*))?)?(.*)", field, re.DOTALL)
    if not match:
        raise Flawed(Flaw.FORMAT)
    hours, minutes, seconds = small(match[2]), int(match[3] or 0), int(match[4] or 0)
    if match[3] is None and not match[5] and len(field) > 3:
        hours, minutes = divmod(hours, 100)
    if hours > 15 or minutes > 59 or seconds > 59:
        raise Flawed(Flaw.DISPLACEMENT)
    if match[5]:
        raise Flawed(Flaw.FORMAT)
    value = (hours * 60 + minutes) * 60 + seconds
    return -value if match[1] == "-" else value
