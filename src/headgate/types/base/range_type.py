"""Range types, stored as text in UTC and ISO: range_in … range_send on whole columns. `TYPES` describes the built-in ranges.

One regular expression splits a column of ranges. The bounds are converted by the subtype's own functions as two columns. Only texts of an
unusual form (quotes with escapes, ``EMPTY``) are split one by one. `multirange` uses the same columns of bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import buffers, quoted_field, registry, text_column
from headgate.types.base import binary_numeric, datetime, number
from headgate.types.base.base_type import BaseType, Wire, ended
from headgate.types.datetime import calendar, timestamp_input
from headgate.types.text_column import PLAIN, TextSettings

Flags = npt.NDArray[np.bool_]
Step = Callable[[pa.Array, Flags], pa.Array]
"""Increments the values for which the flag is true."""

_USUAL = r'\A(?P<open>[\[(])(?P<lower>"[^"\\]+"|[^"\\,()\[\]]*),(?P<upper>"[^"\\]+"|[^"\\,()\[\]]*)(?P<close>[\])])\z'
_QUOTED = r'\A\z|[\s,()\[\]"\\]'
"""Matches bounds that range_out quotes."""
_EMPTY, _LOWER_INCLUSIVE, _UPPER_INCLUSIVE, _LOWER_INFINITE, _UPPER_INFINITE = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Bounds:
    """A column of ranges. The bounds are texts or values of the subtype; infinite bounds and those of empty ranges are NULL."""

    lower: pa.Array
    upper: pa.Array
    lower_inclusive: Flags
    upper_inclusive: Flags
    empty: Flags
    present: Flags
    """False if the range itself is NULL."""

    @classmethod
    def of(cls, lower: pa.Array, upper: pa.Array, inclusive: Sequence[tuple[bool, bool]]) -> Bounds:
        """Return a column of ranges that are not NULL from their bounds and whether these belong to them."""
        flags = np.array(inclusive, np.bool_).reshape(-1, 2)
        never = np.zeros(len(lower), np.bool_)
        return cls(lower, upper, flags[:, 0], flags[:, 1], never, ~never)


@dataclass(frozen=True)
class RangeType:
    """A range type: its subtype, and how a value of a discrete subtype is incremented."""

    subtype: BaseType
    step: Step | None = None

    def read(self, strings: pa.StringArray, _modifier: int, settings: TextSettings) -> pa.StringArray:
        """Read ranges as range_in. Raise 22P02, 22000 and the errors of the subtype's input function."""
        try:
            return self.printed(self.bounds(strings, settings), PLAIN)
        except PostgresError:
            for text in strings.unique().drop_null():  # the error is that of the first value, whatever is wrong with it
                self.bounds(pa.array([text.as_py()]), settings)
            raise

    def bounds(self, strings: pa.StringArray, settings: TextSettings) -> Bounds:
        """Return the ranges of a column of texts, in canonical form."""
        return self.normal(self.held(strings, settings))

    def held(self, strings: pa.StringArray, settings: TextSettings = PLAIN) -> Bounds:
        """Return the ranges of a column of texts unchanged. Those of stored ranges are in canonical form."""
        split = split_column(strings)
        lower, upper = (self.subtype.read(texts, -1, settings) for texts in (split.lower, split.upper))
        return replace(split, lower=lower, upper=upper)

    def normal(self, ranges: Bounds) -> Bounds:
        """Check the order of the bounds, find empty ranges, and convert those of a discrete subtype to ``[a,b)`` (make_range)."""
        empty = ranges.empty | self._empty(ranges)
        lower, upper = ranges.lower, ranges.upper
        lower_inclusive = ranges.lower_inclusive & _valid(lower)
        upper_inclusive = ranges.upper_inclusive & _valid(upper)
        if self.step is not None:
            raised_lower = ~lower_inclusive & _valid(lower) & _finite(lower) & ~empty
            raised_upper = upper_inclusive & _finite(upper) & ~empty
            lower, upper = self.step(lower, raised_lower), self.step(upper, raised_upper)
            lower_inclusive, upper_inclusive = lower_inclusive | raised_lower, upper_inclusive & ~raised_upper
            empty = empty | self._empty(Bounds(lower, upper, lower_inclusive, upper_inclusive, empty, ranges.present))
        canonical = Bounds(lower, upper, lower_inclusive, upper_inclusive, empty, ranges.present)
        keep = pa.array(~empty)
        none = pa.scalar(None, lower.type)
        return replace(canonical, lower=pc.if_else(keep, lower, none), upper=pc.if_else(keep, upper, none), empty=empty)

    def _empty(self, ranges: Bounds) -> Flags:
        """Return which ranges contain no value. Raise 22000 for bounds in the wrong order."""
        lower, upper = (self.keys(bound) for bound in (ranges.lower, ranges.upper))
        if pc.any(pc.greater(lower, upper), min_count=0).as_py():
            raise PostgresError("22000", "range lower bound must be less than or equal to range upper bound")
        return _flags(pc.equal(lower, upper)) & ~(ranges.lower_inclusive & ranges.upper_inclusive)

    def keys(self, values: pa.Array) -> pa.Array:
        """Return values of the subtype in a form that Arrow can compare."""
        if self.subtype.stored != pa.string():
            return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
        key = self.subtype.key
        assert key is not None
        return pa.array([None if text is None else key(text) for text in values.to_pylist()], pa.binary())

    def printed(self, ranges: Bounds, settings: TextSettings) -> pa.StringArray:
        parts: list[pa.Array | pa.Scalar] = [pc.if_else(pa.array(ranges.lower_inclusive), "[", "(")]
        for side, bound in enumerate((ranges.lower, ranges.upper)):
            shown = self.subtype.write(bound, settings)
            marked = pc.if_else(text_column.matches(shown, _QUOTED), pc.binary_join_element_wise('"', shown, '"', ""), shown)
            parts += [pc.fill_null(marked, ""), pa.scalar("," if side == 0 else "")]
        parts.append(pc.if_else(pa.array(ranges.upper_inclusive), "]", ")"))
        whole = pc.binary_join_element_wise(*parts, pa.scalar(""))
        return pc.if_else(pa.array(ranges.present), pc.if_else(pa.array(ranges.empty), "empty", whole), pa.scalar(None, pa.string()))

    def write(self, values: pa.StringArray, settings: TextSettings) -> pa.StringArray:
        """Print stored ranges under other settings."""
        return self.printed(self.held(values), settings) if self.subtype.restyled(settings) else values

    def receive(self, wire: Wire, _modifier: int) -> pa.StringArray:
        return self.printed(self.received(wire), PLAIN)

    def received(self, wire: Wire) -> Bounds:
        """Return the ranges of a column in binary form. Raise 22P03 or 08P01."""
        count = len(wire.starts)
        flags = np.full(count, _EMPTY, np.int64)
        starts, sizes = np.zeros((2, count), np.int64), np.full((2, count), -1, np.int64)
        data = wire.data.tobytes()
        for row in range(count) if wire.mask is None else np.flatnonzero(wire.mask):
            offset, end = int(wire.starts[row]), int(wire.starts[row] + wire.sizes[row])
            if offset >= end:
                raise PostgresError("08P01", "no data left in message")
            flags[row], offset = data[offset], offset + 1
            for side, absent in ((0, _EMPTY | _LOWER_INFINITE), (1, _EMPTY | _UPPER_INFINITE)):
                if not flags[row] & absent:
                    size = int.from_bytes(data[offset : offset + 4], "big") if offset + 4 <= end else end
                    starts[side, row], sizes[side, row], offset = offset + 4, size, offset + 4 + size
                    if offset > end:
                        raise PostgresError("08P01", "insufficient data left in message")
            if offset != end:
                raise PostgresError("08P01", "invalid message format")
        present = np.ones(count, np.bool_) if wire.mask is None else wire.mask
        receive = self.subtype.receive
        assert receive is not None
        lower, upper = (
            receive(Wire(wire.data, starts[side], np.maximum(sizes[side], 0), sizes[side] >= 0, wire.encoding), -1) for side in (0, 1)
        )
        lower_inclusive, upper_inclusive = flags & _LOWER_INCLUSIVE != 0, flags & _UPPER_INCLUSIVE != 0
        return self.normal(Bounds(lower, upper, lower_inclusive, upper_inclusive, (flags & _EMPTY != 0) & present, present))

    def send(self, values: pa.Array, encoding: Encoding) -> pa.LargeBinaryArray:
        ranges = self.held(values)
        send = self.subtype.send
        assert send is not None
        lower, upper = (send(bound, encoding).to_pylist() for bound in (ranges.lower, ranges.upper))
        return pa.array(
            [self._send_one(ranges, row, lower[row], upper[row]) if ranges.present[row] else None for row in range(len(values))],
            pa.large_binary(),
        )

    @staticmethod
    def _send_one(ranges: Bounds, row: int, lower: bytes | None, upper: bytes | None) -> bytes:
        if ranges.empty[row]:
            return bytes([_EMPTY])
        flags = _LOWER_INFINITE if lower is None else _LOWER_INCLUSIVE if ranges.lower_inclusive[row] else 0
        flags |= _UPPER_INFINITE if upper is None else _UPPER_INCLUSIVE if ranges.upper_inclusive[row] else 0
        return bytes([flags]) + b"".join(struct.pack(">i", len(bound)) + bound for bound in (lower, upper) if bound is not None)

    def key(self, text: str) -> bytes:
        """Return the key of a range (range_cmp): empty ranges first, then by the lower bound, then by the upper bound."""
        parts = split(text)
        if parts is None:
            return b"\x00"
        opening, lower, upper, closing = parts
        key = self.subtype.key
        assert key is not None
        first = b"\x00" if lower is None else b"\x01" + ended(key(lower)) + bytes([opening == "("])
        last = b"\x02" if upper is None else b"\x01" + ended(key(upper)) + bytes([closing == "]"])
        return b"\x01" + first + last


