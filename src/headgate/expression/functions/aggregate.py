"""Aggregates over the list of a group's values, for aggregates without an exact Spark form.

Called in Spark's workers, for `implementation.aggregate`.
"""

from __future__ import annotations

from headgate.errors import PostgresError
from headgate.expression.functions import array as arrays
from headgate.expression.functions import numeric
from headgate.expression.functions.json import json_building
from headgate.types.base.json_text import load, print_value
from headgate.types.text import array

COMMA, NEW_LINE = ", ", ", \n "


def stacked(items: list[str | None]) -> str:
    """Return array_agg of arrays."""
    if None in items:
        raise PostgresError("22004", "cannot accumulate null arrays")
    shapes = [array.parts(item or "{}")[0] for item in items]
    if any(not shape.lengths for shape in shapes):
        raise PostgresError("2202E", "cannot accumulate empty arrays")
    if any(list(shape.lengths) != list(shapes[0].lengths) for shape in shapes):
        raise PostgresError("2202E", "cannot accumulate arrays of different dimensionality")
    return arrays.nested(items)


def json_item(oid: int, item: str | None) -> str:
    """Return a value in json_agg with its separator. Structured values start a new line, except the first value."""
    return (NEW_LINE if item is not None and json_building.is_structured(oid) else COMMA) + json_building.to_json(oid, item)


def jsonb_item(oid: int, item: str | None) -> str:
    return print_value(None if item is None else load(json_building.to_json(oid, item)))


def json_pair(key: int, oid: int, name: str | None, item: str | None) -> str:
    """Return a field in json_object_agg."""
    if name is None:
        raise PostgresError("22023", "field name must not be null")
    return f"{json_building.key_text(key, name)} : {json_building.to_json(oid, item)}"


def jsonb_pairs(key: int, oid: int, keys: list[str | None], items: list[str | None]) -> str:
    if None in keys:
        raise PostgresError("22023", "field name must not be null")
    names = (load(json_building.key_text(key, name or "")) for name in keys)
    return print_value({name: load(json_building.to_json(oid, item)) for name, item in zip(names, items, strict=True)})


def most_frequent(items: list[str], keys: list[str]) -> str | None:
    """Return the first item of the longest run of equal keys."""
    best, best_run, start = None, 0, 0
    for index in range(1, len(keys) + 1):
        if index == len(keys) or keys[index] != keys[start]:
            if index - start > best_run:
                best, best_run = items[start], index - start
            start = index
    return best


def total(usual: str | None, odd: list[str | None], scale: int | None) -> str | None:
    """Return sum(numeric). `usual` is the sum that Spark computed, `odd` are the other values, `scale` is the greatest display scale."""
    trimmed = None if usual is None else numeric.round_to(usual, scale or 0)
    return numeric.total([trimmed, *odd], 0)
