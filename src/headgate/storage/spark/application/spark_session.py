"""The node's Spark session.

`start` is called once per process: by the node at start, by the test suite's `spark_session` fixture. Afterwards the following holds: the
session time zone is UTC, ANSI mode is on, names are case-sensitive, Python workers run under this interpreter, Delta's SQL extension is
loaded, and a small write takes tens of milliseconds. The last needs a file system that starts no child process per file: Hadoop without
its native library forks `chmod` and `readlink`, so the bare local file system replaces it.

Memory: the heap is `spark.driver.memory` (default 1g, serial collector, so that the JVM returns memory). The resident size of the JVM is
about 0.4 GB above it. Settings of `headgate.conf` that begin with ``spark.`` override any of these.

Settings may be secrets, and every user can read a command line. So Java gets them in a file that only the node's user can read, and that is
removed when Java has started. Java's own start options (its heap, the class path) are on its command line nevertheless.
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

from pyspark.sql import SparkSession

from headgate.errors import PostgresError
from headgate.storage.location import object_store
from headgate.storage.spark.application import class_archive, executor_archive, worker_daemon
from headgate.storage.spark.application.jars import STORE_JARS, ensure, find_jars
from headgate.storage.spark.internals import gateway, python_worker
from headgate.storage.spark.internals.setting import CHECKPOINT_FILE_MANAGER, REORDERING_RULE

_LOG4J = Path(str(resources.files("headgate.storage").joinpath("log4j2.properties")))

_ALONE = re.compile(r"local(\[[^]]*\])?\Z")
"""Masters without other processes."""


_UNSEEN = {
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",  # `temp_file_limit` reads the ended stages of running jobs
    "spark.ui.retainedTasks": "2000",
}
"""Limits of the ended work of which Java keeps a record, for web pages that are disabled: by default a thousand plans, some 30 MB."""


_JIT = {"c1": ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m"], "tiered": []}
"""Java's options by the value of `spark_driver_jit`. The default was measured (bench/README.md). Executors have their own options.

With C1 alone, Java reserves 48 MB for compiled code. A node uses 55 MB, so Java would drop code and compile it again.
"""


_SETTINGS = {
    "spark.master": "local[*]",
    "spark.app.name": "headgate",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    python_worker.DAEMON_SETTING: "headgate.storage.spark.application.worker_daemon",
    # a cancelled task terminates its worker at once
    "spark.python.task.killTimeout": "0ms",
    # executors report spilled bytes at this interval (`storage.spark.temp_file_limit`); the default is 10 s
    "spark.executor.heartbeatInterval": "1s",
    # a statement that exhausts the heap fails without terminating the node
    "spark.executor.killOnFatalError.depth": "0",
    # Hadoop sets the permissions of each file that it creates, regardless of the process's umask
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # persisted rows are written to disk in pieces of megabytes, a hundred of which the serializer would retain
    "spark.serializer.objectStreamReset": "1",
    "spark.sql.session.timeZone": "UTC",
    # not the default INT96: other readers interpret that as nanoseconds
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.adaptive.enabled": "false",
    # an expression needs two iterations for each lambda inside another (`expression.spark.compiler.DEEPEST`)
    "spark.sql.analyzer.maxIterations": "1000",
    # it would combine constants, and so raise, or not raise, for a sum that is not in the query
    "spark.sql.optimizer.excludedRules": REORDERING_RULE,
    # it would infer 12 / y.b > 2 from 12 / x.a > 2 and x.a = y.b, and raise for unmatched rows (`where_clause` has its own rule)
    "spark.sql.constraintPropagation.enabled": "false",
    # do not compute a repeated expression after AND before the first condition: that, perhaps a policy, may exclude the row
    "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # a writer holds its row group, a reader its column of one, which Spark does not account for: by default 128 MB each, of 1 GB
    "spark.hadoop.parquet.block.size": str(16 << 20),
    "spark.hadoop.parquet.block.row.count.limit": str(1 << 16),  # the value of `storage.delta.parquet`
    # otherwise each function call makes several more JVM calls to record its position in the Python code
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # the rows of a change file have the statement's order: a writer per (change, no change) instead of a sort of the rows
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # not the one by FileContext, which Delta would use for its checksum files: it forks readlink and chmod for each file
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILE_MANAGER,
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.merge.materializeSource": "none",
}
"""The defaults that are equal on all nodes."""


def _defaults(jars: list[str], scratch: Path, jit: Sequence[str]) -> dict[str, str]:
    java = [
        "-Xss16m",
        "-XX:+UseSerialGC",
        *jit,
        "-Xlog:disable",
        "-Duser.timezone=UTC",
        f"-Dderby.system.home={scratch}",
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
    ]
    if class_archive.usable():
        java.append(f"-XX:SharedArchiveFile={class_archive.path()}")
    return {
        **_SETTINGS,
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.driver.extraJavaOptions": " ".join(_quote(option) for option in java),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 2, 8)),
    }


def start(settings: Mapping[str, str] | None = None, *, scratch: Path | None = None) -> SparkSession:
    """Start the process's Spark session, or return the existing one.

    `settings`: names and values that begin with ``spark.``; others are ignored. `scratch`: a directory for Spark's temporary files,
    preferably in the data directory. Raise 58P01 if a jar is missing, 58000 if Java does not start.
    """
    scratch = scratch or Path(tempfile.gettempdir()) / f"headgate-spark-{os.getpid()}"
    scratch.mkdir(parents=True, exist_ok=True)
    jars = [str(jar) for jar in find_jars()]
    configured = _defaults(jars, scratch, _JIT[(settings or {}).get("spark_driver_jit", "c1")])
    store_jars: list[str] = []
    store = object_store.named(settings or {})
    if store is not None:
        store_jars = [str(jar) for jar in ensure(STORE_JARS[store.name])]
        configured |= store.spark_settings(settings or {}, scratch)
        configured[f"spark.executorEnv.{worker_daemon.MORE}"] = store.modules
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    overrides = {name: str(value) for name, value in (settings or {}).items() if name.startswith("spark.")}
    if extra := overrides.pop("spark.driver.extraJavaOptions", None):
        configured["spark.driver.extraJavaOptions"] += " " + extra
    if is_cluster(overrides):
        python = overrides.get("spark.pyspark.python", executor_archive.interpreter())
        configured = _on_cluster(configured, overrides, [*jars, *store_jars])
        overrides.pop("spark.archives", None)  # `_on_cluster` has included them
    else:
        # a client of the driver's port could otherwise make it deserialize any object; Spark generates the secret and keeps it in memory
        configured["spark.authenticate"] = "true"
    if overrides.get("spark.ui.enabled", "false").lower() != "true":
        configured |= _UNSEEN
    configured.update(overrides)
    try:
        builder = SparkSession.builder
        if gateway.is_open():  # Java is running and gets the settings through its gateway
            builder.config(map=dict(configured))
        with _properties(configured, scratch) as path, _environment(_variables(path, python, store_jars)):
            if not gateway.is_open():
                _launch()
            session = builder.getOrCreate()
    except Exception as error:
        raise PostgresError("58000", f"could not start Spark: {error}", hint="The server log shows what Java has reported.") from error
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    gateway.cache_lookups(session)
    return session


_INCUBATOR = b"WARNING: Using incubator modules: "
"""Spark starts Java with an incubator module, which the JVM reports at each start. No option suppresses that line."""


def _launch() -> None:
    """Start Java, as PySpark does, with its stderr forwarded to that of this process."""
    read_end, write_end = os.pipe()
    threading.Thread(target=_forward, args=(read_end,), name="java stderr", daemon=True).start()
    try:
        gateway.launch(write_end)
    finally:
        os.close(write_end)


def _forward(handle: int) -> None:
    """Copy lines to stderr, without the warning about incubator modules, until all writers have closed the pipe."""
    with os.fdopen(handle, "rb") as lines:
        for line in lines:
            if not line.startswith(_INCUBATOR):
                with contextlib.suppress(OSError):  # stderr may be a full disk, or closed; Java must not wait for it
                    os.write(2, line)


def is_cluster(settings: Mapping[str, str]) -> bool:
    """Return whether tasks run in other processes than the node's Java, possibly on other machines."""
    return not _ALONE.match(settings.get("spark.master", "local[*]"))


