"""Finds the current version of a row that a cursor has returned: the same version, or the one that replaced it (heap_get_latest_tid).

A row of a Delta table has no permanent number. Its place, a file and a row number in it, stays valid until the row is changed or its
file is rewritten (by compaction, and by every change of a table without deletion vectors). So:

    the place still holds a row     that row is the current version: a place is never reused for another row
    otherwise                       the later changes are read: first those that other transactions have committed, then this
                                    transaction's own. The row is identified by its values. An UPDATE whose old row equals all of them,
                                    in stored form, gives the next version. A DELETE or TRUNCATE ends the row. The last version is looked
                                    up, by the key if there is one

A row that has not moved costs one look at the deletion vector. For a row that has moved, the cost grows with the number of later changes.

Invariant: another row is never returned. Rows without a key may be equal in all columns. Then their values do not tell which of
them an UPDATE changed, nor which remains, and the error is 0A000. Statements of a transaction that share one change file are read as if
they followed each other. A key that passes from row to row within one statement breaks this: 40001 if the two cannot be distinguished.
Called by `commands.dml.current_row`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup
from headgate.errors import PostgresError, not_supported
from headgate.storage import feed
from headgate.storage.delta import deletion_vector
from headgate.storage.delta.table_state import TableState
from headgate.storage.transaction.log import TableWrite
from headgate.storage.transaction.statement_view import StatementView
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers, registry, sortkey

MOST = 1_000
"""The maximum number of equal rows, deleted ones included, that are compared. With more, the row is ambiguous."""
Place = tuple[str, int]
"""URI of a file, and the number of a row in it."""


@dataclass(frozen=True)
class PlacedRow:
    """A row as a struct array of length one, in the columns of its table. `place` is None if the row was pending."""

    values: pa.StructArray
    place: Place | None


@dataclass(frozen=True)
class _Version:
    """A version of the row. `born` is the change that made it: the number of the write and the position in it."""

    values: pa.StructArray
    born: tuple[int, int] | None


def current(transaction: Transaction, relation: Relation, view: StatementView, row: PlacedRow, state: TableState) -> PlacedRow | None:
    """Return the row as it is in `state` (of a locked table), or None if it was deleted. `view` is the view that the row was read from."""
    if row.place is not None and is_live(transaction, relation, state, row.place):
        return row
    versions = _versions(transaction, relation, view, row, state, keyed=key_of(relation, row.values) is not None)
    if versions is None:
        return None
    if any(key_of(relation, version.values) is None for version in versions):
        _refuse_equal(transaction, relation, view, versions, state, pending=row.place is None)
    rows = equal(transaction, relation, state, versions[-1].values)
    if not rows:
        raise PostgresError("40001", "could not serialize access due to concurrent update")
    if len(rows) > 1:
        raise ambiguous(relation)
    return rows[0]


def is_live(transaction: Transaction, relation: Relation, state: TableState, place: Place) -> bool:
    """Return whether a place holds a live row."""
    table = transaction.reader.table(relation)
    add = state.files.get(table.name(place[0]))
    return add is not None and place[1] not in deletion_vector.read(table.path, add.get("deletionVector"))


def _unique(relation: Relation) -> list[tuple[int, ...]]:
    """Return the columns of each unique key. A key identifies at most one row, unless a column is NULL."""
    return [index.attnums for index in relation.unique_indexes if index.plain and index.immediate]


def key_of(relation: Relation, row: pa.StructArray) -> lookup.RowKey | None:
    """Return a unique key none of whose columns is NULL in this row, or None."""
    for attnums in _unique(relation):
        key = lookup.key_of(relation, attnums)
        if not any(row.field(name).null_count for name in key.names):
            return key
    return None


def equal(transaction: Transaction, relation: Relation, state: TableState, row: pa.StructArray) -> list[PlacedRow]:
    key = key_of(relation, row)
    if key is None:
        attnums = [column.attnum for column in relation.columns if sortkey.comparable(column.type_oid, registry.known())]
        if not attnums:
            raise ambiguous(relation)
        key = lookup.key_of(relation, attnums)
    key_columns = key.arrays(row)
    keys = pa.table(key_columns, names=[f"k{position}" for position in range(len(key_columns))])
    return [candidate for candidate in having(transaction, relation, state, key, keys) if same(candidate.values, row)[0]]


def having(transaction: Transaction, relation: Relation, state: TableState, key: lookup.RowKey, keys: pa.Table) -> list[PlacedRow]:
    """Return the rows of a state that have a key.

    A unique key has one live row, and perhaps deleted rows in the same file. Raises 0A000 if another key has MOST rows or more.
    """
    unique = not any(column.null_count for column in keys.columns) and any(
        {column.name for column in relation.columns if column.attnum in attnums} == {*key.names} for attnums in _unique(relation)
    )
    table = transaction.reader.table(relation)
    stored = lookup.find_in(table, relation, state, key, keys, most=None if unique else MOST)
    if not unique and stored.num_rows >= MOST:
        raise ambiguous(relation)
    old, files, rows = buffers.whole(stored["old"]), stored["file"].to_pylist(), stored["row"].to_pylist()
    return [PlacedRow(old.slice(position, 1), (file, row)) for position, (file, row) in enumerate(zip(files, rows, strict=True))]


def ambiguous(relation: Relation) -> PostgresError:
    """Return the 0A000 error for a row whose values do not identify it."""
    return not_supported(
        f'cannot tell the current row of the cursor from other rows of table "{relation.name}"',
        hint="Give the table a primary key, and have the cursor select it.",
    )


def same(rows: pa.StructArray, row: pa.StructArray) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that equal a row in all columns, in stored form. NaN equals NaN."""
    mask = np.ones(len(rows), bool)
    for number, value in enumerate(row.flatten()):
        column, row_value = rows.field(number), value
        if pa.types.is_floating(column.type):  # NaN is NaN
            column, row_value = column.cast(pa.string()), row_value.cast(pa.string())
        alike = pc.is_null(column) if row_value.null_count else pc.fill_null(pc.equal(column, row_value[0]), fill_value=False)
        mask &= np.asarray(alike)
    mask &= np.asarray(rows.is_valid())
    return mask


