"""ALTER TABLE on a Delta table: columns that are added, dropped or renamed change the metadata alone, never a file.

Column mapping by name, switched on by the first alteration that needs it, ties a column to the name that it has in the files: what a
dropped column held never comes back under its name, and a renamed column keeps its values. A column that is added needs none as long as
there is none: then no column has ever gone, so no file holds the new one's name; and not every reader knows column mapping. The property
``headgate.altered`` tells since which version the columns are what they are, so that a stream reads older changes by the columns of then.

The caller holds the table's lock. Until the transaction commits the metadata are staged like files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headgate.errors import PostgresError
from headgate.storage.delta import array_column
from headgate.storage.delta.delta_log import PLACEHOLDER, check_names, needs_mapping, protocol_of
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import ALTERED, VECTORS, TableState
from headgate.storage.transaction.staged import StagedTable

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation

_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_MODE = "delta.columnMapping.mode"


def actions(
    staged: StagedTable, old: Relation, new: Relation, retyped: str | None = None, *, may_map: bool = True, as_lists: bool = False
) -> list[Action]:
    """The metadata and protocol actions that make a table of relation `old` one of relation `new` (columns matched by attnum).

    The column named `retyped` gets its new type under a new name in the files, where it is still to be written. 0A000 where column
    mapping must be switched on and `may_map` (column_mapping) is off. `as_lists`: new columns of arrays are Delta arrays (array_storage).
    """
    metadata: Action = dict(staged.state.metadata)
    fields = json.loads(metadata["schemaString"])["fields"]
    configuration = dict(metadata.get("configuration") or {})
    numbers = {column.name: column.attnum for column in old.columns}
    known = {numbers.get(field["name"], 0): field for field in fields if field["name"] != retyped}
    kinds = [array_column.file_type(column, as_lists=as_lists) for column in new.columns]
    wanted = [(column.attnum, column.name, kind) for column, kind in zip(new.columns, kinds, strict=True)]
    names = {attnum: name for attnum, name, _ in wanted}
    stay = len(known) == len(fields) and all(names.get(attnum) == field["name"] for attnum, field in known.items())
    mapped = _MODE in configuration or not stay or any(needs_mapping(name) for name in names.values())
    if mapped and not may_map and _MODE not in configuration:
        raise mapping_is_off(new)
    if mapped:
        made, settings = _mapped(fields, known, wanted, configuration)
    else:
        made = [known.get(attnum) or _field(name, kind.jsonValue()) for attnum, name, kind in wanted]
        settings = {}
    schema = {"type": "struct", "fields": made}
    check_names(StructType.fromJson(schema))
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = configuration | settings | {ALTERED: str(staged.base.version + 1)}
    return [{"metaData": metadata}, {"protocol": _features(staged.state.protocol, metadata["schemaString"], mapped=mapped)}]


def mapping_is_off(relation: Relation) -> PostgresError:
    """0A000: what is to become of a table needs what the node's setting forbids."""
    return PostgresError(
        "0A000",
        f'table "{relation.name}" would need column mapping, which is off',
        detail='Dropped, renamed and converted columns need it, and names with a character of " ,;{}()=".',
        hint="Where no reader of the table lacks column mapping, ALTER TABLE … SET (column_mapping = on). Otherwise make a new table.",
    )


def is_mapped(state: TableState) -> bool:
    """Whether a table has column mapping."""
    return _MODE in (state.metadata.get("configuration") or {})


def has_mapping(relation: Relation) -> PostgresError:
    """0A000: a table cannot be without what its files are read by."""
    return PostgresError(
        "0A000",
        f'table "{relation.name}" has column mapping already',
        hint="Make a new table WITH (column_mapping = off) and write the rows into it.",
    )


def _field(name: str, kind: str | dict[str, Any], **more: Any) -> Action:
    return {"name": name, "type": kind, "nullable": True, "metadata": more}


def _mapped(
    fields: list[Action], known: Mapping[int, Action], wanted: Sequence[tuple[int, str, Any]], configuration: Mapping[str, str]
) -> tuple[list[Action], dict[str, str]]:
    """The columns, each with its number and its name in the files, and the table properties that say that they have them."""
    largest = int(configuration.get("delta.columnMapping.maxColumnId", 0)) or len(fields)
    for place, field in enumerate(fields, 1):
        field.setdefault("metadata", {})
        field["metadata"].setdefault(_ID, place)
        field["metadata"].setdefault(_PHYSICAL, field["name"])
    made = []
    for attnum, name, kind in wanted:
        field = known.get(attnum, {})
        if not field:
            largest += 1
            field = _field(name, kind.jsonValue(), **{_ID: largest, _PHYSICAL: f"{name}-{largest}"})
        made.append({**field, "name": name, "metadata": {**field["metadata"]}})
    if not made:
        largest += 1
        made.append(_field(PLACEHOLDER, "boolean", **{_ID: largest, _PHYSICAL: f"{PLACEHOLDER}-{largest}"}))
    return made, {_MODE: "name", "delta.columnMapping.maxColumnId": str(largest)}


def _features(protocol: Action, schema: str, *, mapped: bool) -> Action:
    wanted = [*(["columnMapping"] if mapped else []), *(["timestampNtz"] if '"timestamp_ntz"' in schema else [])]
    read, write = list(protocol.get("readerFeatures") or []), list(protocol.get("writerFeatures") or [])
    read += [each for each in wanted if each not in read]
    known: Action = {"minReaderVersion": 3, "readerFeatures": read} if read else {}
    return {**protocol, **known, "writerFeatures": write + [each for each in wanted if each not in write]}


def with_vectors(state: TableState, *, on: bool) -> list[Action]:
    """The metadata and protocol actions that let a table have deletion vectors, or say that it has none: its files are the caller's."""
    configuration = {name: value for name, value in (state.metadata.get("configuration") or {}).items() if name != VECTORS}
    features = [each for each in state.protocol.get("readerFeatures") or [] if each != "deletionVectors"]
    if on:
        configuration[VECTORS] = "true"
        features.insert(0, "deletionVectors")
    others = [each for each in state.protocol.get("writerFeatures") or [] if each not in (*features, "deletionVectors", "changeDataFeed")]
    protocol = protocol_of(features)
    protocol["writerFeatures"] += others
    return [{"metaData": {**state.metadata, "configuration": configuration}}, {"protocol": protocol}]


def restored(to: TableState) -> list[Action]:
    """The actions that give a table the columns, properties and features of an earlier state."""
    return [{"metaData": to.metadata}, {"protocol": to.protocol}]
