"""One Delta table at a time, through Delta's own transaction class.

The only module that touches the JVM's Delta classes (internal ones: the jar is pinned, tests/storage checks each call). A
write is one Spark job that writes files (`OptimisticTransaction.writeFiles`) and one commit; the commit is an operation
`Write(Append)`, never `ManualUpdate`, for which Delta rebuilds the table's state at each commit. Each commit carries
``headgate <xid>`` as its user metadata, so that recovery can tell the node's commits from those of other writers.

Used by `engine` and `transaction`, and by `feed` to read the files that a version names.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.errors import PostgresError, not_supported

Action = dict[str, Any]
FILE, ROW = "_file", "_row"
PLACEHOLDER = "__headgate_row"
"""The one column of the Delta table of a relation without columns: a Delta table must have one."""

ALTERED = "headgate.altered"
"""Table property: the version that last changed the columns."""

_MAPPED = set(" ,;{}()\n\t=")
_RESERVED = {"_change_type", "_commit_version", "_commit_timestamp"}


@dataclass(frozen=True)
class TableState:
    """A table at one version: Delta's snapshot (a JVM object) and the files by path, each the `add` action of the log."""

    version: int
    snapshot: Any
    files: Mapping[str, Action]
    schema: StructType
    physical: Mapping[str, str]
    """Names in the Parquet files by column name; the same unless column mapping is on."""
    altered: int = 0
    """The version since which the columns are what they are (0: since the table was made)."""

    @property
    def rows(self) -> int:
        """Number of rows, from the statistics."""
        total = 0
        for add in self.files.values():
            total += records(add) - (add.get("deletionVector") or {}).get("cardinality", 0)
        return total


def records(add: Action) -> int:
    """Number of rows in the file of an `add` action, those in its deletion vector included."""
    stats = add.get("stats")
    return int(json.loads(stats).get("numRecords", 0)) if stats else 0


def physical_names(row: StructType) -> dict[str, str]:
    """Column name → name in the Parquet files."""
    return {f.name: (f.metadata or {}).get("delta.columnMapping.physicalName", f.name) for f in row.fields}


def altered(snapshot: Any) -> int:
    """The version of the last change of columns, from the table's properties."""
    found = snapshot.metadata().configuration().get(ALTERED)
    return int(found.get()) if found.isDefined() else 0


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


def check_names(row: StructType) -> None:
    """Refuses what a Delta table cannot be called: columns that differ in case only, names of the change feed."""
    seen: dict[str, str] = {}
    for name in row.fieldNames():
        if name in _RESERVED:
            raise not_supported(f'column name "{name}" is reserved by Delta Lake\'s change data feed')
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise not_supported(f'column names "{other}" and "{name}" differ in case only', detail="Delta Lake cannot hold both.")


def create(path: Path, row: StructType, *, checkpoint_interval: int = 100, description: str | None = None) -> None:
    """Makes an empty table: version 0 with the protocol and the metadata, written as the one small file that it is.

    Change feed and deletion vectors are on; column mapping is on only if a name has one of the characters that Parquet's
    schema language refuses (space , ; { } ( ) = newline tab). Columns are nullable: NOT NULL is the node's business.
    """
    check_names(row)
    mapped = any(_MAPPED & set(name) for name in row.fieldNames())
    configuration = {
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
        "delta.checkpointInterval": str(checkpoint_interval),
        "delta.logRetentionDuration": "interval 30 days",
        "delta.enableExpiredLogCleanup": "false",  # `clean` knows what slots need
        "delta.deletedFileRetentionDuration": "interval 7 days",
    }
    fields = json.loads(row.json())["fields"]
    writer = ["changeDataFeed", "deletionVectors"]
    reader = ["deletionVectors"]
    if '"timestamp_ntz"' in row.json():
        writer.append("timestampNtz")
        reader.append("timestampNtz")
    if mapped:
        writer.append("columnMapping")
        reader.append("columnMapping")
        configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}
        for number, column in enumerate(fields, 1):
            column["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{uuid.uuid4()}"}
    created = int(time.time() * 1000)
    actions = [
        {"commitInfo": {"timestamp": created, "operation": "CREATE TABLE", "operationParameters": {}, "isBlindAppend": True}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "description": description,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": configuration,
                "createdTime": created,
            }
        },
    ]
    log = path / "_delta_log"
    log.mkdir(parents=True)
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    with (log / ".0.tmp").open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    (log / ".0.tmp").rename(log / f"{0:020d}.json")


def read_version(path: Path, version: int) -> list[Action]:
    """The actions of one version of a table."""
    with (path / "_delta_log" / f"{version:020d}.json").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def has_version(path: Path, version: int) -> bool:
    """Whether a table has this version: one look at the file system, however long its log is."""
    return (path / "_delta_log" / f"{version:020d}.json").exists()


