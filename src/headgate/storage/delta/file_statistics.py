"""Selection of the files of a table that can contain given values, by the minimum and maximum in the `add` actions.

The statistics are in memory with the table's state (`TableState.files`), so this costs no Spark job: an insert whose keys are outside the
bounds of all files needs no look-up. Without bounds, a file can contain any value.
"""

from __future__ import annotations

import bisect
import datetime
import decimal
import json
from collections.abc import Callable, Iterator
from enum import Enum, auto

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.storage.delta.file_action import Action
from headgate.storage.delta.parquet import Bound
from headgate.storage.delta.table_state import TableState
from headgate.types import text_cache

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LISTED = 4096
"""The number of values up to which Python's bisect is faster than NumPy's search."""
_ROUNDED = decimal.Decimal("1e-15")
"""The relative error of a decimal bound: other writers (delta-rs) round it to a double, also towards the other bound."""
_MOST_PARSED, _MOST_RANGES, _OVERHEAD = 4 << 20, 64 << 20, 256
"""Limits in characters of the statistics that are cached as parsed, which takes some 8 bytes a character, and with the range of a column.
Each counts 256 more."""
_NOTHING: tuple[Bound, Bound] = (None, None)


@text_cache.limited(_MOST_PARSED, _OVERHEAD)
def _statistics(text: str) -> Action:
    parsed: Action = json.loads(text, parse_float=decimal.Decimal)
    return parsed


def file_bounds(stats: str | None, column: str) -> tuple[Bound, Bound]:
    """Return the minimum and maximum of a column (its name in the file), or (None, None) if they are not known."""
    if not stats:
        return _NOTHING
    parsed = _statistics(stats)
    least, most = parsed.get("minValues", {}).get(column), parsed.get("maxValues", {}).get(column)
    return (least, most) if least is not None and most is not None else _NOTHING


def null_count(stats: str | None, column: str) -> int | None:
    """Return the number of NULLs of a column (its name in the file), or None if it is not known."""
    count = _statistics(stats).get("nullCount", {}).get(column) if stats else None
    return None if count is None else int(count)


class _Order(Enum):
    """The kinds of types whose values have an order here."""

    INTEGER = auto()
    DECIMAL = auto()
    STRING = auto()
    DATE = auto()
    TIMESTAMP = auto()

    @classmethod
    def of(cls, kind: pa.DataType) -> _Order | None:
        tests = (
            (pa.types.is_integer, cls.INTEGER),
            (pa.types.is_decimal, cls.DECIMAL),
            (pa.types.is_string, cls.STRING),
            (pa.types.is_date, cls.DATE),
            (pa.types.is_timestamp, cls.TIMESTAMP),
        )
        return next((order for test, order in tests if test(kind)), None)


class _Known(Enum):
    """Why the statistics of a file have no bounds of a column: they do not name it, or all its values are NULL."""

    NOTHING = auto()
    NO_VALUES = auto()


def _comparable(value: Bound, order: _Order) -> Bound:
    """Return a bound in the form of `_values`."""
    match order:
        case _Order.INTEGER:
            return int(value)
        case _Order.DECIMAL:
            return decimal.Decimal(value)
        case _Order.STRING:
            return str(value)
        case _Order.DATE:
            return (datetime.date.fromisoformat(value) - _EPOCH.date()).days
        case _Order.TIMESTAMP:
            moment = datetime.datetime.fromisoformat(value)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


@text_cache.limited(_MOST_RANGES, _OVERHEAD)
def _range(stats: str, column: str, order: _Order | None) -> tuple[Bound, Bound] | _Known:
    """Return the smallest and the largest value of a column (its name in the file) in the form of `_values`.

    A statement asks for all files of a table, hence the cache. Timestamps in statistics are truncated to milliseconds, so a maximum may be
    up to 1 ms too low and 1 ms is added.
    """
    least, most = file_bounds(stats, column)
    if least is None:
        return _Known.NO_VALUES if _all_null(stats, column) else _Known.NOTHING
    if order is None:
        return _Known.NOTHING
    try:
        low, high = _comparable(least, order), _comparable(most, order)
    except (ValueError, decimal.InvalidOperation):
        return _Known.NOTHING
    if order is _Order.DECIMAL:
        return low - abs(low) * _ROUNDED, high + abs(high) * _ROUNDED
    return low, high + 1000 if order is _Order.TIMESTAMP else high


def _values(column: pa.ChunkedArray) -> npt.NDArray[np.generic] | None:
    """Return the values in order as an array for `searchsorted`, or None for types without an order here."""
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        return np.sort(column.drop_null().to_numpy())
    if pa.types.is_string(kind) or pa.types.is_decimal(kind):
        distinct = pc.unique(column.drop_null())
        return np.array(sorted(distinct.to_pylist()), dtype=object)
    return None


def candidates(state: TableState, column: str, values: pa.ChunkedArray) -> list[str]:
    """Return the paths of the files that can contain one of the values (not NULL) in a column. Without bounds, return all files."""
    in_order = _values(values)
    if in_order is None:
        return list(state.files)
    if not len(in_order):
        return []
    ordered = in_order.tolist() if len(in_order) <= LISTED else in_order
    first, last = ordered[0], ordered[-1]

    def holds(low: Bound, high: Bound) -> bool:
        if high < first or last < low:
            return False
        index = bisect.bisect_left(ordered, low)
        return index < len(ordered) and bool(ordered[index] <= high)

    return list(_files(state, column, values.type, holds))


def _files(state: TableState, column: str, kind: pa.DataType, holds: Callable[[Bound, Bound], bool]) -> Iterator[str]:
    """Yield the paths of the files for which `holds` returns True, called with the smallest and the largest value, or whose are unknown."""
    physical, order = state.physical.get(column, column), _Order.of(kind)
    for path, add in state.files.items():
        known = _range(add["stats"], physical, order) if add.get("stats") else _Known.NOTHING
        if known is _Known.NOTHING or (isinstance(known, tuple) and holds(*known)):
            yield path


def holding(state: TableState, column: str, least: pa.Scalar | None, most: pa.Scalar | None) -> dict[str, Action]:
    """Return the files that can hold a value from `least` to `most` (None: no bound), which are of a type with an order here."""
    ends = [None if end is None else _values(pa.chunked_array([pa.repeat(end, 1)])) for end in (least, most)]
    first, last = (None if end is None or not len(end) else end[0] for end in ends)
    kind = next(end.type for end in (least, most) if end is not None)

    def holds(low: Bound, high: Bound) -> bool:
        return bool((first is None or first <= high) and (last is None or low <= last))

    return {path: state.files[path] for path in _files(state, column, kind, holds)}


def _all_null(stats: str | None, column: str) -> bool:
    """Return whether a file is known to contain only NULL in a column."""
    if not stats:
        return False
    parsed = _statistics(stats)
    return bool(parsed.get("numRecords") == parsed.get("nullCount", {}).get(column))


def can_hold(state: TableState, column: str, least: pa.Scalar, most: pa.Scalar, kind: pa.DataType) -> bool:
    """Return whether a file can contain a value of a range. Both ends are Arrow scalars, because Python has no year 10000."""
    ends = _values(pa.chunked_array([pa.array([least.cast(kind), most.cast(kind)], kind)]))
    if ends is None or not len(ends):
        return bool(state.files)
    first, last = ends[0], ends[-1]

    def holds(low: Bound, high: Bound) -> bool:
        return bool(low <= last and first <= high)

    return any(_files(state, column, kind, holds))
