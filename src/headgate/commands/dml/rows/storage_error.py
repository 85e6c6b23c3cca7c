"""Add the table and the column to errors of values that PostgreSQL can store but the storage cannot.

`entering` is for values of single columns (INSERT … VALUES, constants of UPDATE), `sought` for frames of rows (INSERT … SELECT,
UPDATE), whose columns are computed together. COPY and the subscriber always name both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from headgate.commands.query.plan import col
from headgate.storage.row_set import Rows
from headgate.storage.spark import failure


@contextmanager
def entering(table: str, column: str) -> Iterator[None]:
    """Add the column to the context of the 0A000 for a value that it cannot store."""
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
def sought(table: str, rows: Rows) -> Iterator[None]:
    """Do the same for a frame with the table's columns. After an error, each column is computed alone, to find the one that fails."""
    try:
        yield
    except Exception as raised:
        if isinstance(rows, DataFrame) and "cannot store" in str(raised) and failure.from_spark(raised).column is None:
            for name in rows.columns:
                with entering(table, name):
                    rows.select(col(name)).write.format("noop").mode("overwrite").save()
        raise
