"""Reads columns of text: usual values in bulk, unusual ones one by one.

Used by the modules of all type families (`number`, `numeric`, `datetime.timestamp`, …). A mask marks the values of the usual shape, for
which an Arrow kernel returns exactly the result of PostgreSQL's input function. The rest is passed to a scalar function that follows the
input function exactly and raises its errors, in row order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError

SPACE = " \t\n\v\f\r"
"""The white space of C's isspace() in the C locale, which PostgreSQL's input functions skip."""


@dataclass(frozen=True)
class TextSettings:
    """The settings on which text forms depend, each as SHOW prints it.

    DateStyle consists of two: the style in which dates are printed (ISO, SQL, Postgres, German), and the order in which ambiguous day,
    month and year are read (MDY, DMY, YMD; SQL and Postgres also print in it).
    """

    timezone: str = "UTC"
    extra_float_digits: int = 1
    bytea_output: str = "hex"
    date_style: str = "ISO"
    date_order: str = "MDY"
    interval_style: str = "postgres"
    instant: int | None = field(default=None, compare=False)
    """The value of now() in microseconds since 1970, which the texts 'now' and 'today' mean. None: the current time."""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TextSettings:
        """Return those of a session's settings. Missing ones have their defaults."""
        style, _, order = settings.get("DateStyle", "ISO, MDY").partition(", ")
        return cls(
            settings.get("TimeZone") or "UTC",
            int(settings.get("extra_float_digits", "1")),
            settings.get("bytea_output", "hex"),
            style,
            order,
            settings.get("IntervalStyle", "postgres"),
        )

    @property
    def held(self) -> TextSettings:
        """The defaults with the session's TimeZone: constants and array elements have this form while expressions are evaluated."""
        return TextSettings(self.timezone)

    @property
    def of_results(self) -> TextSettings:
        """The form of values in results before they are sent: without DateStyle and IntervalStyle, so that they can be read again."""
        return TextSettings(self.timezone, self.extra_float_digits, self.bytea_output)

    @property
    def styles(self) -> TextSettings:
        """Only DateStyle and IntervalStyle."""
        return TextSettings(date_style=self.date_style, date_order=self.date_order, interval_style=self.interval_style)

    @property
    def of_documents(self) -> TextSettings:
        """The form of values in json: dates always in ISO, all others as they are printed elsewhere."""
        return self if self.date_style == "ISO" else replace(self, date_style="ISO")


PLAIN = TextSettings()
"""The form of values that a table stores as text: intervals, the elements of arrays."""


def read(
    strings: pa.StringArray,
    usual: pa.BooleanArray,
    bulk: Callable[[pa.StringArray], pa.Array],
    scalar: Callable[[str], object],
) -> pa.Array:
    """Read the values for which `usual` is true with `bulk`, and all others that are not NULL with `scalar`.

    `usual` is ignored for NULLs. `bulk` must accept all usual values, and return an array of the target type in which NULL stays NULL.
    `scalar` returns a Python value that ``pa.array(…, type)`` accepts, or raises.
    """
    odd = pc.and_not(pc.is_valid(strings), pc.fill_null(usual, False))
    if not pc.any(odd, min_count=0).as_py():
        return bulk(strings)
    result = bulk(pc.if_else(usual, strings, pa.scalar(None, pa.string())))
    values = [scalar(text) for text in strings.filter(odd).to_pylist()]
    return pc.replace_with_mask(result, odd, pa.array(values, result.type))


def write(values: pa.Array, odd: pa.BooleanArray, bulk: pa.StringArray, scalar: Callable[[pa.Scalar], str]) -> pa.StringArray:
    """Return `bulk` with the values for which `odd` is true replaced by the result of `scalar`. NULL counts as not odd."""
    odd = pc.fill_null(odd, False)
    if not pc.any(odd, min_count=0).as_py():
        return bulk
    return pc.replace_with_mask(bulk, odd, pa.array([scalar(value) for value in values.filter(odd)], pa.string()))


def attempt(strings: pa.StringArray, target: pa.DataType) -> pa.Array | None:
    """Cast with Arrow. Return None if the cast of any value fails."""
    try:
        return pc.cast(strings, target)
    except pa.ArrowInvalid:
        return None


def matches(strings: pa.StringArray, pattern: str) -> pa.BooleanArray:
    r"""Return which values match an RE2 pattern. Anchor it with ``\A`` and ``\z``: ``$`` matches before a newline, too."""
    return pc.match_substring_regex(strings, pattern)


def invalid_syntax(type_name: str, text: str, sqlstate: str = "22P02") -> PostgresError:
    """Return the most common error of PostgreSQL's input functions."""
    return PostgresError(sqlstate, f'invalid input syntax for type {type_name}: "{text}"')


def read_normal(strings: pa.StringArray, usual: pa.BooleanArray, scalar: Callable[[str], str]) -> pa.StringArray:
    """Read a column that is stored as text. Keep values in normal form; pass each different other one to the input function once."""
    return read(strings, usual, lambda texts: texts, functools.cache(scalar))
