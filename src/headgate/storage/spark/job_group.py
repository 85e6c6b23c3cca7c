"""The group of Spark jobs to which a thread's work belongs, by which it can be cancelled.

A session's thread stays in one group, and most of its statements start no job: so Java is told only where the group is another one than
before. Python's thread has one of Java's for as long as its connection lasts, and that keeps the group. Used by `commands.query.rendering`
for sessions, and where a worker's jobs must end with it.

A task of a job that is cancelled is told, and its thread is interrupted. Readers of files and of shuffles look whether they were told;
what makes rows of nothing, or many of one, does not: its rows pass `noticing`, which looks for the interrupt.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.storage.spark import planning

_told = threading.local()


def enter(context: SparkContext, group: str, description: str) -> Any:
    """The jobs that this thread starts from here on are of the group; gives Java's thread in which its calls are done."""
    connection = _connection(context)
    before, known, thread = getattr(_told, "group", (None, None, None))
    if known == group and connection is not None and before is not None and before() is connection:
        return thread
    context.setJobGroup(group, description, interruptOnCancel=True)
    thread = planning.thread(context)
    connection = _connection(context)
    _told.group = (None if connection is None else weakref.ref(connection), group, thread)
    return thread


def leave(context: SparkContext) -> None:
    """They are of none."""
    _told.group = (None, None, None)
    context.setLocalProperty("spark.jobGroup.id", "")


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
