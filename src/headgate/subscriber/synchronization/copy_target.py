"""The target of an initial copy: the local table, the published table, and the source of each local column's value.

`CopyTarget` turns pieces of COPY's text and binary formats into rows. `CopyTask` runs in a Spark task of a parallel copy.
Made by `initial_copy` and sent to Spark's workers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.sql.names import qualified
from headgate.storage.delta import array_column, parquet
from headgate.storage.delta.array_column import Lists
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark import failure
from headgate.subscriber.rows import conflict, conversion, row_completion
from headgate.subscriber.rows.conversion import InputSettings
from headgate.types import registry as r
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.binary.binary import read_binary
from headgate.types.binary.copy_binary import header_length, read_copy_binary
from headgate.types.copy_text import read_copy_text
from headgate.types.registry import TypeKind
from headgate.types.storage import arrow_type
from headgate.types.text.text import first_refused, read_text, reader
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.remote import RemoteColumn, RemoteRelation, copy_command

FILE_BYTES = 48 << 20
"""The number of bytes of rows, in Arrow's form, that a task buffers and writes as one file."""
PIECE = 8 << 20
"""The number of bytes of COPY data per append of a single COPY."""
BEGIN = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"
_INTEGERS = frozenset({r.INT2, r.INT4, r.INT8})
REFUSED = "tasks could not copy a range"
"""The message of a task's error in place of PostgreSQL's."""
LOCK_WAIT = "2s"
"""The maximum time for which a task waits for the table's lock. Only another session that waits for the copy makes it wait."""


