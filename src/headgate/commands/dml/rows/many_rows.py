"""Limit the number of a statement's rows that the driver holds at once, and yield the rows of larger statements in chunks.

Called by INSERT, UPDATE and DELETE. Invariant: the memory that the node needs for a statement does not grow with its rows. Chunks must
not be too small, because each chunk looks its keys up in the table's files once.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headgate.catalog.relation.relation import Relation
from headgate.commands.session import Session
from headgate.storage import row_store, write
from headgate.storage.spark import result_spool
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.types.storage import NO_COLUMN

CHUNK_ROWS = 200_000
CHUNK_BYTES = 16 << 20
_LOWERED = "headgate.small_write_rows"
"""A setting for tests that lowers both limits."""


def most(session: Session) -> int:
    """Return the maximum number of rows that count as few."""
    return min(write.SMALL_ROWS, _lower(session, write.SMALL_ROWS))


def are_few(frame: DataFrame, session: Session) -> bool:
    """Return whether the plan of a frame guarantees few rows or few bytes."""
    return most(session) == write.SMALL_ROWS and result_spool.is_small(frame)


def chunks(rows: DataFrame, relation: Relation, session: Session, transaction: Transaction) -> Generator[pa.Table]:
    """Yield the rows of a frame (all columns of the relation) in order, in at least one chunk. Tasks compute them once, into files."""
    if not relation.columns:
        yield pa.table({NO_COLUMN: pa.array(np.ones(rows.count(), bool))})
        return
    batches = result_spool.batches(rows, transaction.storage.exchange)
    is_empty = True
    for chunk in row_store.tables(batches, chunk_rows(relation, session, transaction), CHUNK_BYTES):
        session.check_cancel()
        is_empty = False
        yield of(relation, chunk)
    if is_empty:
        yield arrow_row(relation).empty_table()


def of(relation: Relation, rows: pa.Table) -> pa.Table:
    schema = arrow_row(relation)
    return rows.select(schema.names).cast(schema) if relation.columns else rows


def chunk_rows(relation: Relation, session: Session, transaction: Transaction) -> int:
    """Return the maximum rows of a chunk. It is smaller if the table's rows are wide, because rows with the same keys are held too."""
    stored = write.small_enough(transaction.reader.newest_files(relation), CHUNK_ROWS)
    return max(min(stored, _lower(session, CHUNK_ROWS)), 1)


def _lower(session: Session, rows: int) -> int:
    setting = session.settings.get(_LOWERED, "")
    return int(setting) if setting.isdecimal() else rows
