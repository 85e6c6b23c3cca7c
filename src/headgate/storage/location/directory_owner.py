"""Mark the folder of the tables with its node: a node neither starts on, nor writes into, nor removes anything from another folder.

The folder bears the system identifier of its node in the file `headgate.owner`. `claim` is called at each start, before recovery. A node
that has tables starts only where they are. If that is not `base/` in the data directory, the data directory names the place in the file
`headgate.location`, so that a start elsewhere can say where the tables are. Folders that the log does not name are moved to `unknown/`,
never removed (`set_aside`): a catalog that was restored without its log knows none of its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headgate.errors import PostgresError
from headgate.storage.location import data_location, lease
from headgate.storage.location.data_location import DataPath

FILE = "headgate.owner"
LOCATION_FILE = "headgate.location"
"""In the data directory."""
UNKNOWN = "unknown"


def claim(base: DataPath, system_identifier: str, data_dir: Path, tables: Sequence[DataPath]) -> None:
    """Mark the folder as this node's, whose tables lie in `tables`, and record it in the data directory.

    Raises F0001, and creates nothing, if the folder belongs to another node, does not hold the tables, or holds other things.
    """
    whose = found(base)
    if whose != system_identifier:
        _check(base, whose, system_identifier, data_dir, tables)
        data_location.make_folder(base)
        _mark(base, system_identifier)
    _record(base, data_dir)


def _check(base: DataPath, whose: str, system_identifier: str, data_dir: Path, tables: Sequence[DataPath]) -> None:
    """Raise F0001 unless the node may use a folder that does not bear its mark."""
    text, detail = "", None
    if whose:
        text = "belongs to another node"
    elif tables and not any(data_location.has_any(table) for table in tables):  # nodes of earlier versions made no mark
        text = "does not hold the tables of this node"
    elif not tables and base != data_dir / "base" and _has_other_files(base):
        text = "is not empty and has no tables of this node"
    if not text:
        return
    hint = "Let data_location name an empty folder."
    if tables:
        hint = "Set data_location to the folder of the tables. To move them, copy that folder whole, with headgate.owner, before the start."
        old = _recorded(data_dir, system_identifier)
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
        data_location.write_new(base / FILE, mark)  # another may begin there at the same moment
    except FileExistsError as error:
        raise PostgresError("F0001", f'data location "{base}" belongs to another node') from error


def _record(base: DataPath, data_dir: Path) -> None:
    """Write down where the tables are, unless they are in the data directory, with which they move."""
    file = data_dir / LOCATION_FILE
    if base == data_dir / "base":
        file.unlink(missing_ok=True)
    elif not file.exists() or file.read_text(encoding="utf-8").strip() != str(base):
        data_location.write_whole(file, f"{base}\n")


def _recorded(data_dir: Path, system_identifier: str) -> str | None:
    """Return where the tables were at the last start; None if no start has recorded it."""
    file = data_dir / LOCATION_FILE
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    return str(data_dir / "base") if found(data_dir / "base") == system_identifier else None


def found(base: DataPath) -> str:
    """The system identifier of the node whose the folder is; empty where it bears no mark."""
    try:
        return data_location.read_text(base / FILE).strip()
    except FileNotFoundError:
        return ""


def set_aside(base: DataPath, folder: DataPath) -> DataPath:
    """Moves a table's folder that nobody knows out of the way; where it is now."""
    target = base / UNKNOWN
    name, number = f"{folder.parent.name}.{folder.name}", 0
    while data_location.has_any(target / (name if not number else f"{name}.{number}")):
        number += 1
    return data_location.move(folder, target / (name if not number else f"{name}.{number}"))
