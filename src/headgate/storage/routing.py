"""Routing of rows to the leaves of a partitioned table, many rows at a time (execPartition.c, partbounds.c).

    LIST    the value is looked up among all values of the bounds; NULL if a bound lists it
    RANGE   values and bounds are put into one order, column by column, and the row is searched among the lower bounds
    HASH    PostgreSQL's hash functions (`headgate.types.hashing`), modulus and remainder
    rows that no bound accepts go to the default partition, if there is one

A partitioned partition routes its rows further. Used by `partitioned` for rows that are written, on the driver or inside a Spark task (a
Router can be pickled), and by the commands and the subscriber to check rows of a leaf against its bounds.

Invariant: a row is in the partition where PostgreSQL would put it, since publisher and subscriber can be either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.partition import Bound, Branch, Edge, Strategy
from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.types.buffers import Numbers
from headgate.types.comparable import comparable
from headgate.types.hashing import partition_hash
from headgate.types.text.text import read_text, write_text

Places = npt.NDArray[np.int32]
NOWHERE = -1
_TABLE_SIZE = 1 << 16
"""The largest modulus up to which hash partitions are looked up in a table of remainders."""


@dataclass(frozen=True)
class Homeless:
    """A row that no partition accepts: its index, and the table that has no partition for it."""

    row: int
    table: Branch


class Router:
    """Routes rows of a table (plain or partitioned) to the leaves below it. `leaves[i]` is the leaf that `route` numbers i."""

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self.leaves: tuple[Relation, ...] = tuple(branch.leaves())
        self._first = {}
        for number, leaf in enumerate(self.leaves):
            self._first[leaf.oid] = number

    def key_names(self) -> list[str]:
        """Return the names of the partition key columns of all levels."""
        return list(dict.fromkeys(column.name for member in self.branch.walk() if member.relation.is_partitioned for column in member.key))

    def route(self, rows: Mapping[str, pa.Array], count: int) -> tuple[Places, Homeless | None]:
        """Return the number of each row's leaf, and the first row without one (NOWHERE). `rows`: the columns by name, in storage types."""
        numbers = np.full(count, NOWHERE, np.int32)
        homeless: list[Homeless] = []
        self._descend(self.branch, rows, np.arange(count), numbers, homeless)
        return numbers, min(homeless, key=lambda row: row.row) if homeless else None

    def _descend(self, branch: Branch, rows: Mapping[str, pa.Array], indexes: Numbers, numbers: Places, homeless: list[Homeless]) -> None:
        if not branch.relation.is_partitioned:
            numbers[indexes] = self._first[branch.relation.oid]
            return
        chosen = children_of(branch, {column.name: rows[column.name] for column in branch.key}, len(indexes))
        if (nowhere := chosen == NOWHERE).any():
            homeless.append(Homeless(int(indexes[np.argmax(nowhere)]), branch))
        for number, child in enumerate(branch.children):
            matching = np.flatnonzero(chosen == number)
            if not len(matching):
                continue
            part = (
                rows
                if len(matching) == len(indexes) or not child.relation.is_partitioned
                else {name: values.take(pa.array(matching)) for name, values in rows.items()}
            )
            self._descend(child, part, indexes[matching], numbers, homeless)

    def refused(self, homeless: Homeless, rows: Mapping[str, pa.Array]) -> PostgresError:
        """Return 23514 for a row that has no partition."""
        return no_partition(homeless.table, {name: values.slice(homeless.row, 1) for name, values in rows.items()})


def no_partition(table: Branch, row: Mapping[str, pa.Array]) -> PostgresError:
    """Return the error `no partition of relation "t" found for row`. `row` has one row."""
    names = ", ".join(column.name for column in table.key)
    values = [write_text(row[column.name], column.type_oid)[0].as_py() for column in table.key]
    shown = ", ".join("null" if value is None else cut(value) for value in values)
    relation = table.relation
    return PostgresError(
        "23514", f'no partition of relation "{relation.name}" found for row',
        detail=f"Partition key of the failing row contains ({names}) = ({shown}).", schema=relation.schema, table=relation.name,
    )  # fmt: skip


def cut(value: str) -> str:
    """Return a value as DETAIL shows it: at most 64 bytes."""
    raw = value.encode()
    return value if len(raw) <= 64 else raw[:64].decode(errors="ignore") + "..."


def children_of(branch: Branch, key: Mapping[str, pa.Array], count: int) -> Places:
    """Return for each row the number of the child that accepts it, or NOWHERE. `key`: the columns of the partition key."""
    if not branch.children:
        return np.full(count, NOWHERE, np.int32)
    columns = [key[column.name] for column in branch.key]
    bounds = [(number, child.bound) for number, child in enumerate(branch.children) if child.bound is not None and not child.bound.default]
    match branch.strategy:
        case Strategy.LIST:
            numbers = _by_list(branch.key[0], columns[0], bounds)
        case Strategy.RANGE:
            numbers = _by_range(branch.key, columns, bounds)
        case Strategy.HASH:
            numbers = _by_hash(branch.key, columns, bounds)
    default = next((number for number, child in enumerate(branch.children) if child.bound is not None and child.bound.default), None)
    if default is not None:
        numbers[numbers == NOWHERE] = default
    return numbers


