"""Ends what Spark's planner computes: an expression over constants, or over the rows that it has at hand.

That happens in the thread that asks for the plan, before there is a job to cancel, and takes as long as the expression does: minutes
for a few values of 60 MB. Used by `commands.query.rendering` for a statement that was cancelled. What must hold: a thread is stopped
only where it evaluates such an expression; there it has changed nothing, and holds nothing but its own plan. What it does else, a job,
Delta's log, the compiler of generated classes, is let be.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pyspark import SparkContext

_EVALUATING = ("catalyst.optimizer.ConvertToLocalRelation", "catalyst.optimizer.ConstantFolding")
_LET_BE = ("codegen.CodeGenerator", "codehaus.janino", "spark.sql.delta", "DAGScheduler", "java.lang.ClassLoader")


def thread(context: SparkContext) -> Any:
    """The thread of Java's in which this thread of Python's has its calls done."""
    jvm: Any = context._jvm
    return jvm.java.lang.Thread.currentThread()


def stop(context: SparkContext, thread: Any) -> None:
    """Ends the evaluation that the thread is in, if it is in one. Java from 20 on does not do that."""
    jvm: Any = context._jvm
    told = jvm.java.lang.Throwable()
    told.setStackTrace(thread.getStackTrace())
    frames = str(jvm.org.apache.commons.lang3.exception.ExceptionUtils.getStackTrace(told))  # all frames at once: they do not stay
    if any(name in frames for name in _EVALUATING) and not any(name in frames for name in _LET_BE):
        with contextlib.suppress(Exception):
            thread.stop()
