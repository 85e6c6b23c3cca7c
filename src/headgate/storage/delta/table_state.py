"""The state of a Delta table at one version: the files and columns according to its log, held in memory.

Made by `delta_table.DeltaTable`, shared by all readers and writers of the table at that version. It is immutable: a commit makes another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from headgate.storage.delta.file_action import Action, files_after, records, removal, rows
from headgate.storage.spark.internals import arrow_schema

ALTERED = "headgate.altered"
"""Table property: the version that last changed the columns."""
VECTORS = "delta.enableDeletionVectors"


@dataclass(frozen=True)
class TableState:
    """A table at one version: its metadata, and its files by path, each as the `add` action of the log. It has no Java objects."""

    version: int
    metadata: Action
    protocol: Action
    files: Mapping[str, Action]
    schema: StructType
    """The columns in the node's types."""
    physical: Mapping[str, str]
    """Names in the Parquet files by column name. They differ only with column mapping."""
    lists: Mapping[str, pa.ListType]
    """The columns that the files hold as lists and the node as text (`array_column`)."""
    altered: int = 0
    """The version since which the columns are unchanged (0: since the table was created)."""
    staged: int = 0
    """Number of writes that a transaction has staged on the version."""

    @classmethod
    def of(cls, version: int, metadata: Action, protocol: Action, files: Mapping[str, Action]) -> TableState:
        row = StructType.fromJson(json.loads(metadata["schemaString"]))
        since = int((metadata.get("configuration") or {}).get(ALTERED, 0))
        return cls(version, metadata, protocol, files, _with_arrays_as_text(row), physical_names(row), _lists(row), since)

    @property
    def has_vectors(self) -> bool:
        """Whether rows are deleted by deletion vectors. Otherwise their files are rewritten without them."""
        return (self.metadata.get("configuration") or {}).get(VECTORS) == "true"

    @property
    def place(self) -> tuple[int, int]:
        return self.version, self.staged

    @property
    def rows(self) -> int:
        return sum(rows(add) for add in self.files.values())

    @property
    def dead_rows(self) -> int:
        """Return the number of rows in the files that deletion vectors hide."""
        return sum(records(add) - rows(add) for add in self.files.values())


def same_file(left: Action | None, right: Action | None) -> bool:
    """Return whether two `add` actions of one path name the same rows."""
    return left is not None and right is not None and _vector(left) == _vector(right)


def _lists(row: StructType) -> dict[str, pa.ListType]:
    """Return the columns of a table that are Delta arrays."""
    return {field.name: arrow_schema.of_type(field.dataType) for field in row.fields if isinstance(field.dataType, ArrayType)}


def _with_arrays_as_text(row: StructType) -> StructType:
    if not any(isinstance(field.dataType, ArrayType) for field in row.fields):
        return row
    return StructType(
        [
            StructField(field.name, StringType(), metadata=field.metadata) if isinstance(field.dataType, ArrayType) else field
            for field in row.fields
        ]
    )


def physical_names(row: StructType) -> dict[str, str]:
    """Return the names in the Parquet files by column name."""
    return {field.name: (field.metadata or {}).get("delta.columnMapping.physicalName", field.name) for field in row.fields}


def after(state: TableState, actions: Sequence[Action]) -> TableState:
    """Return the state with `actions` applied, under the same version number."""
    files = files_after(state.files, actions)
    metadata = next((action["metaData"] for action in actions if "metaData" in action), None)
    protocol = next((action["protocol"] for action in actions if "protocol" in action), state.protocol)
    if metadata is None:
        return replace(state, files=files, protocol=protocol)
    return replace(TableState.of(state.version, metadata, protocol, files), staged=state.staged)


def advance(state: TableState, version: int, actions: Sequence[Action]) -> TableState:
    """Return the state after a commit of `actions` on top of the committed `state`."""
    return replace(after(state, actions), version=version)


def difference(now: TableState, target: TableState) -> list[Action]:
    """Return the file actions (`dataChange` false) that turn the files of one state into those of another."""
    actions: list[Action] = []
    for path, add in now.files.items():
        if not same_file(add, target.files.get(path)):
            actions.append(removal(add, data_change=False))
    for path, add in target.files.items():
        if not same_file(add, now.files.get(path)):
            actions.append({"add": {**add, "dataChange": False}})
    return actions


def _vector(add: Action) -> tuple[str, str, int | None] | None:
    vector = add.get("deletionVector")
    return (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset")) if vector else None
