"""Reports the status of each subscription and its tables, for `headgate status`, metrics and pg_stat_subscription_rel.

A report has the state, tables, rows and bytes, lag, and the last error with advice. Called by the server. The counts come from the
launcher's `Ledger` (`subscription_statistics`).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.catalog import database as databases
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column, subscription_resync
from headgate.catalog.replication.subscription import COPIED, Subscription, SubscriptionRel, SyncState
from headgate.catalog.security import role as roles
from headgate.lsn import Lsn
from headgate.sql.names import quote_ident
from headgate.subscriber.advice import LEFT_OUT, NO_PUBLICATION, NO_TABLES, STUCK, Subject, advice, raise_setting
from headgate.subscriber.apply.apply_worker import BEHIND, ApplyWorker
from headgate.subscriber.snapshot import CopyReport, FailureReport, LeftOut, OtherType, Problem, SubscriptionReport, Unfilled
from headgate.subscriber.subscription_statistics import Account, Failure
from headgate.subscriber.synchronization.table_sync import SyncWorker
from headgate.walreceiver.progress import ReceiverPosition
from headgate.walreceiver.receiver import Limits

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.subscriber.launcher import Launcher
    from headgate.subscriber.synchronization.initial_copy import InitialCopy
    from headgate.subscriber.worker import Worker

STATES = (
    "disabled", "starting", "retrying after an error", "copying", "copying, with errors", "behind", "streaming",
    "waiting for a publication", "streaming, no tables", "waiting for a worker", "publisher is silent",
)  # fmt: skip
"""The states of a subscription."""
TABLE_STATES = {
    SyncState.INIT: "initializing",
    SyncState.DATASYNC: "copying",
    SyncState.FINISHEDCOPY: "copied",
    SyncState.SYNCDONE: "synchronized",
    SyncState.READY: "ready",
}
"""The states of a table, by pg_subscription_rel.srsubstate."""

LATE_SECONDS = 10.0
"""If a worker has not begun to stream after this many seconds, that is reported as a problem."""
SILENT_SECONDS = 20.0
"""After this many seconds without a message, the publisher counts as silent. It is pinged after `walreceiver.receiver.PING_SECONDS`."""

Titles = Mapping[int, tuple[str, str]]


@dataclass(frozen=True)
class TableReport:
    """A table of a subscription, or a published table outside it whose changes are skipped: `state` is then None."""

    subscription: Subscription
    relation: int
    schema: str
    name: str
    state: SyncState | None
    lsn: Lsn | None
    applied: int
    copied: int
    missing: int
    left_out: int
    resync: str | None = None
    """The method of a new synchronization that is requested or running, or None."""


def subscription_report(launcher: Launcher) -> list[SubscriptionReport]:
    """Return one entry per subscription of all databases."""
    with contextlib.closing(launcher.host.catalog.cursor()) as cursor:
        names = {database.oid: database.name for database in databases.all_databases(cursor)}
        errors = subscriptions.errors(cursor)
        return [
            _entry(
                launcher,
                cursor,
                subscription,
                names.get(subscription.database, str(subscription.database)),
                errors.get(subscription.oid, (0, 0)),
            )
            for subscription in subscriptions.all_subscriptions(cursor)
        ]


def table_report(launcher: Launcher, most: int | None = None) -> Iterator[TableReport]:
    """Yield the tables of all subscriptions, by subscription and oid, at most `most` of them."""
    with contextlib.closing(launcher.host.catalog.cursor()) as cursor:
        for subscription in subscriptions.all_subscriptions(cursor):
            account = launcher.ledger.of(subscription.oid)
            states = {rel.relation: rel for rel in subscriptions.tables(cursor, subscription.oid)}
            oids = sorted({*states, *account.left_out})[:most]
            titles = subscriptions.titles(cursor, subscription.database, oids)
            methods = _again(cursor, subscription.oid)
            most = None if most is None else most - len(oids)
            for oid in oids:
                if oid in titles:
                    yield _table(subscription, account, oid, states.get(oid), titles[oid], methods.get(oid))


def _table(
    subscription: Subscription, account: Account, oid: int, rel: SubscriptionRel | None, title: tuple[str, str], resync: str | None
) -> TableReport:
    return TableReport(
        subscription,
        oid,
        *title,
        state=None if rel is None else rel.state,
        lsn=None if rel is None else rel.lsn,
        applied=account.applied.tables[oid],
        copied=account.copied.tables[oid],
        missing=account.applied.table_missing[oid],
        left_out=0 if rel is not None else account.left_out[oid],
        resync=resync,
    )


def _again(cursor: CatalogCursor, subscription: int) -> dict[int, str]:
    """Return the method by table, for tables whose new synchronization is requested or running."""
    return {oid: method.value for oid, method in subscription_resync.pending(cursor, subscription).items()}


def _entry(
    launcher: Launcher, cursor: CatalogCursor, subscription: Subscription, database: str, errors: tuple[int, int]
) -> SubscriptionReport:
    account = launcher.ledger.of(subscription.oid)
    workers = [worker for worker in launcher.workers() if worker.subscription.oid == subscription.oid]
    apply = next((worker for worker in workers if worker.relation is None), None)
    tables = subscriptions.tables(cursor, subscription.oid)
    waiting = [rel for rel in tables if rel.state not in COPIED]
    copies = [
        (worker.relation or 0, worker.copy)
        for worker in workers
        if isinstance(worker, SyncWorker) and worker.copy is not None and worker.copy.running
    ]
    streaming = apply is not None and apply.progress is not None
    counts = account.known(streaming=streaming)
    lag = None if counts is None else max(0.0, time.time() - counts.since)
    failing = account.failure is not None and _lasts(account.failure, apply, waiting)
    starved_of = _starved_of(launcher, subscription, workers, waiting)
    state = _state(subscription, apply, waiting, failing=failing, behind=bool(lag and lag > BEHIND))
    silent = _silence(apply)
    if starved_of is not None and not failing:
        state = "waiting for a worker"
    if state == "streaming" and silent > SILENT_SECONDS:
        state = "publisher is silent"
    elif state == "streaming" and account.missing_publications:
        state = "waiting for a publication"
    elif state == "streaming" and not tables:
        state = "streaming, no tables"
    joined = {rel.relation for rel in tables}
    left_out = {oid: count for oid, count in account.left_out.items() if oid not in joined}
    methods = _again(cursor, subscription.oid)
    shown = {*methods, *(rel.relation for rel in waiting), *left_out, *([account.failure.relation or 0] if account.failure else ())}
    titles = subscriptions.titles(cursor, subscription.database, shown)
    error = None if account.failure is None else _failure(cursor, subscription, account.failure, titles)
    problems: list[tuple[str, str | None]] = []
    if failing and error is not None:
        table = "" if error.table is None else f" (table {error.table})"
        problems.append((f"{state}: {error.message}{table}", error.advice))
    elif state == "disabled" and subscription.disable_on_error and any(errors):
        problems.append((f"{state}, and disable_on_error is on: see the server log for the error", "ALTER SUBSCRIPTION {name} ENABLE"))
    if starved_of is not None:
        problems.append(("no worker can start for it", raise_setting(starved_of, launcher.host.settings)))
    if state == "behind" and counts is not None:
        problems.append((f"it is {lag:.0f} s and {counts.bytes} bytes of log behind its publisher", None))
    if state == "publisher is silent":
        problems.append((f"its publisher has said nothing for {silent:.0f} s", "See whether the publisher runs, and the network to it."))
    if state == "starting" and apply is not None and time.time() - apply.began > LATE_SECONDS:
        problems.append(
            (f"it has been connecting for {time.time() - apply.began:.0f} s", "See whether the publisher and the network answer.")
        )
    problems += [
        (f"the copy of table {_title(titles, oid)} has not moved for {copy.still:.0f} s", STUCK) for oid, copy in copies if copy.is_stuck
    ]
    if isinstance(apply, ApplyWorker) and apply.follower.unfollowed is not None:
        problems.append(
            (f"tables cannot follow what the publisher has altered: {apply.follower.unfollowed}", "The worker tries again by itself.")
        )
    problems += _to_do(account, state, [_title(titles, oid) for oid in left_out])
    subject, name = f'subscription "{subscription.name}" of database "{database}"', quote_ident(subscription.name)
    types, unfilled = _columns(cursor, subscription)
    return SubscriptionReport(
        name=subscription.name,
        database=database,
        publications=tuple(subscription.publications),
        state=state,
        starved_of=starved_of,
        problems=tuple(Problem("subscription", subject, message, to_do and to_do.replace("{name}", name)) for message, to_do in problems),
        missing_publications=tuple(account.missing_publications),
        left_out=tuple(sorted((LeftOut(_title(titles, oid), count) for oid, count in left_out.items()), key=lambda table: table.table)),
        types=types,
        unfilled=unfilled,
        tables=len(tables),
        tables_synced=len(tables) - len(waiting),
        tables_waiting=tuple(_title(titles, rel.relation) for rel in waiting),
        tables_resync={_title(titles, oid): method for oid, method in methods.items()},
        table_states=dict(Counter(TABLE_STATES[rel.state] for rel in tables)),
        copies=tuple(_copy(_title(titles, oid), copy) for oid, copy in copies),
        copied_rows=account.copied.changes + sum(copy.arrived[0] for _, copy in copies),
        copied_bytes=account.copied.bytes + sum(copy.arrived[1] for _, copy in copies),
        applied_transactions=account.applied.transactions,
        applied_rows=account.applied.changes,
        applied_bytes=account.applied.bytes,
        batches=account.applied.batches,
        seconds={**account.applied.seconds, **account.copied.seconds},
        skipped_rows=account.applied.missing,
        conflicts=dict(account.conflicts),
        received_lsn=None if apply is None or apply.position is None else str(apply.position.received),
        applied_lsn=_applied_lsn(cursor, subscription, apply),
        applied_at=account.applied.moment,
        connected=streaming,
        lag_bytes=None if counts is None else counts.bytes,
        lag_seconds=lag,
        failing=failing,
        last_error=error,
        apply_errors=errors[0],
        sync_errors=errors[1],
    )


def _applied_lsn(cursor: CatalogCursor, subscription: Subscription, apply: Worker | None) -> str | None:
    """Return the LSN up to which the publisher's log has been applied. If no worker is streaming, use the origin's LSN."""
    if apply is not None and apply.progress is not None:
        return str(apply.progress.flushed)
    progress = origins.progress(cursor, f"pg_{subscription.oid}")
    return None if progress is None or not progress.remote_lsn else str(progress.remote_lsn)


def _to_do(account: Account, state: str, left_out: list[str]) -> list[tuple[str, str | None]]:
    """Return the problems that no error reports, each with the suggested action."""
    problems: list[tuple[str, str | None]] = []
    if account.missing_publications and state != "disabled":
        listed = ", ".join(quote_ident(publication) for publication in account.missing_publications)
        problems.append((f"there is no publication {listed} on the publisher", NO_PUBLICATION))
    elif state == "streaming, no tables":
        problems.append(("it has no tables", NO_TABLES))
    if account.unjoined is not None:
        problems.append((f"published tables cannot join: {account.unjoined}", "The worker tries again by itself."))
    if left_out:
        problems.append((f"changes of tables are left out: {', '.join(sorted(left_out))}", LEFT_OUT))
    return problems


def _silence(apply: Worker | None) -> float:
    """Return the seconds since the publisher's last message, or 0 without a stream or without pings (wal_receiver_timeout is 0)."""
    if apply is None or apply.progress is None or apply.progress.heard is None or not Limits.of(apply.settings).timeout:
        return 0.0
    return time.time() - apply.progress.heard


