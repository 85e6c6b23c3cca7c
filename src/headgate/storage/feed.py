"""The change feed of a table: it returns the changes of given writes of the log as a changes frame.

A changes frame has the columns ``commit_lsn bigint, seq bigint, position bigint, op string, old struct, new struct``. `op` is I, U or D.
The structs have the relation's columns in storage types (`old` NULL for I, `new` NULL for D). A transaction's changes are ordered by (seq,
position), and the LSN of a change is ``write.lsn + 8 * position``.

The feed does not use Delta's own reader of change data, which costs 10-20 ms a version, has no order, and does not know statements. The log
names the files that hold a write's changes. For another writer's version, its small JSON names them: the `cdc` files if there are any,
otherwise the `add` files, whose rows are inserts. The rows of a file have the statement's order, each preimage directly before its
postimage. The driver reads many small versions with pyarrow into one frame. Spark reads large ones, one task per file, so that a pair is
never split.

Called by `publisher`. It changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.storage.delta import array_column, delta_log, file_action, parquet
from headgate.storage.delta.tables import Tables
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction import foreign_writer
from headgate.storage.transaction.log import TableWrite
from headgate.storage.transaction.storage import Storage
from headgate.storage.write import CHANGE, columns
from headgate.types import buffers
from headgate.types.storage import arrow_type, list_type, spark_type_of

SMALL_BYTES = 8 << 20
"""Versions whose files together have at most this number of bytes are read by the driver."""
SMALL_CHANGES = 5_000
"""Limit of changes in a local relation. Spark's optimizer evaluates those row by row, uncompiled."""
PIECE_ROWS = 32_768
"""Number of rows of a change file that are read at a time."""
ALL_GROUPS = 1 << 30

_WITH_ROWS = ("write", "foreign")
_GLOBS = re.compile(r"([\\{}\[\]*?])")
"""Characters that Spark interprets as a pattern in a file's path."""


@dataclass(frozen=True)
class ChangeFile:
    """A file that holds changes. `first`: the position of its first row in the write. A `paired` file has a `_change_type`."""

    path: DataPath
    size: int
    commit_lsn: int
    seq: int
    first: int
    paired: bool


@dataclass(frozen=True)
class Cut:
    """The row groups of a change file from `first` up to, not including, `end`."""

    file: ChangeFile
    first: int
    end: int


def schema(relation: Relation) -> StructType:
    row = columns(relation)
    return StructType(
        [
            StructField("commit_lsn", LongType(), False),
            StructField("seq", LongType(), False),
            StructField("position", LongType(), False),
            StructField("op", StringType(), False),
            StructField("old", row),
            StructField("new", row),
        ]
    )


def changes(storage: Storage, relation: Relation, writes: Iterable[TableWrite]) -> DataFrame:
    """Return the changes frame of a relation's writes, not sorted. Truncates and messages hold no rows and are skipped.

    `relation` describes the columns as of these writes. Raise 58P01 if a file no longer exists.
    """
    runs = list(_runs(storage.tables, relation, [write for write in writes if write.kind in _WITH_ROWS]))
    files = [file for run in runs for file in run.files]
    if sum(file.size for file in files) <= SMALL_BYTES and sum(write.changes for run in runs for write in run.writes) <= SMALL_CHANGES:
        return local_frame(storage.spark, _read_small(relation, runs), schema(relation))
    frames = []
    for run in runs:
        for paired in (False, True):
            chosen = [file for file in run.files if file.paired == paired]
            if chosen:
                frames.append(_read_large(storage.spark, relation, chosen, run.physical, paired=paired))
    frame = frames[0]
    for more in frames[1:]:
        frame = frame.unionByName(more)
    return frame


def small(tables: Tables, relation: Relation, writes: Iterable[TableWrite]) -> pa.Table | None:
    """Return the changes as an Arrow table that the driver reads without a Spark job, or None if the writes are too large for that."""
    runs = list(_runs(tables, relation, [write for write in writes if write.kind in _WITH_ROWS]))
    if sum(file.size for run in runs for file in run.files) > SMALL_BYTES:
        return None
    return _read_small(relation, runs)


def pieces(tables: Tables, relation: Relation, write: TableWrite) -> Iterator[pa.Table]:
    """Yield the changes of one write of any size, read by the driver piece by piece in the order of their positions."""
    files = WriteFiles.of(tables, relation, write)
    for file in files.files:
        yield from files.pieces(Cut(file, 0, ALL_GROUPS))


