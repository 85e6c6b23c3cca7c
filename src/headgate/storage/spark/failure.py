"""Errors of what runs inside Spark, brought back as PostgreSQL's.

Expressions and the columns of files raise with ``headgate:SQLSTATE:message`` (`marked`); Spark's own ANSI errors (overflow, division by
zero, casts) mean one PostgreSQL error each. `from_spark` is for whoever runs a job.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import CapturedException

from headgate.errors import PostgresError, causes, disk_full

T = TypeVar("T")
MARK = "headgate:"
_MARKED = re.compile(r"headgate:([0-9A-Z]{5}):([^\n]*)")
_CONDITION = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] ([^\n]*)")
_FROM_JAVA = "An error occurred while calling"
"""How Py4J begins the text of a Java exception; that follows in the next line."""
_WORKER_FULL = re.compile(r"^(?:\w+\.)*(?:MemoryError|ArrowMemoryError)\b|spark\.driver\.maxResultSize", re.MULTILINE)
_MORE_MEMORY = "Increase spark_driver_memory, or on a cluster spark.executor.memory."
_RECURSION = re.compile(r"^RecursionError\b", re.MULTILINE)
"""How a worker of Python's says that a pattern, a document or an array is too deep."""
_DIGITS = "for integer string conversion"
"""Python's words for an integer of thousands of digits: it reads and writes none, as that takes the square of their number."""
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE\.?([A-Z_]*)\] Encountered error while reading file (?:file:(?://)?)?(\S+?)\.\s")
_CHECKED = re.compile(r"Checksum error: (?:file:(?://)?)?(\S+) at \d+")
_FRAME = re.compile(r'^(?:\tat .*|  File "[^"\n]*", line \d+, in .*|(?:(?:Caused by)?: )?(?:\w+\.)+[\w$]+(?=[:\n]))', re.MULTILINE)
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<raised>\S.*)$", re.MULTILINE)
"""What a worker of Python's raised: the line behind its stack."""
_FRAMES = 200
_BY_ERRNO = {errno.ENOENT: "58P01", errno.ENOMEM: "53200"}
_WITHOUT_VALUES = ("40", "53", "58", "XX")
"""The classes of errors whose messages show no values of rows."""
_INTEGERS = {"SMALLINT": "smallint", "INT": "integer", "BIGINT": "bigint"}
_DECIMAL = re.compile(r"Decimal\((\d+), ?(\d+)\)", re.IGNORECASE)


def marked(sqlstate: str, message: str) -> str:
    """The text that carries an error through Spark."""
    return f"{MARK}{sqlstate}:{message}"


def told(error: PostgresError) -> str:
    """The message of an error with its DETAIL and HINT, for `marked`."""
    text = with_fields(error.message, hint=error.hint) if error.hint else error.message
    return f"{text}|DETAIL|{error.detail}" if error.detail else text


def marking(run: Callable[..., T]) -> Callable[..., T]:
    """The function of a Python worker whose PostgresError keeps its SQLSTATE, DETAIL and HINT on the way to the driver."""

    @functools.wraps(run)
    def marked_run(*columns: object) -> T:
        try:
            return run(*columns)
        except PostgresError as error:
            raise RuntimeError(marked(error.sqlstate, told(error))) from error

    return marked_run


@contextlib.contextmanager
def carried(refused: str) -> Iterator[None]:
    """Keep the SQLSTATE of errors that a task raises inside. Only those of files and resources keep their message: others show values.

    `refused`: the message that replaces theirs.
    """
    try:
        yield
    except PostgresError as error:
        text = told(error) if error.sqlstate[:2] in _WITHOUT_VALUES else refused
        raise RuntimeError(marked(error.sqlstate, text)) from None


def from_spark(exception: BaseException) -> PostgresError:
    """The PostgreSQL error that an exception of Spark, Java or the operating system stands for; XX000 with its cause if for none."""
    for seen in causes(exception):
        if isinstance(seen, PostgresError):
            return seen
    text = str(exception)
    found = None if isinstance(exception, AnalysisException) else _MARKED.search(text)  # a plan that is shown has what it would raise
    if found:
        message = re.sub(r" SQLSTATE: [0-9A-Z]{5}$", "", found[2])
        message, fields = _without_fields(message.rstrip())
        return replace(PostgresError(found[1], *_split(message)), **fields)  # type: ignore[arg-type]
    for condition, message in _CONDITION.findall(text):
        error = _of_condition(condition, message)
        if error is not None:
            return error
    return _of_system(exception, text.strip())


def frames(exception: BaseException) -> str:
    """Return the stacks of Java and of Python's workers behind an exception; empty if there are none.

    The messages are left out, because they may show values.
    """
    for seen in causes(exception):
        if isinstance(seen, (Py4JJavaError, CapturedException)):
            text = str(seen) if isinstance(seen, Py4JJavaError) else seen._stackTrace or ""
            return "\n".join(each[0] for each in itertools.islice(_FRAME.finditer(text), _FRAMES))
    return ""


def used_up(exception: BaseException) -> PostgresError | None:
    """What of the machine or the node is used up (class 53: disk, handles, threads, memory), where that is why; None otherwise."""
    for seen in causes(exception):
        known = seen if isinstance(seen, PostgresError) else from_spark(seen)
        if known.sqlstate.startswith("53"):
            return known
    return None


def _of_system(exception: BaseException, text: str) -> PostgresError:
    """What the operating system or the Java virtual machine refused; XX000 naming the cause otherwise."""
    full = disk_full(exception)
    if full is not None:
        return full
    if _RECURSION.search(text):
        return PostgresError("54001", "stack depth limit exceeded")
    if isinstance(exception, OverflowError) or _DIGITS in text:
        return PostgresError("22003", "value out of range")
    if isinstance(exception, OSError) and exception.errno in (errno.EMFILE, errno.ENFILE):
        return PostgresError("53000", f"out of file descriptors: {exception.strerror}; release and retry")
    if isinstance(exception, RuntimeError) and text == "can't start new thread":
        return PostgresError("53000", f"could not start thread: {text}")
    if isinstance(exception, OSError) and exception.errno is not None:
        sqlstate = _BY_ERRNO.get(exception.errno, "58030")
        named = f' file "{exception.filename}"' if exception.filename is not None else " a file"
        return PostgresError(sqlstate, f"could not access{named}: {exception.strerror}")
    if "java.lang.OutOfMemoryError" in text:
        return PostgresError("53200", "out of memory", detail="The Java virtual machine has used up its heap.")
    if "SparkOutOfMemoryError" in text:
        return PostgresError("53200", "out of memory", detail="Spark's tasks share less memory than they need.", hint=_MORE_MEMORY)
    if isinstance(exception, MemoryError) or _WORKER_FULL.search(text):
        return PostgresError("53200", "out of memory", detail="A worker has used up the memory that a task may take.")
    causes = [line.removeprefix("Caused by: ") for line in text.split("\n") if line.startswith("Caused by: ")]
    file = _UNREADABLE.search(text)
    if file is not None:
        return _unreadable(unquote(file[2]), causes[-1] if causes else "", is_missing=file[1] == "FILE_NOT_EXIST")
    raised = [found["raised"] for found in _TRACEBACK.finditer(text)]
    if raised:
        return PostgresError("XX000", raised[-1], detail="A task of Spark has failed in Python.")
    if text.startswith(_FROM_JAVA):
        thrown = next((line[2:] for line in text.split("\n") if line.startswith(": ")), text)
        return PostgresError("XX000", causes[-1] if causes else thrown, detail=thrown if causes else None)
    return PostgresError("XX000", text.split("\n", maxsplit=1)[0])


def _unreadable(path: str, cause: str, *, is_missing: bool) -> PostgresError:
    """A file that Spark could not read; in the words of `storage.delta.parquet` and `deletion_vector`, which read small tables."""
    if "Too many open files" in cause:
        return PostgresError("53000", "out of file descriptors: Too many open files; release and retry")
    if is_missing:
        return PostgresError("58P01", f'could not open file "{path}": No such file or directory')
    checked = _CHECKED.search(cause)
    if checked is not None:  # also of a file that was read beside this one
        path = unquote(checked[1])
    if "DELETION_VECTOR" in cause:
        return PostgresError("XX001", f'deletion vector of file "{path}" is damaged', detail=cause)
    return PostgresError("XX001", f'file "{path}" is damaged or cannot be read', detail=cause or None)


def with_fields(text: str, **fields: str) -> str:
    """The text of a marked message with the error: hint, schema, table, column, datatype, constraint."""
    return f"{text}|OF|{json.dumps(fields)}|OF|"


def _without_fields(message: str) -> tuple[str, dict[str, str]]:
    head, separator, rest = message.partition("|OF|")
    fields, _, detail = rest.partition("|OF|")
    return (head + detail, json.loads(fields)) if separator else (message, {})


def _split(message: str) -> tuple[str, str | None]:
    head, separator, detail = message.partition("|DETAIL|")
    return head, detail if separator else None


def _of_condition(condition: str, message: str) -> PostgresError | None:
    if condition in ("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO"):
        return PostgresError("22012", "division by zero")
    if condition.startswith("BINARY_ARITHMETIC_OVERFLOW"):
        return PostgresError("22003", "smallint out of range" if re.search(r"\d+S\b", message) else "integer out of range")
    if condition.startswith("ARITHMETIC_OVERFLOW"):
        return PostgresError("22003", "bigint out of range" if "long" in message.lower() else "integer out of range")
    if condition.startswith(("UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY", "UNRESOLVED_COLUMN")):
        hint = "Write it as a join, or with the condition that names the outer query in the subquery's own WHERE."
        return PostgresError("0A000", "a subquery that names columns of the query around it in this place is not supported", hint=hint)
    if condition == "UNSUPPORTED_FEATURE.PYTHON_UDF_IN_ON_CLAUSE":
        hint = (
            "It is a comparison of numerics without precision, or a function that Spark has not got; compare other types, or join in FROM."
        )
        return PostgresError(
            "0A000", "a condition that is computed in Python is not supported beside columns of a query around it", hint=hint
        )
    if condition.startswith("CAST_OVERFLOW"):
        target = re.search(r'cast to "(\w+)"', message)
        return PostgresError("22003", f"{_INTEGERS.get(target[1] if target else '', 'integer')} out of range")
    if condition.startswith(("NUMERIC_VALUE_OUT_OF_RANGE", "DECIMAL_PRECISION_EXCEEDS")):
        return _field_overflow(message)
    return None


def _field_overflow(message: str) -> PostgresError:
    found = _DECIMAL.search(message)
    if found is None:
        return PostgresError("22003", "numeric field overflow")
    return field_overflow(int(found[1]), int(found[2]))


def field_overflow(precision: int, scale: int) -> PostgresError:
    """PostgreSQL's error for a value that numeric(precision, scale) cannot hold."""
    whole = precision - scale
    return PostgresError(
        "22003",
        "numeric field overflow",
        detail=f"A field with precision {precision}, scale {scale} must round to an absolute value less than "
        f"{'10^' + str(whole) if whole else '1'}.",
    )
