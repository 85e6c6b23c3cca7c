"""The open logs of a session's tables.

Delta keeps every log that it opens for an hour, with its computed snapshots: some 3 MB of Java's heap each. A node has thousands of tables
and seldom needs Delta's own object of one, so that it keeps few and tells Delta to drop the others (`DeltaLog.invalidateCache`, since 0.3).
"""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from headgate.storage.delta.internals.table_log import Handles, TableLog
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark import job_group

LOOK_SECONDS = 0.1
"""Interval in seconds at which a thread that waits for another to open a log checks whether it is cancelled."""
KEPT_LOGS = 8
"""Number of tables whose log is kept open."""


class Delta:
    """Delta Lake as one session uses it: the logs of its tables, of which the `KEPT_LOGS` used last stay open."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.handles = Handles(spark)
        self._logs: dict[DataPath, TableLog] = {}
        self._raw: dict[DataPath, str] = {}
        self._lock = threading.Lock()
        self._opening: dict[DataPath, threading.Lock] = {}
        """Locks that let one thread at a time open a table's log."""
        self._forgotten = 0
        """Number of calls of `forget`. A log that is opened during one may be of a removed table, and is not kept."""

    def log(self, path: DataPath) -> TableLog:
        with self._lock:
            log = self._find(path)
            opening = None if log is not None else self._opening.setdefault(path, threading.Lock())
        if log is not None:
            return log
        assert opening is not None
        # Delta runs a job to read the table, which may wait for executors; threads that open other tables need not wait for it
        while not opening.acquire(timeout=LOOK_SECONDS):
            job_group.check()
        try:
            return self._open(path)
        finally:
            with self._lock:
                self._opening.pop(path, None)
            opening.release()

    def _open(self, path: DataPath) -> TableLog:
        with self._lock:
            log, forgotten = self._find(path), self._forgotten
        if log is not None:
            return log
        log = TableLog.open(self.handles, str(path))
        with self._lock:
            if forgotten == self._forgotten:
                for path_to_drop in list(self._logs)[: len(self._logs) + 1 - KEPT_LOGS]:
                    del self._logs[path_to_drop]
                    self._invalidate(path_to_drop)
                self._logs[path] = log
        return log

    def _find(self, path: DataPath) -> TableLog | None:
        """Return the log if it is open, marked as the last used, or None."""
        log = self._logs.pop(path, None)
        if log is not None:
            self._logs[path] = log
        return log

    def forget(self, path: DataPath) -> None:
        """Drop Delta's cached state of the table in a folder."""
        with self._lock:
            self._forgotten += 1
            if self._logs.pop(path, None) is not None:
                self._invalidate(path)

    def _invalidate(self, path: DataPath) -> None:
        handles = self.handles
        handles.delta_log.invalidateCache(handles.session, handles.jvm.org.apache.hadoop.fs.Path(str(path)))

    def raw_path(self, path: DataPath) -> str:
        """Return a folder as it appears in Spark's URIs. For many tables in one folder, Java is called once."""
        if not (path.name.isascii() and path.name.isalnum()):
            return self._raw_path(path.absolute())
        return f"{self._raw_path(path.absolute().parent)}/{path.name}"

    def _raw_path(self, path: DataPath) -> str:
        if path not in self._raw:
            self._raw[path] = str(self.handles.jvm.org.apache.hadoop.fs.Path(str(path)).toUri().getRawPath())
        return self._raw[path]
