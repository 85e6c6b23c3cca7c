"""A segment inside a transaction of its applier: which of its changes are to be applied, as one changes frame per local table.

Made by `apply` for each segment. A segment is read and decoded part by part, so that a transaction of any size takes the memory of a part;
each table then gets a frame for each part. Where tasks decode (`decoding`), a table gets one frame of Spark's for the whole segment; where
rows of some table must be completed here, one for each part, and that table's is brought to the driver. TRUNCATEs become frames of their
own; what was inserted before a TRUNCATE … RESTART IDENTITY is left out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.catalog.relation import foreign_key as foreign_keys
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.storage.spark import exchange
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.spark.persisted import persisted
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply import conversion, decoding, leaf_constraints, row_completion
from headgate.subscriber.apply.decoding import DecodeTask, TableChanges
from headgate.subscriber.apply.relation_map import Mapping, MissingColumnsError, local_relation, map_relation
from headgate.types import buffers
from headgate.walreceiver.segment import Segment, SegmentPart

if TYPE_CHECKING:
    from headgate.subscriber.apply.apply import Applier

PART_SIZE = 64 << 20
"""Bytes of a segment that are decoded at a time."""

Numbers = npt.NDArray[np.int64]
Frame = tuple[Relation, tuple[int, ...] | None, pa.Table | DataFrame]
Truncated = list[tuple[int, Mapping, pa.Table]]
"""The frames of TRUNCATEs, with their place."""
Surveyed = dict[m.Relation, Mapping]
"""The relations of a part whose changes are to be applied."""


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
        self.session = applier.session()
        self.said = decoding.told(applier.relations.values(), segment)
        """What the publisher has said of its relations."""
        self.is_cut = False
        """Whether a table may get several frames: what holds behind the transaction alone may not hold between them. Set by `frames`."""

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

    def _is_outside(self, local: Relation) -> bool:
        """Whether a table is not in the subscription at all (rather than not copied yet)."""
        return self.applier.stream.only is None and local.oid not in self.states

    def _leave_out(self, local: Relation, count: int) -> None:
        if count and self._is_outside(local):
            self.left_out[local.oid] = self.left_out.get(local.oid, 0) + count

    def frames(self, *, by_tasks: bool) -> Generator[Frame]:
        """The frames of the segment's tables, to be applied in this order; one that is Spark's is good until the next is asked for."""
        truncations, statistics = list(self.truncations(self._truncations())), self.transaction.engine.statistics
        by_tasks = by_tasks and not self._is_cut_by_sync()
        surveyed = self._surveyed() if by_tasks else []
        self.is_cut = self.segment.size > PART_SIZE
        if not by_tasks or not self._is_uniform(surveyed):
            yield from self._decoded(truncations)
            statistics.decoded(by_spark=False)
            return
        if not any(self._is_completed(found) for tables in surveyed for found in tables.values()):
            surveyed, self.is_cut = [_together(surveyed)], False
        for part, tables in zip(self.segment.parts(PART_SIZE if self.is_cut else max(self.segment.size, 1)), surveyed, strict=True):
            yield from self._by_tasks(part, tables, truncations)
        statistics.decoded(by_spark=True)

    def _is_cut_by_sync(self) -> bool:
        """Whether a table's changes are applied from a place inside of the segment: it may have other columns than those before it."""
        ends = self.segment.transactions.commit_lsn
        first = [self.applier.stream.applied_from(oid, state) for oid, state in self.states.items()]
        return any(ends[0] < lsn <= ends[-1] for lsn in first if lsn is not None)

    def _decoded(self, truncations: Truncated) -> Iterator[Frame]:
        """Decodes a part of the segment at a time."""
        for part in self.segment.parts(PART_SIZE):
            decoded = decode.decode(*part.read(), relations=decoding.known(self.said, part.first_seq), first_seq=part.first_seq)
            commit_lsn = np.concatenate([[decoding.begun_before(self.segment, part)], decoded.transactions.commit_lsn])
            frames: dict[int, list[pa.Table]] = {}
            for changes in decoded.changes:
                frame = self._frame(changes, commit_lsn)
                if frame is not None:
                    frames.setdefault(self.mapping(changes.relation).local.oid, []).append(frame)
            for found, frame in _within(part, truncations):
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
        elif len(chosen := wanted.chosen(changes, commit_lsn)):
            found = self.mapping(changes.relation)
            wanted = replace(wanted, mappings=(found,))
            frame = wanted.frame(chosen, commit_lsn, self.session, self.applier.place, completed=self._is_filled(found))
            return self.completed(frame, found)
        return None

    def _wanted(self, local: Relation, *found: Mapping) -> TableChanges | None:
        """Which changes of a local table are to be applied; None: none."""
        first = self.applied_from(local)
        return None if first is None else TableChanges(found, first, self.restarted.get(local.oid, -1))

    # ---- by tasks ---------------------------------------------------------------------------------------

    def _surveyed(self) -> list[Surveyed]:
        """For each part of PART_SIZE the relations whose changes are to be applied, with their mapping."""
        surveyed = []
        for part in self.segment.parts(PART_SIZE):
            relations = decoding.known(self.said, part.first_seq)
            tables: Surveyed = {}
            for relation, count in decode.survey(*part.read(), relations=relations, first_seq=part.first_seq):
                local = self._local(relation)
                if self.applied_from(local) is None:
                    self._leave_out(local, count)
                else:
                    tables[relation] = self.mapping(relation)
            surveyed.append(tables)
        return surveyed

    @staticmethod
    def _is_uniform(surveyed: list[Surveyed]) -> bool:
        """Whether each local table's frames have one form, however its relation was described."""
        forms: dict[int, pa.Schema] = {}
        every = [found for tables in surveyed for found in tables.values()]
        return all(forms.setdefault(found.local.oid, form) == form for found in every for form in [conversion.frame_schema(found)])

    def _by_tasks(self, part: SegmentPart, tables: Surveyed, truncations: Truncated) -> Iterator[Frame]:
        """The frames of a part of the segment, decoded by tasks."""
        engine = self.transaction.engine
        local: dict[int, list[Mapping]] = {}
        for found in tables.values():
            local.setdefault(found.local.oid, []).append(found)
        ends: dict[int, list[pa.Table]] = {}
        for found, frame in _within(part, truncations):
            ends.setdefault(found.local.oid, []).append(frame)
            local.setdefault(found.local.oid, [])
        mapped = {found.local.oid: found for found in self.mappings.values()}

        def content(each: SegmentPart) -> bytes:
            return decoding.content_of(each, decoding.begun_before(self.segment, each))

        pieces = part.parts(decoding.PART_BYTES)
        with exchange.contents_handed_over(engine.spark, pieces, content, part.size, engine.exchange) as contents:
            for oid, found_here in local.items():
                here = ends.get(oid, [])
                if found_here and not any(self._is_completed(found) for found in found_here):
                    frame = self._task(*found_here, completed=False).changes(contents)
                    if here:
                        frame = frame.union(local_frame(engine.spark, pa.concat_tables(here), frame.schema))
                    with persisted(frame):
                        yield mapped[oid].local, mapped[oid].key, frame
                else:
                    brought = [self._brought(contents, found) for found in found_here]
                    yield mapped[oid].local, mapped[oid].key, pa.concat_tables([*brought, *here])

    def _task(self, *found: Mapping, completed: bool) -> DecodeTask:
        """What tasks do for a local table."""
        wanted = self._wanted(found[0].local, *found)
        assert wanted is not None, "what is surveyed is applied"
        return DecodeTask(self.said, wanted, self.session, completed)

    def _brought(self, contents: DataFrame, found: Mapping) -> pa.Table:
        """The changes of a relation whose rows are completed here."""
        self.applier.place.relation = f"{found.local.schema}.{found.local.name}"
        task = self._task(found, completed=self._is_filled(found))
        return self.completed(task.changes(contents).toArrow().cast(conversion.frame_schema(found)), found)

    def _is_filled(self, found: Mapping) -> bool:
        """Whether rows of a relation get defaults or generated columns, or are checked, by `row_completion`."""
        if self.applier.rows is None:
            return False
        return row_completion.needed(found.local, found.sources) or self.applier.fired(self.transaction, found.local) is not None

    def _is_completed(self, found: Mapping) -> bool:
        """Whether rows of a relation are completed or checked in the driver: here, and those of UPDATEs by `updated_rows`."""
        return self._is_filled(found) or (self.applier.rows is not None and bool(leaf_constraints.further(self.transaction, found.local)))

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


def _together(surveyed: list[Surveyed]) -> Surveyed:
    return {relation: found for tables in surveyed for relation, found in tables.items()}


def _within(part: SegmentPart, truncations: Truncated) -> list[tuple[Mapping, pa.Table]]:
    """The TRUNCATEs of a part."""
    return [(found, frame) for seq, found, frame in truncations if part.first_seq <= seq < part.end_seq]
