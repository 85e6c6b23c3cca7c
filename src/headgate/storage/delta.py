"""One Delta table at a time, through Delta's own transaction class.

The only module that touches the JVM's Delta classes (internal ones: the jar is pinned, tests/storage checks each call). A
write is one Spark job that writes files (`OptimisticTransaction.writeFiles`) and one commit; the commit is an operation
`Write(Append)`, never `ManualUpdate`, for which Delta rebuilds the table's state at each commit. Each commit carries
``headgate <xid>`` as its user metadata, so that recovery can tell the node's commits from those of other writers.

Used by `engine` and `transaction`, and by what reads a table's rows at a version.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate.errors import PostgresError
from headgate.storage import alteration, rows
from headgate.storage.delta_log import read_version
from headgate.storage.file_action import Action, files_after, records
from headgate.storage.local import in_one_piece
from headgate.storage.staged import StagedTable
from headgate.storage.table_state import ALTERED, TableState, advance, altered, difference, physical_names
from headgate.types.storage import own_name

FILE, ROW = own_name("_file"), own_name("_row")
PLACE = StructType([StructField(FILE, StringType()), StructField(ROW, LongType())])
"""Where a row is: the URI of its file, and its place there."""
IN_ORDER_BYTES, IN_ORDER_ROWS = 4 << 20, 20_000
"""A table of no more is read in one piece by Spark anyway, and sorted in a few milliseconds."""

RESIDENT_ROWS, RESIDENT_FILES, RESIDENT_BYTES = 2_000, 64, 1 << 20
"""A table of no more is read by the driver (setting `headgate.resident_rows` of tests): rows that were deleted count, too."""

LISTED_FILES, LISTED_BYTES = 100, 16 << 20
"""Of a larger table Delta looks up by its statistics which files may have the wanted rows."""


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
        self.dml = module(delta.commands, "DMLWithDeletionVectorsHelper$")
        self.bitmaps = module(delta.commands, "DeletionVectorBitmapGenerator$")
        self.touched = delta.commands.TouchedFileWithDV
        self.Dummy = delta.DummySnapshot
        self.true = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(F.lit(True)._jc)

    def seq(self, items: Iterable[Any]) -> Any:
        """A Scala Seq."""
        values = self.jvm.java.util.ArrayList()
        for item in items:
            values.add(item)
        return self.converters.asScala(values).toSeq()

    def list(self, seq: Any) -> list[Any]:
        """A Python list of a Scala Seq."""
        return list(self.converters.asJava(seq))

    def action(self, action: Action) -> Any:
        """Delta's object for an action in JSON form."""
        return self.Action.fromJson(json.dumps(action))


