"""The text and CSV formats of COPY in bulk: bytes to columns of strings and back (manual, COPY, File Formats).

Called by COPY in commands, by the table sync and by the publisher's COPY TO. This module handles only framing and escapes;
`headgate.types.text.text` interprets the strings. The binary format is in `copy_binary`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headgate.errors import PostgresError
from headgate.types import buffers
from headgate.types.buffers import Bytes, Mask, Numbers
from headgate.types.encoded import utf8

_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)", re.DOTALL)
_LETTER = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_ESCAPED = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_NO_TEXT = b"\xff"
"""A byte that does not occur in UTF-8."""
_NEWLINE, _BACKSLASH = 0x0A, 0x5C


def whole_rows(chunk: bytes | bytearray, after: int = 0) -> int:
    """Return the number of bytes of a chunk in text format that form whole rows: up to the last newline without a backslash before it.

    `after`, which is 0 or directly after a newline, is where the search begins. The result is 0 if there is no such newline after it.
    """
    end = chunk.rfind(b"\n", after)
    if end < 0 or not _is_hidden(chunk, end):
        return end + 1
    data = np.frombuffer(memoryview(chunk)[after:], np.uint8)
    newlines = np.flatnonzero(data == _NEWLINE)
    rows = newlines[~_are_escaped(data, newlines)]
    return after + int(rows[-1]) + 1 if len(rows) else 0


def _is_hidden(chunk: bytes | bytearray, index: int) -> bool:
    start = index
    while start and chunk[start - 1] == _BACKSLASH:
        start -= 1
    return (index - start) % 2 == 1


def read_copy_text(
    buffer: bytes, columns: int, *, null: str = "\\N", delimiter: str = "\t", names: Sequence[str] = (), first_line: int = 1
) -> list[pa.StringArray]:
    r"""Read whole rows of text format into `columns` string arrays, unescaped. A field equal to `null` is NULL.

    The last newline may be missing; a line ``\.`` ends the data. Lines may end in LF, CR or CR LF, but all in the same way as the first.
    Raise 22P04 (with the line number as context, and the column's name if `names` are passed) or 22021.
    """
    data = np.frombuffer(_end_last_line(_one_newline(_until_marker(buffer))), np.uint8)
    if not len(data):
        return [pa.nulls(0, pa.string()) for _ in range(columns)]
    slashes = bool((data == _BACKSLASH).any())
    ends = np.flatnonzero((data == ord(delimiter)) | (data == _NEWLINE))
    if slashes:
        ends = ends[~_are_escaped(data, ends)]
    _check_counts(data, ends, columns, names, first_line)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    table_starts, table_sizes = starts.reshape(-1, max(columns, 1)), (ends - starts).reshape(-1, max(columns, 1))
    if not columns:
        return []
    marker = np.frombuffer(null.encode(), np.uint8)
    return [_column(data, table_starts[:, column], table_sizes[:, column], marker, slashes=slashes) for column in range(columns)]


def _until_marker(buffer: bytes) -> bytes:
    if b"\\." not in buffer:
        return buffer
    marker = re.search(rb"(?:\A|(?<=[\n\r]))\\\.(?:\r?\n|\r|\Z)", buffer)
    return buffer[: marker.start()] if marker else buffer


def _one_newline(buffer: bytes) -> bytes:
    """Convert all line ends to LF. Raise 22P04 if the lines end in different ways."""
    if b"\r" not in buffer:
        return buffer
    first = re.search(rb"\r\n|\r|\n", buffer)
    kind = first[0] if first else b"\n"
    if kind == b"\n":
        raise PostgresError("22P04", "literal carriage return found in data", hint='Use "\\r" to represent carriage return.')
    rest = buffer.replace(kind, b"")
    if b"\n" in rest:
        raise PostgresError("22P04", "literal newline found in data", hint='Use "\\n" to represent newline.')
    return buffer.replace(kind, b"\n")


def _end_last_line(buffer: bytes) -> bytes:
    """Add a missing last newline. An escaped newline is data. A single backslash at the end of the data is dropped."""
    if not buffer or whole_rows(buffer) == len(buffer):
        return buffer
    slashes = len(buffer) - len(buffer.rstrip(b"\\"))
    return buffer[: len(buffer) - slashes % 2] + b"\n"


def _are_escaped(data: Bytes, positions: Numbers) -> Mask:
    """Return which positions have an odd number of backslashes before them."""
    hidden = np.zeros(len(positions), np.bool_)
    behind = np.flatnonzero((positions > 0) & (data[positions - 1] == _BACKSLASH))
    if len(behind):
        slashes = np.flatnonzero(data == _BACKSLASH)
        firsts = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)  # of each run of them, counted among them
        last = np.searchsorted(slashes, positions[behind] - 1)
        first = firsts[np.searchsorted(firsts, last, side="right") - 1]
        hidden[behind] = (last - first) % 2 == 0
    return hidden


def _check_counts(data: Bytes, ends: Numbers, columns: int, names: Sequence[str], first_line: int) -> None:
    """Raise 22P04 unless each line has as many fields as there are columns."""
    lines = data[ends] == _NEWLINE
    width = max(columns, 1)
    even = len(ends) % width == 0 and lines.reshape(-1, width)[:, -1].all() and lines.sum() * width == len(ends)
    if even and (columns or not (np.diff(ends, prepend=-1) != 1).any()):
        return
    fields = np.diff(np.flatnonzero(lines), prepend=-1)
    bad = int(np.argmax(fields != width)) if columns else 0
    end = int(ends[np.flatnonzero(lines)[bad]])
    start = int(ends[np.flatnonzero(lines)[bad - 1]]) + 1 if bad else 0
    context = f'line {first_line + bad}: "{data[start:end].tobytes().decode(errors="replace")}"'
    if int(fields[bad]) < columns:
        missing = int(fields[bad])
        name = names[missing] if missing < len(names) else str(missing + 1)
        raise PostgresError("22P04", f'missing data for column "{name}"', context=context)
    raise PostgresError("22P04", "extra data after last expected column", context=context)


def _column(data: Bytes, starts: Numbers, sizes: Numbers, marker: Bytes, *, slashes: bool) -> pa.StringArray:
    null = sizes == len(marker)
    for index, byte in enumerate(marker):
        rows = np.flatnonzero(null)
        null[rows] = data[starts[rows] + index] == byte
    sizes = np.where(null, 0, sizes)
    packed, offsets = buffers.gather(data, starts, sizes)
    mask = ~null if null.any() else None
    values = buffers.strings(packed, offsets, mask, pa.binary())
    if slashes and (packed == _BACKSLASH).any():
        escaped = pc.fill_null(pc.match_substring(values, b"\\"), False)
        values = pc.replace_with_mask(values, escaped, _unescaped(values.filter(escaped)))
    return utf8(values)


def _unescaped(values: pa.BinaryArray) -> pa.BinaryArray:
    """Remove the backslashes from fields. Escapes that COPY TO writes are replaced in bulk, fields with others one by one."""
    odd = pc.match_substring(values, _NO_TEXT)
    result = pc.replace_substring(values, b"\\\\", _NO_TEXT)
    for letter, byte in _LETTER.items():
        result = pc.replace_substring(result, b"\\" + letter, byte)
    odd = pc.or_(odd, pc.match_substring(result, b"\\"))
    result = pc.replace_substring(result, _NO_TEXT, b"\\")
    if not pc.any(odd, min_count=0).as_py():
        return result
    return pc.replace_with_mask(result, odd, pa.array([unescape(value) for value in values.filter(odd).to_pylist()], pa.binary()))


def unescape(value: bytes) -> bytes:
    r"""Remove the backslashes from one field: ``\t``, ``\101``, ``\x41``, ``\\``; any other character stands for itself."""

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code[:1] in b"01234567":
            return bytes([int(code, 8) & 0xFF])
        if code[:1] == b"x" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        return _LETTER.get(code, code)

    return _ESCAPE.sub(plain, value)


def write_copy_text(columns: Sequence[pa.Array], *, null: str = "\\N", delimiter: str = "\t") -> pa.LargeStringArray:
    """Return rows in text format, each with its newline, for columns of strings."""
    escaped = [_escape(column.cast(pa.large_string()), delimiter) for column in columns]
    rows = pc.binary_join_element_wise(*escaped, _large(delimiter), null_handling="replace", null_replacement=null)
    return pc.binary_join_element_wise(rows, _large("\n"), _large(""))


def _large(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, pa.large_string())


def _escape(values: pa.LargeStringArray, delimiter: str) -> pa.LargeStringArray:
    data, _ = buffers.view(values)
    present = set(np.flatnonzero(np.bincount(data, minlength=256)).tolist()) if len(data) else set()
    specials = dict(_ESCAPED)
    if delimiter != "\t":
        specials[delimiter] = "\\" + delimiter
    for character, code in specials.items():
        if ord(character) in present:
            values = pc.replace_substring(values, character, code)
    return values


class EscapedQuotes:
    """CSV data with another escape character, rewritten piece by piece to doubled quotes, which Arrow can read."""

    def __init__(self, quote: str, escape: str) -> None:
        self._quote, self._escape = quote.encode(), escape.encode()
        self._special = re.compile(b"[" + re.escape(self._quote) + re.escape(self._escape) + b"]")
        self._inside = False
        self._held = b""

    def doubled(self, piece: bytes, *, last: bool = False) -> bytes:
        """Rewrite the next piece. A last byte that depends on the next piece is held back (CopyReadAttributesCSV)."""
        data, index, parts = self._held + piece, 0, []
        while True:
            special = self._special.search(data, index) if self._inside else None
            position = data.find(self._quote, index) if not self._inside else -1 if special is None else special.start()
            if position < 0:
                parts.append(data[index:])
                self._held = b""
                return b"".join(parts)
            parts.append(data[index:position])
            next_one = data[position + 1 : position + 2]
            if self._inside and not next_one and not last:
                self._held = data[position:]
                return b"".join(parts)
            rewritten, index = self._rewrite_quote(data[position : position + 1], next_one)
            parts.append(rewritten)
            index += position

    def _rewrite_quote(self, char: bytes, next_one: bytes) -> tuple[bytes, int]:
        """Return the rewritten form of a quote or, inside quotes, an escape, and the number of bytes read."""
        if self._inside and char == self._escape and next_one in (self._quote, self._escape):
            return (next_one * 2 if next_one == self._quote else next_one), 2
        if self._inside and char == self._escape:
            return char, 1
        if self._inside and next_one == self._quote:
            return b"", 2  # ends and begins a quoted part
        self._inside = not self._inside
        return char, 1


def read_copy_csv(buffer: bytes, columns: int, *, null: str = "", delimiter: str = ",", quote: str = '"') -> list[pa.StringArray]:
    """Read CSV format with doubled quotes. An unquoted field equal to `null` is NULL, a quoted one never is.

    Raise 22P04: ``unterminated CSV quoted field`` with the line as context, and others.
    """
    names = [str(column) for column in range(columns)]
    if not buffer:
        return [pa.nulls(0, pa.string()) for _ in names]
    if buffer.count(quote.encode()) % 2:
        raise _unterminated_error(buffer, quote)
    if columns > 1 and _has_empty_row(buffer, quote):
        raise PostgresError("22P04", "malformed CSV data", detail="An empty line has no data for the columns behind the first.")
    if not _are_whole_fields(buffer, delimiter, quote):
        buffer = _whole_fields(buffer, delimiter.encode(), quote.encode())
    try:
        table = csv.read_csv(
            pa.BufferReader(buffer),
            csv.ReadOptions(use_threads=False, column_names=names, block_size=max(len(buffer), 1)),
            csv.ParseOptions(delimiter=delimiter, quote_char=quote, double_quote=True, newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                check_utf8=True,
                column_types={name: pa.string() for name in names},
                null_values=[null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise PostgresError("22P04", "malformed CSV data", detail=f"{error}.") from error
    return [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]


def _has_empty_row(buffer: bytes, quote: str) -> bool:
    """Return whether there is an empty line, which Arrow reads as a row of NULLs."""
    if not (buffer[:1] in (b"\n", b"\r") or b"\n\n" in buffer or b"\n\r" in buffer):
        return False
    ends = record_ends(buffer, quote)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return any(not buffer[start:end].strip(b"\r\n") for start, end in zip(starts.tolist(), ends.tolist(), strict=False) if end - start < 3)


def _are_whole_fields(buffer: bytes, delimiter: str, quote: str) -> bool:
    """Return whether each quoted part is a whole field. Arrow treats other quotes as data."""
    data = np.frombuffer(buffer, np.uint8)
    quotes = np.flatnonzero(data == ord(quote))
    around = np.zeros(256, np.bool_)
    around[list(f"\n\r{quote}{delimiter}".encode())] = True
    opening, closing = quotes[::2], quotes[1::2]
    before, after = opening[opening > 0] - 1, closing[closing < len(data) - 1] + 1
    return bool(around[data[before]].all() and around[data[after]].all())


def _whole_fields(buffer: bytes, delimiter: bytes, quote: bytes) -> bytes:
    """Rewrite the rows so that each field with quotes is quoted as a whole (CopyReadAttributesCSV)."""
    ends = re.compile(b"(" + re.escape(delimiter) + rb"|\r\n|\n|\r)")
    output: list[bytes] = []
    field: list[bytes] = []
    quoted = False

    def end() -> None:
        text = b"".join(field)
        output.append(quote + text.replace(quote, quote * 2) + quote if quoted else text)
        field.clear()

    parts = buffer.split(quote)
    for index, part in enumerate(parts):
        if index % 2:
            field.append(part)
            quoted = True
        elif not part and 0 < index < len(parts) - 1:
            field.append(quote)  # two quotes inside quotes
        else:
            for position, text in enumerate(ends.split(part)):
                if position % 2:
                    end()
                    quoted = False
                    output.append(text)
                else:
                    field.append(text)
    end()
    return b"".join(output)


def _unterminated_error(buffer: bytes, quote: str) -> PostgresError:
    """Return the error for the last record. PostgreSQL also counts line breaks within fields, except in the first record."""
    ends = record_ends(buffer, quote)
    start = int(ends[-1]) if len(ends) else 0
    breaks = buffer.count(b"\n", int(ends[0])) + 1 if len(ends) else 0
    shown = buffer[start:].decode(errors="replace")
    return PostgresError("22P04", "unterminated CSV quoted field", context=f'line {breaks + 1}: "{shown}"')


def record_ends(buffer: bytes, quote: str, *, inside: bool = False) -> Numbers:
    """Return the positions after the newlines that end CSV records, those outside quotes. `inside`: the data begins inside quotes."""
    data = np.frombuffer(buffer, np.uint8)
    quoted = (np.cumsum(data == ord(quote), dtype=np.uint8) & 1) != inside
    return np.flatnonzero((data == _NEWLINE) & ~quoted) + 1


def write_copy_csv(
    columns: Sequence[pa.Array],
    *,
    null: str = "",
    delimiter: str = ",",
    quote: str = '"',
    escape: str | None = None,
    forced: Container[int] = (),
) -> pa.LargeStringArray:
    """Return CSV rows. Quote `forced` columns and fields that contain the delimiter, the quote or a line break or equal `null`."""
    pattern = "[" + re.escape(delimiter) + re.escape(quote) + r"\n\r]"
    shown = []
    for index, column in enumerate(columns):
        values = column.cast(pa.large_string())
        needed = pc.or_(pc.match_substring_regex(values, pattern), pc.equal(values, null))
        if index in forced:
            needed = pc.is_valid(values)
        if len(columns) == 1:
            needed = pc.or_(needed, pc.equal(values, "\\."))
        escaped = values if escape in (None, quote) else pc.replace_substring(values, escape, f"{escape}{escape}")
        doubled = pc.replace_substring(escaped, quote, (escape or quote) + quote)
        shown.append(pc.if_else(needed, pc.binary_join_element_wise(_large(quote), doubled, _large(quote), _large("")), values))
    rows = pc.binary_join_element_wise(*shown, _large(delimiter), null_handling="replace", null_replacement=null)
    return pc.binary_join_element_wise(rows, _large("\n"), _large(""))
