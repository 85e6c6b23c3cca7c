"""How each subscription does, for `headgate status`: state, tables, rows and bytes, lag, the last error and what to do about it.

`subscription_report` is called by the server for its report; what workers count they keep in the launcher's `Ledger`, which lives as
long as the node. Times are seconds since 1970, LSNs text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.catalog import database as databases
from headgate.catalog import relation as relations
from headgate.catalog import subscription as subscriptions
from headgate.catalog import subscription_column
from headgate.catalog.subscription import Subscription
from headgate.errors import PostgresError
from headgate.sql.names import quote_ident
from headgate.subscriber.advice import LEFT_OUT, NO_PUBLICATION, NO_TABLES, advice
from headgate.subscriber.apply import Counters
from headgate.subscriber.applyworker import BEHIND
from headgate.subscriber.tablesync import SyncWorker
from headgate.walreceiver.progress import Position

if TYPE_CHECKING:
    from headgate.subscriber.launcher import Launcher
    from headgate.subscriber.worker import Worker


@dataclass(frozen=True)
class Failure:
    """An error that ended a worker; `relation` is the table of a table sync."""

    moment: float
    error: PostgresError
    relation: int | None


@dataclass
class Account:
    """What has been done for one subscription since the node started."""

    applied: Counters = field(default_factory=Counters)
    copied: Counters = field(default_factory=Counters)
    failure: Failure | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    """Changes that were left out, as their tables are published and not in the subscription, by table."""
    unjoined: str | None = None
    """Why published tables could not join when it was tried last (create_tables)."""
    missing_publications: tuple[str, ...] = ()
    """Publications that were not there when the publisher was asked last."""


class Ledger:
    """The accounts by subscription."""

    def __init__(self) -> None:
        self._accounts: dict[int, Account] = {}

    def of(self, subscription: int) -> Account:
        """The account of a subscription."""
        return self._accounts.setdefault(subscription, Account())

    def failed(self, worker: Worker, error: PostgresError) -> None:
        """A worker ended with an error."""
        self.of(worker.subscription.oid).failure = Failure(time.time(), error, worker.relation)


def subscription_report(launcher: Launcher) -> list[dict[str, Any]]:
    """One entry per subscription of all databases."""
    cursor = launcher.node.catalog.cursor()
    try:
        return [_entry(launcher, cursor, found) for found in subscriptions.all_subscriptions(cursor)]
    finally:
        cursor.close()


def _entry(launcher: Launcher, cursor: Any, subscription: Subscription) -> dict[str, Any]:
    account = launcher.ledger.of(subscription.oid)
    workers = [worker for worker in launcher.workers() if worker.subscription.oid == subscription.oid]
    apply = next((worker for worker in workers if worker.relation is None), None)
    tables = subscriptions.tables(cursor, subscription.oid)
    waiting = [rel for rel in tables if rel.state not in ("s", "r")]
    copies = [worker.copy for worker in workers if isinstance(worker, SyncWorker) and worker.copy is not None and worker.copy.running]
    lag_bytes, lag_seconds = apply.progress.lag() if apply is not None and apply.progress is not None else (None, None)
    failing = account.failure is not None and _lasts(account.failure, apply, waiting)
    state = _state(subscription, apply, waiting, failing=failing, behind=bool(lag_seconds and lag_seconds > BEHIND))
    if state == "streaming" and account.missing_publications:
        state = "waiting for a publication"
    elif state == "streaming" and not tables:
        state = "streaming, no tables"
    return {
        "name": subscription.name,
        "database": _name_of(cursor, subscription.database),
        "publications": list(subscription.publications),
        "state": state,
        "to_do": _to_do(subscription, account, state),
        "missing_publications": list(account.missing_publications),
        "left_out": [{"table": table, "changes": changes} for table, changes in sorted(account.left_out.items())],
        **_columns(cursor, subscription),
        "tables": len(tables),
        "tables_synced": len(tables) - len(waiting),
        "tables_waiting": [_table_name(cursor, subscription, rel.relation) for rel in waiting],
        "copied_rows": account.copied.changes + sum(copy.rows for copy in copies),
        "copied_bytes": account.copied.bytes + sum(copy.bytes for copy in copies),
        "applied_transactions": account.applied.transactions,
        "applied_rows": account.applied.changes,
        "applied_bytes": account.applied.bytes,
        "skipped_rows": account.applied.missing,
        "received_lsn": None if apply is None or apply.position is None else str(apply.position.received),
        "applied_lsn": None if apply is None or apply.progress is None else str(apply.progress.flushed),
        "lag_bytes": lag_bytes,
        "lag_seconds": lag_seconds,
        "failing": failing,
        "last_error": None if account.failure is None else _failure(cursor, subscription, account.failure),
    }


def _to_do(subscription: Subscription, account: Account, state: str) -> list[str]:
    """What somebody should do who is not told by an error."""
    found = []
    if account.missing_publications and state != "disabled":
        listed = ", ".join(quote_ident(each) for each in account.missing_publications)
        found.append(f"There is no publication {listed} on the publisher. {NO_PUBLICATION}")
    elif state == "streaming, no tables":
        found.append(NO_TABLES)
    if account.unjoined is not None:
        found.append(f"Published tables cannot join, it is tried again by itself: {account.unjoined}")
    if account.left_out:
        found.append(LEFT_OUT)
    return [each.replace("{name}", quote_ident(subscription.name)) for each in found]


def _columns(cursor: Any, subscription: Subscription) -> dict[str, Any]:
    """The columns that are not as the publisher has them: of another type, or with rows that lack what is a default there."""
    found = [
        (f"{_table_name(cursor, subscription, relation)}.{each.name}", each)
        for relation, each in subscription_column.of_subscription(cursor, subscription.oid)
    ]
    return {
        "types": [{"column": name, "there": each.type, "here": each.local_type} for name, each in found if each.local_type],
        "unfilled": [{"column": name, "rows": each.unfilled} for name, each in found if each.unfilled],
    }


def _lasts(failure: Failure, apply: Worker | None, waiting: list[Any]) -> bool:
    """Whether an error is still to be got over: its table waits, or the apply worker has not come past what was there to do."""
    if failure.relation is not None:
        return any(rel.relation == failure.relation for rel in waiting)
    if apply is None or apply.progress is None or failure.moment > apply.began:
        return True
    return not apply.advanced and (apply.progress.outstanding or apply.position == Position())


def _state(subscription: Subscription, apply: Worker | None, waiting: list[Any], *, failing: bool, behind: bool) -> str:
    if not subscription.enabled:
        return "disabled"
    if apply is None or apply.progress is None:
        return "retrying after an error" if failing else "starting"
    if waiting:
        return "copying, with errors" if failing else "copying"
    return "behind" if behind else "streaming"


def _failure(cursor: Any, subscription: Subscription, failure: Failure) -> dict[str, Any]:
    error = failure.error
    return {
        "time": failure.moment,
        "table": None if failure.relation is None else _table_name(cursor, subscription, failure.relation),
        "sqlstate": error.sqlstate,
        "advice": advice(error, subscription.name),
        **{name: getattr(error, name) for name in ("message", "detail", "hint", "context")},
    }


def _table_name(cursor: Any, subscription: Subscription, oid: int) -> str:
    found = relations.find(cursor, subscription.database, oid)
    return str(oid) if found is None else f"{found.schema}.{found.name}"


def _name_of(cursor: Any, database: int) -> str:
    found = databases.find(cursor, database)
    return str(database) if found is None else found.name
