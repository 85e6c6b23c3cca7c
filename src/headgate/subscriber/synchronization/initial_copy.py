"""The initial copy of a table: the publisher's rows as of the sync slot's snapshot, through its filters, into the Delta table.

Two methods with the same result:

    one COPY      over the sync connection inside the transaction of the slot (`SNAPSHOT 'use'`), in PostgreSQL's text format, like
                  PostgreSQL's own table sync: for nodes and small tables
    parallel      ranges of the table's pages, one Spark job of one task each, `copy_workers_per_table` at a time, COPY in binary format
                  under the snapshot that the slot exported, decoded into Arrow and written as Parquet by the task: for large tables
                  of a real PostgreSQL; the progress is updated after each range, and the copy can be stopped between ranges. A session
                  that reads under the snapshot locks the table. If another session waits for that lock, the next range would wait
                  behind it, and it for the copy. So the range gives up after `LOCK_WAIT`, and the copy is repeated

With both, rows are appended in pieces, in bounded memory, and become visible at once, in the one commit that also writes state f and
the origin's position. `rows`, `bytes` and `estimate` are the progress that status and pg_stat_progress_copy show.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import SubscriptionRel, SyncState
from headgate.changes.merge import merge
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.lsn import Lsn
from headgate.storage.delta.file_action import Action
from headgate.storage.partitioned import Fence
from headgate.storage.spark import failure
from headgate.storage.transaction.log import OriginProgress
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows import leaf_constraints, partitioned, row_completion
from headgate.subscriber.rows.relation_map import check_kind, map_columns, shown
from headgate.subscriber.rows.row_triggers import FiringTriggers
from headgate.subscriber.synchronization.copy_target import BEGIN, PIECE, REFUSED, CopyTarget, CopyTask, keeps_distinct, lock
from headgate.subscriber.worker import Worker
from headgate.walreceiver import answer
from headgate.walreceiver.answer import PublisherError
from headgate.walreceiver.connection import CreatedSlot, PublisherConnection, literal, prefixed
from headgate.walreceiver.remote import RemoteRelation, copy_command, fetch_relation

_log = logging.getLogger("headgate.subscriber")

_REFUSED = (PostgresError, PySparkException, Py4JJavaError)
LINE_SHOWN = 100
"""The number of bytes of a line that the context of an error shows."""
RATED = 10_000
"""The number of rows from which the log reports a copy's rate."""
PARALLEL_SIZE = 8 << 20
"""The size in bytes on the publisher from which tables are read in parallel."""
Copied = Callable[[CreatedSlot, PublisherConnection, Transaction, RemoteRelation], None]
"""Copies the published table as seen by the session that reads under the slot's snapshot."""
Follow = Callable[[PublisherConnection, RemoteRelation], None]
MOST_BYTES = 32 << 40
"""The maximum size of a PostgreSQL table in bytes."""
MOST_ROWS = 1 << 62
CORE_PAGES = 512
"""The minimum number of pages (8 kB) per task for giving each core a task."""
RANGE_PAGES = (3072, 16384)
"""The minimum number of pages per task otherwise, because a job costs a tenth of a second, and the maximum number."""
STOP_SECONDS = 0.5
"""The seconds between two checks of a parallel copy whether it must stop."""
STILL_SECONDS = 20.0
"""The seconds without new rows after which a copy counts as stuck."""
STILL_RANGE_SECONDS = 120.0
"""The same for a parallel copy, which counts the rows of a range when the range is complete."""


