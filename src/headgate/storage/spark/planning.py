"""Cancellation of Spark's planner: analysis, optimization, and the evaluation of expressions over constants or local rows.

It runs in the thread that requests the plan, before there is a job to cancel. With an expression over a few values of 60 MB, or a condition
of ten thousand parts, it takes a minute and all of the heap. Used by `commands.query.rendering` for a cancelled statement. Invariant:
a thread is stopped only while it works on its own plan, which is discarded with it. In shared code (jobs, Delta's log, the compiler of
generated classes, class initialization, tables of the process) it is not stopped until it has left that code.
"""

from __future__ import annotations

import contextlib
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

_PLANNING = (
    "catalyst.rules.RuleExecutor",
    "catalyst.planning.QueryPlanner",
    "ColumnNodeToExpressionConverter",
    "QueryExecution.explainString",
)
_LET_BE = (
    "codegen.CodeGenerator", "codehaus.janino", "spark.sql.delta", "DAGScheduler", "java.lang.ClassLoader", "<clinit>", "java.lang.invoke",
    "java.util.concurrent", "catalog.SessionCatalog",
)  # fmt: skip


def thread(context: SparkContext) -> Any:
    """Return the Java thread that runs the calls of this Python thread."""
    jvm: Any = context._jvm
    return jvm.java.lang.Thread.currentThread()


def stop(context: SparkContext, thread: Any) -> bool:
    """Stop the thread's planning. Return whether it was planning. From Java 20 on, a thread cannot be stopped."""
    jvm: Any = context._jvm
    throwable = jvm.java.lang.Throwable()
    throwable.setStackTrace(thread.getStackTrace())
    frames = str(jvm.org.apache.commons.lang3.exception.ExceptionUtils.getStackTrace(throwable))  # one call: the thread continues meanwhile
    if any(name in frames for name in _PLANNING) and not any(name in frames for name in _LET_BE):
        with contextlib.suppress(Exception):
            thread.stop()
            return True
    return False


def recover(context: SparkContext) -> None:
    """Clear Java's interrupt flag after a statement was stopped, in its own thread. Otherwise its next job would be cancelled at once."""
    jvm: Any = context._jvm
    with contextlib.suppress(Py4JError):  # the stop came when planning was done, and ended the thread: the next call gets another one
        jvm.java.lang.Thread.interrupted()