@dataclass(frozen=True)
class WriteFiles:
    """The files with the changes of one write and how to read them. It can be pickled, so that tasks read parts of a large write."""

    relation: Relation
    files: tuple[ChangeFile, ...]
    physical: Mapping[str, str]
    """The column names in the files, by column name."""

    @classmethod
    def of(cls, tables: Tables, relation: Relation, write: TableWrite) -> WriteFiles:
        """Return the files of a write. `relation` describes the columns as of the write. Raise 58P01 if a file no longer exists."""
        return cls(relation, tuple(_files(tables, relation, [write])), _physical(tables, relation, write))

    def cuts(self) -> list[Cut]:
        """Return the row groups of the files, in the order of the positions, from the files' footers."""
        cuts = []
        for file in self.files:
            with data_location.opened(file.path) as data:
                groups = pq.read_metadata(data).num_row_groups
            cuts += [Cut(file, group, group + 1) for group in range(groups)]
        return cuts

    def pieces(self, cut: Cut) -> Iterator[pa.Table]:
        """Yield the changes of a part of a file, at most `PIECE_ROWS` rows at a time, in the order of their positions.

        An update is in the part that has its old row: a row group can end between the two.
        """
        row = pa.schema([(column.name, arrow_type(column.type_oid, column.typmod)) for column in self.relation.columns])
        physical, file = dict(self.physical), cut.file

        def arranged(first: int, rows: pa.Table) -> pa.Table:
            return _arrange(replace(file, first=file.first + first), _structs(file, rows, row, physical))

        with parquet.opened(file.path) as data:
            existing = set(data.schema_arrow.names)
            columns = [name for name in [*physical.values(), CHANGE] if name in existing]
            end = min(cut.end, data.num_row_groups)
            index, rest = sum(data.metadata.row_group(group).num_rows for group in range(cut.first)), None
            is_first = file.paired and cut.first > 0
            for batch in data.iter_batches(PIECE_ROWS, row_groups=[*range(cut.first, end)], columns=columns):
                table = pa.Table.from_batches([batch])
                if is_first and table.num_rows and table[CHANGE][0].as_py() == "update_postimage":
                    table, index = table.slice(1), index + 1
                is_first = False
                if rest is not None:
                    table = pa.concat_tables([rest, table]).combine_chunks()
                complete = table.num_rows
                if file.paired and complete and table[CHANGE][-1].as_py() == "update_preimage":
                    complete -= 1
                rest = table.slice(complete) if complete < table.num_rows else None
                if complete:
                    yield arranged(index, table.slice(0, complete))
                index += complete
            if rest is not None and end < data.num_row_groups:
                last = next(data.iter_batches(1, row_groups=[end], columns=columns))
                yield arranged(index, pa.concat_tables([rest, pa.Table.from_batches([last])]).combine_chunks())


def of_rows(relation: Relation, rows: pa.Table) -> pa.Table:
    """Return the changes that change rows in memory describe (`staging`): position, op, old, new."""
    row = pa.schema([(column.name, arrow_type(column.type_oid, column.typmod)) for column in relation.columns])
    arrays = [array_column.of_file(buffers.whole(rows[column.name]), column.type) for column in row]
    structs = pa.StructArray.from_arrays(arrays, fields=list(row)) if arrays else _empty_structs(rows.num_rows)
    return arrange(structs, buffers.whole(rows[CHANGE]), 0)


@dataclass(frozen=True)
class _Run:
    """Consecutive writes, and their files, in which the columns have the names `physical`."""

    writes: Sequence[TableWrite]
    files: Sequence[ChangeFile]
    physical: dict[str, str]


def _runs(tables: Tables, relation: Relation, writes: Sequence[TableWrite]) -> Iterator[_Run]:
    """Yield the writes in order, as runs whose files have the same column names.

    One description of the relation may fit several of them: ALTER COLUMN … TYPE gives a column a new name in the files even if its type
    stays the same. No name is used again, so the names of the first and the last write are equal only if they are those of all.
    """
    if not writes:
        return
    physical = _physical(tables, relation, writes[0])
    if len(writes) == 1 or physical == _physical(tables, relation, writes[-1]):
        yield _Run(writes, list(_files(tables, relation, writes)), physical)
        return
    middle = len(writes) // 2
    yield from _runs(tables, relation, writes[:middle])
    yield from _runs(tables, relation, writes[middle:])


def _physical(tables: Tables, relation: Relation, write: TableWrite) -> dict[str, str]:
    """Return the column names in the files of a write, by column name."""
    if write.files is not None:
        return {column.name: (write.physical or {}).get(column.name, column.name) for column in relation.columns}
    version = write.version
    key = (relation.database, relation.oid)
    shown = tables.visible.get(key)
    if shown is not None and version >= shown.state.altered:
        physical = shown.state.physical
    else:
        physical = tables[key].state(version).physical
    return {column.name: physical.get(column.name, column.name) for column in relation.columns}


