"""Find the error of the first failing row. Rows are checked together, but PostgreSQL inserts them one by one and reports the first error.

Called by `new_rows` and `on_conflict`. Rows of a frame are checked in no order, inside Spark's tasks. A check must change nothing, and must
fail for a prefix of the rows exactly if one of its rows fails. Then the shortest failing prefix ends with the first failing row, whose
error is the statement's. The search starts only after an error. It needs as many checks as the number of rows has binary digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headgate.errors import PostgresError
from headgate.storage.row_set import Rows
from headgate.storage.spark import failure

T = TypeVar("T")
_CANCELLED = "57"


def checked(rows: Rows, check: Callable[[Rows], T]) -> T:
    """Return ``check(rows)``, or raise the error of the first row that fails. A PostgresError has the index of that row."""
    try:
        return check(rows)
    except Exception as error:
        if _asked_to_stop(error) or not isinstance(rows, pa.Table):
            raise
        first_failure = error
    passing, failing = 0, rows.num_rows
    while failing - passing > 1:
        middle = (passing + failing) // 2
        try:
            check(rows.slice(0, middle))
            passing = middle
        except Exception as error:
            if _asked_to_stop(error):
                raise
            failing, first_failure = middle, error
    if isinstance(first_failure, PySparkException | Py4JJavaError):
        failed = failure.from_spark(first_failure)
        failed.row = failing - 1
        raise failed from first_failure
    if isinstance(first_failure, PostgresError):
        first_failure.row = failing - 1
    raise first_failure


def _asked_to_stop(error: Exception) -> bool:
    return isinstance(error, PostgresError) and error.sqlstate.startswith(_CANCELLED)
