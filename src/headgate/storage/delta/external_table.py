"""An existing Delta table that becomes the table of a relation without a copy: CREATE TABLE … WITH (location = …).

`transaction` calls `read`, which rejects a table that a node could not continue, and stages the actions of `taken_over`. Afterwards the
table is like one that the node has created: with the change feed, a log that only the node trims, and nullable columns, because the node
itself enforces NOT NULL. `location.table_folders` says where it is.

The rows of the table are not rewritten. So a column can only have a type whose stored form accepts every value of the Delta type. Types
with a normal form (jsonb, uuid, varchar(n) and others) could be stored in another form there.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

from pyspark.sql.types import ArrayType, StructType

from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError, not_supported
from headgate.storage.delta import alteration, array_column, delta_log
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.internals.log_cache import Delta
from headgate.storage.delta.table_state import ALTERED, TableState
from headgate.storage.location.data_location import DataPath
from headgate.types import registry

_ANY_VALUE = frozenset({
    registry.BOOL, registry.INT2, registry.INT4, registry.INT8, registry.FLOAT4, registry.FLOAT8, registry.BYTEA, registry.TEXT,
    registry.VARCHAR, registry.DATE, registry.TIMESTAMP, registry.TIMESTAMPTZ,
})  # fmt: skip
"""Types that, without a modifier, store every value of their Delta type. So does numeric(p,s)."""
_LEGACY: Mapping[int, Sequence[str]] = {
    1: (),
    2: ("appendOnly", "invariants"),
    3: ("appendOnly", "invariants", "checkConstraints"),
    4: ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
    5: ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
    6: ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping", "identityColumns"),
}
"""The features of the writer versions that do not list them."""
_KNOWN = frozenset({*_LEGACY[6], "deletionVectors", "timestampNtz"})
ADOPTED = _KNOWN | {"checkpointProtection", "clustering", "domainMetadata", "v2Checkpoint", "vacuumProtocolCheck"}
"""The features that another writer may enable later, because a writer need not do anything for them."""
_OF_COLUMNS = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
"""Metadata of columns whose rules the node's writes would not follow."""


def read(delta: Delta, path: DataPath, relation: Relation, *, as_lists: bool) -> TableState:
    """Return the newest version of a Delta table whose rows a relation can have.

    Raise 0A000 for a table with a feature that the node does not have, 42804 or 42703 for the first column that differs.
    """
    version = delta_log.newest_version(path)
    if version is None:
        raise PostgresError("58P01", f'"{path}" is not a Delta table')
    state = DeltaTable(delta, path).state(version)
    _check_features(state)
    _check_columns(state, relation, as_lists=as_lists)
    outside = next(filter(is_outside, state.files), None)
    if outside is not None:
        raise not_supported(f'Delta table "{path}" has files outside its folder', detail=f'One is "{unquote(outside)}".')
    return state


def is_outside(name: str) -> bool:
    """Whether the path of an `add` action can name a file outside of the table's folder, as those of a shallow clone do."""
    return ":" in name or name.startswith("/") or ".." in unquote(name).split("/")


def _check_features(state: TableState) -> None:
    rule = unsupported_rule(state.metadata, state.protocol)
    if rule:
        raise not_supported(f"a Delta table with {rule} cannot be the table of a relation")


def unsupported_rule(metadata: Action, protocol: Action, known: Container[str] = _KNOWN) -> str:
    """Return a feature or property of a table that the node's writes would not respect, or an empty string. `known`: the features."""
    configuration = metadata.get("configuration") or {}
    features = {*_writer_features(protocol), *(protocol.get("readerFeatures") or [])}
    unknown = sorted(feature for feature in features if feature not in known)
    rule = next((name for name in configuration if name.startswith("delta.constraints.")), None)
    uses = (
        (metadata.get("partitionColumns"), "partition columns"),
        (unknown, f"the features {', '.join(unknown)}"),
        (configuration.get("delta.columnMapping.mode", "none") not in ("none", "name"), "column mapping by id"),
        (configuration.get("delta.appendOnly") == "true", "the property delta.appendOnly"),
        (rule, f"the property {rule}"),
    )
    return next((text for is_used, text in uses if is_used), "")


def _writer_features(protocol: Action) -> Sequence[str]:
    """Return the features that writers must support."""
    return protocol.get("writerFeatures") or _LEGACY.get(int(protocol["minWriterVersion"]), ())


def _check_columns(state: TableState, relation: Relation, *, as_lists: bool) -> None:
    """Compare by name, in the order of the relation's columns, then of the Delta table's."""
    fields = {field.name: field for field in StructType.fromJson(json.loads(state.metadata["schemaString"])).fields}
    for column in relation.columns:
        field = fields.pop(column.name, None)
        if field is None:
            raise PostgresError("42703", f'column "{column.name}" does not exist in the Delta table')
        kind = array_column.file_type(column, as_lists=as_lists)
        if field.dataType != kind:
            detail = f"The Delta table has {field.dataType.simpleString()}, and the node would store {kind.simpleString()}."
            hint = "docs/types.md lists how types are stored."
            raise PostgresError("42804", f'column "{column.name}" has another type in the Delta table', detail=detail, hint=hint)
        if not _accepts_any(column, as_list=isinstance(kind, ArrayType)) or column.generated is not None:
            text = f"type {registry.format_type(column.type_oid, column.typmod)}" if column.generated is None else "a generated column"
            hint = "Declare the column with the type text, or without a modifier, then use ALTER TABLE ... ALTER COLUMN ... TYPE."
            raise not_supported(f'column "{column.name}" of an existing Delta table cannot have {text}', hint=hint)
        rule = next((name for name in _OF_COLUMNS if name in (field.metadata or {})), None)
        if rule is not None:
            raise not_supported(f'column "{column.name}" of the Delta table has the property {rule}')
    if fields:
        raise PostgresError("42804", f'column "{next(iter(fields))}" of the Delta table is not declared')


def _accepts_any(column: Column, *, as_list: bool) -> bool:
    """Return whether every value of the Delta type is a stored value of the column's type."""
    pg_type = registry.known().find(column.type_oid)
    element = pg_type.element if pg_type is not None and as_list else column.type_oid
    return (element in _ANY_VALUE and column.typmod == -1) or (element == registry.NUMERIC and column.typmod != -1)


def taken_over(state: TableState, *, vectors: bool) -> list[Action]:
    """Return the metadata and protocol actions that make the table like one that the node has created."""
    metadata = dict(state.metadata)
    schema = json.loads(metadata["schemaString"])
    for field in schema["fields"]:
        field["nullable"] = True
    metadata["schemaString"] = json.dumps(schema)
    settings = delta_log.SETTINGS | {ALTERED: str(state.version + 1)}
    metadata["configuration"] = (metadata.get("configuration") or {}) | settings
    reading = [
        *(["columnMapping"] if alteration.is_mapped(state) else []),
        *(["timestampNtz"] if '"timestamp_ntz"' in metadata["schemaString"] else []),
    ]
    writing = [name for name in _writer_features(state.protocol) if name in reading or name not in delta_log.READER_FEATURES]
    protocol = {"readerFeatures": reading, "writerFeatures": writing}
    return alteration.with_vectors(replace(state, metadata=metadata, protocol=protocol), on=vectors)
