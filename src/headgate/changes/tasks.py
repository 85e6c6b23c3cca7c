"""A batch of changes of some tables as one Spark job of two stages: the other scheduler of the kernels that `merge` calls in the driver.

    map       a task makes the changes of its slices (`Source`), splits them by the hash of their keys into partitions, and gives one
              Arrow IPC stream (a blob) for each table and partition
    exchange  Spark moves rows of (partition, table, place, blob): a few large binaries and not the rows of the batch
    reduce    a task puts the blobs of its partition in the order of the stream, nets them (`net`), looks up the keys in the table's files,
              and writes data and change files; it gives the file actions and the positions of the rows that are to be deleted (`Part`)

The driver merges the positions into deletion vectors and stages the actions (`stage`). Nothing of a batch's size passes through it.
What a task needs to know is one frozen argument, made under the locks of the tables (`TaskTable.of`); a task depends on nothing else, so
that Spark may run it again. Files of an attempt that is not the last have names that nobody knows, and are removed by cleaning.

What must hold: nothing is staged unless all partitions were netted and none has a conflict. Called by `merge` and by the apply worker.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headgate.changes import lookup, net
from headgate.changes.keyed_batch import in_order, whole_rows
from headgate.changes.lookup import RowKey
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

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation

PARTITION_BYTES = 32 << 20
"""Bytes of changes for which there is a partition."""
STORED_BYTES = 96 << 20
"""Bytes of stored rows, as stored, that a partition looks up."""
MOST_PARTITIONS = 200
REFUSED = "tasks could not apply a batch"
"""The message of an error that a task raises in place of PostgreSQL's, which shows values."""
_BLOBS = "partition int, tbl int, place bigint, blob binary"
_WRITTEN = -1
"""The place of a row of `_BLOBS` that holds a pickled `Appended`."""


@dataclass(frozen=True)
class Appended:
    """Files (`add` actions) that a map task has written for a table, beside what is merged into the table itself."""

    table: int
    actions: list[Action]


Made = tuple[int, int, pa.Table] | Appended
"""What a source makes: the number of a table, the place in the stream, and a changes frame of that table without TRUNCATE; or files."""


class Source(Protocol):
    """Makes changes out of what a map task is given; can be pickled."""

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[Made]:
        """Gives the changes and files in any order."""
        ...


@dataclass(frozen=True)
class TaskLeaf:
    """A table with files: the target of a batch, or a leaf of it."""

    relation: Relation
    table: TableFolder
    state: TableState

    @classmethod
    def of(cls, transaction: Transaction, relation: Relation) -> TaskLeaf:
        """The table as it is now; its lock is held."""
        return cls(relation, transaction.engine.table((relation.database, relation.oid)).folder, transaction.newest(relation))


@dataclass(frozen=True)
class TaskTable:
    """What tasks know of a table: its definition, the key by which rows are found, and the files of it, or of its leaves."""

    relation: Relation
    key: RowKey
    leaves: tuple[TaskLeaf, ...]
    places: LeafPlaces | None

    @classmethod
    def of(cls, transaction: Transaction, relation: Relation, attnums: Sequence[int]) -> TaskTable:
        """The table as it is now; takes its lock."""
        transaction.lock(relation)
        places = transaction.partitioned(relation).leaf_places if relation.is_partitioned else None
        leaves = [TaskLeaf.of(transaction, leaf) for leaf in (places.leaves if places else (relation,))]
        return cls(relation, lookup.key_of(relation, attnums), tuple(leaves), places)

    def find(self, wanted: pa.Table) -> pa.Table:
        """As `lookup.find`."""
        parts = []
        for leaf in self.leaves:
            found = lookup.find_in(leaf.table, leaf.relation, leaf.state, self.key, wanted)
            if self.places is not None:
                old = ordered(self.relation, buffers.whole(found["old"]))
                found = found.set_column(found.column_names.index("old"), "old", old)
            parts.append(found)
        return pa.concat_tables(parts)

    @property
    def row_bytes(self) -> float:
        """The size of a stored row, as stored."""
        rows = sum(leaf.state.rows for leaf in self.leaves)
        return float(sum(add["size"] for leaf in self.leaves for add in leaf.state.files.values()) / max(rows, 1))