def _copy(table: str, copy: InitialCopy) -> CopyReport:
    rows, size = copy.arrived
    speed = rows / max(time.monotonic() - copy.began, 1e-3)
    left = None if copy.estimate is None or not speed else max(0, copy.estimate - rows) / speed
    return CopyReport(
        table=table,
        rows=rows,
        bytes=size,
        estimated_rows=copy.estimate,
        rows_per_second=speed,
        seconds_left=left,
        still_seconds=copy.still,
    )


def _columns(cursor: CatalogCursor, subscription: Subscription) -> tuple[tuple[OtherType, ...], tuple[Unfilled, ...]]:
    """Return the columns that differ from the publisher's: those of another type, and those with rows that lack the publisher's default."""
    listed = subscription_column.of_subscription(cursor, subscription.oid)
    titles = subscriptions.titles(cursor, subscription.database, {relation for relation, _ in listed})
    columns = [(f"{_title(titles, relation)}.{column.name}", column) for relation, column in listed]
    types = tuple(OtherType(name, column.type, column.local_type) for name, column in columns if column.local_type)
    return types, tuple(Unfilled(name, column.unfilled) for name, column in columns if column.unfilled)


def _lasts(failure: Failure, apply: Worker | None, waiting: list[SubscriptionRel]) -> bool:
    """Return whether an error persists: its table is still waiting, or the apply worker has made no progress since it restarted."""
    if failure.relation is not None:
        return any(rel.relation == failure.relation for rel in waiting)
    if apply is None or apply.progress is None or failure.moment > apply.began:
        return True
    return not apply.advanced and (apply.progress.outstanding or apply.position == ReceiverPosition())


