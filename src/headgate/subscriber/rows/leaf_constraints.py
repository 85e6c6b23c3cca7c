"""Constraints of a partitioned table's leaves that the table itself does not have: NOT NULL, CHECK, further unique indexes.

A worker writes through the table that the publisher names. PostgreSQL checks each row against the leaf that it is routed to
(ExecConstraints and ExecInsertIndexTuples on the partition). Called by the applier and by the initial copy for tables of kind 'p'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headgate.catalog.relation.relation import Index, Relation
from headgate.storage.partitioned import of_leaf
from headgate.storage.routing import NOWHERE
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows import row_completion
from headgate.subscriber.rows.relation_map import key_names
from headgate.types import buffers


@dataclass(frozen=True)
class UniqueChecks:
    """The functions that raise 23505 for the keys of unique indexes."""

    rows: Callable[[Transaction, Relation, Sequence[Index], pa.Table, pa.Table], None]
    """Checks new rows against indexes, before they are written. The last table has the positions of the rows that they replace."""
    table: Callable[[Transaction, Relation, Index], None]
    """Checks a whole table. Used for batches that are written before their rows can be checked."""


def _further(root: Relation, leaf: Relation) -> Relation | None:
    mandatory = {column.name for column in root.columns if column.not_null}
    known = {(check.name, check.expression) for check in root.checks}
    checks = tuple(check for check in leaf.checks if (check.name, check.expression) not in known)
    if not checks and all(column.name in mandatory for column in leaf.columns if column.not_null):
        return None
    columns = tuple(replace(column, generated=None) for column in leaf.all_columns)  # computed by the table, whose expressions they share
    return replace(leaf, all_columns=columns, checks=checks)


def further(transaction: Transaction, root: Relation) -> list[Relation]:
    """Return the leaves that have constraints which the table does not have, with these constraints."""
    if not root.is_partitioned:
        return []
    return [own for leaf in transaction.partitioned(root).leaves if (own := _further(root, leaf)) is not None]


def check_rows(
    rows: pa.Table, root: Relation, transaction: Transaction, factory: row_completion.Factory,
    unsent: row_completion.Columns = frozenset(), lacking: row_completion.Columns = frozenset(),
) -> None:  # fmt: skip
    """Raise 23502 or 23514 for new rows of a table (in its columns). A row without a leaf is left to the code that writes it.

    `unsent`, `lacking`: the columns that are not known, or that the publisher did not send (`row_completion.judged`).
    """
    demanding = {leaf.oid: leaf for leaf in further(transaction, root)}
    if not demanding or not rows.num_rows:
        return
    table = transaction.partitioned(root)
    places, _ = table.router.route({name: buffers.whole(rows[name]) for name in table.router.key_names()}, rows.num_rows)
    for number in np.unique(places[places != NOWHERE]).tolist():
        leaf = demanding.get(table.leaves[number].oid)
        if leaf is not None:
            part = of_leaf(leaf, rows.take(pa.array(np.flatnonzero(places == number))))
            factory(transaction, row_completion.judged(leaf, unsent, lacking)[0], root).checked(part)


@contextmanager
def unique(transaction: Transaction, root: Relation, check: UniqueChecks | None, *, is_copy: bool = False) -> Iterator[None]:
    """Raise 23505 if the rows written inside repeat a key of a leaf's unique index, other than the key by which they are looked up.

    That is the key of the leaf. A copy looks rows up by the first key of the table instead.
    """
    first = next((_names_of(root, index) for index in root.indexes if index.unique and index.plain), None)
    leaves = transaction.partitioned(root).leaves if root.is_partitioned else []
    watched = [(leaf, index) for leaf in leaves for index in _others(leaf, first if is_copy else key_names(leaf))]
    before = {leaf.oid: transaction.reader.state(leaf).place for leaf, _ in watched}
    yield
    for leaf, index in watched:
        if check is not None and transaction.reader.state(leaf).place != before[leaf.oid]:
            check.table(transaction, leaf, index)


def _others(leaf: Relation, key: frozenset[str] | None) -> list[Index]:
    """Return a leaf's unique indexes, without those of the columns `key`."""
    return [index for index in leaf.indexes if index.unique and not (index.plain and _names_of(leaf, index) == key)]


def _names_of(relation: Relation, index: Index) -> frozenset[str]:
    return frozenset(column.name for column in relation.columns if column.attnum in index.attnums)
