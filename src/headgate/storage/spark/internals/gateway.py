"""The connection between Python and Java: Py4J's gateway, which PySpark keeps in private attributes.

PySpark has no public access to the Java process that it starts. The attributes `SparkContext._gateway`, `_jvm` and `_ensure_initialized`
exist since PySpark 1.0, and `JavaGateway.proc` since 3.0. PySpark has them only for a session in the same process, not for Spark Connect.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import cast

from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaGateway, JVMView
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

_CACHED = {
    "PythonSQLUtils": ("isTimestampNTZPreferred", "readArrowStreamFromFile", "toDataFrame"),
    "PythonUtils": ("toSeq",),
    "SparkSession": (),
    "functions": ("col",),
    "org.apache.spark.sql.classic.SparkSession": ("setActiveSession",),
    "org.apache.spark.sql.functions": ("col", "lit", "when", "expr"),
}
"""Classes and members that PySpark looks up in Java for each frame or column. Py4J does not cache them: Java searches all jars for each
imported package (a seventh of the time of a small query). As attributes of Py4J's view they are looked up once."""


@dataclass(frozen=True)
class Address:
    """The socket on which Java accepts connections of this process, and the token that it requires."""

    host: str
    port: int
    auth_token: str = field(repr=False)


def is_open() -> bool:
    """Return whether this process has started Java."""
    return SparkContext._gateway is not None


def launch(stderr: int) -> None:
    """Start Java as PySpark does, with its stderr on a file descriptor. Sessions that are created later use it.

    Relies on `launch_gateway(popen_kwargs=)`, which exists since PySpark 3.0.
    """
    gateway = launch_gateway(popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def close(context: SparkContext) -> None:
    """End the Java process of a stopped context. Raise `subprocess.TimeoutExpired` if it has not ended after 120 s.

    PySpark itself ends Java only when Python exits: Java ends when its stdin is closed.
    """
    gateway = _gateway(context)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(120)


def jvm(context: SparkContext) -> JVMView:
    """Return Py4J's view of the classes of Java. Its attributes are Java's packages and imported classes."""
    return context._jvm


def process(context: SparkContext) -> subprocess.Popen[bytes] | None:
    """Return the Java process, or None if another process has started it (`spark-submit`)."""
    return cast("subprocess.Popen[bytes] | None", getattr(context._gateway, "proc", None))


def address(context: SparkContext) -> Address:
    """Return the address of Java. Relies on Py4J's `gateway_parameters`, which exist since 0.10."""
    parameters = _gateway(context).gateway_parameters
    return Address(str(parameters.address), int(parameters.port), str(parameters.auth_token))


def connection(context: SparkContext) -> object | None:
    """Return the connection of this Python thread to its Java thread, or None if it is not open.

    The Java thread, and what is set in it, lives as long as the connection. Relies on Py4J's `ClientServer`, which gives each thread a
    connection of its own (the mode of PySpark since 3.2, "pinned threads").
    """
    connection = _gateway(context)._gateway_client.get_thread_connection()
    return None if connection is None or connection.socket is None else cast("object", connection)


def referenced_objects() -> int:
    """Return how many Java objects Python references. Relies on Py4J's `ThreadSafeFinalizer`, which exists since 0.8."""
    return len(ThreadSafeFinalizer.finalizers)


def has_unreported(context: SparkContext) -> bool:
    """Return whether Java does not yet know of some objects that Python has freed.

    Relies on `finalizer_deque`, from which a thread of Py4J's reports them once a second. It exists since Py4J 0.10.9.
    """
    return bool(_gateway(context)._gateway_client.finalizer_deque)


def cache_lookups(session: SparkSession) -> None:
    """Look up the classes once that PySpark uses for each frame or column. They are attributes of Py4J's view afterwards."""
    java_view = jvm(session.sparkContext)
    for name, members in _CACHED.items():
        java_class = getattr(java_view, name)
        setattr(java_view, name, java_class)
        for member in members:
            setattr(java_class, member, getattr(java_class, member))


def _gateway(context: SparkContext) -> JavaGateway:
    return context._gateway
