"""Watches the Spark cluster that a node's tasks run on (`storage.spark.application.cluster`), where `spark_master` names one.

Started by the node; has it say in the log what is wrong, and go on when the cluster is back. What no task is needed for (rows by key, small
writes, catalogs) goes on meanwhile; statements that need executors wait for them, `statement_timeout` or a cancel ends that; apply workers
and copies wait, or try again.

    the application has ended      (killed, or its master gave it up)   the node starts again, as where its Java has died
    the master is away             told in the log; executors go on without it
    the master is back, and no executor for `PATIENCE_SECONDS`          it does not know the application any more: the node starts again
    no executor otherwise          told in the log: the cluster is full, or its workers are away; Spark gets new ones by itself

A node that starts again waits for the master as long as it takes; one that is started by hand ends where it does not answer.

Traced: workers and master of a standalone cluster are killed and started again. The executors are gone (`executors` 0, one line), the
master does not answer (one line); it answers (one line), a minute later there is still no executor, as the new master knows no application:
"Spark application is not known to its master any more", the node starts again, and has executors.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from headgate.server import reinitialize
from headgate.storage.spark.application import cluster
from headgate.storage.spark.application.cluster import SPREAD, Application
from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.server.node import Node

_log = logging.getLogger("headgate.server")

_ALLOCATION = "spark.dynamicAllocation.enabled"
LOOK_SECONDS = 5.0
"""How often the cluster is looked at."""
PATIENCE_SECONDS = 60.0
"""How long a master that has come back is given to let the application have executors; and how often a lack of them is told."""


class ClusterWatch:
    """What is known of the cluster; `application` as it was last seen."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.application = cluster.application(node.engine.spark)
        self._reachable = True
        self._was_lost = False
        self._without = self._told = time.monotonic()
        self.thread = Supervised("cluster watch", self._watch)

    def start(self) -> None:
        """Begins to watch, until the node stops."""
        self.thread.start()

    @property
    def lacks_executors(self) -> bool:
        """Whether a job would wait: there is no executor, and none comes because one is asked for."""
        return not self.application.executors and self.node.settings.spark().get(_ALLOCATION, "false").lower() != "true"

    def _watch(self) -> None:
        while not self.node.stopping:
            time.sleep(LOOK_SECONDS)
            reason = self._look(cluster.application(self.node.engine.spark), time.monotonic())
            if reason is not None and not self.node.stopping:
                reinitialize.give_up(self.node, reason)
                return

    def _look(self, found: Application, now: float) -> str | None:
        """Says what has changed; why the node is to start again, if it is."""
        before, self.application = self.application, found
        if not found.alive:
            return f'Spark application on "{found.master}" has ended'
        if found.executors:
            if SPREAD not in self.node.settings.spark():
                cluster.spread(self.node.engine.spark)
            if not before.executors and self._told > self._without:
                _log.info("Spark has %d executors again", found.executors)
            self._without = self._told = now
            self._was_lost = self._was_lost and not self._reachable
            self.node.engine.obstacles.clear("running", "Spark")
        else:
            self.node.engine.obstacles.note("running", "Spark", f"it has had no executor for {now - self._without:.0f} s")
        self._look_for_master(found.master)
        if not found.executors and now - self._told > PATIENCE_SECONDS:
            if self._was_lost and self._reachable:
                return f'Spark application is not known to its master "{found.master}" any more'
            self._told = now
            _log.warning("Spark has had no executor for %.0f s; statements that need one wait", now - self._without)
        return None

    def _look_for_master(self, master: str) -> None:
        reachable = cluster.answers(master)
        if reachable:
            self.node.engine.obstacles.clear("running", "Spark master")
        else:
            self.node.engine.obstacles.note("running", "Spark master", f'"{master}" does not answer')
        if reachable != self._reachable:
            self._reachable = reachable
            if reachable:
                _log.info('Spark master "%s" answers again', master)
                self._told = time.monotonic()
            else:
                self._was_lost = True
                _log.warning('Spark master "%s" does not answer', master)


def await_master(master: str) -> None:
    """Before Spark starts: 58000 where the master does not answer, at once; a node that starts again waits for it."""
    if cluster.answers(master):
        return
    if reinitialize.AGAIN not in os.environ:
        raise cluster.unreachable(master)
    _log.warning('Spark master "%s" does not answer; the node waits for it', master)
    while not cluster.answers(master):
        time.sleep(LOOK_SECONDS)
    _log.info('Spark master "%s" answers', master)
