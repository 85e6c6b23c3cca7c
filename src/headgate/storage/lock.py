"""Who may write to a table: one writer at a time, until its transaction ends, and beside it those that only add rows.

    lock     of one transaction: it commits versions of the Delta table, and nobody else may put one between them
    claim    of any number of transactions: rows with these keys will be added once the transaction has the lock, at its commit if not
             before (`pending`)

    wants the lock, waits for    its holder; those with a claim in the table, unless it has one itself or adds no key (`beside_claims`)
    wants a claim, waits for     those that have claimed one of its keys
    gets no claim                where somebody holds the lock or waits for it: then the lock is what it must take

Readers take nothing: they read the version that the log names. A writer that would wait in a circle gets 40P01, as in PostgreSQL; the
circle is looked for when the wait begins, not after `deadlock_timeout`.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

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


@dataclass(frozen=True)
class _Wait:
    """What a transaction waits for; `blockers` gives the xids of those whose end it needs."""

    key: Key
    mode: Mode
    blockers: Callable[[], set[int]]


class TableLocks:
    """Who holds the lock of which table or claims keys in it, who waits for whom. An owner is a transaction's xid."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._changed = threading.Condition()
        self._owner: dict[Key, int] = {}
        self._claims: dict[Key, dict[int, dict[int, set[Hashable]]]] = {}
        self._waiting: dict[int, _Wait] = {}

    def acquire(
        self,
        key: Key,
        owner: int,
        cancelled: Callable[[], None] | None = None,
        lock_timeout: float | None = None,
        *,
        beside_claims: bool = False,
    ) -> None:
        """Takes a table's lock for `owner`, waiting if need be.

        `cancelled` is called ten times a second while waiting and raises to end the wait. Raises 40P01 on a deadlock, 55P03 after
        `lock_timeout` seconds.
        """

        def blockers() -> set[int]:
            holder = self._owner.get(key)
            if holder is not None:
                return {holder} - {owner}
            claims = self._claims.get(key, {})
            return set() if beside_claims or owner in claims else set(claims)

        with self._changed:
            self._wait(owner, _Wait(key, Mode.LOCK, blockers), cancelled, lock_timeout)
            self._owner[key] = owner

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

    def _closed(self, key: Key, owner: int) -> bool:
        if key in self._owner:
            return True
        return owner not in self._claims.get(key, {}) and any(each.key == key and each.mode is Mode.LOCK for each in self._waiting.values())

    def _wait(self, owner: int, wait: _Wait, cancelled: Callable[[], None] | None, lock_timeout: float | None) -> None:
        give_up = None if lock_timeout is None else time.monotonic() + lock_timeout
        while wait.blockers():
            self._waiting[owner] = wait
            try:
                self._refuse_circle(owner)
                if give_up is not None and time.monotonic() >= give_up:
                    raise PostgresError("55P03", "canceling statement due to lock timeout")
                self._changed.wait(0.1 if cancelled or give_up else None)
                if cancelled:
                    cancelled()
            finally:
                del self._waiting[owner]

    def _refuse_circle(self, start: int) -> None:
        """Raises if `start`, about to wait, waits for itself through others."""
        chain = self._circle(start)
        if not chain:
            return
        self._statistics.deadlock(self._waiting[start].key[0])
        lines = []
        for waiting, blocking in zip(chain, [*chain[1:], start], strict=True):
            wait = self._waiting[waiting]
            what = f"relation {wait.key[1]}" if wait.mode is Mode.LOCK else f"transaction {blocking}"
            lines.append(f"Transaction {waiting} waits for {wait.mode} on {what}; blocked by transaction {blocking}.")
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
            self._changed.notify_all()


def _meet(keys: Keys, others: Keys) -> bool:
    """Whether an index has one key in both."""
    return any(not keys[index].isdisjoint(others[index]) for index in keys.keys() & others.keys())
