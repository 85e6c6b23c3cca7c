"""Functions of arrays on their text form, one value at a time, as in arrayfuncs.c and array_userfuncs.c.

Called by `implementation.array` inside Arrow functions. An array is the text that array_out prints. An element is the text of its type's
output function. A `Key` (see `headgate.types.order`) decides which elements are equal and which is less. NULL is None. Functions that
PostgreSQL declares strict are never called with None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError, not_supported
from headgate.expression.functions import size_limit
from headgate.types.text.array import MAX_DIMENSIONS, Shape, parts, print_array

Key = Callable[[str], bytes]
Item = str | None
Test = Callable[[bytes, bytes], bool]
_MAX_ITEMS = 134_217_727
_LAST = (1 << 31) - 1
"""The greatest subscript. The least is -2147483648."""
TESTS: dict[str, Test] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def written(items: Sequence[Item], lower: int = 1) -> str:
    return print_array(Shape((len(items),), (lower,)), items, ",") if items else "{}"


def written_rows(*items: pa.Array) -> pa.Array:
    """Return the array of each row. `items`: the first elements, the second elements, and so on, as text."""
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*map(_quoted, items), ","), "}", "")


def _quoted(items: pa.Array) -> pa.Array:
    """Print elements as array_out, like `quoted`."""
    shown = pc.fill_null(items, "NULL")
    is_quoted = pc.and_(pc.is_valid(items), pc.match_substring_regex(shown, r'^$|["\\{} \t\n\r\v\f,]|^[nN][uU][lL][lL]$'))
    if not pc.any(is_quoted).as_py():
        return shown
    escaped = pc.replace_substring(pc.replace_substring(shown, "\\", "\\\\"), '"', '\\"')
    return pc.if_else(is_quoted, pc.binary_join_element_wise('"', escaped, '"', ""), shown)


def ndims(text: str) -> int | None:
    """Return the number of dimensions (array_ndims), or None for an empty array."""
    return len(parts(text)[0].lengths) or None


def dims(text: str) -> str | None:
    """Return array_dims, such as ``[1:2][1:3]``."""
    shape, _ = parts(text)
    return "".join(f"[{low}:{low + size - 1}]" for low, size in zip(shape.lowers, shape.lengths, strict=True)) or None


def length(text: str, dimension: int) -> int | None:
    """Return the length of a dimension (array_length)."""
    shape, _ = parts(text)
    return shape.lengths[dimension - 1] if 1 <= dimension <= len(shape.lengths) else None


def lower(text: str, dimension: int) -> int | None:
    """Return the lower bound of a dimension (array_lower)."""
    shape, _ = parts(text)
    return shape.lowers[dimension - 1] if 1 <= dimension <= len(shape.lengths) else None


def upper(text: str, dimension: int) -> int | None:
    """Return the upper bound of a dimension (array_upper)."""
    shape, _ = parts(text)
    if not 1 <= dimension <= len(shape.lengths):
        return None
    return shape.lowers[dimension - 1] + shape.lengths[dimension - 1] - 1


def cardinality(text: str) -> int:
    """Return the number of elements, over all dimensions."""
    return len(parts(text)[1])


def count_nulls(text: str) -> int:
    """Return the number of NULLs among the elements (num_nulls with a VARIADIC array)."""
    return sum(item is None for item in parts(text)[1])


def count_values(text: str) -> int:
    """Return the number of elements that are not NULL (num_nonnulls with a VARIADIC array)."""
    return cardinality(text) - count_nulls(text)


def _flat(shape: Shape) -> None:
    if len(shape.lengths) > 1:
        raise PostgresError("22000", "argument must be empty or one-dimensional array")


def append(text: str | None, item: Item) -> str:
    """Append an element (array_append). A NULL array counts as an empty one."""
    shape, items = parts(text or "{}")
    _flat(shape)
    low = shape.lowers[0] if items else 1
    if low + len(items) > _LAST:
        raise PostgresError("22003", "integer out of range")
    return _bounded(Shape((len(items) + 1,), (low,)), [*items, item])


def prepend(item: Item, text: str | None) -> str:
    """Prepend an element (array_prepend). The lower bound does not change."""
    shape, items = parts(text or "{}")
    _flat(shape)
    low = shape.lowers[0] if items else 1
    if low == -_LAST - 1:
        raise PostgresError("22003", "integer out of range")
    _check_bounds(Shape((len(items) + 1,), (low - 1,)))
    return written([item, *items], low)


def _check_bounds(shape: Shape) -> None:
    """Raise 54000 if a bound is too close to the greatest integer (ArrayCheckBounds)."""
    for low, size in zip(shape.lowers, shape.lengths, strict=True):
        if low + size > _LAST:
            raise PostgresError("54000", f"array lower bound is too large: {low}")


def _bounded(shape: Shape, items: Sequence[Item], delimiter: str = ",") -> str:
    """Return an array. 54000 if its bounds are beyond PostgreSQL's."""
    _check_bounds(shape)
    return print_array(shape, items, delimiter)


