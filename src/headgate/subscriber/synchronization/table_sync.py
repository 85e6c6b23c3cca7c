"""Table synchronization: the initial copy of a table, and the hand-over to the apply worker (PostgreSQL's tablesync.c).

States of a table in pg_subscription_rel, and phases of its sync worker, each with the worker or command that sets it:

    i  INIT          CREATE SUBSCRIPTION or REFRESH
    d  DATASYNC      sync worker, before it copies: what a crash leaves behind is dropped and copied again
    f  FINISHEDCOPY  sync worker, in the one commit of the copied rows and of the origin ``pg_<sub>_<rel>`` at the slot's LSN
       SYNCWAIT      (in memory) the copy is complete up to `lsn`; the worker waits for the apply worker
       CATCHUP       (in memory) apply worker: `lsn` is its own position, up to which the sync worker streams; back to d, for a copy of
                     a later position, if the stream does not tell how the columns of a table that follows were altered
    s  SYNCDONE      sync worker: all changes that end at or before `lsn` are in the table; the slot is dropped
    r  READY         apply worker, when its position has reached `lsn`; from here back to i, if a session requests it (subscription_resync)

The apply worker does nothing else while a worker is in CATCHUP, so its position does not advance. To a table in state s it applies the
transactions whose commit LSN is at or after the state's LSN. Traced, if the sync lags: copy at 0/50, apply worker at 0/80: CATCHUP to
0/80, the sync worker streams from 0/50, a transaction ends at 0/80: SYNCDONE at 0/80; the apply worker is there: READY. If the sync
is ahead: copy at 0/90, apply at 0/80: CATCHUP to 0/90, nothing to stream, SYNCDONE at 0/90; the apply worker skips the table's
changes up to 0/90, then READY.

The origin ``pg_<sub>_<rel>`` is removed after the slot on the publisher has been dropped. If it still exists in state s or r, the drop
is retried.

If the slot of a table in state f is missing, because it was dropped by hand (PostgreSQL then retries for ever), the table is copied
again. One transaction reverts what the first copy and its catch-up wrote, and returns to state i. If others have written to the table
since, or the log no longer has its previous contents, no data is discarded: the publisher's error remains, and the user must
TRUNCATE the table and REFRESH.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
from pathlib import Path

import numpy as np

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column, subscription_resync
from headgate.catalog.replication.subscription import COPIED, Subscription, SubscriptionRel, SyncState
from headgate.catalog.replication.subscription_resync import Method
from headgate.errors import PostgresError, Severity
from headgate.failpoint import Step
from headgate.lsn import INVALID, Lsn
from headgate.subscriber import described_table
from headgate.subscriber.apply.apply import Applier
from headgate.subscriber.apply.evolution import Follower
from headgate.subscriber.apply.skip import skip_transaction
from headgate.subscriber.apply.stream import AppliedStream
from headgate.subscriber.host import Host
from headgate.subscriber.subscription_statistics import Counters
from headgate.subscriber.synchronization.initial_copy import InitialCopy
from headgate.subscriber.synchronization.reconciliation import Reconciliation
from headgate.subscriber.worker import Ended, Worker
from headgate.walreceiver import definition
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.receiver import StreamEndError
from headgate.walreceiver.remote import PublishedTable, RemoteRelation
from headgate.walreceiver.segment import Segment
from headgate.walreceiver.waker import Waker

_log = logging.getLogger("headgate.subscriber")


class Phase(enum.Enum):
    """The phase of a sync worker."""

    COPY = "d"
    SYNCWAIT = "w"
    CATCHUP = "c"
    SYNCDONE = "s"


class BegunAgainError(Exception):
    """Raised if the copy does not match the stream and must be repeated."""


class SyncWorker(Worker):
    """The sync worker of one table of a subscription."""

    def __init__(self, leader: Worker, relation: int, ended: Ended) -> None:
        """`leader`: the apply worker."""
        super().__init__(leader.host, leader.subscription, f"table sync {relation}", ended, relation)
        self.leader = leader
        self.phase = Phase.COPY
        self.lsn = INVALID
        self.copy: InitialCopy | None = None
        self.has_left_slot = False
        """Whether the slot could not be dropped when the worker ended."""
        self._moved = threading.Condition()
        self.slot = self.host.sync_slot_name(self.subscription.oid, relation)

    # ---- the apply worker's side ------------------------------------------------------------------------

    def catch_up(self, lsn: Lsn) -> None:
        """SYNCWAIT → CATCHUP: stream up to `lsn`."""
        with self._moved:
            self.lsn = lsn
            self.phase = Phase.CATCHUP
            self._moved.notify_all()

    def wait_done(self) -> bool:
        """Wait up to 0.2 s for the end of CATCHUP. Return whether it has ended."""
        with self._moved:
            return self._moved.wait_for(lambda: self.phase is not Phase.CATCHUP, 0.2)

    # ---- the sync worker's side -------------------------------------------------------------------------

    def applier(self, relation: int) -> Applier:
        stream = AppliedStream(self.subscription.oid, self.subscription.database, self.origin, relation, name=self.subscription.name)
        is_complete = self.subscription.schema_evolution == "follow"
        follower = Follower(self.engine, stream, self.evolve, is_complete, self._begin_again)
        counters = self.host.ledger.of(self.subscription.oid).applied
        return Applier(self.engine, stream, self.session, self.patience, self.rules, follower, jobs=self.jobs, counters=counters)

    def folder(self, name: str) -> Path:
        return self.host.data_dir / "pg_replication" / f"{self.subscription.oid}_{self.relation}_{name}"

    def work(self) -> None:
        """Take the table from its state in the catalog to SYNCDONE."""
        while True:
            try:
                self._synchronize()
            except BegunAgainError as error:
                _log.info("%s", error)
                with self._moved:
                    self.phase = Phase.COPY
                    self._moved.notify_all()
                self.check_stop()
            else:
                return

    def _synchronize(self) -> None:
        relation_state = self._read()
        if relation_state is None:
            return
        relation, state = relation_state
        table = relation.name
        name = self.subscription.name
        _log.info('logical replication table synchronization worker for subscription "%s", table "%s" has started', name, table)
        connection = PublisherConnection.open(self.subscription.conninfo, self.slot, waker=self.waker)
        try:
            start = self._copy(connection, relation, state)
            target = self._wait_for_leader(start)
            end = self._stream(connection, relation, start, target) if start < target else start
        finally:
            connection.close()
        self._finish(end)
        _log.info('logical replication table synchronization worker for subscription "%s", table "%s" has finished', name, table)

    def _read(self) -> tuple[Relation, SubscriptionRel] | None:
        assert self.relation is not None
        with contextlib.closing(self.catalog.cursor()) as cursor:
            state = subscriptions.table(cursor, self.subscription.oid, self.relation)
            relation = relations.find(cursor, self.subscription.database, self.relation)
        return None if state is None or relation is None or state.state in COPIED else (relation, state)

    def _copy(self, connection: PublisherConnection, relation: Relation, state: SubscriptionRel) -> Lsn:
        """Return the position of the finished copy: an earlier one in state f, else a new one. Raise 42704 if state f lost its origin."""
        if state.state == SyncState.FINISHEDCOPY and not (self._is_gone(connection) and self._take_back(relation, state)):
            with contextlib.closing(self.catalog.cursor()) as cursor:
                progress = origins.progress(cursor, self.origin)
            if progress is None:
                raise PostgresError("42704", f'replication origin "{self.origin}" does not exist')
            return progress.remote_lsn
        if state.state == SyncState.DATASYNC:
            connection.drop_slot(self.slot, missing_ok=True)
        self.catalog.change(lambda cursor: self._begin_copy(cursor, relation.oid), Step.SYNCHRONIZATION)
        method = self._method(relation)
        kind = Reconciliation if method is Method.DIFFERENCE else InitialCopy
        self.copy = kind(self, relation, self.slot, self._follow, replaces=method is Method.COPY)
        position = self.copy.run(connection)
        copied = self.host.ledger.of(self.subscription.oid).copied
        counters = Counters(bytes=self.copy.bytes, batches=1, seconds={"copy": self.copy.seconds})
        counters.count(relation.oid, self.copy.rows)
        copied.add(counters)
        return position

    def _check_not_rewritten(self, reader: PublisherConnection, published: RemoteRelation) -> None:
        """Start the sync again if a real PostgreSQL has rewritten the table since the slot's snapshot, which then sees no rows in it.

        `reader` reads under the snapshot, and has locked the table. `pg_relation_filenode` uses the current catalog.
        """
        if reader.is_node or reader.server_version < 120000:
            return
        tables = f"SELECT {published.oid} UNION ALL SELECT relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree({published.oid})"
        rewritten = f"SELECT 1 FROM pg_catalog.pg_class WHERE pg_catalog.pg_relation_filenode(oid) <> relfilenode AND oid IN ({tables})"
        if reader.query(rewritten):
            raise BegunAgainError(f'table "{published.schema}.{published.name}" was rewritten after the slot "{self.slot}" was created')

    def _follow(self, reader: PublisherConnection, published: RemoteRelation) -> None:
        """Give the table the columns that the publisher's table has under the slot's snapshot (schema_evolution).

        `reader` reads under the snapshot, and has locked the table. COPY uses the current names of columns. If they differ from the
        snapshot's, the sync starts again.
        """
        self._check_not_rewritten(reader, published)
        if self.evolve is None:
            return
        tables = [PublishedTable(published.schema, published.name, tuple(column.name for column in published.columns))]
        catalog = definition.read(reader, tables)
        with PublisherConnection.open(self.subscription.conninfo, self.slot, waker=self.waker) as connection:
            now = definition.read(connection, tables)
        if now.tables.get(published.oid) != catalog.tables[published.oid]:
            raise BegunAgainError(f'table "{published.schema}.{published.name}" was altered after the slot "{self.slot}" was created')
        self.evolve([described_table.of_catalog(published, catalog)], catalog=catalog)

    def _begin_again(self, relation: int) -> None:
        """Return to state d, because the stream does not tell which columns the table has after the copy."""

        def begin(cursor: Cursor) -> None:
            subscription = self.subscription
            subscriptions.set_table(cursor, SubscriptionRel(subscription.oid, relation, SyncState.DATASYNC, None))
            subscription_resync.take_difference(cursor, subscription.database, subscription.oid, relation)

        self.catalog.change(begin, Step.SYNCHRONIZATION)
        raise BegunAgainError(f"the columns of table {relation} cannot be told from the stream")

    def _method(self, relation: Relation) -> Method | None:
        """Return how a table is synchronized again, or None for a first copy."""
        with contextlib.closing(self.catalog.cursor()) as cursor:
            return subscription_resync.taken(cursor, self.subscription.oid).get(relation.oid)

    def _is_gone(self, connection: PublisherConnection) -> bool:
        """Return whether the publisher no longer has the slot of a copied table."""
        return not connection.query(f"SELECT 1 FROM pg_catalog.pg_replication_slots WHERE slot_name = {literal(self.slot)}")

    def _take_back(self, relation: Relation, state: SubscriptionRel) -> bool:
        """Go from state f to i: restore the table as it was before the copy. Return False, and change nothing, if that is not possible."""
        log = self.engine.log
        copied = None if state.lsn is None else log.of_origin(self.origin, state.lsn)
        if copied is None:
            return False
        transaction = self.engine.begin(relation.database)
        try:
            if relations.find(transaction.cursor, relation.database, relation.oid) != relation:  # altered while the publisher was queried
                transaction.rollback()
                return False
            transaction.lock(relation)
            parts = transaction.reader.leaves(relation)
            own = {part.oid for part in parts}
            later = log.entries(copied.end_lsn, relation.database, 1 << 30)
            if any(write.relation in own for entry in later if entry.origin != self.origin for write in entry.writes):
                transaction.rollback()
                return False
            with self.jobs():
                for part in parts:
                    before = self.engine.frame_at(part, copied.commit_lsn)
                    transaction.truncate([part])
                    if not before.isEmpty():
                        transaction.append(part, before)
            subscriptions.set_table(transaction.cursor, SubscriptionRel(self.subscription.oid, relation.oid, SyncState.INIT, None))
            transaction.commit()
        except BaseException:
            transaction.rollback()
            raise
        _log.warning('replication slot "%s" is gone: table "%s" is copied afresh', self.slot, relation.name)
        return True

    def _begin_copy(self, cursor: Cursor, relation: int) -> None:
        origins.drop(cursor, self.origin, missing_ok=True)
        origins.create(cursor, self.origin)
        origins.check_room(cursor, self.origin, self.settings.integer("max_replication_slots"))
        if not subscriptions.set_table(cursor, SubscriptionRel(self.subscription.oid, relation, SyncState.DATASYNC, None)):
            raise PostgresError("XX000", f"subscription table {relation} in subscription {self.subscription.oid} does not exist")

    def _wait_for_leader(self, start: Lsn) -> Lsn:
        """Stay in SYNCWAIT until the apply worker sets the position to stream to."""
        with self._moved:
            self.lsn, self.phase = start, Phase.SYNCWAIT
        self.leader.look()
        with self._moved:
            while self.phase is Phase.SYNCWAIT:
                self.check_stop()
                if not self.leader.alive:
                    raise StreamEndError("55000", f'apply worker of subscription "{self.subscription.name}" has ended')
                self._moved.wait(0.2)
            return self.lsn

    def _stream(self, connection: PublisherConnection, relation: Relation, start: Lsn, target: Lsn) -> Lsn:
        """Apply the table's changes from the copy up to at least `target`. Return the position that was reached."""
        applier = self.applier(relation.oid)
        receiver = self.open_stream(connection, self.slot, start, f"{self.subscription.oid}_{relation.oid}")
        assert self.spool is not None
        assert self.progress is not None
        try:
            while (position := self.progress.flushed) < target:
                self.check_stop()
                segment = self.take(0.1)
                if segment is None:
                    continue
                count = int(np.searchsorted(segment.transactions.end_lsn, int(target), side="left")) + 1
                part = segment if count >= len(segment.transactions) else segment.split(count)[0]
                if (rest := self._skip(applier, part)) is not None:
                    applier.apply(rest, self.applied)
                self.spool.release_oldest()
        finally:
            receiver.stop()
            self.spool.close()
        return position

    def _skip(self, applier: Applier, segment: Segment) -> Segment | None:
        """Handle the first transaction of a segment if SKIP is set. Return the remaining segment to apply, or None."""
        with contextlib.closing(self.catalog.cursor()) as cursor:
            subscription = subscriptions.find(cursor, self.subscription.oid)
        if subscription is None or subscription.skip_lsn == INVALID:
            return segment
        return skip_transaction(self, subscription, applier, segment)

    def _finish(self, end: Lsn) -> None:
        """Go from CATCHUP to SYNCDONE. The state is made durable first; then the slot is dropped, and after it the origin."""
        assert self.relation is not None
        final_state = SubscriptionRel(self.subscription.oid, self.relation, SyncState.SYNCDONE, end)

        def finish(cursor: Cursor) -> None:
            subscriptions.set_table(cursor, final_state)
            if final_state.relation in subscription_resync.taken(cursor, final_state.subscription):
                subscription_resync.done(cursor, final_state.subscription, final_state.relation)
                subscription_column.filled(cursor, final_state.subscription, final_state.relation)

        self.catalog.change(finish, Step.SYNCHRONIZATION)
        with self._moved:
            self.phase = Phase.SYNCDONE
            self._moved.notify_all()
        self.leader.look()
        self.has_left_slot = not drop_slot(self.host, self.subscription, self.slot, self.origin, self.waker)
        if self.has_left_slot:
            self.check_stop()


def drop_slot(host: Host, subscription: Subscription, slot: str, origin: str, waker: Waker | None = None) -> bool:
    """Drop a sync slot on the publisher and then its origin. Return False if the publisher cannot be reached, or the waker was stopped."""
    try:
        with PublisherConnection.open(subscription.conninfo, slot, waker=waker) as connection:
            connection.drop_slot(slot, missing_ok=True)
    except PostgresError as error:
        if error.severity is not Severity.FATAL:
            _log.warning("%s", error.message)
        return False
    host.catalog.change(lambda cursor: origins.drop(cursor, origin, missing_ok=True))
    return True
