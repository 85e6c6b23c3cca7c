"""The log of a Delta table as files: create an empty table, read and write versions, list versions and checkpoints. No Spark jobs.

Used by `transaction`, `delta_table`, `foreign_writer`, `feed`, `cleaning` and `fsync`. Delta itself writes a version only if another writer
was first (`delta_table.DeltaTable.commit_version`).
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from headgate.errors import PostgresError, not_supported
from headgate.failpoint import Step, step
from headgate.storage.delta import parquet
from headgate.storage.delta.file_action import Action, files_after
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

PLACEHOLDER = "__headgate_row"
"""The only column of the Delta table of a relation without columns: a Delta table must have one."""

MAKER = "headgate"
"""The `engineInfo` in version 0 of the tables that the node has created."""
FENCE = "lease taken"
"""The user metadata of a version that `fence` writes. A node treats it as another writer's version."""
DELETED_ROWS_BINS = 10
"""Number of classes of the histogram in which Delta counts the files of a table by their deleted rows."""

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.)?.*parquet\Z")
_MAPPED = set(" ,;{}()\n\t=")
_LOOKED_UP = {"filename", "file_row_number"}
"""Columns that DuckDB adds to those of a Parquet file, in any case (`changes.lookup`)."""
_RESERVED = {"_change_type", "_commit_version", "_commit_timestamp"}
_READERS_OWN = {"_metadata", "_tmp_metadata_row_index", "__delta_internal_is_row_deleted", "__delta_internal_row_index"}
"""Columns with which Delta Lake on Spark skips deleted rows. A table with such a column cannot be read once it has lost a row."""


SETTINGS = {
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": str(2**31 - 1),  # `delta_checkpoint` writes them
    "delta.logRetentionDuration": "interval 30 days",
    "delta.enableExpiredLogCleanup": "false",  # Delta does not know which versions slots need; `cleaning` does
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
"""Properties of every table of a node."""


def check_names(row: StructType) -> None:
    """Raise 0A000 for column names that Delta does not allow: equal but for case, of the change feed, of the reader."""
    seen: dict[str, str] = {}
    for name in row.fieldNames():
        if name in _RESERVED:
            raise not_supported(f'column name "{name}" is reserved by Delta Lake\'s change data feed')
        if name in _READERS_OWN:
            raise not_supported(f'column name "{name}" is reserved by Delta Lake\'s reader')
        if (existing := seen.setdefault(name.lower(), name)) != name:
            raise not_supported(f'column names "{existing}" and "{name}" differ in case only', detail="Delta Lake cannot hold both.")


def needs_mapping(name: str) -> bool:
    """Return whether a column of this name needs another name in the files: Parquet's schema language or DuckDB rejects it."""
    return bool(_MAPPED & set(name)) or name.lower() in _LOOKED_UP


def is_half_made(path: DataPath) -> bool:
    """Return whether a folder was created, completely or in part, by `create` in a transaction that did not commit."""
    if data_location.is_local(path) and (path.is_symlink() or not path.is_dir()):
        return False
    if newest_version(path):
        return False
    if has_version(path, 0):
        try:
            return any(action.get("commitInfo", {}).get("engineInfo") == MAKER for action in read_version(path, 0))
        except (OSError, PostgresError):
            return False
    remaining = {file.name for file in data_location.below(path)}
    return all(re.fullmatch(r"_delta_log/(0{20}\.crc|\.(0|0{20}\.json\.[-0-9a-f]+)\.tmp)", name) for name in remaining)


@step(Step.STAGED)
def create(path: DataPath, row: StructType, *, description: str | None = None, vectors: bool = True) -> None:
    """Create an empty table: version 0 with the protocol and the metadata, as one small file.

    The change feed is on, and so are deletion vectors unless `vectors` is False. Column mapping is on only if a name contains a character
    that Parquet's schema language rejects (space , ; { } ( ) = newline tab), or is a name that DuckDB reserves. Columns are nullable: the
    node itself enforces NOT NULL.
    """
    check_names(row)
    mapped = any(map(needs_mapping, row.fieldNames()))
    configuration = dict(SETTINGS)
    fields = json.loads(row.json())["fields"]
    if vectors:
        configuration["delta.enableDeletionVectors"] = "true"
    features = (vectors, "deletionVectors"), ('"timestamp_ntz"' in row.json(), "timestampNtz"), (mapped, "columnMapping")
    if mapped:
        configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}
        for number, column in enumerate(fields, 1):
            column["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{uuid.uuid4()}"}
    created = int(time.time() * 1000)
    protocol = protocol_of([feature for is_needed, feature in features if is_needed])
    metadata: Action = {
        "id": str(uuid.uuid4()),
        "description": description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": created,
    }
    actions = [
        {
            "commitInfo": {
                "timestamp": created,
                "operation": "CREATE TABLE",
                "operationParameters": {},
                "isBlindAppend": True,
                "engineInfo": MAKER,
            }
        },
        {"protocol": protocol},
        {"metaData": metadata},
    ]
    log = path / "_delta_log"
    data_location.make_folder(log)
    checksum = json.dumps(_checksum(protocol, metadata, vectors=vectors), separators=(",", ":"))
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    data_location.write_new(log / f"{0:020d}.crc", checksum)
    data_location.write_new(log / f"{0:020d}.json", text, synced=True)  # by this file a start identifies tables that did not commit


