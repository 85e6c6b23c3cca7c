"""Errors of Spark, Java and the operating system become PostgreSQL's errors."""

from __future__ import annotations

import errno
import os
import re

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headgate.errors import PostgresError, disk_full
from headgate.expression.spark.value import arrow_function
from headgate.storage.spark.failure import frames, from_spark, used_up


def test_java_exception_is_reported_by_its_cause(spark) -> None:
    with pytest.raises(Py4JJavaError) as raised:
        spark._jvm.java.util.ArrayList().get(3)
    assert from_spark(raised.value).message == "java.lang.IndexOutOfBoundsException: Index 3 out of bounds for length 0"
    nested = spark._jvm.java.lang.RuntimeException("outer", spark._jvm.java.io.IOException("inner"))
    text = f"An error occurred while calling o1.x.\n: {nested.toString()}\n\tat a.b\nCaused by: {nested.getCause().toString()}\n\tat c.d\n"
    converted = from_spark(RuntimeError(text))
    assert (converted.message, converted.detail) == ("java.io.IOException: inner", "java.lang.RuntimeException: outer")


@pytest.mark.parametrize(
    ("raising", "kind"),
    [
        (lambda jvm: jvm.java.lang.Class.forName("secret"), ": java.lang.ClassNotFoundException"),
        (lambda jvm: jvm.java.lang.Integer.parseInt("secret"), "java.lang.NumberFormatException"),
    ],
)
def test_java_stack_is_shown_without_the_exceptions_message(spark, raising, kind) -> None:
    with pytest.raises((Py4JJavaError, PySparkException)) as raised:
        raising(spark._jvm)
    error = from_spark(raised.value)
    error.__cause__ = raised.value
    stack = frames(error)
    assert stack.startswith(f"{kind}\n\tat ")
    assert "secret" not in stack
    assert frames(ValueError("no Java")) == ""


@pytest.mark.parametrize(
    ("error", "sqlstate", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/d/f"), "53100", 'could not write to file "/d/f": No space left on device'),
        (
            RuntimeError("… : java.io.IOException: No space left on device\n\tat x"),
            "53100",
            "could not write to a file: No space left on device",
        ),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), "53200", "out of memory"),
        (
            RuntimeError("org.apache.spark.memory.SparkOutOfMemoryError: [UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 262144 bytes"),
            "53200",
            "out of memory",
        ),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "53000", "out of file descriptors: Too many open files; release and retry"),
        (RuntimeError("can't start new thread"), "53000", "could not start thread: can't start new thread"),
    ],
)
def test_full_disk_full_memory_and_too_many_files_have_postgresqls_sqlstates(error, sqlstate, message) -> None:
    converted = from_spark(error)
    assert (converted.sqlstate, converted.message) == (sqlstate, message)


def test_error_that_is_its_own_cause_is_reported() -> None:
    error = PostgresError("XX000", "unrecognized pgoutput option: nope")
    with pytest.raises(PostgresError):
        raise error.within('slot "s"') from error
    assert error.__cause__ is error
    assert (frames(error), used_up(error), disk_full(error), from_spark(error)) == ("", None, None, error)


def refused(values: pa.Array) -> pa.Array:
    """Raise PostgreSQL's error in a Python worker."""
    raise PostgresError("22P02", f"not {len(values)} values", detail="There is one.", hint="Look again.")


def unreadable(values: pa.Array) -> pa.Array:
    """Fail with a bug in a Python worker."""
    return pa.array([b"\xff"] * len(values), pa.binary()).cast(pa.string())


def test_error_of_a_python_worker_keeps_its_sqlstate_detail_and_hint(spark) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.range(0, 2, 1, 1).select(arrow_function(refused, StringType())(F.col("id"))).toArrow()
    converted = from_spark(raised.value)
    assert (converted.sqlstate, converted.message, converted.detail, converted.hint) == (
        "22P02",
        "not 2 values",
        "There is one.",
        "Look again.",
    )


def test_bug_in_a_python_worker_is_reported_with_exception_and_location(spark) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.range(0, 1, 1, 1).select(arrow_function(unreadable, StringType())(F.col("id"))).toArrow()
    converted = from_spark(raised.value)
    assert (converted.sqlstate, converted.message) == ("XX000", "pyarrow.lib.ArrowInvalid: Invalid UTF8 payload")
    assert re.search(r'^  File ".*test_failure.py", line \d+, in unreadable$', frames(raised.value), re.MULTILINE)
