"""The durable part of replication slots (hg.replication_slot); who is active on one is the publisher's to know.

A slot's row is written by the walsender that has acquired the slot and by nobody else. Temporary slots have no row.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog.physical import Cursor, one, rows, run
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn


@dataclass(frozen=True)
class Slot:
    """A logical slot. `database`: oid; `restart_lsn`: log that the slot still needs; `confirmed_flush_lsn`: what the client has.

    `two_phase_at`: what was prepared before is sent as a whole when it is committed; `created_lsn`: where the slot was made, no
    change is judged by an earlier catalog; `lost`: the slot was invalidated because it needed more than max_slot_wal_keep_size, or,
    `idle`, as nobody has used it for idle_replication_slot_timeout; `failover`: it was made so (17); a node has no standby to which it
    could be copied.
    """

    name: str
    plugin: str
    database: int
    restart_lsn: Lsn
    confirmed_flush_lsn: Lsn
    temporary: bool = False
    two_phase: bool = False
    two_phase_at: Lsn = INVALID
    created_lsn: Lsn = INVALID
    lost: bool = False
    failover: bool = False
    idle: bool = False

    @property
    def invalidation(self) -> str | None:
        """Why it was invalidated, by the word of 17's pg_replication_slots."""
        return "idle_timeout" if self.idle else "wal_removed" if self.lost else None


_COLUMNS = (
    "slot_name, plugin, datoid, restart_lsn, confirmed_flush_lsn, temporary, two_phase, two_phase_at, created_lsn, lost, failover, idle"
)
LATER_COLUMNS = (("failover", "BOOLEAN"), ("idle", "BOOLEAN"))
"""Those that directories of the first of format 4 have not: they get them when they are opened."""


def lookup(cursor: Cursor, name: str) -> Slot | None:
    """The slot of this name, or None."""
    found = one(cursor, f"SELECT {_COLUMNS} FROM hg.replication_slot WHERE slot_name = ?", [name])
    return None if found is None else _slot(*found)


def get(cursor: Cursor, name: str) -> Slot:
    """The slot of this name; 42704 if there is none."""
    found = lookup(cursor, name)
    if found is None:
        raise PostgresError("42704", f'replication slot "{name}" does not exist')
    return found


def all_slots(cursor: Cursor) -> list[Slot]:
    """All slots by name."""
    return [_slot(*row) for row in rows(cursor, f"SELECT {_COLUMNS} FROM hg.replication_slot ORDER BY slot_name")]


def create(cursor: Cursor, slot: Slot) -> Slot:
    """Writes a new slot; 42710 if the name is in use."""
    if lookup(cursor, slot.name) is not None:
        raise PostgresError("42710", f'replication slot "{slot.name}" already exists')
    run(
        cursor,
        f"INSERT INTO hg.replication_slot ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            *(slot.name, slot.plugin, slot.database, slot.restart_lsn, slot.confirmed_flush_lsn, slot.temporary, slot.two_phase),
            *(slot.two_phase_at, slot.created_lsn, slot.lost, slot.failover, slot.idle),
        ],
    )
    return slot


def advance(cursor: Cursor, name: str, restart_lsn: Lsn, confirmed_flush_lsn: Lsn) -> None:
    """Writes the positions of a slot."""
    sql = "UPDATE hg.replication_slot SET restart_lsn = ?, confirmed_flush_lsn = ? WHERE slot_name = ?"
    run(cursor, sql, [restart_lsn, confirmed_flush_lsn, name])


def alter(cursor: Cursor, slot: Slot) -> None:
    """Writes the flags of a slot, and from where on prepared transactions are decoded when they are prepared."""
    sql = "UPDATE hg.replication_slot SET two_phase = ?, two_phase_at = ?, failover = ? WHERE slot_name = ?"
    run(cursor, sql, [slot.two_phase, slot.two_phase_at, slot.failover, slot.name])


def lose(cursor: Cursor, name: str, *, idle: bool = False) -> None:
    """The slot is invalidated: the log that it needs is given up."""
    run(cursor, "UPDATE hg.replication_slot SET lost = TRUE, idle = ? WHERE slot_name = ?", [idle, name])


def drop(cursor: Cursor, name: str) -> None:
    """Removes a slot."""
    run(cursor, "DELETE FROM hg.replication_slot WHERE slot_name = ?", [name])


def drop_database(cursor: Cursor, database: int) -> None:
    """Removes the slots of a database that is dropped."""
    run(cursor, "DELETE FROM hg.replication_slot WHERE datoid = ?", [database])


def _slot(name: str, plugin: str, database: int, restart: int, confirmed: int, temporary: bool, two_phase: bool, *rest: int) -> Slot:
    two_phase_at, created, lost, failover, idle = rest
    return Slot(
        name,
        plugin,
        database,
        Lsn(restart or 0),
        Lsn(confirmed or 0),
        temporary,
        two_phase,
        Lsn(two_phase_at or 0),
        Lsn(created or 0),
        bool(lost),
        bool(failover),
        bool(idle),
    )
