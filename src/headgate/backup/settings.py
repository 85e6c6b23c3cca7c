"""The user's files in a node's directory: settings, access rules, certificates, and files that the settings include.

All files are copied except those of the running process, the catalog and the tables. The tables of a backup are below it, whatever
data_location is: if the setting names a folder, headgate.auto.conf of the backup resets it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from headgate.backup import catalog, target
from headgate.settings.node import Settings
from headgate.storage.delta import fsync
from headgate.storage.location import directory_owner
from headgate.storage.location.data_location import DataPath

LOCATION = "data_location"
_LEFT = {
    *("HG_VERSION", "base", "headgate.pid", "headgate.opts", "headgate.opts.tmp", "headgate.status", "headgate.reserve"),
    *("pg_replication", catalog.PREPARED, "pg_cache", "pgsql_tmp", "lost+found", directory_owner.LOCATION_FILE, target.MARKER),
}


def copy(data_dir: Path, base: DataPath, folder: Path, *, moves: bool = True) -> None:
    """Copy the user's files. `base`: the folder of the tables, which are in the backup if it `moves`."""
    for source in sorted(data_dir.iterdir()):
        if source.name in _LEFT or source.name.startswith(catalog.NAME) or (isinstance(base, Path) and source.resolve() == base.resolve()):
            continue
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
        elif source.is_file():
            target.copy(source, folder / source.name)
    settings = Settings(folder, {}).load()
    if moves and settings.text(LOCATION):
        settings.alter_system(LOCATION, "")
        fsync.sync(folder / "headgate.auto.conf")
