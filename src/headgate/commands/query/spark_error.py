"""Translate exceptions that Spark raises during execution to PostgreSQL errors.

Expressions and constraints raise through `headgate.storage.spark.failure`. This module recognizes the other failures of a query: a scalar
subquery with more than one row, a function in Python over columns of two queries, and a cancelled job. Anything else is an internal error
and keeps its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headgate.errors import PostgresError, not_supported
from headgate.storage.spark import failure


@contextmanager
def translated(check_cancel: Callable[[], None]) -> Iterator[None]:
    """Translate Spark's exceptions in the block to `PostgresError`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        check_cancel()
        if "SCALAR_SUBQUERY_TOO_MANY_ROWS" in str(error):
            raise PostgresError("21000", "more than one row returned by a subquery used as an expression") from error
        if "usePythonUDFInJoinCondition" in str(error):
            raise not_supported("a subquery whose rows are compared with the outer row by a function in Python is not supported") from error
        raise failure.from_spark(error) from error
