"""Who may write to a table: one writer at a time, until its transaction ends, and beside it those that only add rows; who gets a name.

    lock     of one transaction: it commits versions of the Delta table, and nobody else may put one between them
    claim    of any number of transactions: rows with these keys will be added once the transaction has the lock, at its commit if not
             before (`pending_rows`)

    wants the lock, waits for    its holder; those with a claim in the table, unless it has one itself or adds no key (`beside_claims`)
    wants a claim, waits for     those that have claimed one of its keys
    gets no claim                where somebody holds the lock or waits for it: then the lock is what it must take

A key of a catalog, of a name or of an object's row, is held by transactions until their end (`catalog.hold`); another whose hold conflicts
waits for that. Who drops a table or changes its definition waits for the lock and for the key of its row at once (`row`), of a partitioned
table for those of all its partitions (`acquire_all`): one after the other they would make a circle with a transaction that has one and then
needs another.

Advisory locks (manual, 13.3.5) belong to sessions, not to transactions: `AdvisoryHolder`. Who waits for one does so in its transaction, so
that a circle through an advisory lock and a table is found as any other; a session that holds one and has no transaction waits for nobody.

Readers take nothing: they read the version that the log names. A writer that would wait in a circle gets 40P01, as in PostgreSQL; the
circle is looked for when the wait begins, not after `deadlock_timeout`.
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
from headgate.storage.statistics import Statistics

Key = tuple[int, int]
"""(database, relation)"""
Keys = Mapping[int, AbstractSet[Hashable]]
"""The keys of rows by unique index (oid), in a form that is equal for equal values; a row with a NULL in its key has none."""


class Mode(enum.StrEnum):
    """What is waited for, as the DETAIL of a deadlock names it."""

    LOCK = "ExclusiveLock"
    CLAIM = "ShareLock"
    ADVISORY = "AdvisoryLock"


class AdvisoryKey(NamedTuple):
    """What an advisory lock is for, as pg_locks shows it: a bigint's two halves with `objsubid` 1, or two integers with 2."""

    database: int
    classid: int
    objid: int
    objsubid: int


@dataclass(frozen=True, eq=False)
class AdvisoryHolder:
    """A session that holds advisory locks; `transaction` gives the xid of the transaction that it has open, if any."""

    pid: int
    transaction: Callable[[], int | None]

    @property
    def owner(self) -> int:
        """Whose end those need that wait for it: a transaction, or a session that is in none, which no xid is."""
        found = self.transaction()
        return -self.pid if found is None else found


@dataclass
class AdvisoryCounts:
    """How often a session holds one advisory lock in either mode."""

    exclusive: int = 0
    shared: int = 0


@dataclass(frozen=True)
class ShownLock:
    """A lock as pg_locks shows it (manual, 54.12): held by the transaction `owner` or, of a session, by none, or waited for since `since`.

    `relation` of a table; `xid` of another transaction whose end is waited for; `advisory`; or, of a row of a catalog, its index and oid.
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
"""What PostgreSQL calls the lock of who adds rows: as a claim it goes with its like, and not with a table's lock."""
_HOLD_MODES = {Hold.USE: "AccessShareLock", Hold.CHANGE: "ShareUpdateExclusiveLock", Hold.ALONE: "AccessExclusiveLock"}
"""The weakest modes of PostgreSQL that conflict as these do."""
_OF_OID = "_oid_index"


@dataclass(frozen=True)
class _Wait:
    """What a transaction waits for; `blockers` gives the xids of those whose end it needs."""

    key: Key | CatalogKey | AdvisoryKey
    """All of them begin with the database."""
    mode: Mode
    blockers: Callable[[], set[int]]
    since: float = field(default_factory=time.time)
    shared: bool = False
    """Of an advisory lock."""

    def told(self, blocking: int) -> str:
        """What of it a DETAIL says."""
        match self.mode:
            case Mode.LOCK:
                return f"{self.mode} on relation {self.key[1]}"
            case Mode.CLAIM:
                return f"{self.mode} on transaction {blocking}"
            case Mode.ADVISORY:
                return f"advisory lock [{','.join(map(str, self.key))}]"


