"""Whose the folder of the tables is: a node neither writes into nor removes anything from a folder that is not its own.

The folder bears the system identifier of its node in the file `headgate.owner`. `claim` is called at each start, before recovery. What
lies in the folder and nobody knows is moved to `unknown/`, never removed (`set_aside`): a catalog that was restored without its log
knows none of its tables.
"""

from __future__ import annotations

from pathlib import Path

from headgate.errors import PostgresError
from headgate.storage.delta import fsync

FILE = "headgate.owner"
UNKNOWN = "unknown"


def claim(base: Path, system_identifier: str, *, known: bool) -> None:
    """Marks the folder as this node's. `known`: it is, from before there was a mark. F0001 where it is another's, or holds other things."""
    base.mkdir(parents=True, exist_ok=True)
    whose = found(base)
    if whose == system_identifier:
        return
    hint = "Let data_location name an empty folder, or the folder in which this node's tables are."
    if whose:
        raise PostgresError("F0001", f'data location "{base}" belongs to another node', hint=hint)
    if not known and any(each.name != "lost+found" for each in base.iterdir()):
        raise PostgresError("F0001", f'data location "{base}" is not empty and has no tables of this node', hint=hint)
    draft = base / f".{FILE}.tmp"
    fsync.write_synced(draft, f"{system_identifier}\n")
    draft.rename(base / FILE)


def found(base: Path) -> str:
    """The system identifier of the node whose the folder is; empty where it bears no mark."""
    try:
        return (base / FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def set_aside(base: Path, folder: Path) -> Path:
    """Moves a table's folder that nobody knows out of the way; where it is now."""
    target = base / UNKNOWN
    target.mkdir(exist_ok=True)
    name, number = f"{folder.parent.name}.{folder.name}", 0
    while (target / (name if not number else f"{name}.{number}")).exists():
        number += 1
    return folder.rename(target / (name if not number else f"{name}.{number}"))
