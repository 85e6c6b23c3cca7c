"""Reading and writing one Delta table, partly through Delta's own transaction class.

This is the only module that uses the JVM's Delta classes (internal ones: the jar is pinned, tests/storage checks each call). A write is one
Spark job that writes files (`OptimisticTransaction.writeFiles`) and one commit, a file that the driver writes (`delta_log`). If another
writer was first, Delta commits after it. Each commit has ``headgate <xid>`` as its user metadata, so that recovery can tell the node's
commits from those of other writers. The state of a table is read from the log's files: Java's heap has nothing of a table that Spark does
not read, and little of those that it reads (`Delta.log`).

Used by `engine` and `transaction`, and by code that reads a table's rows at a version.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate.errors import PostgresError
from headgate.storage import rows
from headgate.storage.delta import alteration, array_column, delta_log, file_action, parquet
from headgate.storage.delta.commit_mark import marked_with, transaction_of
from headgate.storage.delta.file_action import Action, records
from headgate.storage.delta.table_folder import TableFolder
from headgate.storage.delta.table_state import TableState, advance, after, difference
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark import job_group
from headgate.storage.spark.local_relation import in_one_piece
from headgate.types.storage import own_name

FILE, ROW = own_name("_file"), own_name("_row")
PLACE = StructType([StructField(FILE, StringType()), StructField(ROW, LongType())])
"""The position of a row: the URI of its file, and its index in the file."""
IN_ORDER_BYTES, IN_ORDER_ROWS = 4 << 20, 20_000
"""Limits of a table that is returned in order. Spark reads such a table in one task anyway, and sorts it in a few milliseconds."""

RESIDENT_ROWS, RESIDENT_FILES, RESIDENT_BYTES = 2_000, 64, 1 << 20
"""Limits of a table that the driver reads. Deleted rows count, too."""

LISTED_FILES = 100
"""Above this number of files, Delta uses their statistics to find those that may have matching rows."""


LOOK_SECONDS = 0.1
"""Interval in seconds at which a thread that waits for another to open a log checks whether it is cancelled."""
KEPT_LOGS = 8
"""Number of tables for which Delta's own objects are kept with their computed snapshots: some 3 MB of Java's heap each."""


class Delta:
    """The handles of the JVM's Delta classes, shared by all tables of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm: Any = spark._jvm
        self.jvm = jvm
        self.session: Any = spark._jsparkSession
        delta = jvm.org.apache.spark.sql.delta

        def module(package: Any, name: str) -> Any:
            return getattr(getattr(package, name), "MODULE$")

        self.DeltaLog = module(delta, "DeltaLog$")
        self.Action = module(delta.actions, "Action$")
        self.Write = getattr(delta, "DeltaOperations$Write")
        self.none = module(jvm.scala, "None$")
        self.some = jvm.scala.Some
        self.converters = jvm.scala.jdk.javaapi.CollectionConverters
        self.append = jvm.org.apache.spark.sql.SaveMode.Append
        self.nothing = self.seq([])
        self.bitmaps = module(delta.commands, "DeletionVectorBitmapGenerator$")
        self.Dummy = delta.DummySnapshot
        self._logs: dict[DataPath, Any] = {}
        self._raw: dict[DataPath, str] = {}
        self._lock = threading.Lock()
        self._opening: dict[DataPath, threading.Lock] = {}
        """Locks that let one thread at a time open a table's log."""
        self._forgotten = 0
        """Number of calls of `forget`. A log that is opened during one may be of a removed table, and is not kept."""
        self.true = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(F.lit(True)._jc)

    def log(self, path: DataPath) -> Any:
        """Return Delta's object for the table in a folder, with its snapshots. The `KEPT_LOGS` used last are cached."""
        with self._lock:
            log = self._kept(path)
            opening = None if log is not None else self._opening.setdefault(path, threading.Lock())
        if opening is None:
            return log
        # Delta runs a job to read the table, which may wait for executors; threads that open other tables need not wait for it
        while not opening.acquire(timeout=LOOK_SECONDS):
            job_group.check()
        try:
            return self._opened(path)
        finally:
            with self._lock:
                self._opening.pop(path, None)
            opening.release()

    def _opened(self, path: DataPath) -> Any:
        with self._lock:
            log, forgotten = self._kept(path), self._forgotten
        if log is not None:
            return log
        log = self.DeltaLog.forTable(self.session, str(path))
        with self._lock:
            if forgotten == self._forgotten:
                for path_to_drop in list(self._logs)[: len(self._logs) + 1 - KEPT_LOGS]:
                    del self._logs[path_to_drop]
                    self._invalidate(path_to_drop)
                self._logs[path] = log
        return log

    def _kept(self, path: DataPath) -> Any:
        """Return Delta's object from the cache, marked as the last used, or None."""
        log = self._logs.pop(path, None)
        if log is not None:
            self._logs[path] = log
        return log

    def forget(self, path: DataPath) -> None:
        """Drop Delta's cached state of the table in a folder."""
        with self._lock:
            self._forgotten += 1
            if self._logs.pop(path, None) is not None:
                self._invalidate(path)

    def _invalidate(self, path: DataPath) -> None:
        self.DeltaLog.invalidateCache(self.session, self.jvm.org.apache.hadoop.fs.Path(str(path)))

    def raw_path(self, path: DataPath) -> str:
        """Return a folder as it appears in Spark's URIs. For many tables in one folder, Java is called once."""
        if not (path.name.isascii() and path.name.isalnum()):
            return self._raw_path(path.absolute())
        return f"{self._raw_path(path.absolute().parent)}/{path.name}"

    def _raw_path(self, path: DataPath) -> str:
        if path not in self._raw:
            self._raw[path] = str(self.jvm.org.apache.hadoop.fs.Path(str(path)).toUri().getRawPath())
        return self._raw[path]

    def seq(self, items: Iterable[Any]) -> Any:
        """Return a Scala Seq."""
        values = self.jvm.java.util.ArrayList()
        for item in items:
            values.add(item)
        return self.converters.asScala(values).toSeq()

    def list(self, seq: Any) -> list[Any]:
        """Convert a Scala Seq to a list by index: a Java iterator ends with an exception, which costs PySpark a dozen calls."""
        items = self.jvm.java.util.ArrayList(self.converters.asJava(seq))
        return [items.get(index) for index in range(items.size())]

    def action(self, action: Action) -> Any:
        """Return Delta's object for an action in JSON form."""
        return self.Action.fromJson(json.dumps(action))