@dataclass(frozen=True)
class CopyTarget:
    """The local table, the published one, and the source of each local column's value. `checked`: keys must be looked up."""

    local: Relation
    remote: RemoteRelation
    sources: tuple[int | None, ...]
    session: InputSettings
    checked: bool

    @property
    def completed(self) -> bool:
        """Whether rows need defaults, generated columns or checks."""
        return row_completion.needed(self.local, self.sources)

    @property
    def texts(self) -> frozenset[RemoteColumn]:
        """The published columns that a copy in binary format reads in text form."""
        pairs = [(c, self.remote.columns[s]) for c, s in zip(self.local.columns, self.sources, strict=True) if s is not None]
        return frozenset(remote for c, remote in pairs if c.type_oid != remote.type_oid or not _in_binary(c.type_oid))

    def of_text(self, piece: bytes, line: int) -> pa.Table:
        names = [column.name for column in self.remote.columns]
        if not names:
            return self._empty(piece.count(b"\n"))
        return self.of_texts(read_copy_text(piece, len(names), names=names, first_line=line), line)

    def of_texts(self, texts: Sequence[pa.Array], line: int) -> pa.Table:
        """Return rows from the text forms of the published columns."""
        fields = []
        for column, source in zip(self.local.columns, self.sources, strict=True):
            if source is None:
                fields.append(pa.nulls(len(texts[0]) if texts else 0, arrow_type(column.type_oid, column.typmod)))
                continue
            try:
                fields.append(
                    read_text(texts[source], column.type_oid, column.typmod, session=self.session.forms, registry=self.session.types)
                )
            except PostgresError as error:
                read = reader(texts[source], column.type_oid, column.typmod, session=self.session.forms)
                row = first_refused([read], len(texts[source]))
                value = "" if row is None else f': "{texts[source][row].as_py()}"'
                raise error.within(f"COPY {self.local.name}, line {line + (row or 0)}, column {column.name}{value}") from error
        return self._table(fields)

    def _empty(self, rows: int) -> pa.Table:
        """Return rows without any sent column."""
        if not self.local.columns:
            return pa.Table.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return self._table([pa.nulls(rows, arrow_type(c.type_oid, c.typmod)) for c in self.local.columns])

    def of_binary(self, data: np.ndarray, starts: tuple[np.ndarray, ...], lengths: tuple[np.ndarray, ...]) -> pa.Table:
        """Return rows of COPY's binary format, with `texts` in text form."""
        fields = []
        texts, types = self.texts, self.session.types
        for column, source in zip(self.local.columns, self.sources, strict=True):
            if source is None:
                fields.append(pa.nulls(len(starts[0]), arrow_type(column.type_oid, column.typmod)))
                continue
            as_text = self.remote.columns[source] in texts
            form = (r.TEXT, -1) if as_text else (column.type_oid, column.typmod)
            values = read_binary(data, starts[source], lengths[source], *form, registry=types)
            if as_text:
                try:
                    values = read_text(values, column.type_oid, column.typmod, session=self.session.forms, registry=types)
                except PostgresError as error:
                    raise error.within(f"COPY {self.local.name}, column {column.name}") from error
            fields.append(values)
        rows = self._table(fields)
        self.refuse_nulls(rows)
        return rows

    def _table(self, fields: list[pa.Array]) -> pa.Table:
        return pa.table(fields, schema=pa.schema(list(conversion.row_type(self.local.columns))))

    def refuse_nulls(self, rows: pa.Table) -> None:
        """Raise 23502 for complete rows with NULL in a NOT NULL column."""
        for column, values in zip(self.local.columns, rows.columns, strict=True):
            if column.not_null and column.generated is None and values.null_count:
                row = int(np.flatnonzero(np.asarray(values.is_null()))[0])
                fields = [column_values.slice(row, 1).combine_chunks() for column_values in rows.columns]
                raise conflict.not_null(self.local, column.name, conversion.row_text(self.local, fields))

    def as_inserts(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        row = conversion.row_type(self.local.columns)
        new = pa.StructArray.from_arrays([c.combine_chunks() for c in rows.columns], fields=list(row))
        return pa.table(
            {
                "commit_lsn": pa.array(np.zeros(count, np.int64)),
                "seq": pa.array(np.arange(count)),
                "position": pa.array(np.zeros(count, np.int64)),
                "op": pa.array(["I"]).take(pa.array(np.zeros(count, np.int64))),
                "old": pa.nulls(count, row),
                "new": new,
            }
        )


@dataclass(frozen=True)
class CopyTask:
    """A Spark task that copies a range of the published table, over its own connection, into files of the local one.

    The task writes the Parquet files itself and returns their `add` actions (JSON), rows and bytes. So the rows do not pass through the
    JVM, whose row-wise writer takes several times as long as everything else. Its error has the message REFUSED instead of PostgreSQL's,
    which may show values: executors have their own logs.
    """

    conninfo: str
    name: str
    snapshot: str
    target: CopyTarget
    place: DataPath
    physical: Mapping[str, str]
    lists: Lists

    def __call__(self, condition: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For mapInArrow: yield one row for each file. `condition` selects the rows."""
        for _ in batches:  # Spark reuses a worker for the next task if it has read all its input
            pass
        r.use(self.target.session.types)
        with failure.carried(REFUSED):
            yield from self._range(condition)

    def check(self, condition: str, check: Callable[[], None]) -> None:
        """Read a range without writing it. Called in the driver, to raise the error of a task with its message. `check` as in `Link`."""
        r.use(self.target.session.types)
        for _ in self._rows(condition, check):
            pass

    def _range(self, condition: str) -> Iterator[pa.RecordBatch]:
        held: list[pa.Table] = []
        size = source_bytes = 0
        for rows, read in self._rows(condition):
            held.append(rows)
            size, source_bytes = size + rows.nbytes, source_bytes + read
            if size >= FILE_BYTES:
                yield self._file(held, source_bytes)
                held, size, source_bytes = [], 0, 0
        if held:
            yield self._file(held, source_bytes)

    def _file(self, held: list[pa.Table], source_bytes: int) -> pa.RecordBatch:
        rows = pa.concat_tables(held)
        action = json.dumps(parquet.write(self.place, array_column.to_file(rows, self.lists), self.physical))
        return pa.RecordBatch.from_pydict({"action": [action], "rows": [rows.num_rows], "bytes": [source_bytes]})

    def _rows(self, condition: str, check: Callable[[], None] | None = None) -> Iterator[tuple[pa.Table, int]]:
        """Yield the rows of a range piece by piece, and the number of bytes of each piece."""
        target = self.target
        command = copy_command(target.remote, where=condition, binary=True, texts=target.texts)
        with PublisherConnection.open(self.conninfo, self.name, check=check, replication=False) as connection:
            connection.query(BEGIN)
            connection.query(f"SET TRANSACTION SNAPSHOT {literal(self.snapshot)}")
            connection.query(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
            rest = b""
            begun = ended = False
            for piece in connection.copy_out(command, PIECE // 2):
                rest += piece
                at = 0
                if not begun:
                    header = header_length(rest)
                    if header is None or header > len(rest):
                        continue
                    at, begun = header, True
                parsed = read_copy_binary(rest, len(target.remote.columns), at=at)
                if parsed.row_count:
                    yield target.of_binary(np.frombuffer(rest, np.uint8), parsed.starts, parsed.lengths), len(piece)
                rest, ended = rest[parsed.consumed :], parsed.ended
            if not ended:
                raise PostgresError("22P04", "unexpected EOF in COPY data")


def lock(reader: PublisherConnection, published: RemoteRelation) -> None:
    """Keep other sessions from altering or rewriting a published table until the end of the reader's transaction.

    A rewrite (VACUUM FULL, ALTER TABLE) gives rows another ctid, or hides them from the snapshot. Ranges that are read later lack them.
    """
    reader.query(f"SELECT 1 FROM {qualified(published.schema, published.name)} LIMIT 0")


def keeps_distinct(column: Column, published: RemoteColumn) -> bool:
    """Return whether different values of a published column are different in the local one: its type does not round or trim them."""
    if column.type_oid == published.type_oid < r.FIRST_USER_OID:
        return column.typmod in (-1, published.typmod)
    if column.type_oid in _INTEGERS:
        return published.type_oid in _INTEGERS
    if column.type_oid in (r.TEXT, r.VARCHAR):
        return column.typmod == -1
    local_type = r.known().find(column.type_oid)
    return local_type is not None and local_type.kind == TypeKind.ENUM


def _in_binary(oid: int) -> bool:
    """Return whether a parallel copy reads a type in binary form if both sides have the same type: no function must run for each value."""
    described = BASE_TYPES.get(oid)
    return described is not None and described.receive is not None and described.in_bulk