class InitialCopy:
    """One copy, run by a table sync.

    `follow`: the function that gives the table the columns of the publisher's table (`schema_evolution`). `replaces`: whether the table
    was synchronized before and has rows. They stay visible until the copy commits.
    """

    is_copy = True
    """Whether all of the publisher's rows are copied, and not only those that differ (`Reconciliation`)."""

    def __init__(self, worker: Worker, relation: Relation, slot: str, follow: Follow, *, replaces: bool = False) -> None:
        self.worker, self.relation, self.slot, self.follow, self.replaces = worker, relation, slot, follow, replaces
        self.rows = 0
        self.bytes = 0
        self.estimate: int | None = None
        """The publisher's estimate of the table's rows, of which its filters may let fewer through; None if it has none."""
        self.seconds = 0.0
        self.running = False
        self.began = self._moved = time.monotonic()
        self._still_limit = STILL_SECONDS
        self._source: PublisherConnection | None = None
        """From which one COPY comes."""
        self._firing: FiringTriggers | None = None
        self._fires_later: list[Callable[[], None]] = []
        """The AFTER triggers of copied rows that fire when all rows are there."""

    @property
    def arrived(self) -> tuple[int, int]:
        """The rows and bytes that have arrived: those of complete pieces, and the messages of the next piece.

        PostgreSQL sends one message for each row.
        """
        rows, size = (0, 0) if self._source is None else self._source.arriving
        return self.rows + rows, self.bytes + size

    @property
    def still(self) -> float:
        """The seconds since data last arrived."""
        return time.monotonic() - max(self._moved, 0.0 if self._source is None else self._source.heard_at)

    @property
    def is_stuck(self) -> bool:
        """Whether that is too long. A reconciliation compares before it fetches anything, so its pauses do not count."""
        return self.is_copy and self.still > self._still_limit

    def count(self, rows: int, size: int) -> None:
        self.rows += rows
        self.bytes += size
        self._moved = time.monotonic()

    def run(self, connection: PublisherConnection) -> Lsn:
        """Copy and commit. Return the position of the copy."""
        self.running = True
        self.began = self._moved = started = time.monotonic()
        try:
            self.estimate = self._estimate_rows(connection)
            copied = self.choose_method(connection)
            with (self._use_slot if copied == self._single else self._export_snapshot)(connection) as (created, reader):
                remote = fetch_relation(reader, self.relation.schema, self.relation.name, self.worker.subscription.publications)
                lock(reader, remote)  # the copy may wait for the local table
                self.follow(reader, remote)
                self._copy_in_transaction(copied, created, reader, remote)
        finally:
            self.running = False
        seconds = self.seconds = time.monotonic() - started
        word = "copied" if self.is_copy else "reconciled"
        # the rate of a few rows would tell how long a copy takes to begin
        rate = f" ({self.rows / max(seconds, 1e-3):.0f} rows/s)" if self.rows >= RATED else ""
        _log.info('%s table "%s": %d rows in %.1f s%s', word, shown(self.relation), self.rows, seconds, rate)
        return created.consistent_point

    def choose_method(self, connection: PublisherConnection) -> Copied:
        """Return the method of copying."""
        return self._parallel if self._is_large(connection) else self._single

    def _copy_in_transaction(self, copied: Copied, created: CreatedSlot, reader: PublisherConnection, remote: RemoteRelation) -> None:
        """Copy in one transaction that also writes state f and the origin's position."""
        transaction = self.worker.engine.begin(self.relation.database)
        transaction.locks.cancelled = self.worker.patience
        try:
            self.relation = self._as_it_is(transaction)
            keys_checked = leaf_constraints.unique(transaction, self.relation, self.worker.unique, is_copy=self.is_copy)
            with self.worker.jobs(), keys_checked, self._statement_triggers(transaction):
                copied(created, reader, transaction, remote)
                self._look_at_indexes(transaction)
            self._commit(transaction, created.consistent_point)
        except BaseException as error:
            transaction.rollback()
            if isinstance(error, PySparkException | Py4JJavaError):
                raise failure.from_spark(error) from error
            raise

    def _as_it_is(self, transaction: Transaction) -> Relation:
        """Return the table as the transaction sees it. It may have been altered while the copy waited for the publisher."""
        current = relations.find(transaction.cursor, self.relation.database, self.relation.oid)
        if current is None:
            raise PostgresError("42P01", f'relation "{shown(self.relation)}" does not exist')
        return current

    def _look_at_indexes(self, transaction: Transaction) -> None:
        for index in self.relation.indexes:
            if index.unique and not index.plain:
                self.worker.unique.table(transaction, self.relation, index)

    def _commit(self, transaction: Transaction, position: Lsn) -> None:
        done = SubscriptionRel(self.worker.subscription.oid, self.relation.oid, SyncState.FINISHEDCOPY, position)
        if not subscriptions.set_table(transaction.cursor, done):
            raise PostgresError(
                "XX000", f"subscription table {self.relation.oid} in subscription {self.worker.subscription.oid} does not exist"
            )
        transaction.commit(OriginProgress(self.worker.origin, position))
        if self._firing is not None:
            self._firing.committed()

    def _estimate_rows(self, connection: PublisherConnection) -> int | None:
        """Return the publisher's estimate of the table's rows: `reltuples` scaled to the table's current size, else `n_live_tup`."""
        rows = connection.query(
            "SELECT c.relpages, c.reltuples::pg_catalog.int8, pg_catalog.pg_relation_size(c.oid) / 8192, s.n_live_tup"
            " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid"
            f" WHERE n.nspname = {literal(self.relation.schema)} AND c.relname = {literal(self.relation.name)}",
            4,
        )
        if not rows:
            return None
        pages, tuples, now, live = (0 if cell is None else answer.number(cell, least=-1, most=MOST_ROWS) for cell in rows[0])
        if tuples > 0:
            return tuples * max(now, 1) // pages if pages > 0 else tuples
        return live or None

    def _is_large(self, connection: PublisherConnection) -> bool:
        """Return whether to copy in parallel: a plain table of a real PostgreSQL with TID range scans, of at least PARALLEL_SIZE bytes."""
        if connection.is_node or connection.server_version < 140000:
            return False
        name = f"{literal(self.relation.schema)} AND c.relname = {literal(self.relation.name)}"
        rows = connection.query(
            "SELECT pg_catalog.pg_relation_size(c.oid), c.relkind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            f" ON n.oid = c.relnamespace WHERE n.nspname = {name}",
            2,
        )
        return bool(rows) and rows[0][1] == "r" and answer.number(rows[0][0], most=MOST_BYTES) >= PARALLEL_SIZE

    def target(self, transaction: Transaction, remote: RemoteRelation) -> CopyTarget:
        """Lock the table and return the target of the rows. Empty the table if the copy replaces its rows."""
        check_kind(self.relation)
        local = self.relation
        self.worker.rights(transaction.cursor, local, {"I"})
        sources = map_columns(local, tuple(column.name for column in remote.columns))
        session = self.worker.session()
        keys = {index.attnums for index in local.indexes if index.unique and index.plain}
        pairs = [(column, remote.columns[source]) for column, source in zip(local.columns, sources, strict=True) if source is not None]
        distinct = {published.name for column, published in pairs if keeps_distinct(column, published)}
        trusted = all({c.name for c in local.columns if c.attnum in key} >= remote.key for key in keys) and remote.key <= distinct
        transaction.lock(local)
        if self.replaces:
            transaction.truncate([local])
        empty = not any(state.files for state in transaction.reader.states(local))
        trusted = trusted and empty and bool(remote.key) and self._firing is None  # a trigger may change the keys
        return CopyTarget(local, remote, sources, session, checked=bool(keys) and not trusted)

    # ---- one COPY ---------------------------------------------------------------------------------------

    @contextmanager
    def _use_slot(self, connection: PublisherConnection) -> Iterator[tuple[CreatedSlot, PublisherConnection]]:
        """Create the slot, whose own session reads under its snapshot."""
        _begin(connection)
        created = connection.create_slot(self.slot, snapshot="use")
        try:
            yield created, connection
        except PublisherError as error:
            raise self._not_copied(error) from error
        try:
            connection.query("COMMIT")
        except PostgresError as error:
            raise prefixed(error, "08006", "table copy could not finish transaction on publisher") from error

    def _single(self, _: CreatedSlot, reader: PublisherConnection, transaction: Transaction, remote: RemoteRelation) -> None:
        self._copy_in_driver(reader, transaction, self.target(transaction, remote))

    def _copy_in_driver(self, reader: PublisherConnection, transaction: Transaction, target: CopyTarget) -> None:
        """Run one COPY in text format, and append its rows piece by piece."""
        self._source = reader
        for piece in reader.copy_out(copy_command(target.remote), PIECE):
            self.worker.check_stop()
            line = self.rows + 1
            rows = target.of_text(piece, line)
            with step(Step.COPY_RANGE):
                self._append(transaction, target, rows, line, piece)
            self.count(rows.num_rows, len(piece))

    @contextmanager
    def _statement_triggers(self, transaction: Transaction) -> Iterator[None]:
        """Fire the statement triggers before and after the copy, and at its end the AFTER triggers that need all rows."""
        self._firing = firing = self.worker.triggers(transaction, self.relation, collects=True)
        if firing is None:
            yield
            return
        with closing(firing):
            firing.statement(triggers.INSERT, before=True)
            yield
            for call in self._fires_later:
                call()
            firing.statement(triggers.INSERT, before=False)
            firing.settle()

    def _not_copied(self, error: PublisherError) -> PostgresError:
        return PostgresError("08006", f'could not start initial contents copy for table "{shown(self.relation)}": {error.message}')

    def _append(self, transaction: Transaction, target: CopyTarget, rows: pa.Table, line: int, piece: bytes) -> None:
        if not rows.num_rows:
            return
        if self._firing is not None:
            self._append_fired(transaction, target, rows, line, self._firing)
            return
        try:
            rows = self.checked(transaction, target, rows)
        except _REFUSED as error:
            raise self._error_of_line(error, transaction, target, rows, line, piece) from error
        self._add(transaction, target, rows, line)

    def _append_fired(self, transaction: Transaction, target: CopyTarget, rows: pa.Table, line: int, firing: FiringTriggers) -> None:
        """Append rows of a table with triggers. AFTER triggers fire after each piece, or at the end only if they read all rows."""
        try:
            completion = self.worker.rows(transaction, target.local)
            whole = row_completion.complete_inserts(rows, target.local, target.sources, completion, is_checked=False)
            written = list[pa.Table]()

            def write(rows: pa.Table) -> None:
                written.append(completion.checked(rows) if rows.num_rows else rows)
                self._add(transaction, target, written[-1], line)

            write(firing.before_insert(whole, write)[0])
            calls = firing.after(triggers.INSERT, None, pa.concat_tables(written, promote_options="permissive"))
            if firing.collects(triggers.INSERT):
                self._fires_later += calls
                return
            for call in calls:
                call()
        except _REFUSED as error:
            row_error = failure.from_spark(error)
            raise row_error.within(f"COPY {self.relation.name}, line {line}") from error

    def _add(self, transaction: Transaction, target: CopyTarget, rows: pa.Table, line: int) -> None:
        """Append rows that have been checked."""
        if not rows.num_rows:
            return
        if not target.checked:
            transaction.append(self.relation, rows)
            return
        index, *others = [index for index in self.relation.indexes if index.unique and index.plain]
        if self.relation.is_partitioned:
            others = []
        try:
            check_rows = partial(self.worker.unique.rows, transaction, self.relation, others) if others else None
            done = merge(transaction, self.relation, index.attnums, target.as_inserts(rows), check_rows=check_rows)
        except PostgresError as error:
            raise error.within(f"COPY {self.relation.name}, line {line}") from error
        if done.conflict is not None:
            twice = partitioned.duplicate_key(transaction, self.relation, done.conflict.key)
            raise twice.within(f"COPY {self.relation.name}, line {line + _row_of(rows, done.conflict.key)}")

    def checked(self, transaction: Transaction, target: CopyTarget, rows: pa.Table) -> pa.Table:
        """Return rows with their defaults and generated columns. Raise 23502 or 23514."""
        factory = self.worker.rows
        if target.completed:
            rows = row_completion.complete_inserts(rows, target.local, target.sources, factory(transaction, target.local))
        else:
            target.refuse_nulls(rows)
        leaf_constraints.check_rows(rows, target.local, transaction, factory)
        if self.relation.parent:
            partitioned.refuse_rows_outside(Fence(transaction.cursor, self.relation), rows)
        return rows

    def _error_of_line(
        self, error: BaseException, transaction: Transaction, target: CopyTarget, rows: pa.Table, line: int, piece: bytes
    ) -> PostgresError:
        """Return the error of the first rejected row, with its line as CONTEXT (CopyFromErrorCallback)."""
        good, bad = 0, rows.num_rows
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self.checked(transaction, target, rows.slice(good, middle - good))
            except _REFUSED as earlier:
                error, bad = earlier, middle
            else:
                good = middle
        row_line = piece.split(b"\n", bad)[good]
        text = row_line[:LINE_SHOWN].decode(errors="ignore")
        dots = "..." if len(row_line) > LINE_SHOWN else ""
        row_error = failure.from_spark(error)
        return row_error.within(f'COPY {self.relation.name}, line {line + good}: "{text}{dots}"')

    @contextmanager
    def _export_snapshot(self, connection: PublisherConnection) -> Iterator[tuple[CreatedSlot, PublisherConnection]]:
        """Create the slot, and a session that reads under its exported snapshot."""
        created = connection.create_slot(self.slot, snapshot="export")
        if created.snapshot is None:
            raise PostgresError("08P01", "publisher has exported no snapshot")
        conninfo, waker = self.worker.subscription.conninfo, self.worker.waker
        with PublisherConnection.open(conninfo, self.slot, waker=waker, replication=False) as reader:
            _begin(reader)
            reader.query(f"SET TRANSACTION SNAPSHOT {literal(created.snapshot)}")
            try:
                yield created, reader
            except PublisherError as error:
                raise self._not_copied(error) from error

    # ---- parallel ---------------------------------------------------------------------------------------

    def _parallel(self, created: CreatedSlot, reader: PublisherConnection, transaction: Transaction, remote: RemoteRelation) -> None:
        target = self.target(transaction, remote)
        if self._needs_driver(target):
            self._copy_in_driver(reader, transaction, target)
            return
        self._still_limit = STILL_RANGE_SECONDS
        size = reader.query(f"SELECT pg_catalog.pg_relation_size({remote.oid})", 1)
        pages = answer.number(size[0][0] if size else None, most=MOST_BYTES) // 8192
        cores = transaction.storage.spark.sparkContext.defaultParallelism
        conditions = page_ranges(pages, self.worker.settings.integer("copy_workers_per_table"), cores)
        place, state = transaction.data_path(self.relation), transaction.reader.state(self.relation)
        conninfo, snapshot = self.worker.subscription.conninfo, created.snapshot or ""
        task = CopyTask(conninfo, self.slot, snapshot, target, place, state.physical, state.lists)
        transaction.add_files(self.relation, self._copy_ranges(transaction, task, conditions))

    def _needs_driver(self, target: CopyTarget) -> bool:
        """Return whether rows are checked, completed or routed one piece after the other, so that tasks cannot write them."""
        local = self.relation
        is_routed = bool(local.is_partitioned or local.parent)
        return self._firing is not None or target.checked or target.completed or is_routed or not target.remote.columns

    def _copy_ranges(self, transaction: Transaction, task: CopyTask, conditions: Sequence[str]) -> list[Action]:
        """Copy all ranges, several at a time. Return the `add` actions of the files that the tasks wrote, in the order of the ranges."""
        spark = transaction.storage.spark

        def copied_by_task(condition: str) -> pa.Table:
            one_task = spark.range(0, 1, 1, 1)
            with step(Step.COPY_RANGE):
                return one_task.mapInArrow(partial(task, condition), "action string, rows bigint, bytes bigint").toArrow()

        def copied(condition: str) -> pa.Table:
            self.worker.in_jobs()
            try:
                return copied_by_task(condition)
            except (PySparkException, Py4JJavaError) as error:
                if failure.from_spark(error).message != REFUSED:
                    raise
            task.check(condition, self.worker.check_stop)
            return copied_by_task(condition)  # the error was temporary, such as that of a connection

        actions: list[Action] = []
        pool = ThreadPoolExecutor(self.worker.settings.integer("copy_workers_per_table"), "copy")
        try:
            for future in [pool.submit(copied, condition) for condition in conditions]:
                while not wait([future], STOP_SECONDS).done:
                    self.worker.check_stop()
                done = future.result()
                self.count(pc.sum(done["rows"]).as_py() or 0, pc.sum(done["bytes"]).as_py() or 0)
                actions += [json.loads(text) for text in done["action"].to_pylist()]
        except BaseException:
            transaction.has_left_files(self.relation)
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return actions