def newest_version(path: Path) -> int | None:
    """The newest version in a table's log by its file names (20 µs, no Spark); None where there is no table."""
    try:
        names = os.listdir(path / "_delta_log")  # noqa: PTH208 (a tenth of the time of iterdir)
    except FileNotFoundError:
        return None
    return max((int(n[:20]) for n in names if len(n) == 25 and n.endswith(".json") and n[:20].isdigit()), default=None)


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
        d = self.delta
        # a thread that has run no statement yet has no session, which Delta needs where a version has a checkpoint
        d.jvm.SparkSession.setActiveSession(d.session)
        if version is None:
            snapshot = self._log.update(False, d.none, d.none)
        else:
            current = self._log.unsafeVolatileSnapshot()
            snapshot = current if current.version() == version else self._log.getSnapshotAt(version, d.none, d.none, False)
        row = StructType.fromJson(json.loads(snapshot.schema().json()))
        if snapshot.version() == 0:
            added = [a["add"] for a in read_version(self.path, 0) if "add" in a]
        else:
            added = [json.loads(a)["add"] for a in self._adds(snapshot)]
        return TableState(snapshot.version(), snapshot, {a["path"]: a for a in added}, row, physical_names(row), altered(snapshot))

    def _adds(self, snapshot: Any) -> list[str]:
        files = DataFrame(snapshot.allFiles().toDF(), self.delta.spark)
        options = {"ignoreNullFields": "true"}
        return [
            str(v) for v in files.select(F.to_json(F.struct(F.struct("*").alias("add")), options).alias("j")).toArrow()["j"].to_pylist()
        ]

    def frame(self, state: TableState, *, positions: bool = False) -> DataFrame:
        """The rows at a version; with `positions` also `_file` (URI) and `_row` (index in the file)."""
        d = self.delta
        # as a time travel: otherwise the relation would look up the newest version when it runs
        relation = self._log.createRelation(d.nothing, d.some(state.snapshot), d.none, True)
        frame = DataFrame(d.session.baseRelationToDataFrame(relation), d.spark)
        if not positions:
            return frame
        return frame.select("*", F.col("_metadata.file_path").alias(FILE), F.col("_metadata.row_index").alias(ROW))

    # writing

    def write(self, state: TableState, frame: DataFrame) -> list[Action]:
        """Writes the rows of a frame as files of the table, not yet committed; the actions in JSON form.

        Where the frame has a column `_change_type`, rows with a value go to change files and those with NULL to data files.
        The order of the rows of a partition is kept in each file; the number in ``part-nnnnn`` is the partition's.
        """
        transaction = self._start(state)
        return [json.loads(a.json()) for a in self.delta.list(transaction.writeFiles(frame._jdf))]

    def deletions(self, state: TableState, positions: DataFrame) -> list[Action]:
        """The actions that delete rows (columns `_file`, `_row`) by deletion vectors: one Spark job."""
        d = self.delta
        transaction = self._start(state)
        names = [self.name(uri) for uri in positions.select(FILE).distinct().toArrow()[FILE].to_pylist()]
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
        except Py4JJavaError as error:
            if "Concurrent" not in error.java_exception.getClass().getSimpleName():
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
        from headgate.storage import alteration

        actions = difference(state, to)
        if state.schema != to.schema:
            return self.write_version(state, [*alteration.restored(to), *actions], mark)
        return self.commit(state, actions, mark) if actions else state

    def write_version(self, state: TableState, actions: Sequence[Action], mark: str) -> TableState:
        """Commits actions that change the metadata, on top of `state`, which must be the newest version; the state afterwards."""
        from headgate.storage import alteration

        d = self.delta
        alteration.write_version(self.path, state.version + 1, list(actions), mark)
        snapshot = self._log.update(False, d.none, d.none)
        return advance(state, state.version + 1, snapshot, actions)

    def _start(self, state: TableState) -> Any:
        return self._log.startTransaction(self.delta.none, self.delta.some(state.snapshot))

    def remove(self) -> None:
        """Deletes the table's directory."""
        self.delta.DeltaLog.invalidateCache(self.delta.session, self.delta.jvm.org.apache.hadoop.fs.Path(str(self.path)))
        shutil.rmtree(self.path, ignore_errors=True)


def files_after(files: Mapping[str, Action], actions: Iterable[Action]) -> dict[str, Action]:
    """The `add` actions that hold, by path, after a commit of `actions`."""
    after = dict(files)
    for action in actions:
        if "remove" in action:
            after.pop(action["remove"]["path"], None)
    for action in actions:
        if "add" in action:
            after[action["add"]["path"]] = action["add"]
    return after


def advance(state: TableState, version: int, snapshot: Any, actions: Iterable[Action]) -> TableState:
    """The state after a commit of `actions`."""
    files = files_after(state.files, actions)
    if not any("metaData" in action for action in actions):
        return replace(state, version=version, snapshot=snapshot, files=files)
    row = StructType.fromJson(json.loads(snapshot.schema().json()))
    return TableState(version, snapshot, files, row, physical_names(row), altered(snapshot))


def removal(add: Action, *, data_change: bool) -> Action:
    """The `remove` action of a file, with its size and statistics so that Delta can keep its checksum up to date."""
    removed = {
        "path": add["path"],
        "deletionTimestamp": int(time.time() * 1000),
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": add.get("partitionValues") or {},
        "size": add["size"],
    }
    if add.get("stats"):
        removed["stats"] = add["stats"]
    if add.get("deletionVector"):
        removed["deletionVector"] = add["deletionVector"]
    return {"remove": removed}


def marked(add: Action, deletion_vector: Action) -> Action:
    """The `add` action of a file some of whose rows are deleted; its statistics are bounds no more."""
    stats = add["stats"].replace('"tightBounds":true', '"tightBounds":false')
    return {
        "add": {
            **{k: v for k, v in add.items() if k != "deletionVector"},
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": stats,
            "deletionVector": deletion_vector,
        }
    }


def _vector(add: Action) -> tuple[Any, ...] | None:
    vector = add.get("deletionVector")
    return (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset")) if vector else None


def difference(now: TableState, wanted: TableState) -> list[Action]:
    """The file actions (`dataChange` false) that turn the files of one state into those of another."""
    actions: list[Action] = []
    for path, add in now.files.items():
        other = wanted.files.get(path)
        if other is None or _vector(other) != _vector(add):
            actions.append(removal(add, data_change=False))
    for path, add in wanted.files.items():
        other = now.files.get(path)
        if other is None or _vector(other) != _vector(add):
            actions.append({"add": {**add, "dataChange": False}})
    return actions
