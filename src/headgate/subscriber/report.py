"""Reports the status of each subscription and its tables, for `headgate status`, metrics and pg_stat_subscription_rel.

A report has the state, tables, rows and bytes, lag, and the last error with advice. Called by the server. The counts come from the
`Ledger` (`subscription_statistics`).
"""

from __future__ import annotations

import contextlib
import enum
import functools
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headgate.catalog import database as databases
from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column, subscription_resync
from headgate.catalog.replication.subscription import COPIED, Subscription, SubscriptionRel, SyncState
from headgate.catalog.security import role as roles
from headgate.lsn import Lsn
from headgate.settings.node import Settings
from headgate.sql.names import quote_ident
from headgate.subscriber.advice import LEFT_OUT, NO_PUBLICATION, NO_TABLES, STUCK, Subject, advice, raise_setting
from headgate.subscriber.apply_worker import BEHIND, ApplyWorker
from headgate.subscriber.snapshot import CopyReport, FailureReport, LeftOut, OtherType, Problem, SubscriptionReport, Unfilled
from headgate.subscriber.subscription_statistics import Account, Failure, Known
from headgate.subscriber.synchronization.initial_copy import InitialCopy
from headgate.subscriber.synchronization.table_sync import SyncWorker
from headgate.subscriber.worker import Worker
from headgate.subscriber.worker_registry import WorkerRegistry
from headgate.walreceiver.progress import ReceiverPosition
from headgate.walreceiver.receiver import Limits


class State(enum.StrEnum):
    """The state of a subscription. `_Facts.state` decides which."""

    DISABLED = "disabled"
    STARTING = "starting"
    RETRYING = "retrying after an error"
    COPYING = "copying"
    COPYING_WITH_ERRORS = "copying, with errors"
    BEHIND = "behind"
    STREAMING = "streaming"
    WAITING_FOR_PUBLICATION = "waiting for a publication"
    NO_TABLES = "streaming, no tables"
    WAITING_FOR_WORKER = "waiting for a worker"
    SILENT = "publisher is silent"


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


def subscription_report(registry: WorkerRegistry) -> list[SubscriptionReport]:
    """Return one entry per subscription of all databases."""
    with contextlib.closing(registry.host.catalog.cursor()) as cursor:
        names = {database.oid: database.name for database in databases.all_databases(cursor)}
        errors = subscriptions.errors(cursor)
        return [
            _entry(
                registry,
                cursor,
                subscription,
                names.get(subscription.database, str(subscription.database)),
                errors.get(subscription.oid, (0, 0)),
            )
            for subscription in subscriptions.all_subscriptions(cursor)
        ]


def table_report(registry: WorkerRegistry, most: int | None = None) -> Iterator[TableReport]:
    """Yield the tables of all subscriptions, by subscription and oid, at most `most` of them."""
    with contextlib.closing(registry.host.catalog.cursor()) as cursor:
        for subscription in subscriptions.all_subscriptions(cursor):
            account = registry.host.ledger.of(subscription.oid)
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


