"""The log of a Delta table as files: making an empty table, reading the actions of a version, which versions there are. No Spark job.

Used by `transaction`, `delta`, `foreign`, `feed`, `cleaning` and `durable`. Later versions are Delta's to write (`delta`), but for those
that change the columns (`alteration`).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

from pyspark.sql.types import StructType

from headgate.errors import not_supported
from headgate.storage.file_action import Action

PLACEHOLDER = "__headgate_row"
"""The one column of the Delta table of a relation without columns: a Delta table must have one."""

_MAPPED = set(" ,;{}()\n\t=")
_RESERVED = {"_change_type", "_commit_version", "_commit_timestamp"}


def check_names(row: StructType) -> None:
    """Refuses what a Delta table cannot be called: columns that differ in case only, names of the change feed."""
    seen: dict[str, str] = {}
    for name in row.fieldNames():
        if name in _RESERVED:
            raise not_supported(f'column name "{name}" is reserved by Delta Lake\'s change data feed')
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise not_supported(f'column names "{other}" and "{name}" differ in case only', detail="Delta Lake cannot hold both.")


def create(path: Path, row: StructType, *, checkpoint_interval: int = 100, description: str | None = None) -> None:
    """Makes an empty table: version 0 with the protocol and the metadata, written as the one small file that it is.

    Change feed and deletion vectors are on; column mapping is on only if a name has one of the characters that Parquet's
    schema language refuses (space , ; { } ( ) = newline tab). Columns are nullable: NOT NULL is the node's business.
    """
    check_names(row)
    mapped = any(_MAPPED & set(name) for name in row.fieldNames())
    configuration = {
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
        "delta.checkpointInterval": str(checkpoint_interval),
        "delta.logRetentionDuration": "interval 30 days",
        "delta.enableExpiredLogCleanup": "false",  # `clean` knows what slots need
        "delta.deletedFileRetentionDuration": "interval 7 days",
    }
    fields = json.loads(row.json())["fields"]
    writer = ["changeDataFeed", "deletionVectors"]
    reader = ["deletionVectors"]
    if '"timestamp_ntz"' in row.json():
        writer.append("timestampNtz")
        reader.append("timestampNtz")
    if mapped:
        writer.append("columnMapping")
        reader.append("columnMapping")
        configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}
        for number, column in enumerate(fields, 1):
            column["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{uuid.uuid4()}"}
    created = int(time.time() * 1000)
    actions = [
        {"commitInfo": {"timestamp": created, "operation": "CREATE TABLE", "operationParameters": {}, "isBlindAppend": True}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "description": description,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": configuration,
                "createdTime": created,
            }
        },
    ]
    log = path / "_delta_log"
    log.mkdir(parents=True)
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    with (log / ".0.tmp").open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    (log / ".0.tmp").rename(log / f"{0:020d}.json")


def read_version(path: Path, version: int) -> list[Action]:
    """The actions of one version of a table."""
    with (path / "_delta_log" / f"{version:020d}.json").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def has_version(path: Path, version: int) -> bool:
    """Whether a table has this version: one look at the file system, however long its log is."""
    return (path / "_delta_log" / f"{version:020d}.json").exists()


def newest_version(path: Path) -> int | None:
    """The newest version in a table's log by its file names (20 µs, no Spark); None where there is no table."""
    try:
        names = os.listdir(path / "_delta_log")  # noqa: PTH208 (a tenth of the time of iterdir)
    except FileNotFoundError:
        return None
    return max((int(n[:20]) for n in names if len(n) == 25 and n.endswith(".json") and n[:20].isdigit()), default=None)
