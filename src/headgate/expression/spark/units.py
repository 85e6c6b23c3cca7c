"""The fields of EXTRACT, date_part and date_trunc in PostgreSQL's spellings (DecodeUnits and DecodeSpecial of datetime.c).

Only the first ten letters of a word count, in either case. Called by `implementation.datetime.extract`,
`implementation.datetime.timestamp` and `implementation.datetime.time_of_day`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.expression.spark.value import Value, refuse

_LENGTH = 10
_RELATIVE = {
    "century": "c cent centuries century", "day": "d day days", "decade": "dec decade decades decs", "hour": "h hour hours hr hrs",
    "minute": "m min mins minute minutes", "microsecond": "microsecon us usec usecond useconds usecs",
    "millennium": "mil millennia millennium mils", "millisecond": "millisecon ms msec msecond mseconds msecs",
    "month": "mon mons month months", "quarter": "qtr quarter", "second": "s sec second seconds secs", "timezone": "timezone",
    "timezone_hour": "timezone_h", "timezone_minute": "timezone_m", "week": "w week weeks", "year": "y year years yr yrs",
}  # fmt: skip
_ABSOLUTE = {"dow": "dow", "doy": "doy", "isodow": "isodow", "isoyear": "isoyear", "julian": "j jd julian", "epoch": "epoch"}
_RESERVED = frozenset({"-infinity", "infinity", "allballs", "now", "today", "tomorrow", "yesterday"})


def _words(table: dict[str, str]) -> dict[str, str]:
    return {word[:_LENGTH]: name for name, words in table.items() for word in words.split()}


_UNITS = _words(_RELATIVE)
_FIELDS = {**_words(_ABSOLUTE), **_UNITS}


@dataclass(frozen=True)
class Unit:
    """A field: its `name` ('' if PostgreSQL does not recognize the word), as `written`, and whether it is a `reserved` word."""

    name: str
    written: str
    reserved: bool = False

    def error(self, type_name: str, detail: str | None = None) -> tuple[str, str]:
        """Return SQLSTATE and message for a type that does not have the field."""
        is_recognized = bool(self.name) or self.reserved
        message = f'unit "{self.written}" not {"supported" if is_recognized else "recognized"} for type {type_name}'
        return ("0A000" if is_recognized else "22023"), message + (f"|DETAIL|{detail}" if detail else "")


def _lower(value: Value, construct: str) -> str:
    if value.constant is None:
        raise refuse(construct, "the field must be a constant")
    return "".join(character.lower() if character.isascii() else character for character in value.constant)


def truncation_unit(value: Value) -> Unit:
    lowered = _lower(value, "date_trunc")
    return Unit(_UNITS.get(lowered[:_LENGTH], ""), lowered)


def field_unit(value: Value, construct: str) -> Unit:
    """Return the field of EXTRACT and date_part."""
    lowered = _lower(value, construct)
    return Unit(_FIELDS.get(lowered[:_LENGTH], ""), lowered, lowered[:_LENGTH] in _RESERVED)
