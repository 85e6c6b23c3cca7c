"""What the leaves of a partitioned table demand of their rows beyond the table itself: NOT NULL, CHECK, further unique indexes.

A worker writes through the table that the publisher names; PostgreSQL checks each row against the leaf that it is routed to
(ExecConstraints and ExecInsertIndexTuples on the partition). Called by the applier and by the initial copy for tables of kind 'p'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.catalog.relation.relation import Index, Relation
from headgate.storage.partitioned import PartitionedTable, of_leaf, ordered
from headgate.storage.routing import NOWHERE
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply import row_completion
from headgate.subscriber.apply.conflict import ApplyPlace
from headgate.subscriber.apply.row_identity import key_of
from headgate.types import buffers

Unique = Callable[[Transaction, Relation, Index], None]


def _further(root: Relation, leaf: Relation) -> Relation | None:
    """The leaf with the constraints that the table has not; None if it has no others."""
    mandatory = {column.name for column in root.columns if column.not_null}
    known = {(check.name, check.expression) for check in root.checks}
    checks = tuple(check for check in leaf.checks if (check.name, check.expression) not in known)
    if not checks and all(column.name in mandatory for column in leaf.columns if column.not_null):
        return None
    columns = tuple(replace(column, generated=None) for column in leaf.all_columns)  # computed by the table, whose expressions they share
    return replace(leaf, all_columns=columns, checks=checks)


def needed(transaction: Transaction, root: Relation) -> bool:
    """Whether `check_frame` and `check_rows` have anything to do."""
    return root.is_partitioned and any(_further(root, leaf) is not None for leaf in transaction.partitioned(root).leaves)


def check_rows(rows: pa.Table, root: Relation, transaction: Transaction, factory: row_completion.Factory) -> None:
    """23502 and 23514 for whole new rows of a table (its columns)."""
    table = transaction.partitioned(root)
    for leaf, at in _routed(table, rows, np.arange(rows.num_rows)):
        factory(transaction, leaf, root).checked(of_leaf(leaf, rows.take(at)))


def check_frame(frame: pa.Table, root: Relation, transaction: Transaction, factory: row_completion.Factory, place: ApplyPlace) -> None:
    """The same for the new rows of a changes frame; what an UPDATE did not send is not judged (`row_completion`)."""
    table = transaction.partitioned(root)
    new = buffers.whole(frame["new"])
    lacking = set(table.router.key_names())
    unsent = [bool(lacking & set(names or ())) for names in frame["unchanged"].to_pylist()]
    alive = np.flatnonzero(np.asarray(pc.and_(new.is_valid(), pa.array([not each for each in unsent], pa.bool_()))))
    rows = pa.table(new.flatten(), names=[field.name for field in new.type])
    for leaf, at in _routed(table, rows, alive):
        part = frame.take(at)
        part = part.set_column(part.column_names.index("new"), "new", ordered(leaf, new.take(at)))
        row_completion.complete(part, leaf, (0,) * len(leaf.columns), transaction, partial(factory, routed_from=root), place)


def _routed(table: PartitionedTable, rows: pa.Table, at: NDArray[np.int64]) -> Iterator[tuple[Relation, pa.Array]]:
    """The leaves with further constraints that get rows, and which rows; a row without a leaf is for whoever writes it."""
    found = {leaf.oid: _further(table.root, leaf) for leaf in table.leaves}
    chosen = rows.take(pa.array(at))
    places, _ = table.router.route({name: chosen[name].combine_chunks() for name in table.router.key_names()}, chosen.num_rows)
    for number in np.unique(places):
        leaf = None if number == NOWHERE else found[table.leaves[number].oid]
        if leaf is not None:
            yield leaf, pa.array(at[places == number])


@contextmanager
def unique(transaction: Transaction, root: Relation, check: Unique | None) -> Iterator[None]:
    """23505 if what is written inside repeats a key of a unique index of a leaf, other than that by which rows are found."""
    watched = [(leaf, index) for leaf in transaction.partitioned(root).leaves for index in _others(leaf)] if root.is_partitioned else []
    before = {leaf.oid: transaction.state(leaf).place for leaf, _ in watched}
    yield
    for leaf, index in watched:
        if check is not None and transaction.state(leaf).place != before[leaf.oid]:
            check(transaction, leaf, index)


def _others(leaf: Relation) -> list[Index]:
    key = set(key_of(leaf) or ())
    return [index for index in leaf.indexes if index.unique and not (index.plain and set(index.attnums) == key)]
