"""Logical replication slots: positions in the node's log that outlive their client (manual, 49.2.2).

A node has one `Slots` object. The durable part of a slot is its row in the catalog (`catalog.replication.slot`). The backend that uses it,
and temporary slots, exist only here. Invariants: a slot is acquired by one backend at a time (55006). `confirmed_flush_lsn` never moves
backward. The log from `restart_lsn` on is retained (`oldest`). Transactions are in a node's log only after they have committed, so nothing
before `confirmed_flush_lsn` is ever needed again: `restart_lsn` is the same position.

The confirmed position is persisted in the catalog at most every `PERSIST_SECONDS`, at a checkpoint, and when the slot is released. After
a crash a slot may send transactions again that its client has confirmed, but never skips any, as in PostgreSQL. A subscriber sends its own
position when it starts to stream.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from headgate.catalog.replication import slot as stored
from headgate.catalog.replication.slot import Slot
from headgate.errors import PostgresError, disk_full, existing
from headgate.failpoint import Step
from headgate.lsn import INVALID, Lsn
from headgate.publisher.framing import Counts

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog
    from headgate.storage.transaction.log import TransactionLog


@dataclass(frozen=True)
class Exported:
    """One exported snapshot."""

    position: Lsn
    database: int
    pid: int


class Snapshots:
    """The exported snapshots of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._exported: dict[str, Exported] = {}
        self._held: dict[int, Lsn] = {}

    def export(self, position: Lsn, database: int, pid: int) -> str:
        """Export a snapshot and return its name, in PostgreSQL's format ``00000004-0000138E-1``."""
        with self._lock:
            name = f"{pid & 0xFFFFFFFF:08X}-{next(self._numbers) & 0xFFFFFFFF:08X}-1"
            self._exported[name] = Exported(position, database, pid)
            return name

    def find(self, name: str, database: int) -> Lsn:
        """Return the position of a snapshot. Raise 22023 if it does not exist, 0A000 if it belongs to another database."""
        with self._lock:
            snapshot = self._exported.get(name)
        if snapshot is None:
            raise PostgresError("22023", f'invalid snapshot identifier: "{name}"')
        if snapshot.database != database:
            raise PostgresError("0A000", "cannot import a snapshot from a different database")
        return snapshot.position

    def forget(self, pid: int) -> None:
        """Remove the snapshots that a backend has exported."""
        with self._lock:
            for name in [name for name, snapshot in self._exported.items() if snapshot.pid == pid]:
                del self._exported[name]

    @contextlib.contextmanager
    def holding(self, position: Lsn) -> Iterator[None]:
        """Retain the log and the tables' files from `position` on inside the context, without an exported name."""
        with self._lock:
            number = next(self._numbers)
            self._held[number] = position
        try:
            yield
        finally:
            with self._lock:
                del self._held[number]

    def positions(self) -> list[Lsn]:
        with self._lock:
            return [*(snapshot.position for snapshot in self._exported.values()), *self._held.values()]


_log = logging.getLogger("headgate.publisher")

PERSIST_SECONDS = 0.5
WAIT_SECONDS = 0.1
"""The interval at which a backend that waits for a slot checks whether it must end."""
RELEASE_SECONDS = 10.0
"""The time for which a checkpoint waits until the terminated backend of a slot has released it."""
PLUGIN = "pgoutput"
IDLE_TIMEOUT = "idle_replication_slot_timeout"
_NAME = re.compile(r"[a-z0-9_]+\Z")
NAME_LENGTH = 63


@dataclass
class SlotState:
    """The current state of a slot: `slot` with its latest positions, `active` the pid of its backend, `owner` that of a temporary slot."""

    slot: Slot
    active: int | None = None
    owner: int | None = None
    persisted: Lsn = INVALID
    """The confirmed position in the catalog; INVALID for a temporary slot."""
    persisted_at: float = 0.0
    counts: Counts = field(default_factory=Counts)
    reset: float | None = None
    inactive_since: float | None = field(default_factory=time.time)
    """When it was released or created. None while it is in use."""


_TEMPORARY_FAILOVER = "cannot enable failover for a temporary replication slot"


