"""Multirange types, stored as text in UTC and ISO: multirange_in … multirange_send on whole columns. `TYPES` describes them.

The range type's own functions process the ranges of all rows as one column. Each row is split and merged separately.
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
        """Read multiranges as multirange_in. Raise 22P02 and the errors of range_in."""
        try:
            rows, ranges = _split_column(strings)
            return self._merge([None if row is None else len(row) for row in rows], self.kind.bounds(ranges, settings))
        except PostgresError:
            for text in strings.unique().drop_null().to_pylist():  # the error is that of the first value
                self._check(text, settings)
            raise

    def _check(self, text: str, settings: TextSettings) -> None:
        """Raise the error of one text. Its ranges are read in order, also those before a syntax error."""
        ranges: list[str] = []
        try:
            split(text, ranges.append)
        finally:
            self.kind.read(pa.array(ranges, pa.string()), -1, settings)

    def _merge(self, counts: Sequence[int | None], ranges: Bounds) -> pa.StringArray:
        """Build multiranges in normal form from `counts` ranges each: sorted, without empty ones, overlapping or adjacent ones merged."""
        lower, upper = (self.kind.keys(bound).to_pylist() for bound in (ranges.lower, ranges.upper))
        lower_texts, upper_texts = self._texts(ranges)
        rows: list[str | None] = []
        start_index = 0
        for count in counts:
            if count is None:
                rows.append(None)
                continue
            places = [index for index in range(start_index, start_index + count) if not ranges.empty[index]]
            start_index += count
            first = {index: (lower[index] is not None, lower[index], not ranges.lower_inclusive[index]) for index in places}
            last = {index: (upper[index] is None, upper[index], bool(ranges.upper_inclusive[index])) for index in places}
            runs: list[tuple[int, int]] = []
            for index in sorted(places, key=lambda index: (first[index], last[index])):
                if runs and _touch(last[runs[-1][1]], first[index]):
                    start, end = runs[-1]  # of equal bounds range_union takes the second one: their texts may differ (1.0, 1.00)
                    runs[-1] = min(index, start, key=first.__getitem__), max(index, end, key=last.__getitem__)
                else:
                    runs.append((index, index))
            rows.append("{" + ",".join(lower_texts[start] + "," + upper_texts[end] for start, end in runs) + "}")
        return pa.array(rows, pa.string())

    def _texts(self, ranges: Bounds) -> tuple[list[str], list[str]]:
        """Return the lower bounds and the upper bounds as texts with their brackets."""
        nothing = pa.nulls(len(ranges.empty), ranges.lower.type)
        never = np.zeros(len(ranges.empty), np.bool_)
        low = Bounds(ranges.lower, nothing, ranges.lower_inclusive, never, never, ~never)
        high = Bounds(nothing, ranges.upper, never, ranges.upper_inclusive, never, ~never)
        lower = [text[:-2] for text in self.kind.printed(low, PLAIN).to_pylist()]
        return lower, [text[2:] for text in self.kind.printed(high, PLAIN).to_pylist()]

    def write(self, values: pa.StringArray, settings: TextSettings) -> pa.StringArray:
        """Print stored multiranges under other settings."""
        if not self.kind.subtype.restyled(settings):
            return values
        rows, ranges = _split_column(values)
        shown = iter(self.kind.write(ranges, settings).to_pylist())
        return pa.array([None if row is None else "{" + ",".join(next(shown) for _ in row) + "}" for row in rows], pa.string())

    def receive(self, wire: Wire, _modifier: int) -> pa.StringArray:
        """Read multiranges as multirange_recv. Raise 22P03 or 08P01."""
        counts: list[int | None] = []
        pieces: list[bytes] = []
        for raw in wire.column(pa.large_binary()).to_pylist():
            parts = None if raw is None else _take_apart(raw)
            counts.append(None if parts is None else len(parts))
            pieces += parts or ()
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        data = np.frombuffer(b"".join(pieces), np.uint8)
        return self._merge(counts, self.kind.received(Wire(data, np.cumsum(sizes) - sizes, sizes, None, wire.encoding)))

    def send(self, values: pa.Array, encoding: Encoding) -> pa.LargeBinaryArray:
        rows, ranges = _split_column(values)
        sent = iter(self.kind.send(ranges, encoding).to_pylist())
        return pa.array([None if row is None else _put_together([next(sent) for _ in row]) for row in rows], pa.large_binary())

    def key(self, text: str) -> bytes:
        """Return the key of a multirange (multirange_cmp): range by range, a prefix first."""
        return b"".join(b"\x01" + ended(self.kind.key(text_of_range)) for text_of_range in split(text)) + b"\x00"


Edge = tuple[bool, object, bool]


def _touch(upper: Edge, lower: Edge) -> bool:
    """Return whether a range that ends at `upper` overlaps or adjoins one that begins at `lower`."""
    infinite, end, end_inclusive = upper
    bounded, start, start_exclusive = lower
    if infinite or not bounded or end > start:  # type: ignore[operator]  # values of one subtype
        return True
    return end == start and (end_inclusive or not start_exclusive)


def _take_apart(raw: bytes) -> list[bytes]:
    """Return the binary forms of the ranges of one multirange."""
    (count,) = struct.unpack_from(">I", raw) if len(raw) >= 4 else (0,)
    pieces, offset = list[bytes](), 4
    for _ in range(count):
        size = int.from_bytes(raw[offset : offset + 4], "big")
        pieces.append(raw[offset + 4 : offset + 4 + size])
        offset += 4 + size
        if offset > len(raw):
            break
    if offset != len(raw):
        raise PostgresError("08P01", "insufficient data left in message" if offset > len(raw) else "invalid message format")
    return pieces


def _put_together(ranges: Sequence[bytes]) -> bytes:
    return struct.pack(">I", len(ranges)) + b"".join(struct.pack(">I", len(part)) + part for part in ranges)


def _split_column(strings: pa.StringArray) -> tuple[list[list[str] | None], pa.StringArray]:
    """Return the texts of the ranges of each row, and of all rows as one column. Raise 22P02."""
    rows = [None if text is None else split(text) for text in strings.to_pylist()]
    return rows, pa.array([part for row in rows if row is not None for part in row], pa.string())


def split(text: str, receive: Callable[[str], None] | None = None) -> list[str]:
    """Return the texts of the ranges of a multirange. `receive` is also called with each text. Raise 22P02."""
    ranges: list[str] = []
    receive = receive or (lambda _: None)
    index = _skip(text, 0)
    if text[index : index + 1] != "{":
        raise _malformed_error(text, "Missing left brace.")
    index = _skip(text, index + 1)
    if text[index : index + 1] == "}":
        index += 1
    else:
        while True:
            index = _skip(text, index)
            if text[index : index + 5].lower() == "empty":
                index += 5
            elif text[index : index + 1] in ("[", "("):
                piece = _RANGE.match(text, index)
                if piece is None:
                    raise _malformed_error(text, "Unexpected end of input.")
                ranges.append(piece[0])
                receive(piece[0])
                index = piece.end()
            else:
                raise _malformed_error(text, "Expected range start." if text[index:] else "Unexpected end of input.")
            index = _skip(text, index)
            stop, index = text[index : index + 1], index + 1
            if stop == "}":
                break
            if stop != ",":
                raise _malformed_error(text, "Expected comma or end of multirange." if stop else "Unexpected end of input.")
    if text[_skip(text, index) :]:
        raise _malformed_error(text, "Junk after closing right brace.")
    return ranges


def _skip(text: str, index: int) -> int:
    while text[index : index + 1] and text[index] in text_column.SPACE:
        index += 1
    return index


def _malformed_error(text: str, detail: str) -> PostgresError:
    return PostgresError("22P02", f'malformed multirange literal: "{text}"', detail=detail)


def _multirange(kind: RangeType) -> BaseType:
    multirange_type = MultirangeType(kind)
    return BaseType(
        read=multirange_type.read,
        write=multirange_type.write,
        receive=multirange_type.receive,
        send=multirange_type.send,
        restyled=kind.subtype.restyled,
        key=multirange_type.key,
        one_text=kind.subtype.one_text,
        in_bulk=False,
    )


TYPES = {oid: _multirange(range_type.RANGES[over]) for oid, over in registry.RANGES.items()}