@dataclass(frozen=True)
class KeyClash:
    """The first change of a partition that makes a row whose key is there: its place, and the key as stored."""

    commit_lsn: int
    seq: int
    key: pa.Table


@dataclass
class Rewritten:
    """The files of one leaf that a partition has written, and the rows (deletion vectors by file) that they take the place of."""

    actions: list[Action] = field(default_factory=list)
    changes: int = 0
    gone: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Part:
    """What a partition has done for one table. `rewritten` and `appended` (`add` actions of new rows only) are by number of the leaf."""

    table: int
    partition: int
    ops: str
    """The operations of the changes."""
    is_netted: bool = True
    """False: the changes must be replayed one by one, in the driver."""
    missing: int = 0
    changes: int = 0
    clash: KeyClash | None = None
    rewritten: dict[int, Rewritten] = field(default_factory=dict)
    appended: dict[int, list[Action]] = field(default_factory=dict)


@dataclass(frozen=True)
class MapTask:
    """The first stage. For mapInArrow; gives rows of `_BLOBS`."""

    source: Source
    tables: tuple[TaskTable, ...]
    partitions: int
    types: registry.TypeRegistry | None

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each table and partition of each frame."""
        registry.use(self.types)
        with failure.carried(REFUSED):
            for made in self.source(given):
                if isinstance(made, Appended):
                    yield _blob(0, made.table, _WRITTEN, pa.array([pickle.dumps(made)], pa.binary()))
                    continue
                number, place, changes = made
                table = self.tables[number]
                frame = net.split_moves(table.relation, table.key, changes)
                at = net.partitions(table.relation, table.key, frame, self.partitions)
                order = np.argsort(at, kind="stable")
                grouped, bounds = frame.take(pa.array(order)), np.searchsorted(at[order], np.arange(self.partitions + 1))
                for partition in np.unique(at).tolist():
                    first, end = bounds[partition], bounds[partition + 1]
                    yield _blob(partition, number, place, _stream(grouped.slice(first, end - first)))


@dataclass(frozen=True)
class ReduceTask:
    """The second stage. For mapInArrow; gives a pickled `Part` for each table of each partition, and each `Appended` as it is."""

    tables: tuple[TaskTable, ...]
    types: registry.TypeRegistry | None

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The parts of the tables."""
        registry.use(self.types)
        blobs: dict[tuple[int, int], list[tuple[int, pa.Table]]] = {}
        for batch in given:
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
                part = _reduced(self.tables[number], number, partition, changes)
                yield pa.RecordBatch.from_pydict({"part": pa.array([pickle.dumps(part)], pa.binary())})


def _blob(partition: int, number: int, place: int, blob: pa.Array) -> pa.RecordBatch:
    """A row of `_BLOBS`."""
    numbers = [pa.array([partition], pa.int32()), pa.array([number], pa.int32()), pa.array([place], pa.int64())]
    return pa.RecordBatch.from_arrays([*numbers, blob], names=["partition", "tbl", "place", "blob"])


def _stream(frame: pa.Table) -> pa.Array:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, frame.schema) as stream:
        stream.write_table(frame)
    content = sink.getvalue()
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, content.size], np.int32)), content])


def _reduced(table: TaskTable, number: int, partition: int, changes: pa.Table) -> Part:
    """Net the changes of some keys, and write the rows that change."""
    part = Part(table=number, partition=partition, ops="".join(pc.unique(changes["op"]).to_pylist()))
    done = net.net(table.relation, table.key, changes, table.find)
    if done is None:
        part.is_netted = False
    elif done.conflict is not None:
        new = buffers.whole(changes["new"]).slice(done.conflict, 1)
        key = pa.table({name: new.field(name) for name in table.key.names})
        part.clash = KeyClash(changes["commit_lsn"][done.conflict].as_py(), changes["seq"][done.conflict].as_py(), key)
    else:
        part.missing, part.changes = len(done.skipped), done.changed.num_rows
        if done.changed.num_rows:
            _write(table, part, done.changed)
    return part