def _starved_of(launcher: Launcher, subscription: Subscription, workers: list[Worker], waiting: list[SubscriptionRel]) -> str | None:
    """Return the setting whose limit prevents the apply worker from starting, or all table syncs, or None."""
    if not subscription.enabled:
        return None
    refused = launcher.refused(subscription.oid)
    if not any(worker.relation is None for worker in workers):
        return refused.get(None)
    if any(worker.relation is not None for worker in workers):
        return None
    return next((refused[rel.relation] for rel in waiting if rel.relation in refused), None)


def _state(subscription: Subscription, apply: Worker | None, waiting: list[SubscriptionRel], *, failing: bool, behind: bool) -> str:
    if not subscription.enabled:
        return "disabled"
    if apply is None or apply.progress is None:
        return "retrying after an error" if failing else "starting"
    if waiting:
        return "copying, with errors" if failing else "copying"
    if failing:
        return "retrying after an error"
    return "behind" if behind else "streaming"


def _failure(cursor: CatalogCursor, subscription: Subscription, failure: Failure, titles: Titles) -> FailureReport:
    error, owner = failure.error, roles.find(cursor, subscription.owner)
    title = titles.get(failure.relation or 0)
    table = None if title is None else ".".join(map(quote_ident, title))
    subject = Subject(subscription.name, "the owner" if owner is None else owner.name, subscription.conninfo, table)
    return FailureReport(
        time=failure.moment,
        table=None if failure.relation is None else _title(titles, failure.relation),
        sqlstate=error.sqlstate,
        advice=advice(error, subject),
        message=error.message,
        detail=error.detail,
        hint=error.hint,
        context=error.context,
    )


def _title(titles: Titles, oid: int) -> str:
    title = titles.get(oid)
    return str(oid) if title is None else f"{title[0]}.{title[1]}"