def protocol_of(reader: Sequence[str]) -> Action:
    """Return the protocol of a table whose readers must support these features. Without any, every reader can read it."""
    reading: Action = {"minReaderVersion": 3, "readerFeatures": list(reader)} if reader else {"minReaderVersion": 1}
    return {**reading, "minWriterVersion": 7, "writerFeatures": ["changeDataFeed", *reader]}


def _checksum(protocol: Action, metadata: Action, *, vectors: bool) -> Action:
    """Return the version checksum of an empty table. Without it, Delta runs a Spark job to replay the log before the first commit."""
    checksum: Action = {
        "tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1, "metadata": metadata, "protocol": protocol,
        "setTransactions": [], "domainMetadata": [], "allFiles": [],
    }  # fmt: skip
    if vectors:
        deleted = {"deletedRecordCounts": [0] * DELETED_ROWS_BINS}
        checksum |= {"numDeletedRecordsOpt": 0, "numDeletionVectorsOpt": 0, "deletedRecordCountsHistogramOpt": deleted}
    return checksum


def read_version(path: DataPath, version: int) -> list[Action]:
    """Return the actions of one version. Raise FileNotFoundError if it does not exist, XX001 if it is torn."""
    file = path / "_delta_log" / f"{version:020d}.json"
    text = data_location.local(file).read_text(encoding="utf-8")
    try:
        # not splitlines(): Delta writes U+0085 and U+2028 in the bounds of a text column as they are
        actions = [json.loads(line) for line in text.split("\n") if line.strip()]
    except ValueError as error:
        raise PostgresError("XX001", f'commit file "{file}" is damaged') from error
    if not actions or not all(isinstance(action, dict) for action in actions):
        raise PostgresError("XX001", f'commit file "{file}" is damaged')
    return actions


class ForeignFeature(Exception):
    """The log of a table uses a feature that only Delta itself can read."""


READER_FEATURES = {"deletionVectors", "timestampNtz", "columnMapping"}
"""Reader features that the node supports."""


def read_state(path: DataPath, version: int) -> tuple[Action, Action, Mapping[str, Action]]:
    """Return the metadata, the protocol and the `add` actions by path that hold at a version, the oldest first.

    Raise FileNotFoundError if a version does not exist, XX001 if it cannot be read, `ForeignFeature` if only Delta can read it.
    """
    start = newest_checkpoint(path, version)
    actions = _whole_checkpoint(path, start) if start >= 0 else []
    files = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    files = dict(sorted(files.items(), key=lambda item: int(item[1]["modificationTime"])))
    newest = {name: action[name] for action in actions for name in ("metaData", "protocol") if name in action}
    fetch_versions(path, range(start + 1, version + 1))
    for number in range(start + 1, version + 1):
        actions = read_version(path, number)
        files = files_after(files, actions)
        newest |= {name: action[name] for action in actions for name in ("metaData", "protocol") if name in action}
    if newest.keys() != {"metaData", "protocol"} or set(newest["protocol"].get("readerFeatures") or []) - READER_FEATURES:
        raise ForeignFeature(path)
    return newest["metaData"], newest["protocol"], parquet.counted(path, files)


def read_checkpoint(path: DataPath, version: int, names: list[str]) -> Iterator[tuple[set[str], pa.Table]]:
    """Yield, for each part of a checkpoint, its column names and the rows of `names`. Raise XX001 if it is damaged."""
    for part in checkpoint_files(path, version):
        try:
            with pq.ParquetFile(data_location.local(part), page_checksum_verification=True) as file:
                columns, rows = set(file.schema_arrow.names), file.read(names)
        except (pa.ArrowInvalid, OSError) as error:
            raise PostgresError("XX001", f'checkpoint "{part}" is damaged') from error
        yield columns, rows


def _whole_checkpoint(path: DataPath, version: int) -> list[Action]:
    """Return the actions of a checkpoint that a reader needs."""
    actions: list[Action] = []
    for names, rows in read_checkpoint(path, version, ["metaData", "protocol", "add"]):
        if {"sidecar", "checkpointMetadata"} & names:
            raise ForeignFeature(path)
        for name in rows.column_names:
            actions += [{name: _as_json(value)} for value in rows[name].drop_null().to_pylist(maps_as_pydicts="strict")]
    return actions


def _as_json(value: object) -> object:
    """Return a struct of a checkpoint in JSON form, without NULLs, the parsed copy of the statistics, and tags."""
    if isinstance(value, dict):
        return {name: _as_json(field) for name, field in value.items() if field is not None and name not in ("stats_parsed", "tags")}
    return value