class DeltaTable:
    """The Delta table of one relation. Not for concurrent writers: the engine's table lock keeps them apart."""

    def __init__(self, delta: Delta, path: Path) -> None:
        self.delta = delta
        self.path = path
        self._log = delta.DeltaLog.forTable(delta.session, str(path))
        self._base = str(self._log.dataPath().toUri().getRawPath()) + "/"

    # reading

    def state(self, version: int | None = None) -> TableState:
        """The table at a version (the newest by default), read from the Delta log: one Spark job."""
        snapshot = self._snapshot(version)
        row = StructType.fromJson(json.loads(snapshot.schema().json()))
        if snapshot.version() == 0:
            added = [a["add"] for a in read_version(self.path, 0) if "add" in a]
        else:
            added = sorted((json.loads(a)["add"] for a in self._adds(snapshot)), key=lambda add: add["modificationTime"])
        return TableState(snapshot.version(), snapshot, {a["path"]: a for a in added}, row, physical_names(row), altered(snapshot))

    def _snapshot(self, version: int | None) -> Any:
        d = self.delta
        # a thread that has run no statement yet has no session, which Delta needs where a version has a checkpoint
        d.jvm.SparkSession.setActiveSession(d.session)
        if version is None:
            return self._log.update(False, d.none, d.none)
        current = self._log.unsafeVolatileSnapshot()
        return current if current.version() == version else self._log.getSnapshotAt(version, d.none, d.none, False)

    def again(self, state: TableState) -> tuple[TableState, int]:
        """A state whose snapshot Delta has read anew, and the version of the checkpoint from which it did; -1: from the first version.

        A snapshot that grew by commits goes on naming all versions since it was first read, over any number of checkpoints.
        """
        snapshot = self._snapshot(state.version)
        return replace(state, snapshot=snapshot), int(snapshot.logSegment().checkpointProvider().version())

    def write_checkpoint(self, version: int) -> Any:
        """Writes the checkpoint of a version of the log; what Delta announces of it. A Spark job over the versions since the last one."""
        d = self.delta
        d.jvm.SparkSession.setActiveSession(d.session)
        return self._log.writeCheckpointFiles(self._log.getSnapshotAt(version, d.none, d.none, False), d.none)

    def announce_checkpoint(self, info: Any) -> None:
        """Tells readers of the log where to begin."""
        self._log.writeLastCheckpointFile(self._log, info, True)

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
        frame = self._rows(state)
        held = self.held(state, positions=positions)
        if held is not None:
            row = StructType([*state.schema.fields, *(PLACE.fields if positions else ())])
            return in_one_piece(self.delta.spark, held, row)
        in_order = in_order and _orderable(state)
        if not (positions or in_order):
            return frame
        place = frame.metadataColumn("_metadata")  # not by its name, which a column may have
        placed = frame.select("*", place.getField("file_path").alias(FILE), place.getField("row_index").alias(ROW))
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

    def _rows(self, state: TableState) -> DataFrame:
        """The rows at a version, or with what is staged on it.

        A small table is read by the files that are known: so Delta needs not replay the log, which is a Spark job.
        """
        d = self.delta
        if state.staged or (len(state.files) <= LISTED_FILES and sum(add["size"] for add in state.files.values()) <= LISTED_BYTES):
            adds = d.seq(d.action({"add": add}) for add in state.files.values())
            return DataFrame(self._log.createDataFrame(state.snapshot, adds, False, d.none), d.spark)
        # as a time travel: otherwise the relation would look up the newest version when it runs
        relation = self._log.createRelation(d.nothing, d.some(state.snapshot), d.none, True)
        return DataFrame(d.session.baseRelationToDataFrame(relation), d.spark)

    # writing

    def write(self, state: TableState, frame: DataFrame) -> list[Action]:
        """Writes the rows of a frame as files of the table, not yet committed; the actions in JSON form.

        Where the frame has a column `_change_type`, rows with a value go to change files and those with NULL to data files.
        The order of the rows of a partition is kept in each file; the number in ``part-nnnnn`` is the partition's.
        """
        transaction = self._start(state)
        return [json.loads(a.json()) for a in self.delta.list(transaction.writeFiles(frame._jdf))]

    def deletions(self, state: TableState, positions: DataFrame) -> list[Action]:
        """The actions that delete rows (columns FILE, ROW) by deletion vectors: one Spark job."""
        d = self.delta
        transaction = self._start(state)
        names = [self.name(uri) for uri in positions.select(FILE).distinct().toArrow()[FILE].to_pylist()]
        if any(name not in state.files for name in names):
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        adds = {name: state.files[name] for name in names}
        objects = {name: d.action({"add": add}) for name, add in adds.items()}
        marked = any("deletionVector" in add for add in adds.values())
        found = d.list(
            d.bitmaps.buildRowIndexSetsForFilesMatchingCondition(
                d.session,
                transaction,
                marked,
                positions._jdf,
                d.seq(objects.values()),
                d.true,
                d.some(F.col(FILE)._jc),
                d.some(F.col(ROW)._jc),
            )
        )
        touched = [
            d.touched(each.filePath(), objects[self.name(each.filePath())], each.deletionVector(), each.matchedRowCount()) for each in found
        ]
        result = d.list(d.dml.processUnmodifiedData(d.session, d.seq(touched), state.snapshot, 4)._1())
        return [json.loads(a.json()) for a in result]

    def name(self, uri: str) -> str:
        """The path in the log of a file that Spark names by its URI."""
        return uri[uri.index(self._base) + len(self._base) :]

    def uri(self, name: str) -> str:
        """The URI of a file by its path in the log, as Spark's metadata columns have it."""
        return f"file:{self._base}{name}"

    def stage(self, state: TableState, actions: Sequence[Action]) -> TableState:
        """The state after `actions` that are not committed: for the transaction that staged them to read and to write on."""
        files = files_after(state.files, actions)
        metadata = next((action["metaData"] for action in actions if "metaData" in action), None)
        if metadata is None:
            return replace(state, files=files, staged=state.staged + 1)
        d = self.delta
        protocol = next((action["protocol"] for action in actions if "protocol" in action), None) or state.protocol
        assert protocol is not None, "an alteration names the protocol that its columns need"
        snapshot = d.Dummy(
            self._log.logPath(), self._log, d.action({"metaData": metadata}), d.none, d.some(d.action({"protocol": protocol}))
        )  # fmt: skip
        row = StructType.fromJson(json.loads(metadata["schemaString"]))
        since = int((metadata.get("configuration") or {}).get(ALTERED, 0))
        return TableState(state.version, snapshot, files, row, physical_names(row), since, state.staged + 1, metadata, protocol)

    def commit_staged(self, staged: StagedTable, actions: Sequence[Action], mark: str) -> TableState:
        """Commits what was staged as one version (`actions` are its `actions()`); the state afterwards. 40001 as `commit`."""
        if staged.state.metadata is not None:
            return self.write_version(staged.base, actions, mark)
        return self.commit(staged.base, actions, mark)

    def commit(self, state: TableState, actions: Sequence[Action], mark: str) -> TableState:
        """Commits actions on top of `state`; the state afterwards.

        Where another writer was first, Delta puts the commit behind it if the two do not touch the same files: then the version is not the
        one after `state`'s. Otherwise 40001.
        """
        d = self.delta
        transaction = self._start(state)
        n = d.none
        operation = d.Write(d.append, n, n, d.some(mark), n, n, n, n, n)
        try:
            version = transaction.commit(d.seq(d.action(a) for a in actions), operation)
        except Exception as error:
            if not _is_conflict(error):
                raise
            raise PostgresError("40001", "could not serialize access due to concurrent update") from error
        if version != state.version + 1:
            return self.state(version)
        snapshot = self._log.unsafeVolatileSnapshot()
        if snapshot.version() != version:
            snapshot = self._log.getSnapshotAt(version, d.none, d.none, False)
        return advance(state, version, snapshot, actions)

    def follow(self, state: TableState, version: int, actions: Sequence[Action]) -> TableState:
        """The state after the version that follows `state` and has these actions, of another writer."""
        d = self.delta
        snapshot = self._log.update(False, d.none, d.none)
        if snapshot.version() != version:
            snapshot = self._log.getSnapshotAt(version, d.none, d.none, False)
        return advance(state, version, snapshot, actions)

    def undo(self, state: TableState, to: TableState, mark: str) -> TableState:
        """Makes the newest version (`state`) equal to an earlier one by inverse file actions, without change rows."""
        actions = difference(state, to)
        if state.schema != to.schema:
            return self.write_version(state, [*alteration.restored(to), *actions], mark)
        return self.commit(state, actions, mark) if actions else state

    def write_version(self, state: TableState, actions: Sequence[Action], mark: str) -> TableState:
        """Commits actions that change the metadata, on top of `state`, which must be the newest version; the state afterwards."""
        d = self.delta
        alteration.write_version(self.path, state.version + 1, list(actions), mark)
        snapshot = self._log.update(False, d.none, d.none)
        return advance(state, state.version + 1, snapshot, actions)

    def _start(self, state: TableState) -> Any:
        return self._log.startTransaction(self.delta.none, self.delta.some(state.snapshot))

    def forget(self) -> None:
        """Another table may stand in this directory from now on: what Delta knows of this one is forgotten."""
        self.delta.DeltaLog.invalidateCache(self.delta.session, self.delta.jvm.org.apache.hadoop.fs.Path(str(self.path)))

    def remove(self) -> None:
        """Deletes the table's directory."""
        self.forget()
        shutil.rmtree(self.path, ignore_errors=True)


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
