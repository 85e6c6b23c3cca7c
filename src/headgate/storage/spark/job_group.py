"""The group of Spark jobs to which a thread's work belongs, by which it can be cancelled.

A session's thread stays in one group, and most of its statements start no job: so Java is told only where the group is another one than
before. Python's thread has one of Java's for as long as its connection lasts, and that keeps the group. Used by `commands.query.rendering`
for sessions; workers have an `EndedJobs`, as their jobs must end with them, also those that wait for an executor.

A task of a job that is cancelled is told, and its thread is interrupted. Readers of files and of shuffles look whether they were told;
what makes rows of nothing, or many of one, does not: its rows pass `noticing`, which looks for the interrupt.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.storage.spark import planning

_DESCRIPTION = "spark.job.description"
_told = threading.local()
AGAIN_SECONDS = 0.1
"""How long until jobs that have not ended are told again: Spark does not remember it for those that begin later."""


def enter(context: SparkContext, group: str, description: str, check: Callable[[], None] | None = None) -> Any:
    """The jobs that this thread starts from here on are of the group; gives Java's thread in which its calls are done.

    `check` raises when what the thread does is to end: for where it waits for another thread's job.
    """
    _told.check = check
    connection = _connection(context)
    before, known, thread = getattr(_told, "group", (None, None, None))
    if known == group and connection is not None and before is not None and before() is connection:
        return thread
    context.setJobGroup(group, description, interruptOnCancel=True)
    thread = planning.thread(context)
    connection = _connection(context)
    _told.group = (None if connection is None else weakref.ref(connection), group, thread)
    return thread


def check() -> None:
    """Raises when what this thread does is to end, as far as it was said when the group was entered."""
    found = getattr(_told, "check", None)
    if found is not None:
        found()


@contextlib.contextmanager
def described(context: SparkContext, text: str) -> Iterator[None]:
    """Have Spark's page and event log show `text` for the jobs that this thread runs inside."""
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def noticing(*, each: bool = False) -> Column:
    """A condition that all rows meet, and on which a task ends whose thread was interrupted.

    Java's sleep, also one of no time, raises if it was. It is asked for one row in 8,192, which costs 13 ns a row, or for `each`.
    """
    nothing = F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(0).cast("bigint"))
    slept = F.coalesce(nothing, F.lit("null")) == "null"
    return slept if each else (F.monotonically_increasing_id().bitwiseAND(8191) != 0) | slept


def _connection(context: SparkContext) -> Any:
    """What joins this thread to one of Java's; None where it is not open."""
    client: Any = context._gateway._gateway_client  # type: ignore[union-attr]
    found = client.get_thread_connection()
    return None if found is None or found.socket is None else found


class EndedJobs:
    """The jobs of one worker, which others may end: what its threads start inside of `entered` is of the group, and ends from `end` on."""

    def __init__(self, group: str, description: str, check: Callable[[], None]) -> None:
        """`check` raises from `end` on."""
        self.group, self.description, self.check = group, description, check
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        """Where jobs may run now."""
        self._is_ended = False

    @contextlib.contextmanager
    def entered(self, context: SparkContext) -> Iterator[None]:
        """Inside, `end` ends the jobs; what that raises is up to who has it ended."""
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
        """Jobs that the calling thread starts from here on are of the group."""
        enter(context, self.group, self.description, self.check)

    def end(self) -> None:
        """Ends what runs, and what begins before the worker has left `entered`; from any thread."""
        with self._lock:
            self._is_ended = True
            is_entered = self._context is not None
        if is_entered:
            self._insist_beside()

    def _insist_beside(self) -> None:
        if self._told():
            with contextlib.suppress(RuntimeError):  # there are no more threads: they were told once
                threading.Thread(target=self._insist, name="end of jobs", daemon=True).start()

    def _insist(self) -> None:
        while self._told():
            time.sleep(AGAIN_SECONDS)

    def _told(self) -> bool:
        """Ends the jobs that run; whether there may be others. Under the lock, so that none is ended that follows."""
        with self._lock:
            if self._context is not None:
                with contextlib.suppress(Exception):  # Java is gone: so are the jobs
                    self._context.cancelJobGroup(self.group)
            return self._context is not None
