"""The node's one Spark session.

`start` is called once per process: by the node at start, by the test suite's `spark_session` fixture. What must hold afterwards:
the session zone is UTC, ANSI mode is on, names are case-sensitive, Python workers run under this interpreter, Delta's SQL
extension is loaded, and a small write is a matter of tens of milliseconds (no child process per file: Hadoop without its
native library forks `chmod` and `readlink`, so the bare local file system stands in for it).

Memory: the heap is what `spark.driver.memory` says (default 1g, serial collector, so that the JVM gives memory back); the
resident size of the JVM is about 0.4 GB above it. Settings of `headgate.conf` that begin with ``spark.`` override any of these.

Settings may be secrets, and a command line is everybody's to read: Java gets them in a file of the node's user alone, which is gone when it
has started. What Java itself is started with (its options, its heap, the class path) is on its command line all the same.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headgate.errors import PostgresError
from headgate.storage.location import object_store
from headgate.storage.spark.application import class_archive, executor_archive, worker_daemon
from headgate.storage.spark.application.jars import STORE_JARS, ensure, find_jars

_LOG4J = Path(str(resources.files("headgate.storage").joinpath("log4j2.properties")))

_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


_ALONE = re.compile(r"local(\[[^]]*\])?\Z")
"""Masters without other processes."""


_ASKED_ONCE = {
    "PythonSQLUtils": ("isTimestampNTZPreferred", "readArrowStreamFromFile", "toDataFrame"),
    "PythonUtils": ("toSeq",),
    "SparkSession": (),
    "functions": ("col",),
    "org.apache.spark.sql.classic.SparkSession": ("setActiveSession",),
    "org.apache.spark.sql.functions": ("col", "lit", "when", "expr"),
}
"""Classes and members that PySpark asks Java for with each frame or column. Py4J keeps none: Java looks through all jars for each package
that is imported (a seventh of the time of a small query); as attributes of its view they are asked for once."""

_UNSEEN = {
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",  # `temp_file_limit` asks for those that have ended of jobs that run
    "spark.ui.retainedTasks": "2000",
}
"""Of how much that has ended Java keeps the course, for pages that nobody sees: by default a thousand plans, some 30 MB."""


def _defaults(jars: list[str], scratch: Path) -> dict[str, str]:
    java = [
        "-Xss16m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xlog:disable",
        "-Duser.timezone=UTC",
        f"-Dderby.system.home={scratch}",
    ]
    java.append(f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}")
    if class_archive.usable():
        java.append(f"-XX:SharedArchiveFile={class_archive.path()}")
    return {
        "spark.master": "local[*]",
        "spark.app.name": "headgate",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.driver.extraJavaOptions": " ".join(_quoted(option) for option in java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "headgate.storage.spark.application.worker_daemon",
        # a task that is cancelled ends its worker at once
        "spark.python.task.killTimeout": "0ms",
        # what tasks have spilled is known as often as this (`storage.spark.temp_file_limit`); by default each 10 s
        "spark.executor.heartbeatInterval": "1s",
        # a statement that uses up the heap fails; it does not end the node
        "spark.executor.killOnFatalError.depth": "0",
        # Hadoop sets the permissions of each file that it makes, whatever the process's umask
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # rows that are kept go to disk in pieces of megabytes, a hundred of which the serializer would remember
        "spark.serializer.objectStreamReset": "1",
        "spark.sql.session.timeZone": "UTC",
        # not the default INT96: other readers take that for nanoseconds
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "true",
        "spark.sql.adaptive.enabled": "false",
        # an expression needs two for each lambda inside another (`expression.spark.compiler.DEEPEST`)
        "spark.sql.analyzer.maxIterations": "1000",
        # it would put constants together, and so raise, or not raise, for a sum that nobody has asked for
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
        # it would look at 12 / x.a > 2 for y.b too where x.a = y.b, and raise for rows that find none (`where_clause` has its own)
        "spark.sql.constraintPropagation.enabled": "false",
        # what stands twice behind AND is not computed before it: for rows that the first condition, a policy it may be, leaves out
        "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
        "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 2, 8)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # a writer holds its row group, a reader its column of one, of which Spark keeps no account: by default 128 MB each, of 1 GB
        "spark.hadoop.parquet.block.size": str(16 << 20),
        "spark.hadoop.parquet.block.row.count.limit": str(1 << 16),  # as `storage.delta.parquet` writes
        # otherwise each call of a function asks the JVM several times more, to tell where in Python it stood
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # order inside a change file is the order of the statement: a writer per (change, no change) instead of a sort of the rows
        "spark.sql.maxConcurrentOutputFileWriters": "16",
        # not the one by FileContext, which Delta's checksum files would go through: it forks readlink and chmod for each file
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.merge.materializeSource": "none",
    }


def start(settings: Mapping[str, str] | None = None, *, scratch: Path | None = None) -> SparkSession:
    """Starts (or gives) the process's Spark session.

    `settings`: names and values that begin with ``spark.``, others are passed over. `scratch`: a directory for Spark's
    temporary files; the working directory of the data by preference. Raises 58P01 when a jar is missing, 58000 when Java does not start.
    """
    scratch = scratch or Path(tempfile.gettempdir()) / f"headgate-spark-{os.getpid()}"
    scratch.mkdir(parents=True, exist_ok=True)
    jars = [str(jar) for jar in find_jars()]
    configured = _defaults(jars, scratch)
    behind: list[str] = []
    store = object_store.named(settings or {})
    if store is not None:
        behind = [str(jar) for jar in ensure(STORE_JARS[store.name])]
        configured |= store.spark_settings(settings or {}, scratch)
        configured[f"spark.executorEnv.{worker_daemon.MORE}"] = store.modules
    given = {name: str(value) for name, value in (settings or {}).items() if name.startswith("spark.")}
    if extra := given.pop("spark.driver.extraJavaOptions", None):
        configured["spark.driver.extraJavaOptions"] += " " + extra
    if is_cluster(given):
        configured = _on_cluster(configured, given, [*jars, *behind])
        given.pop("spark.archives", None)  # they are among them
    else:
        # whoever reaches the driver's port could have it deserialize what he likes; Spark makes the secret itself and keeps it in memory
        configured["spark.authenticate"] = "true"
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if given.get("spark.ui.enabled", "false").lower() != "true":
        configured |= _UNSEEN
    configured.update(given)
    try:
        builder = SparkSession.builder
        if SparkContext._gateway is not None:  # Java runs already, and gets them by its gateway
            builder.config(map=dict(configured))
        with _handed_over(configured, scratch), _class_path(behind):
            if SparkContext._gateway is None:
                _launch()
            session = builder.getOrCreate()
    except Exception as error:
        raise PostgresError("58000", f"could not start Spark: {error}", hint="A Java 17 runtime is needed; see the server log.") from error
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    jvm: Any = session._jvm
    for name, members in _ASKED_ONCE.items():
        found = getattr(jvm, name)
        setattr(jvm, name, found)
        for member in members:
            setattr(found, member, getattr(found, member))
    return session


_INCUBATOR = b"WARNING: Using incubator modules: "
"""Spark starts Java with one, which the JVM reports at each start. No option turns the line off."""


def _launch() -> None:
    """Start Java, as PySpark does, with its stderr forwarded to that of this process."""
    ours, theirs = os.pipe()
    threading.Thread(target=_forward, args=(ours,), name="java stderr", daemon=True).start()
    try:
        gateway = launch_gateway(popen_kwargs={"stderr": theirs})  # type: ignore[no-untyped-call]
    finally:
        os.close(theirs)
    SparkContext._ensure_initialized(gateway=gateway)


def _forward(handle: int) -> None:
    """Copy lines to stderr, without the warning about incubator modules, until all writers have closed the pipe."""
    with os.fdopen(handle, "rb") as lines:
        for line in lines:
            if not line.startswith(_INCUBATOR):
                with contextlib.suppress(OSError):  # stderr may be a full disk, or closed; Java must not wait for it
                    os.write(2, line)


def is_cluster(settings: Mapping[str, str]) -> bool:
    """Whether tasks run in other processes than the node's Java, on other machines it may be."""
    return not _ALONE.match(settings.get("spark.master", "local[*]"))


