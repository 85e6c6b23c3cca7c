"""Limit of a statement's temporary files on Spark's local disk: `temp_file_limit`.

Called by `commands.query.rendering` around the work that Spark does for a session. It counts what the tasks of the statement's jobs have
spilled (sorts, hash tables, windows that do not fit into memory) and written for a shuffle. Spark reports that when a task ends and with
each heartbeat. It is checked every LOOK_SECONDS, so a statement may exceed its limit by what it writes in between.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Self

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headgate.errors import PostgresError
from headgate.storage.spark.internals import task_status

LOOK_SECONDS = 0.5


class Spill:
    """A context that cancels a job group when its new jobs exceed `limit` kilobytes. -1 means no limit, and costs nothing."""

    def __init__(self, session: SparkSession, group: str, limit: int) -> None:
        self._session, self._group, self._limit = session, group, limit
        self._exceeded = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._limit >= 0:
            earlier_jobs = set(self._jobs())
            self._thread = threading.Thread(target=self._watch, args=(earlier_jobs,), name="temp_file_limit", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise 53400 if the work was cancelled."""
        if self._exceeded:
            raise PostgresError("53400", f"temporary file size exceeds temp_file_limit ({self._limit}kB)")

    def _watch(self, earlier_jobs: set[int]) -> None:
        while not self._over.wait(LOOK_SECONDS):
            # stages come and go during the check: those that have gone raise, and the next check counts the rest
            with contextlib.suppress(Py4JError):
                self._exceeded = self._exceeded or self._bytes(earlier_jobs) > self._limit << 10
                if self._exceeded:
                    self._session.sparkContext.cancelJobGroup(self._group)

    def _jobs(self) -> list[int]:
        return [int(job) for job in self._session.sparkContext.statusTracker().getJobIdsForGroup(self._group)]

    def _bytes(self, earlier_jobs: set[int]) -> int:
        tracker = self._session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in self._jobs() if job not in earlier_jobs]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        return task_status.temporary_bytes(self._session.sparkContext, stages)