def _write(table: TaskTable, part: Part, changed: pa.Table) -> None:
    """Write changed rows into the leaves of a table."""
    if table.places is not None:
        changing, arriving = table.places.flows(changed)
    elif changed["file"].null_count == changed.num_rows:
        new = buffers.whole(changed["new"])
        changing, arriving = [], [(0, pa.table(new.flatten(), names=[column.name for column in new.type]))]
    else:
        changing, arriving = [(0, changed)], []
    for number, rows in changing:
        leaf = table.leaves[number]
        written = write.write_changed(leaf.table, leaf.relation, leaf.state, rows, number=part.partition)
        gone = write.positions(leaf.table, rows.select(["file", "row"]).filter(pc.is_valid(rows["old"])))
        vectors = {path: deletion_vector.serialise(np.sort(at)) for path, at in gone.items()}
        part.rewritten[number] = Rewritten(written.actions, written.changes, vectors)
    for number, rows in arriving:
        leaf = table.leaves[number]
        part.appended[number] = write.append_rows(leaf.table, leaf.relation, leaf.state, rows, number=part.partition).actions


# ---- in the driver ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameSource:
    """The changes of one table that Spark has as a changes frame."""

    relation: Relation

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[Made]:
        """See `Source`; the frames are in no order."""
        row = pa.struct(list(arrow_row(self.relation)))
        for batch in given:
            frame = pa.Table.from_batches([batch])
            if frame.num_rows:
                for side in ("old", "new"):
                    whole = whole_rows(self.relation, buffers.whole(frame[side]))
                    frame = frame.set_column(frame.column_names.index(side), pa.field(side, row), whole)
                if "unchanged" not in frame.column_names:
                    frame = frame.append_column("unchanged", pa.nulls(frame.num_rows, pa.list_(pa.string())))
                yield 0, 0, frame


def partitions(spark: SparkSession, size: int, changes: int, tables: Sequence[TaskTable]) -> int:
    """Into how many partitions changes of so many bytes are split: one for each core at least."""
    widest = max(table.row_bytes for table in tables)
    wanted = max(-(-size // PARTITION_BYTES), int(changes * widest / STORED_BYTES), spark.sparkContext.defaultParallelism)
    return min(wanted, MOST_PARTITIONS)


def run(
    transaction: Transaction,
    slices: DataFrame,
    source: Source,
    tables: Sequence[TaskTable],
    count: int,
    description: str,
    types: registry.TypeRegistry | None,
    beside: Iterable[Relation] = (),
) -> tuple[list[Part], list[Appended]]:
    """Run the job of a batch. `slices` is what `source` is given, `count` the number of partitions.

    `beside`: the tables in whose folders the source writes files.
    """
    known = tuple(tables)
    try:
        with job_group.described(slices.sparkSession.sparkContext, description), step(Step.STAGED):
            blobs = slices.mapInArrow(MapTask(source, known, count, types), _BLOBS).repartitionById(count, "partition")
            found = blobs.mapInArrow(ReduceTask(known, types), "part binary").toArrow()
    except BaseException:
        note_left_files(transaction, known)
        for relation in beside:
            transaction.has_left_files(relation)
        raise
    made = [pickle.loads(part) for part in found["part"].to_pylist()]  # noqa: S301 (of our own tasks)
    return [part for part in made if isinstance(part, Part)], [files for files in made if isinstance(files, Appended)]


def note_left_files(transaction: Transaction, tables: Iterable[TaskTable]) -> None:
    """Have cleaning look for files of tasks that are not staged."""
    for table in tables:
        for leaf in table.leaves:
            transaction.has_left_files(leaf.relation)


def stage(transaction: Transaction, table: TaskTable, parts: Sequence[Part]) -> int:
    """Stage what the partitions have written for a table; the number of changes."""
    ordered_parts = sorted(parts, key=lambda part: part.partition)
    for number, leaf in enumerate(table.leaves):
        rewritten = [part.rewritten[number] for part in ordered_parts if number in part.rewritten]
        if rewritten:
            gone: dict[str, list[deletion_vector.Rows]] = {}
            for each in rewritten:
                for path, vector in each.gone.items():
                    gone.setdefault(path, []).append(deletion_vector.deserialise(vector))
            actions = [action for each in rewritten for action in each.actions]
            changes = sum(each.changes for each in rewritten)
            transaction.add_changed(leaf.relation, actions, {path: np.concatenate(at) for path, at in gone.items()}, changes)
    for number, leaf in enumerate(table.leaves):
        if appended := [action for part in ordered_parts for action in part.appended.get(number, [])]:
            transaction.add_files(leaf.relation, appended)
    return sum(part.changes for part in ordered_parts)
