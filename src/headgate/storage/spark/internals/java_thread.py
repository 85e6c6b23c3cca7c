"""The Java thread that runs the calls of a Python thread, and what it is doing.

PySpark gives each Python thread a Java thread of its own since 3.2 ("pinned threads"), but no access to it. Whether it plans a query is
known by the names of Spark's classes in its stack. `Thread.stop` stops a thread up to Java 19; later versions refuse.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext

from headgate.storage.spark.internals import gateway

_PLANNING = (
    "catalyst.rules.RuleExecutor",
    "catalyst.planning.QueryPlanner",
    "ColumnNodeToExpressionConverter",
    "QueryExecution.explainString",
)
"""Names in the stack of a thread that works on its own plan."""
_SHARED = (
    "codegen.CodeGenerator", "codehaus.janino", "spark.sql.delta", "DAGScheduler", "java.lang.ClassLoader", "<clinit>", "java.lang.invoke",
    "java.util.concurrent", "catalog.SessionCatalog",
)  # fmt: skip
"""Names in the stack of a thread that is in code that it shares with others, where it must not be stopped."""


@dataclass(frozen=True)
class JavaThread:
    """A thread of the Java process."""

    java: JavaObject


def current(context: SparkContext) -> JavaThread:
    """Return the Java thread that runs the calls of this Python thread."""
    return JavaThread(gateway.jvm(context).java.lang.Thread.currentThread())


def is_planning(context: SparkContext, thread: JavaThread) -> bool:
    """Return whether a thread works on its own plan, and on nothing that it shares with other threads."""
    jvm = gateway.jvm(context)
    throwable = jvm.java.lang.Throwable()
    throwable.setStackTrace(thread.java.getStackTrace())
    frames = str(jvm.org.apache.commons.lang3.exception.ExceptionUtils.getStackTrace(throwable))  # one call: the thread continues meanwhile
    return any(name in frames for name in _PLANNING) and not any(name in frames for name in _SHARED)


def stop(thread: JavaThread) -> bool:
    """Stop a thread. Return whether Java did so: from Java 20 on it cannot."""
    with contextlib.suppress(Py4JError):
        thread.java.stop()
        return True
    return False


def clear_interrupt(context: SparkContext) -> None:
    """Clear the interrupt flag of the Java thread that runs the calls of this Python thread. Raise Py4JError if it was stopped."""
    gateway.jvm(context).java.lang.Thread.interrupted()
