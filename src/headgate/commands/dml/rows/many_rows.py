"""How many rows of a statement the driver holds at once, and the rows of a statement that has more, chunk by chunk.

Called by INSERT, UPDATE and DELETE. What must hold: what the node holds of a statement does not grow with its rows, and a chunk is worth
its price, since keys are looked up in the table's files once for each.
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
"""A setting of tests: so few rows are many, and a chunk."""


def most(session: Session) -> int:
    """How many rows are few."""
    return min(write.SMALL_ROWS, _lowered(session, write.SMALL_ROWS))


def are_few(frame: DataFrame, session: Session) -> bool:
    """Whether the plan of a frame promises few rows or few bytes."""
    return most(session) == write.SMALL_ROWS and result_spool.is_small(frame)


def chunks(rows: DataFrame, relation: Relation, session: Session, transaction: Transaction) -> Generator[pa.Table]:
    """The rows of a frame (all columns of the relation), in its order, at least one chunk; computed once, in files that tasks write."""
    if not relation.columns:
        yield pa.table({NO_COLUMN: pa.array(np.ones(rows.count(), bool))})
        return
    batches = result_spool.batches(rows, transaction.engine.exchange)
    is_empty = True
    for chunk in row_store.tables(batches, chunk_rows(relation, session, transaction), CHUNK_BYTES):
        session.check_cancel()
        is_empty = False
        yield of(relation, chunk)
    if is_empty:
        yield arrow_row(relation).empty_table()


def of(relation: Relation, rows: pa.Table) -> pa.Table:
    """Rows in the form that all chunks have."""
    schema = arrow_row(relation)
    return rows.select(schema.names).cast(schema) if relation.columns else rows


def chunk_rows(relation: Relation, session: Session, transaction: Transaction) -> int:
    """How many rows a chunk has at most: fewer where the rows that the table has are wide, as those with the same keys are held too."""
    stored = write.small_enough(transaction.newest_files(relation), CHUNK_ROWS)
    return max(min(stored, _lowered(session, CHUNK_ROWS)), 1)


def _lowered(session: Session, rows: int) -> int:
    told = session.settings.get(_LOWERED, "")
    return int(told) if told.isdecimal() else rows
