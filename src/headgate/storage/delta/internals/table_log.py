"""Delta's object for the log of one table: its snapshots, the rows at them, checkpoints.

Relies on `org.apache.spark.sql.delta.DeltaLog`, `Snapshot` and `DummySnapshot`. All exist since Delta 1.0, with the arguments given here
since Delta 4.0: `forTable` and `update` got more optional ones from version to version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from py4j.java_gateway import JavaClass, JavaObject, JavaPackage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.storage.delta.file_action import Action
from headgate.storage.spark.internals import gateway


class Scala:
    """The constructors of Scala's values, looked up once for a session. Relies on `scala.jdk.javaapi`, since Scala 2.13 (Spark 4)."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = gateway.jvm(spark.sparkContext)
        self._converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        self.none = singleton(self._jvm.scala, "None$")
        self.some = self._jvm.scala.Some

    def seq(self, items: Iterable[JavaObject]) -> JavaObject:
        values = self._jvm.java.util.ArrayList()
        for item in items:
            values.add(item)
        return self._converters.asScala(values).toSeq()

    def list(self, seq: JavaObject) -> list[JavaObject]:
        """Convert a Scala Seq to a list by index: a Java iterator ends with an exception, which costs PySpark a dozen calls."""
        items = self._jvm.java.util.ArrayList(self._converters.asJava(seq))
        return [items.get(index) for index in range(items.size())]


def singleton(package: JavaPackage, name: str) -> JavaObject:
    """Return the instance of a Scala `object` in a package. Its name ends with ``$``."""
    return getattr(getattr(package, name), "MODULE$")


class Handles:
    """Delta's classes and the session that they work with. Each is looked up once: Py4J asks Java for every part of a class's name."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.jvm = gateway.jvm(spark.sparkContext)
        self.session: JavaObject = spark._jsparkSession
        self.scala = Scala(spark)
        self._delta = self.jvm.org.apache.spark.sql.delta
        self._Action = singleton(self._delta.actions, "Action$")

    @cached_property
    def delta_log(self) -> JavaObject:
        """Return Scala's object `DeltaLog`."""
        return singleton(self._delta, "DeltaLog$")

    @cached_property
    def dummy_snapshot(self) -> JavaClass:
        """Return the class `DummySnapshot`."""
        return self._delta.DummySnapshot

    @cached_property
    def vector_generator(self) -> JavaObject:
        """Return Scala's object `DeletionVectorBitmapGenerator`."""
        return singleton(self._delta.commands, "DeletionVectorBitmapGenerator$")

    @cached_property
    def every_row(self) -> JavaObject:
        """Return the Catalyst expression TRUE. Relies on `ExpressionUtils.expression`, since Spark 4.0."""
        return self.jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(F.lit(True)._jc)

    @cached_property
    def write_operation(self) -> JavaClass:
        """Return the class `DeltaOperations.Write`, with which a commit describes itself in the log."""
        return getattr(self._delta, "DeltaOperations$Write")

    @cached_property
    def append_mode(self) -> JavaObject:
        """Return Spark's `SaveMode.Append`."""
        return self.jvm.org.apache.spark.sql.SaveMode.Append

    def action(self, action: Action) -> JavaObject:
        """Return Delta's object for an action of the log. Relies on `Action.fromJson`."""
        return self._Action.fromJson(json.dumps(action))

    def adds(self, adds: Iterable[Action]) -> JavaObject:
        """Return a Scala Seq of Delta's objects for `add` actions."""
        return self.scala.seq(self.action({"add": add}) for add in adds)

    def activate_session(self) -> None:
        """Give the Java thread of this Python thread a session. A thread that has not run a statement does not have one.

        Delta needs it if a version has a checkpoint.
        """
        self.jvm.SparkSession.setActiveSession(self.session)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is written and not announced."""

    java: JavaObject


class Snapshot:
    """Delta's state of a table at one version, or a likeness of one that has only metadata and protocol."""

    def __init__(self, handles: Handles, java: JavaObject) -> None:
        self._handles, self.java = handles, java

    @cached_property
    def version(self) -> int:
        """Return the version; -1 for a likeness."""
        return int(self.java.version())

    def metadata(self) -> Action:
        """Return the action `metaData`."""
        action: Action = json.loads(self.java.metadata().json())["metaData"]
        return action

    def protocol(self) -> Action:
        """Return the action `protocol`."""
        action: Action = json.loads(self.java.protocol().json())["protocol"]
        return action

    def adds(self) -> list[Action]:
        """Return the `add` actions of all files. This is a Spark job."""
        files = DataFrame(self.java.allFiles().toDF(), self._handles.spark)
        texts = files.select(F.to_json(F.struct("*"), {"ignoreNullFields": "true"}).alias("add")).toArrow()["add"].to_pylist()
        return [json.loads(text) for text in texts]