# ---- changes of the row -------------------------------------------------------------------------------------------------------


def _versions(
    transaction: Transaction, relation: Relation, view: StatementView, row: PlacedRow, state: TableState, *, keyed: bool
) -> list[_Version] | None:
    """Return the versions of a row, the oldest first, or None if it was deleted."""
    versions = [_Version(row.values, None)]
    waits = row.place is None  # for the write that inserts it
    for number, changes in _changes(transaction, relation, view, state):
        if changes is None:
            return None
        first, once = 0, number > 0  # a write of this transaction is one statement
        if waits and (arrivals := np.flatnonzero(_same_new(changes, versions[0].values))).size:
            waits, first = False, int(arrivals[0]) + 1
            versions = [_Version(row.values, (number, changes["position"][int(arrivals[0])].as_py()))]
        while not (once and _is_of(versions, number)) and (index := _ended(changes, versions[-1].values, first)) is not None:
            if not keyed and waits:
                raise ambiguous(relation)
            if changes["op"][index].as_py() == "D":
                return None
            born = (number, changes["position"][index].as_py())
            if keyed and _is_of(versions, number) and _has_moved(relation, versions):
                raise PostgresError("40001", "could not serialize access due to concurrent update")
            versions.append(_Version(buffers.whole(changes["new"].slice(index, 1)), born))
            first = index + 1
    return versions


def _is_of(versions: list[_Version], number: int) -> bool:
    """Return whether this write made the last version from an earlier one."""
    born = versions[-1].born
    return len(versions) > 1 and born is not None and born[0] == number


def _has_moved(relation: Relation, versions: list[_Version]) -> bool:
    """Return whether the last change gave the row another key."""
    key = key_of(relation, versions[-1].values)
    if key is None:
        return True
    old_key, new_key = (key.arrays(version.values) for version in versions[-2:])
    return any(not left.equals(right) for left, right in zip(old_key, new_key, strict=True))


def _ended(changes: pa.Table, row: pa.StructArray, first: int) -> int | None:
    """Return the index of the first change, from `first` on, that ends a version of a row."""
    matches = np.flatnonzero(same(buffers.whole(changes["old"].slice(first)), row)) if first < changes.num_rows else np.empty(0, np.int64)
    return int(matches[0]) + first if matches.size else None


def _same_new(changes: pa.Table, row: pa.StructArray) -> npt.NDArray[np.bool_]:
    return same(buffers.whole(changes["new"]), row)


def _refuse_equal(
    transaction: Transaction, relation: Relation, view: StatementView, versions: list[_Version], state: TableState, *, pending: bool
) -> None:
    """Raise 0A000 if another row was ever equal to a version of this one, because the changes may be those of the other row."""
    base = view.state((relation.database, relation.oid))
    for version in versions:
        own = int(version is versions[0] and not pending)
        if base is not None and len(equal(transaction, relation, base, version.values)) > own:
            raise ambiguous(relation)
    for rows in view.pending_rows((relation.database, relation.oid)):
        whole = buffers.whole(rows.to_struct_array())
        if any(same(whole, version.values).sum() > (pending and version is versions[0]) for version in versions):
            raise ambiguous(relation)
    for number, changes in _changes(transaction, relation, view, state):
        if changes is None:
            continue
        for version in versions:
            born = changes["position"].take(pa.array(np.flatnonzero(_same_new(changes, version.values)))).to_pylist()
            if any((number, position) != version.born for position in born):
                raise ambiguous(relation)


def _changes(transaction: Transaction, relation: Relation, view: StatementView, state: TableState) -> Iterator[tuple[int, pa.Table | None]]:
    """Yield the changes since a view as (number of the write, some of its changes). The changes are None if all rows were deleted.

    The writes of this transaction have numbers from 1, those of others numbers up to 0.
    """
    committed = _committed(transaction, relation, view, state)
    for number, write in enumerate(committed, 1 - len(committed)):
        if write.kind == "truncate":
            yield number, None
            continue
        for piece in feed.pieces(transaction.storage.tables, relation, write):
            yield number, piece.combine_chunks()
    for number, (write, held) in enumerate(transaction.reader.own_writes(relation, view.writes), 1):
        if write.kind == "truncate":
            yield number, None
        elif held is not None:
            yield number, feed.of_rows(relation, held)
        else:
            for piece in feed.pieces(transaction.storage.tables, relation, write):
                yield number, piece.combine_chunks()


def _committed(transaction: Transaction, relation: Relation, view: StatementView, state: TableState) -> list[TableWrite]:
    """Return the writes of other transactions to a table between a view and a state, the oldest first."""
    before = view.state((relation.database, relation.oid))
    if before is None or state.version <= before.version:
        return []
    writes = []
    for entry in transaction.storage.log.of_relations(relation.database, [relation.oid], state.version - before.version):
        entry_writes = [write for write in entry.writes if write.relation == relation.oid and write.kind != "message"]
        if entry_writes and entry_writes[0].version <= before.version:
            break
        writes += [write for write in reversed(entry_writes) if write.version <= state.version]
    return writes[::-1]
