"""Rows that the publisher does not send whole: defaults of extra local columns, generated columns, CHECK constraints.

Defaults are for INSERT; an UPDATE leaves extra columns alone (`updated_rows`). Expressions belong to the commands' floor, which is above:
the server provides `Factory`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Column, Relation
from headgate.expression.spark import domain
from headgate.sql.parser import parse_expression, unwrap, walk
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply.conflict import MESSAGES, ApplyPlace
from headgate.subscriber.apply.conversion import row_type
from headgate.types import buffers, registry

Columns = frozenset[str]


class RowCompletion(Protocol):
    """Completes and checks rows of one table; both take and give the table's columns by name."""

    def completed(self, rows: pa.Table) -> pa.Table:
        """Rows with the columns that they lack at their defaults."""
        ...

    def checked(self, rows: pa.Table) -> pa.Table:
        """Rows with their generated columns; 23502 and 23514."""
        ...


class Factory(Protocol):
    """Gives the `RowCompletion` of a table; `routed_from`: the partitioned table whose leaf it is, in whose columns messages show rows."""

    def __call__(self, transaction: Transaction, relation: Relation, routed_from: Relation | None = None) -> RowCompletion:
        """See the class."""
        ...


def needed(local: Relation, sources: tuple[int | None, ...]) -> bool:
    """Whether rows of this table, sent so, must pass through `complete`."""
    extra = [column for column, source in zip(local.columns, sources, strict=True) if source is None]
    if any(domain.constrained(column.type_oid) for column in local.columns):
        return True
    return bool(local.checks) or any(c.generated is not None or c.default is not None or c.identity for c in extra)


def complete_inserts(
    rows: pa.Table, local: Relation, sources: tuple[int | None, ...], made: RowCompletion, *, is_checked: bool = True
) -> pa.Table:
    """New rows (all columns, NULL where nothing was sent) with defaults and generated columns, checked."""
    sent = [c.name for c, source in zip(local.columns, sources, strict=True) if source is not None or c.generated is not None]
    whole = made.completed(rows.select(sent)) if len(sent) < len(local.columns) else rows
    return made.checked(whole) if is_checked else whole


def complete(
    frame: pa.Table, local: Relation, sources: tuple[int | None, ...], transaction: Transaction, factory: Factory, place: ApplyPlace,
    *, is_checked: bool = True,
) -> pa.Table:  # fmt: skip
    """A changes frame with the rows of its INSERTs completed and checked; not `is_checked`: triggers come before that."""
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
    is_insert, taken = pa.array(at >= 0), structs.take(pa.array(at, mask=at < 0))
    return frame.set_column(frame.column_names.index("new"), "new", pc.if_else(is_insert, taken, buffers.whole(frame["new"])))


def judged(local: Relation, unsent: Columns, lacking: Columns) -> tuple[Relation, Columns]:
    """A table with what is checked of an UPDATE that did not send some columns, and the generated columns that keep their stored value.

    `unsent`: the columns whose value is not known; `lacking`: all that were not sent, whose own constraints hold already.
    """
    kept = frozenset(
        column.name for column in local.columns
        if column.generated is not None and (read := columns_of(column.generated, local)) and read <= unsent
    )  # fmt: skip

    def free(column: Column) -> Column:
        if column.name in kept:
            return replace(column, generated=None, not_null=False)
        if column.name not in lacking:
            return column
        type_oid, typmod = registry.known().base(column.type_oid, column.typmod)
        return replace(column, type_oid=type_oid, typmod=typmod, not_null=False)

    columns = tuple(column if column.dropped else free(column) for column in local.all_columns)
    checks = tuple(check for check in local.checks if not columns_of(check.expression, local) & unsent)
    return replace(local, all_columns=columns, checks=checks), kept


def columns_of(text: str, local: Relation) -> Columns:
    """Return the names of the columns that a stored expression reads."""
    references = (part for part in walk(parse_expression(text)) if part.DESCRIPTOR.name == "ColumnRef")
    named = {name.sval for part in references for name in map(unwrap, part.fields) if name.DESCRIPTOR.name == "String"}
    return frozenset(named & {column.name for column in local.columns})


def rows_of(structs: pa.StructArray) -> pa.Table:
    """The fields of a struct column, NULL where the struct is."""
    return pa.table(structs.flatten(), names=[field.name for field in structs.type])
