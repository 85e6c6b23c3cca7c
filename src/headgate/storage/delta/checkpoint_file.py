"""The Parquet file of a Delta checkpoint, written from the previous checkpoint and the later versions. No Spark job.

Called by `DeltaTable.write_checkpoint`. A row of the file has one action, in the column of its kind. The file has the actions that still
hold (Delta protocol, Action Reconciliation). Of the actions with the same key, the last one holds:

    kind             key                              left out, although it is the last one
    metaData         none: one for the table
    protocol         none: one for the table
    txn              application
    domainMetadata   domain                           if it removes the domain
    add              path and deletion vector
    remove           path and deletion vector         if the file no longer exists (see `_is_needed`)

`add` and `remove` share their keys. For example, version 5 adds file A, and version 6 deletes a row of it: it removes (A, no vector) and
adds (A, vector v). The checkpoint of version 6 has both. If version 7 removes (A, v), then the checkpoint of version 7 has two `remove`
actions and no `add`.

Actions are handled by whole columns, because a table may have many files. Only those of the later versions pass through Python objects.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.storage.delta import delta_log
from headgate.storage.delta.delta_log import ForeignFeature
from headgate.storage.delta.file_action import Action
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct({
    "storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32(), "sizeInBytes": pa.int32(), "cardinality": pa.int64(),
    "maxRowIndex": pa.int64(),
})  # fmt: skip
_KINDS: Mapping[str, pa.StructType] = {
    "metaData": pa.struct({
        "id": pa.string(), "name": pa.string(), "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _TEXTS}), "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()), "configuration": _TEXTS, "createdTime": pa.int64(),
    }),
    "protocol": pa.struct({
        "minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    "add": pa.struct({
        "path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_(),
        "tags": _TEXTS, "deletionVector": _VECTOR, "baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64(),
        "clusteringProvider": pa.string(), "stats": pa.string(),
    }),
    "remove": pa.struct({
        "path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_(), "extendedFileMetadata": pa.bool_(),
        "partitionValues": _TEXTS, "size": pa.int64(), "deletionVector": _VECTOR, "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
    }),
}  # fmt: skip
"""The kinds of actions that a checkpoint has, and their fields (Delta protocol, Checkpoint Schema)."""
_NOT_KEPT = {"commitInfo", "cdc"}
"""Kinds of actions that describe a version and not the table."""
_OMITTED = {"add": {"stats_parsed", "partitionValues_parsed"}, "remove": {"stats", "tags"}}
"""Fields that a checkpoint need not have: copies, and the statistics of files that are not read."""


@dataclass(frozen=True)
class Written:
    """A checkpoint that is written and not announced."""

    path: DataPath
    version: int
    actions: int
    files: int

    def announce(self) -> None:
        """Write the pointer to the checkpoint (`_last_checkpoint`), from which readers of the log start."""
        log = self.path / "_delta_log"
        pointer = {"version": self.version, "size": self.actions, "numOfAddFiles": self.files}
        if isinstance(log, Path):
            (log / "._last_checkpoint.crc").unlink(missing_ok=True)  # Hadoop's checksum of the former pointer
        data_location.write_whole(log / "_last_checkpoint", json.dumps(pointer, separators=(",", ":")))


def write(path: DataPath, version: int) -> Written:
    """Write the checkpoint of a version, which replaces an existing one atomically.

    Raise `ForeignFeature` if the log has actions or fields that only Delta itself can write, FileNotFoundError or XX001 like
    `delta_log.read_state`.
    """
    kinds = _last_of_keys(_with_later(path, version))
    kinds["remove"] = kinds["remove"].filter(_is_needed(path, kinds["remove"]))
    kinds["domainMetadata"] = kinds["domainMetadata"].filter(pc.invert(kinds["domainMetadata"].field("removed")))
    table = pa.concat_tables([pa.table({kind: actions}) for kind, actions in kinds.items()], promote_options="default")
    _write_atomically(path / "_delta_log" / f"{version:020d}.checkpoint.parquet", table)
    return Written(path, version, table.num_rows, len(kinds["add"]))


def _write_atomically(file: DataPath, table: pa.Table) -> None:
    if not isinstance(file, Path):
        with data_location.written(file, is_cached=False) as draft:
            pq.write_table(table, draft, write_page_checksum=True)
        return
    with data_location.written(file.with_name(f".{file.name}.{uuid.uuid4()}.tmp")) as draft:
        pq.write_table(table, draft, write_page_checksum=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of a former checkpoint
        draft.replace(file)


def _with_later(path: DataPath, version: int) -> dict[str, pa.Table]:
    """Return the actions of each kind in the newest checkpoint before a version and in the versions since.

    Columns: `action` and `version`, the version that has the action, or that of the checkpoint.
    """
    start = delta_log.newest_checkpoint(path, version - 1)
    kinds: dict[str, list[pa.Table]] = {kind: [] for kind in _KINDS}
    if start >= 0:
        for columns, rows in delta_log.read_checkpoint(path, start, list(_KINDS)):
            if columns - _KINDS.keys() - _NOT_KEPT:
                raise ForeignFeature(path)
            for kind in rows.column_names:
                kinds[kind].append(_of_version(_with_fields(kind, rows[kind].drop_null().combine_chunks()), start))
    delta_log.fetch_versions(path, range(start + 1, version + 1))
    for number in range(start + 1, version + 1):
        for kind, actions in _by_kind(delta_log.read_version(path, number)).items():
            kinds[kind].append(_of_version(pa.array(actions, _KINDS[kind]), number))
    return {kind: pa.concat_tables([_of_version(pa.array([], _KINDS[kind]), 0), *tables]) for kind, tables in kinds.items()}


def _of_version(actions: pa.StructArray, version: int) -> pa.Table:
    return pa.table({"action": actions, "version": pa.repeat(pa.scalar(version, pa.int64()), len(actions))})


def _by_kind(actions: Iterable[Action]) -> dict[str, list[Action]]:
    """Return the actions of a version that a checkpoint may have, by their kinds."""
    kinds: dict[str, list[Action]] = {}
    for action in actions:
        for kind, fields in action.items():
            if kind in _NOT_KEPT:
                continue
            if kind not in _KINDS or fields.keys() - _names(kind):
                raise ForeignFeature(kind)
            kinds.setdefault(kind, []).append(fields)
    return kinds


def _with_fields(kind: str, actions: pa.StructArray) -> pa.StructArray:
    """Return actions of any writer's checkpoint with the fields of `_KINDS`. A field that they do not have is NULL."""
    held = {field.name for field in actions.type}
    if held - _names(kind):
        raise ForeignFeature(kind)
    fields = list(_KINDS[kind])
    arrays = [actions.field(field.name).cast(field.type) if field.name in held else pa.nulls(len(actions), field.type) for field in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _names(kind: str) -> set[str]:
    return {field.name for field in _KINDS[kind]} | _OMITTED.get(kind, set())


def _last_of_keys(kinds: Mapping[str, pa.Table]) -> dict[str, pa.StructArray]:
    """Return the last action of each key. No version has two actions with the same key."""
    keyed = {kind: rows.append_column("key", _keys(kind, rows["action"])) for kind, rows in kinds.items()}
    last = pa.concat_tables([rows.select(["key", "version"]) for rows in keyed.values()]).group_by("key").aggregate([("version", "max")])
    keys, versions = last["key"].combine_chunks(), last["version_max"].combine_chunks()
    holding = {kind: rows.filter(pc.equal(rows["version"], versions.take(pc.index_in(rows["key"], keys)))) for kind, rows in keyed.items()}
    return {kind: _as_state(rows["action"].combine_chunks()) for kind, rows in holding.items()}


def _keys(kind: str, actions: pa.ChunkedArray) -> pa.ChunkedArray:
    if kind in ("add", "remove"):
        vector = pc.struct_field(actions, "deletionVector")
        offset = pc.struct_field(vector, "offset").cast(pa.string())
        parts = [
            "file",
            pc.struct_field(actions, "path"),
            *(pc.struct_field(vector, name) for name in ("storageType", "pathOrInlineDv")),
            offset,
        ]
    else:
        field = {"txn": "appId", "domainMetadata": "domain"}.get(kind)
        parts = [kind, pc.struct_field(actions, field) if field is not None else pa.nulls(len(actions), pa.string())]
    return pc.binary_join_element_wise(*parts, "\n", null_handling="replace")


def _as_state(actions: pa.StructArray) -> pa.StructArray:
    """Return actions as a checkpoint has them: they do not change the table."""
    fields = list(actions.type)
    unchanged = pa.repeat(pa.scalar(False), len(actions))
    return pa.StructArray.from_arrays([unchanged if f.name == "dataChange" else actions.field(f.name) for f in fields], fields=fields)


def _is_needed(path: DataPath, removes: pa.StructArray) -> pa.BooleanArray:
    """Return, for each `remove` action, whether its file may still exist.

    Delta's VACUUM needs the action as long as the file exists. `cleaning` removes files much earlier than Delta's retention of seven days,
    after which their actions would fill the checkpoint. A path with an escape, or outside the table, is not looked up.
    """
    existing = pa.array([file.name for file in data_location.below(path)], pa.string())
    removed = removes.field("path")
    return pc.or_(pc.is_in(removed, existing), pc.match_substring_regex(removed, "[%:]"))
