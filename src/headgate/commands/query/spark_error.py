"""What Spark raises while it computes → PostgreSQL's errors.

Expressions and constraints raise through `headgate.storage.spark.failure`; what else can befall a query (a scalar subquery with two
rows, a job that was cancelled) is recognised here. Anything else is an internal error and keeps its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headgate.errors import PostgresError
from headgate.storage.spark import failure


@contextmanager
def translated(check_cancel: Callable[[], None]) -> Iterator[None]:
    """Inside, exceptions of Spark become `PostgresError`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        check_cancel()
        if "SCALAR_SUBQUERY_TOO_MANY_ROWS" in str(error):
            raise PostgresError("21000", "more than one row returned by a subquery used as an expression") from error
        raise failure.from_spark(error) from error
