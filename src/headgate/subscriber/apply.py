"""Applies segments: decode, convert, merge, one commit for all tables together with the origin's progress.

One `Applier` per stream, used by the apply worker for all ready tables and by a table sync for its one table. Small segments are
decoded on the driver, large ones in Spark tasks, range by range, so that a transaction of any size is applied in bounded memory.
What must hold: data and progress are one commit; a segment that fails leaves nothing; what fails is found by halving, so that the
transactions before the failing one are applied and the error names exactly that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from headgate.catalog import foreign_key as foreign_keys
from headgate.catalog import relation as relations
from headgate.catalog import sequence as sequences
from headgate.catalog import subscription as subscriptions
from headgate.catalog.relation import Column, Index, Relation
from headgate.changes.merge import ON_DRIVER as ON_DRIVER_CHANGES
from headgate.changes.merge import merge
from headgate.errors import PostgresError, Severity
from headgate.lsn import Lsn
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.storage.engine import Engine
from headgate.storage.log import OriginProgress
from headgate.storage.transaction import Transaction
from headgate.subscriber import completion, conflict, convert, evolution, insertion, leafconstraints, partitioned
from headgate.subscriber.conflict import Place
from headgate.subscriber.convert import Session
from headgate.subscriber.relation import Mapping, MissingColumnsError, map_relation, mapping
from headgate.types.storage import spark_type
from headgate.walreceiver.segment import Range, Segment

_log = logging.getLogger("headgate.subscriber")

RANGE_SIZE = 16 << 20
"""Bytes of a segment that one Spark task decodes at a time."""
ON_DRIVER = 64 << 20
"""Segments of at most this many bytes are decoded by the driver: a million changes a second, without a transfer to other processes."""
RETRIED = frozenset({"40001", "40P01"})
NOT_HALVED = frozenset({"57P01", "57014", "53100", "53200"})


@dataclass(frozen=True)
class Stream:
    """Whose changes are applied: the subscription, the origin, and, for a table sync, the one table."""

    subscription: int
    database: int
    origin: str
    only: int | None = None
    everything: bool = False
    """Whether no table's state is asked for: a prepared transaction is ended by hand, its tables were ready when it was prepared."""


@dataclass
class Counters:
    """What has been applied since the worker started."""

    transactions: int = 0
    changes: int = 0
    missing: int = 0
    bytes: int = 0


@dataclass
class Applier:
    """See the module. `session` gives what input functions depend on; `stopping` raises when the worker should end."""

    engine: Engine
    stream: Stream
    session: Callable[[], Session]
    stopping: Callable[[], None]
    rows: completion.Factory | None = None
    """Completes and checks rows of tables that need it (`completion`)."""
    rights: Callable[[Any, Relation, set[str]], None] | None = None
    """Raises unless changes of these kinds may be applied to a table."""
    evolve: Callable[[Relation, list[tuple[str, str]]], None] | None = None
    """Adds columns that a table lacks (schema_evolution)."""
    unique: Callable[[Transaction, Relation, Any], None] | None = None
    """Raises 23505 if the table has a key of a unique index twice: for what `merge` cannot look up."""
    small: Callable[[], int] = lambda: ON_DRIVER_CHANGES
    """small_batch_rows."""
    relations: dict[int, m.Relation] = field(default_factory=dict)
    """What the publisher said of its relations on this connection."""
    types: dict[int, m.Type] = field(default_factory=dict)
    """The same of types that are not built in."""
    place: Place = field(default_factory=Place)
    counters: Counters = field(default_factory=Counters)

    def apply(self, segment: Segment, applied: Callable[[Lsn], None] = lambda _: None) -> None:
        """Applies a segment; `applied` is called with the end of what has become durable, more than once if a part of it fails.

        Raises the error of the first transaction that cannot be applied, with its context.
        """
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

    def finish(self, segment: Segment, also: Callable[[Any], None]) -> None:
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
        self.relations.update({r.relation: r for _, _, r in segment.others if isinstance(r, m.Relation)})
        self.types.update(_types(segment))

    def _in_context(self, error: PostgresError, segment: Segment) -> PostgresError:
        finish = Lsn(segment.transactions.commit_lsn[0])
        return error.within(conflict.context(self.stream.origin, self.place, int(segment.transactions.xid[0]), finish))

    def _apply_retrying(self, segment: Segment, *, dry: bool = False, also: Callable[[Any], None] | None = None) -> None:
        for attempt in range(10):
            try:
                self._apply_once(segment, dry=dry, also=also)
            except MissingColumnsError as error:
                if self.evolve is None or attempt == 9:
                    raise
                self.evolve(error.local, evolution.missing_columns(error, self.types | _types(segment)))
            except PostgresError as error:
                if error.sqlstate not in RETRIED or attempt == 9:
                    raise
                self.stopping()
            else:
                return

    def _apply_once(self, segment: Segment, *, dry: bool = False, also: Callable[[Any], None] | None = None) -> None:
        self.place = Place()
        transaction = self.engine.begin(self.stream.database)
        transaction.cancelled = self.stopping
        try:
            written = bool(segment.pieces) and self._write(transaction, segment)
            if also is not None:
                also(transaction.cursor)
            if dry or (not written and also is None):
                transaction.rollback()
            else:
                time = int(segment.transactions.commit_time[-1])
                transaction.commit(OriginProgress(self.stream.origin, segment.end, time))
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
        self.counters.transactions += len(segment.transactions)
        self.counters.bytes += segment.size

    def _write(self, transaction: Transaction, segment: Segment) -> bool:
        """Writes a segment's changes; whether there was anything to write."""
        batch = _Batch(self, transaction, segment)
        large = segment.on_disk and segment.size > ON_DRIVER
        frames = batch.on_spark() if large and batch.fits_spark() else batch.on_driver()
        any_written = False
        for relation, key, frame in frames:
            self.stopping()
            any_written = True
            with leafconstraints.unique(transaction, relation, self.unique):
                self._merge(transaction, relation, key, frame)
        return any_written

    def _merge(self, transaction: Transaction, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame) -> None:
        self.place.relation, self.place.column, self.place.message = f"{relation.schema}.{relation.name}", None, "INSERT"
        if self.rights is not None:
            self._check_rights(self.rights, transaction, relation, frame)
        if relation.parent:
            partitioned.refuse_outside(transaction, relation, frame)
        others = self._others(relation, key)
        if isinstance(frame, pa.Table) and not others and insertion.only_inserts(frame):
            rows = insertion.rows_of(frame["new"])
            if key is None or insertion.is_new(transaction, relation, key, rows):
                self.counters.changes += insertion.append(transaction, relation, rows)
                return
        if isinstance(frame, pa.Table) and not (pc.any(pc.equal(frame["op"], "I"))).as_py():
            self.place.message = "UPDATE"
        if relation.kind == "p":
            done = partitioned.apply(transaction, relation, key, frame, small=self.small())
        else:
            done = merge(transaction, relation, key, frame, small=self.small(), others=[index for index in others if index.plain])
        for index in others:
            if self.unique is not None and not (done.checked and index.plain):
                self.unique(transaction, relation, index)
        if done.conflict is not None:
            raise partitioned.duplicate_key(transaction, relation, done.conflict.key)
        self.counters.changes += done.changes
        self.counters.missing += done.missing
        if done.skipped is not None and _log.isEnabledFor(logging.DEBUG):
            partitioned.tell_skipped(transaction, relation, done.skipped)

    @staticmethod
    def _others(relation: Relation, key: tuple[int, ...] | None) -> list[Index]:
        """The unique indexes of a table besides that of the key; those of partitioned tables are their key's."""
        if relation.kind == "p":
            return []
        return [index for index in relation.indexes if index.unique and set(index.attnums) != set(key or ())]

    def _check_rights(
        self, rights: Callable[[Any, Relation, set[str]], None], transaction: Transaction, relation: Relation, frame: pa.Table | DataFrame
    ) -> None:
        found = frame.select("op").distinct().toArrow()["op"] if isinstance(frame, DataFrame) else pc.unique(frame["op"])
        for op in sorted(found.to_pylist()):
            self.place.message = conflict.MESSAGES[op]
            rights(transaction.cursor, relation, {op})
        self.place.message = "INSERT"