def invalidated(slot: Slot) -> PostgresError:
    """Return PostgreSQL 18's error for the use of an invalidated slot."""
    message = f'can no longer access replication slot "{slot.name}"'
    return PostgresError("55000", message, detail=f'This replication slot has been invalidated due to "{slot.invalidation}".')


def check_name(name: str) -> None:
    """Raise 42602 (or 42622) for an invalid slot name."""
    if not name:
        raise PostgresError("42602", f'replication slot name "{name}" is too short')
    if len(name.encode()) > NAME_LENGTH:
        raise PostgresError("42622", f'replication slot name "{name}" is too long')
    if not _NAME.match(name):
        raise PostgresError(
            "42602",
            f'replication slot name "{name}" contains invalid character',
            hint="Replication slot names may only contain lower case letters, numbers, and the underscore character.",
        )


class Slots:
    """All slots of the node. All methods are thread-safe."""

    def __init__(self, catalog: Catalog, log: TransactionLog, limit: Callable[[], int], wal_level: Callable[[], str]) -> None:
        """`limit` returns max_replication_slots."""
        self._catalog = catalog
        self._log = log
        self._limit = limit
        self._wal_level = wal_level
        self._changed = threading.Condition()
        self.snapshots = Snapshots()
        self.refused_at = 0.0
        """When a slot was last refused because of the limit (seconds, monotonic)."""
        with contextlib.closing(catalog.cursor()) as cursor:
            self._states = {slot.name: SlotState(slot, persisted=slot.confirmed_flush_lsn) for slot in stored.all_slots(cursor)}

    # ---- creating and dropping ----------------------------------------------------------------------------
    def create(
        self, name: str, plugin: str, database: int, *, pid: int, temporary: bool = False, two_phase: bool = False, failover: bool = False
    ) -> Slot:
        """Create a slot at the end of the log. Raise 42602, 42710, 53400, 55000 or 58P01 as PostgreSQL does."""
        with self._log.commit_lock, self._changed:
            self._check_new(name)
            if failover and temporary:
                raise PostgresError("0A000", _TEMPORARY_FAILOVER)
            end = self._log.create_slot(database)
            slot = Slot(name, plugin, database, end, end, temporary, two_phase, end if two_phase else INVALID, end, failover=failover)
            self._add(slot, pid)
        return self._store(slot, pid)

    def copy(self, source: str, name: str, *, pid: int, plugin: str | None = None, temporary: bool | None = None) -> Slot:
        """Create a slot that sends what another one has yet to send. By default it has the plugin and the lifetime of the other one.

        The position is read under the lock under which `oldest` finds it. So the log from there on is not removed in the meantime. Raise
        42704 if the source does not exist, 55000 if it is invalidated, otherwise as `create`.
        """
        with self._changed:
            original = self._find(source).slot
            if original.idle:
                raise PostgresError("55000", f'cannot copy invalidated replication slot "{source}"')
            if original.lost:
                raise PostgresError("55000", "cannot copy a replication slot that doesn't reserve WAL")
            self._check_new(name)
            is_temporary = original.temporary if temporary is None else temporary
            slot = replace(original, name=name, plugin=plugin or original.plugin, temporary=is_temporary)
            slot = replace(slot, two_phase=False, two_phase_at=INVALID, failover=False)
            self._add(slot, pid)
        return self._store(slot, pid)

    def _check_new(self, name: str) -> None:
        """Raise an error if the node does not create slots, or the name is invalid."""
        if not self._limit():
            raise PostgresError("55000", "replication slots can only be used if max_replication_slots > 0")
        if self._wal_level() != "logical":
            raise PostgresError("55000", "logical decoding requires wal_level >= logical")
        check_name(name)

    def _add(self, slot: Slot, pid: int) -> None:
        """Add a new slot, which its backend holds. The caller holds the lock."""
        if slot.name in self._states:
            raise PostgresError("42710", f'replication slot "{slot.name}" already exists')
        if len(self._states) >= self._limit():
            self.refused_at = time.monotonic()
            raise PostgresError("53400", "all replication slots are in use", hint="Free one or increase max_replication_slots.")
        if slot.plugin != PLUGIN:
            raise PostgresError("58P01", f'could not access file "{slot.plugin}": No such file or directory')
        owner, persisted = (pid, INVALID) if slot.temporary else (None, slot.confirmed_flush_lsn)
        self._states[slot.name] = SlotState(slot, active=pid, owner=owner, persisted=persisted, inactive_since=None)

    def _store(self, slot: Slot, pid: int) -> Slot:
        """Make a new slot durable, and release it."""
        if not slot.temporary:
            try:
                self._catalog.change(lambda cursor: stored.create(cursor, slot), Step.SLOT)
            except BaseException:
                self._remove(slot.name)
                raise
        self.release(slot.name, pid)
        return slot

    def drop(self, name: str, pid: int, wait: Callable[[], None] | None = None) -> None:
        """Drop a slot. `wait` as for `acquire`."""
        check_name(name)
        slot = self.acquire(name, pid, wait)
        if not slot.temporary:
            try:
                self._catalog.change(lambda cursor: stored.drop(cursor, name), Step.SLOT)
            except BaseException:
                self.release(name, pid)
                raise
        self._remove(name)

    def _remove(self, name: str) -> None:
        with self._changed:
            self._states.pop(name, None)
            self._changed.notify_all()

    # ---- use --------------------------------------------------------------------------------------------
    def _find(self, name: str) -> SlotState:
        return existing(self._states.get(name), "42704", f'replication slot "{name}"')

    def get(self, name: str) -> Slot:
        """Return the slot with its latest positions. Raise 42704 if it does not exist."""
        with self._changed:
            return self._find(name).slot

    def find(self, name: str) -> Slot | None:
        with self._changed:
            state = self._states.get(name)
            return None if state is None else state.slot

    def all(self) -> list[SlotState]:
        """Return the current state of all slots, ordered by name."""
        with self._changed:
            return [replace(self._states[name]) for name in sorted(self._states)]

    def acquire(self, name: str, pid: int, wait: Callable[[], None] | None = None) -> Slot:
        """Acquire the slot for a backend. Raise 42704 if it does not exist, 55006 if it is in use.

        With `wait`, wait until no other backend uses it. `wait` is called periodically and may raise to end the wait. The temporary slot of
        another session is not awaited.
        """
        with self._changed:
            state = self._find(name)
            while (holder := state.active or (state.owner if state.owner != pid else None)) is not None:
                if wait is None or state.owner not in (None, pid):
                    raise PostgresError("55006", f'replication slot "{name}" is active for PID {holder}')
                self._changed.wait(WAIT_SECONDS)
                wait()
                state = self._find(name)
            state.active, state.inactive_since = pid, None
            return state.slot

    def enable_two_phase(self, name: str, at: Lsn) -> None:
        """Decode prepared transactions at PREPARE from `at` on, unless that is already enabled."""
        self._flag(name, two_phase=True, two_phase_at=at)

    def alter(self, name: str, pid: int, flags: Mapping[str, bool], wait: Callable[[], None]) -> None:
        """Set `failover` and `two_phase` (ALTER_REPLICATION_SLOT). `wait` as for `acquire`."""
        slot = self.acquire(name, pid, wait)
        try:
            if slot.lost:
                raise invalidated(slot)
            if slot.temporary and flags.get("failover"):
                raise PostgresError("0A000", _TEMPORARY_FAILOVER)
            since = {"two_phase_at": slot.confirmed_flush_lsn} if flags.get("two_phase") and not slot.two_phase else {}
            self._flag(name, **flags, **since)
        finally:
            self.release(name, pid)

    def _flag(self, name: str, **changed: Any) -> None:
        """Change properties of an acquired slot durably, if they differ."""
        with self._changed:
            state = self._find(name)
            slot = state.slot
        if all(getattr(slot, key) == value for key, value in changed.items() if key != "two_phase_at"):
            return
        if not slot.temporary:
            self._catalog.change(lambda cursor: stored.alter(cursor, replace(slot, **changed)), Step.SLOT)
        with self._changed:
            state.slot = replace(state.slot, **changed)

    def release(self, name: str, pid: int) -> None:
        """Release the slot if the backend holds it, and persist its position."""
        with self._changed:
            state = self._states.get(name)
            if state is None or state.active != pid:
                return
        try:
            self._try_to_persist(name)
        finally:
            with self._changed:
                state.active = None
                if state.owner is None and not state.slot.lost:
                    state.inactive_since = time.time()
                self._changed.notify_all()

    def confirm(self, name: str, position: Lsn) -> None:
        """Confirm everything up to `position` for the client. The position never moves backward or past the end of the log."""
        with self._changed:
            state = self._find(name)
            target = min(position, self._log.end)
            if target <= state.slot.confirmed_flush_lsn:
                return
            state.slot = replace(state.slot, confirmed_flush_lsn=target, restart_lsn=target)
            due = time.monotonic() - state.persisted_at >= PERSIST_SECONDS
        if due:
            self._try_to_persist(name)

    def _try_to_persist(self, name: str) -> None:
        """Persist the position. If the disk is full, log that; it is retried later and the stream continues."""
        try:
            self.persist(name)
        except Exception as error:
            full = disk_full(error)
            if full is None:
                raise
            _log.warning('could not save the position of replication slot "%s": %s', name, full.message)

    def persist(self, name: str) -> None:
        """Write the confirmed position to the catalog if it is not there yet."""
        with self._changed:
            state = self._states.get(name)
            if state is None or state.slot.temporary or state.persisted >= state.slot.confirmed_flush_lsn:
                return
            slot = state.slot
            state.persisted_at = time.monotonic()
        self._catalog.change(lambda cursor: stored.advance(cursor, name, slot.restart_lsn, slot.confirmed_flush_lsn), Step.SLOT)
        with self._changed:  # only now, because the files that a slot needs after a restart must stay
            state.persisted = max(state.persisted, slot.confirmed_flush_lsn)

    def persist_all(self) -> None:
        """Persist all positions that are not in the catalog yet, at each checkpoint and at shutdown."""
        for state in self.all():
            self._try_to_persist(state.slot.name)

    def advance(self, name: str, target: Lsn, pid: int) -> Lsn:
        """Advance the slot to `target` or the log's end and return its position (pg_replication_slot_advance)."""
        slot = self.acquire(name, pid)
        try:
            target = min(target, self._log.end)
            if slot.idle:
                raise invalidated(slot)
            if slot.lost:
                raise PostgresError(
                    "55000",
                    f'replication slot "{name}" cannot be advanced',
                    detail="This slot has never previously reserved WAL, or it has been invalidated.",
                )
            if target < slot.confirmed_flush_lsn:
                raise PostgresError("55000", f"cannot advance replication slot to {target}, minimum is {slot.confirmed_flush_lsn}")
            self.confirm(name, target)
            return self.get(name).confirmed_flush_lsn
        finally:
            self.release(name, pid)

    def count(self, name: str, counts: Counts) -> None:
        """Add to the slot's counts in pg_stat_replication_slots."""
        with self._changed:
            state = self._states.get(name)
            if state is not None:
                added = {counter.name: getattr(state.counts, counter.name) + getattr(counts, counter.name) for counter in fields(Counts)}
                state.counts = Counts(**added)

    def reset_statistics(self, name: str | None) -> None:
        """Reset the counts of a slot (None: of all). Raise 42704 if it does not exist."""
        with self._changed:
            for state in list(self._states.values()) if name is None else [self._find(name)]:
                state.counts = Counts()
                state.reset = time.time()

    def restore_statistics(self, statistics: Mapping[str, tuple[Counts, float | None]]) -> None:
        """Restore the counts, and the times of their reset, from before a restart."""
        with self._changed:
            for name, (counts, reset) in statistics.items():
                if name in self._states:
                    self._states[name].counts, self._states[name].reset = counts, reset

    # ---- invalidation --------------------------------------------------------------------------------
    def invalidate(self, limit: int, terminate: Callable[[int], object]) -> None:
        """Invalidate slots that need more than `limit` positions of the log.

        `terminate` ends the backend of an active slot. A slot that is not released in time is invalidated by the next checkpoint.
        """

        def is_behind(state: SlotState) -> bool:
            return not state.slot.lost and self._log.end - state.slot.restart_lsn > limit

        for shown in filter(is_behind, self.all()):
            name = shown.slot.name
            if shown.active is not None:
                _log.info('terminating process %d to release replication slot "%s"', shown.active, name)
                terminate(shown.active)
            with self._changed:
                self._changed.wait_for(lambda: name not in self._states or self._states[name].active is None, RELEASE_SECONDS)  # noqa: B023
                state = self._states.get(name)
                if state is None or state.active is not None or not is_behind(state):
                    continue
                state.slot = replace(state.slot, lost=True)
            self._store_loss(state)
            restart_lsn = state.slot.restart_lsn
            _log.info('invalidating slot "%s" because its restart_lsn %s exceeds max_slot_wal_keep_size', name, restart_lsn)

    def invalidate_idle(self, seconds: int) -> None:
        """Invalidate slots that have been inactive for `seconds`, at a checkpoint (idle_replication_slot_timeout of 18)."""
        for shown in self.all():
            with self._changed:
                state = self._states.get(shown.slot.name)
                if state is None or state.slot.lost or state.inactive_since is None:
                    continue
                idle = int(time.time() - state.inactive_since)
                if idle < seconds:
                    continue
                state.slot = replace(state.slot, lost=True, idle=True)
            self._store_loss(state)
            fields_of_log = {
                "detail": f'The slot\'s idle time of {idle}s exceeds the configured "{IDLE_TIMEOUT}" duration of {seconds}s.',
                "hint": f'You might need to increase "{IDLE_TIMEOUT}".',
            }
            _log.info('invalidating obsolete replication slot "%s"', state.slot.name, extra=fields_of_log)

    def _store_loss(self, state: SlotState) -> None:
        """Persist that a slot is lost. It was marked here first, so that no client streams from it in the meantime."""
        slot = state.slot
        if slot.temporary:
            return
        try:
            self._catalog.change(functools.partial(stored.lose, name=slot.name, idle=slot.idle), Step.SLOT)
        except BaseException:
            with self._changed:
                state.slot = replace(state.slot, lost=False, idle=False)
            raise

    # ---- databases --------------------------------------------------------------------------------------
    def active_in(self, database: int) -> int:
        """Return the number of slots of a database that are in use. A temporary slot is in use while its session exists."""
        with self._changed:
            slots_of_database = [state for state in self._states.values() if state.slot.database == database]
            return sum(state.active is not None or state.owner is not None for state in slots_of_database)

    def forget_database(self, database: int) -> None:
        """Remove the slots of a dropped database, whose catalog rows are already removed."""
        with self._changed:
            for name in [name for name, state in self._states.items() if state.slot.database == database]:
                del self._states[name]
            self._changed.notify_all()

    # ---- sessions ---------------------------------------------------------------------------------------
    def release_session(self, pid: int) -> None:
        """Release the slots of a backend that has ended, and drop its temporary slots and snapshots."""
        for state in self.all():
            if state.active == pid:
                self.release(state.slot.name, pid)
        self._drop_temporary(pid)
        self.snapshots.forget(pid)

    def error_in_session(self, pid: int) -> None:
        """Drop the session's temporary slots after an error, as PostgreSQL does (ReplicationSlotCleanup)."""
        self._drop_temporary(pid)

    def _drop_temporary(self, pid: int) -> None:
        with self._changed:
            for name in [name for name, state in self._states.items() if state.owner == pid]:
                del self._states[name]
            self._changed.notify_all()

    def oldest(self, database: int | None = None) -> Lsn:
        """Return the position from which the log and the tables' files of a database, or of all, are still needed."""
        with self._changed:
            needed = [state for state in self._states.values() if not state.slot.lost and database in (None, state.slot.database)]
            positions = [min(state.slot.restart_lsn, state.persisted or state.slot.restart_lsn) for state in needed]
        return min([*positions, *self.snapshots.positions(), self._log.end])
