"""The actions of Delta's log that name files, as JSON has them: an `add` puts a file into a table, a `remove` takes it out.

Made by `write`, `compaction` and `transaction`, read wherever files of a version are. Pure: no Spark, no file is opened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

Action = dict[str, Any]


def records(add: Action) -> int:
    """Number of rows in the file of an `add` action, those in its deletion vector included."""
    stats = add.get("stats")
    return int(json.loads(stats).get("numRecords", 0)) if stats else 0


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
