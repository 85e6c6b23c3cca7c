"""Set-returning functions on single values: unnest, generate_series, jsonb_each and similar.

Called by `spark.set_returning` inside Arrow functions, with the arguments as texts, for `implementation.set_returning`. Each function
returns a list of rows of texts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.expression.functions import array as arrays
from headgate.expression.functions import numeric
from headgate.expression.functions.datetime import timestamp
from headgate.expression.functions.json import json, jsonb
from headgate.types import registry
from headgate.types.datetime.interval import normal
from headgate.types.datetime.timestamp import print_timestamp
from headgate.types.text import array
from headgate.types.text.text import read_scalar

Row = Sequence[str | None]
Rows = Iterable[Row]


def single(values: Callable[[str], Iterable[str | None]], text: str) -> Rows:
    """Return what a function of the argument returns, as rows of one column."""
    return [(value,) for value in values(text)]


def unnest(text: str) -> Rows:
    """Return the elements of all dimensions, in storage order."""
    return [(element,) for element in array.parts(text)[1]]


def subscripts(text: str, dimension: str, reverse: str = "f") -> Rows:
    """Return the subscripts of a dimension (generate_subscripts)."""
    low, high = arrays.lower(text, int(dimension)), arrays.upper(text, int(dimension))
    if low is None or high is None:
        return []
    subscripts_in_range = range(low, high + 1)
    return [(str(subscript),) for subscript in (reversed(subscripts_in_range) if reverse == "t" else subscripts_in_range)]


def series(start: str, stop: str, step: str = "1") -> Rows:
    distance = int(step)
    if distance == 0:
        raise PostgresError("22023", "step size cannot equal zero")
    return [(str(number),) for number in range(int(start), int(stop) + (1 if distance > 0 else -1), distance)]


def numeric_series(start: str, stop: str, step: str = "1") -> Rows:
    for word, value in (("start", start), ("stop", stop), ("step size", step)):
        if value == "NaN":
            raise PostgresError("22023", f"{word} value cannot be NaN" if word != "step size" else "step size cannot be NaN")
        if "Infinity" in value:
            raise PostgresError("22023", f"{word} value cannot be infinity" if word != "step size" else "step size cannot be infinity")
    distance = Decimal(step)
    if not distance:
        raise PostgresError("22023", "step size cannot equal zero")
    rows: list[Row] = []
    current = start
    while (Decimal(current) <= Decimal(stop)) if distance > 0 else (Decimal(current) >= Decimal(stop)):
        rows.append((current,))
        current = numeric.add(current, step)
    return rows


def moment_series(start: str, stop: str, step: str) -> Rows:
    return [(print_timestamp(micros),) for micros in _moments(_micros(start), _micros(stop), step, functools.partial(timestamp.moved, 1))]


def instant_series(timezone: str, start: str, stop: str, step: str) -> Rows:
    """Return generate_series of timestamptz. A step of days is counted in days of the zone, which have 23 to 25 hours."""
    move = functools.partial(timestamp.moved_in_zone, 1, timezone)
    return [(print_timestamp(micros, "+00"),) for micros in _moments(_micros(start), _micros(stop), step, move)]


def _micros(text: str) -> int:
    return int(read_scalar(text, registry.TIMESTAMPTZ).cast(pa.int64()).as_py())


def _moments(start: int, stop: int, step: str, move: Callable[[int, str], int]) -> Iterator[int]:
    distance = normal(step).compared
    if not distance:
        raise PostgresError("22023", "step size cannot equal zero")
    sign = 1 if distance > 0 else -1
    if sign * start <= sign * stop and (timestamp.endless(start) or timestamp.endless(stop)):
        raise timestamp.out_of_range()  # PostgreSQL runs until it reaches this error, if it ends at all
    while sign * start <= sign * stop:
        yield start
        start = move(start, step)


def split(text: str | None, separator: str | None, null: str | None = None) -> Rows:
    """Return the pieces of a text (string_to_table)."""
    array_text = arrays.split(text, separator, null)
    return [] if array_text is None else unnest(array_text)


def pairs(text: str) -> Rows:
    """Return the keys and values of a jsonb object (jsonb_each)."""
    return [(key, value) for key, value, _ in jsonb.pairs("jsonb_each", text)]


def pairs_text(text: str) -> Rows:
    """Return the keys of a jsonb object and its values as text (jsonb_each_text)."""
    return [(key, value) for key, _, value in jsonb.pairs("jsonb_each_text", text)]


def _written_items(text: str, function: str) -> list[str]:
    spans = json.Spans(text, decodes=function == "json_array_elements_text")
    root = spans.root()
    if root == "[":
        return spans.items()
    raise PostgresError("22023", f"cannot call {function} on a {'non-array' if root == '{' else 'scalar'}")


def written_elements(text: str) -> Rows:
    """Return the elements of a json array exactly as they are in the text (json_array_elements)."""
    return [(element,) for element in _written_items(text, "json_array_elements")]


def written_elements_text(text: str) -> Rows:
    """Return the elements of a json array as text (json_array_elements_text)."""
    return [(json.bare(element),) for element in _written_items(text, "json_array_elements_text")]


def _written_fields(text: str, function: str) -> list[tuple[str, str]]:
    spans = json.Spans(text)
    root = spans.root()
    if root == "{":
        return spans.fields()
    if function == "json_object_keys":
        raise PostgresError("22023", f"cannot call {function} on {'an array' if root == '[' else 'a scalar'}")
    raise PostgresError("22023", "cannot deconstruct an array as an object" if root == "[" else "cannot deconstruct a scalar")


def written_keys(text: str) -> Rows:
    """Return the keys of a json object, including duplicates (json_object_keys)."""
    return [(key,) for key, _ in _written_fields(text, "json_object_keys")]


def written_pairs(text: str) -> Rows:
    """Return the keys and values of a json object (json_each)."""
    return _written_fields(text, "json_each")


def written_pairs_text(text: str) -> Rows:
    """Return the keys of a json object and its values as text (json_each_text)."""
    return [(key, json.bare(value)) for key, value in _written_fields(text, "json_each_text")]
