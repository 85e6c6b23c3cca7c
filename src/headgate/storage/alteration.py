"""ALTER TABLE on a Delta table: columns that are added, dropped or renamed change the metadata alone, never a file.

Column mapping by name, switched on by the first alteration, ties a column to the name that it has in the files: what a dropped
column held never comes back under its name, and a renamed column keeps its values. The table property
``headgate.altered`` tells since which version the columns are what they are, so that a stream reads older changes by the columns of then.

The caller holds the table's lock. Until the transaction commits the metadata are staged like files.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import StructType

from headgate.storage.delta_log import PLACEHOLDER, check_names
from headgate.storage.file_action import Action
from headgate.storage.staged import StagedTable
from headgate.storage.table_state import ALTERED, TableState
from headgate.types.storage import spark_type

_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def actions(staged: StagedTable, old: Any, new: Any, retyped: str | None = None) -> list[Action]:
    """The metadata and protocol actions that make a table of relation `old` one of relation `new` (columns matched by attnum).

    The column named `retyped` gets its new type under a new name in the files, where it is still to be written.
    """
    state = staged.state
    metadata: Action = dict(state.metadata)
    protocol = state.protocol
    fields = json.loads(metadata["schemaString"])["fields"]
    numbers = {column.name: column.attnum for column in old.columns}
    known = {numbers.get(field["name"], 0): field for field in fields if field["name"] != retyped}
    configuration = dict(metadata.get("configuration") or {})
    largest = int(configuration.get("delta.columnMapping.maxColumnId", 0)) or len(fields)
    made = []
    wanted = [(column.attnum, column.name, spark_type(column.type_oid, column.typmod)) for column in new.columns]
    for place, field in enumerate(fields, 1):
        field.setdefault("metadata", {})
        field["metadata"].setdefault(_ID, place)
        field["metadata"].setdefault(_PHYSICAL, field["name"])
    for attnum, name, kind in wanted:
        field = known.get(attnum)
        if field is None:
            largest += 1
            field = {"name": name, "type": kind.jsonValue(), "nullable": True, "metadata": {_ID: largest, _PHYSICAL: f"{name}-{largest}"}}
        made.append({**field, "name": name, "metadata": {**field["metadata"]}})
    if not made:
        largest += 1
        made.append(
            {"name": PLACEHOLDER, "type": "boolean", "nullable": True, "metadata": {_ID: largest, _PHYSICAL: f"{PLACEHOLDER}-{largest}"}}
        )
    schema = {"type": "struct", "fields": made}
    check_names(StructType.fromJson(schema))
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = configuration | {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(largest),
        ALTERED: str(staged.base.version + 1),
    }
    return [{"metaData": metadata}, {"protocol": _features(protocol, metadata["schemaString"])}]


def _features(protocol: Action, schema: str) -> Action:
    wanted = ["columnMapping", *(["timestampNtz"] if '"timestamp_ntz"' in schema else [])]
    read, write = list(protocol.get("readerFeatures") or []), list(protocol.get("writerFeatures") or [])
    return {
        **protocol,
        "readerFeatures": read + [each for each in wanted if each not in read],
        "writerFeatures": write + [each for each in wanted if each not in write],
    }


def restored(to: TableState) -> list[Action]:
    """The metadata action that gives a table the columns of an earlier state."""
    return [{"metaData": to.metadata}]
