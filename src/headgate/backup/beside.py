"""Copies of a node's catalog and settings next to its tables in the object store, in case the node's disk is lost.

    _headgate/backup/<LSN>/   a backup without the tables: catalog with its log, settings, transactions that publishers have prepared
    …/headgate.complete       written last; a folder without it is not a backup

The tables stay where they are. Such a copy, in an empty directory, is a node that is older than its tables. When it is started, it reports
the commits that it does not have, and undoes them if told to (`ignore_lost_commits`). Cleaning keeps the files that the copy names for
`file_retention`. Called by ``headgate backup --beside``. The newest KEPT backups stay, and any that are younger.
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
    """Copy a folder next to the tables and remove the copies that are older than the KEPT newest. Return its path."""
    copies = base / inventory.LOG_TABLE[0] / "backup"
    destination = copies / f"{int(end):016X}"
    data_location.remove_tree(destination)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_relative_to(folder / "base")]

    def copy(file: Path) -> None:
        target = destination / str(file.relative_to(folder))
        data_location.make_folder(target.parent)
        data_location.put(file, target)

    data_location.together(base, copy, files)
    data_location.write_whole(destination / COMPLETE, f"{end}\n")
    names = sorted(data_location.names(copies))
    complete = [name for name in names if data_location.has_file(copies / name / COMPLETE)]
    for name in names:
        if name < complete[-KEPT:][0]:
            data_location.remove_tree(copies / name)
    return destination
