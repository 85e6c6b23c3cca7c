"""A node: its catalog, storage, workers and sessions in one process.

The command line (``headgate run``) creates `Node(data_dir, settings, on_ready)`. `run` blocks until the node has stopped; tests use
`start` and `stop`. States: starting (sockets are bound, Spark and the catalog start in parallel), ready (accepting connections), stopping:

    SIGTERM  smart      no new connections; stops after the last client has disconnected
    SIGINT   fast       sessions are terminated, their transactions rolled back
    SIGQUIT  immediate  the process exits at once; the next start recovers
    SIGHUP              headgate.conf, pg_hba.conf, pg_ident.conf and certificates are reloaded
    SIGUSR1             the report of `headgate status` is written to the data directory
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from headgate import failpoint, supervision
from headgate.catalog.catalog import Catalog
from headgate.catalog.layout.bootstrap import BOOTSTRAP_SUPERUSER
from headgate.catalog.security import acl
from headgate.commands.table import temporary
from headgate.publisher.decoded import ChangeCache
from headgate.publisher.slots import Slots
from headgate.publisher.watch import LogWatch
from headgate.server import cluster_watch, node_parts, reinitialize
from headgate.server.checkpointer import Checkpointer
from headgate.server.client.startup import serve
from headgate.server.client_watch import ClientWatch
from headgate.server.cluster_watch import ClusterWatch
from headgate.server.listener import Listener
from headgate.server.memory import MemoryWatch
from headgate.server.monitoring import log
from headgate.server.monitoring.activity import Backend
from headgate.server.node_state import NodeState
from headgate.server.protocol.connection import Connection
from headgate.server.report import kept_statistics, status_report
from headgate.server.report.metrics_port import Scrape
from headgate.server.signals import SignalWait
from headgate.server.table_watch import TableWatch
from headgate.server.task_watch import TaskWatch
from headgate.settings.node import Reload, Settings
from headgate.storage.spark.application.heap import Heap
from headgate.storage.spark.application.task_priority import TaskPriority
from headgate.subscriber.launcher import Launcher
from headgate.subscriber.worker_registry import WorkerRegistry
from headgate.supervision import Supervised

_log = logging.getLogger("headgate.server")

Mode = Literal["smart", "fast", "immediate"]
SWITCH_SECONDS = 0.001
"""How long a thread computes before another thread gets the interpreter. A short statement needs the interpreter some twenty times, and
waits each time for the threads that translate large ones. With Python's default of 0.005 s it took twice as long beside eight of them."""
STOP_SECONDS = 30.0
"""How long sessions may take to end in a fast shutdown."""


