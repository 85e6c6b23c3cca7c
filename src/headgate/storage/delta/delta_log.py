"""The log of a Delta table as files: making an empty table, reading the actions of a version, which versions there are. No Spark job.

Used by `transaction`, `delta_table`, `foreign_writer`, `feed`, `cleaning` and `fsync`. Versions are written here too; Delta itself writes
one only where another writer came between (`delta_table.DeltaTable.commit_version`).
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
"""The one column of the Delta table of a relation without columns: a Delta table must have one."""

MAKER = "headgate"
"""Who has made a table, as its version 0 says."""
FENCE = "lease taken"
"""The user metadata of a version that `fence` writes: to a node one of another writer."""
DELETED_ROWS_BINS = 10
"""Delta counts the files of a table by how many of their rows are deleted, in so many classes."""

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.)?.*parquet\Z")
_MAPPED = set(" ,;{}()\n\t=")
_LOOKED_UP = {"filename", "file_row_number"}
"""Columns that DuckDB has beside those of a Parquet file, whatever their case (`changes.lookup`)."""
_RESERVED = {"_change_type", "_commit_version", "_commit_timestamp"}
_READERS_OWN = {"_metadata", "_tmp_metadata_row_index", "__delta_internal_is_row_deleted", "__delta_internal_row_index"}
"""Columns by which Delta Lake on Spark leaves deleted rows out: no table that has lost a row can be read that has one of its own."""


def check_names(row: StructType) -> None:
    """Refuses what a Delta table cannot be called: columns that differ in case only, names of the change feed and of the reader."""
    seen: dict[str, str] = {}
    for name in row.fieldNames():
        if name in _RESERVED:
            raise not_supported(f'column name "{name}" is reserved by Delta Lake\'s change data feed')
        if name in _READERS_OWN:
            raise not_supported(f'column name "{name}" is reserved by Delta Lake\'s reader')
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise not_supported(f'column names "{other}" and "{name}" differ in case only', detail="Delta Lake cannot hold both.")


def needs_mapping(name: str) -> bool:
    """Whether a column of this name has another one in the files: Parquet's schema language, or DuckDB, would not take it."""
    return bool(_MAPPED & set(name)) or name.lower() in _LOOKED_UP


def is_half_made(path: DataPath) -> bool:
    """Whether a folder is what `create` made, or has begun to make, with files of a transaction that has not committed."""
    if data_location.is_local(path) and (path.is_symlink() or not path.is_dir()):
        return False
    if newest_version(path):
        return False
    if has_version(path, 0):
        try:
            return any(action.get("commitInfo", {}).get("engineInfo") == MAKER for action in read_version(path, 0))
        except (OSError, PostgresError):
            return False
    left = {file.name for file in data_location.below(path)}
    return all(re.fullmatch(r"_delta_log/(0{20}\.crc|\.(0|0{20}\.json\.[-0-9a-f]+)\.tmp)", name) for name in left)


@step(Step.STAGED)
def create(path: DataPath, row: StructType, *, description: str | None = None, vectors: bool = True) -> None:
    """Makes an empty table: version 0 with the protocol and the metadata, written as the one small file that it is.

    The change feed is on, and so are deletion vectors but where `vectors` says no; column mapping is on only if a name has one of the
    characters that Parquet's schema language refuses (space , ; { } ( ) = newline tab), or is one that DuckDB takes for its own. Columns
    are nullable: NOT NULL is the node's business.
    """
    check_names(row)
    mapped = any(map(needs_mapping, row.fieldNames()))
    configuration = {
        "delta.enableChangeDataFeed": "true",
        "delta.checkpointInterval": str(2**31 - 1),  # `delta_checkpoint` writes them
        "delta.logRetentionDuration": "interval 30 days",
        "delta.enableExpiredLogCleanup": "false",  # `clean` knows what slots need
        "delta.deletedFileRetentionDuration": "interval 7 days",
    }
    fields = json.loads(row.json())["fields"]
    if vectors:
        configuration["delta.enableDeletionVectors"] = "true"
    wanted = (vectors, "deletionVectors"), ('"timestamp_ntz"' in row.json(), "timestampNtz"), (mapped, "columnMapping")
    if mapped:
        configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}
        for number, column in enumerate(fields, 1):
            column["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{uuid.uuid4()}"}
    created = int(time.time() * 1000)
    protocol = protocol_of([feature for needed, feature in wanted if needed])
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
    data_location.write_new(log / f"{0:020d}.json", text, synced=True)  # a start tells by it what nobody has committed


