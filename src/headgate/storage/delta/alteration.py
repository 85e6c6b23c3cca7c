"""ALTER TABLE on a Delta table: adding, dropping or renaming columns changes only the metadata, never a file.

Column mapping by name, enabled by the first alteration that needs it, ties a column to its name in the files. So the values of a dropped
column never reappear under its name, and a renamed column keeps its values. Adding a column does not need it if it is not enabled yet: then
no column was ever dropped, so no file has the new name. And not every reader supports column mapping. The property ``headgate.altered``
names the version since which the columns are unchanged, so that a stream reads older changes with the columns of their time.

The caller holds the table's lock. Until the transaction commits, the metadata are staged like files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql.types import DataType, StructType

from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.storage.delta import array_column
from headgate.storage.delta.delta_log import PLACEHOLDER, check_names, needs_mapping, protocol_of
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import ALTERED, VECTORS, TableState

_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_MODE = "delta.columnMapping.mode"


def actions(
    state: TableState, version: int, old: Relation, new: Relation, retyped: str | None, *, may_map: bool, as_lists: bool
) -> list[Action]:
    """Return the metadata and protocol actions that turn a table of `old` into one of `new` (columns matched by attnum).

    The column `retyped` gets its new type under a new name in the files, which are still to be written. Raise 0A000 if column mapping must
    be enabled and `may_map` (column_mapping) is off. `version`: the version that will have the actions. `as_lists`: new array columns are
    Delta arrays (array_storage).
    """
    metadata: Action = dict(state.metadata)
    fields = json.loads(metadata["schemaString"])["fields"]
    configuration = dict(metadata.get("configuration") or {})
    numbers = {column.name: column.attnum for column in old.columns}
    existing = {numbers.get(field["name"], 0): field for field in fields if field["name"] != retyped}
    kinds = [array_column.file_type(column, as_lists=as_lists) for column in new.columns]
    new_columns = [(column.attnum, column.name, kind) for column, kind in zip(new.columns, kinds, strict=True)]
    names = {attnum: name for attnum, name, _ in new_columns}
    is_unchanged = len(existing) == len(fields) and all(names.get(attnum) == field["name"] for attnum, field in existing.items())
    mapped = _MODE in configuration or not is_unchanged or any(needs_mapping(name) for name in names.values())
    if mapped and not may_map and _MODE not in configuration:
        raise mapping_is_off(new)
    if mapped:
        new_fields, settings = _map_columns(fields, existing, new_columns, configuration)
    else:
        new_fields = [existing.get(attnum) or _field(name, kind.jsonValue()) for attnum, name, kind in new_columns]
        settings = {}
    schema = {"type": "struct", "fields": new_fields}
    check_names(StructType.fromJson(schema))
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = configuration | settings | {ALTERED: str(version)}
    return [{"metaData": metadata}, {"protocol": _features(state.protocol, metadata["schemaString"], mapped=mapped)}]


def mapping_is_off(relation: Relation) -> PostgresError:
    """Return 0A000: the alteration needs column mapping, which the setting disables."""
    return PostgresError(
        "0A000",
        f'table "{relation.name}" would need column mapping, which is off',
        detail='Dropped, renamed and converted columns need it, and names with a character of " ,;{}()=".',
        hint="If all readers of the table support column mapping: ALTER TABLE … SET (column_mapping = on). Otherwise create a new table.",
    )


def is_mapped(state: TableState) -> bool:
    return _MODE in (state.metadata.get("configuration") or {})


def has_mapping(relation: Relation) -> PostgresError:
    """Return 0A000: column mapping cannot be removed from a table, as its files are read with it."""
    return PostgresError(
        "0A000",
        f'table "{relation.name}" has column mapping already',
        hint="Create a new table WITH (column_mapping = off) and copy the rows into it.",
    )


def _field(name: str, kind: str | Action, **more: object) -> Action:
    return {"name": name, "type": kind, "nullable": True, "metadata": more}


def _map_columns(
    fields: list[Action], existing: Mapping[int, Action], new_columns: Sequence[tuple[int, str, DataType]], configuration: Mapping[str, str]
) -> tuple[list[Action], dict[str, str]]:
    """Return the columns, each with its id and its name in the files, and the table properties for that."""
    largest = int(configuration.get("delta.columnMapping.maxColumnId", 0)) or len(fields)
    for number, field in enumerate(fields, 1):
        field.setdefault("metadata", {})
        field["metadata"].setdefault(_ID, number)
        field["metadata"].setdefault(_PHYSICAL, field["name"])
    new_fields = []
    for attnum, name, kind in new_columns:
        field = existing.get(attnum, {})
        if not field:
            largest += 1
            field = _field(name, kind.jsonValue(), **{_ID: largest, _PHYSICAL: f"{name}-{largest}"})
        new_fields.append({**field, "name": name, "metadata": {**field["metadata"]}})
    if not new_fields:
        largest += 1
        new_fields.append(_field(PLACEHOLDER, "boolean", **{_ID: largest, _PHYSICAL: f"{PLACEHOLDER}-{largest}"}))
    return new_fields, {_MODE: "name", "delta.columnMapping.maxColumnId": str(largest)}


def _features(protocol: Action, schema: str, *, mapped: bool) -> Action:
    needed = [*(["columnMapping"] if mapped else []), *(["timestampNtz"] if '"timestamp_ntz"' in schema else [])]
    read, write = list(protocol.get("readerFeatures") or []), list(protocol.get("writerFeatures") or [])
    read += [feature for feature in needed if feature not in read]
    reading: Action = {"minReaderVersion": 3, "readerFeatures": read} if read else {}
    return {**protocol, **reading, "writerFeatures": write + [feature for feature in needed if feature not in write]}


def with_vectors(state: TableState, *, on: bool) -> list[Action]:
    """Return the metadata and protocol actions that enable or disable deletion vectors. The caller takes care of the files."""
    configuration = {name: value for name, value in (state.metadata.get("configuration") or {}).items() if name != VECTORS}
    features = [feature for feature in state.protocol.get("readerFeatures") or [] if feature != "deletionVectors"]
    if on:
        configuration[VECTORS] = "true"
        features.insert(0, "deletionVectors")
    others = [
        feature for feature in state.protocol.get("writerFeatures") or [] if feature not in (*features, "deletionVectors", "changeDataFeed")
    ]
    protocol = protocol_of(features)
    protocol["writerFeatures"] += others
    return [{"metaData": {**state.metadata, "configuration": configuration}}, {"protocol": protocol}]


def restored(to: TableState) -> list[Action]:
    """Return the actions that restore the columns, properties and features of an earlier state."""
    return [{"metaData": to.metadata}, {"protocol": to.protocol}]
