"""Functions of arrays on their text form, value by value, as arrayfuncs.c and array_userfuncs.c do them.

Called by `implementation.array` inside Arrow functions. An array is the text that array_out prints; an element the text of its type's
output function. A `Key` (see `headgate.types.order`) says which elements are equal and which is less. NULL is None; functions that
PostgreSQL declares strict are never called with one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from headgate.errors import PostgresError, not_supported
from headgate.expression.functions import size_limit
from headgate.types.text.array import MAX_DIMENSIONS, Shape, parts, print_array

Key = Callable[[str], bytes]
Item = str | None
Test = Callable[[bytes, bytes], bool]
_MAX_ITEMS = 134_217_727
_LAST = (1 << 31) - 1
"""The greatest subscript; the least is one less than its negative."""
TESTS: dict[str, Test] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def written(items: Sequence[Item], lower: int = 1) -> str:
    """A one-dimensional array of these elements."""
    return print_array(Shape((len(items),), (lower,)), items, ",") if items else "{}"


def ndims(text: str) -> int | None:
    """array_ndims."""
    return len(parts(text)[0].lengths) or None


def dims(text: str) -> str | None:
    """array_dims: ``[1:2][1:3]``."""
    shape, _ = parts(text)
    return "".join(f"[{low}:{low + size - 1}]" for low, size in zip(shape.lowers, shape.lengths, strict=True)) or None


def length(text: str, dimension: int) -> int | None:
    """array_length."""
    shape, _ = parts(text)
    return shape.lengths[dimension - 1] if 1 <= dimension <= len(shape.lengths) else None


def lower(text: str, dimension: int) -> int | None:
    """array_lower."""
    shape, _ = parts(text)
    return shape.lowers[dimension - 1] if 1 <= dimension <= len(shape.lengths) else None


def upper(text: str, dimension: int) -> int | None:
    """array_upper."""
    shape, _ = parts(text)
    if not 1 <= dimension <= len(shape.lengths):
        return None
    return shape.lowers[dimension - 1] + shape.lengths[dimension - 1] - 1


def cardinality(text: str) -> int:
    """How many elements there are, over all dimensions."""
    return len(parts(text)[1])


def _flat(shape: Shape, code: str = "22000") -> None:
    if len(shape.lengths) > 1:
        raise PostgresError(code, "argument must be empty or one-dimensional array")


def append(text: str | None, item: Item) -> str:
    """array_append; a NULL array counts as an empty one."""
    shape, items = parts(text or "{}")
    _flat(shape)
    low = shape.lowers[0] if items else 1
    if low + len(items) > _LAST:
        raise PostgresError("22003", "integer out of range")
    return _bounded(Shape((len(items) + 1,), (low,)), [*items, item])


def prepend(item: Item, text: str | None) -> str:
    """array_prepend: the lower bound stays."""
    shape, items = parts(text or "{}")
    _flat(shape)
    low = shape.lowers[0] if items else 1
    if low == -_LAST - 1:
        raise PostgresError("22003", "integer out of range")
    _check_bounds(Shape((len(items) + 1,), (low - 1,)))
    return written([item, *items], low)


def _check_bounds(shape: Shape) -> None:
    """54000 for a subscript that comes too close to the greatest there is (ArrayCheckBounds)."""
    for low, size in zip(shape.lowers, shape.lengths, strict=True):
        if low + size > _LAST:
            raise PostgresError("54000", f"array lower bound is too large: {low}")


def _bounded(shape: Shape, items: Sequence[Item], delimiter: str = ",") -> str:
    """Return an array. 54000 if its bounds are beyond PostgreSQL's."""
    _check_bounds(shape)
    return print_array(shape, items, delimiter)


def concatenate(left: str | None, right: str | None) -> str | None:
    """array_cat: NULL and empty arrays leave the other as it is; dimensions differ by one at most."""
    if left is None or right is None:
        return right if left is None else left
    (one, items), (other, more) = parts(left), parts(right)
    if not one.lengths or not other.lengths:
        return left if not other.lengths else right
    deep, deeper = len(one.lengths), len(other.lengths)
    if abs(deep - deeper) > 1:
        detail = f"Arrays of {deep} and {deeper} dimensions are not compatible for concatenation."
        raise PostgresError("2202E", "cannot concatenate incompatible arrays", detail=detail)
    skip_one, skip_other = int(deep >= deeper), int(deeper >= deep)
    same = list(one.lengths[skip_one:]) == list(other.lengths[skip_other:]) and list(one.lowers[skip_one:]) == list(
        other.lowers[skip_other:]
    )
    if not same:
        word = "element dimensions" if deep == deeper else "dimensions"
        detail = f"Arrays with differing {word} are not compatible for concatenation."
        raise PostgresError("2202E", "cannot concatenate incompatible arrays", detail=detail)
    first = (one.lengths[0] if skip_one else 1) + (other.lengths[0] if skip_other else 1)
    outer = one if deep >= deeper else other
    return _bounded(Shape((first, *outer.lengths[1:]), outer.lowers), items + more)


