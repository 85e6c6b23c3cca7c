"""What is the user's in a node's directory: settings, access rules, certificates, and whatever the settings include.

All of it is copied but what belongs to the running process, the catalog and the tables. The tables of a backup lie below it, whatever
data_location says: where the setting names a folder, headgate.auto.conf of the backup sets it back.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from headgate.backup import catalog, target
from headgate.settings import Settings
from headgate.storage.location import directory_owner
from headgate.storage.location.data_location import DataPath

LOCATION = "data_location"
_LEFT = {
    *(
        "HG_VERSION",
        "base",
        "headgate.pid",
        "headgate.opts",
        "headgate.opts.tmp",
        "headgate.status",
        "headgate.reserve",
        directory_owner.LOCATION_FILE,
        target.MARKER,
    ),
    *("pg_replication", catalog.PREPARED, "pg_cache", "pgsql_tmp", "lost+found"),
}


def copy(data_dir: Path, base: DataPath, folder: Path, *, moves: bool = True) -> None:
    """Copies the user's files; `base`: the folder of the tables, which lie in the backup if it `moves`."""
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
        target.sync(folder / "headgate.auto.conf")
