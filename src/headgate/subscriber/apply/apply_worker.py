"""The apply worker of one subscription: streams, applies what is ready, and leads the table syncs to their end.

Loop: look at the subscription (removed, disabled, changed), settle the tables' states, take a segment, apply it. What it does for
tables that are not ready (process_syncing_tables_for_apply in tablesync.c) is told in `table_sync`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_history, subscription_resync
from headgate.catalog.replication.subscription import Subscription, SubscriptionRel, SyncState
from headgate.errors import PostgresError, Severity
from headgate.failpoint import Step
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import message as m
from headgate.sql.names import quote_ident
from headgate.subscriber import advice
from headgate.subscriber.apply import skip, table_history
from headgate.subscriber.apply.apply import AppliedStream, Applier
from headgate.subscriber.apply.evolution import Told
from headgate.subscriber.apply.prepared import ReceivedPrepared
from headgate.subscriber.synchronization.table_sync import Phase, SyncWorker
from headgate.subscriber.worker import Started, Worker
from headgate.walreceiver import remote
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.receiver import StreamEndError
from headgate.walreceiver.segment import Segment

if TYPE_CHECKING:
    from headgate.subscriber.launcher import Launcher

_log = logging.getLogger("headgate.subscriber")

WAIT = 1.0
"""Seconds between two looks at nothing."""
LONGEST_EXPIRY_PAUSE = 60.0
"""Seconds between two looks for changes that histories have kept long enough."""
SLOT_PAUSE = 0.1
"""Seconds between two looks whether a sync slot has been dropped."""
BEHIND = 10.0
"""Seconds for which a transaction has been waiting when a subscription is called behind."""
BEHIND_AGAIN = 60.0
"""Seconds between two lines of the log that say so."""
_PARAMETERS = (
    "name",
    "conninfo",
    "publications",
    "slot_name",
    "binary",
    "stream",
    "owner",
    "origin",
    "create_tables",
    "schema_evolution",
    "history",
)


class ApplyWorker(Worker):
    """See the module."""

    def __init__(self, launcher: Launcher, subscription: Subscription) -> None:
        super().__init__(launcher, subscription, f"apply worker {subscription.name}")
        stream = AppliedStream(subscription.oid, subscription.database, self.origin, name=subscription.name)
        self.applier = Applier(self.engine, stream, self.session, self.patience, self.rows, self.rights, self.evolve, self.unique)
        self.applier.triggers = self.triggers
        self.applier.follow = subscription.schema_evolution == "follow"
        self._account = self.launcher.ledger.of(subscription.oid)
        self.applier.left_out = self._tell_left_out
        self.applier.jobs = self.jobs
        self.applier.record = self.record
        self.applier.synchronize_again = self._synchronize_again
        self.applier.join = None if self.make_tables is None else self._join
        self._look_again = time.monotonic()
        """When the publisher is asked next for publications and tables."""
        self.applier.counters = self._account.applied
        self._expire_again = time.monotonic()
        """When histories are looked at next for changes that are too old."""
        self._unsettled = True
        """Whether some table is not ready."""
        self._sync_started: dict[int, float] = {}
        self._prepared = ReceivedPrepared(self)
        self._told_lag: float | None = None
        """When the log was told that the subscription is behind; None: it is not, as far as the log knows."""
        self._restart = False
        """Whether the worker must start again, with two_phase."""

    def work(self) -> None:
        """Streams until told to end."""
        subscription = self.subscription
        _log.info('logical replication apply worker for subscription "%s" has started', subscription.name)
        if subscription.slot_name is None:
            raise PostgresError("55000", "subscription has no replication slot set")
        start = self.catalog.change(self._start_position)
        connection = PublisherConnection.open(subscription.conninfo, subscription.name, waker=self.waker)
        try:
            position = connection.identify_system().position
            self._check_publications(connection)
            if self.applier.follow:
                self.applier.look_at_again(self._told(None), position)
            two_phase = self._two_phase()
            receiver = self.open_stream(connection, subscription.slot_name, start, str(subscription.oid), two_phase=two_phase)
            if two_phase and subscription.two_phase == "p":
                self.catalog.change(lambda cursor: subscriptions.change(cursor, subscription.oid, two_phase="e"))
                self.subscription = dataclasses.replace(self.subscription, two_phase="e")
            self._account.progress = self.progress
            try:
                while self._look() and self._step():
                    pass
            finally:
                receiver.stop()
        finally:
            connection.close()

    def _told(self, relation: int | None) -> list[Told]:
        """Return a table, or all, to be looked at when the stream is as far as the publisher: what was pending of it is not known."""
        with contextlib.closing(self.catalog.cursor()) as cursor:
            known = [rel.relation for rel in subscriptions.tables(cursor, self.subscription.oid)] if relation is None else [relation]
            names = subscriptions.titles(cursor, self.subscription.database, known).values()
        return [Told(schema, name, altered=False) for schema, name in sorted(names)]

    def _start_position(self, cursor: Cursor) -> Lsn:
        if subscriptions.find(cursor, self.subscription.oid) is None:  # dropped since the launcher saw it: an origin would stay for ever
            raise StreamEndError("55000", f'subscription "{self.subscription.name}" was removed')
        if origins.find(cursor, self.origin) is None:
            origins.create(cursor, self.origin)
        origins.check_room(cursor, self.origin, self.settings.integer("max_replication_slots"))
        known = origins.progress(cursor, self.origin)
        if known is None:
            origins.advance(cursor, self.origin, INVALID)
        return known.remote_lsn if known is not None else INVALID

    def _two_phase(self) -> bool:
        """Whether to stream with two_phase: it is enabled, or pending and all tables (there is one) are ready."""
        if self.subscription.two_phase != "p":
            return self.subscription.two_phase == "e"
        with contextlib.closing(self.catalog.cursor()) as cursor:
            tables = subscriptions.tables(cursor, self.subscription.oid)
            requested = subscription_resync.requested(cursor, self.subscription.oid)
        return bool(tables) and not requested and all(rel.state == SyncState.READY for rel in tables)

    def _step(self) -> bool:
        """Applies what has come, as the subscription is when it comes (it may have been altered meanwhile); whether to go on."""
        assert self.spool is not None
        if self._unsettled:
            self._settle_tables()
        self._look_at_publisher()
        self._expire_histories()
        if self.progress is not None:
            self.applier.follow_pending(self.progress.flushed)
        segment = self.take(self._pause())
        self._tell_lag()
        if segment is None:
            return True
        if not self._look():
            return False
        if segment.mark is not None:
            self._take_marked(segment)
            return True
        rest = segment
        if self.subscription.skip_lsn != INVALID:
            left = skip.take_out(self.catalog, self.subscription, self.applier, segment, self.applied)
            self.subscription = dataclasses.replace(self.subscription, skip_lsn=INVALID)
            if left is None:
                self.spool.release(segment)
                return True
            rest = left
        self.applier.apply(rest, self.applied)
        self.spool.release(segment)
        return True

    # ---- what is published ------------------------------------------------------------------------------

    def _check_publications(self, connection: PublisherConnection) -> None:
        """Says in the log which publications are not there, and that they are there now."""
        missing = tuple(remote.missing_publications(connection, self.subscription.publications))
        if missing and missing != self._account.missing_publications:
            text = f'subscription "{self.subscription.name}": {remote.missing_text(missing)}'
            _log.warning("%s", text, extra={"hint": advice.NO_PUBLICATION.format(name=quote_ident(self.subscription.name))})
        elif self._account.missing_publications and not missing:
            _log.info('all publications of subscription "%s" are there now', self.subscription.name)
        self._account.missing_publications = missing

    def _look_at_publisher(self) -> None:
        """Asks the publisher again and again for publications that were missing, and for tables that are to join (create_tables)."""
        now = time.monotonic()
        wanted = self._account.missing_publications or self.make_tables is not None
        if not wanted or now < self._look_again:
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
        """Has the tables that are published and not in the subscription join it, to be copied; whether there were any."""
        if self.make_tables is None or self.subscription.two_phase == "e":  # where copies are refused, as by REFRESH
            return False
        done = self.make_tables()
        for line in done:
            _log.info("%s", line)
        self._unsettled = self._unsettled or bool(done)
        if done:
            self._account.left_out.clear()
        return bool(done)

    def _tell_left_out(self, counts: dict[int, int]) -> None:
        """Counts changes of tables that are not in the subscription, and tells of each table once."""
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
        """A table's name with its schema's."""
        with contextlib.closing(self.catalog.cursor()) as cursor:
            found = relations.find(cursor, self.subscription.database, relation)
        return str(relation) if found is None else f"{found.schema}.{found.name}"

    def _take_marked(self, segment: Segment) -> None:
        """A prepared transaction, or the end of one."""
        assert self.spool is not None
        wanted, mark = self.subscription.skip_lsn, segment.mark
        skipped = isinstance(mark, m.Prepare) and wanted == mark.prepare_lsn
        if skipped:
            skip.begun(wanted)
        self._prepared.handle(segment, skipped=skipped)
        if wanted != INVALID:
            finish = Lsn(mark.prepare_lsn) if isinstance(mark, m.Prepare) else segment.end
            skip.clear(self.catalog, self.subscription, finish)
            self.subscription = dataclasses.replace(self.subscription, skip_lsn=INVALID)
        self.applied(segment.end)
        self.spool.release(segment)

    def _tell_lag(self) -> None:
        """Says in the log that the subscription is behind, now and then, and that it has caught up."""
        assert self.progress is not None
        size, seconds = self.progress.lag()
        name, moment = self.subscription.name, time.monotonic()
        if seconds > BEHIND:
            if self._told_lag is None or moment - self._told_lag >= BEHIND_AGAIN:
                _log.warning('subscription "%s" is behind its publisher: %d s, %d bytes of its log', name, seconds, size)
                self._told_lag = moment
        elif self._told_lag is not None and seconds < BEHIND / 2:
            _log.info('subscription "%s" has caught up with its publisher', name)
            self._told_lag = None

    def _pause(self) -> float:
        return 0.1 if self._unsettled else WAIT

    # ---- the subscription -------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Reads the subscription again if something may have changed; whether to go on."""
        self.check_stop()
        if self._restart:
            text = 'logical replication apply worker for subscription "%s" will restart so that two_phase can be enabled'
            _log.info(text, self.subscription.name)
            return False
        if not self.wanted.is_set():
            return True
        self.wanted.clear()
        with contextlib.closing(self.catalog.cursor()) as cursor:
            now = subscriptions.find(cursor, self.subscription.oid)
        name = self.subscription.name
        if now is None:
            _log.info('logical replication apply worker for subscription "%s" will stop because the subscription was removed', name)
            return False
        if not now.enabled:
            _log.info('logical replication apply worker for subscription "%s" will stop because the subscription was disabled', name)
            return False
        if any(getattr(now, field) != getattr(self.subscription, field) for field in _PARAMETERS):
            _log.info('logical replication apply worker for subscription "%s" will restart because of a parameter change', name)
            return False
        self.subscription = now
        self._unsettled = True
        return True

    # ---- the tables -------------------------------------------------------------------------------------

    def _settle_tables(self) -> None:
        """Brings each table that is not ready one step further; those that fail again and again do not keep others from their turn."""
        assert self.progress is not None
        with contextlib.closing(self.catalog.cursor()) as cursor:
            known = subscriptions.tables(cursor, self.subscription.oid)
            requested = subscription_resync.requested(cursor, self.subscription.oid)
            without_history = subscriptions.without_history(cursor, self.subscription)
        if requested:
            known = [self._taken_again(rel) if rel.state == SyncState.READY and rel.relation in requested else rel for rel in known]
        tables = sorted((rel for rel in known if rel.state != SyncState.READY), key=lambda rel: self._sync_started.get(rel.relation, 0.0))
        self._unsettled = bool(tables) or bool(requested)
        self._restart = bool(known) and not self._unsettled and self.subscription.two_phase == "p"
        full = False
        if self.applier.record is not None and without_history:
            self.applier.record()
        for rel in tables:
            if rel.state == SyncState.SYNCDONE:
                self._make_ready(rel)
            elif (sync := self.launcher.sync_of(self.subscription.oid, rel.relation)) is not None:
                self._lead(sync)
            elif not full:  # there is no room for any of thousands of others either
                full = self._start_sync(rel) is Started.LATER

    def _expire_histories(self) -> None:
        """Removes what the histories of the tables keep longer than history_retention, once a minute or more often."""
        kept, moment = self.settings.seconds("history_retention"), time.monotonic()
        if not kept or self.applier.record is None or moment < self._expire_again:
            return
        self._expire_again = moment + min(kept, LONGEST_EXPIRY_PAUSE)
        oldest = datetime.now(UTC) - timedelta(seconds=kept)
        transaction = self.engine.begin(self.subscription.database)
        transaction.cancelled = self.patience
        try:
            for known in subscription_history.of_subscription(transaction.cursor, self.subscription.oid).values():
                history = relations.get(transaction.cursor, self.subscription.database, known.relation)
                if files := table_history.expire(transaction, history, oldest):
                    _log.debug('removed %d files of table "%s.%s"', files, history.schema, history.name)
            transaction.commit()
        finally:
            transaction.rollback()

    def _taken_again(self, rel: SubscriptionRel) -> SubscriptionRel:
        """r → i: a table that is to be synchronized again, from here on without what this worker applies; later, if a slot is left."""
        return self._as_new(rel.relation) or rel

    def _as_new(self, relation: int) -> SubscriptionRel | None:
        """r, s → i, by the difference if no session has asked for it; None if the slot of an earlier sync is left, or the table is gone."""
        subscription, again = self.subscription, SubscriptionRel(self.subscription.oid, relation, SyncState.INIT, None)

        def take(cursor: Cursor) -> bool:
            if origins.find(cursor, f"pg_{subscription.oid}_{relation}") is not None or not subscriptions.set_table(cursor, again):
                return False
            subscription_resync.take_difference(cursor, subscription.database, subscription.oid, relation)
            return True

        return again if self.catalog.change(take, Step.SYNCHRONIZATION) else None

    def _synchronize_again(self, relation: int) -> None:
        """Has a table synchronized again whose columns cannot be told from the stream, when the slot of an earlier sync is gone."""
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
            self.catalog.change(lambda cursor: subscriptions.set_table(cursor, ready), Step.SYNCHRONIZATION)
            if self.applier.follow:
                self.applier.look_at_again(self._told(rel.relation), position)

    def _lead(self, sync: SyncWorker) -> None:
        """Tells a sync that waits how far to stream, and waits until it is there: no change between the two is lost or done twice."""
        assert self.progress is not None
        if sync.phase is not Phase.SYNCWAIT:
            return
        sync.catch_up(max(sync.lsn, self.progress.flushed))
        while sync.alive and not sync.wait_done(0.2):
            self.check_stop()

    def _start_sync(self, rel: SubscriptionRel) -> Started | None:
        """Starts a sync if it may start again already; None where it may not."""
        last = self._sync_started.get(rel.relation)
        if last is not None and time.monotonic() - last < self.settings.seconds("wal_retrieve_retry_interval"):
            return None
        started = self.launcher.start_sync(self, rel.relation)
        if started is not Started.LATER:
            self._sync_started[rel.relation] = time.monotonic()
        return started
