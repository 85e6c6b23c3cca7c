"""Locks of tables, of row keys and of names: one transaction writes to a table until it ends, while others may still add rows.

    lock     held by one transaction, which commits versions of the Delta table; no other may commit one in between
    claim    held by any number of transactions: rows with these keys will be added once the transaction has the lock, at the latest at
             its commit (`pending_rows`)

    a request for the lock waits for   its holder, and for the claims in the table, unless the requester has one or adds no key
                                       (`beside_claims`). A requester with a claim that says which keys it adds (`keys`) waits for
                                       the claims of these keys
    a request for the lock alone       its holder and all claims of others: it changes the table's definition, and the rows that they are
    waits for                          about to add would not have been checked
    a request for a claim waits for    transactions that have claimed one of its keys
    a claim is rejected                if another transaction holds the lock or waits for it: the requester must then acquire the lock

A transaction holds catalog keys, of names and of objects' rows, until it ends (`catalog.hold`). Another transaction whose hold conflicts
waits for that. DROP and ALTER of a table wait for the lock and for the key of its row at once (`row`), for a partitioned table for those of
all its partitions (`acquire_all`). Acquired one after the other, they would deadlock with a transaction that has one and then needs
another.

Advisory locks (manual, 13.3.5) belong to sessions, not to transactions: `AdvisoryHolder`. A session waits for one in its transaction, so
that a deadlock through an advisory lock and a table is detected like any other. A session that holds one and has no transaction does not
wait for any.

Readers need no locks: they read the version that the log names. A writer that would deadlock gets 40P01, as in PostgreSQL. Deadlocks are
detected when the wait begins, not after `deadlock_timeout`.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.catalog.hold import Hold
from headgate.catalog.unique import CatalogKey
from headgate.errors import PostgresError
from headgate.storage.location.table_folders import Key
from headgate.storage.statistics import Statistics

Keys = Mapping[int, AbstractSet[Hashable]]
"""The keys of rows by unique index (oid), in a form that is equal for equal values. A row with a NULL in its key has none."""


class Mode(enum.StrEnum):
    """The kind of lock that a session waits for, as the DETAIL of a deadlock names it."""

    LOCK = "ExclusiveLock"
    CLAIM = "ShareLock"
    ADVISORY = "AdvisoryLock"


class AdvisoryKey(NamedTuple):
    """The key of an advisory lock as pg_locks shows it: the two halves of a bigint with `objsubid` 1, or two integers with 2."""

    database: int
    classid: int
    objid: int
    objsubid: int


@dataclass(frozen=True, eq=False)
class AdvisoryHolder:
    """A session that holds advisory locks. `transaction` returns the xid of its open transaction, if any."""

    pid: int
    transaction: Callable[[], int | None]

    @property
    def owner(self) -> int:
        """Return the xid that a waiter depends on, or a negative pid, which cannot be an xid, if the session has no transaction."""
        xid = self.transaction()
        return -self.pid if xid is None else xid


@dataclass
class AdvisoryCounts:
    """Number of times that a session holds one advisory lock in each mode."""

    exclusive: int = 0
    shared: int = 0


@dataclass(frozen=True)
class ShownLock:
    """A lock as pg_locks shows it (manual, 54.12): held by transaction `owner`, None for a session's, or waited for since `since`.

    It has one of: `relation` of a table; `xid` of another transaction, whose end is waited for; `advisory`; `row`, the catalog and oid.
    """

    mode: str
    pid: int | None
    owner: int | None
    database: int | None = None
    relation: int | None = None
    xid: int | None = None
    advisory: AdvisoryKey | None = None
    row: tuple[str, int] | None = None
    since: float | None = None
    """Seconds of the Unix epoch."""


ROW_EXCLUSIVE = "RowExclusiveLock"
"""PostgreSQL's name for the lock of a transaction that adds rows: like a claim, it conflicts with a table's lock but not with itself."""
_HOLD_MODES = {Hold.USE: "AccessShareLock", Hold.CHANGE: "ShareUpdateExclusiveLock", Hold.ALONE: "AccessExclusiveLock"}
"""The weakest PostgreSQL lock modes that conflict in the same way."""
_OF_OID = "_oid_index"


@dataclass(frozen=True)
class _Wait:
    """A transaction's wait for a lock; `blockers` returns the ids of the transactions that block it."""

    key: Key | CatalogKey | AdvisoryKey
    """Each type of key begins with the database."""
    mode: Mode
    blockers: Callable[[], set[int]]
    since: float = field(default_factory=time.time)
    shared: bool = False
    """Only for an advisory lock."""

    def description(self, blocking: int) -> str:
        match self.mode:
            case Mode.LOCK:
                return f"{self.mode} on relation {self.key[1]}"
            case Mode.CLAIM:
                return f"{self.mode} on transaction {blocking}"
            case Mode.ADVISORY:
                return f"advisory lock [{','.join(map(str, self.key))}]"


