"""The group of Spark jobs to which a thread's work belongs, by which it can be cancelled.

A session's thread stays in one group, and most of its statements start no job: so Java is told only where the group is another one than
before. Python's thread has one of Java's for as long as its connection lasts, and that keeps the group. Used by `commands.query.rendering`
for sessions, and where a worker's jobs must end with it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyspark import SparkContext

from headgate.storage.spark import planning

_told = threading.local()


def enter(context: SparkContext, group: str, description: str) -> Any:
    """The jobs that this thread starts from here on are of the group; gives Java's thread in which its calls are done."""
    connection = _connection(context)
    before, known, thread = getattr(_told, "group", (None, None, None))
    if known == group and connection is not None and before is not None and before() is connection:
        return thread
    context.setJobGroup(group, description, interruptOnCancel=False)
    thread = planning.thread(context)
    connection = _connection(context)
    _told.group = (None if connection is None else weakref.ref(connection), group, thread)
    return thread


def leave(context: SparkContext) -> None:
    """They are of none."""
    _told.group = (None, None, None)
    context.setLocalProperty("spark.jobGroup.id", "")


def _connection(context: SparkContext) -> Any:
    """What joins this thread to one of Java's; None where it is not open."""
    client: Any = context._gateway._gateway_client  # type: ignore[union-attr]
    found = client.get_thread_connection()
    return None if found is None or found.socket is None else found
