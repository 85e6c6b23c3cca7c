"""Multirange types, stored as text in UTC and ISO: multirange_in … multirange_send on whole columns. Described by `TYPES`.

The ranges of all rows go through the range type's own functions as one column. Each row is taken apart and merged on its own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import registry, text_column
from headgate.types.base import range_type
from headgate.types.base.base_type import BaseType, Wire, ended
from headgate.types.base.range_type import Bounds, RangeType
from headgate.types.text_column import PLAIN, TextSettings

_RANGE = re.compile(r'[\[(](?:[^"\\\])]|\\.|"(?:[^"\\]|\\.|"")*+")*+[\])]', re.DOTALL)


@dataclass(frozen=True)
class MultirangeType:
    """A multirange type over a range type."""

    kind: RangeType

    def read(self, strings: pa.StringArray, _modifier: int, settings: TextSettings) -> pa.StringArray:
        """multirange_in. 22P02, and what range_in raises."""
        try:
            rows, ranges = _split_column(strings)
            return self._merged([None if row is None else len(row) for row in rows], self.kind.bounds(ranges, settings))
        except PostgresError:
            for text in strings.unique().drop_null().to_pylist():  # the error is that of the first value
                self._check(text, settings)
            raise

    def _check(self, text: str, settings: TextSettings) -> None:
        """Raises the error of one text: its ranges are read as they are found."""
        ranges: list[str] = []
        try:
            split(text, ranges.append)
        finally:
            self.kind.read(pa.array(ranges, pa.string()), -1, settings)

    def _merged(self, counts: Sequence[int | None], ranges: Bounds) -> pa.StringArray:
        """Multiranges of so many ranges each, in normal form: sorted, those that overlap or adjoin as one, none that is empty."""
        lower, upper = (self.kind.keys(each).to_pylist() for each in (ranges.lower, ranges.upper))
        one, other = self._texts(ranges)
        rows: list[str | None] = []
        place = 0
        for count in counts:
            if count is None:
                rows.append(None)
                continue
            places = [each for each in range(place, place + count) if not ranges.empty[each]]
            place += count
            first = {each: (lower[each] is not None, lower[each], not ranges.lower_inclusive[each]) for each in places}
            last = {each: (upper[each] is None, upper[each], bool(ranges.upper_inclusive[each])) for each in places}
            runs: list[tuple[int, int]] = []
            for each in sorted(places, key=lambda place: (first[place], last[place])):
                if runs and _touch(last[runs[-1][1]], first[each]):
                    start, end = runs[-1]  # of equal bounds range_union takes the second one: their texts may differ (1.0, 1.00)
                    runs[-1] = min(each, start, key=first.__getitem__), max(each, end, key=last.__getitem__)
                else:
                    runs.append((each, each))
            rows.append("{" + ",".join(one[start] + "," + other[end] for start, end in runs) + "}")
        return pa.array(rows, pa.string())

    def _texts(self, ranges: Bounds) -> tuple[list[str], list[str]]:
        """The lower bounds with their brackets, and the upper ones."""
        nothing = pa.nulls(len(ranges.empty), ranges.lower.type)
        never = np.zeros(len(ranges.empty), np.bool_)
        low = Bounds(ranges.lower, nothing, ranges.lower_inclusive, never, never, ~never)
        high = Bounds(nothing, ranges.upper, never, ranges.upper_inclusive, never, ~never)
        lower = [text[:-2] for text in self.kind.printed(low, PLAIN).to_pylist()]
        return lower, [text[2:] for text in self.kind.printed(high, PLAIN).to_pylist()]

    def write(self, values: pa.StringArray, settings: TextSettings) -> pa.StringArray:
        """The texts of stored multiranges under other settings."""
        if not self.kind.subtype.restyled(settings):
            return values
        rows, ranges = _split_column(values)
        shown = iter(self.kind.write(ranges, settings).to_pylist())
        return pa.array([None if row is None else "{" + ",".join(next(shown) for _ in row) + "}" for row in rows], pa.string())

    def receive(self, wire: Wire, _modifier: int) -> pa.StringArray:
        """multirange_recv. 22P03, 08P01."""
        counts: list[int | None] = []
        pieces: list[bytes] = []
        for raw in wire.column(pa.large_binary()).to_pylist():
            found = None if raw is None else _take_apart(raw)
            counts.append(None if found is None else len(found))
            pieces += found or ()
        sizes = np.array([len(each) for each in pieces], np.int64)
        data = np.frombuffer(b"".join(pieces), np.uint8)
        return self._merged(counts, self.kind.received(Wire(data, np.cumsum(sizes) - sizes, sizes, None, wire.encoding)))

    def send(self, values: pa.Array, encoding: Encoding) -> pa.LargeBinaryArray:
        """multirange_send."""
        rows, ranges = _split_column(values)
        sent = iter(self.kind.send(ranges, encoding).to_pylist())
        return pa.array([None if row is None else _put_together([next(sent) for _ in row]) for row in rows], pa.large_binary())

    def key(self, text: str) -> bytes:
        """multirange_cmp: range by range, a prefix first."""
        return b"".join(b"\x01" + ended(self.kind.key(each)) for each in split(text)) + b"\x00"


Edge = tuple[bool, object, bool]


def _touch(upper: Edge, lower: Edge) -> bool:
    """Whether a range that ends at `upper` overlaps or adjoins one that begins at `lower`."""
    infinite, end, end_inclusive = upper
    bounded, start, start_exclusive = lower
    if infinite or not bounded or end > start:  # type: ignore[operator]  # values of one subtype
        return True
    return end == start and (end_inclusive or not start_exclusive)


def _take_apart(raw: bytes) -> list[bytes]:
    """The binary forms of the ranges of one multirange."""
    (count,) = struct.unpack_from(">I", raw) if len(raw) >= 4 else (0,)
    pieces, at = list[bytes](), 4
    for _ in range(count):
        size = int.from_bytes(raw[at : at + 4], "big")
        pieces.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
        if at > len(raw):
            break
    if at != len(raw):
        raise PostgresError("08P01", "insufficient data left in message" if at > len(raw) else "invalid message format")
    return pieces


def _put_together(ranges: Sequence[bytes]) -> bytes:
    return struct.pack(">I", len(ranges)) + b"".join(struct.pack(">I", len(each)) + each for each in ranges)


def _split_column(strings: pa.StringArray) -> tuple[list[list[str] | None], pa.StringArray]:
    """The texts of the ranges of each row, and of all rows as one column. 22P02."""
    rows = [None if text is None else split(text) for text in strings.to_pylist()]
    return rows, pa.array([each for row in rows if row is not None for each in row], pa.string())


def split(text: str, found: Callable[[str], None] | None = None) -> list[str]:
    """The texts of the ranges of a multirange; `found` is called with each. 22P02."""
    ranges: list[str] = []
    found = found or (lambda _: None)
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise _malformed(text, "Missing left brace.")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            at = _skip(text, at)
            if text[at : at + 5].lower() == "empty":
                at += 5
            elif text[at : at + 1] in ("[", "("):
                piece = _RANGE.match(text, at)
                if piece is None:
                    raise _malformed(text, "Unexpected end of input.")
                ranges.append(piece[0])
                found(piece[0])
                at = piece.end()
            else:
                raise _malformed(text, "Expected range start." if text[at:] else "Unexpected end of input.")
            at = _skip(text, at)
            stop, at = text[at : at + 1], at + 1
            if stop == "}":
                break
            if stop != ",":
                raise _malformed(text, "Expected comma or end of multirange." if stop else "Unexpected end of input.")
    if text[_skip(text, at) :]:
        raise _malformed(text, "Junk after closing right brace.")
    return ranges


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in text_column.SPACE:
        at += 1
    return at


def _malformed(text: str, detail: str) -> PostgresError:
    return PostgresError("22P02", f'malformed multirange literal: "{text}"', detail=detail)


def _multirange(kind: RangeType) -> BaseType:
    made = MultirangeType(kind)
    return BaseType(
        read=made.read,
        write=made.write,
        receive=made.receive,
        send=made.send,
        restyled=kind.subtype.restyled,
        key=made.key,
        one_text=kind.subtype.one_text,
        in_bulk=False,
    )


TYPES = {oid: _multirange(range_type.RANGES[over]) for oid, over in registry.RANGES.items()}