class Patience:
    """A session's limits on a wait for a lock: it ends when `check` raises, or with 55P03 after `timeout` seconds.

    `tell` is called with the mode that the session waits for, and with None after it. A transaction that has a `Patience` as `cancelled`
    passes it to `acquire` and `claim`. `pid` is the backend's.
    """

    def __init__(
        self,
        check: Callable[[], None],
        timeout: float | None = None,
        tell: Callable[[Mode | None], None] = lambda mode: None,
        pid: int | None = None,
    ) -> None:
        self.check, self.timeout, self.tell, self.pid = check, timeout, tell, pid

    def __call__(self) -> None:
        """Raise to end the wait."""
        self.check()


class TableLocks:
    """The holders of table locks, claims, catalog keys and advisory locks, and their waiters. An owner is a transaction's xid."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._changed = threading.Condition()
        self._owner: dict[Key, int] = {}
        self._claims: dict[Key, dict[int, dict[int, set[Hashable]]]] = {}
        self._holders: dict[CatalogKey, dict[int, Hold]] = {}
        self._held: dict[int, set[CatalogKey]] = {}
        """The catalog keys that each owner holds."""
        self._advisory: dict[AdvisoryKey, dict[AdvisoryHolder, AdvisoryCounts]] = {}
        self._waiting: dict[int, _Wait] = {}
        self._pids: dict[int, int] = {}
        """The backends of owners. A prepared transaction no longer has one."""

    def acquire(
        self,
        key: Key,
        owner: int,
        cancelled: Callable[[], None] | None = None,
        lock_timeout: float | None = None,
        *,
        beside_claims: bool = False,
        alone: bool = False,
        row: tuple[CatalogKey, Hold] | None = None,
        keys: Keys | None = None,
    ) -> None:
        """Acquire a table's lock for `owner`, waiting if necessary, and hold the catalog key `row` from the same moment.

        `keys` are those of rows that it is about to add: it waits for others that have claimed one of them. `cancelled` is called ten times
        a second while waiting and raises to end the wait. Raise 40P01 on a deadlock, 55P03 after `lock_timeout` seconds.
        """

        def blockers() -> set[int]:
            users = set() if row is None else self._others(row[0], owner, row[1])
            return users | self._writers(key, owner, beside_claims=beside_claims, alone=alone) | self._claimants(key, owner, keys or {})

        with self._changed:
            self._wait(owner, _Wait(key, Mode.LOCK, blockers), cancelled, lock_timeout)
            self._owner[key] = owner
            if row is not None:
                self._hold(row[0], owner, row[1])

    def acquire_all(
        self, keys: Sequence[Key], owner: int, rows: Mapping[CatalogKey, Hold], cancelled: Callable[[], None] | None = None
    ) -> None:
        """Acquire the locks of several tables alone and hold catalog keys at the same moment. Raises as `acquire` does.

        A waiting transaction holds none of them, so it cannot deadlock with one that has one lock and then needs another.
        """

        def blockers() -> set[int]:
            users = [self._others(row, owner, hold) for row, hold in rows.items()]
            return set().union(*users, *(self._writers(key, owner, alone=True) for key in keys))

        with self._changed:
            self._wait(owner, _Wait(keys[0], Mode.LOCK, blockers), cancelled, None)
            self._owner.update(dict.fromkeys(keys, owner))
            for row, hold in rows.items():
                self._hold(row, owner, hold)

    def _writers(self, key: Key, owner: int, *, beside_claims: bool = False, alone: bool) -> set[int]:
        """Return the transactions that a request for the table's lock must wait for: the other holder, or those with claims."""
        holder = self._owner.get(key)
        if holder is not None and holder != owner:
            return {holder}
        claims = self._claims.get(key, {})
        if not alone and (beside_claims or holder == owner or owner in claims):
            return set()
        return set(claims) - {owner}

    def _claimants(self, key: Key, owner: int, keys: Keys) -> set[int]:
        """Return the other transactions that have claimed one of these keys."""
        return {xid for xid, claimed in self._claims.get(key, {}).items() if xid != owner and _meet(keys, claimed)}

    def claim(self, key: Key, owner: int, keys: Keys, cancelled: Callable[[], None] | None = None) -> bool:
        """Claim keys of a table for `owner`, waiting for others that have claimed one of them. Raises as `acquire` does.

        Return False if `owner` itself has claimed one of them, or if another transaction holds the table's lock or waits for it.
        """

        def blockers() -> set[int]:
            return self._claimants(key, owner, keys)

        with self._changed:
            if self._is_closed(key, owner) or _meet(keys, self._claims.get(key, {}).get(owner, {})):
                return False
            self._wait(owner, _Wait(key, Mode.CLAIM, blockers), cancelled, None)
            if self._is_closed(key, owner):
                return False
            mine = self._claims.setdefault(key, {}).setdefault(owner, {})
            for index, added in keys.items():
                mine.setdefault(index, set()).update(added)
            return True

    def claim_catalog(self, key: CatalogKey, owner: int, cancelled: Callable[[], None] | None = None, hold: Hold = Hold.ALONE) -> None:
        """Hold a catalog key for `owner`, waiting for others whose holds conflict. Raises as `acquire` does."""

        def blockers() -> set[int]:
            return self._others(key, owner, hold)

        with self._changed:
            self._wait(owner, _Wait(key, Mode.CLAIM, blockers), cancelled, None)
            self._hold(key, owner, hold)

    def acquire_advisory(
        self,
        key: AdvisoryKey,
        holder: AdvisoryHolder,
        owner: int | None,
        *,
        shared: bool,
        most: int,
        cancelled: Callable[[], None] | None = None,
    ) -> bool:
        """Acquire an advisory lock once for a session, waiting in its transaction `owner`. Return False instead of waiting if that is None.

        Raise 53200 if `most` advisory locks are held. While waiting, it raises as `acquire` does.
        """

        def blockers() -> set[int]:
            others = [(blocker, counts) for blocker, counts in self._advisory.get(key, {}).items() if blocker is not holder]
            return {blocker.owner for blocker, counts in others if counts.exclusive or not shared}

        with self._changed:
            if owner is not None:
                self._wait(owner, _Wait(key, Mode.ADVISORY, blockers, shared=shared), cancelled, None)
            elif blockers():
                return False
            if key not in self._advisory and len(self._advisory) >= most:
                raise PostgresError("53200", "out of shared memory", hint="You might need to increase max_locks_per_transaction.")
            counts = self._advisory.setdefault(key, {}).setdefault(holder, AdvisoryCounts())
            if shared:
                counts.shared += 1
            else:
                counts.exclusive += 1
            return True

    def release_advisory(self, key: AdvisoryKey, holder: AdvisoryHolder, *, shared: bool) -> None:
        """Release an advisory lock that the session holds, once."""
        with self._changed:
            counts = self._advisory[key][holder]
            if shared:
                counts.shared -= 1
            else:
                counts.exclusive -= 1
            if not counts.shared and not counts.exclusive:
                del self._advisory[key][holder]
                if not self._advisory[key]:
                    del self._advisory[key]
            self._changed.notify_all()

    def shown(self) -> list[ShownLock]:
        """Return all locks at this moment: held, and waited for."""
        with self._changed:
            return [*self._shown_held(), *self._shown_advisory(), *self._shown_waiting()]

    def _shown_held(self) -> Iterator[ShownLock]:
        for (database, relation), owner in self._owner.items():
            yield ShownLock(Mode.LOCK, self._pids.get(owner), owner, database, relation)
        for (database, relation), claims in self._claims.items():
            for owner in claims:
                yield ShownLock(ROW_EXCLUSIVE, self._pids.get(owner), owner, database, relation)
        for key, holders in self._holders.items():
            if key.constraint.endswith(_OF_OID):
                row = (key.constraint.removesuffix(_OF_OID), int(str(key.values[0])))
                for owner, hold in holders.items():
                    yield ShownLock(_HOLD_MODES[hold], self._pids.get(owner), owner, key.database, row=row)
        owners = {*self._owner.values(), *self._held, *self._waiting, *(owner for claims in self._claims.values() for owner in claims)}
        for owner in owners:
            yield ShownLock(Mode.LOCK, self._pids.get(owner), owner, xid=owner)

    def _shown_advisory(self) -> Iterator[ShownLock]:
        for key, holders in self._advisory.items():
            for holder, counts in holders.items():
                for mode, count in ((Mode.LOCK, counts.exclusive), (Mode.CLAIM, counts.shared)):
                    if count:
                        yield ShownLock(mode, holder.pid, holder.transaction(), key.database, advisory=key)

    def _shown_waiting(self) -> Iterator[ShownLock]:
        for owner, wait in self._waiting.items():
            pid = self._pids.get(owner)
            if isinstance(wait.key, AdvisoryKey):
                mode = Mode.CLAIM if wait.shared else Mode.LOCK
                yield ShownLock(mode, pid, owner, wait.key.database, advisory=wait.key, since=wait.since)
            elif wait.mode is Mode.LOCK:
                yield ShownLock(Mode.LOCK, pid, owner, wait.key[0], int(str(wait.key[1])), since=wait.since)
            else:
                for blocking in sorted(wait.blockers())[:1]:
                    yield ShownLock(Mode.CLAIM, pid, owner, xid=blocking, since=wait.since)

    def tables_of(self, owner: int) -> frozenset[Key]:
        """Return the tables whose lock a transaction holds."""
        with self._changed:
            return frozenset(key for key, holder in self._owner.items() if holder == owner)

    def disown(self, owner: int) -> None:
        """Detach a prepared transaction from its backend. It keeps its locks."""
        with self._changed:
            self._pids.pop(owner, None)

    def blocking(self, pid: int) -> list[int]:
        """Return the backends that block a backend (pg_blocking_pids), 0 for a prepared transaction."""
        with self._changed:
            waits = [wait for owner, wait in self._waiting.items() if self._pids.get(owner) == pid]
            return sorted({-owner if owner < 0 else self._pids.get(owner, 0) for wait in waits for owner in wait.blockers()})

    def _others(self, key: CatalogKey, owner: int, hold: Hold) -> set[int]:
        """Return the other transactions whose holds of a key conflict."""
        holders = self._holders.get(key)
        return set() if holders is None else {xid for xid, has in holders.items() if xid != owner and hold.conflicts(has)}

    def _hold(self, key: CatalogKey, owner: int, hold: Hold) -> None:
        holders = self._holders.setdefault(key, {})
        holders[owner] = max(hold, holders.get(owner, hold))
        self._held.setdefault(owner, set()).add(key)

    def _is_closed(self, key: Key, owner: int) -> bool:
        if key in self._owner:
            return True
        return owner not in self._claims.get(key, {}) and any(wait.key == key and wait.mode is Mode.LOCK for wait in self._waiting.values())

    def _wait(self, owner: int, wait: _Wait, cancelled: Callable[[], None] | None, lock_timeout: float | None) -> None:
        patience = cancelled if isinstance(cancelled, Patience) else Patience(cancelled or (lambda: None))
        if patience.pid is not None:
            self._pids[owner] = patience.pid
        limit = patience.timeout if lock_timeout is None else lock_timeout
        deadline = None if limit is None else time.monotonic() + limit
        while wait.blockers():
            self._waiting[owner] = wait
            try:
                left = 0.1 if deadline is None else min(deadline - time.monotonic(), 0.1)
                if left <= 0:
                    raise PostgresError("55P03", "canceling statement due to lock timeout")
                self._refuse_circle(owner)
                patience.tell(wait.mode)
                self._changed.wait(left)
                patience()
            finally:
                del self._waiting[owner]
                patience.tell(None)

    def _refuse_circle(self, start: int) -> None:
        """Raise 40P01 if `start`, which is about to wait, waits for itself through others."""
        chain = self._circle(start)
        if not chain:
            return
        self._statistics.deadlock(self._waiting[start].key[0])
        lines = []
        for waiting, blocking in zip(chain, [*chain[1:], start], strict=True):
            wait = self._waiting[waiting]
            lines.append(f"Transaction {waiting} waits for {wait.description(blocking)}; blocked by transaction {blocking}.")
        raise PostgresError("40P01", "deadlock detected", detail="\n".join(lines), hint="See server log for query details.")

    def _circle(self, start: int) -> list[int]:
        """Return the deadlocked transactions, `start` first: each waits for the next, the last for `start`. Empty if there is none."""
        chains = [[start]]
        seen = {start}
        while chains:
            chain = chains.pop()
            wait = self._waiting.get(chain[-1])
            for blocking in wait.blockers() if wait is not None else ():
                if blocking == start:
                    return chain
                if blocking not in seen:
                    seen.add(blocking)
                    chains.append([*chain, blocking])
        return []

    def release(self, owner: int) -> None:
        with self._changed:
            for key in [key for key, holder in self._owner.items() if holder == owner]:
                del self._owner[key]
            for key in [key for key, claims in self._claims.items() if owner in claims]:
                del self._claims[key][owner]
                if not self._claims[key]:
                    del self._claims[key]
            self._pids.pop(owner, None)
            for name in self._held.pop(owner, ()):
                del self._holders[name][owner]
                if not self._holders[name]:
                    del self._holders[name]
            self._changed.notify_all()


def _meet(keys: Keys, others: Keys) -> bool:
    return any(not keys[index].isdisjoint(others[index]) for index in keys.keys() & others.keys())