def _files(tables: Tables, relation: Relation, writes: Iterable[TableWrite]) -> Iterator[ChangeFile]:
    path = tables.path((relation.database, relation.oid))
    for write in writes:
        if write.kind == "foreign":
            yield from _written_down(foreign_writer.folder(path, write.version), write)
            continue
        first = 0
        if write.files is not None:
            for file in write.files:
                yield ChangeFile(path / unquote(file.path), file.size, int(write.commit_lsn), write.seq, first, file.paired)
                first += file.rows
            continue
        try:
            actions = delta_log.read_version(path, write.version)
        except FileNotFoundError as error:
            raise PostgresError("58P01", f"version {write.version} of relation {relation.oid} is no longer there") from error
        actions_of_files = [action["cdc"] for action in actions if "cdc" in action]
        paired = bool(actions_of_files)
        if not actions_of_files:
            actions_of_files = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        for file in sorted(actions_of_files, key=file_action.order):
            full = path / unquote(file["path"])
            rows = pq.read_metadata(data_location.local(full)).num_rows if paired else file_action.records(file)
            yield ChangeFile(full, file["size"], int(write.commit_lsn), write.seq, first, paired)
            first += rows


def _written_down(folder: DataPath, write: TableWrite) -> Iterator[ChangeFile]:
    """Yield the change files of another writer's version (`foreign_writer`)."""
    parts = [file for file in data_location.below(folder) if re.fullmatch(r"part-.*\.parquet", file.name)]
    files = sorted(parts, key=lambda file: file_action.order({"path": file.name}))
    if not files:
        raise PostgresError("58P01", f"version {write.version} of relation {write.relation} is no longer there")
    first = 0
    for file in files:
        path = folder / file.name
        yield ChangeFile(path, file.size, int(write.commit_lsn), write.seq, first, True)
        first += pq.read_metadata(data_location.local(path)).num_rows


# small versions: by the driver


def _read_small(relation: Relation, runs: Sequence[_Run]) -> pa.Table:
    row = pa.schema([(column.name, arrow_type(column.type_oid, column.typmod)) for column in relation.columns])
    data_location.fetch(file.path for run in runs for file in run.files)
    parts = [_arrange(file, _read_file(file, row, run.physical)) for run in runs for file in run.files]
    return pa.concat_tables(parts) if parts else arrow_schema(row).empty_table()


