"""Rows that the publisher does not send whole: defaults of extra local columns, generated columns, CHECK constraints.

Defaults are for INSERT; an UPDATE leaves extra columns alone. Generated columns are computed from the new row; where an UPDATE did
not send a value that one needs (an extra column, unchanged TOAST), the stored value stays if none of what it needs was sent,
and a mixture is refused with 0A000. Expressions belong to the commands' floor, which is above: the server gives `Factory`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import ScopeColumn, relation_scope
from headgate.expression.node import ColumnRef, TypeRef, walk
from headgate.expression.spark import domain
from headgate.sql.parser import parse_expression
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply.conflict import MESSAGES, ApplyPlace
from headgate.subscriber.apply.conversion import row_type
from headgate.subscriber.apply.relation_map import shown
from headgate.types import buffers, registry


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


def complete_inserts(rows: pa.Table, local: Relation, sources: tuple[int | None, ...], made: RowCompletion) -> pa.Table:
    """New rows (all columns, NULL where nothing was sent) with defaults and generated columns, checked."""
    sent = [c.name for c, source in zip(local.columns, sources, strict=True) if source is not None or c.generated is not None]
    return made.checked(made.completed(rows.select(sent)) if len(sent) < len(local.columns) else rows)


def complete(
    frame: pa.Table, local: Relation, sources: tuple[int | None, ...], transaction: Transaction, factory: Factory, place: ApplyPlace
) -> pa.Table:
    """A changes frame with its new rows completed and checked."""
    ops = np.asarray(frame["op"].to_numpy(zero_copy_only=False))
    row = row_type(local.columns)
    new = _table(frame["new"])
    unchanged = frame["unchanged"].to_pylist()
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place_of, (op, names) in enumerate(zip(ops.tolist(), unchanged, strict=True)):
        if op in ("I", "U"):
            groups.setdefault((op, tuple(names or ())), []).append(place_of)
    pieces, order = [], []
    for (op, names), places in groups.items():
        place.message = MESSAGES[op]
        rows = new.take(pa.array(places))
        if op == "I":
            done = complete_inserts(rows, local, sources, factory(transaction, local))
        else:
            variant, kept = _without(local, frozenset(names))
            done = factory(transaction, variant).checked(rows)
            for at in places if kept else ():
                unchanged[at] = [*names, *kept]
        pieces.append(done.cast(pa.schema(list(row))))
        order += places
    if not pieces:
        return frame
    whole = pa.concat_tables(pieces).combine_chunks()
    back = np.full(len(ops), -1, np.int64)
    back[order] = np.arange(len(order))
    structs = pa.StructArray.from_arrays([buffers.whole(c) for c in whole.columns], fields=list(row))
    taken = structs.take(pa.array(back, mask=back < 0))
    frame = frame.set_column(frame.column_names.index("new"), "new", taken)
    return frame.set_column(frame.column_names.index("unchanged"), "unchanged", pa.array(unchanged, pa.list_(pa.string())))


def _without(local: Relation, unsent: frozenset[str]) -> tuple[Relation, list[str]]:
    """The table without what cannot be computed from an UPDATE that left these columns out; the generated columns that stay as stored."""
    kept: list[str] = []
    columns = []
    for column in local.all_columns:
        if column.generated is not None and not column.dropped and unsent:
            used = _used(column.generated, local)
            if used and used <= unsent:
                kept.append(column.name)
                column = replace(column, generated=None)  # noqa: PLW2901
            elif used & unsent:
                raise _mixture(local, f'generated column "{column.name}"')
        columns.append(replace(column, not_null=False) if column.name in unsent or column.name in kept else column)
    checks = []
    for check in local.checks:
        used = _used(check.expression, local)
        if not used & unsent:
            checks.append(check)
        elif not used <= unsent:
            raise _mixture(local, f'check constraint "{check.name}"')
    return replace(local, all_columns=tuple(columns), checks=tuple(checks)), kept


def kept_by_update(local: Relation, unsent: frozenset[str]) -> list[str]:
    """The generated columns that an UPDATE without these columns leaves as they are; 0A000 for a mixture."""
    return _without(local, unsent)[1] if unsent else []


def _mixture(local: Relation, what: str) -> PostgresError:
    return not_supported(
        f'{what} of logical replication target relation "{shown(local)}" needs columns that an UPDATE did not send',
        hint="Let it depend on replicated columns alone, or set the publisher's columns to a storage that is not out-of-line.",
    )


def _used(text: str, local: Relation) -> frozenset[str]:
    """The names of the columns that a stored expression uses."""
    live = [ScopeColumn(c.name, c.attnum, TypeRef(c.type_oid, c.typmod, c.collation), c.name) for c in local.columns]
    context = BindContext(types=registry.known().anywhere())
    bound = binder.bind_raw(parse_expression(text), relation_scope(local.name, local.schema, live, local.oid), context)
    return frozenset(each.name for each in walk(bound) if isinstance(each, ColumnRef))


def _table(structs: pa.ChunkedArray) -> pa.Table:
    """The fields of a struct column, NULL where the struct is."""
    chunks = [pa.table(chunk.flatten(), names=[f.name for f in chunk.type]) for chunk in structs.chunks]
    return pa.concat_tables(chunks)