@dataclass(frozen=True)
class _Facts:
    """The facts from which a subscription's report is made. `now`: when they were read."""

    now: float
    subscription: Subscription
    account: Account
    apply: Worker | None
    tables: list[SubscriptionRel]
    waiting: list[SubscriptionRel]
    """The tables whose rows have not all been copied."""
    copies: list[tuple[int, InitialCopy]]
    """The running copies, by table."""
    lag: Known | None
    starved_of: str | None
    errors: tuple[int, int]
    """The number of errors of apply workers, and of table syncs."""
    is_streaming: bool
    is_failing: bool
    """Whether the last error lasts."""
    silence: float
    """The seconds since the publisher's last message."""

    @classmethod
    def of(cls, registry: WorkerRegistry, cursor: CatalogCursor, subscription: Subscription, errors: tuple[int, int]) -> _Facts:
        account = registry.host.ledger.of(subscription.oid)
        workers = [worker for worker in registry.all() if worker.subscription.oid == subscription.oid]
        apply = next((worker for worker in workers if worker.relation is None), None)
        tables = subscriptions.tables(cursor, subscription.oid)
        copies = [
            (worker.relation or 0, worker.copy)
            for worker in workers
            if isinstance(worker, SyncWorker) and worker.copy is not None and worker.copy.running
        ]
        waiting = [rel for rel in tables if rel.state not in COPIED]
        is_streaming, failure = apply is not None and apply.progress is not None, account.failure
        return cls(
            now=time.time(),
            subscription=subscription,
            account=account,
            apply=apply,
            tables=tables,
            waiting=waiting,
            copies=copies,
            lag=account.known(streaming=is_streaming),
            starved_of=_starved_of(registry, subscription, workers, waiting),
            errors=errors,
            is_streaming=is_streaming,
            is_failing=failure is not None and _lasts(failure, apply, waiting),
            silence=_silence(apply),
        )

    @property
    def lag_seconds(self) -> float | None:
        """How far the subscription is behind its publisher, or None if that is unknown."""
        return None if self.lag is None else max(0.0, self.now - self.lag.since)

    @functools.cached_property
    def left_out(self) -> dict[int, int]:
        """The number of skipped changes of each published table that is not in the subscription."""
        tables = {rel.relation for rel in self.tables}
        return {oid: count for oid, count in self.account.left_out.items() if oid not in tables}

    @functools.cached_property
    def state(self) -> State:
        """The first state whose claim holds."""
        failing = self.is_failing
        claims = (
            (State.DISABLED, not self.subscription.enabled),
            (State.WAITING_FOR_WORKER, self.starved_of is not None and not failing),
            (State.RETRYING if failing else State.STARTING, not self.is_streaming),
            (State.COPYING_WITH_ERRORS if failing else State.COPYING, bool(self.waiting)),
            (State.RETRYING, failing),
            (State.BEHIND, (self.lag_seconds or 0) > BEHIND),
            (State.SILENT, self.silence > SILENT_SECONDS),
            (State.WAITING_FOR_PUBLICATION, bool(self.account.missing_publications)),
            (State.NO_TABLES, not self.tables),
        )
        return next((state for state, holds in claims if holds), State.STREAMING)


Trouble = tuple[str, str | None]
"""The message of a problem, and the action that solves it, or None. ``{name}`` in an action stands for the name of the subscription."""


def _entry(
    registry: WorkerRegistry, cursor: CatalogCursor, subscription: Subscription, database: str, errors: tuple[int, int]
) -> SubscriptionReport:
    facts = _Facts.of(registry, cursor, subscription, errors)
    account, apply, lag, left_out = facts.account, facts.apply, facts.lag, facts.left_out
    methods = _again(cursor, subscription.oid)
    failed = [account.failure.relation or 0] if account.failure else []
    titles = subscriptions.titles(cursor, subscription.database, {*methods, *(rel.relation for rel in facts.waiting), *left_out, *failed})
    error = None if account.failure is None else _failure(cursor, subscription, account.failure, titles)
    subject, name = f'subscription "{subscription.name}" of database "{database}"', quote_ident(subscription.name)
    problems = [*_error_problems(facts, error), *_delay_problems(facts, registry.host.settings, titles), *_to_do(facts, titles)]
    types, unfilled = _columns(cursor, subscription)
    return SubscriptionReport(
        name=subscription.name,
        database=database,
        publications=tuple(subscription.publications),
        state=facts.state,
        starved_of=facts.starved_of,
        problems=tuple(
            Problem("subscription", subject, message, action and action.replace("{name}", name)) for message, action in problems
        ),
        missing_publications=tuple(account.missing_publications),
        left_out=tuple(sorted((LeftOut(_title(titles, oid), count) for oid, count in left_out.items()), key=lambda table: table.table)),
        types=types,
        unfilled=unfilled,
        tables=len(facts.tables),
        tables_synced=len(facts.tables) - len(facts.waiting),
        tables_waiting=tuple(_title(titles, rel.relation) for rel in facts.waiting),
        tables_resync={_title(titles, oid): method for oid, method in methods.items()},
        table_states=dict(Counter(TABLE_STATES[rel.state] for rel in facts.tables)),
        copies=tuple(_copy(_title(titles, oid), copy) for oid, copy in facts.copies),
        copied_rows=account.copied.changes + sum(copy.arrived[0] for _, copy in facts.copies),
        copied_bytes=account.copied.bytes + sum(copy.arrived[1] for _, copy in facts.copies),
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
        connected=facts.is_streaming,
        lag_bytes=None if lag is None else lag.bytes,
        lag_seconds=facts.lag_seconds,
        failing=facts.is_failing,
        last_error=error,
        apply_errors=errors[0],
        sync_errors=errors[1],
    )