def remove(text: str | None, item: Item, key: Key) -> str | None:
    """array_remove."""
    if text is None:
        return None
    shape, items = parts(text)
    if not items:
        return text
    if len(shape.lengths) > 1:
        raise not_supported("removing elements from multidimensional arrays is not supported")
    wanted = None if item is None else key(item)
    kept = [each for each in items if not _same(each, wanted, key)]
    return written(kept, shape.lowers[0])


def _same(item: Item, wanted: bytes | None, key: Key) -> bool:
    """IS NOT DISTINCT FROM."""
    return wanted is None if item is None else wanted is not None and key(item) == wanted


def replace(text: str | None, old: Item, new: Item, key: Key) -> str | None:
    """array_replace."""
    if text is None:
        return None
    shape, items = parts(text)
    wanted = None if old is None else key(old)
    return print_array(shape, [new if _same(each, wanted, key) else each for each in items], ",")


def position(text: str | None, item: Item, start: int | None, key: Key, *, started: bool) -> int | None:
    """array_position: the subscript of the first equal element from `start` on (`started`: whether there is one)."""
    found = _searched(text)
    if found is None or (item is None and None not in found[1]):
        return None
    if started and start is None:
        raise PostgresError("22004", "initial position must not be null")
    low, items = found
    wanted = None if item is None else key(item)
    for place, each in enumerate(items, low):
        if (start is None or place >= start) and _same(each, wanted, key):
            return place
    return None


def positions(text: str | None, item: Item, key: Key) -> str | None:
    """array_positions; NULL only for a NULL array."""
    if text is None:
        return None
    low, items = _searched(text) or (1, ())
    wanted = None if item is None else key(item)
    return written([str(place) for place, each in enumerate(items, low) if _same(each, wanted, key)])


def _searched(text: str | None) -> tuple[int, Sequence[Item]] | None:
    if text is None:
        return None
    shape, items = parts(text)
    if len(shape.lengths) > 1:
        raise not_supported("searching for elements in multidimensional arrays is not supported")
    return (shape.lowers[0], items) if items else None


def _keys(text: str, key: Key) -> set[bytes]:
    return {key(each) for each in parts(text)[1] if each is not None}


def overlaps(left: str, right: str, key: Key) -> bool:
    """&&: NULL elements meet nothing."""
    return not _keys(left, key).isdisjoint(_keys(right, key))


def contains(left: str, right: str, key: Key) -> bool:
    """@>: a NULL element is contained nowhere."""
    return None not in parts(right)[1] and _keys(right, key) <= _keys(left, key)


def compare(item: Item, text: str | None, test: Test, item_key: Key, key: Key, *, any_of: bool) -> bool | None:
    """``item op ANY/ALL (array)`` for a strict operator."""
    if text is None:
        return None
    items = parts(text)[1]
    if not items or item is None:
        return None if items else not any_of
    left = item_key(item)
    for each in items:
        if each is not None and test(left, key(each)) is any_of:
            return any_of
    return None if None in items else not any_of


def joined(text: str | None, separator: str | None, null: str | None = None) -> str | None:
    """array_to_string: NULL elements are left out, or written as `null`."""
    if text is None or separator is None:
        return None
    shown = (null if each is None else each for each in parts(text)[1])
    return separator.join(each for each in shown if each is not None)


def split(text: str | None, separator: str | None, null: str | None = None) -> str | None:
    """string_to_array: a NULL separator splits into characters, an empty one not at all."""
    if text is None:
        return None
    if not text:
        return "{}"
    size_limit.items(len(text) if separator is None else text.count(separator) + 1 if separator else 1, len(text))
    items = list(text) if separator is None else text.split(separator) if separator else [text]
    return written([None if null is not None and each == null else each for each in items])


def trimmed(text: str, count: int) -> str:
    """trim_array: without its last `count` elements."""
    shape, items = parts(text)
    size = shape.lengths[0] if shape.lengths else 0
    if not 0 <= count <= size:
        raise PostgresError("2202E", f"number of elements to trim must be between 0 and {size}")
    if count == size:
        return "{}"
    inner = len(items) // size
    # array_get_slice: the result counts from 1
    return print_array(Shape((size - count, *shape.lengths[1:]), (1,) * len(shape.lengths)), items[: (size - count) * inner], ",")


