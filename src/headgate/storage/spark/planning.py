"""Ends what Spark's planner does: analysis, optimization, and the expressions over constants or rows at hand that it evaluates.

That happens in the thread that asks for the plan, before there is a job to cancel. It takes as long as an expression over a few values of
60 MB, or a condition of ten thousand parts, a minute and all of the heap. Used by `commands.query.rendering` for a statement that was
cancelled. What must hold: a thread is stopped only where it works on its own plan, which is lost with it; what others share (jobs, Delta's
log, the compiler of generated classes, a class that is being initialized, a table of the process) is let be until it has left that.
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
    """The thread of Java's in which this thread of Python's has its calls done."""
    jvm: Any = context._jvm
    return jvm.java.lang.Thread.currentThread()


def stop(context: SparkContext, thread: Any) -> bool:
    """Ends the planning that the thread is in; whether it is in one. Java from 20 on does not do that."""
    jvm: Any = context._jvm
    told = jvm.java.lang.Throwable()
    told.setStackTrace(thread.getStackTrace())
    frames = str(jvm.org.apache.commons.lang3.exception.ExceptionUtils.getStackTrace(told))  # all frames at once: they do not stay
    if any(name in frames for name in _PLANNING) and not any(name in frames for name in _LET_BE):
        with contextlib.suppress(Exception):
            thread.stop()
            return True
    return False


def recover(context: SparkContext) -> None:
    """Behind a statement that was stopped, in its own thread: Java has marked it as interrupted, and its next job would end at once."""
    jvm: Any = context._jvm
    with contextlib.suppress(Py4JError):  # the stop came as the thread was done, and ended it: the next call gets another
        jvm.java.lang.Thread.interrupted()
