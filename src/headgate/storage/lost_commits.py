"""Commits that the tables bear and the catalog does not know: its file is older than they are, and going on would take them back.

A version with a transaction's mark is written behind the transaction's intent (`intent`), which stays in the catalog until the log names
the version or its inverse is written. So a marked version above the logged one was committed under a newer catalog where its transaction
has no intent and no inverse follows: `catalog.duckdb` was restored from an earlier time, or without its log (``catalog.duckdb.wal``). A
folder that the log does not name may be left of a table that was dropped: there only a number that the catalog has not given yet tells.

Traced: the node committed 734 as version 9 of t, was killed, and somebody removed the catalog's log. The catalog knows version 7 of t and
no intent. Version 8 bears ``headgate 733`` and 9 ``headgate 734``, neither is undone: the node does not start.

`refuse` is called by `engine.recover` before anything is changed (``ignore_lost_commits = on`` leaves it out, and recovery takes them
back), the others by `check`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import PostgresError
from headgate.storage import inventory
from headgate.storage.delta import delta_log
from headgate.storage.delta.commit_mark import marked_with, transaction_of, undone_to
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

SETTING = "ignore_lost_commits"


@dataclass(frozen=True)
class Lost:
    """The newest such version of one table; `logged`: the version that the log names, None where it does not know the table."""

    key: Key
    logged: int | None
    version: int
    xid: int


def refuse(engine: Engine) -> None:
    """XX001 where a table has commits that the catalog does not know."""
    found = list(find(engine))
    if not found or engine.settings.get(SETTING, "off") == "on":
        return
    first = found[0]
    more = f"; tables with such commits: {len(found)}" if len(found) > 1 else ""
    there = f"there is version {first.version} of transaction {first.xid}"
    known = f"version {first.logged}" if first.logged is not None else "no such table"
    raise PostgresError(
        "XX001",
        f'catalog "{engine.catalog.path}" is older than the tables: commits of {engine.title(first.key)} are not in it',
        detail=f"The catalog ends at {engine.log.end} and knows {known}; {there}{more}.",
        hint=f'Restore the catalog\'s file together with its log, "{engine.catalog.path}.wal", or the whole data directory from one'
        f' backup. To give up what was committed since, start once with: headgate start -o "-c {SETTING}=on"',
    )


def find(engine: Engine) -> Iterator[Lost]:
    """One for each table that has some."""
    with contextlib.closing(engine.catalog.cursor()) as cursor:
        intended = {xid for (xid,) in cursor.execute("SELECT xid FROM hg.intent").fetchall()}
    logged = engine.log.versions()
    dropped = {(database, relation) for database, relation, _ in engine.log.dropped()}
    known = {key: table.version for key, table in logged.items()}
    looked = [(key, path) for key, path in inventory.folders(engine.base) if key in known or key not in dropped]
    marks = data_location.together(engine.base, lambda each: _above(each[1], known.get(each[0], -1)), looked)
    for (key, _), found in zip(looked, marks, strict=True):
        lost = of_versions(found, intended)
        if key not in known:
            lost = [each for each in lost if each[1] >= engine.log.first_xid]
        if lost:
            version, xid = lost[-1]
            yield Lost(key, logged[key].version if key in logged else None, version, xid)


def _above(path: DataPath, known: int) -> list[tuple[int, str | None]]:
    """The versions of a table above one, each with its mark; what cannot be read is told of elsewhere."""
    newest = delta_log.newest_version(path)
    found: list[tuple[int, str | None]] = []
    for version in range(known + 1, (known if newest is None else newest) + 1):
        with contextlib.suppress(OSError, PostgresError):
            found.append((version, marked_with(delta_log.read_version(path, version))))
    return found


def of_versions(marks: Collection[tuple[int, str | None]], intended: Collection[int]) -> list[tuple[int, int]]:
    """Version and transaction of those that were committed and that nobody knows; `marks`: of all above the logged one, ascending."""
    lost: list[tuple[int, int]] = []
    for version, mark in marks:
        if mark is None:
            continue
        back = undone_to(mark)
        if back is not None:
            lost = [each for each in lost if each[0] <= back]
        elif (xid := transaction_of(mark)) is not None and xid not in intended:
            lost.append((version, xid))
    return lost
