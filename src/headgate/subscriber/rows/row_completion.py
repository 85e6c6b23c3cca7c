"""Completes rows that the publisher does not send completely: defaults of extra local columns, generated columns, CHECK constraints.

Defaults are for INSERT. An UPDATE leaves extra columns unchanged (`updated_rows`). The layer above (`commands`) evaluates expressions;
the server provides the `Factory`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Column, Relation
from headgate.expression.spark import domain
from headgate.sql.parser import columns_read
from headgate.storage.partitioned import rows_of
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows.conflict import MESSAGES, ApplyPlace
from headgate.subscriber.rows.conversion import row_type
from headgate.types import buffers, registry

Columns = frozenset[str]


class RowCompletion(Protocol):
    """Completes and checks rows of one table. Both methods take and return the table's columns by name."""

    def completed(self, rows: pa.Table) -> pa.Table:
        """Return rows with missing columns set to their defaults."""

    def checked(self, rows: pa.Table) -> pa.Table:
        """Return rows with their generated columns. Raise 23502 or 23514."""


class Factory(Protocol):
    """Returns the `RowCompletion` of a table. `routed_from`: the partitioned table of a leaf, in whose columns messages show rows."""

    def __call__(self, transaction: Transaction, relation: Relation, routed_from: Relation | None = None) -> RowCompletion: ...


def needed(local: Relation, sources: tuple[int | None, ...]) -> bool:
    """Return whether rows of this table with these sent columns must pass through `complete`."""
    extra = [column for column, source in zip(local.columns, sources, strict=True) if source is None]
    if any(domain.constrained(column.type_oid) for column in local.columns):
        return True
    return bool(local.checks) or any(c.generated is not None or _has_default(c) for c in extra)


def _has_default(column: Column) -> bool:
    """Return whether a new row gets a value in a column that is not sent: the default of the column or of its domain, or a number."""
    of_type = registry.known().find(column.type_oid)
    return column.default is not None or bool(column.identity) or (of_type is not None and of_type.default is not None)


def complete_inserts(
    rows: pa.Table, local: Relation, sources: tuple[int | None, ...], completion: RowCompletion, *, is_checked: bool = True
) -> pa.Table:
    """Return new rows (all columns, NULL for unsent ones) with defaults and generated columns, checked."""
    sent = [c.name for c, source in zip(local.columns, sources, strict=True) if source is not None or c.generated is not None]
    whole = completion.completed(rows.select(sent)) if len(sent) < len(local.columns) else rows
    return completion.checked(whole) if is_checked else whole


def complete(
    frame: pa.Table, local: Relation, sources: tuple[int | None, ...], transaction: Transaction, factory: Factory, place: ApplyPlace,
    *, is_checked: bool = True,
) -> pa.Table:  # fmt: skip
    """Return a changes frame with the rows of its INSERTs completed and checked. Not `is_checked`: triggers run before the check."""
    inserts = np.flatnonzero(np.asarray(pc.equal(frame["op"], "I")))
    if not len(inserts):
        return frame
    place.message = MESSAGES["I"]
    rows = rows_of(buffers.whole(frame["new"]).take(pa.array(inserts)))
    done = complete_inserts(rows, local, sources, factory(transaction, local), is_checked=is_checked)
    row = row_type(local.columns)
    structs = pa.StructArray.from_arrays([buffers.whole(column) for column in done.cast(pa.schema(list(row))).columns], fields=list(row))
    at = np.full(frame.num_rows, -1, np.int64)
    at[inserts] = np.arange(len(inserts))
    is_insert, new_rows = pa.array(at >= 0), structs.take(pa.array(at, mask=at < 0))
    return frame.set_column(frame.column_names.index("new"), "new", pc.if_else(is_insert, new_rows, buffers.whole(frame["new"])))


def judged(local: Relation, unsent: Columns, lacking: Columns) -> tuple[Relation, Columns]:
    """Return a table with the checks for an UPDATE that did not send some columns, and the generated columns that keep their stored value.

    `unsent`: the columns whose value is not known. `lacking`: all columns that were not sent, whose own constraints already hold.
    """
    stored = frozenset(
        column.name for column in local.columns
        if column.generated is not None and (read := columns_of(column.generated, local)) and read <= unsent
    )  # fmt: skip

    def free(column: Column) -> Column:
        if column.name in stored:
            return replace(column, generated=None, not_null=False)
        if column.name not in lacking:
            return column
        type_oid, typmod = registry.known().base(column.type_oid, column.typmod)
        return replace(column, type_oid=type_oid, typmod=typmod, not_null=False)

    columns = tuple(column if column.dropped else free(column) for column in local.all_columns)
    checks = tuple(check for check in local.checks if not columns_of(check.expression, local) & unsent)
    return replace(local, all_columns=columns, checks=checks), stored


def columns_of(text: str, local: Relation) -> Columns:
    """Return the names of the columns that a stored expression reads."""
    return columns_read(text) & {column.name for column in local.columns}