def _types(segment: Segment) -> dict[int, m.Type]:
    return {found.oid: found for _, _, found in segment.others if isinstance(found, m.Type)}


Frame = tuple[Relation, tuple[int, ...] | None, pa.Table | DataFrame]


class _Batch:
    """One segment inside one transaction: which of its changes are to be applied, as one frame per local table."""

    def __init__(self, applier: Applier, transaction: Transaction, segment: Segment) -> None:
        self.applier, self.transaction, self.segment = applier, transaction, segment
        stream = applier.stream
        self.states = {rel.relation: rel for rel in subscriptions.tables(transaction.cursor, stream.subscription)}
        self.mappings: dict[m.Relation, Mapping] = {}
        self.restarted: dict[int, int] = {}
        """Where a TRUNCATE … RESTART IDENTITY of a local table stands, the last one."""
        self.session = applier.session()

    def mapping(self, remote: m.Relation) -> Mapping:
        """The mapping of a published relation."""
        found = self.mappings.get(remote)
        if found is None:
            self.applier.place.relation = None
            try:
                found = map_relation(self.transaction.cursor, self.applier.stream.database, remote)
            except MissingColumnsError as error:
                error.remote = remote
                raise
            self.mappings[remote] = found
        return found

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
                continue
            lost = (changes.op == ord("I")) & (changes.seq < self.restarted.get(found.local.oid, -1))  # would take the first numbers
            chosen = changes.where((commit_lsn[changes.txn] >= first) & ~lost)
            if len(chosen):
                frame = convert.changes_frame(chosen, commit_lsn[chosen.txn], found, self.session, self.applier.place)
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
            self._check_references(truncation, lsn)
            for remote in truncation.relations:
                mapped = self.mapping(remote)
                first = self.applied_from(mapped.local)
                if first is not None and lsn >= first:
                    if truncation.message.restart_identity:
                        sequences.restart_owned(self.transaction.cursor, self.applier.stream.database, mapped.local.oid)
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
                continue
            whole: DataFrame | None = None
            for oid, _ in sources:
                if oid in self.segment.touched:
                    task = _Task(parts, oid, found.local, first, self.session)
                    ids = spark.range(0, len(parts), 1, len(parts))
                    decoded = ids.mapInArrow(task, frame_type(found))
                    whole = decoded if whole is None else whole.unionByName(decoded)
            for table in truncated.get(local_oid, ()):
                rows = spark.createDataFrame(table, frame_type(found))
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
            found = mapping(self.local, changes.relation)
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
