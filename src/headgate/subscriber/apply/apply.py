"""Applies segments of the stream: decodes, converts and merges the changes, and commits all tables together with the origin's progress.

Each stream has one `Applier`. The apply worker uses one for all ready tables, and a table sync uses one for its table. The driver decodes
and merges a segment part by part, so that a transaction of any size is applied in bounded memory. A segment of more than
`small_batch_rows` changes is one Spark job (`batch`).
Invariant: the data and the progress are one commit. A segment that fails leaves no changes. After a failure the segment is halved
repeatedly, so that the transactions before the failing one are applied, and the error names exactly that transaction.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Index, Relation
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import SubscriptionRel
from headgate.changes import tasks
from headgate.changes.merge import merge, merged_by_tasks
from headgate.changes.merged import Merged
from headgate.changes.tasks import Part, TaskTable
from headgate.errors import PostgresError, Severity
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.storage.engine import Engine
from headgate.storage.transaction.log import OriginProgress
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply import conflict, evolution, insertion, leaf_constraints, partitioned, row_completion, updated_rows
from headgate.subscriber.apply.batch import Batch
from headgate.subscriber.apply.conflict import ApplyPlace
from headgate.subscriber.apply.conversion import InputSettings
from headgate.subscriber.apply.decoding import TableChanges
from headgate.subscriber.apply.evolution import DescribedTable, Evolve, Evolved
from headgate.subscriber.apply.relation_map import MissingColumnsError, MissingRelationError
from headgate.subscriber.apply.row_triggers import FiringTriggers, TriggeredTable, TriggerFactory
from headgate.subscriber.apply.table_history import LackingHistoryError
from headgate.subscriber.subscription_statistics import Counters
from headgate.walreceiver.segment import Segment

_log = logging.getLogger("headgate.subscriber")

RETRIED = frozenset({"40001", "40P01"})
PENDING_PAUSE = 1.0
"""The seconds between two attempts to apply the changes in `Applier.pending`."""
FAILED_PAUSE = 5.0
"""The seconds until the next attempt after an error, such as a conflict with a table sync."""
NOT_HALVED = frozenset({"57P01", "57014", "53100", "53200"})
_OPERATIONS = {"d": "U", "i": "U"}
"""The operation of which each half of a split UPDATE is a part (`changes.net`)."""
Later = dict[tuple[int, int], tuple[Relation, Index]]
"""Unique indexes to check after the whole segment is written, with their tables, by the oids of table and index."""


@dataclass(frozen=True)
class AppliedStream:
    """The source of the changes: the subscription, the origin, and, for a table sync, its one table (`only`)."""

    subscription: int
    database: int
    origin: str
    only: int | None = None
    everything: bool = False
    """Whether the states of tables are ignored. True for a prepared transaction that is finished by hand: its tables were ready when it was
    prepared.
    """
    name: str = ""
    """The name of the subscription, which Spark shows with its jobs."""

    def applied_from(self, relation: int, state: SubscriptionRel | None) -> int | None:
        """Return the commit LSN from which a table's changes are applied, or None if none are applied (should_apply_changes_for_rel)."""
        if self.everything:
            return 0
        if self.only is not None:
            return 0 if relation == self.only else None
        return None if state is None else state.applied_from