def concatenate(left: str | None, right: str | None) -> str | None:
    """Concatenate arrays (array_cat). NULL and empty arrays return the other one. The numbers of dimensions differ by at most one."""
    if left is None or right is None:
        return right if left is None else left
    (left_shape, items), (right_shape, right_items) = parts(left), parts(right)
    if not left_shape.lengths or not right_shape.lengths:
        return left if not right_shape.lengths else right
    left_depth, right_depth = len(left_shape.lengths), len(right_shape.lengths)
    if abs(left_depth - right_depth) > 1:
        detail = f"Arrays of {left_depth} and {right_depth} dimensions are not compatible for concatenation."
        raise PostgresError("2202E", "cannot concatenate incompatible arrays", detail=detail)
    skip_left, skip_right = int(left_depth >= right_depth), int(right_depth >= left_depth)
    is_compatible = list(left_shape.lengths[skip_left:]) == list(right_shape.lengths[skip_right:]) and list(
        left_shape.lowers[skip_left:]
    ) == list(right_shape.lowers[skip_right:])
    if not is_compatible:
        word = "element dimensions" if left_depth == right_depth else "dimensions"
        detail = f"Arrays with differing {word} are not compatible for concatenation."
        raise PostgresError("2202E", "cannot concatenate incompatible arrays", detail=detail)
    first = (left_shape.lengths[0] if skip_left else 1) + (right_shape.lengths[0] if skip_right else 1)
    outer = left_shape if left_depth >= right_depth else right_shape
    return _bounded(Shape((first, *outer.lengths[1:]), outer.lowers), items + right_items)


def remove(text: str | None, item: Item, key: Key) -> str | None:
    """Remove the elements that equal `item` (array_remove)."""
    if text is None:
        return None
    shape, items = parts(text)
    if not items:
        return text
    if len(shape.lengths) > 1:
        raise not_supported("removing elements from multidimensional arrays is not supported")
    item_key = None if item is None else key(item)
    remaining = [candidate for candidate in items if not _same(candidate, item_key, key)]
    return written(remaining, shape.lowers[0])


def _same(item: Item, item_key: bytes | None, key: Key) -> bool:
    """Return whether two elements are equal, as IS NOT DISTINCT FROM does."""
    return item_key is None if item is None else item_key is not None and key(item) == item_key


def replace(text: str | None, old: Item, new: Item, key: Key) -> str | None:
    """Replace the elements that equal `old` (array_replace)."""
    if text is None:
        return None
    shape, items = parts(text)
    old_key = None if old is None else key(old)
    return print_array(shape, [new if _same(element, old_key, key) else element for element in items], ",")


def position(text: str | None, item: Item, start: int | None, key: Key, *, started: bool) -> int | None:
    """Return the subscript of the first equal element (array_position). `started` says whether the call has a `start` argument."""
    searchable = _search(text)
    if searchable is None or (item is None and None not in searchable[1]):
        return None
    if started and start is None:
        raise PostgresError("22004", "initial position must not be null")
    low, items = searchable
    item_key = None if item is None else key(item)
    for subscript, element in enumerate(items, low):
        if (start is None or subscript >= start) and _same(element, item_key, key):
            return subscript
    return None


