"""One Delta table at a time, through Delta's own transaction class.

The only module that touches the JVM's Delta classes (internal ones: the jar is pinned, tests/storage checks each call). A
write is one Spark job that writes files (`OptimisticTransaction.writeFiles`) and one commit, a file that the driver writes
(`delta_log`); where another writer was first, Delta commits behind it. Each commit carries ``headgate <xid>`` as its user metadata, so
that recovery can tell the node's commits from those of other writers. The state of a table is read from the log's files: Java's heap holds
nothing of a table that Spark does not read, and little of those that it reads (`Delta.log`).

Used by `engine` and `transaction`, and by what reads a table's rows at a version.
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
"""Where a row is: the URI of its file, and its place there."""
IN_ORDER_BYTES, IN_ORDER_ROWS = 4 << 20, 20_000
"""A table of no more is read in one piece by Spark anyway, and sorted in a few milliseconds."""

RESIDENT_ROWS, RESIDENT_FILES, RESIDENT_BYTES = 2_000, 64, 1 << 20
"""A table of no more is read by the driver ; deleted rows count, too."""

LISTED_FILES = 100
"""Of a table of more Delta looks up by its statistics which files may have the wanted rows."""


LOOK_SECONDS = 0.1
"""How often who waits for another's opening of a log looks whether it is still wanted."""
KEPT_LOGS = 8
"""Tables of which Delta's own objects stay, with the snapshots that they have computed: some 3 MB of Java's heap each."""


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
        """Who opens a log opens it alone."""
        self._forgotten = 0
        """How often one was forgotten: one that is opened meanwhile may be of what is gone, and is not kept."""
        self.true = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(F.lit(True)._jc)

    def log(self, path: DataPath) -> Any:
        """Delta's object for the table in a folder, with the snapshots that it keeps; of a few tables, those that were asked for last."""
        with self._lock:
            found = self._kept(path)
            alone = None if found is not None else self._opening.setdefault(path, threading.Lock())
        if alone is None:
            return found
        # Delta asks a job what the table is, which may wait for executors: those of other tables need not wait with it
        while not alone.acquire(timeout=LOOK_SECONDS):
            job_group.check()
        try:
            return self._opened(path)
        finally:
            with self._lock:
                self._opening.pop(path, None)
            alone.release()

    def _opened(self, path: DataPath) -> Any:
        with self._lock:
            found, forgotten = self._kept(path), self._forgotten
        if found is not None:
            return found
        found = self.DeltaLog.forTable(self.session, str(path))
        with self._lock:
            if forgotten == self._forgotten:
                for old in list(self._logs)[: len(self._logs) + 1 - KEPT_LOGS]:
                    del self._logs[old]
                    self._invalidate(old)
                self._logs[path] = found
        return found

    def _kept(self, path: DataPath) -> Any:
        """Delta's object, if it is one of those that were asked for last; now it is the last."""
        found = self._logs.pop(path, None)
        if found is not None:
            self._logs[path] = found
        return found

    def forget(self, path: DataPath) -> None:
        """What Delta knows of the table in a folder is forgotten."""
        with self._lock:
            self._forgotten += 1
            if self._logs.pop(path, None) is not None:
                self._invalidate(path)

    def _invalidate(self, path: DataPath) -> None:
        self.DeltaLog.invalidateCache(self.session, self.jvm.org.apache.hadoop.fs.Path(str(path)))

    def raw_path(self, path: DataPath) -> str:
        """A folder as Spark's URIs have it; of many tables in one folder it is asked once."""
        if not (path.name.isascii() and path.name.isalnum()):
            return self._raw_path(path.absolute())
        return f"{self._raw_path(path.absolute().parent)}/{path.name}"

    def _raw_path(self, path: DataPath) -> str:
        if path not in self._raw:
            self._raw[path] = str(self.jvm.org.apache.hadoop.fs.Path(str(path)).toUri().getRawPath())
        return self._raw[path]

    def seq(self, items: Iterable[Any]) -> Any:
        """A Scala Seq."""
        values = self.jvm.java.util.ArrayList()
        for item in items:
            values.add(item)
        return self.converters.asScala(values).toSeq()

    def list(self, seq: Any) -> list[Any]:
        """A Python list of a Scala Seq, by place: an iterator of Java ends with an exception, for which PySpark asks a dozen times."""
        found = self.jvm.java.util.ArrayList(self.converters.asJava(seq))
        return [found.get(place) for place in range(found.size())]

    def action(self, action: Action) -> Any:
        """Delta's object for an action in JSON form."""
        return self.Action.fromJson(json.dumps(action))


