"""What has been done for each subscription: rows, bytes, batches, seconds, conflicts, the last error, the last known position.

Workers count here, `report` and the server's metrics read. The accounts outlive the workers; over a clean restart they are kept in the
catalog (`server.monitoring.kept_statistics`), a crash begins them anew, as PostgreSQL has it with its statistics. Any thread may call
anything.

What must hold: what is counted as applied has been committed; a batch that failed and was done again counts once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from headgate.errors import PostgresError
from headgate.walreceiver.progress import StreamProgress

if TYPE_CHECKING:
    from headgate.subscriber.worker import Worker

KEPT_CONFLICTS = 100
"""SQLSTATEs whose conflicts are told apart."""


class CountersState(TypedDict):
    """`Counters` as they are kept in JSON, whose keys are text."""

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
    """`Known` in JSON."""

    bytes: int
    since: float


class AccountState(TypedDict):
    """What is kept of an `Account`."""

    applied: CountersState
    copied: CountersState
    left_out: Mapping[int, int] | Mapping[str, int]
    conflicts: Mapping[str, int]
    known: KnownState | None


@dataclass
class Counters:
    """What has been applied, or copied.

    `missing`: rows to update or delete that were not here; `tables` and `table_missing` are by relation.
    """

    transactions: int = 0
    changes: int = 0
    missing: int = 0
    bytes: int = 0
    batches: int = 0
    tables: Counter[int] = field(default_factory=Counter)
    table_missing: Counter[int] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    """By stage."""
    moment: float | None = None
    """When the last change was applied, in seconds since 1970."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, relation: int, changes: int, missing: int = 0) -> None:
        """Adds rows of a table."""
        self.changes += changes
        self.missing += missing
        self.tables[relation] += changes
        if missing:
            self.table_missing[relation] += missing

    def add(self, more: Counters) -> None:
        """Adds what another has counted."""
        with self._lock:
            for name in ("transactions", "changes", "missing", "bytes", "batches"):
                setattr(self, name, getattr(self, name) + getattr(more, name))
            self.tables.update(more.tables)
            self.table_missing.update(more.table_missing)
            for stage, seconds in more.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            self.moment = more.moment or self.moment

    def state(self) -> CountersState:
        """All of it, for JSON."""
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
        """What `state` gave."""
        found = cls(state["transactions"], state["changes"], state["missing"], state["bytes"], state["batches"], moment=state["moment"])
        found.tables = Counter({int(key): value for key, value in state["tables"].items()})
        found.table_missing = Counter({int(key): value for key, value in state["table_missing"].items()})
        found.seconds = dict(state["seconds"])
        return found


@dataclass(frozen=True)
class Failure:
    """An error that ended a worker; `relation` is the table of a table sync."""

    moment: float
    error: PostgresError
    relation: int | None


@dataclass(frozen=True)
class Known:
    """How far a subscription was behind when that was known last: bytes of the publisher's log, and since when, in seconds since 1970."""

    bytes: int
    since: float


@dataclass
class Account:
    """What has been done for one subscription."""

    applied: Counters = field(default_factory=Counters)
    copied: Counters = field(default_factory=Counters)
    failure: Failure | None = None
    left_out: Counter[int] = field(default_factory=Counter)
    """Changes that were left out, as their tables are published and not in the subscription, by relation."""
    conflicts: Counter[str] = field(default_factory=Counter)
    """Errors of the apply worker that a row here was the cause of, by SQLSTATE."""
    unjoined: str | None = None
    """Why published tables could not join when it was tried last (create_tables)."""
    missing_publications: tuple[str, ...] = ()
    """Publications that were not there when the publisher was asked last."""
    progress: StreamProgress | None = None
    """That of the apply worker that streams, or streamed last."""
    _known: Known | None = None
    """Where the node was stopped, until a worker streams."""

    def known(self, *, streaming: bool) -> Known | None:
        """How far it is behind. While nobody streams, that may be more than what was heard: it counts from the last word on."""
        if self.progress is None:
            return self._known
        size, seconds = self.progress.lag()
        heard = self.progress.heard
        if streaming or seconds or heard is None:
            return Known(size, time.time() - seconds)
        return Known(size, heard)

    def state(self) -> AccountState:
        """What outlives a restart, for JSON."""
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
        """What `state` gave."""
        found = cls(Counters.of(state["applied"]), Counters.of(state["copied"]))
        found.left_out = Counter({int(key): value for key, value in state["left_out"].items()})
        found.conflicts = Counter(state["conflicts"])
        found._known = None if state["known"] is None else Known(**state["known"])
        return found


class Ledger:
    """The accounts by subscription."""

    def __init__(self) -> None:
        self._accounts: dict[int, Account] = {}

    def of(self, subscription: int) -> Account:
        """The account of a subscription."""
        return self._accounts.setdefault(subscription, Account())

    def failed(self, worker: Worker, error: PostgresError) -> None:
        """A worker ended with an error."""
        account = self.of(worker.subscription.oid)
        account.failure = Failure(time.time(), error, worker.relation)
        if error.sqlstate.startswith("23") and (error.sqlstate in account.conflicts or len(account.conflicts) < KEPT_CONFLICTS):
            account.conflicts[error.sqlstate] += 1

    def state(self, subscriptions: Collection[int]) -> dict[str, AccountState]:
        """The accounts of these subscriptions, for JSON."""
        return {str(oid): account.state() for oid, account in list(self._accounts.items()) if oid in subscriptions}

    def restore(self, state: Mapping[str, AccountState]) -> None:
        """Takes what `state` gave; called before any worker runs."""
        self._accounts = {int(subscription): Account.of(each) for subscription, each in state.items()}