def _row_of(rows: pa.Table, key: pa.Table) -> int:
    """Return the index of the last row with this key: the one that violated the unique constraint."""
    same = np.ones(rows.num_rows, np.bool_)
    for name in key.column_names:
        same &= np.asarray(pc.fill_null(pc.equal(rows[name], key[name][0]), False))
    matches = np.flatnonzero(same)
    return int(matches[-1]) if len(matches) else 0


def _begin(connection: PublisherConnection) -> None:
    try:
        connection.query(BEGIN)
    except PostgresError as error:
        raise prefixed(error, "08006", "table copy could not start transaction on publisher") from error


def page_ranges(pages: int, workers: int, cores: int) -> list[str]:
    """Return conditions on ctid that split a table of so many pages, and the pages added since, into even ranges.

    There is a range for each core if each has `CORE_PAGES`, and two for each worker if each has the minimum of `RANGE_PAGES`.
    """
    least, most = RANGE_PAGES
    count = max(-(-pages // most), min(2 * workers, pages // least), min(cores, pages // CORE_PAGES), 1)
    borders = [pages * number // count for number in range(1, count)]
    lower = [None, *borders]
    upper = [*borders, None]
    ranges = []
    for first, last in zip(lower, upper, strict=True):
        parts = [f"ctid >= '({first},0)'::tid"] if first is not None else []
        parts += [f"ctid < '({last},0)'::tid"] if last is not None else []
        ranges.append(" AND ".join(parts) or "true")
    return ranges
