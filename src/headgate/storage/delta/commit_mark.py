"""The marks of a node's own Delta commits, by which recovery and `foreign_writer` tell them from those of other writers.

A mark is the commit's user metadata: ``headgate <xid>``, or ``headgate undo to <version>``.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.storage.delta.file_action import Action

MARK = "headgate"


def transaction_mark(xid: int) -> str:
    return f"{MARK} {xid}"


def undo_mark(version: int) -> str:
    """Return the user metadata of the commit that makes a table equal to `version` again."""
    return f"{MARK} undo to {version}"


def undone_to(mark: str) -> int | None:
    """Return the version to which the commit with this mark reverts its table, None for a transaction's mark."""
    version = mark.removeprefix(f"{MARK} undo to ")
    return int(version) if version != mark and version.isdigit() else None


def transaction_of(mark: str) -> int | None:
    """Return the xid in the mark, None for a mark of an undo commit."""
    xid = mark.removeprefix(f"{MARK} ")
    return int(xid) if xid != mark and xid.isdigit() else None


def marked_with(actions: Iterable[Action]) -> str | None:
    """Return the mark in the actions of a version, None for another writer's version."""
    for action in actions:
        if "commitInfo" in action:
            mark = action["commitInfo"].get("userMetadata") or ""
            return str(mark) if mark == MARK or mark.startswith(MARK + " ") else None
    return None
