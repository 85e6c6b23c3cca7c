"""The common base of apply workers and table syncs: a thread with a connection to the publisher and an entry in pg_stat_activity.

    starting → running → ended      `error` is the reason, or None if the worker was stopped or has nothing to do

A worker that fails logs the error with its context, counts it (pg_stat_subscription_stats), disables the subscription if
`disable_on_error` is set, and ends. The launcher or the apply worker starts another one after `wal_retrieve_retry_interval`.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headgate.catalog import database as databases
from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.known_types import KnownTypes
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_history
from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.security import role as roles
from headgate.errors import PostgresError, Severity
from headgate.lsn import Lsn
from headgate.storage.lock import Patience
from headgate.storage.spark import failure, job_group
from headgate.storage.transaction.transaction_catalog import StaleDefinitionError
from headgate.subscriber.described_table import Evolve
from headgate.subscriber.host import Backend, Commands, Host, MadeDifference
from headgate.subscriber.rows.conversion import InputSettings
from headgate.subscriber.rows.leaf_constraints import UniqueChecks
from headgate.subscriber.rows.row_completion import Factory
from headgate.subscriber.rows.row_triggers import TriggerFactory
from headgate.subscriber.rows.table_writer import TableRules
from headgate.types import text_column
from headgate.walreceiver.answer import PublisherError
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.link import terminated
from headgate.walreceiver.progress import ReceiverPosition, StreamProgress
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.receiver import Limits, Receiver, StreamEndError
from headgate.walreceiver.segment import Segment
from headgate.walreceiver.spool import Spool
from headgate.walreceiver.waker import Waker

T = TypeVar("T")

_log = logging.getLogger("headgate.subscriber")


class Started(enum.Enum):
    """The outcome of a request to start a table sync.

    `LATER`: retry when another sync of the subscription ends. `NO_ROOM`: retry after the retry interval.
    """

    YES = "yes"
    LATER = "later"
    NO_ROOM = "no room"


Ended = Callable[["Worker"], None]


class Worker:
    """A worker of a subscription. The two kinds of workers implement `work`."""

    def __init__(self, host: Host, subscription: Subscription, name: str, ended: Ended, relation: int | None = None) -> None:
        """`ended`: called when the worker's thread is about to end."""
        self.host, self.subscription, self.relation = host, subscription, relation
        self.engine, self.catalog, self.settings = host.engine, host.catalog, host.settings
        self._ended = ended
        self.is_shut_down = False
        """Whether the worker was stopped because the node stops. The log then does not report its end."""
        self.name = name
        self.origin = f"pg_{subscription.oid}" if relation is None else f"pg_{subscription.oid}_{relation}"
        self._jobs = job_group.EndedJobs(f"worker-{self.origin}", name, self.check_stop)
        self.waker = Waker(self._jobs.end)
        """Ends the waits of the worker's thread. Stopping it requests the worker to end."""
        self._receiver: Receiver | None = None
        self._receiver_waker = Waker()
        self.news = threading.Event()
        """Set if the catalog has changed or a table sync has advanced. The worker then checks both."""
        self.began = time.time()
        """The time of the start, in seconds since 1970."""
        self.error: PostgresError | None = None
        self.progress: StreamProgress | None = None
        self.spool: Spool | None = None
        self.backend: Backend | None = None
        self.patience = Patience(self.check_stop, tell=lambda mode: None if self.backend is None else self.backend.waits_for(mode))
        """How the worker waits for locks: until it is asked to end. pg_stat_activity shows the wait."""
        self.advanced = False
        """Whether changes have been applied since the worker started."""
        self._streaming = False
        self._types = KnownTypes(self.catalog, subscription.database)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def position(self) -> ReceiverPosition | None:
        """The position of the receiver, or None before streaming starts."""
        return None if self.progress is None else self.progress.position

    def look(self) -> None:
        """Wake the worker, so that it checks the catalog and its table syncs."""
        self.news.set()
        if self.spool is not None:
            self.spool.wake()

    def stop(self, *, wait: bool = True, check: Callable[[], None] = lambda: None) -> None:
        """Ask the worker to end, and wait for its thread unless `wait` is false. `check` may raise an error to end the wait."""
        self.waker.stop()
        self.look()
        while wait and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(0.1)
            check()

    def check_stop(self) -> None:
        """Raise 57P01 if the worker has been asked to end."""
        if self.waker.stopped:
            raise terminated()

    @contextlib.contextmanager
    def jobs(self) -> Iterator[str]:
        """Run Spark jobs in a job group, whose name is yielded. Stopping the worker cancels them, and then raises 57P01.

        Do not commit inside.
        """
        try:
            with self._jobs.entered(self.engine.spark.sparkContext):
                yield self._jobs.group
        except (PostgresError, PySparkException, Py4JJavaError):
            self.check_stop()
            raise

    def in_jobs(self) -> None:
        """Make the jobs of the calling thread part of the worker's job group. Called inside `jobs`."""
        self._jobs.join(self.engine.spark.sparkContext)

    def session(self) -> InputSettings:
        """Return the settings that input functions depend on, and make the database's types current for the worker's thread."""
        return InputSettings(text_column.TextSettings.of(self.settings), self._types.use())

    def write_subscription(self, write: Callable[[CatalogCursor], T]) -> T:
        """Write the subscription's row in a transaction. Wait until no session alters the subscription, as PostgreSQL does."""
        while True:
            transaction = self.engine.begin(self.subscription.database)
            transaction.locks.cancelled = self.patience
            try:
                transaction.catalog.lock_object("pg_subscription", self.subscription.oid)
                result = write(transaction.cursor)
                transaction.commit()
            except StaleDefinitionError:  # a session has altered it since the transaction began
                continue
            finally:
                transaction.rollback()
            return result

    @property
    def commands(self) -> Commands:
        """The functions of the layers above."""
        return self.host.commands()

    @property
    def rows(self) -> Factory:
        """Return the function that completes and checks rows of tables that need it."""
        return self.commands.rows(self.subscription)

    @property
    def triggers(self) -> TriggerFactory:
        """Return the function that finds the triggers of a table that fire for applied changes."""
        return self.commands.triggers(self.subscription)

    @property
    def rights(self) -> Callable[[CatalogCursor, Relation, set[str]], None]:
        """Return the function that raises an error unless the subscription's owner may apply changes."""
        return lambda cursor, relation, ops: self.commands.check_rights(cursor, self.subscription, relation, ops)

    @property
    def unique(self) -> UniqueChecks:
        """Return the functions that raise 23505 for a key of a unique index that exists twice."""
        return self.commands.unique

    @property
    def rules(self) -> TableRules:
        return TableRules(self.rows, self.rights, self.unique, self.triggers)

    @property
    def difference(self) -> MadeDifference:
        """Return the function that computes the difference between a table and the publisher's."""
        return self.commands.difference(self.subscription)

    @property
    def evolve(self) -> Evolve | None:
        """Return the function that changes tables to match the publisher's columns, or None without schema_evolution."""
        if self.subscription.schema_evolution == "none":
            return None
        return lambda tables, *, catalog=None: self.commands.evolution(self.subscription, self.patience, self.jobs)(tables, catalog=catalog)

    @property
    def record(self) -> Callable[[], None] | None:
        """Return the function that begins and extends the histories of the subscription's tables, or None if it keeps none."""
        if self.subscription.history == subscription_history.NONE:
            return None

        def record() -> None:
            for line in self.commands.histories(self.subscription, self.patience, self.jobs):
                _log.info("%s", line)

        return record

    @property
    def make_tables(self) -> Callable[[], list[str]] | None:
        """Return the function that adds published tables to the subscription and reports them, or None without create_tables."""
        if not self.subscription.create_tables:
            return None
        return lambda: self.commands.tables(self.subscription, self.patience, self.jobs)

    def take(self, pause: float) -> Segment | None:
        """Return the next segment to apply, or None after `pause` seconds.

        apply_batch_size, apply_batch_rows and apply_batch_delay limit it. A backlog is returned in batches that are large enough for tasks.
        """
        assert self.spool is not None
        s = self.settings
        size, rows, delay = s.bytes("apply_batch_size"), s.integer("apply_batch_rows"), s.seconds("apply_batch_delay")
        small = self.engine.small_batch_rows
        enough = small + 1 if 0 < small < rows else 0
        return self.spool.take(pause, size, rows=rows, delay=delay, enough=enough, news=self.news)

    # ---- for the workers --------------------------------------------------------------------------------

    def work(self) -> None:
        """Do the worker's work until it is asked to end. Raises PostgresError."""
        raise NotImplementedError

    def open_stream(self, connection: PublisherConnection, slot: str, start: Lsn, directory: str, *, two_phase: bool = False) -> Receiver:
        subscription = self.subscription
        options = {"streaming": "on"} if subscription.stream and connection.protocol >= 2 else {}
        if two_phase:
            options["two_phase"] = "on"
        only_local = subscription.origin == "none"
        if only_local and connection.server_version >= 160000:
            options["origin"] = "none"
        if subscription.binary:
            options["binary"] = "true"
        connection.start_streaming(slot, start, subscription.publications, options)
        self._streaming = True
        self.progress = StreamProgress(start)
        self.spool = Spool(self.host.data_dir / "pg_replication" / directory)
        whole = None
        if subscription.stream or two_phase or only_local:
            whole = Reassembly(self.spool, only_local=only_local)
        waker = self._receiver_waker
        connection.wait_with(waker)
        self._receiver = Receiver(connection, self.spool, self.progress, waker, lambda: Limits.of(self.settings), reassembly=whole)
        self._receiver.start(f"{self.name} receiver")
        return self._receiver

    def applied(self, end: Lsn) -> None:
        """Record that everything up to `end` is durable and visible."""
        assert self.progress is not None
        self.advanced = True
        self.progress.record_applied(end)
        if self._receiver is not None:
            self._receiver.wake()

    # ---- private ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 (a worker must end in a typed error, whatever happened)
            _log.exception("worker failed")
            with contextlib.suppress(Exception):
                self._record_failure(failure.from_spark(error))
            self.error = self.error or failure.from_spark(error)
        finally:
            with contextlib.suppress(Exception):
                if self.spool is not None:
                    self.spool.close()
            self._leave()
            if self.error is not None and self.backend is not None:
                _log.info('background worker "logical replication worker" (PID %d) exited with exit code 1', self.backend.pid)
            self._ended(self)
            self._close_wakers()

    def _work(self) -> None:
        try:
            self._enter()
            self._check_login()
            self.work()
        except StreamEndError as error:
            _log.info("%s", error.message)
        except PostgresError as error:
            self._record_failure(error)

    def not_started(self) -> None:
        """Record that no thread could be started for the worker."""
        self.error = PostgresError("53000", "could not fork worker process")
        self._ended(self)
        self._close_wakers()

    def _close_wakers(self) -> None:
        self.waker.close()
        self._receiver_waker.close()

    def _check_login(self) -> None:
        with contextlib.closing(self.catalog.cursor()) as cursor:
            self.commands.check_login(cursor, self.subscription)

    def _record_failure(self, error: PostgresError) -> None:
        if isinstance(error, PublisherError):  # PostgreSQL has no message of its own for this command
            wrapped = PostgresError("08006", f"could not execute command on publisher: {error.message}")
            wrapped.__cause__ = error
            error = wrapped
        if error.severity is Severity.FATAL and error.sqlstate in ("57P01", "28000"):
            if not self.is_shut_down:
                _log.log(50, "%s", error.message, extra={"severity": "FATAL"})
            if error.sqlstate == "28000":
                self.error = error
                self.host.ledger.failed(self.subscription.oid, self.relation, error)
            return
        self.error = error
        self.host.ledger.failed(self.subscription.oid, self.relation, error)
        self.engine.note_unreadable(error)
        extra = {"severity": "ERROR", "detail": error.detail, "hint": error.hint, "context": error.context}
        _log.error("%s", error.message, extra=extra)
        stack = failure.frames(error) if error.sqlstate == "XX000" else ""
        if stack:
            _log.warning("unforeseen error in Spark:\n%s", stack)
        sync = self.relation is not None
        if not (self._streaming or sync):
            return
        with contextlib.suppress(PostgresError):
            self.catalog.change(lambda cursor: subscriptions.count_error(cursor, self.subscription.oid, sync=sync))
            if self.subscription.disable_on_error and self.write_subscription(self._disable):
                _log.info('subscription "%s" has been disabled because of an error', self.subscription.name)

    def _disable(self, cursor: CatalogCursor) -> bool:
        """Disable the subscription, unless a session has just disabled it or reset disable_on_error. Return whether it was done."""
        now = subscriptions.find(cursor, self.subscription.oid)
        is_to_disable = now is not None and now.disable_on_error and now.enabled
        if is_to_disable:
            subscriptions.change(cursor, self.subscription.oid, enabled=False)
        return is_to_disable

    def _enter(self) -> None:
        self.backend = self.host.enter("logical replication worker")
        self.patience.pid = self.backend.pid
        self.backend.database = self.subscription.database
        if self.relation is None:
            self.backend.wait = self.backend.at_rest = ("Activity", "LogicalApplyMain")
        else:
            self.backend.state = None
        self.backend.role = self.subscription.owner
        with contextlib.closing(self.catalog.cursor()) as cursor:
            database, role = databases.find(cursor, self.subscription.database), roles.find(cursor, self.subscription.owner)
        self.backend.database_name = None if database is None else database.name
        self.backend.role_name = None if role is None else role.name
        self.backend.wake = self.waker.stop

    def _leave(self) -> None:
        if self.backend is not None:
            self.host.leave(self.backend.pid)
