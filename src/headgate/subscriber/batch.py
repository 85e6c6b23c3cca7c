"""A segment inside a transaction of its applier: which of its changes are to be applied, as one changes frame per local table.

Made by `apply` for each segment. Decodes on the driver, or range by range in Spark tasks where the segment is large and no row must be
completed. TRUNCATEs become frames of their own; what was inserted before a TRUNCATE … RESTART IDENTITY is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from headgate.catalog import foreign_key as foreign_keys
from headgate.catalog import relation as relations
from headgate.catalog import sequence as sequences
from headgate.catalog import subscription as subscriptions
from headgate.catalog import subscription_column
from headgate.catalog.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.storage.local import local_frame
from headgate.storage.transaction import Transaction
from headgate.subscriber import completion, conflict, convert, leafconstraints
from headgate.subscriber.conflict import Place
from headgate.subscriber.convert import Session
from headgate.subscriber.relation import Mapping, MissingColumnsError, map_relation, mapping
from headgate.types.storage import spark_type
from headgate.walreceiver.segment import Range, Segment

if TYPE_CHECKING:
    from headgate.subscriber.apply import Applier

RANGE_SIZE = 16 << 20
"""Bytes of a segment that one Spark task decodes at a time."""

Frame = tuple[Relation, tuple[int, ...] | None, pa.Table | DataFrame]


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

    def mapping(self, remote: m.Relation) -> Mapping:
        """The mapping of a published relation."""
        found = self.mappings.get(remote)
        if found is None:
            self.applier.place.relation = None
            try:
                cursor, stream = self.transaction.cursor, self.applier.stream
                found = map_relation(cursor, stream.database, remote, self._former if self.applier.follow else None)
            except MissingColumnsError as error:
                error.remote = remote
                raise
            self.mappings[remote] = found
        return found

    def _former(self, local: Relation) -> dict[str, str | None]:
        """The names that columns of a table had, with those that they have now; None for a column that has gone."""
        columns = subscription_column.of_table(self.transaction.cursor, self.applier.stream.subscription, local.oid)
        found: dict[str, str | None] = {each.name: None for each in columns if each.dropped}
        return found | {name: None if each.dropped else each.name for each in columns for name in each.former}

    def applied_from(self, local: Relation) -> int | None:
        """The commit LSN from which on changes of a table are applied; None: not at all (should_apply_changes_for_rel)."""
        if self.applier.stream.everything:
            return 0
        only = self.applier.stream.only
        if only is not None:
            return 0 if local.oid == only else None
        state = self.states.get(local.oid)
        if state is None:
            return None
        if state.state == "r":
            return 0
        return int(state.lsn or 0) if state.state == "s" else None

    def _is_outside(self, local: Relation) -> bool:
        """Whether a table is not in the subscription at all (rather than not copied yet)."""
        return self.applier.stream.only is None and local.oid not in self.states

    def _leave_out(self, local: Relation, count: int) -> None:
        if count and self._is_outside(local):
            self.left_out[local.oid] = self.left_out.get(local.oid, 0) + count

    def on_driver(self) -> Iterator[Frame]:
        """Decodes here."""
        decoded = decode.decode(*self.segment.read(), relations=self.applier.relations, first_seq=self.segment.first_seq)
        commit_lsn = decoded.transactions.commit_lsn
        frames: dict[int, list[pa.Table]] = {}
        truncations = list(self.truncations(decoded.truncations))
        for changes in decoded.changes:
            found = self.mapping(changes.relation)
            first = self.applied_from(found.local)
            if first is None:
                self._leave_out(found.local, len(changes))
                continue
            lost = (changes.op == ord("I")) & (changes.seq < self.restarted.get(found.local.oid, -1))  # would take the first numbers
            chosen = changes.where((commit_lsn[changes.txn] >= first) & ~lost)
            if len(chosen):
                later = self.applier.rows is not None and completion.needed(found.local, found.sources)
                frame = convert.changes_frame(chosen, commit_lsn[chosen.txn], found, self.session, self.applier.place, completed=later)
                frame = self.completed(frame, found)
                frames.setdefault(found.local.oid, []).append(frame)
        for found, frame in truncations:
            frames.setdefault(found.local.oid, []).append(frame)
        mapped = {found.local.oid: found for found in self.mappings.values()}
        for oid, tables in frames.items():
            yield mapped[oid].local, mapped[oid].key, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def completed(self, frame: pa.Table, found: Mapping) -> pa.Table:
        """The frame with defaults, generated columns and checks, where the table has any."""
        factory = self.applier.rows
        if factory is None:
            return frame
        if completion.needed(found.local, found.sources):
            frame = completion.complete(frame, found.local, found.sources, self.transaction, factory, self.applier.place)
        if leafconstraints.needed(self.transaction, found.local):
            leafconstraints.check_frame(frame, found.local, self.transaction, factory, self.applier.place)
        return frame

    def fits_spark(self) -> bool:
        """Whether Spark tasks can do all that is needed: rows that must be completed cannot."""
        if self.applier.rows is None:
            return True
        versions = [remote for oid, found in self._versions().items() if oid in self.segment.touched for remote in found]
        found = [self.mapping(remote) for remote in versions]
        return not any(
            completion.needed(each.local, each.sources) or leafconstraints.needed(self.transaction, each.local) for each in found
        )

    def truncations(self, found: Iterable[decode.Truncation]) -> Iterator[tuple[Mapping, pa.Table]]:
        """The frames of the TRUNCATEs that are to be applied; restarts sequences where they say so."""
        for truncation in found:
            lsn = int(self.segment.transactions.commit_lsn[truncation.txn])
            self.applier.place.message, self.applier.place.relation = "TRUNCATE", None
            self._check_references(truncation, lsn)
            self.applier.place.message = "INSERT"
            for remote in truncation.relations:
                mapped = self.mapping(remote)
                first = self.applied_from(mapped.local)
                if first is not None and lsn >= first:
                    if truncation.message.restart_identity:
                        database, lock = self.applier.stream.database, self.transaction.lock_object
                        sequences.restart_owned(self.transaction.cursor, database, mapped.local.oid, lock)
                        self.restarted[mapped.local.oid] = truncation.seq
                    yield mapped, convert.truncate_frame(mapped, lsn, truncation.seq)

    def _check_references(self, truncation: decode.Truncation, lsn: int) -> None:
        """0A000 if a table that is not truncated has a foreign key to one that is."""
        cursor, database = self.transaction.cursor, self.applier.stream.database
        applied = []
        for remote in truncation.relations:
            local = self.mapping(remote).local
            first = self.applied_from(local)
            if first is not None and lsn >= first:
                applied.append(relations.get(cursor, database, local.oid))
        foreign_keys.check_truncate(cursor, applied)

    def on_spark(self) -> Iterator[Frame]:
        """Decodes in Spark tasks, one range of the segment each, once for each table."""
        spark = self.transaction.engine.spark
        versions = self._versions()
        truncated: dict[int, list[pa.Table]] = {}
        for found, frame in self.truncations(self._truncations()):
            truncated.setdefault(found.local.oid, []).append(frame)
        plans: dict[int, list[tuple[int, Mapping]]] = {}
        for oid in sorted(self.segment.touched | {r.relation for r in self.mappings}):
            for remote in versions.get(oid, ()):
                found = self.mapping(remote)
                plans.setdefault(found.local.oid, [])
                if all(known != oid for known, _ in plans[found.local.oid]):
                    plans[found.local.oid].append((oid, found))
        parts = self._parts()
        for local_oid, sources in plans.items():
            found = sources[0][1]
            first = self.applied_from(found.local)
            if first is None:
                if self._is_outside(found.local):
                    tasks = [_Task(parts, oid, found.local, 0, self.session) for oid, _ in sources if oid in self.segment.touched]
                    counted = [spark.range(0, len(parts), 1, len(parts)).mapInArrow(each, frame_type(found)).count() for each in tasks]
                    self._leave_out(found.local, sum(counted))
                continue
            former = self._former(found.local) if self.applier.follow else None
            whole: DataFrame | None = None
            for oid, _ in sources:
                if oid in self.segment.touched:
                    task = _Task(parts, oid, found.local, first, self.session, former)
                    ids = spark.range(0, len(parts), 1, len(parts))
                    decoded = ids.mapInArrow(task, frame_type(found))
                    whole = decoded if whole is None else whole.unionByName(decoded)
            for table in truncated.get(local_oid, ()):
                rows = local_frame(spark, table, frame_type(found))
                whole = rows if whole is None else whole.unionByName(rows)
            if whole is not None:
                yield found.local, found.key, whole

    def _versions(self) -> dict[int, list[m.Relation]]:
        """The descriptions of each relation that hold somewhere in the segment."""
        found = {oid: [relation] for oid, relation in self.applier.relations.items()}
        for _, _, other in self.segment.others:
            if isinstance(other, m.Relation) and other not in found.setdefault(other.relation, []):
                found[other.relation].append(other)
        return found

    def _truncations(self) -> Iterator[decode.Truncation]:
        known = dict(self.applier.relations)
        begins = self.segment.transactions.begin
        for seq, lsn, other in self.segment.others:
            if isinstance(other, m.Relation):
                known[other.relation] = other
            elif isinstance(other, m.Truncate):
                txn = int(np.searchsorted(begins, seq, side="right")) - 1
                yield decode.Truncation(txn, lsn, seq, other, tuple(known[oid] for oid in other.relations if oid in known))

    def _parts(self) -> list[_Part]:
        """The ranges with what is known of the relations, and in which transaction they begin."""
        known = dict(self.applier.relations)
        others = iter([(seq, r) for seq, _, r in self.segment.others if isinstance(r, m.Relation)])
        following = next(others, None)
        found = []
        for part in self.segment.ranges(RANGE_SIZE):
            while following is not None and following[0] < part.first_seq:
                known[following[1].relation] = following[1]
                following = next(others, None)
            txn = int(np.searchsorted(self.segment.transactions.begin, part.first_seq, side="left")) - 1
            lsn = int(self.segment.transactions.commit_lsn[txn]) if txn >= 0 else 0
            found.append(_Part(part, dict(known), lsn))
        return found


@dataclass(frozen=True)
class _Part:
    """A range, the relations known where it begins, and the commit LSN of the transaction in which it begins."""

    range: Range
    relations: dict[int, m.Relation]
    commit_lsn: int


@dataclass(frozen=True)
class _Task:
    """What a Spark task does: decodes the changes of one relation in the ranges whose numbers it gets."""

    parts: list[_Part]
    oid: int
    local: Relation
    applied_from: int
    session: Session
    former: dict[str, str | None] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = Place()
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self._decode(self.parts[number], place)
        except PostgresError as error:
            raise conflict.carry(error, place) from error

    def _decode(self, part: _Part, place: Place) -> Iterator[pa.RecordBatch]:
        data, starts, lengths = part.range.read()
        decoded = decode.decode(data, starts, lengths, relations=part.relations, first_seq=part.range.first_seq, only=self.oid)
        commit_lsn = np.concatenate([[part.commit_lsn], decoded.transactions.commit_lsn])
        for changes in decoded.changes:
            chosen = changes.where(commit_lsn[changes.txn + 1] >= self.applied_from)
            found = mapping(self.local, changes.relation, self.former)
            frame = convert.changes_frame(chosen, commit_lsn[chosen.txn + 1], found, self.session, place)
            yield from frame.to_batches(max_chunksize=20_000)


def frame_type(found: Mapping) -> StructType:
    """The changes frame's schema for Spark."""
    return StructType(
        [
            StructField("commit_lsn", LongType()),
            StructField("seq", LongType()),
            StructField("position", LongType()),
            StructField("op", StringType()),
            StructField("old", _struct_type(convert.old_columns(found))),
            StructField("new", _struct_type(found.local.columns)),
            StructField("unchanged", ArrayType(StringType())),
        ]
    )


def _struct_type(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(c.name, spark_type(c.type_oid, c.typmod)) for c in columns])