def split_column(strings: pa.StringArray) -> Bounds:
    """Split a column into the texts of the bounds (range_parse). Raise 22P02."""
    present = _valid(strings)
    empty = _flags(pc.equal(strings, "empty"))
    fields = pc.extract_regex(strings, _USUAL)
    opening, lower, upper, closing = (pc.struct_field(fields, name) for name in ("open", "lower", "upper", "close"))
    usual = _valid(fields)
    lower, upper = (pc.if_else(pc.equal(bound, ""), pa.scalar(None, pa.string()), pc.utf8_trim(bound, '"')) for bound in (lower, upper))
    inclusive = [_flags(pc.equal(opening, "[")), _flags(pc.equal(closing, "]"))]
    odd = present & ~usual & ~empty
    if odd.any():
        parsed = [split(text) for text in strings.filter(pa.array(odd)).to_pylist()]
        mask = pa.array(odd)
        lower = pc.replace_with_mask(lower, mask, pa.array([parts and parts[1] for parts in parsed], pa.string()))
        upper = pc.replace_with_mask(upper, mask, pa.array([parts and parts[2] for parts in parsed], pa.string()))
        inclusive[0][odd] = [parts is not None and parts[0] == "[" for parts in parsed]
        inclusive[1][odd] = [parts is not None and parts[3] == "]" for parts in parsed]
        empty[odd] = [parts is None for parts in parsed]
    return Bounds(lower, upper, inclusive[0], inclusive[1], empty, present)


