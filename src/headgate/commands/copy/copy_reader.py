"""Read COPY FROM STDIN: the client's bytes, split anywhere, become Arrow tables of a table's columns.

Rows are returned in portions of some megabytes, so that memory use does not depend on the size of the copy. An error has the same context
as in PostgreSQL: ``COPY t, line 3, column a: "x"``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Column, Relation
from headgate.commands.copy.copy_option import CopyOptions, Header
from headgate.errors import PostgresError
from headgate.types import copy_text as copy_format
from headgate.types.binary.binary import read_binary
from headgate.types.binary.copy_binary import HEADER_READ, header_length, read_copy_binary, whole_fields
from headgate.types.buffers import Bytes, Numbers
from headgate.types.storage import NO_COLUMN
from headgate.types.text import text
from headgate.types.text_column import TextSettings

PORTION = 16 << 20
"""Number of bytes to collect before rows are parsed."""
LONGEST = 128 << 20
"""Maximum size of a row in bytes. The node has about ten copies of the data at a time."""
SHOWN = 100
"""The number of characters of a line or a value that the context of an error shows (MAX_COPY_DATA_DISPLAY)."""


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
        self._newlines = 0
        """The number of newlines in the text that was received."""
        self._held: bytearray | None = None
        """The received bytes of the binary format after its header that are not yet rows. None before the header."""

    def tables(self, pieces: Iterator[bytes]) -> Iterator[pa.Table]:
        """Yield the rows. `pieces`: the client's bytes. An error that it raises names the line that was being read."""
        read = self._binary if self.options.binary else self._csv if self.options.csv else self._text
        yield from read(self._received(pieces))

    def _received(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            try:
                piece = next(pieces, None)
            except PostgresError as error:
                place = self._place_received()
                if place is not None:
                    error.within(place)
                raise
            if piece is None:
                return
            if not self.options.binary:
                self._newlines += piece.count(b"\n")
            yield piece

    def _place_received(self) -> str | None:
        """Return the context of the row of which the client has sent a part or nothing; None before the header of the binary format."""
        if not self.options.binary:
            return f"COPY {self.relation.name}, line {self._newlines + 1}"
        if self._held is None:
            return None
        parsed = read_copy_binary(bytes(self._held), len(self.columns))
        return self._field(bytes(self._held[parsed.consumed :]), self._line + parsed.row_count)

    def place(self, row: int, *, with_text: bool) -> str:
        """Return the context of an error of a row of the last portion, by its index. `with_text`: with the text of its line.

        PostgreSQL checks unique keys for many rows together, when it no longer has their text.
        """
        line = f"COPY {self.relation.name}, line {self._line_of(row)}"
        text = self._record(row).decode() if with_text else ""
        return f'{line}: "{_shown(text)}"' if text else line

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
        def shown(place: int, row: int) -> str:
            value = arrays[place][row].as_py()
            return ": null input" if value is None else f': "{_shown(value)}"'

        rows = len(arrays[0]) if arrays else 0
        readers = [
            text.reader(strings, column.type_oid, column.typmod, session=self.forms)
            for column, strings in zip(self.columns, arrays, strict=True)
        ]
        typed = self._read_all(readers, rows, shown)
        if rows:
            yield pa.table(typed, names=[column.name for column in self.columns])
        self._line += self._chunk.count(b"\n") if self.options.csv else rows

    def _read_all(self, readers: Sequence[text.ColumnReader], rows: int, shown: Callable[[int, int], str]) -> list[pa.Array]:
        """Read all columns. Raise the error of the first row with an invalid value. `shown`: returns the value of a column in a row."""
        try:
            return [read(0, rows) for read in readers]
        except PostgresError:
            row = text.first_refused(readers, rows)
            if row is None:
                raise
            for place, (column, read) in enumerate(zip(self.columns, readers, strict=True)):
                try:
                    read(row, 1)
                except PostgresError as error:
                    line = f"COPY {self.relation.name}, line {self._line_of(row)}"
                    raise error.within(f"{line}, column {column.name}{shown(place, row)}") from error.__cause__
            raise

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
            self._held = buffered
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
            raise PostgresError("22P04", "unexpected EOF in COPY data", context=self._field(bytes(buffered), self._line))

    def _field(self, row: bytes, number: int) -> str:
        """Return the context of an error of a row that is broken or not whole: its line (`number`), and the column that is not whole."""
        line, whole = f"COPY {self.relation.name}, line {number}", whole_fields(row, len(self.columns))
        return line if whole is None or whole == len(self.columns) else f"{line}, column {self.columns[whole].name}"

    def _check_end(self, held: bytearray, *, ended: bool) -> None:
        """Raise 22P04 for data after the trailer. The trailer is optional."""
        if ended and held:
            raise PostgresError("22P04", "received copy data after EOF marker", context=f"COPY {self.relation.name}, line {self._line}")

    def _binary_rows(self, held: bytearray) -> Generator[pa.Table, None, bool]:
        while True:
            chunk = bytes(held)
            try:
                parsed = read_copy_binary(chunk, len(self.columns))
            except PostgresError as error:
                raise error.within(self._field(chunk, self._line)) from error.__cause__
            del held[: parsed.consumed]
            if parsed.row_count:
                data = np.frombuffer(chunk, np.uint8)
                places = zip(self.columns, parsed.starts, parsed.lengths, strict=True)
                readers = [self._binary_reader(data, *place) for place in places]
                arrays = self._read_all(readers, parsed.row_count, lambda place, row: "")
                yield pa.table(arrays, names=[column.name for column in self.columns])
                self._line += parsed.row_count
            if parsed.ended or not parsed.row_count:
                return parsed.ended

    def _binary_reader(self, data: Bytes, column: Column, starts: Numbers, lengths: npt.NDArray[np.int32]) -> text.ColumnReader:
        oid, typmod, encoding = column.type_oid, column.typmod, self.options.encoding

        def read(first: int, count: int) -> pa.Array:
            rows = slice(first, first + count)
            return read_binary(data, starts[rows], lengths[rows], oid, typmod, encoding=encoding)

        return read


def _shown(value: str) -> str:
    return value[:SHOWN] + "..." if len(value) > SHOWN else value