def _error_problems(facts: _Facts, error: FailureReport | None) -> Iterator[Trouble]:
    """Yield the problem of an error that lasts, or that has disabled the subscription."""
    if facts.is_failing and error is not None:
        table = "" if error.table is None else f" (table {error.table})"
        yield f"{facts.state}: {error.message}{table}", error.advice
    elif facts.state is State.DISABLED and facts.subscription.disable_on_error and any(facts.errors):
        yield "disabled, and disable_on_error is on: see the server log for the error", "ALTER SUBSCRIPTION {name} ENABLE"


def _delay_problems(facts: _Facts, settings: Settings, titles: Titles) -> Iterator[Trouble]:
    """Yield what keeps the subscription from starting or from following its publisher."""
    state, apply = facts.state, facts.apply
    if facts.starved_of is not None:
        yield "no worker can start for it", raise_setting(facts.starved_of, settings)
    if state is State.BEHIND and facts.lag is not None:
        yield f"it is {facts.lag_seconds:.0f} s and {facts.lag.bytes} bytes of log behind its publisher", None
    if state is State.SILENT:
        yield f"its publisher has said nothing for {facts.silence:.0f} s", "See whether the publisher runs, and the network to it."
    if state is State.STARTING and apply is not None and facts.now - apply.began > LATE_SECONDS:
        yield f"it has been connecting for {facts.now - apply.began:.0f} s", "See whether the publisher and the network answer."
    for oid, copy in facts.copies:
        if copy.is_stuck:
            yield f"the copy of table {_title(titles, oid)} has not moved for {copy.still:.0f} s", STUCK
    if isinstance(apply, ApplyWorker) and apply.follower.unfollowed is not None:
        yield f"tables cannot follow what the publisher has altered: {apply.follower.unfollowed}", "The worker tries again by itself."


def _applied_lsn(cursor: CatalogCursor, subscription: Subscription, apply: Worker | None) -> str | None:
    """Return the LSN up to which the publisher's log has been applied. If no worker is streaming, use the origin's LSN."""
    if apply is not None and apply.progress is not None:
        return str(apply.progress.flushed)
    progress = origins.progress(cursor, f"pg_{subscription.oid}")
    return None if progress is None or not progress.remote_lsn else str(progress.remote_lsn)


def _to_do(facts: _Facts, titles: Titles) -> Iterator[Trouble]:
    """Yield the problems that no error reports and that a person has to solve."""
    account, left_out = facts.account, sorted(_title(titles, oid) for oid in facts.left_out)
    if account.missing_publications and facts.state is not State.DISABLED:
        publications = ", ".join(quote_ident(publication) for publication in account.missing_publications)
        yield f"there is no publication {publications} on the publisher", NO_PUBLICATION
    elif facts.state is State.NO_TABLES:
        yield "it has no tables", NO_TABLES
    if account.unjoined is not None:
        yield f"published tables cannot join: {account.unjoined}", "The worker tries again by itself."
    if left_out:
        yield f"changes of tables are left out: {', '.join(left_out)}", LEFT_OUT


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


def _starved_of(registry: WorkerRegistry, subscription: Subscription, workers: list[Worker], waiting: list[SubscriptionRel]) -> str | None:
    """Return the setting whose limit prevents the apply worker from starting, or all table syncs, or None."""
    if not subscription.enabled:
        return None
    refused = registry.refused(subscription.oid)
    if not any(worker.relation is None for worker in workers):
        return refused.get(None)
    if any(worker.relation is not None for worker in workers):
        return None
    return next((refused[rel.relation] for rel in waiting if rel.relation in refused), None)


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