class TableLog:
    """Delta's object for the table in one folder. It keeps the snapshots that Delta has computed."""

    def __init__(self, handles: Handles, java: JavaObject) -> None:
        self._handles, self.java = handles, java

    @classmethod
    def open(cls, handles: Handles, path: str) -> TableLog:
        """Return the log of the table in a folder. Delta caches it. This may be a Spark job."""
        return cls(handles, handles.delta_log.forTable(handles.session, path))

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the table at a version (the newest by default)."""
        none = self._handles.scala.none
        self._handles.activate_session()
        if version is None:
            return Snapshot(self._handles, self.java.update(False, none, none))
        current = self.java.unsafeVolatileSnapshot()
        if current.version() < version:
            current = self.java.update(False, none, none)
        if current.version() != version:
            current = self.java.getSnapshotAt(version, none, none, False)
        return Snapshot(self._handles, current)

    def likeness(self, metadata: Action, protocol: Action) -> Snapshot:
        """Return a snapshot for calls that use only metadata and protocol. It reads nothing. Relies on `DummySnapshot`."""
        handles, scala = self._handles, self._handles.scala
        described = handles.action({"metaData": metadata}), handles.action({"protocol": protocol})
        java = handles.dummy_snapshot(self.java.logPath(), self.java, described[0], scala.none, scala.some(described[1]))
        return Snapshot(handles, java)

    def rows_of(self, snapshot: Snapshot, adds: Iterable[Action]) -> DataFrame:
        """Return the rows of some files, whose names and deletion vectors `adds` tells. Does not read the log.

        Relies on `DeltaLog.createDataFrame`, with which Delta's own commands read the files that they rewrite.
        """
        handles = self._handles
        return DataFrame(self.java.createDataFrame(snapshot.java, handles.adds(adds), False, handles.scala.none), handles.spark)

    def rows_at(self, snapshot: Snapshot) -> DataFrame:
        """Return the rows of a snapshot, whatever the newest version is when the frame runs. Relies on `DeltaLog.createRelation`."""
        handles, scala = self._handles, self._handles.scala
        # as a time travel: otherwise the relation would resolve the newest version when it runs
        relation = self.java.createRelation(scala.seq([]), scala.some(snapshot.java), scala.none, True)
        return DataFrame(handles.session.baseRelationToDataFrame(relation), handles.spark)

    def write_checkpoint(self, snapshot: Snapshot) -> Checkpoint:
        """Write the checkpoint of a snapshot. This is a Spark job over the versions since the last one.

        Relies on `Checkpoints.writeCheckpointFiles`, which does not announce the checkpoint: it may have to be made durable before.
        """
        self._handles.activate_session()
        return Checkpoint(self.java.writeCheckpointFiles(snapshot.java, self._handles.scala.none))

    def announce_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the pointer to a checkpoint (`_last_checkpoint`), from which readers of the log start."""
        self.java.writeLastCheckpointFile(self.java, checkpoint.java, True)
