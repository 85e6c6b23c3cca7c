"""The actions of Delta's log that name files, in JSON form: an `add` puts a file into a table, a `remove` takes it out.

Made by `write`, `compaction` and `transaction`, read by all code that uses the files of a version. Pure functions: no Spark, no file
access.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector as vector
from headgate.storage.delta.deletion_vector import DeletionVector
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.types import text_cache

Action = dict[str, Any]

KEPT = "headgate.kept"
"""Tag of a file that contains only unchanged rows of the files that it replaces."""

_RECORDS = re.compile(r'\{\s*"numRecords"\s*:\s*(\d+)\s*[,}]')
"""The beginning of the statistics of a file, as most writers write it."""
_PART = re.compile(r"(?:part|cdc)-(\d+)-")


def records(add: Action) -> int:
    """Return the number of rows in the file of an `add` action, including those in its deletion vector."""
    stats = add.get("stats")
    return _records(stats) if stats else 0


@text_cache.limited(16 << 20, overhead=128)
def _records(stats: str) -> int:
    match = _RECORDS.match(stats)
    return int(match[1] if match else json.loads(stats).get("numRecords", 0))


def is_counted(add: Action) -> bool:
    """Return whether an `add` action has the row count of its file. In a `TableState` all have it, except those of unreadable files."""
    return '"numRecords"' in (add.get("stats") or "")


def is_emptied(add: Action, deleted: int) -> bool:
    """Return whether a file has no rows left after this many are deleted. Raise XX001 if its row count is not known."""
    if not is_counted(add):
        raise PostgresError("XX001", f'could not read the number of rows of file "{add["path"]}"')
    return deleted >= records(add)


def rows(add: Action) -> int:
    """Return the number of live rows of an `add` action: those that its deletion vector does not delete."""
    return records(add) - dead(add)


def dead(add: Action) -> int:
    """Return the number of rows in its deletion vector."""
    return int((add.get("deletionVector") or {}).get("cardinality", 0))


def is_kept(file: Action) -> bool:
    """Return whether a file of a write contains only rows that the write has not changed."""
    return KEPT in (file.get("tags") or {})


def order(file: Action) -> tuple[int, str]:
    """Return the sort key of a file among those of one write, by the number in its name."""
    match = _PART.search(file["path"])
    return (int(match[1]) if match else 0, file["path"])


def removal(add: Action, *, data_change: bool) -> Action:
    """Return the `remove` action of a file, with its size and statistics so that Delta can keep its checksum up to date."""
    removed = {
        "path": add["path"],
        "deletionTimestamp": int(time.time() * 1000),
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": add.get("partitionValues") or {},
        "size": add["size"],
    }
    if add.get("stats"):
        removed["stats"] = add["stats"]
    if add.get("deletionVector"):
        removed["deletionVector"] = add["deletionVector"]
    return {"remove": removed}


def marked(add: Action, deletion_vector: DeletionVector) -> Action:
    """Return the `add` action of a file with some deleted rows. Its statistics are no longer tight bounds."""
    stats = add["stats"].replace('"tightBounds":true', '"tightBounds":false')
    return {
        "add": {
            **{key: value for key, value in add.items() if key != "deletionVector"},
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": stats,
            "deletionVector": deletion_vector,
        }
    }


def files_after(files: Mapping[str, Action], actions: Iterable[Action]) -> dict[str, Action]:
    """Return the `add` actions that hold, by path, after a commit of `actions`. The last added comes last.

    A file of which rows are deleted is removed and added again, and keeps its position.
    """
    after = dict(files)
    added = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    for action in actions:
        if "remove" in action and action["remove"]["path"] not in added:
            after.pop(action["remove"]["path"], None)
    return after | added


def files_made(table: DataPath, actions: Sequence[Action]) -> Iterator[DataPath]:
    """Return `files_of` without existing data files: deleting rows of a file removes it and adds it again."""
    existing = {table / unquote(action["remove"]["path"]) for action in actions if "remove" in action}
    return (path for path in files_of(table, actions) if path not in existing)


def files_of(table: DataPath, actions: Iterable[Action]) -> Iterator[DataPath]:
    """Yield the data, change and deletion-vector files that actions add to the table."""
    actions = list(actions)
    for action in actions:
        file = action.get("add") or action.get("cdc")
        if file is not None:
            yield table / unquote(file["path"])
    yield from vectors_of(table, actions)


def names_of(table: DataPath, files: Iterable[Action]) -> Iterator[str]:
    """Yield the names, relative to the table, of the files of `add`, `remove` and `cdc`, and of their deletion vectors."""
    for file in files:
        yield unquote(file["path"])
        vector_file = vector.file_of(table, file.get("deletionVector"))
        if vector_file is not None and data_location.is_inside(table, vector_file):
            yield data_location.inside(table, vector_file)


def vectors_of(table: DataPath, actions: Iterable[Action]) -> Iterator[DataPath]:
    for action in actions:
        vector_file = vector.file_of(table, action.get("add", {}).get("deletionVector"))
        if vector_file is not None:
            yield vector_file
