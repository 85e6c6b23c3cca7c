"""The one way in which a column of text is read: the usual values in bulk, the odd ones one by one.

Used by the modules of each type family (`number`, `numeric`, `datetime.timestamp`, …). A mask says which values have the usual shape,
on which an Arrow kernel gives exactly what PostgreSQL's input function gives; the rest goes through a scalar function
that follows the input function to the letter and raises its errors, in row order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError

SPACE = " \t\n\v\f\r"
"""What C's isspace() takes for white space in the C locale: PostgreSQL's input functions skip exactly these."""


@dataclass(frozen=True)
class TextSettings:
    """The settings that text forms depend on, each as SHOW prints it.

    DateStyle is two of them: how dates are printed (ISO, SQL, Postgres, German), and in which order day, month and year are read where a
    text leaves that open (MDY, DMY, YMD; SQL and Postgres print by it too).
    """

    timezone: str = "UTC"
    extra_float_digits: int = 1
    bytea_output: str = "hex"
    date_style: str = "ISO"
    date_order: str = "MDY"
    interval_style: str = "postgres"

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TextSettings:
        """Those of a session's settings; what they lack is as by default."""
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
        """As constants and the elements of arrays are held while expressions are computed: by default, but for the TimeZone."""
        return TextSettings(self.timezone)

    @property
    def of_results(self) -> TextSettings:
        """As results hold values until they leave for the client: without DateStyle and IntervalStyle, so that they can be read again."""
        return TextSettings(self.timezone, self.extra_float_digits, self.bytea_output)

    @property
    def styles(self) -> TextSettings:
        """DateStyle and IntervalStyle alone."""
        return TextSettings(date_style=self.date_style, date_order=self.date_order, interval_style=self.interval_style)

    @property
    def of_documents(self) -> TextSettings:
        """As json shows values: dates always in ISO, all else as it is printed elsewhere."""
        return self if self.date_style == "ISO" else replace(self, date_style="ISO")


PLAIN = TextSettings()
"""How values are stored where a table keeps them as text: intervals, the elements of arrays."""


def read(
    strings: pa.StringArray,
    usual: pa.BooleanArray,
    bulk: Callable[[pa.StringArray], pa.Array],
    scalar: Callable[[str], object],
) -> pa.Array:
    """Reads the values where `usual` is true with `bulk`, the other ones that are not NULL with `scalar` (`usual` of NULL is ignored).

    `bulk` must not fail on a usual value, and must give an array of the target type in which NULL stays NULL; `scalar` gives
    a Python value that ``pa.array(…, type)`` takes, or raises.
    """
    odd = pc.and_not(pc.is_valid(strings), pc.fill_null(usual, False))
    if not pc.any(odd, min_count=0).as_py():
        return bulk(strings)
    done = bulk(pc.if_else(usual, strings, pa.scalar(None, pa.string())))
    values = [scalar(text) for text in strings.filter(odd).to_pylist()]
    return pc.replace_with_mask(done, odd, pa.array(values, done.type))


def write(values: pa.Array, odd: pa.BooleanArray, bulk: pa.StringArray, scalar: Callable[[pa.Scalar], str]) -> pa.StringArray:
    """`bulk` with the places where `odd` is true replaced by `scalar` of the value there (NULL counts as not odd)."""
    odd = pc.fill_null(odd, False)
    if not pc.any(odd, min_count=0).as_py():
        return bulk
    return pc.replace_with_mask(bulk, odd, pa.array([scalar(each) for each in values.filter(odd)], pa.string()))


def attempt(strings: pa.StringArray, target: pa.DataType) -> pa.Array | None:
    """Arrow's cast, or None if any value fails it."""
    try:
        return pc.cast(strings, target)
    except pa.ArrowInvalid:
        return None


def matches(strings: pa.StringArray, pattern: str) -> pa.BooleanArray:
    r"""Which values match an RE2 pattern (anchor it with ``\A`` and ``\z``: ``$`` would let a newline pass)."""
    return pc.match_substring_regex(strings, pattern)


def invalid_syntax(type_name: str, text: str, sqlstate: str = "22P02") -> PostgresError:
    """PostgreSQL's commonest error of an input function."""
    return PostgresError(sqlstate, f'invalid input syntax for type {type_name}: "{text}"')


def read_normal(strings: pa.StringArray, usual: pa.BooleanArray, scalar: Callable[[str], str]) -> pa.StringArray:
    """A column that is stored as text: values in normal form as they are, each different other one once by the input function."""
    return read(strings, usual, lambda each: each, functools.cache(scalar))
