"""Arrays, which are stored as text: array_in and array_out on a whole column, and the binary form.

Called by `text` and `binary`. Arrays in normal form are kept unchanged (`normal_form`). The others are split row by row, but the elements
of all rows are converted together by the element type's reader and writer.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate import interruption
from headgate.errors import PostgresError
from headgate.types import normal_form, text_cache, text_column

_BOUNDS = re.compile(r"\s*\[\s*([+-]?[0-9]+)\s*(?::\s*([+-]?[0-9]+)\s*)?\]")
_AT_ONCE = 100_000
MAX_DIMENSIONS = 6
Convert = Callable[[pa.StringArray], pa.StringArray]


@dataclass(frozen=True)
class Shape:
    """The length and lower bound of each dimension; empty for an empty array."""

    lengths: Sequence[int]
    lowers: Sequence[int]


def read_array(strings: pa.StringArray, delimiter: str, convert: Convert) -> pa.StringArray:
    """Read arrays as array_in into normal text. `convert` applies the input, modifier and output of the element type."""
    usual = pa.array(normal_form.in_pieces(lambda piece: normal_form.arrays(piece, delimiter, convert), strings))
    odd = pc.and_not(pc.is_valid(strings), usual)
    if not pc.any(odd, min_count=0).as_py():
        return strings
    return pc.replace_with_mask(strings, odd, _read_each(strings.filter(odd), delimiter, convert))


def _read_each(strings: pa.StringArray, delimiter: str, convert: Convert) -> pa.StringArray:
    shapes: list[Shape | None] = []
    flat: list[str | None] = []
    counts: list[int] = []
    for text in strings.to_pylist():
        if text is None:
            shapes.append(None)
            counts.append(0)
            continue
        array_shape, items = _Reader(text, delimiter).read()
        shapes.append(array_shape)
        counts.append(len(items))
        flat += items
    shown = convert(pa.array(flat, pa.string())).to_pylist() if flat else []
    out: list[str | None] = []
    index = 0
    for shape, count in zip(shapes, counts, strict=True):
        out.append(None if shape is None else print_array(shape, shown[index : index + count], delimiter))
        index += count
    return pa.array(out, pa.string())


def print_array(shape: Shape, items: Sequence[str | None], delimiter: str) -> str:
    if not shape.lengths:
        return "{}"
    level: list[str] = []
    for first in range(0, len(items), _AT_ONCE):
        interruption.check()  # printing millions of items takes a while
        level += [quoted(item, delimiter) for item in items[first : first + _AT_ONCE]]
    for length in reversed(shape.lengths):
        level = ["{" + delimiter.join(level[start : start + length]) + "}" for start in range(0, len(level), length)]
    if all(lower == 1 for lower in shape.lowers):
        return level[0]
    bounds = "".join(f"[{lower}:{lower + length - 1}]" for lower, length in zip(shape.lowers, shape.lengths, strict=True))
    return f"{bounds}={level[0]}"


@functools.cache
def special(delimiter: str) -> re.Pattern[str]:
    """Return the pattern of characters for which an element is quoted."""
    return re.compile(r'["\\{} \t\n\r\v\f' + re.escape(delimiter) + "]")


def quoted(item: str | None, delimiter: str) -> str:
    """Print one element as array_out."""
    if item is None:
        return "NULL"
    if item and special(delimiter).search(item) is None and item.upper() != "NULL":
        return item
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Reader:
    """A parser of one array text. It raises 22P02 and 2202E with PostgreSQL's details."""

    def __init__(self, text: str, delimiter: str) -> None:
        self.text = text
        self.delimiter = delimiter
        self.place = 0
        self.items: list[str | None] = []
        self.lengths: list[int | None] = []
        self._shown = 0
        """The index from which errors show the text: PostgreSQL's brace counter gets only the part from the first brace on."""

    def _fail(self, detail: str) -> PostgresError:
        return PostgresError("22P02", f'malformed array literal: "{self.text[self._shown :]}"', detail=detail)

    def _skip(self) -> str:
        while self.place < len(self.text) and self.text[self.place] in text_column.SPACE:
            self.place += 1
        return self.text[self.place : self.place + 1]

    def read(self) -> tuple[Shape, list[str | None]]:
        bounds: list[tuple[int, int]] = []
        while match := _BOUNDS.match(self.text, self.place):
            first, last = int(match[1]), match[2]
            low, high = (1, first) if last is None else (first, int(last))
            if high < low:
                raise PostgresError("2202E", "upper bound cannot be less than lower bound")
            bounds.append((low, high))
            self.place = match.end()
        if bounds:
            if self._skip() != "=":
                raise self._fail('Missing "=" after array dimensions.')
            self.place += 1
        if self._skip() != "{":
            detail = 'Array contents must start with "{".' if bounds else 'Array value must start with "{" or dimension information.'
            raise self._fail(detail)
        self._shown = self.place
        self._braces(0)
        if self._skip():
            raise self._fail("Junk after closing right brace.")
        self._shown = 0
        if not self.items:
            if bounds:
                raise self._fail("Specified array dimensions do not match array contents.")
            return Shape([], []), []
        lengths = [length or 0 for length in self.lengths]
        if bounds and lengths != [high - low + 1 for low, high in bounds]:
            raise self._fail("Specified array dimensions do not match array contents.")
        return Shape(lengths, [low for low, _ in bounds] or [1] * len(lengths)), self.items

    def _braces(self, depth: int) -> None:
        """Parse one level, from its opening brace to the index after its closing one."""
        if depth >= MAX_DIMENSIONS:
            raise PostgresError("54000", f"number of array dimensions ({depth + 1}) exceeds the maximum allowed ({MAX_DIMENSIONS})")
        if depth == len(self.lengths):
            if self.items:
                raise self._ragged_error()
            self.lengths.append(None)
        self.place += 1
        count = 0
        if self._skip() == "}":
            if depth:
                raise self._fail('Unexpected "}" character.')
            self.place += 1
        else:
            while True:
                nested = self._skip() == "{"
                if not nested and len(self.lengths) > depth + 1:
                    raise self._ragged_error()
                if nested:
                    self._braces(depth + 1)
                else:
                    self.items.append(self._item())
                count += 1
                stop = self._skip()
                self.place += 1
                if stop == "}":
                    break
                if stop != self.delimiter:
                    raise self._fail("Unexpected end of input." if not stop else "Unexpected array element.")
        if self.lengths[depth] is None:
            self.lengths[depth] = count
        elif self.lengths[depth] != count:
            raise self._ragged_error()

    def _ragged_error(self) -> PostgresError:
        return self._fail("Multidimensional arrays must have sub-arrays with matching dimensions.")

    def _item(self) -> str | None:
        quoted = self._skip() == '"'
        out: list[str] = []
        if quoted:
            self.place += 1
            while (char := self.text[self.place : self.place + 1]) != '"':
                out.append(self._character(char))
            self.place += 1
            return "".join(out)
        escaped = False
        length = 0
        while (char := self.text[self.place : self.place + 1]) not in ("{", "}", '"', self.delimiter):
            escaped |= char == "\\"
            out.append(self._character(char))
            length = len(out) if char not in text_column.SPACE else length
        if char in ('"', "{"):
            raise self._fail("Unexpected array element." if char == '"' else 'Unexpected "{" character.')
        word = "".join(out[:length])
        if not word:
            raise self._fail(f'Unexpected "{char}" character.')
        return None if word.upper() == "NULL" and not escaped else word

    def _character(self, char: str) -> str:
        if char == "\\":
            self.place += 1
            char = self.text[self.place : self.place + 1]
        if not char:
            raise self._fail("Unexpected end of input.")
        self.place += 1
        return char