class DeltaTable(TableFolder):
    """The Delta table of one relation. Not for concurrent writers: the engine's table lock keeps them apart."""

    def __init__(self, delta: Delta, path: DataPath) -> None:
        super().__init__(path, delta.raw_path(path))
        self.delta = delta
        self.has_failed = False
        """Whether a job of Spark has failed while it wrote: what it has written nobody else knows."""

    @property
    def _log(self) -> Any:
        """Delta's object for the table; one of those that were used last, or a new one."""
        return self.delta.log(self.path)

    # reading

    def state(self, version: int | None = None) -> TableState:
        """The table at a version (the newest by default), read from the Delta log: without Spark unless it has features of others."""
        try:
            if version is None:
                version = delta_log.newest_version(self.path) or 0
            return TableState.of(version, *delta_log.read_state(self.path, version))
        except (delta_log.ForeignFeature, FileNotFoundError):
            return self._state_by_delta(version)

    def _state_by_delta(self, version: int | None) -> TableState:
        snapshot = self._snapshot(version)
        added = sorted((json.loads(a)["add"] for a in self._adds(snapshot)), key=lambda add: add["modificationTime"])
        metadata, protocol = json.loads(snapshot.metadata().json())["metaData"], json.loads(snapshot.protocol().json())["protocol"]
        return TableState.of(snapshot.version(), metadata, protocol, parquet.counted(self.path, {a["path"]: a for a in added}))

    def _snapshot(self, version: int | None) -> Any:
        """Delta's own state of the table at a version (the newest by default)."""
        d = self.delta
        # a thread that has run no statement yet has no session, which Delta needs where a version has a checkpoint
        d.jvm.SparkSession.setActiveSession(d.session)
        log = self._log
        if version is None:
            return log.update(False, d.none, d.none)
        current = log.unsafeVolatileSnapshot()
        if current.version() < version:
            current = log.update(False, d.none, d.none)
        return current if current.version() == version else log.getSnapshotAt(version, d.none, d.none, False)

    def _likeness(self, state: TableState) -> Any:
        """What Delta takes for a snapshot where only metadata and protocol matter: it reads nothing."""
        d, log = self.delta, self._log
        metadata, protocol = d.action({"metaData": state.metadata}), d.action({"protocol": state.protocol})
        return d.Dummy(log.logPath(), log, metadata, d.none, d.some(protocol))

    def write_checkpoint(self, version: int) -> Any:
        """Writes the checkpoint of a version of the log; what Delta announces of it. A Spark job over the versions since the last one."""
        d = self.delta
        d.jvm.SparkSession.setActiveSession(d.session)
        return self._log.writeCheckpointFiles(self._snapshot(version), d.none)

    def announce_checkpoint(self, info: Any) -> None:
        """Tells readers of the log where to begin."""
        log = self._log
        log.writeLastCheckpointFile(log, info, True)

    def _adds(self, snapshot: Any) -> list[str]:
        files = DataFrame(snapshot.allFiles().toDF(), self.delta.spark)
        options = {"ignoreNullFields": "true"}
        return [
            str(v) for v in files.select(F.to_json(F.struct(F.struct("*").alias("add")), options).alias("j")).toArrow()["j"].to_pylist()
        ]

    def frame(self, state: TableState, *, positions: bool = False, in_order: bool = False) -> DataFrame:
        """The rows at a version; with `positions` also FILE (URI) and ROW (index in the file).

        `in_order`: those of a small table in the order in which they were written, as a heap has them; otherwise Spark reads the largest
        file first. Rows that an UPDATE has changed are written anew, and so come last.
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
        """The rows of a small table in the order in which they were written, as `frame` has them; None for a larger one."""
        if not _resident(state):
            return None
        parts = []
        for name, found, places in rows.read(self.path, state):
            file = pa.array([self.uri(name)] * len(places), pa.string())
            parts.append(found.append_column(FILE, file).append_column(ROW, places) if positions else found)
        row = rows.schema(state)
        if positions:
            row = row.append(pa.field(FILE, pa.string())).append(pa.field(ROW, pa.int64()))
        return pa.concat_tables(parts) if parts else row.empty_table()

    def first_rows(self, state: TableState, most: int) -> pa.Table:
        """At least `most` rows of a table, or all, without what lies behind them in the files."""
        parts, count = [], 0
        for _, found, _ in rows.read(self.path, state, most):
            parts.append(found)
            count += found.num_rows
            if count >= most:
                break
        return pa.concat_tables(parts) if parts else rows.schema(state).empty_table()

    def pieces(self, state: TableState, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows of a table of any size, in the order of its files, piece by piece."""
        return rows.pieces(self.path, state, names)

    def groups(self, state: TableState) -> Iterator[rows.RowGroup]:
        """All rows of a table of any size, by the row groups of its files, each of which is good until the next."""
        return rows.groups(self.path, state)

    def _rows(self, state: TableState, *, placed: bool) -> DataFrame:
        """The rows at a version, or with what is staged on it.

        A table of few files is read by these, as they are known: so Delta needs not replay the log, which is a Spark job. Where rows are
        `placed`, so is one without deletion vectors: Delta numbers the rows of tables alone that have some.
        """
        d = self.delta
        if state.staged or len(state.files) <= LISTED_FILES or (placed and not state.has_vectors):
            adds = d.seq(d.action({"add": add}) for add in state.files.values())
            if not state.has_vectors:
                metadata, protocol = alteration.with_vectors(state, on=True)
                state = replace(state, metadata=metadata["metaData"], protocol=protocol["protocol"])
            return DataFrame(self._log.createDataFrame(self._likeness(state), adds, False, d.none), d.spark)
        # as a time travel: otherwise the relation would look up the newest version when it runs
        relation = self._log.createRelation(d.nothing, d.some(self._snapshot(state.version)), d.none, True)
        return DataFrame(d.session.baseRelationToDataFrame(relation), d.spark)

    # writing

    def write(self, state: TableState, frame: DataFrame) -> list[Action]:
        """Writes the rows of a frame as files of the table, not yet committed; the actions in JSON form.

        Where the frame has a column `_change_type`, rows with a value go to change files and those with NULL to data files.
        The order of the rows of a partition is kept in each file; the number in ``part-nnnnn`` is the partition's.
        """
        transaction = self._start(state)
        try:
            return [json.loads(a.json()) for a in self.delta.list(transaction.writeFiles(array_column.to_files(frame, state.lists)._jdf))]
        except BaseException:
            self.has_failed = True
            raise

    def deletions(self, state: TableState, positions: DataFrame, files: Iterable[str]) -> list[Action]:
        """The actions that delete rows (columns FILE, ROW) of these files (URIs) by deletion vectors: one Spark job."""
        d = self.delta
        adds = self.touched(state, files)
        if not adds:
            return []
        marked = any("deletionVector" in add for add in adds.values())
        found = d.list(
            d.bitmaps.buildRowIndexSetsForFilesMatchingCondition(
                d.session,
                self._start(state),
                marked,
                positions._jdf,
                d.seq(d.action({"add": add}) for add in adds.values()),
                d.true,
                d.some(F.col(FILE)._jc),
                d.some(F.col(ROW)._jc),
            )
        )
        removed, left = [], []
        for each in found:
            add, vector = adds[self.name(each.filePath())], _described(each.deletionVector())
            if file_action.dead(add) + each.matchedRowCount() != vector["cardinality"]:
                raise PostgresError("40001", "could not serialize access due to concurrent update")
            removed.append(file_action.removal(add, data_change=True))
            if not file_action.is_emptied(add, vector["cardinality"]):
                left.append(file_action.marked(add, vector))
        return removed + left

    def stage(self, state: TableState, actions: Sequence[Action]) -> TableState:
        """The state after `actions` that are not committed: for the transaction that staged them to read and to write on."""
        return replace(after(state, actions), staged=state.staged + 1)

    def commit_version(self, state: TableState, actions: Sequence[Action], mark: str) -> TableState:
        """Commits actions on top of `state`; the state afterwards.

        Where another writer was first, Delta puts the commit behind it if the two do not touch the same files: then the version is not the
        one after `state`'s. Otherwise 40001, as always for other columns, and behind a version of the node's own: the store has taken it
        after its transaction had failed for want of an answer, and who locks the table next takes it back.
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
        marks = (marked_with(delta_log.read_version(self.path, each)) for each in above)
        return any(mark is not None and transaction_of(mark) is not None for mark in marks)

    def _commit_behind(self, state: TableState, actions: Sequence[Action], mark: str) -> int:
        """Has Delta commit behind the versions that are there; the version."""
        d, n = self.delta, self.delta.none
        operation = d.Write(d.append, n, n, d.some(mark), n, n, n, n, n)
        try:
            return int(self._start(state).commit(d.seq(d.action(a) for a in actions), operation))
        except Exception as error:
            if not _is_conflict(error):
                raise
            raise PostgresError("40001", "could not serialize access due to concurrent update") from error

    def undo(self, state: TableState, to: TableState, mark: str) -> TableState:
        """Makes the newest version (`state`) equal to an earlier one by inverse file actions, without change rows."""
        actions = difference(state, to)
        if state.metadata != to.metadata or state.protocol != to.protocol:
            actions = [*alteration.restored(to), *actions]
        return self.commit_version(state, actions, mark) if actions else state

    def _start(self, state: TableState) -> Any:
        d = self.delta
        # columns that are staged no version has; the rest is as the version that they are staged on
        seen = self._likeness(state) if state.altered > state.version else self._snapshot(state.version)
        return self._log.startTransaction(d.none, d.some(seen))

    def forget(self) -> None:
        """Another table may stand in this directory from now on: what Delta knows of this one is forgotten."""
        self.delta.forget(self.path)

    def remove(self) -> bool:
        """Deletes the table's directory, its log last: a start tells by it what nobody has committed. Whether it is gone."""
        self.forget()
        return data_location.remove_tree(self.path, last="_delta_log")


