"""Replication origins (pg_replication_origin) and how far each has been applied (hg.origin_progress).

An apply worker's origin is named ``pg_<subscription>``, a table's sync worker's ``pg_<subscription>_<relation>``. Progress is
written in the transaction that the log entry of the applied batch commits in; one worker writes one origin.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, insert, one, rows, run
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn

_lock = threading.Lock()
_given: set[int] = set()
"""Ids that this process has given out: none is given twice while the transaction that got it may still be open."""


@dataclass(frozen=True)
class OriginPosition:
    """`remote_lsn`: applied up to here in the publisher's log; `local_lsn`: end of the last such transaction in the node's."""

    ident: int
    name: str
    remote_lsn: Lsn
    local_lsn: Lsn


def find(cursor: Cursor, name: str) -> int | None:
    """The id of an origin (roident), or None."""
    found = one(cursor, "SELECT roident FROM hg.pg_replication_origin WHERE roname = ?", [name])
    return None if found is None else int(found[0])


def create(cursor: Cursor, name: str) -> int:
    """Makes an origin with the lowest free id; 23505 if the name is in use."""
    if find(cursor, name) is not None:
        index = "pg_replication_origin_roname_index"
        raise PostgresError(
            "23505", f'duplicate key value violates unique constraint "{index}"', detail=f"Key (roname)=({name}) already exists.",
            schema="pg_catalog", table="pg_replication_origin", constraint=index,
        )  # fmt: skip
    ident = _free_ident({ident for (ident,) in rows(cursor, "SELECT roident FROM hg.pg_replication_origin")})
    insert(cursor, "pg_replication_origin", roident=ident, roname=name)
    return ident


def _free_ident(taken: set[int]) -> int:
    """An id that is not in use; transactions that run side by side do not see each other's rows and must not get the same."""
    with _lock:
        if len(_given) > 30_000:
            _given.clear()
        ident = next(each for each in range(1, 65535) if each not in taken and each not in _given)
        _given.add(ident)
        return ident


def drop(cursor: Cursor, name: str, *, missing_ok: bool = False) -> None:
    """Removes an origin with its progress; 42704 if there is none, unless `missing_ok`."""
    ident = find(cursor, name)
    if ident is None:
        if missing_ok:
            return
        raise PostgresError("42704", f'replication origin "{name}" does not exist')
    run(cursor, "DELETE FROM hg.origin_progress WHERE roident = ?", [ident])
    run(cursor, "DELETE FROM hg.pg_replication_origin WHERE roident = ?", [ident])


def forget_subscription(cursor: Cursor, subscription: int) -> None:
    """Removes the origins of a subscription that is gone, and progress that belongs to no origin any more."""
    own = f"pg_{int(subscription)}"
    run(cursor, "DELETE FROM hg.pg_replication_origin WHERE roname = ? OR starts_with(roname, ?)", [own, f"{own}_"])
    run(cursor, "DELETE FROM hg.origin_progress WHERE roident NOT IN (SELECT roident FROM hg.pg_replication_origin)", [])


def progress(cursor: Cursor, name: str) -> OriginPosition | None:
    """How far an origin has been applied, None if nothing is recorded."""
    return next((each for each in all_progress(cursor) if each.name == name), None)


def advance(cursor: Cursor, name: str, remote_lsn: Lsn, local_lsn: Lsn = INVALID) -> None:
    """Records progress, forwards or backwards; 42704 if there is no such origin."""
    ident = find(cursor, name)
    if ident is None:
        raise PostgresError("42704", f'replication origin "{name}" does not exist')
    found = one(cursor, "UPDATE hg.origin_progress SET remote_lsn = ?, local_lsn = ? WHERE roident = ?", [remote_lsn, local_lsn, ident])
    if found is None or not found[0]:
        run(cursor, "INSERT INTO hg.origin_progress VALUES (?, ?, ?)", [ident, remote_lsn, local_lsn])


def check_room(cursor: Cursor, name: str, limit: int) -> None:
    """53400 if an origin that has no progress yet would be one too many to keep track of (max_replication_slots)."""
    known = all_progress(cursor)
    if len(known) >= limit and all(each.name != name for each in known):
        raise PostgresError(
            "53400",
            f"could not find free replication state slot for replication origin with ID {find(cursor, name)}",
            hint="Increase max_replication_slots and try again.",
        )


def all_progress(cursor: Cursor) -> list[OriginPosition]:
    """The rows of pg_replication_origin_status."""
    found = rows(
        cursor,
        "SELECT o.roident, o.roname, p.remote_lsn, p.local_lsn FROM hg.pg_replication_origin o JOIN hg.origin_progress p"
        " ON p.roident = o.roident ORDER BY 1",
    )
    return [OriginPosition(ident, name, Lsn(remote), Lsn(local)) for ident, name, remote, local in found]
