"""Errors of values that PostgreSQL has and the storage has not: they name the table and the column.

`entering` is for values that enter columns one by one (INSERT … VALUES, constants of UPDATE), `sought` for frames of rows (INSERT … SELECT,
UPDATE), whose columns are computed together. COPY and the subscriber name both anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from headgate.commands.query.plan import col
from headgate.storage.spark import failure


@contextmanager
def entering(table: str, column: str) -> Iterator[None]:
    """Adds the column to the context of the refusal (0A000) of a value that it cannot hold."""
    try:
        yield
    except Exception as raised:
        if "cannot store" not in str(raised):
            raise
        error = failure.from_spark(raised)
        if error.sqlstate != "0A000":
            raise
        error.table, error.column = table, column
        raise error.within(f'column "{column}" of table "{table}"') from raised


@contextmanager
def sought(table: str, rows: Callable[[], DataFrame]) -> Iterator[None]:
    """The same for rows with the table's columns: after a refusal each column is computed alone, to find the one that is refused."""
    try:
        yield
    except Exception as raised:
        if "cannot store" in str(raised) and failure.from_spark(raised).column is None:
            frame = rows()
            for name in frame.columns:
                with entering(table, name):
                    frame.select(col(name)).write.format("noop").mode("overwrite").save()
        raise