def write_version(path: DataPath, version: int, actions: Sequence[Action], mark: str) -> None:
    """Write a version of a table as one small file. Raise FileExistsError if another writer was first."""
    files = [action for action in actions if not action.keys() & {"metaData", "protocol"}]
    info: Action = {
        "commitInfo": {
            "timestamp": int(time.time() * 1000), "operation": "WRITE" if len(files) == len(actions) else "CHANGE COLUMNS",
            "operationParameters": {"mode": "Append"} if len(files) == len(actions) else {}, "readVersion": version - 1,
            "isBlindAppend": bool(actions) and all("add" in action for action in actions), "userMetadata": mark,
        }
    }  # fmt: skip
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in [info, *actions])
    data_location.write_new(path / "_delta_log" / f"{version:020d}.json", text)


def fence(path: DataPath) -> None:
    """Write a no-op commit after the newest version, which makes a stale writer of the next version fail."""
    newest = newest_version(path)
    while newest is not None:
        try:
            write_version(path, newest + 1, [], FENCE)
        except FileExistsError:
            newest += 1
        else:
            return


def set_torn_aside(path: DataPath, above: int) -> list[Path]:
    """After a power failure, rename the first torn commit file above a version, and all that follow it. Return the new paths.

    An object store has no torn files.
    """
    if not isinstance(path, Path):
        return []
    newest = newest_version(path)
    for version in range(above + 1, (above if newest is None else newest) + 1):
        try:
            read_version(path, version)
        except (PostgresError, FileNotFoundError):
            log = path / "_delta_log"
            torn = [log / f"{number:020d}.json" for number in range(version, (newest or 0) + 1)]
            for stale in (file.with_suffix(".crc") for file in torn):
                stale.unlink(missing_ok=True)
            return [file.rename(file.with_name(f"{file.name}.damaged")) for file in torn if file.exists()]
    return []


def has_version(path: DataPath, version: int) -> bool:
    """Return whether a table has this version. Costs one file lookup, regardless of the length of the log."""
    return data_location.has_file(path / "_delta_log" / f"{version:020d}.json")


def fetch_versions(path: DataPath, versions: Iterable[int]) -> None:
    """Fetch the commit files of versions that are about to be read, several at a time from an object store."""
    if not data_location.is_local(path):
        data_location.fetch(path / "_delta_log" / f"{version:020d}.json" for version in versions)


def newest_version(path: DataPath) -> int | None:
    """Return the newest version in a table's log by its file names (20 µs, no Spark), None if there is no table."""
    return max(versions(path), default=None)


def _versions_of(names: Iterable[str]) -> Iterator[int]:
    return (int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit())


def versions(path: DataPath) -> list[int]:
    """Return the versions whose commit files exist, in no order."""
    return list(_versions_of(data_location.names_if_any(path / "_delta_log")))


def times(path: DataPath) -> Iterator[tuple[int, Callable[[], float]]]:
    """Yield the versions, ascending, each with a function that returns its write time and raises FileNotFoundError if it is gone."""
    log = path / "_delta_log"
    if data_location.is_local(path):
        for version in sorted(versions(path)):
            yield version, partial(data_location.modified, log / f"{version:020d}.json")
        return
    modified = {file.name: file.modified for file in data_location.below(log)}
    for version in sorted(_versions_of(modified)):
        yield version, partial(modified.__getitem__, f"{version:020d}.json")


def checkpoint_files(path: DataPath, version: int) -> list[DataPath]:
    log, pattern = path / "_delta_log", re.compile(rf"{version:020d}\.checkpoint.*\.parquet")
    return [log / name for name in sorted(data_location.names_if_any(log)) if pattern.fullmatch(name)]


def checkpoints(path: DataPath) -> set[int]:
    """Return the versions that have a checkpoint with all its parts."""
    parts: dict[tuple[int, int], int] = {}
    for name in data_location.names_if_any(path / "_delta_log"):
        match = _CHECKPOINT.match(name)
        if match is not None:
            checkpoint = int(match[1]), int(match[3] or 1)
            parts[checkpoint] = parts.get(checkpoint, 0) + 1
    return {version for (version, expected), count in parts.items() if count >= expected}


def newest_checkpoint(path: DataPath, version: int) -> int:
    """Return the newest version up to this one that has a checkpoint, or -1 if there is none."""
    return max((checkpoint for checkpoint in checkpoints(path) if checkpoint <= version), default=-1)


def files_at(path: DataPath, version: int) -> dict[str, Action]:
    """Return the `add` actions that hold at a version, by path, from the newest checkpoint and the later versions, without Spark.

    Raise FileNotFoundError if a version does not exist, XX001 if it cannot be read.
    """
    start = newest_checkpoint(path, version)
    files = _of_checkpoint(path, start) if start >= 0 else {}
    fetch_versions(path, range(start + 1, version + 1))
    for number in range(start + 1, version + 1):
        files = files_after(files, read_version(path, number))
    return files


def _of_checkpoint(path: DataPath, version: int) -> dict[str, Action]:
    adds = (add for _, rows in read_checkpoint(path, version, ["add"]) for add in rows["add"].drop_null().to_pylist())
    return {add["path"]: add for add in adds}
