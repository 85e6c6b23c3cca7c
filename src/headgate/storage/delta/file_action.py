"""The actions of Delta's log that name files, as JSON has them: an `add` puts a file into a table, a `remove` takes it out.

Made by `write`, `compaction` and `transaction`, read wherever files of a version are. Pure: no Spark, no file is opened.
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
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

Action = dict[str, Any]

KEPT = "headgate.kept"
"""Tag of a file that only holds rows of others that it takes the place of."""

_PART = re.compile(r"(?:part|cdc)-(\d+)-")


def records(add: Action) -> int:
    """Number of rows in the file of an `add` action, those in its deletion vector included."""
    stats = add.get("stats")
    return int(json.loads(stats).get("numRecords", 0)) if stats else 0


def is_counted(add: Action) -> bool:
    """Whether an `add` action says how many rows its file has; in a `TableState` all do, but those of files that cannot be read."""
    return '"numRecords"' in (add.get("stats") or "")


def is_emptied(add: Action, deleted: int) -> bool:
    """Whether a file has no row left where so many are deleted. XX001 where it is not known how many it has."""
    if not is_counted(add):
        raise PostgresError("XX001", f'could not read the number of rows of file "{add["path"]}"')
    return deleted >= records(add)


def rows(add: Action) -> int:
    """Number of rows that the `add` action names: those of the file that its deletion vector leaves."""
    return records(add) - dead(add)


def dead(add: Action) -> int:
    """Number of rows in its deletion vector."""
    return int((add.get("deletionVector") or {}).get("cardinality", 0))


def is_kept(file: Action) -> bool:
    """Whether a file of a write holds no row that the write has changed."""
    return KEPT in (file.get("tags") or {})


def order(file: Mapping[str, Any]) -> tuple[int, str]:
    """The place of a file among those of one write, by the number in its name."""
    found = _PART.search(file["path"])
    return (int(found[1]) if found else 0, file["path"])


def removal(add: Action, *, data_change: bool) -> Action:
    """The `remove` action of a file, with its size and statistics so that Delta can keep its checksum up to date."""
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


def marked(add: Action, deletion_vector: Action) -> Action:
    """The `add` action of a file some of whose rows are deleted; its statistics are bounds no more."""
    stats = add["stats"].replace('"tightBounds":true', '"tightBounds":false')
    return {
        "add": {
            **{k: v for k, v in add.items() if k != "deletionVector"},
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": stats,
            "deletionVector": deletion_vector,
        }
    }


def files_after(files: Mapping[str, Action], actions: Iterable[Action]) -> dict[str, Action]:
    """The `add` actions that hold, by path, after a commit of `actions`: what was added last comes last.

    A file of which rows are deleted is removed and added again, and keeps its place.
    """
    after = dict(files)
    added = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    for action in actions:
        if "remove" in action and action["remove"]["path"] not in added:
            after.pop(action["remove"]["path"], None)
    return after | added


def files_made(table: DataPath, actions: Sequence[Action]) -> Iterator[DataPath]:
    """As `files_of`, without the data files that were there before: rows of a file are deleted by removing it and adding it again."""
    there = {table / unquote(action["remove"]["path"]) for action in actions if "remove" in action}
    return (path for path in files_of(table, actions) if path not in there)


def files_of(table: DataPath, actions: Iterable[Action]) -> Iterator[DataPath]:
    """The data, change and deletion-vector files that actions name as the table's."""
    actions = list(actions)
    for action in actions:
        named = action.get("add") or action.get("cdc")
        if named is not None:
            yield table / unquote(named["path"])
    yield from vectors_of(table, actions)


def names_of(table: DataPath, files: Iterable[Action]) -> Iterator[str]:
    """The names, below the table, of the files that `add`, `remove` and `cdc` describe, and of their deletion vectors."""
    for file in files:
        yield unquote(file["path"])
        found = vector.file_of(table, file.get("deletionVector"))
        if found is not None and data_location.is_inside(table, found):
            yield data_location.inside(table, found)


def vectors_of(table: DataPath, actions: Iterable[Action]) -> Iterator[DataPath]:
    """The deletion-vector files that actions name."""
    for action in actions:
        found = vector.file_of(table, action.get("add", {}).get("deletionVector"))
        if found is not None:
            yield found
