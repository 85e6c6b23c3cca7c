"""The apply worker of one subscription: receives the stream, applies it, and brings the table syncs to their end.

Loop: check the subscription (removed, disabled, altered), advance the states of tables, get a segment, apply it. `table_sync` describes
how the worker handles tables that are not ready (process_syncing_tables_for_apply in tablesync.c).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from datetime import UTC, datetime, timedelta

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_history, subscription_resync
from headgate.catalog.replication.subscription import Subscription, SubscriptionRel, SyncState
from headgate.errors import PostgresError, Severity
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import message as m
from headgate.sql.names import quote_ident
from headgate.subscriber import advice
from headgate.subscriber.apply import skip
from headgate.subscriber.apply.apply import Applier
from headgate.subscriber.apply.evolution import Follower
from headgate.subscriber.apply.prepared import ReceivedPrepared
from headgate.subscriber.apply.stream import AppliedStream
from headgate.subscriber.described_table import DescribedTable
from headgate.subscriber.rows import table_history
from headgate.subscriber.synchronization.table_sync import Phase, SyncWorker
from headgate.subscriber.worker import Started, Worker
from headgate.subscriber.worker_registry import WorkerRegistry
from headgate.walreceiver import remote
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.receiver import StreamEndError
from headgate.walreceiver.segment import Segment

_log = logging.getLogger("headgate.subscriber")

WAIT = 1.0
"""The seconds to wait for a segment before the next check of the subscription."""
LONGEST_EXPIRY_PAUSE = 60.0
"""The maximum number of seconds between two removals of expired changes from histories."""
SLOT_PAUSE = 0.1
"""The seconds between two checks whether a sync slot has been dropped."""
BEHIND = 10.0
"""The lag in seconds after which a subscription is reported as behind."""
BEHIND_AGAIN = 60.0
"""The seconds between two log lines about the lag."""
_PARAMETERS = (
    "name",
    "conninfo",
    "publications",
    "slot_name",
    "binary",
    "stream",
    "owner",
    "origin",
    "run_as_owner",
    "password_required",
    "create_tables",
    "schema_evolution",
    "history",
)


class ApplyWorker(Worker):
    """The apply worker of one subscription. See the module."""

    def __init__(self, workers: WorkerRegistry, subscription: Subscription) -> None:
        super().__init__(workers.host, subscription, f"apply worker {subscription.name}", workers.ended)
        self._workers = workers
        stream = AppliedStream(subscription.oid, subscription.database, self.origin, name=subscription.name)
        self._account = self.host.ledger.of(subscription.oid)
        is_complete = subscription.schema_evolution == "follow"
        self.follower = Follower(self.engine, stream, self.evolve, is_complete, self._synchronize_again)
        self.applier = Applier(
            self.engine, stream, self.session, self.patience, self.rules, self.follower,
            join=None if self.make_tables is None else self._join, jobs=self.jobs,
            left_out=self._report_left_out, record=self.record, counters=self._account.applied,
        )  # fmt: skip
        self._look_again = time.monotonic()
        """The time of the next check of the publisher for publications and tables."""
        self._expire_again = time.monotonic()
        """The time of the next removal of expired changes from histories."""
        self._unsettled = True
        """Whether some table is not ready."""
        self.news.set()  # the subscription may have been altered since the launcher read it, and before `look` could reach this worker
        self._sync_started: dict[int, float] = {}
        self._prepared = ReceivedPrepared(self, self.applier)
        self._logged_lag: float | None = None
        """The time of the last log line that says that the subscription is behind, or None if it has caught up."""
        self._restart = False
        """Whether the worker must restart with two_phase."""

    def work(self) -> None:
        """Stream and apply changes until the worker must end."""
        subscription = self.subscription
        start = self.catalog.change(self._start_position)
        _log.info('logical replication apply worker for subscription "%s" has started', subscription.name)
        if subscription.slot_name is None:
            raise PostgresError("55000", "subscription has no replication slot set")
        connection = PublisherConnection.open(subscription.conninfo, subscription.name, waker=self.waker)
        try:
            position = connection.identify_system().position
            self._check_publications(connection)
            if self.follower.is_complete:
                self.follower.add_pending(self._tables_to_check(None), position)
            two_phase = self._two_phase()
            receiver = self.open_stream(connection, subscription.slot_name, start, str(subscription.oid), two_phase=two_phase)
            if two_phase and subscription.two_phase == "p":
                self.write_subscription(lambda cursor: subscriptions.change(cursor, subscription.oid, two_phase="e"))
                self.subscription = dataclasses.replace(self.subscription, two_phase="e")
            self._account.progress = self.progress
            assert self.spool is not None
            self.spool.backlog_end = position
            try:
                while self._look() and self._step():
                    pass
            finally:
                receiver.stop()
        finally:
            connection.close()

    def _tables_to_check(self, relation: int | None) -> list[DescribedTable]:
        """Return one table, or all, to check once the stream has reached the publisher's position.

        Earlier pending changes are not known.
        """
        with contextlib.closing(self.catalog.cursor()) as cursor:
            oids = [rel.relation for rel in subscriptions.tables(cursor, self.subscription.oid)] if relation is None else [relation]
            names = subscriptions.titles(cursor, self.subscription.database, oids).values()
        return [DescribedTable(schema, name, altered=False) for schema, name in sorted(names)]

    def _start_position(self, cursor: Cursor) -> Lsn:
        refuse_stopped(cursor, self.subscription)  # if it was dropped in the meantime, an origin would never be removed
        if origins.find(cursor, self.origin) is None:
            origins.create(cursor, self.origin)
        origins.check_room(cursor, self.origin, self.settings.integer("max_replication_slots"))
        progress = origins.progress(cursor, self.origin)
        if progress is None:
            origins.advance(cursor, self.origin, INVALID)
        return progress.remote_lsn if progress is not None else INVALID

    def _two_phase(self) -> bool:
        """Return whether to stream with two_phase: it is enabled, or pending while there are tables and all are ready."""
        if self.subscription.two_phase != "p":
            return self.subscription.two_phase == "e"
        with contextlib.closing(self.catalog.cursor()) as cursor:
            tables = subscriptions.tables(cursor, self.subscription.oid)
            requested = subscription_resync.requested(cursor, self.subscription.oid)
        return bool(tables) and not requested and all(rel.state == SyncState.READY for rel in tables)

    def _step(self) -> bool:
        """Apply the next segment. Return whether to continue.

        The subscription is checked again after the segment arrives, because it may have been altered in the meantime.
        """
        assert self.spool is not None
        if self._unsettled:
            self._settle_tables()
        self._look_at_publisher()
        self._expire_histories()
        if self.progress is not None:
            self.follower.follow_pending(self.progress.flushed)
        segment = self.take(self._pause())
        self._log_lag()
        if segment is None:
            return True
        if not self._look():
            return False
        if segment.mark is not None:
            self._process_marked(segment)
            return True
        rest = segment
        if self.subscription.skip_lsn != INVALID:
            left = skip.skip_transaction(self, self.subscription, self.applier, segment)
            self.subscription = dataclasses.replace(self.subscription, skip_lsn=INVALID)
            if left is None:
                self.spool.release_oldest()
                return True
            rest = left
        self.applier.apply(rest, self.applied)
        self.spool.release_oldest()
        return True

    # ---- the publisher ---------------------------------------------------------------------------------

    def _check_publications(self, connection: PublisherConnection) -> None:
        """Log which publications do not exist, and when all of them exist again."""
        missing = tuple(remote.missing_publications(connection, self.subscription.publications))
        if missing and missing != self._account.missing_publications:
            text = f'subscription "{self.subscription.name}": {remote.missing_text(missing)}'
            _log.warning("%s", text, extra={"hint": advice.NO_PUBLICATION.format(name=quote_ident(self.subscription.name))})
        elif self._account.missing_publications and not missing:
            _log.info('all publications of subscription "%s" are there now', self.subscription.name)
        self._account.missing_publications = missing

    def _look_at_publisher(self) -> None:
        """Check the publisher periodically for missing publications, and for tables that must join the subscription (create_tables)."""
        now = time.monotonic()
        is_needed = self._account.missing_publications or self.make_tables is not None
        if not is_needed or now < self._look_again:
            return
        self._look_again = now + 2 * self.settings.seconds("wal_retrieve_retry_interval")
        try:
            if self._account.missing_publications:
                with PublisherConnection.open(self.subscription.conninfo, self.subscription.name, waker=self.waker) as connection:
                    self._check_publications(connection)
            if self.make_tables is not None:
                self._join()
            self._account.unjoined = None
        except PostgresError as error:
            if error.severity is Severity.FATAL:
                raise
            if self._account.unjoined != error.message:
                _log.warning('could not look for tables of subscription "%s": %s', self.subscription.name, error.message)
            self._account.unjoined = error.message

    def _join(self) -> bool:
        """Add the published tables that are not in the subscription to it, to be copied. Return whether there were any."""
        if self.make_tables is None or self.subscription.two_phase == "e":  # copies are not allowed then, as in REFRESH
            return False
        lines = self.make_tables()
        for line in lines:
            _log.info("%s", line)
        self._unsettled = self._unsettled or bool(lines)
        if lines:
            self._account.left_out.clear()
        return bool(lines)

    def _report_left_out(self, counts: dict[int, int]) -> None:
        """Count the changes of tables that are not in the subscription, and log a warning once for each table."""
        for relation in counts.keys() - self._account.left_out.keys():
            _log.warning(
                'changes of table "%s" are left out: it is published and not in subscription "%s"',
                self._title(relation),
                self.subscription.name,
                extra={"hint": "Run ALTER SUBSCRIPTION ... REFRESH PUBLICATION to add it."},
            )
        self._account.left_out.update(counts)
        self._look_again = time.monotonic()

    def _title(self, relation: int) -> str:
        """Return a table's qualified name."""
        with contextlib.closing(self.catalog.cursor()) as cursor:
            table = relations.find(cursor, self.subscription.database, relation)
        return str(relation) if table is None else f"{table.schema}.{table.name}"

    def _process_marked(self, segment: Segment) -> None:
        """Process a prepared transaction, or its commit or rollback."""
        assert self.spool is not None
        skip_lsn, mark = self.subscription.skip_lsn, segment.mark
        skipped = isinstance(mark, m.Prepare) and skip_lsn == mark.prepare_lsn
        if skipped:
            skip.log_start(skip_lsn)
        self._prepared.handle(segment, skipped=skipped)
        if skip_lsn != INVALID:
            finish = Lsn(mark.prepare_lsn) if isinstance(mark, m.Prepare) else segment.end
            skip.finish_skip(self, self.subscription, finish)
            self.subscription = dataclasses.replace(self.subscription, skip_lsn=INVALID)
        self.applied(segment.end)
        self.spool.release_oldest()

    def _log_lag(self) -> None:
        """Log periodically that the subscription is behind, and once that it has caught up."""
        assert self.progress is not None
        size, seconds = self.progress.lag()
        name, now = self.subscription.name, time.monotonic()
        if seconds > BEHIND:
            if self._logged_lag is None or now - self._logged_lag >= BEHIND_AGAIN:
                _log.warning('subscription "%s" is behind its publisher: %d s, %d bytes of its log', name, seconds, size)
                self._logged_lag = now
        elif self._logged_lag is not None and seconds < BEHIND / 2:
            _log.info('subscription "%s" has caught up with its publisher', name)
            self._logged_lag = None

    def _pause(self) -> float:
        return 0.1 if self._unsettled else WAIT

    # ---- the subscription -------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Read the subscription again if it may have changed. Return whether to continue."""
        self.check_stop()
        if self._restart:
            text = 'logical replication apply worker for subscription "%s" will restart so that two_phase can be enabled'
            _log.info(text, self.subscription.name)
            return False
        if not self.news.is_set():
            return True
        self.news.clear()
        with contextlib.closing(self.catalog.cursor()) as cursor:
            current = subscriptions.find(cursor, self.subscription.oid)
        name = self.subscription.name
        if current is None:
            _log.info('logical replication apply worker for subscription "%s" will stop because the subscription was removed', name)
            return False
        if not current.enabled:
            _log.info('logical replication apply worker for subscription "%s" will stop because the subscription was disabled', name)
            return False
        if any(getattr(current, field) != getattr(self.subscription, field) for field in _PARAMETERS):
            _log.info('logical replication apply worker for subscription "%s" will restart because of a parameter change', name)
            return False
        self.subscription = current
        self._unsettled = True
        return True

    # ---- the tables -------------------------------------------------------------------------------------

    def _settle_tables(self) -> None:
        """Advance each table that is not ready by one step.

        Tables whose sync started longest ago come first, so that tables that keep failing do not block others.
        """
        assert self.progress is not None
        with contextlib.closing(self.catalog.cursor()) as cursor:
            known = subscriptions.tables(cursor, self.subscription.oid)
            requested = subscription_resync.requested(cursor, self.subscription.oid)
            without_history = subscriptions.without_history(cursor, self.subscription)
        if requested:
            # From state i on, this worker does not apply the table's changes.
            known = [(rel.state == SyncState.READY and rel.relation in requested and self._as_new(rel.relation)) or rel for rel in known]
        tables = sorted((rel for rel in known if rel.state != SyncState.READY), key=lambda rel: self._sync_started.get(rel.relation, 0.0))
        self._unsettled = bool(tables) or bool(requested)
        self._restart = bool(known) and not self._unsettled and self.subscription.two_phase == "p"
        full = False
        if self.applier.record is not None and without_history:
            self.applier.record()
        for rel in tables:
            if rel.state == SyncState.SYNCDONE:
                self._make_ready(rel)
            elif (sync := self._workers.sync_of(self.subscription.oid, rel.relation)) is not None:
                self._lead(sync)
            elif not full:  # otherwise no other table, of perhaps thousands, can start either
                full = self._start_sync(rel) is Started.LATER

    def _expire_histories(self) -> None:
        """Remove changes that are older than history_retention from the histories of tables, at least once a minute."""
        retention, now = self.settings.seconds("history_retention"), time.monotonic()
        if not retention or self.applier.record is None or now < self._expire_again:
            return
        self._expire_again = now + min(retention, LONGEST_EXPIRY_PAUSE)
        oldest = datetime.now(UTC) - timedelta(seconds=retention)
        transaction = self.engine.begin(self.subscription.database)
        transaction.locks.cancelled = self.patience
        try:
            for entry in subscription_history.of_subscription(transaction.cursor, self.subscription.oid).values():
                history = relations.get(transaction.cursor, self.subscription.database, entry.relation)
                if files := table_history.expire(transaction, history, oldest):
                    _log.debug('removed %d files of table "%s.%s"', files, history.schema, history.name)
            transaction.commit()
        finally:
            transaction.rollback()

    def _as_new(self, relation: int) -> SubscriptionRel | None:
        """Go from state r or s to i. Return None if the slot of an earlier sync is left, or the table has been or is being removed.

        The table is synchronized by its difference if no session has requested a method.
        """
        subscription, again = self.subscription, SubscriptionRel(self.subscription.oid, relation, SyncState.INIT, None)

        def take(cursor: Cursor) -> bool:
            if origins.find(cursor, f"pg_{subscription.oid}_{relation}") is not None or not subscriptions.set_table(cursor, again):
                return False
            subscription_resync.take_difference(cursor, subscription.database, subscription.oid, relation)
            return True

        return again if self._workers.write_state(subscription.oid, relation, take) else None

    def _synchronize_again(self, relation: int) -> None:
        """Synchronize a table again, whose columns the stream does not determine, after the slot of an earlier sync has been dropped."""
        text = 'subscription "%s": table "%s" is synchronized again, the stream does not tell which of its columns were altered how'
        _log.info(text, self.subscription.name, self._title(relation))
        while self._is_there(relation) and self._as_new(relation) is None:
            self.check_stop()
            time.sleep(SLOT_PAUSE)
        self._unsettled = True

    def _is_there(self, relation: int) -> bool:
        with contextlib.closing(self.catalog.cursor()) as cursor:
            return subscriptions.table(cursor, self.subscription.oid, relation) is not None

    def _make_ready(self, rel: SubscriptionRel) -> None:
        assert self.progress is not None
        position = self.progress.flushed
        if rel.lsn is not None and position >= rel.lsn:
            ready = dataclasses.replace(rel, state=SyncState.READY, lsn=position)
            is_written = self._workers.write_state(rel.subscription, rel.relation, lambda cursor: subscriptions.set_table(cursor, ready))
            if is_written and self.follower.is_complete:
                self.follower.add_pending(self._tables_to_check(rel.relation), position)

    def _lead(self, sync: SyncWorker) -> None:
        """Tell a waiting sync how far to stream, and wait until it is there. So no change is lost or applied twice."""
        assert self.progress is not None
        if sync.phase is not Phase.SYNCWAIT:
            return
        sync.catch_up(max(sync.lsn, self.progress.flushed))
        while sync.alive and not sync.wait_done():
            self.check_stop()

    def _start_sync(self, rel: SubscriptionRel) -> Started | None:
        """Start a sync. Return None if the retry interval has not passed yet."""
        last = self._sync_started.get(rel.relation)
        if last is not None and time.monotonic() - last < self.settings.seconds("wal_retrieve_retry_interval"):
            return None
        started = self._workers.start_sync(self, rel.relation)
        if started is not Started.LATER:
            self._sync_started[rel.relation] = time.monotonic()
        return started


def refuse_stopped(cursor: Cursor, subscription: Subscription) -> None:
    """Raise StreamEndError if a subscription was removed or disabled after the launcher had read it."""
    current = subscriptions.find(cursor, subscription.oid)
    if current is not None and current.enabled:
        return
    text = "logical replication apply worker for subscription {} will not start because the subscription was {} during startup"
    raise StreamEndError(
        "55000", text.format(subscription.oid, "removed") if current is None else text.format(f'"{subscription.name}"', "disabled")
    )