class Patience:
    """How long a session waits for a lock: until `check` raises, or 55P03 after `timeout` seconds; `tell` hears what it waits for.

    A transaction that has one as `cancelled` hands it to `acquire` and `claim`; `pid` is that of the backend.
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
        """Raises to end the wait."""
        self.check()


class TableLocks:
    """Who holds the lock of which table or claims keys in it or in the catalogs, who waits for whom. An owner is a transaction's xid."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._changed = threading.Condition()
        self._owner: dict[Key, int] = {}
        self._claims: dict[Key, dict[int, dict[int, set[Hashable]]]] = {}
        self._holders: dict[CatalogKey, dict[int, Hold]] = {}
        self._held: dict[int, set[CatalogKey]] = {}
        """By owner the keys of catalogs that it holds."""
        self._advisory: dict[AdvisoryKey, dict[AdvisoryHolder, AdvisoryCounts]] = {}
        self._waiting: dict[int, _Wait] = {}
        self._pids: dict[int, int] = {}
        """The backends of owners; a prepared transaction has none any more."""

    def acquire(
        self,
        key: Key,
        owner: int,
        cancelled: Callable[[], None] | None = None,
        lock_timeout: float | None = None,
        *,
        beside_claims: bool = False,
        row: tuple[CatalogKey, Hold] | None = None,
    ) -> None:
        """Takes a table's lock for `owner`, waiting if need be, and at the same moment holds the key `row`.

        `cancelled` is called ten times a second while waiting and raises to end the wait. Raises 40P01 on a deadlock, 55P03 after
        `lock_timeout` seconds.
        """

        def blockers() -> set[int]:
            users = set() if row is None else self._others(row[0], owner, row[1])
            return users | self._writers(key, owner, beside_claims=beside_claims)

        with self._changed:
            self._wait(owner, _Wait(key, Mode.LOCK, blockers), cancelled, lock_timeout)
            self._owner[key] = owner
            if row is not None:
                self._hold(row[0], owner, row[1])

    def acquire_all(
        self, keys: Sequence[Key], owner: int, rows: Mapping[CatalogKey, Hold], cancelled: Callable[[], None] | None = None
    ) -> None:
        """Takes the locks of several tables and holds keys of catalogs at the same moment; raises as `acquire`.

        Who waits has none of them: he makes no circle with a transaction that has one and then needs another.
        """

        def blockers() -> set[int]:
            users = [self._others(row, owner, hold) for row, hold in rows.items()]
            return set().union(*users, *(self._writers(key, owner) for key in keys))

        with self._changed:
            self._wait(owner, _Wait(keys[0], Mode.LOCK, blockers), cancelled, None)
            self._owner.update(dict.fromkeys(keys, owner))
            for row, hold in rows.items():
                self._hold(row, owner, hold)

    def _writers(self, key: Key, owner: int, *, beside_claims: bool = False) -> set[int]:
        """Who else has a table's lock, or claims that its lock must wait for."""
        holder = self._owner.get(key)
        if holder is not None:
            return {holder} - {owner}
        claims = self._claims.get(key, {})
        return set() if beside_claims or owner in claims else set(claims)

    def claim(self, key: Key, owner: int, keys: Keys, cancelled: Callable[[], None] | None = None) -> bool:
        """Claims keys of a table for `owner`, waiting for others that have claimed one of them; raises as `acquire`.

        False where `owner` has claimed one of them itself, or where somebody holds the table's lock or waits for it.
        """

        def blockers() -> set[int]:
            return {xid for xid, claimed in self._claims.get(key, {}).items() if xid != owner and _meet(keys, claimed)}

        with self._changed:
            if self._closed(key, owner) or _meet(keys, self._claims.get(key, {}).get(owner, {})):
                return False
            self._wait(owner, _Wait(key, Mode.CLAIM, blockers), cancelled, None)
            if self._closed(key, owner):
                return False
            mine = self._claims.setdefault(key, {}).setdefault(owner, {})
            for index, added in keys.items():
                mine.setdefault(index, set()).update(added)
            return True

    def claim_catalog(self, key: CatalogKey, owner: int, cancelled: Callable[[], None] | None = None, hold: Hold = Hold.ALONE) -> None:
        """Holds a key of a catalog for `owner`, waiting for others whose holds conflict; raises as `acquire`."""

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
        """Takes an advisory lock once more for a session, waiting in its transaction `owner`; without one it gives False rather than wait.

        53200 where `most` advisory locks are held; while waiting it raises as `acquire`.
        """

        def blockers() -> set[int]:
            others = [(each, counts) for each, counts in self._advisory.get(key, {}).items() if each is not holder]
            return {each.owner for each, counts in others if counts.exclusive or not shared}

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
        """Gives an advisory lock back that the session holds, once."""
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
        """All locks as they are at this moment: those that are held, and those that are waited for."""
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

    def disown(self, owner: int) -> None:
        """The transaction is prepared: it keeps its locks, and no backend has it any more."""
        with self._changed:
            self._pids.pop(owner, None)

    def blocking(self, pid: int) -> list[int]:
        """The backends for which one waits, 0 for a prepared transaction (pg_blocking_pids)."""
        with self._changed:
            waits = [wait for owner, wait in self._waiting.items() if self._pids.get(owner) == pid]
            return sorted({-each if each < 0 else self._pids.get(each, 0) for wait in waits for each in wait.blockers()})

    def _others(self, key: CatalogKey, owner: int, hold: Hold) -> set[int]:
        """Who else holds a key so that it conflicts."""
        holders = self._holders.get(key)
        return set() if holders is None else {xid for xid, has in holders.items() if xid != owner and hold.conflicts(has)}

    def _hold(self, key: CatalogKey, owner: int, hold: Hold) -> None:
        holders = self._holders.setdefault(key, {})
        holders[owner] = max(hold, holders.get(owner, hold))
        self._held.setdefault(owner, set()).add(key)

    def _closed(self, key: Key, owner: int) -> bool:
        if key in self._owner:
            return True
        return owner not in self._claims.get(key, {}) and any(each.key == key and each.mode is Mode.LOCK for each in self._waiting.values())

    def _wait(self, owner: int, wait: _Wait, cancelled: Callable[[], None] | None, lock_timeout: float | None) -> None:
        patience = cancelled if isinstance(cancelled, Patience) else Patience(cancelled or (lambda: None))
        if patience.pid is not None:
            self._pids[owner] = patience.pid
        limit = patience.timeout if lock_timeout is None else lock_timeout
        give_up = None if limit is None else time.monotonic() + limit
        while wait.blockers():
            self._waiting[owner] = wait
            try:
                left = 0.1 if give_up is None else min(give_up - time.monotonic(), 0.1)
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
        """Raises if `start`, about to wait, waits for itself through others."""
        chain = self._circle(start)
        if not chain:
            return
        self._statistics.deadlock(self._waiting[start].key[0])
        lines = []
        for waiting, blocking in zip(chain, [*chain[1:], start], strict=True):
            wait = self._waiting[waiting]
            lines.append(f"Transaction {waiting} waits for {wait.told(blocking)}; blocked by transaction {blocking}.")
        raise PostgresError("40P01", "deadlock detected", detail="\n".join(lines), hint="See server log for query details.")

    def _circle(self, start: int) -> list[int]:
        """Transactions, `start` first, each of which waits for the next and the last for `start`; none if there is no such circle."""
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
        """Gives back all locks and claims of a transaction."""
        with self._changed:
            for key in [k for k, o in self._owner.items() if o == owner]:
                del self._owner[key]
            for key in [k for k, claims in self._claims.items() if owner in claims]:
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
    """Whether an index has one key in both."""
    return any(not keys[index].isdisjoint(others[index]) for index in keys.keys() & others.keys())