def _is_conflict(error: Exception) -> bool:
    """Whether Delta refuses a commit for another writer's; the class is Python's own in a process that has imported `delta`."""
    name = str(error.java_exception.getClass().getSimpleName()) if isinstance(error, Py4JJavaError) else type(error).__name__
    return "Concurrent" in name or name in {"MetadataChangedException", "ProtocolChangedException"}


def _resident(state: TableState) -> bool:
    """Whether the driver reads a table: what it would hold is little, whatever of it has been deleted."""
    adds = state.files.values()
    return len(adds) <= RESIDENT_FILES and sum(add["size"] for add in adds) <= RESIDENT_BYTES and sum(map(records, adds)) <= RESIDENT_ROWS


def _orderable(state: TableState) -> bool:
    """Whether there is an order to keep, at little cost."""
    return len(state.files) >= 2 and sum(add["size"] for add in state.files.values()) <= IN_ORDER_BYTES and state.rows <= IN_ORDER_ROWS


def _described(vector: Any) -> Action:
    """Delta's description of a deletion vector in JSON form."""
    found = {
        "storageType": str(vector.storageType()),
        "pathOrInlineDv": str(vector.pathOrInlineDv()),
        "sizeInBytes": int(vector.sizeInBytes()),
        "cardinality": int(vector.cardinality()),
    }
    return found if vector.offset().isEmpty() else {**found, "offset": int(vector.offset().get())}