def positions(text: str | None, item: Item, key: Key) -> str | None:
    """Return the subscripts of all equal elements (array_positions), or NULL for a NULL array."""
    if text is None:
        return None
    low, items = _search(text) or (1, ())
    item_key = None if item is None else key(item)
    return written([str(subscript) for subscript, element in enumerate(items, low) if _same(element, item_key, key)])


def _search(text: str | None) -> tuple[int, Sequence[Item]] | None:
    if text is None:
        return None
    shape, items = parts(text)
    if len(shape.lengths) > 1:
        raise not_supported("searching for elements in multidimensional arrays is not supported")
    return (shape.lowers[0], items) if items else None


def _keys(text: str, key: Key) -> set[bytes]:
    return {key(element) for element in parts(text)[1] if element is not None}


def overlaps(left: str, right: str, key: Key) -> bool:
    """Return ``left && right``. NULL elements are ignored."""
    return not _keys(left, key).isdisjoint(_keys(right, key))


def contains(left: str, right: str, key: Key) -> bool:
    """Return ``left @> right``, which is false if `right` has a NULL element."""
    return None not in parts(right)[1] and _keys(right, key) <= _keys(left, key)


def compare(item: Item, text: str | None, test: Test, item_key: Key, key: Key, *, any_of: bool) -> bool | None:
    """Return ``item op ANY/ALL (array)`` for a strict operator."""
    if text is None:
        return None
    items = parts(text)[1]
    if not items or item is None:
        return None if items else not any_of
    left = item_key(item)
    for element in items:
        if element is not None and test(left, key(element)) is any_of:
            return any_of
    return None if None in items else not any_of


def joined(text: str | None, separator: str | None, null: str | None = None) -> str | None:
    """Join the elements (array_to_string). NULL elements are skipped, or written as `null`."""
    if text is None or separator is None:
        return None
    texts = (null if element is None else element for element in parts(text)[1])
    return separator.join(element for element in texts if element is not None)


def split(text: str | None, separator: str | None, null: str | None = None) -> str | None:
    """Split a text (string_to_array). A NULL separator splits it into characters. An empty separator does not split it."""
    if text is None:
        return None
    if not text:
        return "{}"
    size_limit.items(len(text) if separator is None else text.count(separator) + 1 if separator else 1, len(text))
    items = list(text) if separator is None else text.split(separator) if separator else [text]
    return written([None if null is not None and element == null else element for element in items])


def trimmed(text: str, count: int) -> str:
    """Return the array without its last `count` elements (trim_array)."""
    shape, items = parts(text)
    size = shape.lengths[0] if shape.lengths else 0
    if not 0 <= count <= size:
        raise PostgresError("2202E", f"number of elements to trim must be between 0 and {size}")
    if count == size:
        return "{}"
    inner = len(items) // size
    # As in array_get_slice, the subscripts of the result start at 1.
    return print_array(Shape((size - count, *shape.lengths[1:]), (1,) * len(shape.lengths)), items[: (size - count) * inner], ",")


def filled(item: Item, lengths_text: str | None, lowers_text: str | None = "") -> str:
    """Return an array filled with one element (array_fill)."""
    if lengths_text is None or lowers_text is None:
        raise PostgresError("22004", "dimension array or low bound array cannot be null")
    sizes, lows = parts(lengths_text), parts(lowers_text or "{}")
    for shape, _ in (sizes, lows):
        if len(shape.lengths) > 1:
            raise PostgresError("2202E", "wrong number of array subscripts", detail="Dimension array must be one dimensional.")
    if None in sizes[1] or None in lows[1]:
        raise PostgresError("22004", "dimension values cannot be null")
    lengths = [int(size_text) for size_text in sizes[1] if size_text is not None]
    lowers = [int(lower_text) for lower_text in lows[1] if lower_text is not None] if lowers_text else [1] * len(lengths)
    if not lengths:
        return "{}"
    if len(lengths) > MAX_DIMENSIONS:
        raise PostgresError("54000", f"number of array dimensions ({len(lengths)}) exceeds the maximum allowed ({MAX_DIMENSIONS})")
    if len(lowers) != len(lengths):
        raise PostgresError("2202E", "wrong number of array subscripts", detail="Low bound array has different size than dimensions array.")
    count = 1
    for length in lengths:
        count *= max(length, 0)
    if count > _MAX_ITEMS or any(length < 0 for length in lengths):
        raise PostgresError("54000", f"array size exceeds the maximum allowed ({_MAX_ITEMS})")
    size_limit.items(0, count * (len(item or "") + 1))
    return _bounded(Shape(lengths, lowers), [item] * count) if count else "{}"


