"""Replication origins (pg_replication_origin) and the progress of each (hg.origin_progress).

The origin of an apply worker is named ``pg_<subscription>``, that of a table's sync worker ``pg_<subscription>_<relation>``. Progress is
written in the transaction in which the log entry of the applied batch commits. Each origin is written by one worker.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, delete, insert, one, rows, run
from headgate.errors import PostgresError, existing
from headgate.lsn import INVALID, Lsn

_lock = threading.Lock()
_given: set[int] = set()
"""Ids that this process has assigned. No id is assigned twice while the transaction that received it may still be open."""


@dataclass(frozen=True)
class OriginPosition:
    """An origin's progress: `remote_lsn` in the publisher's log, `local_lsn` the end of its last applied transaction in the node's log."""

    ident: int
    name: str
    remote_lsn: Lsn
    local_lsn: Lsn


def find(cursor: Cursor, name: str) -> int | None:
    """Return the id of an origin (roident), or None."""
    row = one(cursor, "SELECT roident FROM hg.pg_replication_origin WHERE roname = ?", [name])
    return None if row is None else int(row[0])


def create(cursor: Cursor, name: str) -> int:
    """Create an origin with the lowest free id. Raise 23505 if the name is in use."""
    if find(cursor, name) is not None:
        index = "pg_replication_origin_roname_index"
        raise PostgresError(
            "23505", f'duplicate key value violates unique constraint "{index}"', detail=f"Key (roname)=({name}) already exists.",
            schema="pg_catalog", table="pg_replication_origin", constraint=index,
        )  # fmt: skip
    ident = _free_ident({ident for (ident,) in rows(cursor, "SELECT roident FROM hg.pg_replication_origin")})
    insert(cursor, "pg_replication_origin", roident=ident, roname=name)
    return ident


def _free_ident(used: set[int]) -> int:
    """Return a free id. Concurrent transactions do not see each other's rows, and must not receive the same id."""
    with _lock:
        if len(_given) > 30_000:
            _given.clear()
        ident = next(candidate for candidate in range(1, 65535) if candidate not in used and candidate not in _given)
        _given.add(ident)
        return ident


def drop(cursor: Cursor, name: str, *, missing_ok: bool = False) -> None:
    """Drop an origin with its progress. Raise 42704 if it does not exist, unless `missing_ok`."""
    ident = find(cursor, name)
    if ident is None:
        if missing_ok:
            return
        raise PostgresError("42704", f'replication origin "{name}" does not exist')
    delete(cursor, "origin_progress", roident=ident)
    delete(cursor, "pg_replication_origin", roident=ident)


def forget_subscription(cursor: Cursor, subscription: int) -> None:
    """Delete the origins of a dropped subscription, and progress without an origin."""
    own = f"pg_{int(subscription)}"
    run(cursor, "DELETE FROM hg.pg_replication_origin WHERE roname = ? OR starts_with(roname, ?)", [own, f"{own}_"])
    run(cursor, "DELETE FROM hg.origin_progress WHERE roident NOT IN (SELECT roident FROM hg.pg_replication_origin)", [])


def of_syncs(cursor: Cursor, subscription: int) -> set[int]:
    """Return the tables (oids), dropped ones included, whose sync has an origin: its slot has not been dropped on the publisher yet."""
    own = f"pg_{int(subscription)}_"
    names = rows(cursor, "SELECT roname FROM hg.pg_replication_origin WHERE starts_with(roname, ?)", [own])
    return {int(name.removeprefix(own)) for (name,) in names}


def progress(cursor: Cursor, name: str) -> OriginPosition | None:
    return next((position for position in all_progress(cursor) if position.name == name), None)


def advance(cursor: Cursor, name: str, remote_lsn: Lsn, local_lsn: Lsn = INVALID, *, backward: bool = False) -> None:
    """Record progress. It moves backward only if `backward` is set. Raise 42704 if the origin does not exist.

    A transaction may have an older remote LSN than the progress: a prepared one that its publisher sends at its COMMIT PREPARED.
    """
    ident = existing(find(cursor, name), "42704", f'replication origin "{name}"')
    remote = "?" if backward else "greatest(remote_lsn, ?)"
    sql = f"UPDATE hg.origin_progress SET remote_lsn = {remote}, local_lsn = ? WHERE roident = ?"
    updated = one(cursor, sql, [remote_lsn, local_lsn, ident])
    if updated is None or not updated[0]:
        run(cursor, "INSERT INTO hg.origin_progress VALUES (?, ?, ?)", [ident, remote_lsn, local_lsn])


def check_room(cursor: Cursor, name: str, limit: int) -> None:
    """Raise 53400 if an origin without progress would exceed the limit of tracked origins (max_replication_slots)."""
    positions = all_progress(cursor)
    if len(positions) >= limit and all(position.name != name for position in positions):
        raise PostgresError(
            "53400",
            f"could not find free replication state slot for replication origin with ID {find(cursor, name)}",
            hint="Increase max_replication_slots and try again.",
        )


def all_progress(cursor: Cursor) -> list[OriginPosition]:
    """Return the rows of pg_replication_origin_status."""
    positions = rows(
        cursor,
        "SELECT o.roident, o.roname, p.remote_lsn, p.local_lsn FROM hg.pg_replication_origin o JOIN hg.origin_progress p"
        " ON p.roident = o.roident ORDER BY 1",
    )
    return [OriginPosition(ident, name, Lsn(remote), Lsn(local)) for ident, name, remote, local in positions]
