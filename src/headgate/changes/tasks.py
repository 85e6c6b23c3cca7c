"""Applies a batch of changes of several tables as one Spark job of two stages, with the kernels that `merge` calls in the driver.

    map       a task makes the changes of its slices (`Source`), splits them by the hash of their keys into partitions, and returns one
              Arrow IPC stream (a blob) for each table and partition
    exchange  Spark moves rows of (partition, table, place, blob): a few large binaries and not the rows of the batch
    reduce    a task puts the blobs of its partition in the order of the stream, nets them (`net`), looks up the keys in the table's files,
              and writes data and change files. It returns the file actions and the positions of the rows to delete (`Part`)

A batch that only inserts rows with new keys needs no exchange (`Job.insert`, `insertion`): tasks write the rows of their own slices.

The driver merges the positions into deletion vectors and stages the actions (`stage`). No data of the size of a batch passes through it.
A task gets all that it needs as one frozen argument, made under the locks of the tables (`TaskTable.of`). It depends on nothing else, so
that Spark may run it again. Files of a superseded attempt have unique names that no action refers to, and cleaning removes them.

Invariant: nothing is staged unless all partitions were netted and none has a conflict. Called by `merge` and by the apply worker.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headgate.catalog.relation.relation import Relation
from headgate.changes import insertion, key_order, lookup, net
from headgate.changes.key_order import UniqueKey
from headgate.changes.keyed_batch import in_order, whole_rows
from headgate.changes.lookup import RowKey
from headgate.changes.net import Numbers
from headgate.failpoint import Step, step
from headgate.storage import write
from headgate.storage.delta import deletion_vector
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_folder import TableFolder
from headgate.storage.delta.table_state import TableState
from headgate.storage.partitioned import LeafPlaces, ordered
from headgate.storage.spark import failure, job_group
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry

PARTITION_BYTES = 32 << 20
"""The number of bytes of changes per partition."""
STORED_BYTES = 96 << 20
"""The number of bytes of stored rows, as stored, that a partition looks up."""
MOST_PARTITIONS = 200
REFUSED = "tasks could not apply a batch"
"""The message of the error that a task raises instead of PostgreSQL's, whose message contains values."""
_PARTS = "part binary"
_BLOBS = "partition int, tbl int, place bigint, blob binary"
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
"""The options of blobs. Java copies a blob some eight times, which costs more than to compress it."""
_WRITTEN = -1
"""The place of a row of `_BLOBS` that holds a pickled `Appended`."""


@dataclass(frozen=True)
class Appended:
    """Files (`add` actions) that a map task has written for a table, in addition to the changes that are merged into the tables."""

    table: int
    actions: list[Action]


Results = tuple[list["Part"], list[Appended]]
Made = tuple[int, int, pa.Table] | Appended
"""A result of a source: the number of a table, the place in the stream, and a changes frame of that table without TRUNCATE; or files."""


class Source(Protocol):
    """Makes changes from the input of a map task. Must be picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Made]:
        """Yield the changes and files in any order."""


@dataclass(frozen=True)
class TaskLeaf:
    """A table with files: the target of a batch, or one of its leaf partitions."""

    relation: Relation
    table: TableFolder
    state: TableState

    @classmethod
    def of(cls, transaction: Transaction, relation: Relation) -> TaskLeaf:
        """Return the table in its current state. The caller holds its lock."""
        return cls(relation, transaction.reader.table(relation).folder, transaction.reader.newest(relation))


@dataclass(frozen=True)
class TaskTable:
    """The description of a table for tasks: its definition, the key that identifies rows, and the files of it or of its leaves."""

    relation: Relation
    key: RowKey
    leaves: tuple[TaskLeaf, ...]
    places: LeafPlaces | None
    further_keys: tuple[UniqueKey, ...] = ()
    """The unique indexes besides the key. With any, deleted rows are published first, and new rows last (`key_order`)."""

    @classmethod
    def of(cls, transaction: Transaction, relation: Relation, attnums: Sequence[int]) -> TaskTable:
        """Lock the table and return it in its current state."""
        transaction.lock(relation)
        places = transaction.partitioned(relation).leaf_places if relation.is_partitioned else None
        leaves = [TaskLeaf.of(transaction, leaf) for leaf in (places.leaves if places else (relation,))]
        key = lookup.key_of(relation, attnums)
        unique_keys = {unique_key for leaf in leaves for unique_key in key_order.unique_keys(leaf.relation)}
        further = tuple(unique_key for unique_key in unique_keys if set(unique_key.read.names) != set(key.names))
        return cls(relation, key, tuple(leaves), places, further)

    def find(self, keys: pa.Table) -> pa.Table:
        """Find rows like `lookup.find`."""
        parts = []
        for leaf in self.leaves:
            stored = lookup.find_in(leaf.table, leaf.relation, leaf.state, self.key, keys)
            if self.places is not None:
                old = ordered(self.relation, buffers.whole(stored["old"]))
                stored = stored.set_column(stored.column_names.index("old"), "old", old)
            parts.append(stored)
        return pa.concat_tables(parts)

    @property
    def can_insert(self) -> bool:
        """Whether tasks can insert rows without an exchange (`Job.insert`)."""
        return insertion.has_intervals(self.relation, self.key)

    def is_new(self, rows: pa.Table) -> bool:
        """Return whether the rows' keys differ from each other and from every stored key, as far as statistics show (`insertion`)."""
        return insertion.is_new(self.relation, self.key, [leaf.state for leaf in self.leaves], rows)

    @property
    def row_bytes(self) -> float:
        """The average size of a stored row in bytes, as stored."""
        rows = sum(leaf.state.rows for leaf in self.leaves)
        return float(sum(add["size"] for leaf in self.leaves for add in leaf.state.files.values()) / max(rows, 1))