def filled(item: Item, lengths_text: str | None, lowers_text: str | None = "{}") -> str:
    """array_fill."""
    if lengths_text is None or lowers_text is None:
        raise PostgresError("22004", "dimension array or low bound array cannot be null")
    sizes, lows = parts(lengths_text), parts(lowers_text)
    for shape, _ in (sizes, lows):
        if len(shape.lengths) > 1:
            raise PostgresError("2202E", "wrong number of array subscripts", detail="Dimension array must be one dimensional.")
    if None in sizes[1] or None in lows[1]:
        raise PostgresError("22004", "dimension values cannot be null")
    lengths = [int(each) for each in sizes[1] if each is not None]
    lowers = [int(each) for each in lows[1] if each is not None] or [1] * len(lengths)
    if not lengths:
        return "{}"
    if len(lengths) > MAX_DIMENSIONS:
        raise PostgresError("54000", f"number of array dimensions ({len(lengths)}) exceeds the maximum allowed ({MAX_DIMENSIONS})")
    if len(lowers) != len(lengths):
        raise PostgresError("2202E", "wrong number of array subscripts", detail="Low bound array has different size than dimensions array.")
    count = 1
    for each in lengths:
        count *= max(each, 0)
    if count > _MAX_ITEMS or any(each < 0 for each in lengths):
        raise PostgresError("54000", f"array size exceeds the maximum allowed ({_MAX_ITEMS})")
    size_limit.items(0, count * (len(item or "") + 1))
    return _bounded(Shape(lengths, lowers), [item] * count) if count else "{}"


def element(text: str, indexes: Sequence[int | None]) -> Item:
    """``a[1][2]``: NULL outside the bounds, or with too few or too many subscripts."""
    shape, items = parts(text)
    if len(indexes) != len(shape.lengths):
        return None
    place = 0
    for index, low, size in zip(indexes, shape.lowers, shape.lengths, strict=True):
        if index is None or not low <= index < low + size:
            return None
        place = place * size + index - low
    return items[place]


Bound = int | None | Literal["open"]


def part(text: str, bounds: Sequence[tuple[Bound, Bound]]) -> str | None:
    """``a[2:3]``: the elements inside the bounds ('open': the array's own), counted from 1 in the result; NULL for a NULL bound."""
    if any(None in each for each in bounds):
        return None
    shape, items = parts(text)
    if not shape.lengths or len(bounds) > len(shape.lengths):
        return "{}"
    ranges: list[range] = []
    for place, (low, size) in enumerate(zip(shape.lowers, shape.lengths, strict=True)):
        first, last = bounds[place] if place < len(bounds) else ("open", "open")
        begin = low if first == "open" or first is None else max(first, low)
        end = low + size - 1 if last == "open" or last is None else min(last, low + size - 1)
        if begin > end:
            return "{}"
        ranges.append(range(begin - low, end - low + 1))
    chosen = [items[place] for place in _places(ranges, shape.lengths)]
    return print_array(Shape([len(each) for each in ranges], [1] * len(ranges)), chosen, ",")


def with_element(text: str | None, indexes: Sequence[int | None], item: Item, delimiter: str = ",") -> str:
    """Return the array with an element replaced (array_set_element). An array of one dimension grows; new gaps are NULL.

    Raises 22004 for a NULL subscript, and 2202E for a subscript outside an array of several dimensions.
    """
    subscripts = _not_null(indexes)
    shape, items = parts(text or "{}", delimiter)
    if not shape.lengths:
        return _bounded(Shape((1,) * len(subscripts), subscripts), [item], delimiter)
    if len(subscripts) != len(shape.lengths):
        raise PostgresError("2202E", "wrong number of array subscripts")
    if len(subscripts) == 1:
        low, grown = _grown(shape.lowers[0], items, subscripts[0], subscripts[0])
        grown[subscripts[0] - low] = item
        return _bounded(Shape((len(grown),), (low,)), grown, delimiter)
    if not all(low <= index < low + size for index, low, size in zip(subscripts, shape.lowers, shape.lengths, strict=True)):
        raise PostgresError("2202E", "array subscript out of range")
    [place] = _places([range(index - low, index - low + 1) for index, low in zip(subscripts, shape.lowers, strict=True)], shape.lengths)
    return print_array(shape, [*items[:place], item, *items[place + 1 :]], delimiter)


