"""Applies segments of the stream: decodes, converts and merges the changes, and commits all tables together with the origin's progress.

Each stream has one `Applier`. The apply worker uses one for all ready tables, and a table sync uses one for its table. One attempt to apply
a segment is a transaction with a `Batch`, which selects and decodes the changes, and a `TableWriter`, which writes them. The driver takes
a segment part by part, so that a transaction of any size is applied in bounded memory. A segment of more than `small_batch_rows` changes is
one Spark job.

    apply      halves a segment that fails, until one transaction is left
    _retried   an attempt that fails for what the node can mend (columns, tables, histories, other writers) is made again
    _attempt   one transaction: written, committed with the progress, counted

Invariant: the data and the progress are one commit. A segment that fails leaves no changes. The transactions before the failing one are
applied, and the error names exactly that transaction.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException

from headgate.catalog.cursor import CatalogCursor
from headgate.changes import tasks
from headgate.changes.tasks import TaskTable
from headgate.errors import PostgresError, Severity
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.storage.engine import Engine
from headgate.storage.spark import failure
from headgate.storage.transaction.log import OriginProgress
from headgate.subscriber import described_table
from headgate.subscriber.apply.batch import Batch
from headgate.subscriber.apply.decoding import TableChanges
from headgate.subscriber.apply.evolution import Follower
from headgate.subscriber.apply.stream import AppliedStream
from headgate.subscriber.rows import conflict, leaf_constraints, table_history
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.conversion import InputSettings
from headgate.subscriber.rows.relation_map import MissingColumnsError, MissingRelationError
from headgate.subscriber.rows.table_history import LackingHistoryError
from headgate.subscriber.rows.table_writer import TableRules, TableWriter
from headgate.subscriber.subscription_statistics import Counters
from headgate.walreceiver.segment import Segment

RETRIED = frozenset({"40001", "40P01"})
NOT_HALVED = frozenset({"57P01", "57014", "53100", "53200"})
MOST_ATTEMPTS = 10


@dataclass
class Applier:
    """Applies the segments of one stream.

    `session` returns the settings that input functions depend on. `stopping` raises an error if the worker must end.
    """

    engine: Engine
    stream: AppliedStream
    session: Callable[[], InputSettings]
    stopping: Callable[[], None]
    rules: TableRules
    follower: Follower
    join: Callable[[], bool] | None = None
    """Adds published tables that do not exist here to the subscription, and returns whether there were any (create_tables)."""
    jobs: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """A context in which stopping the worker cancels its Spark jobs."""
    left_out: Callable[[dict[int, int]], None] = lambda _: None
    """Receives the numbers of skipped changes, by relation, for tables that are not in the subscription."""
    record: Callable[[], None] | None = None
    """Begins and extends the histories of tables (`table_history`). None if the subscription does not keep histories."""
    counters: Counters = field(default_factory=Counters)
    place: ApplyPlace = field(default_factory=ApplyPlace)
    """Where the last attempt was, for the context of its error."""
    relations: dict[int, m.Relation] = field(default_factory=dict)
    """The publisher's Relation messages on this connection, by relation."""
    spread: set[int] = field(default_factory=set)
    """Tables (oids) whose rows tasks could not insert without an exchange: keys in different parts of a segment were not apart."""

    def apply(self, segment: Segment, applied: Callable[[Lsn], None] = lambda _: None) -> None:
        """Apply a segment. Call `applied` with the end of each part that has become durable: more than once if a part fails.

        Raises the error of the first transaction that cannot be applied, with its context.
        """
        place = self.follower.change_of_columns(segment, self.relations)
        if place:
            first, second = segment.split(place)
            self.apply(first, applied)
            self.apply(second, applied)
            return
        try:
            account_for = self._retry(segment)
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
            account_for()
            applied(segment.end)

    def check(self, segment: Segment) -> None:
        """Apply the one transaction of a segment and roll it back. Raise the error that applying it would raise."""
        with self._as_context(segment):
            self._retry(segment, dry=True)

    def finish(self, segment: Segment, also: Callable[[CatalogCursor], None]) -> None:
        """Apply the one transaction of a segment, which may be empty, with its progress and the catalog changes that `also` makes."""
        with self._as_context(segment):
            account_for = self._retry(segment, also=also)
        account_for()

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
        """Store the Relation messages of a segment."""
        self.relations.update(_relations(segment))

    def _in_context(self, error: PostgresError, segment: Segment) -> PostgresError:
        finish_lsn = Lsn(segment.transactions.commit_lsn[0])
        return error.within(conflict.context(self.stream.origin, self.place, int(segment.transactions.xid[0]), finish_lsn))

    def _retry(self, segment: Segment, *, dry: bool = False, also: Callable[[CatalogCursor], None] | None = None) -> Callable[[], None]:
        """Make attempts until one succeeds, and return its result. Raise the error of an attempt that the node cannot mend."""
        self.follower.follow(segment)
        by_tasks, found_only, attempts = self._is_for_tasks(segment), False, itertools.count(1)
        nullable: dict[tuple[str | None, str | None], set[str]] = {}
        while True:
            try:
                return self._attempt(segment, by_tasks=by_tasks, found_only=found_only, dry=dry, also=also)
            except PostgresError as error:
                number = next(attempts)
                column, columns = error.column, nullable.setdefault((error.schema, error.table), set())
                if error.message == tasks.REFUSED and by_tasks:  # the error of a task has no details
                    by_tasks = False
                elif error.sqlstate == "23502" and self.follower.is_complete and column is not None and column not in columns:
                    columns.add(column)
                    self.follower.follow_null(error, columns)
                elif number >= MOST_ATTEMPTS:
                    raise
                elif not self._can_mend(error, segment, is_first=number == 1):
                    if found_only or len(segment.transactions) > 1 or not self._is_of_updated_row(error):
                        raise
                    by_tasks, found_only = False, True
                self.stopping()

    def _is_of_updated_row(self, error: PostgresError) -> bool:
        """Return whether a constraint or generated column refused the new row of an UPDATE. PostgreSQL skips it if there is no old row."""
        return error.sqlstate[:2] in ("22", "23") and self.place.message == conflict.MESSAGES["U"]

    def _can_mend(self, error: PostgresError, segment: Segment, *, is_first: bool) -> bool:
        """Return whether another attempt may succeed. Create the tables, columns, labels and histories that the failed one lacked."""
        match error:
            case MissingColumnsError():
                return error.remote is not None and self.follower.have_followed([described_table.of_relation(error.remote)]) is not None
            case LackingHistoryError():
                if self.record is not None:
                    self.record()
                return self.record is not None
            case MissingRelationError():
                return self.join is not None and self.join()
            case PostgresError(sqlstate="22P02") if is_first and "for enum" in error.message:
                described = [described_table.of_relation(relation) for relation in (self.relations | _relations(segment)).values()]
                return self.follower.have_followed([replace(table, altered=False) for table in described]) is not None
            case _:
                return error.sqlstate in RETRIED

    def _is_for_tasks(self, segment: Segment) -> bool:
        """Return whether a segment is large enough for Spark tasks."""
        return not self.engine.small_batch_rows or segment.changes > self.engine.small_batch_rows

    def _attempt(
        self, segment: Segment, *, by_tasks: bool, found_only: bool, dry: bool, also: Callable[[CatalogCursor], None] | None
    ) -> Callable[[], None]:
        """Apply the segment in one transaction and commit it with the progress, or roll it back if `dry`.

        `found_only`: look up the rows of UPDATEs before their new rows are checked, and skip those that do not exist. Return the function
        that accounts for the segment. An error that it raises must not make another attempt: the segment is applied.
        """
        self.place, counters = ApplyPlace(), Counters()
        transaction = self.engine.begin(self.stream.database)
        transaction.locks.cancelled = self.stopping
        writer = TableWriter(self.rules, transaction, self.place, counters, found_only=found_only)
        try:
            batch = Batch(
                self.stream, transaction, segment, self.session(), self.rules, self.place,
                described=self.relations, numbers=self.follower.numbers, keeps_history=self.record is not None,
                found_only=found_only,
            )  # fmt: skip
            with self.jobs():
                has_written = bool(segment.pieces) and self._write(batch, writer, counters, by_tasks=by_tasks)
            if also is not None:
                also(transaction.cursor)
            if dry or (not has_written and also is None):
                transaction.rollback()
            else:
                commit_time = int(segment.transactions.commit_time[-1])
                with _add_time(counters, "commit"):
                    transaction.commit(OriginProgress(self.stream.origin, segment.end, commit_time))
        except PostgresError:
            transaction.rollback()
            raise
        except Exception as error:
            transaction.rollback()
            if isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError":
                raise failure.from_spark(error) from error
            raise
        return functools.partial(self._account_for, batch, writer, counters, has_written=has_written)

    def _account_for(self, batch: Batch, writer: TableWriter, counters: Counters, *, has_written: bool) -> None:
        """Deliver the notifications of an applied segment, and count it."""
        segment = batch.segment
        if segment.mark is None:  # the descriptions in a prepared transaction were stored at its PREPARE, and may be outdated now
            self.learn(segment)
        writer.notify()
        self.left_out(batch.left_out)
        counters.transactions, counters.bytes, counters.batches = len(segment.transactions), segment.size, int(has_written)
        counters.moment = time.time() if has_written else None
        self.counters.add(counters)

    def _write(self, batch: Batch, writer: TableWriter, counters: Counters, *, by_tasks: bool) -> bool:
        """Write a segment's changes. Return whether any table was written."""
        known: set[int] = set()
        with contextlib.ExitStack() as cleanup:
            if by_tasks and (task_changes := batch.for_tasks()) is not None:
                known |= self._write_by_tasks(batch, writer, counters, task_changes, cleanup)
            else:
                self._write_frames(batch, writer, counters, known, cleanup)
            writer.settle()
            batch.mark_complete_histories(counters.table_missing)
        return bool(known)

    def _write_frames(self, batch: Batch, writer: TableWriter, counters: Counters, known: set[int], behind: contextlib.ExitStack) -> None:
        """Write a segment's changes in the driver, one frame at a time, and add the tables to `known`."""
        transaction = batch.transaction
        self._truncate(batch, writer)
        frames = behind.enter_context(contextlib.closing(batch.frames()))
        while True:
            with _add_time(counters, "decode"):
                entry = next(frames, None)
            if entry is None:
                return
            relation, key, frame = entry
            self.stopping()
            if relation.oid not in known:
                behind.enter_context(leaf_constraints.unique(transaction, relation, self.rules.unique))
                known.add(relation.oid)
            with _add_time(counters, "merge"):
                batch.record(relation)
                if frame.num_rows:
                    writer.merge(relation, key, frame, cut=batch.is_cut)

    @staticmethod
    def _truncate(batch: Batch, writer: TableWriter) -> None:
        """Truncate the tables that the segment truncates, as one statement."""
        tables = [relation for relation, _ in batch.emptied.values()]
        for relation in tables:
            writer.check_rights(relation, {"T"})
        if tables:
            batch.transaction.truncate(tables, restart_identity=batch.emptied.keys() <= batch.restarted.keys())

    def _write_by_tasks(
        self, batch: Batch, writer: TableWriter, counters: Counters, changes_by_table: Sequence[TableChanges], behind: contextlib.ExitStack
    ) -> set[int]:
        """Write a segment's changes with Spark tasks, and return the oids of the written tables.

        If tasks cannot net the batch, the error has the message REFUSED, and the driver applies the batch.
        """
        transaction, written_tables = batch.transaction, set()
        tables, histories = [], {}
        self._truncate(batch, writer)
        for number, changes in enumerate(changes_by_table):
            relation = changes.mappings[0].local
            history = batch.history(relation)
            if history is not None:
                transaction.lock(history)
                histories[number] = history
                batch.record(relation)
            behind.enter_context(leaf_constraints.unique(transaction, relation, self.rules.unique))
            if changes.truncated >= 0:
                written_tables.add(relation.oid)
            tables.append(TaskTable.of(transaction, relation, changes.mappings[0].key or ()))
        if not tables:
            return written_tables
        segment, noun = batch.segment, "table" if len(tables) == 1 else "tables"
        text = f"apply {self.stream.name} {segment.end}: {segment.changes:,} changes of {len(tables)} {noun}"
        with _add_time(counters, "merge"):
            all_parts, recorded = batch.run(changes_by_table, tables, histories, text, self.spread)
            try:
                for number, table in enumerate(tables):
                    parts = [part for part in all_parts if part.table == number]
                    if parts:
                        writer.stage(table, changes_by_table[number].mappings[0].key, parts)
                        written_tables.add(table.relation.oid)
            except PostgresError:
                for history in histories.values():
                    transaction.has_left_files(history)
                raise
            for files in recorded:
                history = histories[files.table]
                is_whole = table_history.sends_all(transaction.reader.newest(history), files.actions)
                transaction.add_files(history, files.actions)
                batch.note_recorded(changes_by_table[files.table].mappings[0].local.oid, is_whole=is_whole)
        return written_tables


@contextmanager
def _add_time(counters: Counters, stage: str) -> Iterator[None]:
    """Add the seconds spent inside to a stage."""
    began = time.monotonic()
    try:
        yield
    finally:
        counters.seconds[stage] = counters.seconds.get(stage, 0.0) + time.monotonic() - began


def _relations(segment: Segment) -> dict[int, m.Relation]:
    return {message.relation: message for _, _, message in segment.others if isinstance(message, m.Relation)}