@dataclass(frozen=True)
class KeyClash:
    """The first change of a partition that makes a row with an existing key: its position in the stream, and the key as stored."""

    commit_lsn: int
    seq: int
    key: pa.Table


@dataclass
class Rewritten:
    """The files that a partition has written for one leaf, and the rows that they replace (deletion vectors by file)."""

    actions: list[Action] = field(default_factory=list)
    changes: int = 0
    gone: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Part:
    """The result of a partition for one table. `rewritten` and `appended` (`add` actions of new rows only) are by number of the leaf.

    `intervals`: of the keys of rows that were inserted without an exchange (`insertion`).
    """

    table: int
    partition: int
    ops: str
    """The operations of the changes."""
    is_netted: bool = True
    """False if the driver must replay the changes one by one."""
    missing: int = 0
    changes: int = 0
    clash: KeyClash | None = None
    rewritten: dict[int, Rewritten] = field(default_factory=dict)
    appended: dict[int, list[Action]] = field(default_factory=dict)
    intervals: Numbers | None = None


@dataclass(frozen=True)
class MapTask:
    """The first stage, for mapInArrow. Yields rows of `_BLOBS`."""

    source: Source
    tables: tuple[TaskTable, ...]
    partitions: int
    types: registry.TypeRegistry | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row for each table and partition of each frame."""
        registry.use(self.types)
        with failure.carried(REFUSED):
            for result in self.source(batches):
                if isinstance(result, Appended):
                    yield _blob(0, result.table, _WRITTEN, pa.array([pickle.dumps(result)], pa.binary()))
                    continue
                number, place, changes = result
                table = self.tables[number]
                frame = net.split_moves(table.relation, table.key, changes)
                at = net.partitions(table.relation, table.key, frame, self.partitions)
                order = np.argsort(at, kind="stable")
                grouped, bounds = frame.take(pa.array(order)), np.searchsorted(at[order], np.arange(self.partitions + 1))
                for partition in np.flatnonzero(np.diff(bounds)).tolist():
                    first, end = bounds[partition], bounds[partition + 1]
                    yield _blob(partition, number, place, _stream(grouped.slice(first, end - first)))


@dataclass(frozen=True)
class ReduceTask:
    """The second stage, for mapInArrow. Yields a pickled `Part` for each table of each partition, and each `Appended` unchanged."""

    tables: tuple[TaskTable, ...]
    types: registry.TypeRegistry | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        registry.use(self.types)
        blobs: dict[tuple[int, int], list[tuple[int, pa.Table]]] = {}
        for batch in batches:
            partitions, tables, places = (batch.column(name).to_pylist() for name in ("partition", "tbl", "place"))
            for partition, number, place, blob in zip(partitions, tables, places, batch.column("blob"), strict=True):
                if place == _WRITTEN:
                    yield pa.RecordBatch.from_pydict({"part": pa.array([blob.as_py()], pa.binary())})
                    continue
                with pa.ipc.open_stream(blob.as_buffer()) as stream:
                    blobs.setdefault((partition, number), []).append((place, stream.read_all()))
        with failure.carried(REFUSED):
            for partition, number in sorted(blobs):
                parts = sorted(blobs.pop((partition, number)), key=lambda part: part[0])
                changes = in_order(pa.concat_tables([frame for _, frame in parts]))
                yield _result(_reduced(self.tables[number], number, partition, changes))


@dataclass(frozen=True)
class InsertTask:
    """The only stage of a batch of new rows, for mapInArrow. Yields a pickled `Part` for each piece of rows, and each `Appended`."""

    source: Source
    tables: tuple[TaskTable, ...]
    types: registry.TypeRegistry | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        registry.use(self.types)
        waiting: dict[int, list[tuple[int, pa.Table]]] = {}
        with failure.carried(REFUSED):
            for result in self.source(batches):
                if isinstance(result, Appended):
                    yield _result(result)
                    continue
                number, place, changes = result
                pieces = waiting.setdefault(number, [])
                pieces.append((place, changes))
                if sum(frame.nbytes for _, frame in pieces) >= PARTITION_BYTES:
                    yield _result(self._inserted(number, waiting.pop(number)))
            for number, pieces in waiting.items():
                yield _result(self._inserted(number, pieces))

    def _inserted(self, number: int, pieces: Sequence[tuple[int, pa.Table]]) -> Part:
        table, changes = self.tables[number], pa.concat_tables([frame for _, frame in pieces])
        part = Part(table=number, partition=pieces[0][0], ops="I")
        rows = insertion.rows_of(changes["new"])
        part.is_netted = insertion.only_inserts(changes) and table.is_new(rows)
        if part.is_netted:
            part.changes, part.intervals = rows.num_rows, insertion.intervals(rows[table.key.names[0]])
            none = pa.nulls(rows.num_rows, changes["new"].type)
            files, places = pa.nulls(rows.num_rows, pa.string()), pa.nulls(rows.num_rows, pa.int64())
            _write(table, part, pa.table({"old": none, "new": changes["new"], "file": files, "row": places}))
        return part


def _result(result: Part | Appended) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"part": pa.array([pickle.dumps(result)], pa.binary())})


def _blob(partition: int, number: int, place: int, blob: pa.Array) -> pa.RecordBatch:
    """Return a row of `_BLOBS`."""
    numbers = [pa.array([partition], pa.int32()), pa.array([number], pa.int32()), pa.array([place], pa.int64())]
    return pa.RecordBatch.from_arrays([*numbers, blob], names=["partition", "tbl", "place", "blob"])


def _stream(frame: pa.Table) -> pa.Array:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, frame.schema, options=_COMPRESSED) as stream:
        stream.write_table(frame)
    content = sink.getvalue()
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, content.size], np.int32)), content])


def _reduced(table: TaskTable, number: int, partition: int, changes: pa.Table) -> Part:
    """Net the changes of one partition of a table, and write the rows that change."""
    part = Part(table=number, partition=partition, ops="".join(pc.unique(changes["op"]).to_pylist()))
    netted = net.net(table.relation, table.key, changes, table.find)
    if netted is None:
        part.is_netted = False
    elif netted.conflict is not None:
        new = buffers.whole(changes["new"]).slice(netted.conflict, 1)
        key = pa.table({name: new.field(name) for name in table.key.names})
        part.clash = KeyClash(changes["commit_lsn"][netted.conflict].as_py(), changes["seq"][netted.conflict].as_py(), key)
    else:
        part.missing, part.changes = len(netted.skipped), netted.changed.num_rows
        if netted.changed.num_rows:
            _write(table, part, netted.changed)
    return part


def _write(table: TaskTable, part: Part, changed: pa.Table) -> None:
    changed = key_order.apart(table.further_keys, changed)
    if table.places is not None:
        flows = table.places.flows_of_few(changed)
        changing, arriving = ([(leaf_part.number, leaf_part.rows) for leaf_part in parts] for parts in (flows.changes, flows.arriving))
    else:
        is_new = changed["old"].is_null()
        apart = bool(table.further_keys) or changed["old"].null_count == changed.num_rows
        new = buffers.whole(changed["new"]).filter(buffers.whole(is_new)) if apart else buffers.whole(changed["new"]).slice(0, 0)
        arriving = [(0, pa.table(new.flatten(), names=[column.name for column in new.type]))] if len(new) else []
        changing = [(0, changed.filter(pc.invert(is_new)) if apart else changed)] if len(new) < changed.num_rows else []
    for number, rows in changing:
        leaf, rewritten = table.leaves[number], Rewritten()
        for place, piece in enumerate(_deleted_first(rows) if table.further_keys else [rows]):
            if piece.num_rows:
                files = write.write_changed(leaf.table, leaf.relation, leaf.state, piece, number=part.partition + place * MOST_PARTITIONS)
                rewritten.actions, rewritten.changes = rewritten.actions + files.actions, rewritten.changes + files.changes
        replaced = write.positions(leaf.table, rows.select(["file", "row"]).filter(pc.is_valid(rows["old"])))
        rewritten.gone = {path: deletion_vector.serialise(np.sort(at)) for path, at in replaced.items()}
        part.rewritten[number] = rewritten
    for number, rows in arriving:
        leaf = table.leaves[number]
        part.appended[number] = write.append_rows(leaf.table, leaf.relation, leaf.state, rows, number=part.partition).actions


def _deleted_first(rows: pa.Table) -> list[pa.Table]:
    """Split changed rows: deleted rows, then the others."""
    is_deleted = rows["new"].is_null()
    return [rows.filter(is_deleted), rows.filter(pc.invert(is_deleted))]


# ---- in the driver ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameSource:
    """Makes the changes of one table from a changes frame that Spark holds."""

    relation: Relation

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Made]:
        """Yield the frames in any order. See `Source`."""
        row = pa.struct(list(arrow_row(self.relation)))
        for batch in batches:
            frame = pa.Table.from_batches([batch])
            if frame.num_rows:
                for side in ("old", "new"):
                    whole = whole_rows(self.relation, buffers.whole(frame[side]))
                    frame = frame.set_column(frame.column_names.index(side), pa.field(side, row), whole)
                if "unchanged" not in frame.column_names:
                    frame = frame.append_column("unchanged", pa.nulls(frame.num_rows, pa.list_(pa.string())))
                yield 0, 0, frame


def partitions(spark: SparkSession, size: int, changes: int, tables: Sequence[TaskTable]) -> int:
    """Return the number of partitions for changes of `size` bytes: at least one for each core, at most MOST_PARTITIONS."""
    widest = max(table.row_bytes for table in tables)
    count = max(-(-size // PARTITION_BYTES), int(changes * widest / STORED_BYTES), spark.sparkContext.defaultParallelism)
    return min(count, MOST_PARTITIONS)


@dataclass(frozen=True)
class Job:
    """The job of a batch: the input of `source`, the tables, the tables beside them in whose folders the source writes files."""

    transaction: Transaction
    slices: DataFrame
    source: Source
    tables: tuple[TaskTable, ...]
    description: str
    types: registry.TypeRegistry | None
    beside: tuple[Relation, ...] = ()

    def run(self, count: int) -> Results:
        """Apply the batch in `count` partitions. Return their parts, and the files that the source has written."""
        blobs = self.slices.mapInArrow(MapTask(self.source, self.tables, count, self.types), _BLOBS).repartitionById(count, "partition")
        return self._results(blobs.mapInArrow(ReduceTask(self.tables, self.types), _PARTS))

    def insert(self) -> Results | None:
        """Insert a batch of new rows without an exchange. Return None, and stage nothing, if `run` must apply it: keys may not be new."""
        parts, appended = self._results(self.slices.mapInArrow(InsertTask(self.source, self.tables, self.types), _PARTS))
        keys = [(part.table, part.intervals) for part in parts if part.intervals is not None]
        of_table = [[intervals for table, intervals in keys if table == number] for number in range(len(self.tables))]
        if all(part.is_netted for part in parts) and all(map(insertion.are_apart, of_table)):
            return parts, appended
        self._note_left_files()
        return None

    def _results(self, results: DataFrame) -> Results:
        try:
            with job_group.described(self.slices.sparkSession.sparkContext, self.description), step(Step.STAGED):
                pickled = results.toArrow()["part"].to_pylist()
        except BaseException:
            self._note_left_files()
            raise
        outputs = [pickle.loads(result) for result in pickled]  # noqa: S301 (of our own tasks)
        return [part for part in outputs if isinstance(part, Part)], [files for files in outputs if isinstance(files, Appended)]

    def _note_left_files(self) -> None:
        note_left_files(self.transaction, self.tables)
        for relation in self.beside:
            self.transaction.has_left_files(relation)


def note_left_files(transaction: Transaction, tables: Iterable[TaskTable]) -> None:
    """Register the tables with cleaning, which looks for files of tasks that were not staged."""
    for table in tables:
        for leaf in table.leaves:
            transaction.has_left_files(leaf.relation)


def stage(transaction: Transaction, table: TaskTable, parts: Sequence[Part]) -> int:
    """Stage the files that the partitions have written for a table. Return the number of changes."""
    ordered_parts = sorted(parts, key=lambda part: part.partition)
    for number, leaf in enumerate(table.leaves):
        rewritten = [part.rewritten[number] for part in ordered_parts if number in part.rewritten]
        if rewritten:
            gone: dict[str, list[deletion_vector.Rows]] = {}
            for files in rewritten:
                for path, vector in files.gone.items():
                    gone.setdefault(path, []).append(deletion_vector.deserialise(vector))
            actions = [action for files in rewritten for action in files.actions]
            changes = sum(files.changes for files in rewritten)
            transaction.add_changed(leaf.relation, actions, {path: np.concatenate(at) for path, at in gone.items()}, changes)
    for number, leaf in enumerate(table.leaves):
        if appended := [action for part in ordered_parts for action in part.appended.get(number, [])]:
            transaction.add_files(leaf.relation, appended)
    return sum(part.changes for part in ordered_parts)