def _on_cluster(configured: Mapping[str, str], overrides: Mapping[str, str], jars: Sequence[str]) -> dict[str, str]:
    """Return the defaults for a cluster: the application ships what executors need, because their machines have none of it."""
    local_names = ("spark.driver.host", "spark.driver.bindAddress", "spark.hadoop.fs.s3a.buffer.dir", "spark.hadoop.fs.azure.buffer.dir")
    shared = {name: value for name, value in configured.items() if name not in local_names}
    archives = [overrides.get("spark.archives", ""), *executor_archive.make()]
    return shared | {
        "spark.jars": ",".join(jars),
        "spark.archives": ",".join(filter(None, archives)),
        "spark.executorEnv.PYTHONPATH": executor_archive.PYTHONPATH,
        "spark.executor.extraJavaOptions": "-Xss16m -Duser.timezone=UTC",
    }


@contextlib.contextmanager
def _properties(configured: Mapping[str, str], scratch: Path) -> Iterator[str]:
    """Yield the path of a file of these settings that only the node's user can read. It is removed at the end."""
    handle, path = tempfile.mkstemp(".properties", "spark-", scratch)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in configured.items())
        yield path
    finally:
        Path(path).unlink()


def _variables(properties: str, python: str, behind: Sequence[str]) -> dict[str, str]:
    """Return the environment of Java. `behind`: jars for the end of the class path; the class archive needs its beginning unchanged."""
    variables = {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(properties)} pyspark-shell",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    if behind:
        own = os.environ.get("SPARK_DIST_CLASSPATH")
        variables["SPARK_DIST_CLASSPATH"] = os.pathsep.join([*behind, *([own] if own else [])])
    return variables


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let Python code see these environment variables in the context, and pass them to the processes that PySpark starts.

    C code does not see them. Assigning to `os.environ` calls setenv, and a getenv of another thread at that moment may crash the process:
    the node opens its catalog while Java starts. So only the dictionary behind `os.environ` changes.
    """
    seen: dict[bytes, bytes] = vars(os.environ)["_data"]
    encoded = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
    before = {name: seen.get(name) for name in encoded}
    seen.update(encoded)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                seen.pop(name, None)
            else:
                seen[name] = value


def _quote(option: str) -> str:
    """Quote an option of Java for Spark's list of options: the data directory may have spaces in its name."""
    inner = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _escaped(text: str) -> str:
    """Escape a name or value for java.util.Properties."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)