def take_apart(raw: bytes) -> tuple[Shape, int, list[bytes | None]]:
    """Split the format of array_recv into the shape, the element type's OID and the elements. Raise ValueError or struct.error."""
    dimensions, flags, element = struct.unpack_from(">iiI", raw)
    if not 0 <= dimensions <= MAX_DIMENSIONS or flags not in (0, 1):
        raise ValueError("dimensions or flags")
    pairs = [struct.unpack_from(">ii", raw, 12 + 8 * dimension) for dimension in range(dimensions)]
    count, offset, items = 1 if dimensions else 0, 12 + 8 * dimensions, list[bytes | None]()
    for length, _ in pairs:
        if length < 0:
            raise ValueError("length")
        count *= length
    for _ in range(count):
        (size,) = struct.unpack_from(">i", raw, offset)
        offset += 4
        if size < -1 or offset + size > len(raw):
            raise ValueError("element")
        items.append(None if size == -1 else raw[offset : offset + size])
        offset += max(size, 0)
    if offset != len(raw):
        raise ValueError("junk")
    return Shape([length for length, _ in pairs], [lower for _, lower in pairs]) if count else Shape([], []), element, items


def put_together(shape: Shape, element: int, items: list[bytes | None]) -> bytes:
    """Build the format of array_send."""
    out = [struct.pack(">iiI", len(shape.lengths), int(None in items), element)]
    out += [struct.pack(">ii", *pair) for pair in zip(shape.lengths, shape.lowers, strict=True)]
    for item in items:
        out += [b"\xff\xff\xff\xff"] if item is None else [struct.pack(">i", len(item)), item]
    return b"".join(out)


def parse(text: str, delimiter: str) -> tuple[Shape, list[str | None]]:
    return _Reader(text, delimiter).read()


def parts(text: str, delimiter: str = ",") -> tuple[Shape, tuple[str | None, ...]]:
    """Return the same as `parse` for an array in normal form. Some results are cached, since one operand is usually a constant."""
    return _parts(text, delimiter)


@text_cache.cached(512)
def _parts(text: str, delimiter: str) -> tuple[Shape, tuple[str | None, ...]]:
    if text == "{}":
        return Shape((), ()), ()
    if text[0] == "{" and text[1] != "{" and '"' not in text:
        items = tuple(None if item == "NULL" else item for item in text[1:-1].split(delimiter))
        return Shape((len(items),), (1,)), items
    shape, elements = _Reader(text, delimiter).read()
    return shape, tuple(elements)