def protocol_of(reader: Sequence[str]) -> Action:
    """The protocol of a table whose readers must know these features; where there are none, every reader reads it."""
    known: Action = {"minReaderVersion": 3, "readerFeatures": list(reader)} if reader else {"minReaderVersion": 1}
    return {**known, "minWriterVersion": 7, "writerFeatures": ["changeDataFeed", *reader]}


def _checksum(protocol: Action, metadata: Action, *, vectors: bool) -> Action:
    """The version checksum of an empty table: without it Delta replays the log by a Spark job before it commits the first rows."""
    told: Action = {
        "tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1, "metadata": metadata, "protocol": protocol,
        "setTransactions": [], "domainMetadata": [], "allFiles": [],
    }  # fmt: skip
    if vectors:
        deleted = {"deletedRecordCounts": [0] * DELETED_ROWS_BINS}
        told |= {"numDeletedRecordsOpt": 0, "numDeletionVectorsOpt": 0, "deletedRecordCountsHistogramOpt": deleted}
    return told


def read_version(path: DataPath, version: int) -> list[Action]:
    """The actions of one version of a table. FileNotFoundError where it is not there, XX001 where it is torn."""
    file = path / "_delta_log" / f"{version:020d}.json"
    text = data_location.local(file).read_text(encoding="utf-8")
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise PostgresError("XX001", f'commit file "{file}" is damaged') from error
    if not actions or not all(isinstance(action, dict) for action in actions):
        raise PostgresError("XX001", f'commit file "{file}" is damaged')
    return actions


class ForeignFeature(Exception):
    """The log of a table says what only Delta itself can read."""


_READ = {"deletionVectors", "timestampNtz", "columnMapping"}
"""Features of a reader that the node knows."""


def read_state(path: DataPath, version: int) -> tuple[Action, Action, Mapping[str, Action]]:
    """Metadata, protocol and the `add` actions by path that hold at a version, the oldest first.

    FileNotFoundError where a version is not there, XX001 for what cannot be read, `ForeignFeature` for what is left to Delta.
    """
    start = newest_checkpoint(path, version)
    actions = _whole_checkpoint(path, start) if start >= 0 else []
    files = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    files = dict(sorted(files.items(), key=lambda each: int(each[1]["modificationTime"])))
    found = {name: action[name] for action in actions for name in ("metaData", "protocol") if name in action}
    fetch_versions(path, range(start + 1, version + 1))
    for each in range(start + 1, version + 1):
        actions = read_version(path, each)
        files = files_after(files, actions)
        found |= {name: action[name] for action in actions for name in ("metaData", "protocol") if name in action}
    if found.keys() != {"metaData", "protocol"} or set(found["protocol"].get("readerFeatures") or []) - _READ:
        raise ForeignFeature(path)
    return found["metaData"], found["protocol"], parquet.counted(path, files)


def _checkpoint(path: DataPath, version: int, names: list[str]) -> Iterator[tuple[set[str], pa.Table]]:
    """Of each part of a checkpoint the names of its columns, and the rows of those that are asked for; XX001 where it is damaged."""
    for part in checkpoint_files(path, version):
        try:
            with pq.ParquetFile(data_location.local(part), page_checksum_verification=True) as file:
                found, rows = set(file.schema_arrow.names), file.read(names)
        except (pa.ArrowInvalid, OSError) as error:
            raise PostgresError("XX001", f'checkpoint "{part}" is damaged') from error
        yield found, rows


def _whole_checkpoint(path: DataPath, version: int) -> list[Action]:
    """The actions of a checkpoint that a reader needs."""
    found: list[Action] = []
    for names, rows in _checkpoint(path, version, ["metaData", "protocol", "add"]):
        if {"sidecar", "checkpointMetadata"} & names:
            raise ForeignFeature(path)
        for name in rows.column_names:
            found += [{name: _as_json(each)} for each in rows[name].drop_null().to_pylist(maps_as_pydicts="strict")]
    return found


def _as_json(value: Any) -> Any:
    """A struct of a checkpoint as JSON has it: what is NULL is not there, nor are the statistics in their other form."""
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items() if each is not None and name not in ("stats_parsed", "tags")}
    return value


