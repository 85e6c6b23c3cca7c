"""How a node marks its own Delta commits, so that recovery and `foreign_writer` can tell them from those of other writers.

The mark is the commit's user metadata: ``headgate <xid>``, or ``headgate undo to <version>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MARK = "headgate"


def transaction_mark(xid: int) -> str:
    """User metadata of a transaction's commits."""
    return f"{MARK} {xid}"


def undo_mark(version: int) -> str:
    """User metadata of the commit that makes a table equal to `version` again."""
    return f"{MARK} undo to {version}"


def undone_to(mark: str) -> int | None:
    """The version to which the commit with this mark takes its table back; None for a transaction's."""
    found = mark.removeprefix(f"{MARK} undo to ")
    return int(found) if found != mark and found.isdigit() else None


def transaction_of(mark: str) -> int | None:
    """The transaction whose commit bears this mark; None for one that takes back."""
    found = mark.removeprefix(f"{MARK} ")
    return int(found) if found != mark and found.isdigit() else None


def marked_with(actions: Iterable[Mapping[str, Any]]) -> str | None:
    """The mark in the actions of a version; None if the version is another writer's."""
    for action in actions:
        if "commitInfo" in action:
            found = action["commitInfo"].get("userMetadata") or ""
            return str(found) if found == MARK or found.startswith(MARK + " ") else None
    return None