def element(text: str, indexes: Sequence[int | None]) -> Item:
    """Return ``a[1][2]``, or NULL if a subscript is out of bounds or the number of subscripts does not match."""
    shape, items = parts(text)
    if len(indexes) != len(shape.lengths):
        return None
    position = 0
    for index, low, size in zip(indexes, shape.lowers, shape.lengths, strict=True):
        if index is None or not low <= index < low + size:
            return None
        position = position * size + index - low
    return items[position]


Bound = int | None | Literal["open"]


def part(text: str, bounds: Sequence[tuple[Bound, Bound]]) -> str | None:
    """Return the slice ``a[2:3]``. 'open' means the array's own bound. Subscripts of the result start at 1. A NULL bound gives NULL."""
    if any(None in bound for bound in bounds):
        return None
    shape, items = parts(text)
    if not shape.lengths or len(bounds) > len(shape.lengths):
        return "{}"
    ranges: list[range] = []
    for dimension, (low, size) in enumerate(zip(shape.lowers, shape.lengths, strict=True)):
        first, last = bounds[dimension] if dimension < len(bounds) else ("open", "open")
        begin = low if first == "open" or first is None else max(first, low)
        end = low + size - 1 if last == "open" or last is None else min(last, low + size - 1)
        if begin > end:
            return "{}"
        ranges.append(range(begin - low, end - low + 1))
    chosen = [items[position] for position in _places(ranges, shape.lengths)]
    return print_array(Shape([len(indexes) for indexes in ranges], [1] * len(ranges)), chosen, ",")


def with_element(text: str | None, indexes: Sequence[int | None], item: Item, delimiter: str) -> str:
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
        low, grown = _grow(shape.lowers[0], items, subscripts[0], subscripts[0])
        grown[subscripts[0] - low] = item
        return _bounded(Shape((len(grown),), (low,)), grown, delimiter)
    if not all(low <= index < low + size for index, low, size in zip(subscripts, shape.lowers, shape.lengths, strict=True)):
        raise PostgresError("2202E", "array subscript out of range")
    [place] = _places([range(index - low, index - low + 1) for index, low in zip(subscripts, shape.lowers, strict=True)], shape.lengths)
    return print_array(shape, [*items[:place], item, *items[place + 1 :]], delimiter)


def with_part(text: str | None, bounds: Sequence[tuple[Bound, Bound]], source: str | None, delimiter: str) -> str | None:
    """Return the array with a slice replaced by the elements of `source` (array_set_slice). A NULL `source` changes nothing.

    Raises 22004 for a NULL subscript, and 2202E for bounds that the array or the source does not have.
    """
    _not_null([bound for pair in bounds for bound in pair if bound != "open"])
    if source is None:
        return text or "{}"
    shape, items = parts(text or "{}", delimiter)
    _, elements = parts(source, delimiter)
    if not shape.lengths:
        if any("open" in pair for pair in bounds):
            detail = "When assigning to a slice of an empty array value, slice boundaries must be fully specified."
            raise PostgresError("2202E", "array slice subscript must provide both boundaries", detail=detail)
        lengths = [_size(first, last) for first, last in bounds]
        return _bounded(Shape(lengths, [int(first) for first, _ in bounds if first is not None]), _enough(elements, lengths), delimiter)
    if len(bounds) > len(shape.lengths):
        raise PostgresError("2202E", "wrong number of array subscripts")
    limits = [
        _close_bounds(bounds[place] if place < len(bounds) else ("open", "open"), low, size)
        for place, (low, size) in enumerate(zip(shape.lowers, shape.lengths, strict=True))
    ]
    lengths = [_size(first, last) for first, last in limits]
    if len(limits) == 1:
        [(first, last)] = limits
        low, grown = _grow(shape.lowers[0], items, first, last)
        grown[first - low : last - low + 1] = _enough(elements, lengths)
        return _bounded(Shape((len(grown),), (low,)), grown, delimiter)
    if any(first < low or last >= low + size for (first, last), low, size in zip(limits, shape.lowers, shape.lengths, strict=True)):
        raise PostgresError("2202E", "array subscript out of range")
    changed = list(items)
    ranges = [range(first - low, last - low + 1) for (first, last), low in zip(limits, shape.lowers, strict=True)]
    for place, item in zip(_places(ranges, shape.lengths), _enough(elements, lengths), strict=True):
        changed[place] = item
    return print_array(shape, changed, delimiter)


