"""The initial copy of a table: the publisher's rows as of the sync slot's snapshot, through its filters, into the Delta table.

Two ways, equal in result:

    one COPY      over the sync connection inside the transaction of the slot (`SNAPSHOT 'use'`), in PostgreSQL's text format, as
                  PostgreSQL's own table sync does it: for nodes, small tables, and tables whose column types differ
    parallel      ranges of the table's pages, one Spark task each, COPY in binary format under the snapshot that the slot
                  exported, decoded into Arrow and written as Parquet by the tasks: for large tables of a real PostgreSQL

Either way rows are appended in pieces, in bounded memory, and become visible at once, in the one commit that also writes state f and
the origin's position. `rows` and `bytes` are what pg_stat_progress_copy shows.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from headgate.catalog import subscription as subscriptions
from headgate.catalog.relation import Relation
from headgate.catalog.subscription import SubscriptionRel
from headgate.changes.merge import merge
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import parquet
from headgate.storage.delta import Action
from headgate.storage.log import OriginProgress
from headgate.storage.partitioned import Fence
from headgate.storage.transaction import Transaction
from headgate.subscriber import completion, conflict, convert, leafconstraints, partitioned
from headgate.subscriber.conflict import Place
from headgate.subscriber.convert import Session
from headgate.subscriber.relation import check_kind, map_columns, shown
from headgate.types import registry as r
from headgate.types.binary import read_binary
from headgate.types.copy import read_copy_text
from headgate.types.copy_binary import header_length, read_copy_binary
from headgate.types.storage import arrow_type
from headgate.types.text import first_refused, read_text
from headgate.walreceiver.connection import Connection, literal
from headgate.walreceiver.remote import RemoteRelation, copy_command, fetch_relation

if TYPE_CHECKING:
    from headgate.subscriber.tablesync import SyncWorker

_log = logging.getLogger("headgate.subscriber")

PARALLEL_SIZE = 48 << 20
"""Tables of at least this size at the publisher are read in parallel."""
RANGE_PAGES = 4096
"""Pages (8 kB) of the table that one task reads."""
RANGES_AT_ONCE = 16
"""Ranges of one Spark job; between two jobs the copy can be stopped, and its progress shows."""
FILE_BYTES = 48 << 20
"""Bytes of rows (in Arrow's form) that a task holds and writes as one file."""
PIECE = 8 << 20
"""Bytes of COPY data that one append of the single COPY takes."""
BINARY = frozenset(
    {
        r.BOOL, r.INT2, r.INT4, r.INT8, r.FLOAT4, r.FLOAT8, r.NUMERIC, r.TEXT, r.VARCHAR, r.BPCHAR, r.NAME, r.DATE, r.TIMESTAMP,
        r.TIMESTAMPTZ, r.BYTEA, r.UUID,
    }
)  # fmt: skip
"""Types that are copied in binary form."""
BEGIN = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"


class InitialCopy:
    """One copy, run by a table sync."""

    def __init__(self, worker: SyncWorker, relation: Relation, slot: str, origin: str) -> None:
        self.worker, self.relation, self.slot, self.origin = worker, relation, slot, origin
        self.rows = 0
        self.bytes = 0
        self.running = False

    def run(self, connection: Connection) -> Lsn:
        """Copies and commits; the position of the copy."""
        self.running = True
        started = time.monotonic()
        try:
            parallel = self._is_large(connection)
            transaction = self.worker.engine.begin(self.relation.database)
            transaction.cancelled = self.worker.check_stop
            try:
                with leafconstraints.unique(transaction, self.relation, self.worker.unique):
                    position = self._parallel(connection, transaction) if parallel else self._single(connection, transaction)
                self._commit(transaction, position)
            except BaseException as error:
                transaction.rollback()
                if isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError":
                    raise conflict.carried(error, Place()) from error
                raise
        finally:
            self.running = False
        seconds = time.monotonic() - started
        _log.info(
            'copied table "%s": %d rows in %.1f s (%d rows/s)', shown(self.relation), self.rows, seconds, self.rows / max(seconds, 1e-3)
        )
        return position

    def _commit(self, transaction: Transaction, position: Lsn) -> None:
        for index in self.relation.indexes:
            if index.unique and not index.plain and self.worker.unique is not None:
                self.worker.unique(transaction, self.relation, index)
        done = SubscriptionRel(self.worker.subscription.oid, self.relation.oid, "f", position)
        if not subscriptions.set_table(transaction.cursor, done):
            raise PostgresError(
                "XX000", f"subscription table {self.relation.oid} in subscription {self.worker.subscription.oid} does not exist"
            )
        transaction.commit(OriginProgress(self.origin, position))

    def _is_large(self, connection: Connection) -> bool:
        """Whether to copy in parallel: a plain table of a real PostgreSQL with TID range scans, of some size."""
        if connection.is_node or connection.server_version < 140000:
            return False
        name = f"{literal(self.relation.schema)} AND c.relname = {literal(self.relation.name)}"
        rows = connection.query(
            "SELECT pg_catalog.pg_relation_size(c.oid), c.relkind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            f" ON n.oid = c.relnamespace WHERE n.nspname = {name}"
        )
        return bool(rows) and rows[0][1] == "r" and int(rows[0][0] or 0) >= PARALLEL_SIZE

    def _prepare(self, transaction: Transaction, remote: RemoteRelation) -> _Target:
        check_kind(self.relation)
        local = self.relation
        if (rights := self.worker.rights) is not None:
            rights(transaction.cursor, local, {"I"})
        sources = map_columns(local, tuple(column.name for column in remote.columns))
        keys = {index.attnums for index in local.indexes if index.unique and index.plain}
        named = {column.name for column in remote.columns if column.key}
        trusted = all({c.name for c in local.columns if c.attnum in key} >= named and named for key in keys)
        empty = not any(state.files for state in transaction.states(local))
        return _Target(local, remote, sources, self.worker.session(), checked=bool(keys) and not (trusted and empty))

    # ---- one COPY ---------------------------------------------------------------------------------------

    def _single(self, connection: Connection, transaction: Transaction) -> Lsn:
        _begin(connection)
        created = connection.create_slot(self.slot, snapshot="use")
        publications = self.worker.subscription.publications
        remote = fetch_relation(connection, self.relation.schema, self.relation.name, publications)
        target = self._prepare(transaction, remote)
        sql = copy_command(remote)
        line = 1
        try:
            for piece in connection.copy_out(sql, PIECE):
                self.worker.check_stop()
                rows = target.of_text(piece, line)
                self._append(transaction, target, rows, line)
                line += rows.num_rows
                self.rows += rows.num_rows
                self.bytes += len(piece)
        except PostgresError as error:
            if error.message.startswith(("ERROR:", "FATAL:")):
                text = f'could not start initial contents copy for table "{shown(self.relation)}": {error.message}'
                raise PostgresError("08006", text) from error
            raise
        try:
            connection.query("COMMIT")
        except PostgresError as error:
            raise PostgresError("08006", f"table copy could not finish transaction on publisher: {error.message}") from error
        return created.consistent_point

    def _append(self, transaction: Transaction, target: _Target, rows: pa.Table, line: int) -> None:
        if not rows.num_rows:
            return
        if (factory := self.worker.rows) is not None and target.completed:
            rows = completion.complete_inserts(rows, target.local, target.sources, factory(transaction, target.local))
        if factory is not None and leafconstraints.needed(transaction, target.local):
            leafconstraints.check_rows(rows, target.local, transaction, factory)
        if self.relation.parent:
            partitioned.refuse_rows_outside(Fence(transaction.cursor, self.relation), rows)
        if not target.checked:
            transaction.append(self.relation, rows)
            return
        index, *others = [index for index in self.relation.indexes if index.unique and index.plain]
        if self.relation.kind == "p":
            others = []
        try:
            done = merge(transaction, self.relation, index.attnums, target.as_inserts(rows), others=others)
        except PostgresError as error:
            raise error.within(f"COPY {self.relation.name}, line {line}") from error
        if done.conflict is not None:
            twice = partitioned.duplicate_key(transaction, self.relation, done.conflict.key)
            raise twice.within(f"COPY {self.relation.name}, line {line + _row_of(rows, done.conflict.key)}")

    # ---- parallel ---------------------------------------------------------------------------------------

    def _parallel(self, connection: Connection, transaction: Transaction) -> Lsn:
        created = connection.create_slot(self.slot, snapshot="export")
        subscription = self.worker.subscription
        assert created.snapshot is not None
        with Connection.open(subscription.conninfo, self.slot, waker=self.worker.waker, replication=False) as reader:
            _begin(reader)
            reader.query(f"SET TRANSACTION SNAPSHOT {literal(created.snapshot)}")
            remote = fetch_relation(reader, self.relation.schema, self.relation.name, subscription.publications)
            target = self._prepare(transaction, remote)
            pages = int(reader.query(f"SELECT pg_catalog.pg_relation_size({remote.oid}) / 8192")[0][0] or 0)
            if target.checked or target.completed or not target.is_binary or self.relation.kind == "p" or self.relation.parent:
                for piece in reader.copy_out(copy_command(remote), PIECE):
                    self.worker.check_stop()
                    rows = target.of_text(piece, self.rows + 1)
                    self._append(transaction, target, rows, self.rows + 1)
                    self.rows += rows.num_rows
                    self.bytes += len(piece)
            else:
                conditions = _page_ranges(pages)
                place, physical = transaction.data_path(self.relation), dict(transaction.state(self.relation).physical)
                task = _CopyTask(subscription.conninfo, self.slot, created.snapshot, target, conditions, place, physical)
                actions: list[Action] = []
                for first in range(0, len(conditions), RANGES_AT_ONCE):
                    self.worker.check_stop()
                    actions += self._written(transaction, task, range(first, min(first + RANGES_AT_ONCE, len(conditions))))
                transaction.add_files(self.relation, actions)
        return created.consistent_point

    def _written(self, transaction: Transaction, task: _CopyTask, numbers: range) -> list[Action]:
        """Copies some ranges; the `add` actions of the files that the tasks wrote."""
        workers = min(len(numbers), self.worker.settings.integer("copy_workers_per_table"))
        ids = transaction.engine.spark.range(numbers.start, numbers.stop, 1, workers)
        done = ids.mapInArrow(task, "action string, rows bigint, bytes bigint").toArrow()
        self.rows += pc.sum(done["rows"]).as_py() or 0
        self.bytes += pc.sum(done["bytes"]).as_py() or 0
        return [json.loads(text) for text in done["action"].to_pylist()]


def _row_of(rows: pa.Table, key: pa.Table) -> int:
    """The last row with this key: the one that met another."""
    same = np.ones(rows.num_rows, np.bool_)
    for name in key.column_names:
        same &= np.asarray(pc.fill_null(pc.equal(rows[name], key[name][0]), False))
    found = np.flatnonzero(same)
    return int(found[-1]) if len(found) else 0


def _begin(connection: Connection) -> None:
    try:
        connection.query(BEGIN)
    except PostgresError as error:
        raise PostgresError("08006", f"table copy could not start transaction on publisher: {error.message}") from error


def _page_ranges(pages: int) -> list[str]:
    """Conditions on ctid that cut a table of so many pages (and what was added since) into ranges."""
    borders = list(range(RANGE_PAGES, pages, RANGE_PAGES))
    lower = [None, *borders]
    upper = [*borders, None]
    found = []
    for first, last in zip(lower, upper, strict=True):
        parts = [f"ctid >= '({first},0)'::tid"] if first is not None else []
        parts += [f"ctid < '({last},0)'::tid"] if last is not None else []
        found.append(" AND ".join(parts) or "true")
    return found


@dataclass(frozen=True)
class _Target:
    """The local table, the published one, and where each local column's value comes from. `checked`: keys must be looked up."""

    local: Relation
    remote: RemoteRelation
    sources: tuple[int | None, ...]
    session: Session
    checked: bool

    @property
    def completed(self) -> bool:
        """Whether rows need defaults, generated columns or checks."""
        return completion.needed(self.local, self.sources)

    @property
    def is_binary(self) -> bool:
        """Whether all published columns have the local column's type, one that is read in binary form."""
        pairs = [(c, self.remote.columns[s]) for c, s in zip(self.local.columns, self.sources, strict=True) if s is not None]
        return bool(pairs) and all(c.type_oid == remote.type_oid and c.type_oid in BINARY for c, remote in pairs)

    def of_text(self, piece: bytes, line: int) -> pa.Table:
        """Rows of COPY's text format."""
        names = [column.name for column in self.remote.columns]
        if not names:
            return self._empty(piece.count(b"\n"))
        texts = read_copy_text(piece, len(names), names=names, first_line=line)
        fields = []
        for column, source in zip(self.local.columns, self.sources, strict=True):
            if source is None:
                fields.append(pa.nulls(len(texts[0]) if texts else 0, arrow_type(column.type_oid, column.typmod)))
                continue
            try:
                fields.append(
                    read_text(texts[source], column.type_oid, column.typmod, timezone=self.session.timezone, registry=self.session.types)
                )
            except PostgresError as error:
                row = first_refused(texts[source], column.type_oid, column.typmod, timezone=self.session.timezone)
                value = "" if row is None else f': "{texts[source][row].as_py()}"'
                raise error.within(f"COPY {self.local.name}, line {line + (row or 0)}, column {column.name}{value}") from error
        return self._table(fields)

    def _empty(self, rows: int) -> pa.Table:
        """Rows of which nothing is sent."""
        if not self.local.columns:
            return pa.Table.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return self._table([pa.nulls(rows, arrow_type(c.type_oid, c.typmod)) for c in self.local.columns])

    def of_binary(self, data: np.ndarray, starts: tuple[np.ndarray, ...], lengths: tuple[np.ndarray, ...]) -> pa.Table:
        """Rows of COPY's binary format."""
        fields = []
        for column, source in zip(self.local.columns, self.sources, strict=True):
            if source is None:
                fields.append(pa.nulls(len(starts[0]), arrow_type(column.type_oid, column.typmod)))
            else:
                fields.append(
                    read_binary(data, starts[source], lengths[source], column.type_oid, column.typmod, registry=self.session.types)
                )
        return self._table(fields)

    def _table(self, fields: list[pa.Array]) -> pa.Table:
        for column, source, values in zip(self.local.columns, self.sources, fields, strict=True):
            if (
                column.not_null
                and column.generated is None
                and values.null_count
                and (source is not None or (column.default is None and not column.identity))
            ):
                row = int(np.flatnonzero(np.asarray(values.is_null()))[0])
                raise conflict.not_null(self.local, column.name, convert.row_text(self.local, [f.slice(row, 1) for f in fields]))
        return pa.table(fields, schema=pa.schema(list(convert.row_type(self.local.columns))))

    def as_inserts(self, rows: pa.Table) -> pa.Table:
        """The rows as a changes frame."""
        count = rows.num_rows
        row = convert.row_type(self.local.columns)
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
class _CopyTask:
    """What a Spark task does: copies the ranges whose numbers it gets, each over a connection of its own, into files of the table.

    The task writes the Parquet files itself and gives their `add` actions (JSON), rows and bytes: the rows do not pass through the
    JVM, whose row-wise writer takes several times as long as everything else.
    """

    conninfo: str
    name: str
    snapshot: str
    target: _Target
    conditions: list[str]
    place: Path
    physical: dict[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self._range(self.conditions[number])
        except PostgresError as error:
            raise conflict.carry(error, Place()) from error

    def _range(self, condition: str) -> Iterator[pa.RecordBatch]:
        held: list[pa.Table] = []
        size = taken = 0
        for rows, read in self._rows(condition):
            held.append(rows)
            size, taken = size + rows.nbytes, taken + read
            if size >= FILE_BYTES:
                yield self._file(held, taken)
                held, size, taken = [], 0, 0
        if held:
            yield self._file(held, taken)

    def _file(self, held: list[pa.Table], taken: int) -> pa.RecordBatch:
        rows = pa.concat_tables(held)
        action = json.dumps(parquet.write(self.place, rows, self.physical))
        return pa.RecordBatch.from_pydict({"action": [action], "rows": [rows.num_rows], "bytes": [taken]})

    def _rows(self, condition: str) -> Iterator[tuple[pa.Table, int]]:
        """The rows of a range piece by piece, and how many bytes each piece had."""
        target = self.target
        with Connection.open(self.conninfo, self.name, replication=False) as connection:
            connection.query(BEGIN)
            connection.query(f"SET TRANSACTION SNAPSHOT {literal(self.snapshot)}")
            rest = b""
            begun = False
            for piece in connection.copy_out(copy_command(target.remote, where=condition, binary=True), PIECE // 2):
                rest += piece
                at = 0
                if not begun:
                    header = header_length(rest)
                    if header is None:
                        continue
                    at, begun = header, True
                found = read_copy_binary(rest, len(target.remote.columns), at=at)
                if found.row_count:
                    yield target.of_binary(np.frombuffer(rest, np.uint8), found.starts, found.lengths), len(piece)
                rest = rest[found.consumed :]
