"""Statistics of each subscription: rows, bytes, batches, seconds, conflicts, the last error, the last known position.

Workers update them; `report` and the server's metrics read them. They outlive the workers. A clean restart preserves them in the
catalog (`server.report.kept_statistics`). A crash resets them, like PostgreSQL's statistics. All functions are thread-safe.

Invariant: changes that are counted as applied have been committed. A batch that failed and was retried counts once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from headgate.errors import PostgresError
from headgate.walreceiver.progress import StreamProgress

KEPT_CONFLICTS = 100
"""The number of SQLSTATEs for which conflicts are counted."""


class CountersState(TypedDict):
    """The JSON form of `Counters`. Its keys are text."""

    transactions: int
    changes: int
    missing: int
    bytes: int
    batches: int
    tables: Mapping[int, int] | Mapping[str, int]
    table_missing: Mapping[int, int] | Mapping[str, int]
    seconds: Mapping[str, float]
    moment: float | None


class KnownState(TypedDict):
    """The JSON form of `Known`."""

    bytes: int
    since: float


class AccountState(TypedDict):
    """The JSON form of the persistent parts of an `Account`."""

    applied: CountersState
    copied: CountersState
    left_out: Mapping[int, int] | Mapping[str, int]
    conflicts: Mapping[str, int]
    known: KnownState | None


@dataclass
class Counters:
    """Counts of applied or copied changes.

    `missing`: rows to update or delete that did not exist here. `tables` and `table_missing` are by relation.
    """

    transactions: int = 0
    changes: int = 0
    missing: int = 0
    bytes: int = 0
    batches: int = 0
    tables: Counter[int] = field(default_factory=Counter)
    table_missing: Counter[int] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    """The seconds spent in each stage."""
    moment: float | None = None
    """The time at which the last change was applied, in seconds since 1970."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, relation: int, changes: int, missing: int = 0) -> None:
        self.changes += changes
        self.missing += missing
        self.tables[relation] += changes
        if missing:
            self.table_missing[relation] += missing

    def add(self, more: Counters) -> None:
        with self._lock:
            for name in ("transactions", "changes", "missing", "bytes", "batches"):
                setattr(self, name, getattr(self, name) + getattr(more, name))
            self.tables.update(more.tables)
            self.table_missing.update(more.table_missing)
            for stage, seconds in more.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            self.moment = more.moment or self.moment

    def state(self) -> CountersState:
        with self._lock:
            return {
                "transactions": self.transactions,
                "changes": self.changes,
                "missing": self.missing,
                "bytes": self.bytes,
                "batches": self.batches,
                "tables": dict(self.tables),
                "table_missing": dict(self.table_missing),
                "seconds": dict(self.seconds),
                "moment": self.moment,
            }

    @classmethod
    def of(cls, state: CountersState) -> Counters:
        """Return the counters for a value that `state` returned."""
        counters = cls(state["transactions"], state["changes"], state["missing"], state["bytes"], state["batches"], moment=state["moment"])
        counters.tables = Counter({int(key): value for key, value in state["tables"].items()})
        counters.table_missing = Counter({int(key): value for key, value in state["table_missing"].items()})
        counters.seconds = dict(state["seconds"])
        return counters


@dataclass(frozen=True)
class Failure:
    """An error that ended a worker. `relation` is the table of a table sync, or None."""

    moment: float
    error: PostgresError
    relation: int | None


@dataclass(frozen=True)
class Known:
    """The last known lag of a subscription: bytes of the publisher's log, and the time since which it lags, in seconds since 1970."""

    bytes: int
    since: float


@dataclass
class Account:
    """The statistics of one subscription."""

    applied: Counters = field(default_factory=Counters)
    copied: Counters = field(default_factory=Counters)
    failure: Failure | None = None
    left_out: Counter[int] = field(default_factory=Counter)
    """The numbers of skipped changes, by relation, for tables that are published and not in the subscription."""
    conflicts: Counter[str] = field(default_factory=Counter)
    """The number of errors of the apply worker that were caused by a local row, by SQLSTATE."""
    unjoined: str | None = None
    """The error of the last attempt to add published tables to the subscription (create_tables), or None."""
    missing_publications: tuple[str, ...] = ()
    """The publications that did not exist when the publisher was last queried."""
    progress: StreamProgress | None = None
    """The progress of the apply worker that streams, or streamed last."""
    _known: Known | None = None
    """The lag when the node was stopped. Used until a worker streams."""

    def known(self, *, streaming: bool) -> Known | None:
        """Return the lag. While no worker streams, the real lag may be larger, so the time counts from the publisher's last message."""
        if self.progress is None:
            return self._known
        size, seconds = self.progress.lag()
        heard = self.progress.heard
        if streaming or seconds or heard is None:
            return Known(size, time.time() - seconds)
        return Known(size, heard)

    def state(self) -> AccountState:
        """Return the values that outlive a restart, for JSON."""
        known = self.known(streaming=False)
        return {
            "applied": self.applied.state(),
            "copied": self.copied.state(),
            "left_out": dict(self.left_out),
            "conflicts": dict(self.conflicts),
            "known": None if known is None else {"bytes": known.bytes, "since": known.since},
        }

    @classmethod
    def of(cls, state: AccountState) -> Account:
        """Return the account for a value that `state` returned."""
        account = cls(Counters.of(state["applied"]), Counters.of(state["copied"]))
        account.left_out = Counter({int(key): value for key, value in state["left_out"].items()})
        account.conflicts = Counter(state["conflicts"])
        account._known = None if state["known"] is None else Known(**state["known"])
        return account


class Ledger:
    """The accounts of all subscriptions."""

    def __init__(self) -> None:
        self._accounts: dict[int, Account] = {}

    def of(self, subscription: int) -> Account:
        """Return the account of a subscription. Create it if it does not exist."""
        return self._accounts.setdefault(subscription, Account())

    def failed(self, subscription: int, relation: int | None, error: PostgresError) -> None:
        """Record that a worker ended with an error: the table sync of a relation, or the apply worker (None).

        Integrity constraint violations (class 23) are counted as conflicts.
        """
        account = self.of(subscription)
        account.failure = Failure(time.time(), error, relation)
        if error.sqlstate.startswith("23") and (error.sqlstate in account.conflicts or len(account.conflicts) < KEPT_CONFLICTS):
            account.conflicts[error.sqlstate] += 1

    def state(self, subscriptions: Collection[int]) -> dict[str, AccountState]:
        return {str(oid): account.state() for oid, account in list(self._accounts.items()) if oid in subscriptions}

    def restore(self, state: Mapping[str, AccountState]) -> None:
        """Restore the accounts that `state` returned. Called before any worker runs."""
        self._accounts = {int(subscription): Account.of(account) for subscription, account in state.items()}
