"""Copies of a node's catalog and settings beside its tables, for the day on which its disk is lost and the object store is not.

    _headgate/backup/<LSN>/   what a backup has but the tables: catalog with its log, settings, transactions that publishers have prepared
    …/headgate.complete       written last; a folder without it is no backup

The tables stay where they are: such a copy, in an empty directory, is a node that is older than they are. Its start names the commits
that it does not know, and takes them back when it is told so (`ignore_lost_commits`). What it names cleaning keeps for `file_retention`.
Called by ``headgate backup --beside``; KEPT backups stay, and what is younger than they are.
"""

from __future__ import annotations

from pathlib import Path

from headgate.lsn import Lsn
from headgate.storage import inventory
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

COMPLETE = "headgate.complete"
KEPT = 2


def put(base: DataPath, folder: Path, end: Lsn) -> DataPath:
    """Copies a folder beside the tables and removes the copies that are older than the KEPT newest; where it is."""
    copies = base / inventory.LOG_TABLE[0] / "backup"
    place = copies / f"{int(end):016X}"
    data_location.remove_tree(place)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_relative_to(folder / "base")]

    def copy(file: Path) -> None:
        target = place / str(file.relative_to(folder))
        data_location.make_folder(target.parent)
        data_location.put(file, target)

    data_location.together(base, copy, files)
    data_location.write_whole(place / COMPLETE, f"{end}\n")
    names = sorted(data_location.names(copies))
    whole = [name for name in names if data_location.has_file(copies / name / COMPLETE)]
    for name in names:
        if name < whole[-KEPT:][0]:
            data_location.remove_tree(copies / name)
    return place
