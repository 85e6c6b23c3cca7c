"""Mark the folder of the tables with its node: a node never starts on, writes into or removes from another node's folder.

The file `headgate.owner` in the folder has the system identifier of its node. `claim` is called at each start, before recovery. A node that
has tables starts only where they are. If that is not `base/` in the data directory, the file `headgate.location` in the data directory
names the folder, so that a start elsewhere can report where the tables are. Folders that the log does not name are moved to `unknown/`,
never removed (`set_aside`): a catalog that was restored without its log does not name any of its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headgate.errors import PostgresError
from headgate.storage.location import data_location, lease
from headgate.storage.location.data_location import DataPath

FILE = "headgate.owner"
LOCATION_FILE = "headgate.location"
"""The file in the data directory that names the folder."""
UNKNOWN = "unknown"


def claim(base: DataPath, system_identifier: str, data_dir: Path, tables: Sequence[DataPath]) -> None:
    """Mark the folder as this node's, whose tables are in `tables`, and record it in the data directory.

    Raise F0001, and create nothing, if the folder belongs to another node, does not have the tables, or has other content.
    """
    owner = found(base)
    if owner != system_identifier:
        _check(base, owner, system_identifier, data_dir, tables)
        data_location.make_folder(base)
        _mark(base, system_identifier)
    _record(base, data_dir)


def _check(base: DataPath, whose: str, system_identifier: str, data_dir: Path, tables: Sequence[DataPath]) -> None:
    """Raise F0001 unless the node may use a folder that does not have its mark."""
    text, detail = "", None
    if whose:
        text = "belongs to another node"
    elif tables and not any(data_location.has_any(table) for table in tables):  # nodes of earlier versions wrote no mark
        text = "does not hold the tables of this node"
    elif not tables and base != data_dir / "base" and _has_other_files(base):
        text = "is not empty and has no tables of this node"
    if not text:
        return
    hint = "Let data_location name an empty folder."
    if tables:
        hint = "Set data_location to the folder of the tables. To move them, copy that folder whole, with headgate.owner, before the start."
        old = _recorded_folder(data_dir, system_identifier)
        detail = None if old is None else f'The tables of this node are in "{old}".'
    raise PostgresError("F0001", f'data location "{base}" {text}', detail=detail, hint=hint)


def _has_other_files(base: DataPath) -> bool:
    return data_location.has_any(base) and bool(set(data_location.names(base)) - {"lost+found", lease.FILE})


def _mark(base: DataPath, system_identifier: str) -> None:
    mark = f"{system_identifier}\n"
    if data_location.is_local(base):
        data_location.write_whole(base / FILE, mark)
        return
    try:
        data_location.write_new(base / FILE, mark)  # another node may start there at the same moment
    except FileExistsError as error:
        raise PostgresError("F0001", f'data location "{base}" belongs to another node') from error


def _record(base: DataPath, data_dir: Path) -> None:
    """Record the folder of the tables, unless it is in the data directory and moves with it."""
    file = data_dir / LOCATION_FILE
    if base == data_dir / "base":
        file.unlink(missing_ok=True)
    elif not file.exists() or file.read_text(encoding="utf-8").strip() != str(base):
        data_location.write_whole(file, f"{base}\n")


def _recorded_folder(data_dir: Path, system_identifier: str) -> str | None:
    """Return the folder of the tables at the last start, or None if it was not recorded."""
    file = data_dir / LOCATION_FILE
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    return str(data_dir / "base") if found(data_dir / "base") == system_identifier else None


def found(base: DataPath) -> str:
    """Return the system identifier of the node that owns the folder, or an empty string if it has no mark."""
    try:
        return data_location.read_text(base / FILE).strip()
    except FileNotFoundError:
        return ""


def is_marked(base: DataPath) -> bool:
    """Return whether the folder exists and has the mark of a node."""
    return data_location.has_file(base / FILE)


def set_aside(base: DataPath, folder: DataPath) -> DataPath:
    """Move a table's folder that the log does not name out of the way. Return its new path."""
    target = base / UNKNOWN
    name, number = f"{folder.parent.name}.{folder.name}", 0
    while data_location.has_any(target / (name if not number else f"{name}.{number}")):
        number += 1
    return data_location.move(folder, target / (name if not number else f"{name}.{number}"))
