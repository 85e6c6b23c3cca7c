"""Applies segments: decode, convert, merge, one commit for all tables together with the origin's progress.

One `Applier` per stream, used by the apply worker for all ready tables and by a table sync for its one table. The driver decodes and merges
a segment part by part, so that a transaction of any size is applied in bounded memory; one of more than `small_batch_rows` changes is one
Spark job (`batch`).
What must hold: data and progress are one commit; a segment that fails leaves nothing; what fails is found by halving, so that the
transactions before the failing one are applied and the error names exactly that one.
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
from headgate.subscriber.apply.evolution import Evolve, Evolved, Told
from headgate.subscriber.apply.relation_map import MissingColumnsError, MissingRelationError
from headgate.subscriber.apply.row_triggers import FiringTriggers, TriggeredTable, TriggerFactory
from headgate.subscriber.apply.table_history import LackingHistoryError
from headgate.subscriber.subscription_statistics import Counters
from headgate.walreceiver.segment import Segment

_log = logging.getLogger("headgate.subscriber")

RETRIED = frozenset({"40001", "40P01"})
PENDING_PAUSE = 1.0
"""Seconds between two attempts to follow what is pending."""
FAILED_PAUSE = 5.0
"""The same after an error, such as a conflict with a table sync."""
NOT_HALVED = frozenset({"57P01", "57014", "53100", "53200"})
_OPERATIONS = {"d": "U", "i": "U"}
"""What the halves of an UPDATE are (`changes.net`)."""
Later = dict[tuple[int, int], tuple[Relation, Index]]
"""Unique indexes (of a table, by oids) that are looked at when all of a segment is written."""


@dataclass(frozen=True)
class AppliedStream:
    """Whose changes are applied: the subscription, the origin, and, for a table sync, the one table."""

    subscription: int
    database: int
    origin: str
    only: int | None = None
    everything: bool = False
    """Whether no table's state is asked for: a prepared transaction is ended by hand, its tables were ready when it was prepared."""
    name: str = ""
    """The name of the subscription, which Spark shows with the jobs."""

    def applied_from(self, relation: int, state: SubscriptionRel | None) -> int | None:
        """Return the commit LSN from which on changes of a table are applied; None: not at all (should_apply_changes_for_rel)."""
        if self.everything:
            return 0
        if self.only is not None:
            return 0 if relation == self.only else None
        return None if state is None else state.applied_from


