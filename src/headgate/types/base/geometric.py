"""point, lseg, line, box, path, polygon and circle, stored as text: point_in … circle_send on whole columns. `TYPES` describes them.

The functions follow geo_ops.c. Shapes of a fixed number of coordinates in normal form are recognized by one regular expression. All other
texts are read separately, each different one once. None of the types has an order, so none can be a key.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import registry, text_column
from headgate.types.base import number
from headgate.types.base.base_type import BaseType, received_singly, sent_singly
from headgate.types.text_column import PLAIN, TextSettings

Coordinates = tuple[float, ...]
Show = Callable[[float], str]

_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan(?:\([0-9A-Za-z_]*\))?))[ \t\n\v\f\r]*",
    re.IGNORECASE,
)
_NORMAL = r"-?[0-9]{1,15}(?:\.[0-9]{1,20})?"
_EPSILON = 1e-06


class _Reader:
    """A parser of one text. All errors are 22P02 with the whole text."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.at = 0

    def refuse(self) -> PostgresError:
        """Return the error of an invalid text."""
        return text_column.invalid_syntax(self.name, self.text)

    def peek(self) -> str:
        """Return the next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def take(self, char: str) -> bool:
        """Consume the character if it is next, and return whether it was."""
        is_next = self.peek() == char
        self.at += is_next
        return is_next

    def need(self, char: str) -> None:
        """Consume the character. Raise if it is not next."""
        if not self.take(char):
            raise self.refuse()

    def skip(self) -> None:
        """Skip white space."""
        while self.peek() and self.peek() in text_column.SPACE:
            self.at += 1

    def end(self) -> None:
        """Raise if anything follows."""
        if self.at < len(self.text):
            raise self.refuse()

    def single(self) -> float:
        """Read a number with white space around it (single_decode)."""
        match = _FLOAT.match(self.text, self.at)
        if match is None:
            raise self.refuse()
        self.at = match.end()
        return number.float_of(match[1], registry.FLOAT8)

    def pair(self) -> Coordinates:
        """Read two numbers, in parentheses or not (pair_decode)."""
        self.skip()
        enclosed = self.take("(")
        x = self.single()
        self.need(",")
        y = self.single()
        if enclosed:
            self.need(")")
            self.skip()
        return x, y

    def path(self, count: int, *, may_be_open: bool) -> tuple[Coordinates, bool]:
        """Read `count` points, and return whether they are in brackets (path_decode)."""
        self.skip()
        depth = 0
        is_open = self.take("[")
        if is_open:
            if not may_be_open:
                raise self.refuse()
            depth = 1
        elif self.peek() == "(":
            depth = self._outer()
        points: list[float] = []
        for _ in range(count):
            points += self.pair()
            self.take(",")
        while depth:
            if not (self.take(")") or (is_open and depth == 1 and self.take("]"))):
                raise self.refuse()
            depth -= 1
            self.skip()
        return tuple(points), is_open

    def _outer(self) -> int:
        """Consume a parenthesis around all points, unless it belongs to the first one. Return 1 if there was one, else 0."""
        inner = self.at + 1
        while self.text[inner : inner + 1] and self.text[inner] in text_column.SPACE:
            inner += 1
        if self.text[inner : inner + 1] == "(" or self.text.rfind("(") == self.at:
            self.at = inner
            return 1
        return 0

    def points(self) -> int:
        """Return the number of points, by the number of commas (pair_count)."""
        commas = self.text.count(",")
        if commas % 2 == 0:
            raise self.refuse()
        return (commas + 1) // 2


def _read_point(text: str) -> Coordinates:
    reader = _Reader("point", text)
    point = reader.pair()
    reader.end()
    return point


def _read_lseg(text: str) -> Coordinates:
    reader = _Reader("lseg", text)
    points, _ = reader.path(2, may_be_open=True)
    reader.end()
    return points


def _read_box(text: str) -> Coordinates:
    reader = _Reader("box", text)
    corners, _ = reader.path(2, may_be_open=False)
    reader.end()
    return _order_corners(corners)


def _order_corners(box: Coordinates) -> Coordinates:
    """Return the corners of a box with the upper right one first. NaN counts as the greatest number."""
    high_x, high_y, low_x, low_y = box
    if _less(high_x, low_x):
        high_x, low_x = low_x, high_x
    if _less(high_y, low_y):
        high_y, low_y = low_y, high_y
    return high_x, high_y, low_x, low_y


def _less(left: float, right: float) -> bool:
    return not math.isnan(left) and (math.isnan(right) or left < right)


def _read_line(text: str) -> Coordinates:
    reader = _Reader("line", text)
    reader.skip()
    if reader.take("{"):
        a = reader.single()
        reader.need(",")
        b = reader.single()
        reader.need(",")
        c = reader.single()
        reader.need("}")
        reader.skip()
        reader.end()
        return _checked_line((a, b, c), "22P02")
    (x, y, other_x, other_y), _ = reader.path(2, may_be_open=True)
    reader.end()
    if _same(x, other_x) and _same(y, other_y):
        raise PostgresError("22P02", "invalid line specification: must be two distinct points")
    return _line_through(x, y, other_x, other_y)


def _checked_line(line: Coordinates, sqlstate: str) -> Coordinates:
    if abs(line[0]) <= _EPSILON and abs(line[1]) <= _EPSILON:
        raise PostgresError(sqlstate, "invalid line specification: A and B cannot both be zero")
    return line


def _close(left: float, right: float) -> bool:
    """Compare with tolerance, as FPeq."""
    return left == right or abs(left - right) <= _EPSILON


def _same(left: float, right: float) -> bool:
    return math.isnan(left) and math.isnan(right) if math.isnan(left) or math.isnan(right) else _close(left, right)


def _line_through(x: float, y: float, other_x: float, other_y: float) -> Coordinates:
    """Return the line through two points (line_construct)."""
    if _close(x, other_x):
        return -1.0, 0.0, x
    if _close(y, other_y):
        return 0.0, -1.0, y
    rise, run = _check_overflow(y - other_y, y, other_y), _check_overflow(x - other_x, x, other_x)
    slope = _check_overflow(rise / run, rise)
    if slope == 0 and rise != 0 and not math.isinf(run):
        raise PostgresError("22003", "value out of range: underflow")
    if math.isinf(slope):
        return -1.0, 0.0, x
    if slope == 0:
        return 0.0, -1.0, y
    product = _check_overflow(slope * x, slope, x)
    return slope, -1.0, _check_overflow(y - product, y, product) + 0.0


def _check_overflow(value: float, *operands: float) -> float:
    """Return the result of an operation. Raise 22003 if it is infinite and no operand is."""
    if math.isinf(value) and not any(map(math.isinf, operands)):
        raise PostgresError("22003", "value out of range: overflow")
    return value


def _read_path(text: str) -> Coordinates:
    """Return 1 for a closed path or 0 for an open one, then its points."""
    reader = _Reader("path", text)
    count = reader.points()
    reader.skip()
    enclosed = reader.peek() == "(" and text.rfind("(") == reader.at
    reader.at += enclosed
    points, is_open = reader.path(count, may_be_open=True)
    if enclosed:
        reader.need(")")
        reader.skip()
    reader.end()
    return (float(not is_open), *points)


def _read_polygon(text: str) -> Coordinates:
    reader = _Reader("polygon", text)
    points, _ = reader.path(reader.points(), may_be_open=False)
    reader.end()
    return points


def _read_circle(text: str) -> Coordinates:
    reader = _Reader("circle", text)
    reader.skip()
    depth = int(reader.take("<"))
    if not depth and reader.peek() == "(":
        inner = re.compile(r"\([ \t\n\v\f\r]*(?=\()").match(text, reader.at)
        if inner is not None:
            depth, reader.at = 1, inner.end()
    center = reader.pair()
    reader.take(",")
    radius = reader.single()
    if radius < 0:
        raise reader.refuse()
    if depth:
        if not reader.take(">"):
            reader.need(")")
        reader.skip()
    reader.end()
    return (*center, radius)


def _points(values: Sequence[float], show: Show) -> str:
    """Print points as path_encode, without delimiters."""
    shown = [show(value) for value in values]
    return ",".join(f"({x},{y})" for x, y in zip(shown[::2], shown[1::2], strict=True))


def _print_path(values: Coordinates, show: Show) -> str:
    inside = _points(values[1:], show)
    return f"({inside})" if values[0] else f"[{inside}]"


def _receive_floats(count: int) -> Callable[[bytes], Coordinates]:
    return struct.Struct(f">{count}d").unpack


def _receive_circle(raw: bytes) -> Coordinates:
    x, y, radius = struct.unpack(">3d", raw)
    if radius < 0:
        raise PostgresError("22P03", 'invalid radius in external "circle" value')
    return x, y, radius


def _receive_points(raw: bytes, name: str) -> Coordinates:
    (count,) = struct.unpack_from(">i", raw)
    if count <= 0:
        raise PostgresError("22P03", f'invalid number of points in external "{name}" value')
    if len(raw) != 4 + 16 * count:
        raise ValueError("points")
    return struct.unpack_from(f">{2 * count}d", raw, 4)


def _send_floats(values: Coordinates) -> bytes:
    return struct.pack(f">{len(values)}d", *values)


def _send_polygon(values: Coordinates) -> bytes:
    return struct.pack(">i", len(values) // 2) + _send_floats(values)


def _send_path(values: Coordinates) -> bytes:
    return bytes([values[0] != 0]) + _send_polygon(values[1:])


def _show(extra_digits: int) -> Show:
    """Return a function that prints as float8out."""
    return lambda value: number.double_text(value, extra_digits)


@dataclass(frozen=True)
class Shape:
    """A geometric type: its text and its coordinates. `pattern`: its normal form, if it has a fixed number of coordinates."""

    parse: Callable[[str], Coordinates]
    text: Callable[[Coordinates, Show], str]
    receive: Callable[[bytes], Coordinates]
    send: Callable[[Coordinates], bytes] = _send_floats
    pattern: str | None = None
    in_order: Callable[[Sequence[pa.Array]], pa.Array] | None = None
    """Returns for which coordinates of normal texts the order of the coordinates is normal."""

    def normal(self, text: str) -> str:
        return self.text(self.parse(text), _show(PLAIN.extra_float_digits))

    def read(self, strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
        """Read a column as the input function. Raise 22P02 or 22003."""
        return text_column.read_normal(strings, self._usual(strings), self.normal)

    def _usual(self, strings: pa.StringArray) -> pa.BooleanArray:
        if self.pattern is None:
            return pa.array([False] * len(strings))
        fields = pc.extract_regex(strings, self.pattern)
        usual = pc.is_valid(fields)
        coordinates = []
        for index in range(fields.type.num_fields):
            shown = pc.struct_field(fields, index)
            coordinates.append(pc.cast(shown, pa.float64()))
            printed = number.write_float(coordinates[-1], registry.FLOAT8, PLAIN.extra_float_digits)
            usual = pc.and_(usual, pc.fill_null(pc.equal(shown, printed), False))
        return usual if self.in_order is None else pc.and_(usual, pc.fill_null(self.in_order(coordinates), False))

    def write(self, values: pa.StringArray, settings: TextSettings) -> pa.StringArray:
        """Print as the output function, under settings that print floats differently from the stored text."""
        if settings.extra_float_digits > 0:
            return values
        shown = functools.cache(lambda text: self.text(self.parse(text), _show(settings.extra_float_digits)))
        return pa.array([None if text is None else shown(text) for text in values.to_pylist()], pa.string())

    def described(self) -> BaseType:
        """Return the entry of `TYPES`."""
        show = _show(PLAIN.extra_float_digits)
        return BaseType(
            read=self.read,
            write=self.write,
            receive=received_singly(lambda raw: self.text(self.receive(raw), show), self.read),
            send=sent_singly(lambda text: self.send(self.parse(text))),
            restyled=lambda settings: settings.extra_float_digits <= 0,
            in_bulk=False,
        )


def _pattern(form: str) -> str:
    r"""Return the pattern of a normal form in which each N is a coordinate."""
    indexes = iter(range(form.count("N")))
    return r"\A" + re.sub("N", lambda _: f"(?P<n{next(indexes)}>{_NORMAL})", form) + r"\z"


def _line_in_range(line: Sequence[pa.Array]) -> pa.Array:
    return pc.or_(pc.greater(pc.abs(line[0]), _EPSILON), pc.greater(pc.abs(line[1]), _EPSILON))


SHAPES = {
    registry.POINT: Shape(_read_point, _points, _receive_floats(2), pattern=_pattern(r"\(N,N\)")),
    registry.LSEG: Shape(
        _read_lseg, lambda values, show: f"[{_points(values, show)}]", _receive_floats(4), pattern=_pattern(r"\[\(N,N\),\(N,N\)\]")
    ),
    registry.PATH: Shape(_read_path, _print_path, lambda raw: (float(raw[0] != 0), *_receive_points(raw[1:], "path")), _send_path),
    registry.BOX: Shape(
        _read_box,
        _points,
        lambda raw: _order_corners(struct.unpack(">4d", raw)),
        pattern=_pattern(r"\(N,N\),\(N,N\)"),
        in_order=lambda box: pc.and_(pc.greater_equal(box[0], box[2]), pc.greater_equal(box[1], box[3])),
    ),
    registry.POLYGON: Shape(
        _read_polygon, lambda values, show: f"({_points(values, show)})", lambda raw: _receive_points(raw, "polygon"), _send_polygon
    ),
    registry.LINE: Shape(
        _read_line,
        lambda values, show: "{" + ",".join(map(show, values)) + "}",
        lambda raw: _checked_line(struct.unpack(">3d", raw), "22P03"),
        pattern=_pattern(r"\{N,N,N\}"),
        in_order=_line_in_range,
    ),
    registry.CIRCLE: Shape(
        _read_circle,
        lambda values, show: f"<{_points(values[:2], show)},{show(values[2])}>",
        _receive_circle,
        pattern=_pattern(r"<\(N,N\),N>"),
        in_order=lambda circle: pc.greater_equal(circle[2], 0.0),
    ),
}
TYPES = {oid: shape.described() for oid, shape in SHAPES.items()}