def with_part(text: str | None, bounds: Sequence[tuple[Bound, Bound]], source: str | None, delimiter: str = ",") -> str | None:
    """Return the array with a slice replaced by the elements of `source` (array_set_slice). A NULL `source` changes nothing.

    Raises 22004 for a NULL subscript, and 2202E for bounds that the array or the source does not have.
    """
    _not_null([bound for pair in bounds for bound in pair if bound != "open"])
    if source is None:
        return text or "{}"
    shape, items = parts(text or "{}", delimiter)
    _, given = parts(source, delimiter)
    if not shape.lengths:
        if any("open" in pair for pair in bounds):
            detail = "When assigning to a slice of an empty array value, slice boundaries must be fully specified."
            raise PostgresError("2202E", "array slice subscript must provide both boundaries", detail=detail)
        lengths = [_size(first, last) for first, last in bounds]
        return _bounded(Shape(lengths, [int(first) for first, _ in bounds if first is not None]), _enough(given, lengths), delimiter)
    if len(bounds) > len(shape.lengths):
        raise PostgresError("2202E", "wrong number of array subscripts")
    limits = [
        _closed(bounds[place] if place < len(bounds) else ("open", "open"), low, size)
        for place, (low, size) in enumerate(zip(shape.lowers, shape.lengths, strict=True))
    ]
    lengths = [_size(first, last) for first, last in limits]
    if len(limits) == 1:
        [(first, last)] = limits
        low, grown = _grown(shape.lowers[0], items, first, last)
        grown[first - low : last - low + 1] = _enough(given, lengths)
        return _bounded(Shape((len(grown),), (low,)), grown, delimiter)
    if any(first < low or last >= low + size for (first, last), low, size in zip(limits, shape.lowers, shape.lengths, strict=True)):
        raise PostgresError("2202E", "array subscript out of range")
    changed = list(items)
    ranges = [range(first - low, last - low + 1) for (first, last), low in zip(limits, shape.lowers, strict=True)]
    for place, item in zip(_places(ranges, shape.lengths), _enough(given, lengths), strict=True):
        changed[place] = item
    return print_array(shape, changed, delimiter)


def _not_null(indexes: Sequence[Bound]) -> list[int]:
    if None in indexes:
        raise PostgresError("22004", "array subscript in assignment must not be null")
    return [int(index) for index in indexes if index is not None]


def _closed(bounds: tuple[Bound, Bound], low: int, size: int) -> tuple[int, int]:
    """Return the bounds of a slice, those that are left out by those of the array."""
    first, last = bounds
    return (
        low if first == "open" or first is None else first,
        low + size - 1 if last == "open" or last is None else last,
    )


def _size(first: Bound, last: Bound) -> int:
    assert isinstance(first, int)
    assert isinstance(last, int)
    if first > last:
        raise PostgresError("2202E", "upper bound cannot be less than lower bound")
    return last - first + 1


def _enough(items: Sequence[Item], lengths: Sequence[int]) -> Sequence[Item]:
    count = math.prod(lengths)
    if len(items) < count:
        raise PostgresError("2202E", "source array too small")
    return items[:count]


def _grown(low: int, items: Sequence[Item], first: int, last: int) -> tuple[int, list[Item]]:
    """Return the lower bound and the elements of an array of one dimension that reaches from `first` to `last` at least."""
    before, after = max(low - first, 0), max(last - (low + len(items)) + 1, 0)
    if before + len(items) + after > _MAX_ITEMS:
        raise PostgresError("54000", f"array size exceeds the maximum allowed ({_MAX_ITEMS})")
    size_limit.items(0, before + len(items) + after)
    return low - before, [None] * before + list(items) + [None] * after


def _places(ranges: Sequence[range], lengths: Sequence[int]) -> Iterable[int]:
    places = [0]
    for each, size in zip(ranges, lengths, strict=True):
        places = [place * size + index for place in places for index in each]
    return places


def nested(rows: Sequence[str | None]) -> str:
    """ARRAY[…] of arrays: one dimension more; all must have the same bounds."""
    found = [parts(each) if each is not None else (Shape((), ()), ()) for each in rows]
    filled_ones = [each for each in found if each[0].lengths]
    if not filled_ones:
        return "{}"
    shape = filled_ones[0][0]
    alike = all(list(s.lengths) == list(shape.lengths) and list(s.lowers) == list(shape.lowers) for s, _ in filled_ones)
    if len(filled_ones) != len(found) or not alike:
        raise PostgresError("2202E", "multidimensional arrays must have array expressions with matching dimensions")
    if len(shape.lengths) + 1 > MAX_DIMENSIONS:
        raise PostgresError(
            "54000", f"number of array dimensions ({len(shape.lengths) + 1}) exceeds the maximum allowed ({MAX_DIMENSIONS})"
        )
    items = [item for _, row in found for item in row]
    return _bounded(Shape((len(found), *shape.lengths), (1, *shape.lowers)), items)


def mapped(text: str, convert: Callable[[str], str | None]) -> str:
    """Each element through `convert`; NULL stays NULL."""
    shape, items = parts(text)
    return print_array(shape, [None if each is None else convert(each) for each in items], ",")


def bucket(item: str, text: str, key: Key) -> int:
    """width_bucket(value, thresholds)."""
    shape, items = parts(text)
    if len(shape.lengths) > 1:
        raise PostgresError("2202E", "thresholds must be one-dimensional array")
    if None in items:
        raise PostgresError("22004", "thresholds array must not contain NULLs")
    wanted = key(item)
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if wanted < key(items[middle] or ""):
            high = middle
        else:
            low = middle + 1
    return low
