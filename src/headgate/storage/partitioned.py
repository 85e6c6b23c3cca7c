"""Which leaf of a partitioned table each row belongs to, column by column, and the bounds of a partition.

A table with the tables that inherit from it has leaves too: the table itself and these. Rows have the columns of the partitioned table;
leaves may have them in another order. Nothing here reads a table: `transaction.partitioned_table` does. Spark's tasks and the driver use
the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import partition
from headgate.catalog.relation.partition import Branch
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.storage.routing import NOWHERE, Router, outside, outside_each
from headgate.storage.row_set import Rows
from headgate.storage.spark import failure
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.internals import arrow_function
from headgate.storage.write import arrow_row
from headgate.types import buffers
from headgate.types.storage import arrow_type, own_name

Places = npt.NDArray[np.int32]
FROM, TO = own_name("_from"), own_name("_to")
"""Columns of changed frames that are split: the numbers of the leaf that holds a row, and of the leaf that it goes to."""

CHANGED = ["old", "new", "file", "row"]
"""The columns of changed rows (`Transaction.rewrite`)."""


@dataclass(frozen=True)
class Part:
    """The rows for one leaf, by the number of the leaf. `at`: the numbers of an Arrow table's rows among all rows that were split."""

    number: int
    rows: Rows
    at: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Flows:
    """Changed rows, split by leaf: the changes to each leaf's rows, the rows that are new in each leaf, and the number of all changes.

    `moved` are the changes (`old`, `new` in the root's columns) of rows that move from one leaf to another, in a `Part` for each old leaf.
    """

    changes: list[Part]
    arriving: list[Part]
    count: int
    moved: tuple[Part, ...] = ()


class LeafPlaces:
    """Routing of a partitioned table's rows to leaves. It can be pickled. `leaves` are numbered by `router`."""

    def __init__(self, branch: Branch, folder: Callable[[Relation], str]) -> None:
        """Load the bounds. `folder` returns the folder of a leaf as it appears in Spark's URIs."""
        self.router = Router(branch)
        self.leaves = self.router.leaves
        self.numbers = {leaf.oid: number for number, leaf in enumerate(self.leaves)}
        self.folders = {folder(leaf): number for number, leaf in enumerate(self.leaves)}

    def places(self, rows: pa.Table) -> Places:
        """Return the leaf number of each row. Raise 23514 if a row belongs to no leaf."""
        key_columns = {name: buffers.whole(rows[name]) for name in self.router.key_names()}
        numbers, homeless = self.router.route(key_columns, rows.num_rows)
        if homeless is not None:
            raise self.router.refused(homeless, key_columns)
        return numbers

    def sources(self, files: pa.ChunkedArray | pa.Array) -> Places:
        """Return the number of the leaf that holds each row, from the URI of its file; NOWHERE for NULL (a new row)."""
        encoded = buffers.whole(files).dictionary_encode()
        numbers = [self._number_of(uri) for uri in encoded.dictionary.to_pylist()]
        table = np.array([*numbers, NOWHERE], np.int32)
        places: Places = table[np.asarray(pc.fill_null(encoded.indices.cast(pa.int64()), len(numbers)))]
        return places

    def _number_of(self, uri: str) -> int:
        """Return the number of the leaf that has a file, in its folder or in one below it (column mapping)."""
        folder = uri
        while folder not in self.folders:
            folder, slash, _ = folder.rpartition("/")
            if not slash:
                raise PostgresError("XX000", f'no partition has file "{uri}"')
        return self.folders[folder]

    def flows_of_few(self, changed: pa.Table, *, moves: bool = True) -> Flows:
        """Split changed rows (see `PartitionedTable.flows`)."""
        new, sources = buffers.whole(changed["new"]), self.sources(changed["file"])
        alive = np.flatnonzero(np.asarray(new.is_valid()))
        targets = np.full(len(sources), NOWHERE, np.int32)
        if moves and len(alive):
            targets[alive] = self.places(rows_of(new.take(pa.array(alive))))
        else:
            targets[alive] = sources[alive]
        changes = []
        for leaf, indexes in self.parts(sources):
            number, part = self.numbers[leaf.oid], changed.select(CHANGED).take(indexes)
            stays = pa.array(targets[indexes.to_numpy()] == number)
            sides = {"old": buffers.whole(part["old"]), "new": pc.if_else(stays, buffers.whole(part["new"]), pa.scalar(None, new.type))}
            whole = pa.table(
                {**{side: ordered(leaf, structs) for side, structs in sides.items()}, "file": part["file"], "row": part["row"]}
            )
            changes.append(Part(number, whole, indexes.to_numpy()))
        arriving = [
            Part(self.numbers[leaf.oid], of_leaf(leaf, rows_of(new.take(indexes))), indexes.to_numpy())
            for leaf, indexes in self.parts(np.where(targets == sources, NOWHERE, targets))
        ]
        leaving = np.where((targets == sources) | (targets == NOWHERE), NOWHERE, sources)
        moved = [Part(self.numbers[leaf.oid], changed.select(CHANGED).take(indexes)) for leaf, indexes in self.parts(leaving)]
        return Flows(changes, arriving, changed.num_rows, tuple(moved))

    def parts(self, places: Places) -> Iterator[tuple[Relation, pa.Array]]:
        """Yield each leaf that gets rows, with their indexes."""
        for number in np.unique(places):
            if number != NOWHERE:
                yield self.leaves[number], pa.array(np.flatnonzero(places == number))


