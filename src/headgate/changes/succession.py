"""Where a row is now that a cursor has shown: the same version of it, or the one that has come of it (heap_get_latest_tid).

A row has no number in a Delta table that it keeps. It is at a place, a file and a number in it, as long as nobody changes it and its file
is not written anew (compaction, and every change of a table without deletion vectors). So:

    the place still holds a row     it is the one: what is at a place never becomes another row
    otherwise                       the changes since are read, those of others that have committed, then this transaction's own. The row
                                    is what its values say: an UPDATE whose old row has all of them, in stored form, gives the next
                                    version, a DELETE or TRUNCATE ends it. What is left is looked up, by the key where there is one

That costs nothing but a look at the vector for a row that stays, and grows with what has been changed since for one that does not.

What must hold: no other row is ever taken. Rows without a key may be equal in all columns, and then values do not tell which of them an
UPDATE changed, nor which is left: 0A000. Statements of a transaction that are together in one change file are read as following each other,
which a key that passes from row to row in one statement is not: 40001 where the two cannot be told apart. Called by
`commands.dml.current_row`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.changes import lookup
from headgate.errors import PostgresError, not_supported
from headgate.storage import feed
from headgate.storage.delta import deletion_vector
from headgate.types import buffers, registry, sortkey

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation
    from headgate.storage.delta.table_state import TableState
    from headgate.storage.transaction.log import TableWrite
    from headgate.storage.transaction.statement_view import StatementView
    from headgate.storage.transaction.transaction import Transaction

MOST = 1_000
"""So many rows that look alike, those that are deleted among them, are looked at; where there are more, none is taken."""
Place = tuple[str, int]
"""URI of a file, and the number of a row in it."""


@dataclass(frozen=True)
class PlacedRow:
    """A row as a struct array of one, in the columns of its table; `place` is None for one that was pending."""

    values: pa.StructArray
    place: Place | None


@dataclass(frozen=True)
class _Version:
    """A version of the row, and the change that made it: the number of the write and the position there."""

    values: pa.StructArray
    born: tuple[int, int] | None


def current(transaction: Transaction, relation: Relation, view: StatementView, row: PlacedRow, state: TableState) -> PlacedRow | None:
    """The row as it is in `state` (of a table that is locked), None where it is gone; `view` is what it was seen in."""
    if row.place is not None and is_live(transaction, relation, state, row.place):
        return row
    versions = _versions(transaction, relation, view, row, state, keyed=key_of(relation, row.values) is not None)
    if versions is None:
        return None
    if any(key_of(relation, each.values) is None for each in versions):
        _refuse_equal(transaction, relation, view, versions, state, pending=row.place is None)
    found = equal(transaction, relation, state, versions[-1].values)
    if not found:
        raise PostgresError("40001", "could not serialize access due to concurrent update")
    if len(found) > 1:
        raise ambiguous(relation)
    return found[0]


def is_live(transaction: Transaction, relation: Relation, state: TableState, place: Place) -> bool:
    """Whether there is a row at a place."""
    table = transaction.engine.table((relation.database, relation.oid))
    add = state.files.get(table.name(place[0]))
    return add is not None and place[1] not in deletion_vector.read(table.path, add.get("deletionVector"))


def _unique(relation: Relation) -> list[tuple[int, ...]]:
    """The keys of which there is one row at most, but for NULL: their columns."""
    return [each.attnums for each in relation.unique_indexes if each.plain and each.immediate]


def key_of(relation: Relation, row: pa.StructArray) -> lookup.RowKey | None:
    """A key that no other row can have, none of whose columns is NULL in this row."""
    for attnums in _unique(relation):
        key = lookup.key_of(relation, attnums)
        if not any(row.field(name).null_count for name in key.names):
            return key
    return None


def equal(transaction: Transaction, relation: Relation, state: TableState, row: pa.StructArray) -> list[PlacedRow]:
    """The rows of a state that are equal to one in all columns."""
    key = key_of(relation, row)
    if key is None:
        attnums = [column.attnum for column in relation.columns if sortkey.comparable(column.type_oid, registry.known())]
        if not attnums:
            raise ambiguous(relation)
        key = lookup.key_of(relation, attnums)
    wanted = key.arrays(row)
    keys = pa.table(wanted, names=[f"k{place}" for place in range(len(wanted))])
    return [each for each in having(transaction, relation, state, key, keys) if same(each.values, row)[0]]


def having(transaction: Transaction, relation: Relation, state: TableState, key: lookup.RowKey, wanted: pa.Table) -> list[PlacedRow]:
    """The rows of a state with a key, few; 0A000 where they may be more. A unique key has one, with what was deleted of it in its file."""
    unique = not any(column.null_count for column in wanted.columns) and any(
        {column.name for column in relation.columns if column.attnum in attnums} == {*key.names} for attnums in _unique(relation)
    )
    table = transaction.engine.table((relation.database, relation.oid))
    found = lookup.find_in(table, relation, state, key, wanted, most=None if unique else MOST)
    if not unique and found.num_rows >= MOST:
        raise ambiguous(relation)
    old, files, rows = buffers.whole(found["old"]), found["file"].to_pylist(), found["row"].to_pylist()
    return [PlacedRow(old.slice(at, 1), (file, row)) for at, (file, row) in enumerate(zip(files, rows, strict=True))]


def ambiguous(relation: Relation) -> PostgresError:
    """0A000 where values do not tell which row is meant."""
    return not_supported(
        f'cannot tell the current row of the cursor from other rows of table "{relation.name}"',
        hint="Give the table a primary key, and have the cursor select it.",
    )


def same(rows: pa.StructArray, row: pa.StructArray) -> npt.NDArray[np.bool_]:
    """Which rows are equal to one in all columns, as they are stored."""
    found = np.ones(len(rows), bool)
    for number, value in enumerate(row.flatten()):
        column, one = rows.field(number), value
        if pa.types.is_floating(column.type):  # NaN is NaN
            column, one = column.cast(pa.string()), one.cast(pa.string())
        alike = pc.is_null(column) if one.null_count else pc.fill_null(pc.equal(column, one[0]), fill_value=False)
        found &= np.asarray(alike)
    found &= np.asarray(rows.is_valid())
    return found


# ---- what has happened to it ------------------------------------------------------------------------------------------------


def _versions(
    transaction: Transaction, relation: Relation, view: StatementView, row: PlacedRow, state: TableState, *, keyed: bool
) -> list[_Version] | None:
    """The versions of a row, the oldest first; None where it was deleted."""
    versions = [_Version(row.values, None)]
    waits = row.place is None  # for the write that brings it
    for number, changes in _changes(transaction, relation, view, state):
        if changes is None:
            return None
        first, once = 0, number > 0  # a write of this transaction is one statement
        if waits and (came := np.flatnonzero(_same_new(changes, versions[0].values))).size:
            waits, first = False, int(came[0]) + 1
            versions = [_Version(row.values, (number, changes["position"][int(came[0])].as_py()))]
        while not (once and _is_of(versions, number)) and (at := _ended(changes, versions[-1].values, first)) is not None:
            if not keyed and waits:
                raise ambiguous(relation)
            if changes["op"][at].as_py() == "D":
                return None
            born = (number, changes["position"][at].as_py())
            if keyed and _is_of(versions, number) and _has_moved(relation, versions):
                raise PostgresError("40001", "could not serialize access due to concurrent update")
            versions.append(_Version(buffers.whole(changes["new"].slice(at, 1)), born))
            first = at + 1
    return versions


def _is_of(versions: list[_Version], number: int) -> bool:
    """Whether a write has made the last version out of another."""
    born = versions[-1].born
    return len(versions) > 1 and born is not None and born[0] == number


def _has_moved(relation: Relation, versions: list[_Version]) -> bool:
    """Whether the last change gave the row another key."""
    key = key_of(relation, versions[-1].values)
    if key is None:
        return True
    one, other = (key.arrays(each.values) for each in versions[-2:])
    return any(not left.equals(right) for left, right in zip(one, other, strict=True))


def _ended(changes: pa.Table, row: pa.StructArray, first: int) -> int | None:
    """The first change from `first` on that ends a version of a row."""
    found = np.flatnonzero(same(buffers.whole(changes["old"].slice(first)), row)) if first < changes.num_rows else np.empty(0, np.int64)
    return int(found[0]) + first if found.size else None


def _same_new(changes: pa.Table, row: pa.StructArray) -> npt.NDArray[np.bool_]:
    return same(buffers.whole(changes["new"]), row)


def _refuse_equal(
    transaction: Transaction, relation: Relation, view: StatementView, versions: list[_Version], state: TableState, *, pending: bool
) -> None:
    """0A000 where another row was ever equal to a version of this one: what happened then may have happened to the other."""
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
    """What has been changed since a view: (number of the write, its changes or a piece of them); None: all rows were deleted.

    The writes of this transaction count from 1 on, those of others up to 0.
    """
    committed = _committed(transaction, relation, view, state)
    for number, write in enumerate(committed, 1 - len(committed)):
        if write.kind == "truncate":
            yield number, None
            continue
        for piece in feed.pieces(transaction.engine, relation, write):
            yield number, piece.combine_chunks()
    for number, (write, held) in enumerate(transaction.own_writes(relation, view.writes), 1):
        if write.kind == "truncate":
            yield number, None
        elif held is not None:
            yield number, feed.of_rows(relation, held)
        else:
            for piece in feed.pieces(transaction.engine, relation, write):
                yield number, piece.combine_chunks()


def _committed(transaction: Transaction, relation: Relation, view: StatementView, state: TableState) -> list[TableWrite]:
    """What others have written to a table between a view and a state, the oldest first."""
    before = view.state((relation.database, relation.oid))
    if before is None or state.version <= before.version:
        return []
    found = []
    for entry in transaction.engine.log.of_relations(relation.database, [relation.oid], state.version - before.version):
        written = [write for write in entry.writes if write.relation == relation.oid and write.kind != "message"]
        if written and written[0].version <= before.version:
            break
        found += [write for write in reversed(written) if write.version <= state.version]
    return found[::-1]
