"""What a statement's work has on Spark's local disk, against `temp_file_limit`.

Called by `commands.query.rendering` around the work that Spark does for a session. What counts is what the tasks of the statement's jobs
have spilled (sorts, hash tables, windows that do not fit into memory) and written for a shuffle. Spark tells it when a task ends and with
each heartbeat, and it is looked at every LOOK_SECONDS: a statement may exceed its limit by what it writes meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headgate.errors import PostgresError

LOOK_SECONDS = 0.5


class Spill:
    """The bytes of a job group's jobs from now on; ends them beyond `limit` kilobytes. A context; -1 is no limit, and costs nothing."""

    def __init__(self, session: SparkSession, group: str, limit: int) -> None:
        self._session, self._group, self._limit = session, group, limit
        self._exceeded = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._limit >= 0:
            known = set(self._jobs())
            self._thread = threading.Thread(target=self._watch, args=(known,), name="temp_file_limit", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raises 53400 if the work was ended."""
        if self._exceeded:
            raise PostgresError("53400", f"temporary file size exceeds temp_file_limit ({self._limit}kB)")

    def _watch(self, known: set[int]) -> None:
        while not self._over.wait(LOOK_SECONDS):
            # stages come and go while one looks: what is not there any more is not counted, the next look has what is
            with contextlib.suppress(Py4JError):
                self._exceeded = self._exceeded or self._bytes(known) > self._limit << 10
                if self._exceeded:
                    self._session.sparkContext.cancelJobGroup(self._group)

    def _jobs(self) -> list[int]:
        return [int(each) for each in self._session.sparkContext.statusTracker().getJobIdsForGroup(self._group)]

    def _bytes(self, known: set[int]) -> int:
        tracker = self._session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(each) for each in self._jobs() if each not in known]
        jsc: Any = self._session.sparkContext._jsc
        store = jsc.sc().statusStore()
        stages = [store.lastStageAttempt(each) for each in {stage for job in jobs if job is not None for stage in job.stageIds}]
        return sum(int(each.diskBytesSpilled()) + int(each.shuffleWriteBytes()) for each in stages)
