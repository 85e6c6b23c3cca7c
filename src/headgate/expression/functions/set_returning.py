"""Functions that give rows, value by value: unnest, generate_series, jsonb_each and their like.

For `implementation.set_returning`; called by `spark.set_returning` inside Arrow functions, with their arguments as texts. Each gives
a list of rows of texts.
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
from headgate.types.base import multirange
from headgate.types.datetime.interval import normal
from headgate.types.datetime.timestamp import print_timestamp
from headgate.types.text import array
from headgate.types.text.text import read_scalar

Row = Sequence[str | None]
Rows = Iterable[Row]


def unnest(text: str) -> Rows:
    """The elements in their order, of all dimensions."""
    return [(each,) for each in array.parts(text)[1]]


def unnest_multirange(text: str) -> Rows:
    """Return the ranges of a multirange in their order."""
    return [(span,) for span in multirange.split(text)]


def subscripts(text: str, dimension: str, reverse: str = "f") -> Rows:
    """generate_subscripts."""
    low, high = arrays.lower(text, int(dimension)), arrays.upper(text, int(dimension))
    if low is None or high is None:
        return []
    found = range(low, high + 1)
    return [(str(each),) for each in (reversed(found) if reverse == "t" else found)]


def series(start: str, stop: str, step: str = "1") -> Rows:
    """generate_series of whole numbers."""
    distance = int(step)
    if distance == 0:
        raise PostgresError("22023", "step size cannot equal zero")
    return [(str(each),) for each in range(int(start), int(stop) + (1 if distance > 0 else -1), distance)]


def numeric_series(start: str, stop: str, step: str = "1") -> Rows:
    """generate_series of numeric."""
    for word, value in (("start", start), ("stop", stop), ("step size", step)):
        if value == "NaN":
            raise PostgresError("22023", f"{word} value cannot be NaN" if word != "step size" else "step size cannot be NaN")
        if "Infinity" in value:
            raise PostgresError("22023", f"{word} value cannot be infinity" if word != "step size" else "step size cannot be infinity")
    distance = Decimal(step)
    if not distance:
        raise PostgresError("22023", "step size cannot equal zero")
    found: list[Row] = []
    current = start
    while (Decimal(current) <= Decimal(stop)) if distance > 0 else (Decimal(current) >= Decimal(stop)):
        found.append((current,))
        current = numeric.add(current, step)
    return found


def moment_series(start: str, stop: str, step: str) -> Rows:
    """generate_series of timestamp."""
    return [(print_timestamp(each),) for each in _moments(_micros(start), _micros(stop), step, timestamp.plus)]


def instant_series(timezone: str, start: str, stop: str, step: str) -> Rows:
    """generate_series of timestamptz: a step of days is one of the zone's days, of 23 to 25 hours."""
    move = functools.partial(timestamp.plus_in_zone, timezone)
    return [(print_timestamp(each, "+00"),) for each in _moments(_micros(start), _micros(stop), step, move)]


def _micros(text: str) -> int:
    return int(read_scalar(text, registry.TIMESTAMPTZ).cast(pa.int64()).as_py())


def _moments(start: int, stop: int, step: str, move: Callable[[int, str], int]) -> Iterator[int]:
    distance = normal(step).compared
    if not distance:
        raise PostgresError("22023", "step size cannot equal zero")
    sign = 1 if distance > 0 else -1
    if sign * start <= sign * stop and (timestamp.endless(start) or timestamp.endless(stop)):
        raise timestamp.out_of_range()  # where PostgreSQL ends too, if it ends
    while sign * start <= sign * stop:
        yield start
        start = move(start, step)


def split(text: str | None, separator: str | None, null: str | None = None) -> Rows:
    """string_to_table."""
    made = arrays.split(text, separator, null)
    return [] if made is None else unnest(made)


def elements(text: str) -> Rows:
    """jsonb_array_elements."""
    return [(each,) for each in jsonb.elements(text)]


def elements_text(text: str) -> Rows:
    """jsonb_array_elements_text."""
    return [(each,) for each in jsonb.elements_text(text)]


def keys(text: str) -> Rows:
    """jsonb_object_keys."""
    return [(each,) for each in jsonb.keys(text)]


def pairs(text: str) -> Rows:
    """jsonb_each."""
    return [(key, value) for key, value, _ in jsonb.pairs("jsonb_each", text)]


def pairs_text(text: str) -> Rows:
    """jsonb_each_text."""
    return [(key, value) for key, _, value in jsonb.pairs("jsonb_each_text", text)]


def _written_items(text: str, function: str) -> list[str]:
    spans = json.Spans(text)
    root = spans.root()
    if root == "[":
        return spans.items()
    raise PostgresError("22023", f"cannot call {function} on a {'non-array' if root == '{' else 'scalar'}")


def written_elements(text: str) -> Rows:
    """json_array_elements: the elements as they are written."""
    return [(each,) for each in _written_items(text, "json_array_elements")]


def written_elements_text(text: str) -> Rows:
    """json_array_elements_text."""
    return [(json.bare(each),) for each in _written_items(text, "json_array_elements_text")]


def _written_fields(text: str, function: str) -> list[tuple[str, str]]:
    spans = json.Spans(text)
    root = spans.root()
    if root == "{":
        return spans.fields()
    if function == "json_object_keys":
        raise PostgresError("22023", f"cannot call {function} on {'an array' if root == '[' else 'a scalar'}")
    raise PostgresError("22023", "cannot deconstruct an array as an object" if root == "[" else "cannot deconstruct a scalar")


def written_keys(text: str) -> Rows:
    """json_object_keys, repeated ones too."""
    return [(key,) for key, _ in _written_fields(text, "json_object_keys")]


def written_pairs(text: str) -> Rows:
    """json_each."""
    return _written_fields(text, "json_each")


def written_pairs_text(text: str) -> Rows:
    """json_each_text."""
    return [(key, json.bare(value)) for key, value in _written_fields(text, "json_each_text")]