def _not_null(indexes: Sequence[Bound]) -> list[int]:
    if None in indexes:
        raise PostgresError("22004", "array subscript in assignment must not be null")
    return [int(index) for index in indexes if index is not None]


def _close_bounds(bounds: tuple[Bound, Bound], low: int, size: int) -> tuple[int, int]:
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
    if count > _MAX_ITEMS:
        raise PostgresError("54000", f"array size exceeds the maximum allowed ({_MAX_ITEMS})")
    if len(items) < count:
        raise PostgresError("2202E", "source array too small")
    return items[:count]


def _grow(low: int, items: Sequence[Item], first: int, last: int) -> tuple[int, list[Item]]:
    """Return the lower bound and the elements of an array of one dimension that reaches from `first` to `last` at least."""
    before, after = max(low - first, 0), max(last - (low + len(items)) + 1, 0)
    if before + len(items) + after > _MAX_ITEMS:
        raise PostgresError("54000", f"array size exceeds the maximum allowed ({_MAX_ITEMS})")
    size_limit.items(0, before + len(items) + after)
    return low - before, [None] * before + list(items) + [None] * after


def _places(ranges: Sequence[range], lengths: Sequence[int]) -> Iterable[int]:
    positions = [0]
    for indexes, size in zip(ranges, lengths, strict=True):
        positions = [position * size + offset for position in positions for offset in indexes]
    return positions


def nested(rows: Sequence[str | None]) -> str:
    """Return ARRAY[…] of arrays, which has one more dimension. All arrays must have the same bounds."""
    arrays = [parts(text) if text is not None else (Shape((), ()), ()) for text in rows]
    filled_arrays = [array for array in arrays if array[0].lengths]
    if not filled_arrays:
        return "{}"
    shape = filled_arrays[0][0]
    alike = all(list(s.lengths) == list(shape.lengths) and list(s.lowers) == list(shape.lowers) for s, _ in filled_arrays)
    if len(filled_arrays) != len(arrays) or not alike:
        raise PostgresError("2202E", "multidimensional arrays must have array expressions with matching dimensions")
    if len(shape.lengths) + 1 > MAX_DIMENSIONS:
        raise PostgresError(
            "54000", f"number of array dimensions ({len(shape.lengths) + 1}) exceeds the maximum allowed ({MAX_DIMENSIONS})"
        )
    items = [item for _, row in arrays for item in row]
    return _bounded(Shape((len(arrays), *shape.lengths), (1, *shape.lowers)), items)


def mapped(text: str, convert: Callable[[str], str | None]) -> str:
    """Apply `convert` to each element. NULL stays NULL."""
    shape, items = parts(text)
    return print_array(shape, [None if item is None else convert(item) for item in items], ",")


def bucket(item: str, text: str, key: Key) -> int:
    """Return width_bucket(value, thresholds)."""
    shape, items = parts(text)
    if len(shape.lengths) > 1:
        raise PostgresError("2202E", "thresholds must be one-dimensional array")
    if None in items:
        raise PostgresError("22004", "thresholds array must not contain NULLs")
    item_key = key(item)
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if item_key < key(items[middle] or ""):
            high = middle
        else:
            low = middle + 1
    return low
