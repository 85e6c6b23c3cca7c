"""The durable part of replication slots (hg.replication_slot), written by `publisher.slots`.

The publisher keeps track of the process that uses a slot. Temporary slots have no row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, delete, one, rows, run, update
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn


@dataclass(frozen=True)
class Slot:
    """A logical slot. `database` is an oid, `restart_lsn` the oldest log that the slot needs, `confirmed_flush_lsn` the client's position.

    `two_phase_at`: transactions prepared before it are sent as a whole when they are committed. `created_lsn`: the position at which the
    slot was created; no change is evaluated with an earlier catalog. `lost`: the slot was invalidated because it needed more than
    max_slot_wal_keep_size, or, with `idle`, because it was not used for idle_replication_slot_timeout. `failover`: it was created with the
    option of PostgreSQL 17; a node has no standby to which the slot could be copied.
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
        """The reason for the invalidation in the words of PostgreSQL 17's pg_replication_slots, or None."""
        return "idle_timeout" if self.idle else "wal_removed" if self.lost else None


_COLUMNS = (
    "slot_name, plugin, datoid, restart_lsn, confirmed_flush_lsn, temporary, two_phase, two_phase_at, created_lsn, lost, failover, idle"
)

_CREATED = "last slot of database "
"""The prefix of the counters that hold the LSN at which the last slot of a database was created. Its oid follows."""


def lookup(cursor: Cursor, name: str) -> Slot | None:
    row = one(cursor, f"SELECT {_COLUMNS} FROM hg.replication_slot WHERE slot_name = ?", [name])
    return None if row is None else _slot(row)


def all_slots(cursor: Cursor) -> list[Slot]:
    return [_slot(row) for row in rows(cursor, f"SELECT {_COLUMNS} FROM hg.replication_slot ORDER BY slot_name")]


def create(cursor: Cursor, slot: Slot) -> Slot:
    """Write a new slot. Raise 42710 if the name is in use."""
    if lookup(cursor, slot.name) is not None:
        raise PostgresError("42710", f'replication slot "{slot.name}" already exists')
    run(
        cursor,
        f"INSERT INTO hg.replication_slot ({_COLUMNS}) VALUES ({', '.join('?' * len(fields(slot)))})",
        [getattr(slot, field.name) for field in fields(slot)],
    )
    created = max(slot.created_lsn, last_created(cursor).get(slot.database, INVALID))
    delete(cursor, "counter", name=f"{_CREATED}{slot.database}")
    run(cursor, "INSERT INTO hg.counter VALUES (?, ?)", [f"{_CREATED}{slot.database}", int(created)])
    return slot


def last_created(cursor: Cursor) -> dict[int, Lsn]:
    """Return the LSN at which the last permanent slot of each database was created, even if it has been dropped."""
    created = rows(cursor, "SELECT name, max(value) FROM hg.counter WHERE starts_with(name, ?) GROUP BY name", [_CREATED])
    return {int(name.removeprefix(_CREATED)): Lsn(lsn) for name, lsn in created}


def advance(cursor: Cursor, name: str, restart_lsn: Lsn, confirmed_flush_lsn: Lsn) -> None:
    """Write the positions of a slot, unless it has passed them: a checkpoint may write an older position after the walsender."""
    sql = "UPDATE hg.replication_slot SET restart_lsn = ?, confirmed_flush_lsn = ? WHERE slot_name = ? AND confirmed_flush_lsn < ?"
    run(cursor, sql, [restart_lsn, confirmed_flush_lsn, name, confirmed_flush_lsn])


def alter(cursor: Cursor, slot: Slot) -> None:
    """Write the flags of a slot, and the position from which prepared transactions are decoded at PREPARE."""
    update(
        cursor,
        "replication_slot",
        {"slot_name": slot.name},
        two_phase=slot.two_phase,
        two_phase_at=slot.two_phase_at,
        failover=slot.failover,
    )


def lose(cursor: Cursor, name: str, *, idle: bool = False) -> None:
    """Mark a slot as invalidated, so that the log it needs can be removed."""
    update(cursor, "replication_slot", {"slot_name": name}, lost=True, idle=idle)


def drop(cursor: Cursor, name: str) -> None:
    delete(cursor, "replication_slot", slot_name=name)


def drop_database(cursor: Cursor, database: int) -> None:
    delete(cursor, "replication_slot", datoid=database)
    delete(cursor, "counter", name=f"{_CREATED}{database}")


def _slot(row: Row) -> Slot:
    """Return the slot of a row, whose columns are in the order of the fields. Columns of a later version may be NULL."""
    return Slot(*row[:3], *map(_lsn, row[3:5]), *row[5:7], *map(_lsn, row[7:9]), *map(bool, row[9:]))


def _lsn(value: int | None) -> Lsn:
    return Lsn(value or 0)