class DeltaTable(TableFolder):
    """The Delta table of one relation. It does not support concurrent writers: the engine's table lock excludes them."""

    def __init__(self, delta: Delta, path: DataPath) -> None:
        super().__init__(path, delta.raw_path(path))
        self.delta = delta
        self.has_failed = False
        """Whether a Spark job failed while it wrote, so that the folder may have files that nothing names."""

    @property
    def _log(self) -> Any:
        """Return Delta's object for the table, cached or new."""
        return self.delta.log(self.path)

    # reading

    def state(self, version: int | None = None) -> TableState:
        """Return the table at a version (the newest by default), read from the Delta log. Uses Spark only for features of other writers."""
        try:
            if version is None:
                version = delta_log.newest_version(self.path) or 0
            return TableState.of(version, *delta_log.read_state(self.path, version))
        except (delta_log.ForeignFeature, FileNotFoundError):
            return self._state_by_delta(version)

    def _state_by_delta(self, version: int | None) -> TableState:
        snapshot = self._snapshot(version)
        added = sorted((json.loads(add)["add"] for add in self._adds(snapshot)), key=lambda add: add["modificationTime"])
        metadata, protocol = json.loads(snapshot.metadata().json())["metaData"], json.loads(snapshot.protocol().json())["protocol"]
        return TableState.of(snapshot.version(), metadata, protocol, parquet.counted(self.path, {add["path"]: add for add in added}))

    def _snapshot(self, version: int | None) -> Any:
        """Return Delta's own state of the table at a version (the newest by default)."""
        delta = self.delta
        # a thread that has not run a statement has no session, which Delta needs if a version has a checkpoint
        delta.jvm.SparkSession.setActiveSession(delta.session)
        log = self._log
        if version is None:
            return log.update(False, delta.none, delta.none)
        current = log.unsafeVolatileSnapshot()
        if current.version() < version:
            current = log.update(False, delta.none, delta.none)
        return current if current.version() == version else log.getSnapshotAt(version, delta.none, delta.none, False)

    def _likeness(self, state: TableState) -> Any:
        """Return a dummy snapshot for calls that use only metadata and protocol. It reads nothing."""
        delta, log = self.delta, self._log
        metadata, protocol = delta.action({"metaData": state.metadata}), delta.action({"protocol": state.protocol})
        return delta.Dummy(log.logPath(), log, metadata, delta.none, delta.some(protocol))

    def write_checkpoint(self, version: int) -> Any:
        """Write the checkpoint of a version. Return Delta's info on it. This is a Spark job over the versions since the last checkpoint."""
        delta = self.delta
        delta.jvm.SparkSession.setActiveSession(delta.session)
        return self._log.writeCheckpointFiles(self._snapshot(version), delta.none)

    def announce_checkpoint(self, info: Any) -> None:
        """Write the pointer to a checkpoint (`_last_checkpoint`), from which readers of the log start."""
        log = self._log
        log.writeLastCheckpointFile(log, info, True)

    def _adds(self, snapshot: Any) -> list[str]:
        files = DataFrame(snapshot.allFiles().toDF(), self.delta.spark)
        options = {"ignoreNullFields": "true"}
        return [
            str(text)
            for text in files.select(F.to_json(F.struct(F.struct("*").alias("add")), options).alias("j")).toArrow()["j"].to_pylist()
        ]

    def frame(self, state: TableState, *, positions: bool = False, in_order: bool = False) -> DataFrame:
        """Return the rows at a version; with `positions` also FILE (URI) and ROW (index in the file).

        `in_order`: return the rows of a small table in the order in which they were written, as a heap has them. Otherwise Spark reads the
        largest file first. An UPDATE writes changed rows again, so they come last.
        """
        held = self.held(state, positions=positions)
        if held is not None:
            row = StructType([*state.schema.fields, *(PLACE.fields if positions else ())])
            return in_one_piece(self.delta.spark, held, row)
        in_order = in_order and _orderable(state)
        frame = self._rows(state, placed=positions or in_order)
        if not (positions or in_order):
            return array_column.of_files(frame, state.lists)
        place = frame.metadataColumn("_metadata")  # not by its name, which a column may have
        placed = frame.select("*", place.getField("file_path").alias(FILE), place.getField("row_index").alias(ROW))
        placed = array_column.of_files(placed, state.lists)
        if not in_order:
            return placed
        file = F.call_function("instr", F.lit(" ".join(self.uri(name) for name in state.files)), F.col(FILE))
        rows = placed.coalesce(1).sortWithinPartitions(file, ROW)
        return rows if positions else rows.drop(FILE, ROW)

    def held(self, state: TableState, *, positions: bool = False) -> pa.Table | None:
        """Return the rows of a small table in the order in which they were written, as `frame` does, or None for a larger one."""
        if not _resident(state):
            return None
        parts = []
        for name, part, places in rows.read(self.path, state):
            file = pa.array([self.uri(name)] * len(places), pa.string())
            parts.append(part.append_column(FILE, file).append_column(ROW, places) if positions else part)
        row = rows.schema(state)
        if positions:
            row = row.append(pa.field(FILE, pa.string())).append(pa.field(ROW, pa.int64()))
        return pa.concat_tables(parts) if parts else row.empty_table()

    def first_rows(self, state: TableState, most: int) -> pa.Table:
        """Return at least `most` rows of a table, or all if it has fewer, without reading all of its files."""
        parts, count = [], 0
        for _, part, _ in rows.read(self.path, state, most):
            parts.append(part)
            count += part.num_rows
            if count >= most:
                break
        return pa.concat_tables(parts) if parts else rows.schema(state).empty_table()

    def pieces(self, state: TableState, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns of all rows, in the order of the files. For tables of any size."""
        return rows.pieces(self.path, state, names)

    def groups(self, state: TableState) -> Iterator[rows.RowGroup]:
        """Yield all rows by the row groups of the files. Each is valid until the next. For tables of any size."""
        return rows.groups(self.path, state)

    def _rows(self, state: TableState, *, placed: bool) -> DataFrame:
        """Return the rows at a version, or with the writes staged on it.

        A table of few files is read by its known files, so that Delta need not replay the log in a Spark job. So is a `placed` table
        without deletion vectors, because Delta numbers rows only in tables that have deletion vectors.
        """
        delta = self.delta
        if state.staged or len(state.files) <= LISTED_FILES or (placed and not state.has_vectors):
            adds = delta.seq(delta.action({"add": add}) for add in state.files.values())
            if not state.has_vectors:
                metadata, protocol = alteration.with_vectors(state, on=True)
                state = replace(state, metadata=metadata["metaData"], protocol=protocol["protocol"])
            return DataFrame(self._log.createDataFrame(self._likeness(state), adds, False, delta.none), delta.spark)
        # as a time travel: otherwise the relation would resolve the newest version when it runs
        relation = self._log.createRelation(delta.nothing, delta.some(self._snapshot(state.version)), delta.none, True)
        return DataFrame(delta.session.baseRelationToDataFrame(relation), delta.spark)

    # writing

    def write(self, state: TableState, frame: DataFrame) -> list[Action]:
        """Write the rows of a frame as files of the table, without committing them. Return the actions in JSON form.

        If the frame has a column `_change_type`, rows with a value go to change files and those with NULL to data files. Each file keeps
        the order of the rows of a partition; the number in ``part-nnnnn`` is the partition's.
        """
        transaction = self._start(state)
        try:
            return [
                json.loads(action.json())
                for action in self.delta.list(transaction.writeFiles(array_column.to_files(frame, state.lists)._jdf))
            ]
        except BaseException:
            self.has_failed = True
            raise

    def deletions(self, state: TableState, positions: DataFrame, files: Iterable[str]) -> list[Action]:
        """Delete rows (columns FILE, ROW) of these files (URIs) by deletion vectors in one Spark job. Return the actions."""
        delta = self.delta
        adds = self.touched(state, files)
        if not adds:
            return []
        has_vectors = any("deletionVector" in add for add in adds.values())
        row_sets = delta.list(
            delta.bitmaps.buildRowIndexSetsForFilesMatchingCondition(
                delta.session,
                self._start(state),
                has_vectors,
                positions._jdf,
                delta.seq(delta.action({"add": add}) for add in adds.values()),
                delta.true,
                delta.some(F.col(FILE)._jc),
                delta.some(F.col(ROW)._jc),
            )
        )
        removed, remaining = [], []
        for row_set in row_sets:
            add, vector = adds[self.name(row_set.filePath())], _described(row_set.deletionVector())
            if file_action.dead(add) + row_set.matchedRowCount() != vector["cardinality"]:
                raise PostgresError("40001", "could not serialize access due to concurrent update")
            removed.append(file_action.removal(add, data_change=True))
            if not file_action.is_emptied(add, vector["cardinality"]):
                remaining.append(file_action.marked(add, vector))
        return removed + remaining

    def stage(self, state: TableState, actions: Sequence[Action]) -> TableState:
        """Return the state with `actions` that are not committed, on which the transaction that staged them reads and writes."""
        return replace(after(state, actions), staged=state.staged + 1)

    def commit_version(self, state: TableState, actions: Sequence[Action], mark: str) -> TableState:
        """Commit actions on top of `state`. Return the state afterwards.

        If another writer was first, Delta commits after it if the two do not touch the same files. Then the version is not the one after
        `state`. Otherwise raise 40001, as always for changed columns, and after a version of the node's own. The object store has committed
        such a version after its transaction had failed without an answer; the next transaction that locks the table undoes it.
        """
        try:
            delta_log.write_version(self.path, state.version + 1, actions, mark)
        except FileExistsError as error:
            if any("metaData" in action for action in actions) or self._has_own_above(state.version):
                raise PostgresError("40001", "could not serialize access due to concurrent update") from error
            return self.state(self._commit_behind(state, actions, mark))
        return advance(state, state.version + 1, actions)

    def _has_own_above(self, version: int) -> bool:
        above = range(version + 1, (delta_log.newest_version(self.path) or version) + 1)
        marks = (marked_with(delta_log.read_version(self.path, number)) for number in above)
        return any(mark is not None and transaction_of(mark) is not None for mark in marks)

    def _commit_behind(self, state: TableState, actions: Sequence[Action], mark: str) -> int:
        """Let Delta commit after the existing versions. Return the version."""
        delta, none = self.delta, self.delta.none
        operation = delta.Write(delta.append, none, none, delta.some(mark), none, none, none, none, none)
        try:
            return int(self._start(state).commit(delta.seq(delta.action(action) for action in actions), operation))
        except Exception as error:
            if not _is_conflict(error):
                raise
            raise PostgresError("40001", "could not serialize access due to concurrent update") from error

    def undo(self, state: TableState, to: TableState, mark: str) -> TableState:
        """Make the newest version (`state`) equal to an earlier one by inverse file actions, without change rows."""
        actions = difference(state, to)
        if state.metadata != to.metadata or state.protocol != to.protocol:
            actions = [*alteration.restored(to), *actions]
        return self.commit_version(state, actions, mark) if actions else state

    def _start(self, state: TableState) -> Any:
        delta = self.delta
        # no version has staged columns; otherwise the snapshot is the version that the writes are staged on
        seen = self._likeness(state) if state.altered > state.version else self._snapshot(state.version)
        return self._log.startTransaction(delta.none, delta.some(seen))

    def forget(self) -> None:
        """Drop Delta's cached state, because the directory may contain another table from now on."""
        self.delta.forget(self.path)

    def remove(self) -> bool:
        """Delete the table's directory, its log last: by it a start identifies a table that did not commit. Return whether it is gone."""
        self.forget()
        return data_location.remove_tree(self.path, last="_delta_log")


def _is_conflict(error: Exception) -> bool:
    """Whether Delta rejected a commit because of another writer's. In a process that imports `delta`, the class is a Python one."""
    name = str(error.java_exception.getClass().getSimpleName()) if isinstance(error, Py4JJavaError) else type(error).__name__
    return "Concurrent" in name or name in {"MetadataChangedException", "ProtocolChangedException"}


def _resident(state: TableState) -> bool:
    """Whether the driver reads a table: it is small, counting deleted rows."""
    adds = state.files.values()
    return len(adds) <= RESIDENT_FILES and sum(add["size"] for add in adds) <= RESIDENT_BYTES and sum(map(records, adds)) <= RESIDENT_ROWS


def _orderable(state: TableState) -> bool:
    """Whether the table has an order to keep and is small enough for that."""
    return len(state.files) >= 2 and sum(add["size"] for add in state.files.values()) <= IN_ORDER_BYTES and state.rows <= IN_ORDER_ROWS


def _described(vector: Any) -> Action:
    """Return Delta's description of a deletion vector in JSON form."""
    described = {
        "storageType": str(vector.storageType()),
        "pathOrInlineDv": str(vector.pathOrInlineDv()),
        "sizeInBytes": int(vector.sizeInBytes()),
        "cardinality": int(vector.cardinality()),
    }
    return described if vector.offset().isEmpty() else {**described, "offset": int(vector.offset().get())}