def _on_cluster(configured: Mapping[str, str], given: Mapping[str, str], jars: Sequence[str]) -> dict[str, str]:
    """The defaults where the master is a cluster: what executors need comes with the application, none of it lies on their machines."""
    os.environ["PYSPARK_PYTHON"] = given.get("spark.pyspark.python", executor_archive.interpreter())
    of_here = ("spark.driver.host", "spark.driver.bindAddress", "spark.hadoop.fs.s3a.buffer.dir", "spark.hadoop.fs.azure.buffer.dir")
    found = {name: value for name, value in configured.items() if name not in of_here}
    archives = [given.get("spark.archives", ""), *executor_archive.make()]
    return found | {
        "spark.jars": ",".join(jars),
        "spark.archives": ",".join(filter(None, archives)),
        "spark.executorEnv.PYTHONPATH": executor_archive.PYTHONPATH,
        "spark.executor.extraJavaOptions": "-Xss16m -Duser.timezone=UTC",
    }


@contextlib.contextmanager
def _handed_over(configured: Mapping[str, str], scratch: Path) -> Iterator[None]:
    """Inside, a Java that is started has these settings: by a file that only the node's user can read."""
    handle, path = tempfile.mkstemp(".properties", "spark-", scratch)  # mode 0600
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in configured.items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(path)} pyspark-shell"
        yield
    finally:
        Path(path).unlink()
        if before is None:
            os.environ.pop("PYSPARK_SUBMIT_ARGS", None)  # it is not there where the disk was full
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


@contextlib.contextmanager
def _class_path(behind: Sequence[str]) -> Iterator[None]:
    """Inside, a Java that is started has these jars behind Spark's own: what stands before is what the class archive was made with."""
    name = "SPARK_DIST_CLASSPATH"
    before = os.environ.get(name)
    if behind:
        os.environ[name] = os.pathsep.join([*behind, *([before] if before else [])])
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        elif behind:
            del os.environ[name]


def _quoted(option: str) -> str:
    """An option of Java as Spark takes it from among others: the data directory may have spaces in its name."""
    inner = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _escaped(text: str) -> str:
    """A name or value as java.util.Properties reads it."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)
