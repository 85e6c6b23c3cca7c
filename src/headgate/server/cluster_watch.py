"""The watch of the Spark cluster on which a node's tasks run (`storage.spark.application.cluster`), if `spark_master` names one.

Started by the node. It logs problems and resumes when the cluster is back. Work that needs no task (rows by key, small writes, catalogs)
continues in the meantime. Statements that need executors wait for them until `statement_timeout` or a cancel. Apply workers and copies
wait or retry.

    the application has ended (killed, or removed by its master)        the node restarts, as it does if its JVM has died
    the master is away                                                  it is logged; executors continue without it
    the master is back, but no executor for `PATIENCE_SECONDS`          it no longer knows the application: the node restarts
    no executor otherwise                                               it is logged: the cluster is full, or its workers are away;
                                                                        Spark gets new executors by itself

A node that restarts itself waits for the master without a limit. A node started by hand fails if the master does not answer.

Traced: the workers and the master of a standalone cluster are killed and started again. The executors are gone (`executors` 0, one log
line) and the master does not answer (one line). It answers again (one line). A minute later there is no executor, because the new master
knows no application: "Spark application is not known to its master any more". The node restarts, and has executors.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from headgate.server import reinitialize
from headgate.storage.spark.application import cluster
from headgate.storage.spark.application.cluster import SPREAD, Application
from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.settings.node import Settings
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.server")

_ALLOCATION = "spark.dynamicAllocation.enabled"
LOOK_SECONDS = 5.0
"""The interval at which the cluster is checked."""
PATIENCE_SECONDS = 60.0
"""How long a master that is back may take to provide executors, and the interval at which a lack of executors is logged."""


class ClusterWatch:
    """The observed state of the cluster. `application` is the last observation."""

    def __init__(self, engine: Engine, settings: Settings, stopping: threading.Event) -> None:
        """Prepare the watch, which ends when the node sets `stopping`."""
        self._engine, self._settings, self._stopping = engine, settings, stopping
        self.application = cluster.application(engine.spark)
        self._reachable = True
        self._was_lost = False
        self._without = self._last_report = time.monotonic()
        self.thread = Supervised("cluster watch", self._watch)

    def start(self) -> None:
        """Start the thread, which runs until the node stops."""
        self.thread.start()

    @property
    def lacks_executors(self) -> bool:
        """Whether a job would wait: there is no executor, and dynamic allocation does not request one."""
        return not self.application.executors and self._settings.spark().get(_ALLOCATION, "false").lower() != "true"

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            reason = self._look(cluster.application(self._engine.spark), time.monotonic())
            if reason is not None and not self._stopping.is_set():
                reinitialize.restart_node(self._engine, reason)
                return

    def _look(self, application: Application, now: float) -> str | None:
        """Report changes of the cluster. Return the reason for a restart of the node, or None."""
        previous, self.application = self.application, application
        if not application.alive:
            return f'Spark application on "{application.master}" has ended'
        if application.executors:
            if SPREAD not in self._settings.spark():
                cluster.spread(self._engine.spark)
            if not previous.executors and self._last_report > self._without:
                _log.info("Spark has %d executors again", application.executors)
            self._without = self._last_report = now
            self._was_lost = self._was_lost and not self._reachable
            self._engine.obstacles.clear("running", "Spark")
        else:
            self._engine.obstacles.note("running", "Spark", f"it has had no executor for {now - self._without:.0f} s")
        self._look_for_master(application.master)
        if not application.executors and now - self._last_report > PATIENCE_SECONDS:
            if self._was_lost and self._reachable:
                return f'Spark application is not known to its master "{application.master}" any more'
            self._last_report = now
            _log.warning("Spark has had no executor for %.0f s; statements that need one wait", now - self._without)
        return None

    def _look_for_master(self, master: str) -> None:
        reachable = cluster.answers(master)
        if reachable:
            self._engine.obstacles.clear("running", "Spark master")
        else:
            self._engine.obstacles.note("running", "Spark master", f'"{master}" does not answer')
        if reachable != self._reachable:
            self._reachable = reachable
            if reachable:
                _log.info('Spark master "%s" answers again', master)
                self._last_report = time.monotonic()
            else:
                self._was_lost = True
                _log.warning('Spark master "%s" does not answer', master)


def await_master(master: str) -> None:
    """Check the master before Spark starts. Raise 58000 if it does not answer; a node that restarts itself waits for it."""
    if cluster.answers(master):
        return
    if reinitialize.AGAIN not in os.environ:
        raise cluster.unreachable(master)
    _log.warning('Spark master "%s" does not answer; the node waits for it', master)
    while not cluster.answers(master):
        time.sleep(LOOK_SECONDS)
    _log.info('Spark master "%s" answers', master)