class Node(NodeState):
    """One running node."""

    def __init__(self, data_dir: Path, settings: Settings, on_ready: Callable[[str], None] | None = None, *, spark: Any = None) -> None:
        """Prepare a node; `run` or `start` starts it.

        `on_ready` is called with the name of the bootstrap superuser when connections are accepted. `spark`: an existing Spark session.
        """
        super().__init__(data_dir, settings, self.reload)
        self.on_stopping: Callable[[], None] = lambda: None
        self.on_reloaded: Callable[[Reload], None] = lambda _: None
        self.has_directory: Callable[[], bool] = lambda: True
        """Whether the data directory still belongs to this node (`cli.pidfile`)."""
        self._on_ready = on_ready
        self._given_spark = spark
        self._mode: Mode | None = None
        self._stop_requested = threading.Event()
        self._signals: SignalWait | None = None

    # ---- start ------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start all parts of the node. After an error nothing keeps running."""
        log.start(self.settings)
        supervision.log_uncaught()
        self.access.load()
        self.listener = Listener(
            self.settings.places("listen_addresses"),
            self.settings.integer("port"),
            self.settings.places("unix_socket_directories"),
            self.data_dir,
            self._serve,
            # as in canAcceptConnections: twice as many as may be served, including those that are not authenticated yet
            most=2 * (self.settings.integer("max_connections") + self.settings.integer("max_wal_senders")),
            mode=self.settings.integer("unix_socket_permissions"),
            group=self.settings.text("unix_socket_group"),
        )
        _raise_descriptor_limit()
        _log.info("starting headgate %s", self.settings.text("server_version"))
        self.listener.open()
        self.port = self.listener.port
        try:
            self._open_parts()
        except BaseException:
            self.listener.close()
            raise
        self.accepting = True
        self.listener.start()
        _log.info("database system is ready to accept connections")
        self._report()  # later the disk may be too full for the file
        if self._given_spark is None and self.settings.flag("warm_up"):
            from headgate.storage import warmup

            warmup.start(self.engine.spark, self.engine.exchange, ["headgate.commands.execute"], self.stopping.is_set)
        if self._on_ready is not None:
            with contextlib.closing(self.catalog.cursor()) as cursor:
                self._on_ready(acl.role_name(cursor, BOOTSTRAP_SUPERUSER))

    def _open_parts(self) -> None:
        from headgate.storage.compactor import Compactor
        from headgate.storage.log_table import LogTable
        from headgate.storage.spark.application import cluster

        failpoint.arm(self.settings.get("headgate.failpoints", ""))
        self._open_storage()
        jvm_watch = None if self._given_spark is not None else reinitialize.watch(self.engine, self.stopping)
        reinitialize.watch_directory(self.engine, self.stopping, self.has_directory)
        self.spark_pages = cluster.pages(self.engine.spark)
        if self.engine.on_cluster:
            self.cluster = ClusterWatch(self.engine, self.settings, self.stopping)
            self.cluster.start()
        self.slots = Slots(
            self.catalog,
            self.engine.log,
            lambda: self.settings.integer("max_replication_slots"),
            lambda: self.settings.text("wal_level"),
        )
        self.engine.oldest_needed = self.slots.oldest  # must be set before any cleaning
        self.engine.on_lost_lease = functools.partial(reinitialize.abandon, self.engine, self.stopping)
        for line in self.engine.recover():
            _log.info("%s", line)
        temporary.clean(self.engine)
        self.changes = ChangeCache()
        self.log_watch = LogWatch(self.engine.log)
        self.log_watch.start()
        self.engine.watch.start()
        self.compactor = Compactor(self.engine)
        self.compactor.start()
        self.log_table = LogTable(self.engine)
        self.engine.listed = lambda: self.log_table.written  # must be set before any cleaning, as above
        self.log_table.start()
        self._start_watches()
        self.workers = WorkerRegistry(node_parts.subscriber_host(self))
        self.launcher = Launcher(self.workers)
        self.parts = node_parts.of_node(self)
        kept_statistics.restore(self)
        self.launcher.start()
        self.scrape = self._scrape()
        threads: list[Supervised | None] = [
            self.log_table, self.engine.watch, self.compactor, self.listener.thread, self.log_watch, *self._watches(),
            self.launcher.thread, self.scrape, jvm_watch, None if self.cluster is None else self.cluster.thread,
        ]  # fmt: skip
        self.threads = [thread for thread in threads if thread is not None]

    def _open_storage(self) -> None:
        """Open the catalog while Spark starts, then the engine over both."""
        from headgate.storage.engine import Engine
        from headgate.storage.spark import result_spool
        from headgate.storage.spark.application import spark_session as spark

        with ThreadPoolExecutor(1, "start") as pool:
            result_spool.clear(self.data_dir / "pgsql_tmp")  # left by a node that was killed
            scratch = self.data_dir / "pgsql_tmp" / "spark"
            if self._given_spark is None and spark.is_cluster(self.settings):
                cluster_watch.await_master(self.settings.text("spark_master"))
            starting = None if self._given_spark is not None else pool.submit(spark.start, self.settings, scratch=scratch)
            self.catalog = Catalog.open(self.data_dir / "catalog.duckdb")
            try:
                session = starting.result() if starting is not None else self._given_spark
                self.engine = Engine(self.settings, self.catalog, self.data_dir, session=session)
            except BaseException:
                self.catalog.close()
                raise

    def _start_watches(self) -> None:
        """Start the threads that check memory, tables, tasks and clients periodically, and the checkpointer."""
        self.memory_watch, self.client_watch = MemoryWatch(Heap(self.engine.spark), self.activity), ClientWatch(self.activity)
        self.table_watch, self.task_watch = TableWatch(self.engine), TaskWatch(self.engine)
        self.task_priority = TaskPriority(self.engine.spark)
        self.checkpointer = Checkpointer(
            self.catalog,
            self.engine,
            self.slots,
            self.log_table,
            self.settings,
            terminate=self.activity.terminate,
            lacks_executors=lambda: self.cluster is not None and self.cluster.lacks_executors,
        )
        for thread in self._watches():
            thread.start()

    def _watches(self) -> list[Supervised]:
        """Return the threads that work periodically, in the order in which they are stopped."""
        return [self.memory_watch, self.client_watch, self.table_watch, self.task_watch, self.task_priority, self.checkpointer]

    def _scrape(self) -> Scrape | None:
        """Start the server for metrics, if metrics_port is set."""
        port = self.settings.integer("metrics_port")
        if not port:
            return None
        from headgate.server.report import metrics

        scrape = Scrape(self.settings.places("metrics_listen_addresses"), port, lambda: metrics.gather(self))
        scrape.start()
        return scrape

    # ---- run --------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Start the node, serve until a signal requests a stop, and stop it. The main thread must call it."""
        self._signals = SignalWait()
        sys.setswitchinterval(SWITCH_SECONDS)
        signal.signal(signal.SIGTERM, lambda *_: self.request_stop("smart"))
        signal.signal(signal.SIGINT, lambda *_: self.request_stop("fast"))
        signal.signal(signal.SIGQUIT, lambda *_: self.request_stop("immediate"))
        signal.signal(signal.SIGHUP, lambda *_: self.reload_soon())
        signal.signal(signal.SIGUSR1, lambda *_: self.report_soon())
        self.start()
        while not self._stop_requested.is_set():
            self._signals.wait()
        self.stop()
        self._signals.close()

    def request_stop(self, mode: Mode) -> None:
        """Request the node to stop; a stronger mode overrides a weaker one. Signal handlers and other threads may call it."""
        if mode == "immediate":
            os._exit(2)
        order: list[Mode] = ["smart", "fast"]
        if self._mode is None or order.index(mode) > order.index(self._mode):
            self._mode = mode
        self._stop_requested.set()
        if self._signals is not None:
            self._signals.wake()

    def reload_soon(self) -> None:
        """Reload the files after SIGHUP, outside the signal handler."""
        _in_background("reload", self.reload)

    def report_soon(self) -> None:
        """Write the report of `headgate status` after SIGUSR1."""
        _in_background("report", self._report)

    def _report(self) -> None:
        try:
            status_report.write(self)
        except OSError as error:
            _log.warning("could not write the node's status: %s", error)

    def reload(self) -> None:
        """Reload headgate.conf and pg_hba.conf. Errors are logged and the old values stay in force."""
        _log.info("received SIGHUP, reloading configuration files")
        reload = self.settings.reload()
        for message in reload.messages:
            log.log_sent_error(message, "", self.settings)
        failpoint.arm(self.settings.get("headgate.failpoints", ""))
        self.access.reload()
        log.start(self.settings)
        self.reloaded_at = time.time()
        self.standbys.changed()
        self.workers.wake()
        self.on_reloaded(reload)

    # ---- stop -------------------------------------------------------------------------------------------
    def stop(self, mode: Mode | None = None) -> None:
        """Stop the node. Mode smart waits for the clients, fast terminates them."""
        mode = mode or self._mode or "fast"
        _log.info("received %s shutdown request", mode)
        self.on_stopping()
        self.accepting = False
        self.stopping.set()
        self.listener.close()
        if mode == "smart":
            self._wait_for_clients()
        if self.scrape is not None:
            self.scrape.stop()
        self._stop_workers()
        for backend in self.activity.all():
            backend.terminate()
        if not self.activity.wait_gone(self._clients(), STOP_SECONDS):
            _log.info("some sessions did not end in time")
        for thread in self._watches():
            thread.stop()
        self.engine.watch.stop()
        self.compactor.stop()
        self.log_table.stop()
        self.slots.persist_all()
        kept_statistics.keep(self)
        self.log_watch.stop()
        _log.info("shutting down")
        with contextlib.suppress(Exception):
            self.engine.stop()
            if self._given_spark is None:
                self.engine.spark.stop()
        self.catalog.close()
        _log.info("database system is shut down")

    def _clients(self) -> list[Backend]:
        return [backend for backend in self.activity.all() if backend.kind in ("client backend", "walsender")]

    def _wait_for_clients(self) -> None:
        """Wait for the end of all clients, except walsenders. These are terminated after that."""
        while self._mode in (None, "smart"):
            if self.activity.wait_gone([backend for backend in self._clients() if backend.kind == "client backend"], 0.2):
                return

    def _stop_workers(self) -> None:
        _log.info("stopping logical replication workers")
        with contextlib.suppress(Exception):
            self.launcher.stop()

    # ---- connections ------------------------------------------------------------------------------------
    def _serve(self, connection: Connection) -> None:
        serve(self, connection)


def _in_background(name: str, work: Callable[[], object]) -> None:
    """Run `work` in a thread, outside a signal handler. If no thread can start, log that, so that the main thread survives."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        _log.warning("could not start thread for %s: %s", name, error)


def _raise_descriptor_limit() -> None:
    """Raise the limit of descriptors to the hard limit: connections, table files and the JVM's descriptors all count."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