@dataclass
class Applier:
    """See the module. `session` gives what input functions depend on; `stopping` raises when the worker should end."""

    engine: Engine
    stream: AppliedStream
    session: Callable[[], InputSettings]
    stopping: Callable[[], None]
    rows: row_completion.Factory | None = None
    """Completes and checks rows of tables that need it (`row_completion`)."""
    rights: Callable[[CatalogCursor, Relation, set[str]], None] | None = None
    """Raises unless changes of these kinds may be applied to a table."""
    evolve: Evolve | None = None
    """Has tables follow what the publisher told of their columns (schema_evolution)."""
    unique: Callable[[Transaction, Relation, Index], None] | None = None
    """Raises 23505 if the table has a key of a unique index twice: for what `merge` cannot look up."""
    triggers: TriggerFactory | None = None
    """Gives the triggers of tables that fire for what is applied."""
    follow: bool = False
    """Whether tables follow whatever the publisher changes, not only columns that they lack."""
    join: Callable[[], bool] | None = None
    """Has tables that are published and not here join the subscription; whether there were any (create_tables)."""
    jobs: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """Inside of it a worker that shall end is not kept by Spark's jobs."""
    left_out: Callable[[dict[int, int]], None] = lambda _: None
    """Is told how many changes of tables that are not in the subscription were left out, by relation."""
    record: Callable[[], None] | None = None
    """Begins and extends the histories of tables (`table_history`); None if the subscription keeps none."""
    synchronize_again: Callable[[int], None] = lambda _: None
    """Has a table synchronized again whose columns cannot be told from the stream."""
    relations: dict[int, m.Relation] = field(default_factory=dict)
    """What the publisher said of its relations on this connection."""
    types: dict[int, m.Type] = field(default_factory=dict)
    """The same of types that are not built in."""
    place: ApplyPlace = field(default_factory=ApplyPlace)
    counters: Counters = field(default_factory=Counters)
    _left: dict[int, int] = field(default_factory=dict)
    """What was left out of the segment that is being applied."""
    _done: Counters = field(default_factory=Counters)
    """What is counted of the segment that is being applied."""
    _firing: FiringTriggers | None = None
    """The triggers of the table that fired last in it."""
    numbers: dict[m.Relation, tuple[int | None, ...]] = field(default_factory=dict)
    """The publisher's numbers of the columns of relations that were followed."""
    pending: Evolved | None = None
    """Tables to look at again, for columns that are to be NOT NULL, when the stream has been applied up to a position."""
    _followed: dict[int, tuple[int, m.Relation]] = field(default_factory=dict)
    """What was followed last, by relation, with its place in the stream."""
    unfollowed: str | None = None
    """Why tables could not follow what the publisher has altered when it was tried last."""
    _look_again: float = 0.0
    """When `pending` is looked at next."""

    def apply(self, segment: Segment, applied: Callable[[Lsn], None] = lambda _: None) -> None:
        """Applies a segment; `applied` is called with the end of what has become durable, more than once if a part of it fails.

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
        """Applies the one transaction of a segment and undoes it: raises what applying it would."""
        with self._as_context(segment):
            self._apply_retrying(segment, dry=True)

    def finish(self, segment: Segment, also: Callable[[CatalogCursor], None]) -> None:
        """Applies the one transaction of a segment, empty or not, with its progress and what `also` writes into the catalog."""
        with self._as_context(segment):
            self._apply_retrying(segment, also=also)

    @contextmanager
    def _as_context(self, segment: Segment) -> Iterator[None]:
        """Errors inside carry the context of the segment's one transaction."""
        try:
            yield
        except PostgresError as error:
            if error.severity is Severity.FATAL:
                raise
            raise self._in_context(error, segment) from error

    def learn(self, segment: Segment) -> None:
        """Takes note of what the publisher said of its relations in a segment."""
        self.relations.update(_relations(segment))
        self.types.update(_types(segment))

    def _in_context(self, error: PostgresError, segment: Segment) -> PostgresError:
        finish = Lsn(segment.transactions.commit_lsn[0])
        return error.within(conflict.context(self.stream.origin, self.place, int(segment.transactions.xid[0]), finish))

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
                if error.message == tasks.REFUSED:  # tasks do not say what was wrong
                    by_tasks = False
                elif attempt == 0 and error.sqlstate == "22P02" and "for enum" in error.message:
                    told = [evolution.of_relation(each) for each in (self.relations | _relations(segment)).values()]
                    if not self._have_followed([replace(each, altered=False) for each in told]):
                        raise
                elif error.sqlstate == "23502" and self.follow and (place := (error.schema, error.table, error.column)) not in nullable:
                    nullable.add(place)
                    self._have_followed(self._nullable(error))
                elif error.sqlstate not in RETRIED or attempt == 9:
                    raise
                self.stopping()
            else:
                return

    def _change_of_columns(self, segment: Segment) -> int:
        """How many transactions come before the first that says other columns of a table than were said before; 0 for none.

        Where tables follow, rows from before a change are applied before the table changes here.
        """
        if self.evolve is None or len(segment.transactions) < 2:
            return 0
        known = dict(self.relations)
        for seq, _, relation in segment.others:
            if isinstance(relation, m.Relation):
                before = known.setdefault(relation.relation, relation)
                place = int(np.searchsorted(segment.transactions.begin, seq, side="right")) - 1
                if before.columns != relation.columns and place > 0:
                    return place
                known[relation.relation] = relation
        return 0

    def _follow(self, segment: Segment) -> None:
        """Has tables follow what the segment says of them, in its order; once."""
        if not self.follow or self.evolve is None:
            return
        new: list[tuple[int, m.Relation]] = []
        for seq, _, relation in segment.others:  # the messages have no LSN of their own
            if isinstance(relation, m.Relation):
                if self._followed.get(relation.relation) == (seq, relation):  # and so are those before it
                    new = [each for each in new if each[1].relation != relation.relation]
                else:
                    new.append((seq, relation))
        due = self._due(segment, new) if new else []
        done = self._have_followed([evolution.of_relation(relation) for _, relation in due]) if due else None
        if done is not None:
            self.numbers |= {relation: numbers for (_, relation), numbers in zip(due, done.numbers, strict=True)}
            self._followed |= {relation.relation: (seq, relation) for seq, relation in due}

    def _nullable(self, error: PostgresError) -> list[Told]:
        """Return the table of a 23502 with its column: the publisher, whose row it is, had the column without NOT NULL then."""
        transaction = self.engine.begin(self.stream.database)
        try:
            cursor, database = transaction.cursor, self.stream.database
            local = relations.lookup(cursor, database, error.schema or "", error.table or "")
            oids = [] if local is None else [local.oid, *relations.ancestors(cursor, database, local.oid)]
            states = {each.relation for each in subscriptions.tables(cursor, self.stream.subscription)}
            tables = [relations.get(cursor, database, oid) for oid in oids if oid in states]
        finally:
            transaction.rollback()
        return [Told(table.schema, table.name, altered=False, nullable=frozenset({error.column or ""})) for table in tables]

    def _have_followed(self, told: Sequence[Told]) -> Evolved | None:
        """Has tables follow; None if they do not. Those of which the columns are not clear are synchronized again."""
        if self.evolve is None:
            return None
        done = self.evolve(told)
        for relation in done.unclear:
            self.synchronize_again(relation)
        names = {(each.schema, each.name) for each in told}
        others = [each for each in self.pending.pending if (each.schema, each.name) not in names] if self.pending else []
        self.pending = done.with_others(others)
        return done

    def _due(self, segment: Segment, new: Sequence[tuple[int, m.Relation]]) -> list[tuple[int, m.Relation]]:
        """Leave out what the stream says of a table before the place from which on its changes are applied.

        A table sync has given the table the columns that the publisher's had at a later place, and has followed the stream from there.
        """
        begun, ends = segment.transactions.begin, segment.transactions.commit_lsn
        first = self._applied_from([evolution.of_relation(relation) for _, relation in new])
        places = [max(int(np.searchsorted(begun, seq, side="right")) - 1, 0) for seq, _ in new]
        return [each for each, applied, place in zip(new, first, places, strict=True) if applied is not None and ends[place] >= applied]

    def _applied_from(self, told: Sequence[Told]) -> list[int | None]:
        """Return from which commit LSN on the changes of each table are applied; None: none, 0: all, or there is no such table here."""
        transaction = self.engine.begin(self.stream.database)
        try:
            states = {each.relation: each for each in subscriptions.tables(transaction.cursor, self.stream.subscription)}
            found: list[int | None] = []
            for each in told:
                local = relations.lookup(transaction.cursor, self.stream.database, each.schema, each.name)
                found.append(0 if local is None else self.stream.applied_from(local.oid, states.get(local.oid)))
            return found
        finally:
            transaction.rollback()

    def look_at_again(self, told: Sequence[Told], position: Lsn) -> None:
        """Notes tables that may have columns to be NOT NULL once the stream has been applied up to a position."""
        names = {(each.schema, each.name) for each in told}
        others = [each for each in self.pending.pending if (each.schema, each.name) not in names] if self.pending else []
        position = max(position, self.pending.position) if self.pending else position
        self.pending = Evolved((), position=position).with_others([*others, *told])

    def follow_pending(self, applied: Lsn) -> None:
        """Has columns be NOT NULL that could not be before the stream was applied up to a position, if it is now."""
        moment = time.monotonic()
        if self.evolve is None or self.pending is None or moment < self._look_again or applied < self.pending.position:
            return
        self._look_again = moment + PENDING_PAUSE
        try:
            told = self.pending.pending
            here = [place is not None and applied >= place for place in self._applied_from(told)]
            now = [each for each, is_here in zip(told, here, strict=True) if is_here]
            if now:
                later = [each for each, is_here in zip(told, here, strict=True) if not is_here]
                self.pending = self.evolve(now).with_others(later)
            self.unfollowed = None
        except PostgresError as error:
            if error.severity is Severity.FATAL:
                raise
            self._look_again = moment + FAILED_PAUSE
            self.unfollowed = error.message
            _log.warning("could not follow what the publisher has altered, trying again in %d s: %s", FAILED_PAUSE, error.message)

    def _is_for_tasks(self, segment: Segment) -> bool:
        """Whether a segment is large enough for Spark's tasks."""
        return not self.engine.small_batch_rows or segment.changes > self.engine.small_batch_rows

    def _apply_once(
        self, segment: Segment, *, by_tasks: bool, dry: bool = False, also: Callable[[CatalogCursor], None] | None = None
    ) -> None:
        self.place, self._left, self._done, self._firing = ApplyPlace(), {}, Counters(), None
        transaction = self.engine.begin(self.stream.database)
        transaction.cancelled = self.stopping
        try:
            with self.jobs():
                written = bool(segment.pieces) and self._write(transaction, segment, by_tasks=by_tasks)
            if also is not None:
                also(transaction.cursor)
            if dry or (not written and also is None):
                transaction.rollback()
            else:
                moment = int(segment.transactions.commit_time[-1])
                with self._timed("commit"):
                    transaction.commit(OriginProgress(self.stream.origin, segment.end, moment))
                self._tell()
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
        done = self._done
        done.transactions, done.bytes, done.batches = len(segment.transactions), segment.size, int(written)
        done.moment = time.time() if written else None
        self.counters.add(done)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Counts the seconds of a stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._done.seconds[stage] = self._done.seconds.get(stage, 0.0) + time.monotonic() - began

    def _write(self, transaction: Transaction, segment: Segment, *, by_tasks: bool) -> bool:
        """Writes a segment's changes; whether there was anything to write."""
        batch = Batch(self, transaction, segment)
        self._left = batch.left_out
        later: Later = {}
        known: set[int] = set()
        with contextlib.ExitStack() as behind:
            if by_tasks and (wanted := batch.for_tasks()) is not None:
                known |= self._write_by_tasks(batch, wanted, later, behind)
            else:
                self._write_frames(batch, later, known, behind)
            self._settle(transaction, later)
        return bool(known)

    def _write_frames(self, batch: Batch, later: Later, known: set[int], behind: contextlib.ExitStack) -> None:
        """Writes a segment's changes in the driver, a frame at a time; notes the tables in `known`."""
        transaction = batch.transaction
        frames = behind.enter_context(contextlib.closing(batch.frames()))
        while True:
            with self._timed("decode"):
                found = next(frames, None)
            if found is None:
                return
            relation, key, frame = found
            self.stopping()
            if relation.oid not in known:
                behind.enter_context(leaf_constraints.unique(transaction, relation, self.unique))
                known.add(relation.oid)
            with self._timed("merge"):
                batch.record(relation)
                self._merge(transaction, relation, key, frame, later, cut=batch.is_cut)

    def _write_by_tasks(self, batch: Batch, wanted: Sequence[TableChanges], later: Later, behind: contextlib.ExitStack) -> set[int]:
        """Writes a segment's changes by tasks; the tables that are written. A batch that tasks cannot net is REFUSED, and the driver's."""
        transaction, written = batch.transaction, set()
        tables, histories = [], {}
        for number, each in enumerate(wanted):
            relation = each.mappings[0].local
            history = batch.history(relation)
            if history is not None:
                transaction.lock(history)
                histories[number] = history
                batch.record(relation)
            behind.enter_context(leaf_constraints.unique(transaction, relation, self.unique))
            if each.truncated >= 0:
                self._check_rights(transaction, relation, {"T"})
                transaction.truncate([relation])
                written.add(relation.oid)
            tables.append(TaskTable.of(transaction, relation, each.mappings[0].key or ()))
        if not tables:
            return written
        segment, noun = batch.segment, "table" if len(tables) == 1 else "tables"
        text = f"apply {self.stream.name} {segment.end}: {segment.changes:,} changes of {len(tables)} {noun}"
        with self._timed("merge"):
            found, recorded = batch.run(wanted, tables, histories, text)
            try:
                for number, table in enumerate(tables):
                    parts = [part for part in found if part.table == number]
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
        """Stages what tasks have written for one table, with the rights and the constraints of what is applied."""
        relation = table.relation
        self.place.relation, self.place.column, self.place.message = f"{relation.schema}.{relation.name}", None, "INSERT"
        ops = {_OPERATIONS.get(op, op) for part in parts for op in part.ops}
        self._check_rights(transaction, relation, ops)
        if "I" not in ops:
            self.place.message = "UPDATE"
        done = merged_by_tasks(transaction, table, parts)
        if done is None:
            raise PostgresError("XX000", tasks.REFUSED)
        self.engine.statistics.merged(by_spark=True)
        self._take(transaction, relation, done)
        later.update({(relation.oid, index.oid): (relation, index) for index in self._others(relation, key)})

    def _take(self, transaction: Transaction, relation: Relation, done: Merged) -> None:
        """Counts what a merge has done; 23505 if it has met a key that is there."""
        if done.conflict is not None:
            raise partitioned.duplicate_key(transaction, relation, done.conflict.key)
        self._done.count(relation.oid, done.changes, done.missing)
        if done.skipped is not None and _log.isEnabledFor(logging.DEBUG):
            partitioned.tell_skipped(transaction, relation, done.skipped)

    def _look_at(self, transaction: Transaction, relation: Relation, index: Index) -> None:
        """23505 if a table has a key of a unique index twice."""
        self.place.relation = f"{relation.schema}.{relation.name}"
        if self.unique is not None:
            self.unique(transaction, relation, index)

    def merge(self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame) -> None:
        """Applies a changes frame to one table inside a transaction, with the rights and the constraints of what is applied."""
        later: Later = {}
        self._firing = None
        self._merge(transaction, relation, key, frame, later, cut=False)
        self._settle(transaction, later)

    def _tell(self) -> None:
        """Tell sessions what the functions of triggers have notified: the segment's transaction has committed."""
        if self._firing is not None:
            self._firing.committed()

    def _settle(self, transaction: Transaction, later: Later) -> None:
        """Check the indexes in `later`, and call the functions of deferred triggers: all changes are written."""
        for relation, index in later.values():
            self._look_at(transaction, relation, index)
        if self._firing is not None:
            self._firing.settle()

    def _merge(
        self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, later: Later,
        *, cut: bool,
    ) -> None:  # fmt: skip
        """The same, but for the indexes in `later`, which are looked at behind the last frame; `cut`: more of the table may follow."""
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
                for each in part.behind:
                    each()
            return
        self._merge_frame(transaction, relation, key, frame, later, cut=cut, ops=ops)

    def fired(self, transaction: Transaction, relation: Relation) -> FiringTriggers | None:
        """The triggers of a table that fire; None: none do."""
        return None if self.triggers is None else self.triggers(transaction, relation)

    def _merge_frame(
        self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, later: Later,
        *, cut: bool, ops: set[str],
    ) -> None:  # fmt: skip
        if relation.parent:
            partitioned.refuse_outside(transaction, relation, frame)
        others = self._others(relation, key)
        if isinstance(frame, pa.Table) and self.engine.small_batch_rows and not others and insertion.only_inserts(frame):
            rows = insertion.rows_of(frame["new"])
            transaction.lock(relation)  # or another could add the keys after they were looked for
            if key is None or insertion.is_new(transaction, relation, key, rows):
                self._done.count(relation.oid, insertion.append(transaction, relation, rows))
                return
        if "I" not in ops:
            self.place.message = "UPDATE"
        for done in self._parts(transaction, relation, key, frame, others, later, cut=cut):
            self._take(transaction, relation, done)

    def _parts(
        self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame,
        others: Sequence[Index], later: Later, *, cut: bool,
    ) -> Iterator[Merged]:  # fmt: skip
        """Completes and merges a changes frame, in parts if rows must be looked up; `cut`: more of the table may follow."""
        completed = functools.partial(updated_rows.completed, transaction=transaction, factory=self.rows, place=self.place)
        if relation.is_partitioned:
            yield from partitioned.apply(transaction, relation, key, frame, completed)
            return
        for part in completed(frame, relation, key):
            is_cut = cut or (isinstance(part, pa.Table) and isinstance(frame, pa.Table) and part.num_rows < frame.num_rows)
            looked_up = [index for index in others if index.plain and not (is_cut and index.deferred)]
            done = merge(transaction, relation, key, part, others=looked_up)
            later.update({(relation.oid, index.oid): (relation, index) for index in others if not (done.checked and index in looked_up)})
            yield done

    @staticmethod
    def _others(relation: Relation, key: tuple[int, ...] | None) -> list[Index]:
        """The unique indexes of a table besides that of the key; those of partitioned tables are their key's."""
        if relation.is_partitioned:
            return []
        return [index for index in relation.indexes if index.unique and set(index.attnums) != set(key or ())]

    def _check_rights(self, transaction: Transaction, relation: Relation, ops: set[str]) -> None:
        if self.rights is None:
            return
        for op in sorted(ops):
            self.place.message = conflict.MESSAGES[op]
            shown, self.place.relation = self.place.relation, None if op == "T" else self.place.relation
            self.rights(transaction.cursor, relation, {op})
            self.place.relation = shown
        self.place.message = "INSERT"


def _ops(frame: pa.Table | DataFrame) -> set[str]:
    """The kinds of changes in a changes frame."""
    found = frame.select("op").distinct().toArrow()["op"] if isinstance(frame, DataFrame) else pc.unique(frame["op"])
    return set(found.to_pylist())


def _types(segment: Segment) -> dict[int, m.Type]:
    return {found.oid: found for _, _, found in segment.others if isinstance(found, m.Type)}


def _relations(segment: Segment) -> dict[int, m.Relation]:
    return {found.relation: found for _, _, found in segment.others if isinstance(found, m.Relation)}
