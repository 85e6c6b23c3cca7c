"""Errors of values that PostgreSQL has and the storage has not: they name the table and the column.

Used where a statement's values enter columns one by one (INSERT … VALUES, constants of UPDATE); COPY and the subscriber name both anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.expression import failure


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
