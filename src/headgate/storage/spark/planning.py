"""Cancellation of Spark's planner: analysis, optimization, and the evaluation of expressions over constants or local rows.

It runs in the thread that requests the plan, before there is a job to cancel. With an expression over a few values of 60 MB, or a condition
of ten thousand parts, it takes a minute and all of the heap. Used by `commands.query.rendering` for a cancelled statement. Invariant:
a thread is stopped only while it works on its own plan, which is discarded with it. In shared code (jobs, Delta's log, the compiler of
generated classes, class initialization, tables of the process) it is not stopped until it has left that code.
"""

from __future__ import annotations

import contextlib

from py4j.protocol import Py4JError
from pyspark import SparkContext

from headgate.storage.spark.internals import java_thread
from headgate.storage.spark.internals.java_thread import JavaThread


def stop(context: SparkContext, thread: JavaThread) -> bool:
    """Stop the thread's planning. Return whether it was planning. From Java 20 on, a thread cannot be stopped."""
    return java_thread.is_planning(context, thread) and java_thread.stop(thread)


def recover(context: SparkContext) -> None:
    """Clear Java's interrupt flag after a statement was stopped, in its own thread. Otherwise its next job would be cancelled at once."""
    with contextlib.suppress(Py4JError):  # the stop came when planning was done, and ended the thread: the next call gets another one
        java_thread.clear_interrupt(context)
