"""Whose the folder of the tables is: a node neither writes into nor removes anything from a folder that is not its own.

The folder bears the system identifier of its node in the file `headgate.owner`. `claim` is called at each start, before recovery. What
lies in the folder and nobody knows is moved to `unknown/`, never removed (`set_aside`): a catalog that was restored without its log
knows none of its tables.
"""

from __future__ import annotations

from headgate.errors import PostgresError
from headgate.storage.location import data_location, lease
from headgate.storage.location.data_location import DataPath

FILE = "headgate.owner"
UNKNOWN = "unknown"


def claim(base: DataPath, system_identifier: str, *, known: bool) -> None:
    """Marks the folder as this node's. `known`: it is, from before there was a mark. F0001 where it is another's, or holds other things."""
    data_location.make_folder(base)
    whose = found(base)
    if whose == system_identifier:
        return
    mark = f"{system_identifier}\n"
    hint = "Let data_location name an empty folder, or the folder in which this node's tables are."
    if whose:
        raise PostgresError("F0001", f'data location "{base}" belongs to another node', hint=hint)
    if not known and data_location.has_any(base) and set(data_location.names(base)) - {"lost+found", lease.FILE}:
        raise PostgresError("F0001", f'data location "{base}" is not empty and has no tables of this node', hint=hint)
    if data_location.is_local(base):
        data_location.write_whole(base / FILE, mark)
        return
    try:
        data_location.write_new(base / FILE, mark)  # another may begin there at the same moment
    except FileExistsError as error:
        raise PostgresError("F0001", f'data location "{base}" belongs to another node', hint=hint) from error


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
