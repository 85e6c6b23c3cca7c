"""Portals: a result that is being sent, whole or in parts (manual, 55.2.3).

A `Portal` holds what `commands.execute` gave and sends it in pieces of at most so many rows. The session keeps named portals
(Bind, DECLARE CURSOR) until their transaction ends. What must hold: a portal's rows are sent once, in order; text is
turned into the binary form only for the columns whose format asks for it, and into the session's DateStyle and IntervalStyle when it
is sent: FETCH prints by the settings of its own moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.server.protocol import data_row
from headgate.types import text_column
from headgate.types.encoded import encoded
from headgate.types.resultset import ResultColumn, ResultSet
from headgate.types.text.text import read_text, styled

if TYPE_CHECKING:
    from headgate.server.protocol.connection import Connection
    from headgate.server.session.cursor import CursorPosition
    from headgate.settings.encoding import Encoding
    from headgate.sql.parser import Statement
    from headgate.storage.transaction.statement_view import StatementView


@dataclass(frozen=True)
class BoundParameter:
    """A bound parameter: its type and its text form (None = NULL)."""

    type_oid: int
    text: str | None


@dataclass(eq=False)
class PreparedStatement:
    """A prepared statement: `statement` is None for an empty query string."""

    name: str
    text: str
    statement: Statement | None
    parameters: tuple[int, ...]
    columns: tuple[ResultColumn, ...] | None
    from_sql: bool = False
    declared: tuple[int, ...] = ()

    @property
    def weight(self) -> int:
        """See `statement_memory`."""
        return 8192 + (len(self.text) if self.statement is None else self.statement.weight)


@dataclass(eq=False)
class Portal:
    """A statement that is bound to its parameters; `started` once it runs."""

    name: str
    prepared: PreparedStatement
    parameters: tuple[BoundParameter, ...]
    formats: tuple[int, ...] = ()
    rows: RowSource | None = None
    started: bool = False
    done: bool = False
    tag: str = ""
    hold: bool = False
    buffered: CursorPosition | None = None
    """Where a cursor stands."""
    view: StatementView | None = None
    """What a cursor that DECLARE has made was opened on."""
    chosen: dict[int, tuple[str, int]] = field(default_factory=dict)
    """See `OpenCursor`."""
    depth: int = 0
    """How many savepoints there were when it was opened."""
    fresh: bool = True
    """Whether it belongs to the transaction that is open, and not to an earlier one (WITH HOLD)."""
    failed: bool = False
    """An error has ended it; it cannot be run any more."""

    @property
    def weight(self) -> int:
        """See `statement_memory`."""
        return 4096 + sum(len(each.text or "") for each in self.parameters)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Its rows are taken inside; 55000 where an error has ended it before."""
        if self.failed:
            raise PostgresError("55000", f'portal "{self.name}" cannot be run')
        try:
            yield
        except BaseException:
            self.failed = True
            raise

    def keep(self) -> None:
        """It goes on behind its transaction: the rows that are left are computed now."""
        if self.rows is not None and self.buffered is not None:
            rest = self.buffered.new_store()
            for batch in self.rows.take(0):
                rest.append(batch)
            self.rows = RowSource(ResultSet(self.rows.columns, rest.part(0, rest.rows), self.rows.result.tag))
        self.fresh, self.depth = False, 0

    def close(self) -> None:
        """Lets go of what is behind the rows."""
        if self.rows is not None:
            self.rows.close()


def column_formats(formats: Sequence[int], columns: int) -> tuple[int, ...]:
    """One format code for each column out of Bind's list of none, one or all."""
    if not formats:
        return (0,) * columns
    if len(formats) == 1:
        return (formats[0],) * columns
    if len(formats) != columns:
        raise PostgresError("08P01", f"bind message has {len(formats)} result formats but query has {columns} columns")
    return tuple(formats)


class RowSource:
    """The rows of a ResultSet, to be taken in pieces."""

    def __init__(self, result: ResultSet) -> None:
        self.result = result
        self.columns = result.columns
        self.sent = 0
        self._batches: Iterator[pa.RecordBatch] = iter(result)
        self._rest: pa.RecordBatch | None = None

    def take(self, limit: int) -> Iterator[pa.RecordBatch]:
        """Batches of together at most `limit` rows; 0 = all."""
        left = limit
        while True:
            batch = self._next()
            if batch is None:
                return
            if limit and batch.num_rows > left:
                self._rest = batch.slice(left)
                batch = batch.slice(0, left)
            if limit:
                left -= batch.num_rows
            self.sent += batch.num_rows
            yield batch
            if limit and not left:
                return

    def _next(self) -> pa.RecordBatch | None:
        while True:
            if self._rest is not None:
                batch, self._rest = self._rest, None
            else:
                found = next(self._batches, None)
                if found is None:
                    return None
                batch = found
            if batch.num_rows:
                return batch

    def close(self) -> None:
        """Stops whatever computes the rows."""
        close = getattr(self.result.batches, "close", None)
        if close is not None:
            close()


def send(connection: Connection, source: RowSource, limit: int, formats: Sequence[int], forms: text_column.TextSettings) -> int:
    """Sends at most `limit` rows (0 = all) as DataRow, text in the styles of `forms` and the client's encoding; returns how many."""
    count, encoding = 0, connection.encoding
    for batch in source.take(limit):
        columns: list[pa.Array] = list(batch.columns)
        for place, code in enumerate(formats):
            described = source.columns[place]
            if code:
                columns[place] = binary_column(columns[place], described, encoding)
            else:
                columns[place] = encoded(styled(columns[place], described.type_oid, described.typmod, forms), encoding)
        for frames in data_row.data_rows(columns, batch.num_rows):
            connection.write(frames)
        count += batch.num_rows
    return count


def binary_column(texts: pa.Array, described: ResultColumn, encoding: Encoding) -> pa.Array:
    """A column of text forms in the type's binary (send) form."""
    from headgate.types.binary.binary import write_binary

    values = read_text(texts, described.type_oid, described.typmod)
    return write_binary(values, described.type_oid, encoding=encoding)
