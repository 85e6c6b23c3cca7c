"""A segment inside a transaction of its applier: which of its changes are to be applied, as one changes frame per local table.

Made by `apply` for each segment. `frames`: the driver reads and decodes a segment part by part, so that a transaction of any size takes the
memory of a part; each table then gets a frame for each part. TRUNCATEs become frames of their own; what was inserted before a
TRUNCATE … RESTART IDENTITY is left out. `for_tasks`: what tasks need to decode and apply the whole segment as one job (`changes.tasks`);
the one place that says which changes only the driver applies. `record`: the frames become rows of the tables' histories (`table_history`).
"""

from __future__ import annotations

import contextlib
from collections import abc
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation import foreign_key as foreign_keys
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column, subscription_history
from headgate.changes import tasks
from headgate.changes.tasks import Appended, TaskLeaf, TaskTable
from headgate.errors import PostgresError
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply import conversion, decoding, leaf_constraints, partitioned, row_completion, table_history
from headgate.subscriber.apply.decoding import MOST_FRAME, SegmentSource, TableChanges
from headgate.subscriber.apply.relation_map import Mapping, MissingColumnsError, local_relation, map_relation
from headgate.subscriber.apply.table_history import LackingHistoryError
from headgate.subscriber.apply.updated_rows import Reads
from headgate.types import buffers
from headgate.walreceiver.segment import Segment, SegmentPart

if TYPE_CHECKING:
    from headgate.subscriber.apply.apply import Applier

PART_SIZE = 64 << 20
"""Bytes of a segment that are decoded at a time."""

Numbers = npt.NDArray[np.int64]
Frame = tuple[Relation, tuple[int, ...] | None, pa.Table]
Truncated = list[tuple[int, Mapping, pa.Table]]
"""The frames of TRUNCATEs, with their place."""


