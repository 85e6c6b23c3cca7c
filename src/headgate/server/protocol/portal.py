"""Portals: results that are sent completely or in parts (manual, 55.2.3).

A `Portal` holds the result of `commands.execute` and returns it in parts with a limited number of rows. The session keeps named portals
(Bind, DECLARE CURSOR) until their transaction ends. Invariants: the rows of a portal are sent once and in order. Text is converted to the
binary format only in columns whose format code is 1. It is converted to the session's DateStyle and IntervalStyle when it is sent: FETCH
uses the settings at its own time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.server.protocol import data_row
from headgate.server.protocol.cursor_position import ALL, CursorPosition
from headgate.server.protocol.row_source import RowSource
from headgate.types import registry, text_column
from headgate.types.encoded import encoded
from headgate.types.resultset import ResultColumn, ResultSet
from headgate.types.text.text import read_text, styled

if TYPE_CHECKING:
    from headgate.commands.session import Parameter
    from headgate.server.protocol.connection import Connection
    from headgate.settings.encoding import Encoding
    from headgate.sql.parser import Statement
    from headgate.storage.transaction.statement_view import StatementView


@dataclass(eq=False)
class PreparedStatement:
    """A prepared statement. `statement` is None for an empty query string."""

    name: str
    text: str
    statement: Statement | None
    parameters: tuple[int, ...]
    columns: tuple[ResultColumn, ...] | None
    from_sql: bool = False
    declared: tuple[int, ...] = ()

    @property
    def weight(self) -> int:
        """The estimated memory in bytes (`statement_memory`)."""
        return 8192 + (len(self.text) if self.statement is None else self.statement.weight)


@dataclass(eq=False)
class Portal:
    """A statement with its bound parameters. `started` is set when it runs."""

    name: str
    prepared: PreparedStatement
    parameters: tuple[Parameter, ...]
    formats: tuple[int, ...] = ()
    rows: RowSource | None = None
    started: bool = False
    done: bool = False
    tag: str = ""
    hold: bool = False
    buffered: CursorPosition | None = None
    """The position, if it is used as a cursor."""
    binary: bool = False
    """Whether FETCH returns its rows in the binary format (DECLARE … BINARY)."""
    view: StatementView | None = None
    """The state that a cursor made by DECLARE sees."""
    chosen: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The `chosen` of its `OpenCursor`."""
    depth: int = 0
    """The number of savepoints that were open when it was opened."""
    fresh: bool = True
    """Whether it belongs to the open transaction. If not, it is a cursor WITH HOLD of an earlier one."""
    failed: bool = False
    """Whether an error has ended it, so that it cannot be run any more."""

    @property
    def weight(self) -> int:
        """The estimated memory in bytes (`statement_memory`)."""
        return 4096 + sum(len(parameter.text or "") for parameter in self.parameters)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Read its rows inside the context. Raise 55000 if an error has ended it before; an error inside ends it."""
        if self.failed:
            raise PostgresError("55000", f'portal "{self.name}" cannot be run')
        try:
            yield
        except BaseException:
            self.failed = True
            raise

    def take(self, source: RowSource, limit: int) -> Iterable[pa.RecordBatch]:
        """Return its next rows: at most `limit`, 0 = all. If it is used as a cursor, its position moves."""
        return source.take(limit) if self.buffered is None else self.buffered.forward(source, limit or ALL)

    def keep(self) -> None:
        """Compute the remaining rows at commit, so that a cursor WITH HOLD outlives its transaction."""
        if self.rows is not None and self.buffered is not None:
            remaining_rows = self.buffered.new_store()
            for batch in self.rows.take(0):
                remaining_rows.append(batch)
            self.rows = RowSource(ResultSet(self.rows.columns, remaining_rows.part(0, remaining_rows.rows), self.rows.result.tag))
        self.fresh, self.depth = False, 0

    def close(self) -> None:
        """Release the resources that compute the rows."""
        if self.rows is not None:
            self.rows.close()


def column_formats(formats: Sequence[int], columns: int) -> tuple[int, ...]:
    """Return one format code per column from the list in Bind, which has none, one or all. Raise 08P01 for another number."""
    if not formats:
        return (0,) * columns
    if len(formats) == 1:
        return (formats[0],) * columns
    if len(formats) != columns:
        raise PostgresError("08P01", f"bind message has {len(formats)} result formats but query has {columns} columns")
    return tuple(formats)


def send(
    connection: Connection, batches: Iterable[pa.RecordBatch], described_columns: Sequence[ResultColumn], formats: Sequence[int],
    forms: text_column.TextSettings,
) -> int:  # fmt: skip
    """Send rows as DataRow, in the styles of `forms` and the client's encoding. Return their number."""
    count, encoding = 0, connection.encoding
    for batch in batches:
        columns: list[pa.Array] = list(batch.columns)
        for index, (described, code) in enumerate(zip(described_columns, formats, strict=True)):
            if code:
                columns[index] = binary_column(columns[index], described, encoding)
            else:
                columns[index] = encoded(styled(columns[index], described.type_oid, described.typmod, forms), encoding)
        for frames in data_row.data_rows(columns, batch.num_rows):
            connection.write(frames)
        count += batch.num_rows
    return count


def binary_column(texts: pa.Array, described: ResultColumn, encoding: Encoding) -> pa.Array:
    """Convert a text column to the type's binary (send) format."""
    from headgate.types.binary.binary import send_record, write_binary

    if described.attributes is not None:
        return send_record(texts, described.attributes, registry.known(), encoding)
    values = read_text(texts, described.type_oid, described.typmod)
    return write_binary(values, described.type_oid, encoding=encoding)
