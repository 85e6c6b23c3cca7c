"""Delta's transaction over one table: writes files, computes deletion vectors, and commits after other writers.

Relies on `org.apache.spark.sql.delta.OptimisticTransaction` (since Delta 0.2) and on the class with which Delta's DELETE finds the rows of
each file, `commands.DeletionVectorBitmapGenerator` (since 2.4). `DeltaOperations.Write` has nine fields in Delta 4.4. Only the
first is required.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame

from headgate.storage.delta.deletion_vector import DeletionVector
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.internals.table_log import Handles, Snapshot, TableLog


@dataclass(frozen=True)
class DeletedRows:
    """The deleted rows of one file: its URI, how many rows were added to its vector, and the new vector as an action has it."""

    file: str
    matched: int
    vector: DeletionVector


class OptimisticTransaction:
    """A transaction on a snapshot. Nothing is committed unless `commit` is called."""

    def __init__(self, handles: Handles, log: TableLog, snapshot: Snapshot) -> None:
        scala = handles.scala
        self._handles = handles
        self._java = log.java.startTransaction(scala.none, scala.some(snapshot.java))

    def write_files(self, frame: DataFrame) -> list[Action]:
        """Write the rows of a frame in one Spark job. Return the actions that add the files.

        Rows with a value in a column `_change_type` go to change files, and those with NULL to data files.
        """
        return [json.loads(action.json()) for action in self._handles.scala.list(self._java.writeFiles(frame._jdf))]

    def deleted_rows(
        self, positions: DataFrame, file: Column, row: Column, adds: Iterable[Action], *, have_vectors: bool
    ) -> list[DeletedRows]:
        """Write deletion vectors for rows of some files in one Spark job.

        `positions`: a frame with the columns `file` (URI) and `row` (index in the file). `have_vectors`: whether one of the files has a
        vector already, which the new one includes.
        """
        handles = self._handles
        row_sets = handles.vector_generator.buildRowIndexSetsForFilesMatchingCondition(
            handles.session,
            self._java,
            have_vectors,
            positions._jdf,
            handles.adds(adds),
            handles.every_row,
            handles.scala.some(file._jc),
            handles.scala.some(row._jc),
        )
        return [
            DeletedRows(str(rows.filePath()), int(rows.matchedRowCount()), _vector(rows.deletionVector()))
            for rows in handles.scala.list(row_sets)
        ]

    def commit(self, actions: Iterable[Action], mark: str) -> int:
        """Commit after the existing versions, with `mark` as the user metadata. Return the version.

        Raise an exception that `is_conflict` recognizes if another writer has changed the same files.
        """
        handles, none = self._handles, self._handles.scala.none
        operation = handles.write_operation(handles.append_mode, none, none, handles.scala.some(mark), none, none, none, none, none)
        return int(self._java.commit(handles.scala.seq(handles.action(action) for action in actions), operation))


def is_conflict(error: Exception) -> bool:
    """Return whether Delta rejected a commit because of another writer's. In a process that imports `delta`, the class is a Python one.

    Relies on the names of Delta's exceptions (`io.delta.exceptions`).
    """
    name = str(error.java_exception.getClass().getSimpleName()) if isinstance(error, Py4JJavaError) else type(error).__name__
    return "Concurrent" in name or name in {"MetadataChangedException", "ProtocolChangedException"}


def _vector(vector: JavaObject) -> DeletionVector:
    """Return Delta's description of a deletion vector in JSON form."""
    described: DeletionVector = {
        "storageType": str(vector.storageType()),
        "pathOrInlineDv": str(vector.pathOrInlineDv()),
        "sizeInBytes": int(vector.sizeInBytes()),
        "cardinality": int(vector.cardinality()),
    }
    return described if vector.offset().isEmpty() else {**described, "offset": int(vector.offset().get())}
