"""Detection of commits that the tables have and the catalog does not: its file is older than the tables, and starting would undo them.

A version with a transaction's mark is written after the transaction's intent (`intent`). The intent stays in the catalog until the log
names the version or its inverse is written. So if a marked version above the logged one has no intent and no inverse, it was committed
under a newer catalog: `catalog.duckdb` was restored from an earlier time, or without its log (``catalog.duckdb.wal``). A folder that the
log does not name may remain from a dropped table. There, only a transaction id that the catalog has not assigned yet shows a lost commit.

Traced: the node committed 734 as version 9 of t and was killed, and the catalog's log was removed by hand. The catalog has version 7 of t
and no intent. Version 8 is marked ``headgate 733`` and 9 ``headgate 734``, and neither is undone: the node does not start.

`engine.recover` calls `refuse` before it changes anything (``ignore_lost_commits = on`` skips it, and recovery undoes the commits). `check`
calls the other functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.storage.delta import delta_log
from headgate.storage.delta.commit_mark import marked_with, transaction_of, undone_to
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction.storage import Storage

SETTING = "ignore_lost_commits"


@dataclass(frozen=True)
class Lost:
    """The newest lost commit of one table. `logged`: the version that the log names, None if it does not name the table."""

    key: Key
    logged: int | None
    version: int
    xid: int


def refuse(storage: Storage) -> None:
    """Raise XX001 if a table has commits that the catalog does not have."""
    lost = list(find(storage))
    if not lost or storage.settings.get(SETTING, "off") == "on":
        return
    first = lost[0]
    more = f"; tables with such commits: {len(lost)}" if len(lost) > 1 else ""
    existing = f"there is version {first.version} of transaction {first.xid}"
    known = f"version {first.logged}" if first.logged is not None else "no such table"
    raise PostgresError(
        "XX001",
        f'catalog "{storage.catalog.path}" is older than the tables: commits of {storage.tables.title(first.key)} are not in it',
        detail=f"The catalog ends at {storage.log.end} and knows {known}; {existing}{more}.",
        hint=f'Restore the catalog\'s file together with its log, "{storage.catalog.path}.wal", or the whole data directory from one'
        f' backup. To give up what was committed since, start once with: headgate start -o "-c {SETTING}=on"',
    )


def find(storage: Storage) -> Iterator[Lost]:
    """Yield the newest lost commit of each table that has one."""
    with contextlib.closing(storage.catalog.cursor()) as cursor:
        intended = {xid for (xid,) in cursor.execute("SELECT xid FROM hg.intent").fetchall()}
    logged = storage.log.versions()
    dropped = {(database, relation) for database, relation, _ in storage.log.dropped()}
    known = {key: table.version for key, table in logged.items()}
    tables = [(key, path) for key, path in storage.folders.existing() if key in known or key not in dropped]
    marks = data_location.together(storage.base, lambda item: _above(item[1], known.get(item[0], _opened_at(storage, item[0]))), tables)
    for (key, _), versions in zip(tables, marks, strict=True):
        lost = of_versions(versions, intended)
        if key not in known:
            lost = [commit for commit in lost if commit[1] >= storage.log.first_xid]
        if lost:
            version, xid = lost[-1]
            yield Lost(key, logged[key].version if key in logged else None, version, xid)


def _opened_at(storage: Storage, key: Key) -> int:
    """Return the last version that is not of the node's own table."""
    opened_at = storage.folders.opened_at(key)
    return -1 if opened_at is None else opened_at


def _above(path: DataPath, known: int) -> list[tuple[int, str | None]]:
    """Return the versions of a table above one, each with its mark. Skip versions that cannot be read, which are reported elsewhere."""
    newest = delta_log.newest_version(path)
    versions: list[tuple[int, str | None]] = []
    for version in range(known + 1, (known if newest is None else newest) + 1):
        with contextlib.suppress(OSError, PostgresError):
            versions.append((version, marked_with(delta_log.read_version(path, version))))
    return versions


def of_versions(marks: Collection[tuple[int, str | None]], intended: Collection[int]) -> list[tuple[int, int]]:
    """Return version and xid of the lost commits. `marks`: those of all versions above the logged one, ascending."""
    lost: list[tuple[int, int]] = []
    for version, mark in marks:
        if mark is None:
            continue
        undone_to_version = undone_to(mark)
        if undone_to_version is not None:
            lost = [commit for commit in lost if commit[0] <= undone_to_version]
        elif (xid := transaction_of(mark)) is not None and xid not in intended:
            lost.append((version, xid))
    return lost