class Batch:
    """One segment inside one transaction: which of its changes are to be applied, as one frame per local table."""

    def __init__(self, applier: Applier, transaction: Transaction, segment: Segment) -> None:
        self.applier, self.transaction, self.segment = applier, transaction, segment
        stream = applier.stream
        self.states = {rel.relation: rel for rel in subscriptions.tables(transaction.cursor, stream.subscription)}
        self.mappings: dict[m.Relation, Mapping] = {}
        self.restarted: dict[int, int] = {}
        """Where a TRUNCATE … RESTART IDENTITY of a local table stands, the last one."""
        self.left_out: dict[int, int] = {}
        """Changes of tables that are not in the subscription, by relation."""
        self._histories = subscription_history.of_subscription(transaction.cursor, stream.subscription)
        self._recorded: dict[int, list[pa.Table]] = {}
        """Rows for the histories of tables that have yet to be written."""
        self.session = applier.session()
        self.said = decoding.told(applier.relations.values(), segment)
        """What the publisher has said of its relations."""
        self.is_cut = False
        """Whether a table may get several frames: what holds after the transaction alone may not hold between them. Set by `frames`."""

    def mapping(self, remote: m.Relation) -> Mapping:
        """The mapping of a published relation."""
        found = self.mappings.get(remote)
        if found is None:
            self.applier.place.relation = None
            try:
                cursor, stream = self.transaction.cursor, self.applier.stream
                found = map_relation(cursor, stream.database, remote, self._names)
            except MissingColumnsError as error:
                error.remote = remote
                raise
            self.mappings[remote] = found
        return found

    def _names(self, remote: m.Relation, local: Relation) -> tuple[str | None, ...] | None:
        """The local columns of a relation that was followed, by the publisher's numbers; None for one that has gone."""
        numbers = self.applier.numbers.get(remote)
        if not numbers:
            return None
        columns = subscription_column.of_table(self.transaction.cursor, self.applier.stream.subscription, local.oid)
        known = {column.attnum: None if column.dropped else column.name for column in columns}
        pairs = zip(numbers, remote.columns, strict=True)
        return tuple(column.name if number is None else known.get(number, column.name) for number, column in pairs)

    def applied_from(self, local: Relation) -> int | None:
        """Return the commit LSN from which on changes of a table are applied; None: none of the segment (should_apply_changes_for_rel)."""
        first = self.applier.stream.applied_from(local.oid, self.states.get(local.oid))
        return None if first is None or first > self.segment.transactions.commit_lsn[-1] else first

    def _local(self, remote: m.Relation) -> Relation:
        """Return the local table of a published relation, whose columns need not be the relation's while no change is applied."""
        return local_relation(self.transaction.cursor, self.applier.stream.database, remote.schema, remote.name)

    @cached_property
    def _without_history(self) -> Collection[int]:
        """The tables whose history is to be begun before changes are applied to them."""
        cursor = self.transaction.cursor
        subscription = None if self.applier.record is None else subscriptions.find(cursor, self.applier.stream.subscription)
        return [] if subscription is None else subscriptions.without_history(cursor, subscription)

    def history(self, local: Relation) -> Relation | None:
        """Return the table that holds the history of a table, None if it has none; LackingHistoryError if it must be begun or extended."""
        found = self._histories.get(local.oid)
        if found is None or not found.is_begun:
            if local.oid in self._without_history:
                raise LackingHistoryError("55000", f'the history of table "{local.schema}.{local.name}" has not begun')
            return None
        history = relations.get(self.transaction.cursor, self.applier.stream.database, found.relation)
        if table_history.differing(local, history):
            raise LackingHistoryError(
                "55000", f'table "{history.schema}.{history.name}" does not have the columns of table "{local.schema}.{local.name}"'
            )
        return history

    def record(self, local: Relation) -> None:
        """Write the changes of a table that have been decoded since the last call into its history, if it has one."""
        recorded = self._recorded.pop(local.oid, [])
        if recorded and (history := self.history(local)) is not None:
            self.transaction.append(history, pa.concat_tables(recorded))

    def _note_truncation(self, local: Relation, frame: pa.Table) -> None:
        history = self.history(local)
        if history is not None:
            self._recorded.setdefault(local.oid, []).append(table_history.rows(local, history, frame, self.segment.transactions))

    def _is_outside(self, local: Relation) -> bool:
        """Whether a table is not in the subscription at all (rather than not copied yet)."""
        return self.applier.stream.only is None and local.oid not in self.states

    def _leave_out(self, local: Relation, count: int) -> None:
        if count and self._is_outside(local):
            self.left_out[local.oid] = self.left_out.get(local.oid, 0) + count

    def frames(self) -> Generator[Frame]:
        """The frames of the segment's tables, decoded here, to be applied in this order."""
        self.is_cut = self.segment.size > PART_SIZE
        yield from self._decoded(list(self.truncations(self._truncations())))
        self.transaction.engine.statistics.decoded(self.segment.changes, by_spark=False)

    def _is_cut_by_sync(self) -> bool:
        """Whether a table's changes are applied from a place inside of the segment: it may have other columns than those before it."""
        ends = self.segment.transactions.commit_lsn
        first = [self.applier.stream.applied_from(oid, state) for oid, state in self.states.items()]
        return any(ends[0] < lsn <= ends[-1] for lsn in first if lsn is not None)

    def _decoded(self, truncations: Truncated) -> Iterator[Frame]:
        """Decodes a part of the segment at a time."""
        for part in self.segment.parts(PART_SIZE):
            decoded = decode.decode(*part.read(), relations=decoding.known(self.said, part.first_seq), first_seq=part.first_seq)
            commit_lsn = decoding.commit_lsns(decoding.begun_before(self.segment, part), decoded.transactions)
            frames: dict[int, list[pa.Table]] = {}
            for changes in decoded.changes:
                frame = self._frame(changes, commit_lsn)
                if frame is not None:
                    frames.setdefault(self.mapping(changes.relation).local.oid, []).append(frame)
            for found, frame in _within(part, truncations):
                self._note_truncation(found.local, frame)
                frames.setdefault(found.local.oid, []).append(frame)
            mapped = {found.local.oid: found for found in self.mappings.values()}
            for oid, tables in frames.items():
                yield mapped[oid].local, mapped[oid].key, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _frame(self, changes: decode.Changes, commit_lsn: Numbers) -> pa.Table | None:
        """What of a relation's changes is to be applied; `commit_lsn` as in `TableChanges.chosen`. None: nothing."""
        local = self._local(changes.relation)
        wanted = self._wanted(local)
        if wanted is None:
            self._leave_out(local, len(changes))
            return None
        chosen, history = wanted.chosen(changes, commit_lsn), self.history(local)
        if not len(chosen) and history is None:
            return None
        found, place = self.mapping(changes.relation), self.applier.place
        wanted = replace(wanted, mappings=(found,))
        if history is not None and wanted.restarted >= 0:
            early = replace(wanted, restarted=-1).chosen(changes.where(changes.seq < wanted.restarted), commit_lsn)
            self._note(wanted, early, wanted.frame(early, commit_lsn, self.session, place, completed=False), history)
        if not len(chosen):
            return None
        frame = self.completed(wanted.frame(chosen, commit_lsn, self.session, place, completed=self._is_filled(found)), found)
        if history is not None:
            self._note(wanted, chosen, frame, history)
        return frame

    def _note(self, wanted: TableChanges, changes: decode.Changes, frame: pa.Table, history: Relation) -> None:
        """Keep what is to be written into the history of a table, until `record`."""
        if len(changes):
            rows = wanted.history(changes, frame, history, self.segment.transactions, self.session, self.applier.place)
            self._recorded.setdefault(wanted.mappings[0].local.oid, []).append(rows)

    def _wanted(self, local: Relation, *found: Mapping) -> TableChanges | None:
        """Which changes of a local table are to be applied; None: none."""
        first = self.applied_from(local)
        return None if first is None else TableChanges(found, first, self.restarted.get(local.oid, -1))

    # ---- by tasks ---------------------------------------------------------------------------------------

    def for_tasks(self) -> list[TableChanges] | None:
        """What tasks apply of the segment, a value for each local table; None if some of it is for the driver.

        The driver applies the changes of tables without a key, of tables whose rows need defaults, generated columns or constraints
        (a partition's bounds among them), and of partitioned tables whose leaves do not have one key with the partition columns. It
        also applies segments with changes larger than MOST_FRAME, and segments inside which the copy of a table ends: its columns may be
        other ones before that place. What cannot be mapped is for the driver, which tells whether it is changed at all.
        """
        if self._is_cut_by_sync() or any(len(piece.lengths) and piece.lengths.max() > MOST_FRAME for piece in self.segment.pieces):
            return None
        try:
            mappings = [self.mapping(remote) for remote in self._said_of_touched()]
            truncations = list(self.truncations(self._truncations()))
        except PostgresError:
            return None
        found: dict[int, list[Mapping]] = {}
        for each in [*mappings, *(mapped for _, mapped, _ in truncations)]:
            if each not in found.setdefault(each.local.oid, []):
                found[each.local.oid].append(each)
        if not all(self._is_for_tasks(each) for each in found.values()):
            return None
        for _, mapped, frame in truncations:
            self._note_truncation(mapped.local, frame)
        last = {mapped.local.oid: seq for seq, mapped, _ in truncations}
        wanted = [(self._wanted(each[0].local, *each), last.get(oid, -1)) for oid, each in found.items()]
        return [replace(table, truncated=seq) for table, seq in wanted if table is not None]

    def _said_of_touched(self) -> list[m.Relation]:
        """The descriptions of the relations that are changed here and whose changes are applied; the changes of others are counted."""
        here = [each for each in decoding.known(self.said, self.segment.first_seq).values() if each.relation in self.segment.touched]
        here += [each for seq, each in self.said if seq >= self.segment.first_seq and each.relation in self.segment.touched]
        applied = [each for each in dict.fromkeys(here) if self.applied_from(self._local(each)) is not None]
        if any(self._is_outside(self._local(each)) for each in here):
            for part in self.segment.parts(PART_SIZE):
                known = decoding.known(self.said, part.first_seq)
                for relation, count in decode.survey(*part.read(), relations=known, first_seq=part.first_seq):
                    self._leave_out(self._local(relation), count)
        return applied

    def _is_for_tasks(self, found: list[Mapping]) -> bool:
        """Whether tasks apply the changes of a local table, however its relation was described (`for_tasks`)."""
        local, key = found[0].local, found[0].key
        if key is None or any(conversion.frame_schema(each) != conversion.frame_schema(found[0]) for each in found):
            return False
        if any(self._is_filled(each) for each in found) or not Reads.of(self.transaction, local).is_empty:
            return False
        return not local.is_partitioned or partitioned.has_one_key(self.transaction.partitioned(local), key)

    def run(
        self, wanted: Sequence[TableChanges], tables: Sequence[TaskTable], histories: abc.Mapping[int, Relation], description: str
    ) -> tuple[list[tasks.Part], list[Appended]]:
        """Have tasks decode and apply the segment, and record it in the histories of tables (by the numbers of these).

        `tables` are those of `wanted`, whose TRUNCATEs are staged and recorded.
        """
        engine = self.transaction.engine
        cores = engine.spark.sparkContext.defaultParallelism
        slices = decoding.slices_of(self.segment, 2 * cores)
        handed = decoding.handed_over(slices, engine.exchange) if engine.on_cluster else contextlib.nullcontext(slices)
        with handed as given:
            leaves = {number: TaskLeaf.of(self.transaction, history) for number, history in histories.items()}
            source = SegmentSource(tuple(given), self.said, tuple(wanted), self.session, leaves)
            numbers = engine.spark.range(0, len(given), 1, min(len(given), 2 * cores))
            count = tasks.partitions(engine.spark, self.segment.size, self.segment.changes, tables)
            done = tasks.run(self.transaction, numbers, source, tables, count, description, self.session.types, histories.values())
        engine.statistics.decoded(self.segment.changes, by_spark=True)
        return done

    def _is_filled(self, found: Mapping) -> bool:
        """Whether rows of a relation get defaults or generated columns, or are checked, by `row_completion`."""
        if self.applier.rows is None:
            return False
        return row_completion.needed(found.local, found.sources) or self.applier.fired(self.transaction, found.local) is not None

    def completed(self, frame: pa.Table, found: Mapping) -> pa.Table:
        """The frame with the rows of its INSERTs completed and checked, if the table needs it."""
        factory = self.applier.rows
        if factory is None:
            return frame
        if self._is_filled(found):
            fires = self.applier.fired(self.transaction, found.local) is not None
            frame = row_completion.complete(
                frame, found.local, found.sources, self.transaction, factory, self.applier.place, is_checked=not fires
            )
        if leaf_constraints.further(self.transaction, found.local):
            new = buffers.whole(frame["new"]).filter(pc.equal(frame["op"], "I"))
            leaf_constraints.check_rows(row_completion.rows_of(new), found.local, self.transaction, factory)
        return frame

    def truncations(self, found: Iterable[decode.Truncation]) -> Iterator[tuple[int, Mapping, pa.Table]]:
        """The frames of the TRUNCATEs that are to be applied, with their place; restarts sequences where they say so."""
        for truncation in found:
            lsn = int(self.segment.transactions.commit_lsn[truncation.txn])
            self.applier.place.message, self.applier.place.relation = "TRUNCATE", None
            self._check_references(truncation, lsn)
            self.applier.place.message = "INSERT"
            for remote in truncation.relations:
                first = self.applied_from(self._local(remote))
                if first is not None and lsn >= first:
                    mapped = self.mapping(remote)
                    if truncation.message.restart_identity:
                        database, lock = self.applier.stream.database, self.transaction.lock_object
                        sequences.restart_owned(self.transaction.cursor, database, mapped.local.oid, lock)
                        self.restarted[mapped.local.oid] = truncation.seq
                    yield truncation.seq, mapped, conversion.truncate_frame(mapped, lsn, truncation.seq)

    def _check_references(self, truncation: decode.Truncation, lsn: int) -> None:
        """0A000 if a table that is not truncated has a foreign key to one that is."""
        cursor, database = self.transaction.cursor, self.applier.stream.database
        applied = []
        for remote in truncation.relations:
            local = self._local(remote)
            first = self.applied_from(local)
            if first is not None and lsn >= first:
                applied.append(relations.get(cursor, database, local.oid))
        foreign_keys.check_truncate(cursor, applied)

    def _truncations(self) -> Iterator[decode.Truncation]:
        known = dict(self.applier.relations)
        begins = self.segment.transactions.begin
        for seq, lsn, other in self.segment.others:
            if isinstance(other, m.Relation):
                known[other.relation] = other
            elif isinstance(other, m.Truncate):
                txn = int(np.searchsorted(begins, seq, side="right")) - 1
                yield decode.Truncation(txn, lsn, seq, other, tuple(known[oid] for oid in other.relations if oid in known))


def _within(part: SegmentPart, truncations: Truncated) -> list[tuple[Mapping, pa.Table]]:
    """The TRUNCATEs of a part."""
    return [(found, frame) for seq, found, frame in truncations if part.first_seq <= seq < part.end_seq]
