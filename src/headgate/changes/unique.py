"""Checks whether new rows repeat a unique key, for small sets of rows: without a Spark job, and without a lookup if statistics exclude it.

For local INSERT and UPDATE (`commands`). In batches of a subscription, `merge` finds conflicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.changes import lookup
from headgate.errors import PostgresError
from headgate.sql.names import quote_ident
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers
from headgate.types.text.text import write_text

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation


def check_unique(
    transaction: Transaction, relation: Relation, attnums: Sequence[int], constraint: str, rows: pa.Table, replaced: pa.Table | None = None
) -> None:
    """Raise 23505 if rows (in the relation's columns) repeat a key among themselves or in the table. NULLs are distinct.

    `replaced`: the positions (`file`, `row`) of rows that the same statement removes. Their keys are free.
    """
    key = lookup.key_of(relation, attnums)
    columns = [lookup.canonical_array(buffers.whole(rows[n]), kind) for n, kind in zip(key.names, key.kinds, strict=True)]
    complete = np.logical_and.reduce([np.asarray(c.is_valid()) for c in columns])
    keys = pa.table(columns, names=[f"k{i}" for i in range(len(columns))]).append_column("at", pa.array(np.arange(rows.num_rows)))
    keys = keys.filter(pa.array(complete))
    names = keys.column_names[:-1]
    grouped = keys.group_by(names, use_threads=False).aggregate([("at", "count"), ("at", "max"), ("at", "min")])
    twice = grouped.filter(pc.greater(grouped["at_count"], 1))
    if twice.num_rows:
        raise duplicate_key(relation, attnums, constraint, rows.slice(pc.min(twice["at_max"]).as_py(), 1))
    existing = lookup.find(transaction, relation, key, grouped.select(names))
    if replaced is not None and existing.num_rows:
        existing = existing.select(["i", "file", "row"]).join(replaced.select(["file", "row"]), ["file", "row"], join_type="left anti")
    if existing.num_rows:
        first = pc.min(grouped["at_min"].take(existing["i"])).as_py()
        raise duplicate_key(relation, attnums, constraint, rows.slice(first, 1))


def duplicate_key(relation: Relation, attnums: Sequence[int], constraint: str, row: pa.Table) -> PostgresError:
    """Return the error 23505 for a row whose key exists. `row` has one row, with the key's columns by their names."""
    chosen = [c for n in attnums for c in relation.columns if c.attnum == n]
    texts = [write_text(buffers.whole(row[c.name]), c.type_oid)[0].as_py() for c in chosen]
    shown = ["null" if text is None else text for text in texts]
    return PostgresError(
        "23505",
        f'duplicate key value violates unique constraint "{constraint}"',
        detail=f"Key ({', '.join(quote_ident(c.name) for c in chosen)})=({', '.join(shown)}) already exists.",
        schema=relation.schema,
        table=relation.name,
        constraint=constraint,
    )
