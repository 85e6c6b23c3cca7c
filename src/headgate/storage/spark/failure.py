"""Conversion of errors from inside Spark to PostgreSQL errors.

Expressions and readers of files raise errors with the text ``headgate:SQLSTATE:message`` (`marked`). Each of Spark's own ANSI errors
(overflow, division by zero, casts) corresponds to one PostgreSQL error. Code that runs a job calls `from_spark`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import PostgresError, causes, disk_full
from headgate.storage.spark.internals import java_error

T = TypeVar("T")
MARK = "headgate:"
_LINE_END = "\n"
_NEWLINE = "\x1e"
"""The replacement of a line end in a message. `from_spark` reads a message up to the end of its line, because Spark's own text follows."""
_MARKED = re.compile(r"headgate:([0-9A-Z]{5}):([^\n]*)")
_CONDITION = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] ([^\n]*)")
_FROM_JAVA = "An error occurred while calling"
"""The first words of Py4J's text for a Java exception. The exception follows in the next line."""
_WORKER_FULL = re.compile(r"^(?:\w+\.)*(?:MemoryError|ArrowMemoryError)\b|spark\.driver\.maxResultSize", re.MULTILINE)
_MORE_MEMORY = "Increase spark_driver_memory, or on a cluster spark.executor.memory."
_RECURSION = re.compile(r"^RecursionError\b", re.MULTILINE)
"""The error of a Python worker whose pattern, document or array is nested too deeply."""
_DIGITS = "for integer string conversion"
"""Part of Python's error for an integer of thousands of digits, which it does not convert because the time is quadratic."""
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE\.?([A-Z_]*)\] Encountered error while reading file (?:file:(?://)?)?(\S+?)\.\s")
_CHECKED = re.compile(r"Checksum error: (?:file:(?://)?)?(\S+) at \d+")
_FRAME = re.compile(r'^(?:\tat .*|  File "[^"\n]*", line \d+, in .*|(?:(?:Caused by)?: )?(?:\w+\.)+[\w$]+(?=[:\n]))', re.MULTILINE)
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<raised>\S.*)$", re.MULTILINE)
"""The exception of a Python worker: the line after its stack."""
_FRAMES = 200
_BY_ERRNO = {errno.ENOENT: "58P01", errno.ENOMEM: "53200"}
_WITHOUT_VALUES = ("40", "53", "58", "XX")
"""The classes of errors whose messages contain no values of rows."""
_INTEGERS = {"SMALLINT": "smallint", "INT": "integer", "BIGINT": "bigint"}
_DECIMAL = re.compile(r"Decimal\((\d+), ?(\d+)\)", re.IGNORECASE)


def marked(sqlstate: str, message: str) -> str:
    """Return the text that carries an error through Spark."""
    return f"{MARK}{sqlstate}:{message.replace(_LINE_END, _NEWLINE)}"


def raised(message: Column) -> Column:
    """Return an expression that raises an error whose text is the beginning of `marked`, followed by values of rows."""
    return F.raise_error(F.translate(message, _LINE_END, _NEWLINE))


def told(error: PostgresError) -> str:
    """Return the message of an error with its DETAIL, HINT and CONTEXT, for `marked`."""
    fields = {name: text for name, text in (("hint", error.hint), ("context", error.context)) if text}
    text = with_fields(error.message, **fields) if fields else error.message
    return f"{text}|DETAIL|{error.detail}" if error.detail else text


def marking(run: Callable[..., T]) -> Callable[..., T]:
    """Wrap a function of a Python worker so that a PostgresError keeps its SQLSTATE, DETAIL and HINT on the way to the driver."""

    @functools.wraps(run)
    def marked_run(*columns: object) -> T:
        try:
            return run(*columns)
        except PostgresError as error:
            raise RuntimeError(marked(error.sqlstate, told(error))) from error

    return marked_run


@contextlib.contextmanager
def carried(refused: str) -> Iterator[None]:
    """Keep the SQLSTATE of errors that a task raises in the context. Only errors of files and resources keep their message.

    `refused`: the message that replaces the others, which may contain values.
    """
    try:
        yield
    except PostgresError as error:
        text = told(error) if error.sqlstate[:2] in _WITHOUT_VALUES else refused
        raise RuntimeError(marked(error.sqlstate, text)) from None


def from_spark(exception: BaseException) -> PostgresError:
    """Return the PostgreSQL error for an exception of Spark, Java or the operating system. Others become XX000 with their cause."""
    for cause in causes(exception):
        if isinstance(cause, PostgresError):
            return cause
    text = str(exception)
    match = None if isinstance(exception, AnalysisException) else _MARKED.search(text)  # a printed plan contains its possible errors
    if match:
        message = re.sub(r" SQLSTATE: [0-9A-Z]{5}$", "", match[2]).replace(_NEWLINE, _LINE_END)
        message, fields = _without_fields(message.rstrip())
        marked_error = PostgresError(match[1], *_split(message))
        for name, value in fields.items():
            setattr(marked_error, name, value)
        return marked_error
    for condition, message in _CONDITION.findall(text):
        error = _of_condition(condition, message)
        if error is not None:
            return error
    return _of_system(exception, text.strip())


def frames(exception: BaseException) -> str:
    """Return the stacks of Java and of Python's workers behind an exception; empty if there are none.

    The messages are left out, because they may show values.
    """
    for cause in causes(exception):
        text = str(cause) if isinstance(cause, Py4JJavaError) else java_error.stack(cause)
        if text is not None:
            return "\n".join(match[0] for match in itertools.islice(_FRAME.finditer(text), _FRAMES))
    return ""


def used_up(exception: BaseException) -> PostgresError | None:
    """Return the error of class 53 (disk, handles, threads, memory exhausted) that caused an exception, or None."""
    for cause in causes(exception):
        error = cause if isinstance(cause, PostgresError) else from_spark(cause)
        if error.sqlstate.startswith("53"):
            return error
    return None


def _of_system(exception: BaseException, text: str) -> PostgresError:
    """Return the error for a failure of the operating system or the Java virtual machine. Others become XX000 with their cause."""
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
        file_name = f' file "{exception.filename}"' if exception.filename is not None else " a file"
        return PostgresError(sqlstate, f"could not access{file_name}: {exception.strerror}")
    if "java.lang.OutOfMemoryError" in text:
        return PostgresError("53200", "out of memory", detail="The Java virtual machine has used up its heap.")
    if "SparkOutOfMemoryError" in text:
        return PostgresError("53200", "out of memory", detail="Spark's tasks share less memory than they need.", hint=_MORE_MEMORY)
    if isinstance(exception, MemoryError) or _WORKER_FULL.search(text):
        return PostgresError("53200", "out of memory", detail="A worker has exceeded the memory limit of a task.")
    causes = [line.removeprefix("Caused by: ") for line in text.split("\n") if line.startswith("Caused by: ")]
    file = _UNREADABLE.search(text)
    if file is not None:
        return _unreadable(unquote(file[2]), causes[-1] if causes else "", is_missing=file[1] == "FILE_NOT_EXIST")
    raised = [match["raised"] for match in _TRACEBACK.finditer(text)]
    if raised:
        return PostgresError("XX000", raised[-1], detail="A task of Spark has failed in Python.")
    if text.startswith(_FROM_JAVA):
        thrown = next((line[2:] for line in text.split("\n") if line.startswith(": ")), text)
        return PostgresError("XX000", causes[-1] if causes else thrown, detail=thrown if causes else None)
    return PostgresError("XX000", text.split("\n", maxsplit=1)[0])


def _unreadable(path: str, cause: str, *, is_missing: bool) -> PostgresError:
    """Return the error for a file that Spark could not read, worded as in `storage.delta.parquet` and `deletion_vector`."""
    if "Too many open files" in cause:
        return PostgresError("53000", "out of file descriptors: Too many open files; release and retry")
    if is_missing:
        return PostgresError("58P01", f'could not open file "{path}": No such file or directory')
    checksum_error = _CHECKED.search(cause)
    if checksum_error is not None:  # it may be of another file that was read with this one
        path = unquote(checksum_error[1])
    if "DELETION_VECTOR" in cause:
        return PostgresError("XX001", f'deletion vector of file "{path}" is damaged', detail=cause)
    return PostgresError("XX001", f'file "{path}" is damaged or cannot be read', detail=cause or None)


def with_fields(text: str, **fields: str) -> str:
    """Append fields of an error (hint, schema, table, column, datatype, constraint) to the text of a marked message."""
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
        hint = "It compares numerics without precision, or calls a function that Spark does not have. Compare other types, or join in FROM."
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
    match = _DECIMAL.search(message)
    if match is None:
        return PostgresError("22003", "numeric field overflow")
    return field_overflow(int(match[1]), int(match[2]))


def field_overflow(precision: int, scale: int) -> PostgresError:
    """Return PostgreSQL's error for a value that numeric(precision, scale) cannot hold."""
    integer_digits = precision - scale
    return PostgresError(
        "22003",
        "numeric field overflow",
        detail=f"A field with precision {precision}, scale {scale} must round to an absolute value less than "
        f"{'10^' + str(integer_digits) if integer_digits else '1'}.",
    )