def _by_list(column: Column, values: pa.Array, bounds: Sequence[tuple[int, Bound]]) -> Places:
    texts = [value for _, bound in bounds for value in bound.values if value is not None]
    owners = np.array([number for number, bound in bounds for value in bound.values if value is not None] or [NOWHERE], np.int32)
    null = next((number for number, bound in bounds if None in bound.values), NOWHERE)
    listed, encoded = comparable([texts_of(texts, column), values], column.type_oid, column.typmod)
    positions = pc.index_in(encoded, value_set=listed, skip_nulls=True)
    owner_indexes = np.asarray(pc.fill_null(positions, -1))
    numbers: Places = np.where(owner_indexes >= 0, owners[np.maximum(owner_indexes, 0)], NOWHERE).astype(np.int32)
    numbers[np.asarray(values.is_null())] = null
    return numbers


def texts_of(texts: Sequence[str | None], column: Column) -> pa.Array:
    """Return values of bounds in the storage type of a column."""
    return read_text(pa.array(texts, pa.string()), column.type_oid, column.typmod)


def _by_range(columns: Sequence[Column], values: Sequence[pa.Array], bounds: Sequence[tuple[int, Bound]]) -> Places:
    count = len(values[0])
    lower, upper = [bound.lower for _, bound in bounds], [bound.upper for _, bound in bounds]
    codes = order_codes(columns, [*lower, *upper], values)
    low, high, rows = codes[: len(bounds)], codes[len(bounds) : 2 * len(bounds)], codes[2 * len(bounds) :]
    null = np.zeros(count, np.bool_)
    for column_values in values:
        null |= np.asarray(column_values.is_null())
    if not bounds:
        return np.full(count, NOWHERE, np.int32)
    order = np.argsort(low, kind="stable")
    place = np.searchsorted(low[order], rows, side="right") - 1
    chosen = order[np.maximum(place, 0)]
    inside = (place >= 0) & (rows < high[chosen]) & ~null
    numbers = np.array([number for number, _ in bounds], np.int32)
    return np.where(inside, numbers[chosen], NOWHERE).astype(np.int32)


def order_codes(columns: Sequence[Column], ends: Sequence[Sequence[Edge]], values: Sequence[pa.Array]) -> Numbers:
    """Return numbers that order range bounds and rows together: first those of `ends`, then those of the rows.

    MINVALUE sorts before and MAXVALUE after every value. Rows with NULL have arbitrary numbers.
    """
    codes: Numbers = np.zeros(len(ends) + (len(values[0]) if values else 0), np.int64)
    for place, column in enumerate(columns):
        finite = texts_of([end[place].value for end in ends if not end[place].infinite], column)
        encoded = comparable([finite, values[place]] if values else [finite], column.type_oid, column.typmod)
        ranks = np.asarray(pc.rank(pa.chunked_array(encoded), tiebreaker="dense").to_numpy(), np.int64)
        most = int(ranks.max(initial=0)) + 1
        infinite = np.array([end[place].infinite for end in ends], np.int64)
        of_ends = np.where(infinite < 0, 0, most)
        of_ends[infinite == 0] = ranks[: len(finite)]
        ranks = np.concatenate([of_ends, ranks[len(finite) :]])
        codes = np.unique(codes, return_inverse=True)[1] * (most + 1) + ranks
    return codes


def _by_hash(columns: Sequence[Column], values: Sequence[pa.Array], bounds: Sequence[tuple[int, Bound]]) -> Places:
    hashes = partition_hash([(column_values, column.type_oid) for column_values, column in zip(values, columns, strict=True)])
    numbers = np.full(len(hashes), NOWHERE, np.int32)
    greatest = max((bound.modulus for _, bound in bounds), default=1)
    if greatest <= _TABLE_SIZE:
        table = np.full(greatest, NOWHERE, np.int32)
        for number, bound in bounds:
            table[bound.remainder :: bound.modulus] = number
        return table[(hashes % np.uint64(greatest)).astype(np.int64)]
    for number, bound in bounds:
        numbers[hashes % np.uint64(bound.modulus) == np.uint64(bound.remainder)] = number
    return numbers


def outside_each(oid: int, above: Sequence[Branch], rows: Mapping[str, pa.Array], count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows outside a partition. `above`: the tables above it, nearest first. `rows` has their key columns."""
    is_outside = np.zeros(count, np.bool_)
    below = oid
    for table in above:
        chosen = children_of(table, {column.name: rows[column.name] for column in table.key}, count)
        number = next(index for index, child in enumerate(table.children) if child.relation.oid == below)
        is_outside |= chosen != number
        below = table.relation.oid
    return is_outside


def outside(oid: int, above: Sequence[Branch], rows: Mapping[str, pa.Array], count: int) -> int | None:
    """Return the index of the first row outside a partition, or None."""
    is_outside = outside_each(oid, above, rows, count)
    return int(np.argmax(is_outside)) if is_outside.any() else None
