"""Read COPY FROM STDIN: the client's bytes, split anywhere, become Arrow tables of a table's columns.

Rows are returned in portions of some megabytes, so that memory use does not depend on the size of the copy. An error has the same context
as in PostgreSQL: ``COPY t, line 3, column a: "x"``.
"""

from __future__ import annotations

import csv
from collections.abc import Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Column, Relation
from headgate.commands.copy.copy_option import CopyOptions, Header
from headgate.errors import PostgresError
from headgate.types import copy_text as copy_format
from headgate.types.binary.binary import read_binary
from headgate.types.binary.copy_binary import HEADER_READ, header_length, read_copy_binary
from headgate.types.storage import NO_COLUMN
from headgate.types.text import text
from headgate.types.text_column import TextSettings

PORTION = 16 << 20
"""Number of bytes to collect before rows are parsed."""
LONGEST = 128 << 20
"""Maximum size of a row in bytes. The node has about ten copies of the data at a time."""
SHOWN = 100
"""The number of characters of a line that the context of an error shows (MAX_COPY_DATA_DISPLAY)."""


class CopyReader:
    """The reader of one COPY FROM."""

    def __init__(self, relation: Relation, columns: Sequence[Column], options: CopyOptions, forms: TextSettings) -> None:
        self.relation = relation
        self.columns = columns
        self.options = options
        self.forms = forms
        self._line = 1
        """The number of the first line of the rows that were returned last."""
        self._chunk = b""
        """The text of the rows that were returned last."""

    def tables(self, pieces: Iterator[bytes]) -> Iterator[pa.Table]:
        if self.options.binary:
            yield from self._binary(pieces)
        elif self.options.csv:
            yield from self._csv(pieces)
        else:
            yield from self._text(pieces)

    def place(self, row: int, *, with_text: bool) -> str:
        """Return the context of an error of a row of the last portion, by its index. `with_text`: with the text of its line.

        PostgreSQL checks unique keys for many rows together, when it no longer has their text.
        """
        line = f"COPY {self.relation.name}, line {self._line_of(row)}"
        text = self._record(row).decode() if with_text else ""
        return f'{line}: "{text[:SHOWN] + "..." if len(text) > SHOWN else text}"' if text else line

    def _line_of(self, row: int) -> int:
        """Return the number of the last line of a row. A row of CSV may have several."""
        return self._line + (self._chunk[: self._ends()[row]].rstrip(b"\r\n").count(b"\n") if self.options.csv else row)

    def _ends(self) -> list[int]:
        return [*copy_format.record_ends(self._chunk, self.options.quote), len(self._chunk)]

    def _record(self, row: int) -> bytes:
        """Return the text of a row; empty in the binary format, and where a row of the text format has several lines."""
        if self.options.csv:
            begins = [0, *self._ends()]
            return self._chunk[begins[row] : begins[row + 1]].rstrip(b"\r\n")
        return b"" if self.options.binary or b"\\\n" in self._chunk else self._chunk.splitlines()[row]

    # ---- text ------------------------------------------------------------------------------------------------

    def _text(self, pieces: Iterator[bytes]) -> Iterator[pa.Table]:
        buffered = bytearray()
        searched = 0
        skip_header = bool(self.options.header)
        for piece in self._decode(pieces):
            buffered += piece
            if len(buffered) < PORTION:
                continue
            end = copy_format.whole_rows(buffered, searched)
            if end:
                chunk, buffered = bytes(buffered[:end]), buffered[end:]
                yield from self._text_rows(chunk, skip_header)
                skip_header = False
            searched = len(buffered)
            self._check_size(searched)
        if buffered:
            yield from self._text_rows(bytes(buffered), skip_header)

    def _text_rows(self, chunk: bytes, skip_header: bool) -> Iterator[pa.Table]:
        if skip_header:
            line, _, chunk = chunk.partition(b"\n")
            self._check_header(line.removesuffix(b"\r"))
            self._line += 1
        if not self.columns:
            rows = 0 if chunk.startswith(b"\\.") else chunk.count(b"\n")
            if rows:
                yield pa.table({NO_COLUMN: pa.array([True] * rows, pa.bool_())})
            return
        self._chunk, options = chunk, self.options
        names = [column.name for column in self.columns]
        try:
            arrays = copy_format.read_copy_text(
                chunk, len(names), null=options.null, delimiter=options.delimiter, names=names, first_line=self._line
            )
        except PostgresError as error:
            if error.context is not None:
                error.context = f"COPY {self.relation.name}, {error.context}"
            raise
        yield from self._read_columns(arrays)

    # ---- CSV -------------------------------------------------------------------------------------------------

    def _csv(self, pieces: Iterator[bytes]) -> Iterator[pa.Table]:
        buffered = bytearray()
        whole, inside = 0, False
        header = bool(self.options.header)
        for piece in self._double_quotes(self._decode(pieces)):
            ends = copy_format.record_ends(piece, self.options.quote, inside=inside)
            inside ^= piece.count(self.options.quote.encode()) % 2 == 1
            whole = len(buffered) + int(ends[-1]) if len(ends) else whole
            buffered += piece
            self._check_size(len(buffered) - whole)
            if len(buffered) >= PORTION and whole:
                chunk, buffered, whole = bytes(buffered[:whole]), buffered[whole:], 0
                yield from self._csv_rows(chunk, header)
                header = False
        if buffered:
            yield from self._csv_rows(bytes(buffered), header)

    def _double_quotes(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces with escaped quotes written as doubled quotes."""
        if self.options.escape == self.options.quote:
            yield from pieces
            return
        escaped = copy_format.EscapedQuotes(self.options.quote, self.options.escape)
        for piece in pieces:
            yield escaped.doubled(piece)
        yield escaped.doubled(b"", last=True)

    def _csv_rows(self, chunk: bytes, header: bool) -> Iterator[pa.Table]:
        if chunk.rstrip(b"\r\n").endswith(b"\n\\."):
            chunk = chunk[: chunk.rindex(b"\\.")]
        if header:
            ends = copy_format.record_ends(chunk, self.options.quote)
            end = int(ends[0]) if len(ends) else len(chunk)
            self._check_header(chunk[:end].rstrip(b"\r\n"))
            chunk = chunk[end:]
            self._line += 1
        self._chunk = chunk
        yield from self._read_columns(self._apply_force(self._split(chunk, len(self.columns))))

    def _split(self, chunk: bytes, columns: int) -> list[pa.StringArray]:
        options = self.options
        try:
            return copy_format.read_copy_csv(chunk, columns, null=options.null, delimiter=options.delimiter, quote=options.quote)
        except PostgresError as error:
            if error.context is not None:
                error.context = f"COPY {self.relation.name}, {error.context}"
            raise

    def _apply_force(self, arrays: Sequence[pa.StringArray]) -> list[pa.StringArray]:
        """Apply FORCE_NOT_NULL (no field is NULL) and FORCE_NULL (a quoted field may be NULL)."""
        columns = []
        for column, strings in zip(self.columns, arrays, strict=True):
            values = strings
            if column.name in self.options.force_null:
                values = pc.if_else(pc.equal(strings, self.options.null), pa.scalar(None, pa.string()), strings)
            if column.name in self.options.force_not_null:
                values = pc.if_else(pc.is_valid(strings), values, self.options.null)
            columns.append(values)
        return columns

    # ---- both --------------------------------------------------------------------------------------------------

    def _decode(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces in UTF-8, split after lines. A newline byte is a newline in every encoding, and never a part of a character."""
        buffered = bytearray()
        first = 1
        for piece in pieces:
            end = piece.rfind(b"\n") + 1
            buffered += piece[:end] if end else piece
            if end:
                whole = bytes(buffered)
                yield self._unicode(whole, first)
                first += whole.count(b"\n")
                buffered = bytearray(piece[end:])
            self._check_size(len(buffered))
        yield self._unicode(bytes(buffered), first)

    def _check_size(self, size: int) -> None:
        """Raise 53200 for an incomplete row that is larger than `LONGEST`."""
        if size > LONGEST:
            detail = f"Cannot enlarge string buffer containing {size} bytes."
            raise PostgresError("53200", "out of memory", detail=detail, context=f"COPY {self.relation.name}, line {self._line}")

    def _unicode(self, data: bytes, first: int) -> bytes:
        """Return lines in UTF-8. Raise 22021 or 22P05 for invalid characters. `first`: the number of the first line."""
        encoding = self.options.encoding
        try:
            text = encoding.decode(data)
        except PostgresError as error:
            raise error.within(f"COPY {self.relation.name}, line {first + self._first_invalid_line(data)}") from error
        return data if encoding.unicode else text.encode()

    def _first_invalid_line(self, data: bytes) -> int:
        """Return the index of the first line with an invalid character."""
        for place, line in enumerate(data.split(b"\n")):
            try:
                self.options.encoding.decode(line)
            except PostgresError:
                return place
        return 0

    def _check_header(self, line: bytes) -> None:
        """Raise 22P04 unless the names in the header are those of the columns (HEADER MATCH)."""
        if self.options.header is not Header.MATCH:
            return
        context = f'COPY {self.relation.name}, line 1: "{line.decode(errors="replace")}"'
        titles = self._titles(line)
        if len(titles) != len(self.columns):
            message = f"wrong number of fields in header line: got {len(titles)}, expected {len(self.columns)}"
            raise PostgresError("22P04", message, context=context)
        for place, (title, column) in enumerate(zip(titles, self.columns, strict=True), 1):
            if title != column.name:
                got = f'null value ("{self.options.null}")' if title is None else f'"{title}"'
                message = f'column name mismatch in header line field {place}: got {got}, expected "{column.name}"'
                raise PostgresError("22P04", message, context=context)

    def _titles(self, line: bytes) -> list[str | None]:
        if self.options.csv:
            [row] = csv.reader([line.decode()], delimiter=self.options.delimiter, quotechar=self.options.quote)
            return [None if title == self.options.null else title for title in row]
        fields = line.split(self.options.delimiter.encode())
        return [None if field == self.options.null.encode() else copy_format.unescape(field).decode() for field in fields]

    def _read_columns(self, arrays: Sequence[pa.StringArray]) -> Iterator[pa.Table]:
        typed = []
        for column, strings in zip(self.columns, arrays, strict=True):
            try:
                typed.append(text.read_text(strings, column.type_oid, column.typmod, session=self.forms))
            except PostgresError as error:
                row = text.first_refused(strings, column.type_oid, column.typmod, session=self.forms)
                if row is not None:
                    shown = strings[row].as_py()
                    value = f': "{shown}"' if shown is not None else ""
                    error.within(f"COPY {self.relation.name}, line {self._line_of(row)}, column {column.name}{value}")
                raise
        rows = len(arrays[0]) if arrays else 0
        if rows:
            yield pa.table(typed, names=[column.name for column in self.columns])
        self._line += self._chunk.count(b"\n") if self.options.csv else rows

    # ---- binary ----------------------------------------------------------------------------------------------

    def _binary(self, pieces: Iterator[bytes]) -> Iterator[pa.Table]:
        buffered = bytearray()
        ended = False
        header: int | None = None  # the number of header bytes still to come
        next_size = PORTION
        for piece in pieces:
            buffered += piece
            if header is None:
                header = header_length(bytes(buffered[:HEADER_READ]))
            if header is None:
                continue
            skipped = min(header, len(buffered))
            del buffered[:skipped]
            header -= skipped
            if len(buffered) >= min(next_size, LONGEST) or ended:
                ended = ended or (yield from self._binary_rows(buffered))
                self._check_end(buffered, ended=ended)
                self._check_size(len(buffered))
                next_size = max(PORTION, 2 * len(buffered))  # for an incomplete row, parse less and less often
        if header is None:
            raise PostgresError("22P04", "COPY file signature not recognized")
        ended = ended or (yield from self._binary_rows(buffered))
        self._check_end(buffered, ended=ended)
        if buffered:
            raise PostgresError("22P04", "unexpected EOF in COPY data", context=f"COPY {self.relation.name}, line {self._line}")

    def _check_end(self, held: bytearray, *, ended: bool) -> None:
        """Raise 22P04 for data after the trailer. The trailer is optional."""
        if ended and held:
            raise PostgresError("22P04", "received copy data after EOF marker", context=f"COPY {self.relation.name}, line {self._line}")

    def _binary_rows(self, held: bytearray) -> Generator[pa.Table, None, bool]:
        chunk = bytes(held)
        parsed = read_copy_binary(chunk, len(self.columns))
        del held[: parsed.consumed]
        if parsed.row_count:
            data = np.frombuffer(chunk, np.uint8)
            arrays = [
                read_binary(data, starts, lengths, column.type_oid, column.typmod, encoding=self.options.encoding)
                for column, starts, lengths in zip(self.columns, parsed.starts, parsed.lengths, strict=True)
            ]
            yield pa.table(arrays, names=[column.name for column in self.columns])
            self._line += parsed.row_count
        return parsed.ended