def split(text: str) -> tuple[str, str | None, str | None, str] | None:
    """Return opening bracket, bounds (None: infinite) and closing bracket, or None for an empty range (range_parse). Raise 22P02."""
    index = len(text) - len(text.lstrip(text_column.SPACE))
    if text[index : index + 5].lower() == "empty":
        if text[index + 5 :].strip(text_column.SPACE):
            raise _malformed_error(text, 'Junk after "empty" key word.')
        return None
    opening = text[index : index + 1]
    if opening not in ("[", "("):
        raise _malformed_error(text, "Missing left parenthesis or bracket.")
    lower, index = _read_bound(text, index + 1)
    if text[index] != ",":
        raise _malformed_error(text, "Missing comma after lower bound.")
    upper, index = _read_bound(text, index + 1)
    closing = text[index]
    if closing == ",":
        raise _malformed_error(text, "Too many commas.")
    if text[index + 1 :].strip(text_column.SPACE):
        raise _malformed_error(text, "Junk after right parenthesis or bracket.")
    return opening, lower, upper, closing


def _read_bound(text: str, index: int) -> tuple[str | None, int]:
    """Return one bound and the index after it (range_parse_bound)."""
    try:
        return quoted_field.read(text, index, ",)]")
    except ValueError:
        raise _malformed_error(text, "Unexpected end of input.") from None


def _malformed_error(text: str, detail: str) -> PostgresError:
    return PostgresError("22P02", f'malformed range literal: "{text}"', detail=detail)


def _flags(values: pa.Array) -> Flags:
    """Convert a boolean column to flags. NULL is false."""
    return np.array(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def _valid(values: pa.Array) -> Flags:
    return np.array(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _finite(values: pa.Array) -> Flags:
    """Return which values are not infinite dates."""
    if not pa.types.is_date(values.type):
        return np.ones(len(values), np.bool_)
    return _flags(pc.less(pc.abs(pc.cast(values, pa.int32())), calendar.INFINITE_DAY))


def _step(name: str, most: int, sqlstate: str = "22003") -> Step:
    def step(values: pa.Array, where: Flags) -> pa.Array:
        plain = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
        held = np.array(plain.fill_null(0).to_numpy(zero_copy_only=False))
        if (held[where] >= most).any():
            raise PostgresError(sqlstate, f"{name} out of range")
        return number.numbers(held + where.astype(held.dtype), buffers.valid(values), plain.type).cast(values.type)

    return step


def _range(subtype: BaseType, step: Step | None = None) -> tuple[RangeType, BaseType]:
    kind = RangeType(subtype, step)
    described = BaseType(
        read=kind.read,
        write=kind.write,
        receive=kind.receive,
        send=kind.send,
        restyled=subtype.restyled,
        key=kind.key,
        one_text=subtype.one_text,
        in_bulk=False,
    )
    return kind, described


_NUMERIC = replace(binary_numeric.TYPES[registry.NUMERIC], one_text=False)
_MADE = {
    registry.INT4RANGE: _range(number.TYPES[registry.INT4], _step("integer", (1 << 31) - 1)),
    registry.INT8RANGE: _range(number.TYPES[registry.INT8], _step("bigint", (1 << 63) - 1)),
    registry.NUMRANGE: _range(_NUMERIC),
    registry.TSRANGE: _range(datetime.TYPES[registry.TIMESTAMP]),
    registry.TSTZRANGE: _range(datetime.TYPES[registry.TIMESTAMPTZ]),
    registry.DATERANGE: _range(datetime.TYPES[registry.DATE], _step("date", timestamp_input.END_DAYS - 1, "22008")),
}
RANGES = {oid: kind for oid, (kind, _) in _MADE.items()}
TYPES = {oid: described for oid, (_, described) in _MADE.items()}