class Fence:
    """The bounds of a partition: its own and those of the partitions above it. Empty for a table that is not a partition.

    For rows that are written to the partition itself, which no routing checks.
    """

    def __init__(self, cursor: Cursor, relation: Relation) -> None:
        self.relation = relation
        self.above = tuple(partition.above(cursor, relation))
        self.names = list(dict.fromkeys(column.name for table in self.above for column in table.key))

    def first_outside(self, rows: pa.Table) -> int | None:
        """Return the index of the first row outside the bounds, None if there is none."""
        if not self.above:
            return None
        return outside(self.relation.oid, self.above, {name: buffers.whole(rows[name]) for name in self.names}, rows.num_rows)

    def column(self) -> Column:
        """Return a boolean column: whether a row lies outside the bounds."""
        below, above = self.relation.oid, self.above

        def judge(rows: dict[str, pa.Array], count: int) -> pa.Array:
            return pa.array(outside_each(below, above, rows, count))

        return computed_column(self.relation, self.names, judge, "boolean", "")

    def crossed(self, frame: DataFrame) -> bool:
        """Return whether any row of a frame lies outside the bounds."""
        return bool(self.above) and not frame.where(self.column()).limit(1).isEmpty()


def computed_column(
    relation: Relation, names: Sequence[str], function: Callable[[dict[str, pa.Array], int], pa.Array], kind: str, prefix: str
) -> Column:
    """Return a column that applies a function to other columns in their storage types, in Spark's tasks."""
    kinds = {column.name: arrow_type(column.type_oid, column.typmod) for column in relation.columns}

    def compute(*values: pa.Array) -> pa.Array:
        return function({name: value.cast(kinds[name]) for name, value in zip(names, values, strict=True)}, len(values[0]))

    return arrow_function.of_arrays(failure.marking(compute), kind)(*[F.col(prefix + quoted(name)) for name in names])


def of_leaf(leaf: Relation, rows: pa.Table) -> pa.Table:
    """Return rows with the leaf's columns in the leaf's order."""
    return rows.select([column.name for column in leaf.columns])


def of_root(root: Relation, rows: pa.Table) -> pa.Table:
    """Return a leaf's rows in the column order of a table above it."""
    return rows.select([column.name for column in root.columns]).cast(arrow_row(root))


def ordered(relation: Relation, structs: pa.StructArray) -> pa.StructArray:
    """Return structs of rows from a table above or below with the relation's columns, in its order."""
    row = arrow_row(relation)
    return pa.StructArray.from_arrays([structs.field(field.name) for field in row], fields=list(row), mask=structs.is_null())


def rows_of(structs: pa.StructArray) -> pa.Table:
    """Return the fields of a struct column, NULL where the struct is NULL."""
    return pa.table(structs.flatten(), names=[field.name for field in structs.type])