def arrow_schema(row: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of a changes frame whose relation has the columns `row`."""
    struct = pa.struct(list(row))
    return pa.schema(
        [
            pa.field("commit_lsn", pa.int64(), False),
            pa.field("seq", pa.int64(), False),
            pa.field("position", pa.int64(), False),
            pa.field("op", pa.string(), False),
            pa.field("old", struct),
            pa.field("new", struct),
        ]
    )


def _read_file(file: ChangeFile, row: pa.Schema, physical: dict[str, str]) -> tuple[pa.StructArray, pa.Array | None]:
    """Return the rows of a file as structs of the relation's columns, and their `_change_type`."""
    with parquet.opened(file.path) as data:
        return _structs(file, data.read(), row, physical)


def _structs(file: ChangeFile, table: pa.Table, row: pa.Schema, physical: dict[str, str]) -> tuple[pa.StructArray, pa.Array | None]:
    existing = set(table.column_names)
    arrays = []
    for column in row:
        name = physical[column.name]
        value = buffers.whole(table[name]) if name in existing else pa.nulls(table.num_rows, column.type)
        arrays.append(array_column.of_file(value, column.type))
    rows = pa.StructArray.from_arrays(arrays, fields=list(row)) if arrays else _empty_structs(table.num_rows)
    if not file.paired:
        return rows, None
    return rows, buffers.whole(table[CHANGE])


def _empty_structs(count: int) -> pa.StructArray:
    return pa.array([{}] * count, pa.struct([]))


def _arrange(file: ChangeFile, read: tuple[pa.StructArray, pa.Array | None]) -> pa.Table:
    rows, kinds = read
    arranged = arrange(rows, kinds, file.first)
    own = [pa.array(np.full(arranged.num_rows, value, np.int64)) for value in (file.commit_lsn, file.seq)]
    return pa.table([*own, *arranged.columns], schema=arrow_schema(pa.schema(list(rows.type))))


def arrange(rows: pa.StructArray, kinds: pa.Array | None, first: int) -> pa.Table:
    """Return (position, op, old, new) of consecutive rows of one file. Each preimage must be followed by its postimage."""
    count = len(rows)
    if kinds is None:
        positions = np.arange(first, first + count, dtype=np.int64)
        ops = buffers.letters(np.full(count, ord("I"), np.uint8))
        return pa.table({"position": positions, "op": ops, "old": pa.nulls(count, rows.type), "new": rows})
    # the first letters of insert, delete, update_preimage and update_postimage, and the lengths, which differ for the last two
    data, offsets = buffers.view(kinds)
    starts = np.flatnonzero(np.diff(offsets) != len("update_postimage"))
    letter = data[offsets[starts]]
    inserted, updated = letter == ord("i"), letter == ord("u")
    old_at = pa.array(starts, mask=inserted)
    new_at = pa.array(np.where(updated, starts + 1, starts), mask=letter == ord("d"))
    ops = buffers.letters(letter - (ord("a") - ord("A")))
    return pa.table({"position": starts + first, "op": ops, "old": rows.take(old_at), "new": rows.take(new_at)})


# large versions: by Spark


def _read_large(
    session: SparkSession, relation: Relation, files: Sequence[ChangeFile], physical: dict[str, str], *, paired: bool
) -> DataFrame:
    spark = session.newSession()
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 40 if paired else 64 << 20))
    spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 20))
    row = columns(relation)
    lists = _lists(relation, files, physical)
    fields = [
        StructField(physical[field.name], spark_type_of(lists[field.name]) if field.name in lists else field.dataType)
        for field in row.fields
    ]
    read = StructType(fields + ([StructField(CHANGE, StringType())] if paired else []))
    data = spark.read.schema(read).parquet(*[_GLOBS.sub(r"\\\1", data_location.uri(file.path)) for file in files])
    columns_by_name = {name: F.col(quoted(physical[name])) for name in row.fieldNames()}
    values = F.struct(*[(array_column.texts(column) if name in lists else column).alias(name) for name, column in columns_by_name.items()])
    name = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1)
    kind = [F.col(CHANGE).alias("kind")] if paired else []
    rows = data.select(values.alias("row"), *kind, name.alias("name"), F.col("_metadata.row_index").alias("at"))
    files_table = pa.table(
        {
            "name": [file.path.name for file in files],
            "commit_lsn": pa.array([file.commit_lsn for file in files], pa.int64()),
            "seq": pa.array([file.seq for file in files], pa.int64()),
            "first": pa.array([file.first for file in files], pa.int64()),
        }
    )
    placed = rows.join(F.broadcast(local_frame(spark, files_table)), "name")
    if not paired:
        nothing = F.lit(None).cast(row)
        at = F.col("first") + F.col("at")
        return placed.select(
            "commit_lsn", "seq", at.alias("position"), F.lit("I").alias("op"), nothing.alias("old"), F.col("row").alias("new")
        )
    # one task reads all of a file in order, so a pair can only be split between two batches of one task
    return placed.select("commit_lsn", "seq", "first", "at", "kind", "row").mapInArrow(_pair, schema(relation))


def _lists(relation: Relation, files: Sequence[ChangeFile], physical: Mapping[str, str]) -> array_column.Lists:
    """Return the columns that these files hold as lists. Only the files tell: the newest version may no longer have those columns."""
    array_types = {column.name: kind for column in relation.columns if (kind := list_type(column.type_oid, column.typmod)) is not None}
    in_files = frozenset[str]().union(*[parquet.list_columns(file.path) for file in files if array_types])
    return {name: kind for name, kind in array_types.items() if physical[name] in in_files}


def _pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine preimages and postimages into changes. Runs in a Spark task."""
    rest: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if rest is not None:
            table = pa.concat_tables([rest, table]).combine_chunks()
        rest = None
        if table.num_rows and table["kind"][-1].as_py() == "update_preimage":
            rest = table.slice(table.num_rows - 1)
            table = table.slice(0, table.num_rows - 1)
        if table.num_rows:
            yield from _pair_rows(table.combine_chunks())


def _pair_rows(table: pa.Table) -> Iterator[pa.RecordBatch]:
    def column(name: str) -> pa.Array:
        return buffers.whole(table[name])

    kinds = column("kind")
    arranged = arrange(column("row"), kinds, 0)
    indexes = buffers.whole(arranged["position"])
    position = pc.add(column("first").take(indexes), column("at").take(indexes))
    arrays = [
        column("commit_lsn").take(indexes),
        column("seq").take(indexes),
        position,
        *(buffers.whole(arranged[name]) for name in ("op", "old", "new")),
    ]
    names = ["commit_lsn", "seq", "position", "op", "old", "new"]
    yield from pa.table(arrays, names=names).combine_chunks().to_batches()