def write_version(path: DataPath, version: int, actions: Sequence[Action], mark: str) -> None:
    """Writes a version of a table as the one small file that it is. FileExistsError if another writer was first."""
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
    """Writes a version that changes nothing behind the newest, so that nobody else writes the one that he thinks is next."""
    newest = newest_version(path)
    while newest is not None:
        try:
            write_version(path, newest + 1, [], FENCE)
        except FileExistsError:
            newest += 1
        else:
            return


def set_torn_aside(path: DataPath, above: int) -> list[Path]:
    """After a power failure: renames commit files above a version of which one is torn, that one and those behind it; what they are now.

    An object store has no torn file.
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
            for stale in (each.with_suffix(".crc") for each in torn):
                stale.unlink(missing_ok=True)
            return [file.rename(file.with_name(f"{file.name}.damaged")) for file in torn if file.exists()]
    return []


def has_version(path: DataPath, version: int) -> bool:
    """Whether a table has this version: one look at the file system, however long its log is."""
    return data_location.has_file(path / "_delta_log" / f"{version:020d}.json")


def fetch_versions(path: DataPath, versions: Iterable[int]) -> None:
    """Brings the commit files of versions that are about to be read, those of an object store several at a time."""
    if not data_location.is_local(path):
        data_location.fetch(path / "_delta_log" / f"{version:020d}.json" for version in versions)


def newest_version(path: DataPath) -> int | None:
    """The newest version in a table's log by its file names (20 µs, no Spark); None where there is no table."""
    return max(versions(path), default=None)


def _versions_of(names: Iterable[str]) -> Iterator[int]:
    return (int(n[:20]) for n in names if len(n) == 25 and n.endswith(".json") and n[:20].isdigit())


def versions(path: DataPath) -> list[int]:
    """The versions whose commit files are there, in no order."""
    return list(_versions_of(data_location.names_if_any(path / "_delta_log")))


def times(path: DataPath) -> Iterator[tuple[int, Callable[[], float]]]:
    """The versions, ascending, each with what tells when it was written. FileNotFoundError there where it is gone."""
    log = path / "_delta_log"
    if data_location.is_local(path):
        for version in sorted(versions(path)):
            yield version, partial(data_location.modified, log / f"{version:020d}.json")
        return
    found = {file.name: file.modified for file in data_location.below(log)}
    for version in sorted(_versions_of(found)):
        yield version, partial(found.__getitem__, f"{version:020d}.json")


def checkpoint_files(path: DataPath, version: int) -> list[DataPath]:
    """The files of a version's checkpoint."""
    log, found = path / "_delta_log", re.compile(rf"{version:020d}\.checkpoint.*\.parquet")
    return [log / name for name in sorted(data_location.names_if_any(log)) if found.fullmatch(name)]


def checkpoints(path: DataPath) -> set[int]:
    """The versions that have a checkpoint with all its parts."""
    parts: dict[tuple[int, int], int] = {}
    for name in data_location.names_if_any(path / "_delta_log"):
        found = _CHECKPOINT.match(name)
        if found is not None:
            which = int(found[1]), int(found[3] or 1)
            parts[which] = parts.get(which, 0) + 1
    return {version for (version, wanted), count in parts.items() if count >= wanted}


def newest_checkpoint(path: DataPath, version: int) -> int:
    """The newest version up to this one that has a checkpoint; -1 where none has."""
    return max((each for each in checkpoints(path) if each <= version), default=-1)


def files_at(path: DataPath, version: int) -> dict[str, Action]:
    """The `add` actions that hold at a version, by path: from the newest checkpoint and the versions behind it, without Spark.

    FileNotFoundError where a version is not there, XX001 for what cannot be read.
    """
    start = newest_checkpoint(path, version)
    files = _of_checkpoint(path, start) if start >= 0 else {}
    fetch_versions(path, range(start + 1, version + 1))
    for each in range(start + 1, version + 1):
        files = files_after(files, read_version(path, each))
    return files


def _of_checkpoint(path: DataPath, version: int) -> dict[str, Action]:
    found = (add for _, rows in _checkpoint(path, version, ["add"]) for add in rows["add"].drop_null().to_pylist())
    return {add["path"]: add for add in found}