@dataclass
class Applier:
    """Applies the segments of one stream.

    `session` returns the settings that input functions depend on. `stopping` raises an error if the worker must end.
    """

    engine: Engine
    stream: AppliedStream
    session: Callable[[], InputSettings]
    stopping: Callable[[], None]
    rows: row_completion.Factory | None = None
    """Completes and checks rows of tables that need it (`row_completion`)."""
    rights: Callable[[CatalogCursor, Relation, set[str]], None] | None = None
    """Raises an error if changes of these kinds may not be applied to a table."""
    evolve: Evolve | None = None
    """Changes tables to match the columns that the publisher described (schema_evolution)."""
    unique: Callable[[Transaction, Relation, Index], None] | None = None
    """Raises 23505 if the table holds a key of a unique index twice. Used for the indexes that `merge` cannot check."""
    triggers: TriggerFactory | None = None
    """Returns the triggers of a table that fire for applied changes."""
    follow: bool = False
    """Whether tables follow every change of columns on the publisher, and do not only get the columns that they lack."""
    join: Callable[[], bool] | None = None
    """Adds published tables that do not exist here to the subscription, and returns whether there were any (create_tables)."""
    jobs: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """A context in which stopping the worker cancels its Spark jobs."""
    left_out: Callable[[dict[int, int]], None] = lambda _: None
    """Receives the numbers of skipped changes, by relation, for tables that are not in the subscription."""
    record: Callable[[], None] | None = None
    """Begins and extends the histories of tables (`table_history`). None if the subscription does not keep histories."""
    synchronize_again: Callable[[int], None] = lambda _: None
    """Requests a new synchronization of a table whose columns cannot be determined from the stream."""
    relations: dict[int, m.Relation] = field(default_factory=dict)
    """The publisher's Relation messages on this connection, by relation."""
    types: dict[int, m.Type] = field(default_factory=dict)
    """The publisher's Type messages on this connection, by oid, for types that are not built in."""
    place: ApplyPlace = field(default_factory=ApplyPlace)
    counters: Counters = field(default_factory=Counters)
    _left: dict[int, int] = field(default_factory=dict)
    """The numbers of skipped changes of the current segment, by relation."""
    _done: Counters = field(default_factory=Counters)
    """The counters of the current segment."""
    _firing: FiringTriggers | None = None
    """The triggers of the table that fired last in the current segment."""
    numbers: dict[m.Relation, tuple[int | None, ...]] = field(default_factory=dict)
    """The publisher's attribute numbers of the columns of relations that were followed."""
    pending: Evolved | None = None
    """Tables with columns that must become NOT NULL after the stream has been applied up to a position."""
    _followed: dict[int, tuple[int, m.Relation]] = field(default_factory=dict)
    """The Relation message that was followed last, by relation, with its sequence number in the stream."""
    unfollowed: str | None = None
    """The error of the last attempt to follow the publisher's ALTER TABLE, or None."""
    _look_again: float = 0.0
    """The monotonic time of the next attempt for `pending`."""

    def apply(self, segment: Segment, applied: Callable[[Lsn], None] = lambda _: None) -> None:
        """Apply a segment. Call `applied` with the end of each part that has become durable: more than once if a part fails.

        Raises the error of the first transaction that cannot be applied, with its context.
        """
        place = self._change_of_columns(segment)
        if place:
            first, second = segment.split(place)
            self.apply(first, applied)
            self.apply(second, applied)
            return
        try:
            self._apply_retrying(segment)
        except PostgresError as error:
            if error.sqlstate in NOT_HALVED or error.severity is Severity.FATAL:
                raise
            count = len(segment.transactions)
            if count <= 1:
                raise self._in_context(error, segment) from error
            first, second = segment.split(count // 2)
            self.apply(first, applied)
            self.apply(second, applied)
        else:
            applied(segment.end)

    def check(self, segment: Segment) -> None:
        """Apply the one transaction of a segment and roll it back. Raise the error that applying it would raise."""
        with self._as_context(segment):
            self._apply_retrying(segment, dry=True)

    def finish(self, segment: Segment, also: Callable[[CatalogCursor], None]) -> None:
        """Apply the one transaction of a segment, which may be empty, with its progress and the catalog changes that `also` makes."""
        with self._as_context(segment):
            self._apply_retrying(segment, also=also)

    @contextmanager
    def _as_context(self, segment: Segment) -> Iterator[None]:
        """Add the context of the segment's one transaction to errors that are raised inside."""
        try:
            yield
        except PostgresError as error:
            if error.severity is Severity.FATAL:
                raise
            raise self._in_context(error, segment) from error

    def learn(self, segment: Segment) -> None:
        """Store the Relation and Type messages of a segment."""
        self.relations.update(_relations(segment))
        self.types.update(_types(segment))

    def _in_context(self, error: PostgresError, segment: Segment) -> PostgresError:
        finish_lsn = Lsn(segment.transactions.commit_lsn[0])
        return error.within(conflict.context(self.stream.origin, self.place, int(segment.transactions.xid[0]), finish_lsn))

    def _apply_retrying(self, segment: Segment, *, dry: bool = False, also: Callable[[CatalogCursor], None] | None = None) -> None:
        self._follow(segment)
        by_tasks = self._is_for_tasks(segment)
        nullable: set[tuple[str | None, ...]] = set()
        for attempt in range(10):
            try:
                self._apply_once(segment, by_tasks=by_tasks, dry=dry, also=also)
            except MissingColumnsError as error:
                if attempt == 9 or error.remote is None or not self._have_followed([evolution.of_relation(error.remote)]):
                    raise
            except LackingHistoryError:
                if self.record is None or attempt == 9:
                    raise
                self.record()
            except MissingRelationError:
                if self.join is None or attempt == 9 or not self.join():
                    raise
            except PostgresError as error:
                if error.message == tasks.REFUSED:  # the error of a task has no details
                    by_tasks = False
                elif attempt == 0 and error.sqlstate == "22P02" and "for enum" in error.message:
                    described = [evolution.of_relation(relation) for relation in (self.relations | _relations(segment)).values()]
                    if not self._have_followed([replace(table, altered=False) for table in described]):
                        raise
                elif error.sqlstate == "23502" and self.follow and (column := (error.schema, error.table, error.column)) not in nullable:
                    nullable.add(column)
                    self._have_followed(self._nullable(error))
                elif error.sqlstate not in RETRIED or attempt == 9:
                    raise
                self.stopping()
            else:
                return

    def _change_of_columns(self, segment: Segment) -> int:
        """Return the number of transactions before the first one that changes the columns of a table, or 0 if none does.

        If tables follow the publisher, the rows before such a change are applied before the table changes here.
        """
        if self.evolve is None or len(segment.transactions) < 2:
            return 0
        described = dict(self.relations)
        for seq, _, relation in segment.others:
            if isinstance(relation, m.Relation):
                known_relation = described.setdefault(relation.relation, relation)
                index = int(np.searchsorted(segment.transactions.begin, seq, side="right")) - 1
                if known_relation.columns != relation.columns and index > 0:
                    return index
                described[relation.relation] = relation
        return 0

    def _follow(self, segment: Segment) -> None:
        """Change tables once to match the Relation messages of a segment, in their order."""
        if not self.follow or self.evolve is None:
            return
        messages: list[tuple[int, m.Relation]] = []
        for seq, _, relation in segment.others:  # the messages have no LSN of their own
            if isinstance(relation, m.Relation):
                if self._followed.get(relation.relation) == (seq, relation):  # followed, as are the messages before it
                    messages = [message for message in messages if message[1].relation != relation.relation]
                else:
                    messages.append((seq, relation))
        due = self._due(segment, messages) if messages else []
        evolved = self._have_followed([evolution.of_relation(relation) for _, relation in due]) if due else None
        if evolved is not None:
            self.numbers |= {relation: numbers for (_, relation), numbers in zip(due, evolved.numbers, strict=True)}
            self._followed |= {relation.relation: (seq, relation) for seq, relation in due}

    def _nullable(self, error: PostgresError) -> list[DescribedTable]:
        """Return the table and column of a 23502 error, as nullable.

        The row came from the publisher, so the column was not NOT NULL there when the row was written.
        """
        transaction = self.engine.begin(self.stream.database)
        try:
            cursor, database = transaction.cursor, self.stream.database
            table = relations.lookup(cursor, database, error.schema or "", error.table or "")
            oids = [] if table is None else [table.oid, *relations.ancestors(cursor, database, table.oid)]
            states = {state.relation for state in subscriptions.tables(cursor, self.stream.subscription)}
            tables = [relations.get(cursor, database, oid) for oid in oids if oid in states]
        finally:
            transaction.rollback()
        return [DescribedTable(table.schema, table.name, altered=False, nullable=frozenset({error.column or ""})) for table in tables]

    def _have_followed(self, tables: Sequence[DescribedTable]) -> Evolved | None:
        """Change tables to match their descriptions. Return None if tables do not follow.

        Tables with unclear columns are synchronized again.
        """
        if self.evolve is None:
            return None
        evolved = self.evolve(tables)
        for relation in evolved.unclear:
            self.synchronize_again(relation)
        self.pending = evolved.with_others(self._pending_besides(tables))
        return evolved

    def _pending_besides(self, tables: Sequence[DescribedTable]) -> list[DescribedTable]:
        """Return the pending tables without these."""
        names = {(table.schema, table.name) for table in tables}
        return [table for table in self.pending.pending if (table.schema, table.name) not in names] if self.pending else []

    def _due(self, segment: Segment, new: Sequence[tuple[int, m.Relation]]) -> list[tuple[int, m.Relation]]:
        """Drop the descriptions of tables from before the position at which their changes start to be applied.

        A table sync has already given the table the publisher's columns at a later position, and has followed the stream from there.
        """
        begins, ends = segment.transactions.begin, segment.transactions.commit_lsn
        first = self._applied_from([evolution.of_relation(relation) for _, relation in new])
        indexes = [max(int(np.searchsorted(begins, seq, side="right")) - 1, 0) for seq, _ in new]
        return [
            message for message, applied, index in zip(new, first, indexes, strict=True) if applied is not None and ends[index] >= applied
        ]

    def _applied_from(self, tables: Sequence[DescribedTable]) -> list[int | None]:
        """Return the commit LSN from which each table's changes are applied. None: no changes.

        0: all changes, or the table does not exist here.
        """
        transaction = self.engine.begin(self.stream.database)
        try:
            states = {state.relation: state for state in subscriptions.tables(transaction.cursor, self.stream.subscription)}
            positions: list[int | None] = []
            for table in tables:
                local = relations.lookup(transaction.cursor, self.stream.database, table.schema, table.name)
                positions.append(0 if local is None else self.stream.applied_from(local.oid, states.get(local.oid)))
            return positions
        finally:
            transaction.rollback()

    def add_pending(self, tables: Sequence[DescribedTable], position: Lsn) -> None:
        """Add tables to `pending`: they may have columns that become NOT NULL after the stream has been applied up to a position."""
        remaining = self._pending_besides(tables)
        position = max(position, self.pending.position) if self.pending else position
        self.pending = Evolved((), position=position).with_others([*remaining, *tables])

    def follow_pending(self, applied: Lsn) -> None:
        """Set pending columns to NOT NULL if the stream has been applied up to their position. Failures are logged and retried."""
        moment = time.monotonic()
        if self.evolve is None or self.pending is None or moment < self._look_again or applied < self.pending.position:
            return
        self._look_again = moment + PENDING_PAUSE
        try:
            pending = self.pending.pending
            is_reached = [lsn is not None and applied >= lsn for lsn in self._applied_from(pending)]
            ready = [table for table, reached in zip(pending, is_reached, strict=True) if reached]
            if ready:
                waiting = [table for table, reached in zip(pending, is_reached, strict=True) if not reached]
                self.pending = self.evolve(ready).with_others(waiting)
            self.unfollowed = None
        except PostgresError as error:
            if error.severity is Severity.FATAL:
                raise
            self._look_again = moment + FAILED_PAUSE
            self.unfollowed = error.message
            _log.warning("could not follow what the publisher has altered, trying again in %d s: %s", FAILED_PAUSE, error.message)

    def _is_for_tasks(self, segment: Segment) -> bool:
        """Return whether a segment is large enough for Spark tasks."""
        return not self.engine.small_batch_rows or segment.changes > self.engine.small_batch_rows

    def _apply_once(
        self, segment: Segment, *, by_tasks: bool, dry: bool = False, also: Callable[[CatalogCursor], None] | None = None
    ) -> None:
        self.place, self._left, self._done, self._firing = ApplyPlace(), {}, Counters(), None
        transaction = self.engine.begin(self.stream.database)
        transaction.locks.cancelled = self.stopping
        try:
            with self.jobs():
                has_written = bool(segment.pieces) and self._write(transaction, segment, by_tasks=by_tasks)
            if also is not None:
                also(transaction.cursor)
            if dry or (not has_written and also is None):
                transaction.rollback()
            else:
                commit_time = int(segment.transactions.commit_time[-1])
                with self._timed("commit"):
                    transaction.commit(OriginProgress(self.stream.origin, segment.end, commit_time))
                self._notify()
        except PostgresError:
            transaction.rollback()
            raise
        except Exception as error:
            transaction.rollback()
            if isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError":
                raise conflict.carried(error, self.place) from error
            raise
        if dry:
            return
        self.learn(segment)
        self.left_out(self._left)
        counters = self._done
        counters.transactions, counters.bytes, counters.batches = len(segment.transactions), segment.size, int(has_written)
        counters.moment = time.time() if has_written else None
        self.counters.add(counters)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Add the seconds spent inside to a stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._done.seconds[stage] = self._done.seconds.get(stage, 0.0) + time.monotonic() - began

    def _write(self, transaction: Transaction, segment: Segment, *, by_tasks: bool) -> bool:
        """Write a segment's changes. Return whether any table was written."""
        batch = Batch(self, transaction, segment)
        self._left = batch.left_out
        later: Later = {}
        known: set[int] = set()
        with contextlib.ExitStack() as cleanup:
            if by_tasks and (task_changes := batch.for_tasks()) is not None:
                known |= self._write_by_tasks(batch, task_changes, later, cleanup)
            else:
                self._write_frames(batch, later, known, cleanup)
            self._settle(transaction, later)
        return bool(known)

    def _write_frames(self, batch: Batch, later: Later, known: set[int], behind: contextlib.ExitStack) -> None:
        """Write a segment's changes in the driver, one frame at a time, and add the tables to `known`."""
        transaction = batch.transaction
        frames = behind.enter_context(contextlib.closing(batch.frames()))
        while True:
            with self._timed("decode"):
                entry = next(frames, None)
            if entry is None:
                return
            relation, key, frame = entry
            self.stopping()
            if relation.oid not in known:
                behind.enter_context(leaf_constraints.unique(transaction, relation, self.unique))
                known.add(relation.oid)
            with self._timed("merge"):
                batch.record(relation)
                self._merge(transaction, relation, key, frame, later, cut=batch.is_cut)

    def _write_by_tasks(self, batch: Batch, wanted: Sequence[TableChanges], later: Later, behind: contextlib.ExitStack) -> set[int]:
        """Write a segment's changes with Spark tasks, and return the oids of the written tables.

        If tasks cannot net the batch, the error has the message REFUSED, and the driver applies the batch.
        """
        transaction, written = batch.transaction, set()
        tables, histories = [], {}
        for number, changes in enumerate(wanted):
            relation = changes.mappings[0].local
            history = batch.history(relation)
            if history is not None:
                transaction.lock(history)
                histories[number] = history
                batch.record(relation)
            behind.enter_context(leaf_constraints.unique(transaction, relation, self.unique))
            if changes.truncated >= 0:
                self._check_rights(transaction, relation, {"T"})
                transaction.truncate([relation])
                written.add(relation.oid)
            tables.append(TaskTable.of(transaction, relation, changes.mappings[0].key or ()))
        if not tables:
            return written
        segment, noun = batch.segment, "table" if len(tables) == 1 else "tables"
        text = f"apply {self.stream.name} {segment.end}: {segment.changes:,} changes of {len(tables)} {noun}"
        with self._timed("merge"):
            all_parts, recorded = batch.run(wanted, tables, histories, text)
            try:
                for number, table in enumerate(tables):
                    parts = [part for part in all_parts if part.table == number]
                    if parts:
                        self._stage(transaction, table, wanted[number].mappings[0].key, parts, later)
                        written.add(table.relation.oid)
            except PostgresError:
                for history in histories.values():
                    transaction.has_left_files(history)
                raise
            for files in recorded:
                transaction.add_files(histories[files.table], files.actions)
        return written

    def _stage(self, transaction: Transaction, table: TaskTable, key: tuple[int, ...] | None, parts: Sequence[Part], later: Later) -> None:
        """Check the rights on one table, stage the files that tasks have written for it, and note its unique indexes in `later`."""
        relation = table.relation
        self.place.relation, self.place.column, self.place.message = f"{relation.schema}.{relation.name}", None, "INSERT"
        ops = {_OPERATIONS.get(op, op) for part in parts for op in part.ops}
        self._check_rights(transaction, relation, ops)
        if "I" not in ops:
            self.place.message = "UPDATE"
        merged = merged_by_tasks(transaction, table, parts)
        if merged is None:
            raise PostgresError("XX000", tasks.REFUSED)
        self.engine.statistics.merged(by_spark=True)
        self._count(transaction, relation, merged)
        later.update({(relation.oid, index.oid): (relation, index) for index in self._others(relation, key)})

    def _count(self, transaction: Transaction, relation: Relation, done: Merged) -> None:
        """Count the result of a merge. Raise 23505 if the merge found an existing key."""
        if done.conflict is not None:
            raise partitioned.duplicate_key(transaction, relation, done.conflict.key)
        self._done.count(relation.oid, done.changes, done.missing)
        if done.skipped is not None and _log.isEnabledFor(logging.DEBUG):
            partitioned.log_skipped(transaction, relation, done.skipped)

    def _check_index(self, transaction: Transaction, relation: Relation, index: Index) -> None:
        """Raise 23505 if a table holds a key of a unique index twice."""
        self.place.relation = f"{relation.schema}.{relation.name}"
        if self.unique is not None:
            self.unique(transaction, relation, index)

    def merge(self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame) -> None:
        """Apply a changes frame to one table inside a transaction, and check rights and constraints as for all applied changes."""
        later: Later = {}
        self._firing = None
        self._merge(transaction, relation, key, frame, later, cut=False)
        self._settle(transaction, later)

    def _notify(self) -> None:
        """Deliver the notifications of trigger functions to sessions. Called after the segment's transaction has committed."""
        if self._firing is not None:
            self._firing.committed()

    def _settle(self, transaction: Transaction, later: Later) -> None:
        """Check the indexes in `later`, and call the functions of deferred triggers, after all changes are written."""
        for relation, index in later.values():
            self._check_index(transaction, relation, index)
        if self._firing is not None:
            self._firing.settle()

    def _merge(
        self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, later: Later,
        *, cut: bool,
    ) -> None:  # fmt: skip
        """Apply a frame like `merge`, but leave the indexes in `later` for a check after the last frame.

        `cut`: more frames of the table may follow.
        """
        self.place.relation, self.place.column, self.place.message = f"{relation.schema}.{relation.name}", None, "INSERT"
        ops = _ops(frame)
        self._check_rights(transaction, relation, ops)
        firing = self.fired(transaction, relation)
        if firing is not None:
            self._firing = firing
            assert isinstance(frame, pa.Table), "the driver completes such a table's rows"
            table = TriggeredTable(transaction, relation, key, firing, self.rows)
            for part in table.parts(frame):
                if part.frame.num_rows:
                    self._merge_frame(transaction, relation, key, part.frame, later, cut=True, ops=ops)
                for callback in part.behind:
                    callback()
            return
        self._merge_frame(transaction, relation, key, frame, later, cut=cut, ops=ops)

    def fired(self, transaction: Transaction, relation: Relation) -> FiringTriggers | None:
        """Return the triggers of a table that fire, or None if none do."""
        return None if self.triggers is None else self.triggers(transaction, relation)

    def _merge_frame(
        self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, later: Later,
        *, cut: bool, ops: set[str],
    ) -> None:  # fmt: skip
        if relation.parent:
            partitioned.refuse_outside(transaction, relation, frame)
        other_indexes = self._others(relation, key)
        if isinstance(frame, pa.Table) and self.engine.small_batch_rows and not other_indexes and insertion.only_inserts(frame):
            rows = insertion.rows_of(frame["new"])
            transaction.lock(relation)  # otherwise another session could add the keys after the lookup
            if key is None or insertion.is_new(transaction, relation, key, rows):
                self._done.count(relation.oid, insertion.append(transaction, relation, rows))
                return
        if "I" not in ops:
            self.place.message = "UPDATE"
        for merged in self._parts(transaction, relation, key, frame, other_indexes, later, cut=cut):
            self._count(transaction, relation, merged)

    def _parts(
        self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame,
        others: Sequence[Index], later: Later, *, cut: bool,
    ) -> Iterator[Merged]:  # fmt: skip
        """Complete and merge a changes frame, in parts if rows must be looked up. `cut`: more frames of the table may follow."""
        completed = functools.partial(updated_rows.completed, transaction=transaction, factory=self.rows, place=self.place)
        if relation.is_partitioned:
            yield from partitioned.apply(transaction, relation, key, frame, completed)
            return
        for part in completed(frame, relation, key):
            is_cut = cut or (isinstance(part, pa.Table) and isinstance(frame, pa.Table) and part.num_rows < frame.num_rows)
            checked_indexes = [index for index in others if index.plain and not (is_cut and index.deferred)]
            merged = merge(transaction, relation, key, part, others=checked_indexes)
            later.update(
                {(relation.oid, index.oid): (relation, index) for index in others if not (merged.checked and index in checked_indexes)}
            )
            yield merged

    @staticmethod
    def _others(relation: Relation, key: tuple[int, ...] | None) -> list[Index]:
        """Return the unique indexes of a table other than the key's. Those of a partitioned table are covered by its key."""
        if relation.is_partitioned:
            return []
        return [index for index in relation.indexes if index.unique and set(index.attnums) != set(key or ())]

    def _check_rights(self, transaction: Transaction, relation: Relation, ops: set[str]) -> None:
        if self.rights is None:
            return
        for op in sorted(ops):
            self.place.message = conflict.MESSAGES[op]
            relation_name, self.place.relation = self.place.relation, None if op == "T" else self.place.relation
            self.rights(transaction.cursor, relation, {op})
            self.place.relation = relation_name
        self.place.message = "INSERT"


def _ops(frame: pa.Table | DataFrame) -> set[str]:
    """Return the operations in a changes frame."""
    operations = frame.select("op").distinct().toArrow()["op"] if isinstance(frame, DataFrame) else pc.unique(frame["op"])
    return set(operations.to_pylist())


def _types(segment: Segment) -> dict[int, m.Type]:
    return {message.oid: message for _, _, message in segment.others if isinstance(message, m.Type)}


def _relations(segment: Segment) -> dict[int, m.Relation]:
    return {message.relation: message for _, _, message in segment.others if isinstance(message, m.Relation)}
