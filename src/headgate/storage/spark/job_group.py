"""The group of Spark jobs of a thread's work, by which it can be cancelled.

A session's thread stays in one group, and most of its statements start no job. So Java is called only if the group has changed. Each Python
thread has a Java thread as long as its connection lasts, and that thread keeps the group. `commands.query.rendering` uses this for
sessions. Workers have an `EndedJobs`, because their jobs must end with them, including those that wait for an executor.

When a job is cancelled, its tasks are marked and their threads are interrupted. Readers of files and of shuffles check the mark. Code that
generates rows, or makes many rows from one, does not: its rows pass through `noticing`, which checks for the interrupt.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.storage.spark.internals import gateway, java_thread
from headgate.storage.spark.internals.java_thread import JavaThread

_DESCRIPTION = "spark.job.description"
_cancel = threading.local()
AGAIN_SECONDS = 0.1
"""Interval in seconds at which running jobs are cancelled again: Spark does not apply a cancellation to jobs that start later."""


@dataclass(frozen=True)
class _Entered:
    """The group that a thread is in, as long as its connection to its Java thread lasts."""

    connection: weakref.ref[object]
    group: str
    thread: JavaThread


def enter(context: SparkContext, group: str, description: str, check: Callable[[], None] | None) -> JavaThread:
    """Put the jobs that this thread starts from now on into the group. Return the Java thread that runs its calls.

    `check` raises when the thread's work is to end. It is called while the thread waits for another thread's job.
    """
    _cancel.check = check
    connection = gateway.connection(context)
    entered: _Entered | None = getattr(_cancel, "entered", None)
    if entered is not None and entered.group == group and connection is not None and entered.connection() is connection:
        return entered.thread
    context.setJobGroup(group, description, interruptOnCancel=True)
    thread = java_thread.current(context)
    connection = gateway.connection(context)
    _cancel.entered = None if connection is None else _Entered(weakref.ref(connection), group, thread)
    return thread


def check() -> None:
    """Raise if this thread's work is to end, using the `check` from when the group was entered."""
    check_thread = getattr(_cancel, "check", None)
    if check_thread is not None:
        check_thread()


@contextlib.contextmanager
def described(context: SparkContext, text: str) -> Iterator[None]:
    """Show `text` in Spark's page and event log for the jobs that this thread runs in the context."""
    previous = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, previous)  # type: ignore[arg-type]


def noticing(*, each_row: bool = False) -> Column:
    """Return a condition that is true for all rows, and that ends a task whose thread was interrupted.

    Java's sleep, even for 0 ms, raises in an interrupted thread. It is called for one row in 8,192, which costs 13 ns a
    row, or for `each_row`.
    """
    nothing = F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(0).cast("bigint"))
    slept = F.coalesce(nothing, F.lit("null")) == "null"
    return slept if each_row else (F.monotonically_increasing_id().bitwiseAND(8191) != 0) | slept


class EndedJobs:
    """The jobs of one worker, which other threads may cancel. Jobs started inside `entered` are in the group, and end from `end` on."""

    def __init__(self, group: str, description: str, check: Callable[[], None]) -> None:
        """`check` raises from `end` on."""
        self.group, self.description, self.check = group, description, check
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        """The context in which jobs may run now."""
        self._is_ended = False

    @contextlib.contextmanager
    def entered(self, context: SparkContext) -> Iterator[None]:
        """Let `end` cancel the jobs within the context. The caller of `end` handles the errors that this raises."""
        with self._lock:
            self._context = context
            is_ended = self._is_ended
        try:
            if is_ended:
                self._insist_beside()
            self.join(context)
            yield
        finally:
            with self._lock:
                self._context = None

    def join(self, context: SparkContext) -> None:
        """Put the jobs that the calling thread starts from now on into the group."""
        enter(context, self.group, self.description, self.check)

    def end(self) -> None:
        """Cancel the running jobs, and those that start before the worker has left `entered`. Can be called from any thread."""
        with self._lock:
            self._is_ended = True
            is_entered = self._context is not None
        if is_entered:
            self._insist_beside()

    def _insist_beside(self) -> None:
        if self._cancel():
            with contextlib.suppress(RuntimeError):  # no thread can be started: the jobs were cancelled once
                threading.Thread(target=self._insist, name="end of jobs", daemon=True).start()

    def _insist(self) -> None:
        while self._cancel():
            time.sleep(AGAIN_SECONDS)

    def _cancel(self) -> bool:
        """Cancel the running jobs. Return whether there may be others. The lock keeps jobs of a later context from being cancelled."""
        with self._lock:
            if self._context is not None:
                with contextlib.suppress(Exception):  # Java has terminated, and the jobs with it
                    self._context.cancelJobGroup(self.group)
            return self._context is not None
