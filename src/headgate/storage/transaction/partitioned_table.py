"""A partitioned table inside a transaction: its rows are those of its leaves, and each written row goes to the leaf it belongs to.

`TableReader` and `Transaction` delegate to it for a relation of kind 'p', so that code that reads and writes tables (queries, the apply
worker's merge) treats a partitioned table like any other. Rows have the columns of the partitioned table; leaves may have them in another
order.

A table with the tables that inherit from it is read in the same way: its leaves are the table itself and these. They may have more columns.
A new row belongs to the table itself, and a changed row stays in its table (`changes_of_leaves`).

A changed row that moves to another leaf is deleted from the old one and inserted into the new one, as PostgreSQL does. All rows that leave
are deleted before any row arrives, so that a subscriber can apply a batch in which two rows swap places row by row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headgate.catalog.relation import inheritance, partition
from headgate.catalog.relation.relation import Relation
from headgate.storage.delta.delta_table import FILE, PLACE, RESIDENT_ROWS, ROW
from headgate.storage.partitioned import CHANGED, FROM, TO, Flows, LeafPlaces, Part, computed_column, of_leaf, of_root
from headgate.storage.routing import NOWHERE
from headgate.storage.row_set import Rows
from headgate.storage.spark import failure
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.internals import arrow_schema
from headgate.storage.spark.local_relation import in_one_piece, local_frame
from headgate.storage.spark.persisted import persisted
from headgate.storage.write import arrow_row, columns
from headgate.types import buffers
from headgate.types.storage import arrow_type, own_name

if TYPE_CHECKING:
    from headgate.storage.transaction.table_reader import TableReader


class PartitionedTable(LeafPlaces):
    """A partitioned table as a transaction reads and writes it (see the module)."""

    def __init__(self, reader: TableReader, root: Relation) -> None:
        self._reader, self._spark = reader, reader.spark
        self.root = root
        cursor = reader.cursor
        self.branch = inheritance.tree(cursor, root) if root.with_children else partition.load(cursor, root.database, root.oid)
        super().__init__(self.branch, self._folder)

    @property
    def leaf_places(self) -> LeafPlaces:
        """Return a copy without the driver's objects, for Spark's tasks."""
        return LeafPlaces(self.branch, self._folder)

    def _folder(self, leaf: Relation) -> str:
        return self._reader.table(leaf).uri("").removesuffix("/")

    # ---- reading ---------------------------------------------------------------------------------------------------

    def frame(self, leaves: Sequence[Relation] | None = None, *, leaf: str | None = None) -> DataFrame:
        """Return the rows of all leaves or of the given ones. `leaf`: the name of an extra column with the oid of each row's leaf."""
        chosen = self.leaves if leaves is None else leaves
        tag = [] if leaf is None else [leaf]

        def held(of: Relation) -> pa.Table | None:
            rows = self._reader.held(of)
            return rows if rows is None or leaf is None else rows.append_column(leaf, pa.array(np.full(rows.num_rows, of.oid, np.int64)))

        def frame(of: Relation) -> DataFrame:
            return self._reader.frame(of).select("*", *[F.lit(of.oid).cast("bigint").alias(name) for name in tag])

        return self._union(chosen, held, frame, [StructField(name, LongType()) for name in tag])

    def positions(self, leaves: Sequence[Relation] | None = None, *, keeps_keys: bool = False) -> DataFrame:
        """Return the rows with their positions. Acquires the leaves' write locks (`TableReader.positions`)."""
        chosen = self.leaves if leaves is None else leaves
        held = functools.partial(self._reader.held_positions, keeps_keys=keeps_keys)
        placed = functools.partial(self._reader.positions, keeps_keys=keeps_keys)
        return self._union(chosen, held, placed, PLACE.fields)

    def _union(
        self, leaves: Sequence[Relation], held: Callable[[Relation], pa.Table | None] | None, frame: Callable[[Relation], DataFrame],
        more: Sequence[StructField],
    ) -> DataFrame:  # fmt: skip
        """Combine the rows of leaves, with the root's columns and `more`. The result is local if the tables are small together (`held`)."""
        spark, row = self._spark, StructType([*columns(self.root).fields, *more])
        local_rows = None if held is None else _together(leaves, held, row.fieldNames())
        if local_rows is not None or not leaves:
            return in_one_piece(spark, arrow_schema.of_row(row).empty_table() if local_rows is None else local_rows, row)
        names = [F.col(quoted(name)) for name in row.fieldNames()]
        return functools.reduce(DataFrame.unionAll, [frame(leaf).select(*names) for leaf in leaves])

    # ---- where rows belong -----------------------------------------------------------------------------------------

    def place_column(self, prefix: str = "") -> Column:
        """Return a column with the leaf number of each row, or NOWHERE. `prefix`: that of the struct that holds the row."""
        router = self.router
        return computed_column(self.root, router.key_names(), lambda rows, count: pa.array(router.route(rows, count)[0]), "int", prefix)

    def place_oid(self) -> Column:
        """Return a column with the oid of the leaf that each row of a frame belongs to."""
        oids = np.array([*(leaf.oid for leaf in self.leaves), 0], np.int64)
        router = self.router
        return computed_column(
            self.root, router.key_names(), lambda rows, count: pa.array(oids[router.route(rows, count)[0]]), "bigint", ""
        )

    def _refuse_homeless(self, frame: DataFrame, prefix: str = "") -> None:
        """Raise 23514 if a row of a frame has no leaf in the column TO. `prefix`: that of the struct that holds the row."""
        names = [F.col(prefix + quoted(name)).alias(name) for name in self.router.key_names()]
        homeless = frame.where(F.col(TO) == NOWHERE).select(*names).limit(1).toArrow()
        if homeless.num_rows:
            kinds = {column.name: arrow_type(column.type_oid, column.typmod) for column in self.root.columns}
            self.places(pa.table({name: homeless[name].cast(kinds[name]) for name in homeless.column_names}))

    def source_column(self) -> Column:
        """Return a column with the number of the leaf that holds each row, computed from the column `file`."""
        unknown = failure.raised(F.concat(F.lit(failure.marked("XX000", "no partition has file ")), F.col("file"))).cast("int")
        numbers = F.when(F.col("file").isNull(), NOWHERE)
        for folder, number in self.folders.items():
            numbers = numbers.when(F.col("file").startswith(f"{folder}/"), number)
        return numbers.otherwise(unknown)

    def leaf_column(self) -> Column:
        """Return a column with the oid of each row's leaf, for a frame with positions."""
        oids = F.when(F.col(FILE).isNull(), F.lit(None).cast("bigint"))
        for folder, number in self.folders.items():
            oids = oids.when(F.col(FILE).startswith(f"{folder}/"), F.lit(self.leaves[number].oid).cast("bigint"))
        return oids

    # ---- writing ---------------------------------------------------------------------------------------------------

    def split(self, rows: Rows, until: ExitStack) -> list[Part]:
        """Split new rows by leaf. A frame stays persisted `until` then. Raise 23514 if a row belongs to no leaf."""
        if isinstance(rows, pa.Table):
            parts = self.parts(self.places(rows))
            return [Part(self.numbers[leaf.oid], of_leaf(leaf, rows.take(at)), at.to_numpy()) for leaf, at in parts]
        held = until.enter_context(persisted(rows.withColumn(TO, self.place_column())))
        numbers = sorted(held.select(TO).distinct().toArrow()[TO].to_pylist())
        if NOWHERE in numbers:
            self._refuse_homeless(held)
        return [Part(number, held.where(F.col(TO) == number).select(*_columns(self.leaves[number]))) for number in numbers]

    def flows(self, changed: Rows, until: ExitStack, *, moves: bool = True) -> Flows:
        """Split changed rows (as for `Transaction.rewrite`) by leaf. A row that moves to another leaf is deleted from its own.

        A frame stays persisted `until` then. `moves`: False if every new row stays in the leaf of the old one. Raise 23514 if a new row
        belongs to no leaf.
        """
        if isinstance(changed, pa.Table):
            return self.flows_of_few(changed, moves=moves)
        held = until.enter_context(persisted(self._tag_leaves(changed, moves=moves)))
        flows = held.groupBy(FROM, TO).agg(F.count("*").alias("n")).toArrow().to_pylist()
        if any(flow[TO] == NOWHERE for flow in flows):
            self._refuse_homeless(held.where("new IS NOT NULL"), "new.")
        changes = [Part(number, self._leaving(held, number)) for number in sorted({flow[FROM] for flow in flows} - {NOWHERE})]
        moves_between = [(flow[FROM], flow[TO]) for flow in flows if flow[FROM] != flow[TO] and flow[TO] != NOWHERE]
        arriving = [Part(number, self._arriving(held, number)) for number in sorted({target for _, target in moves_between})]
        sources = sorted({source for source, _ in moves_between} - {NOWHERE})
        is_moved = (F.col(TO) != NOWHERE) & (F.col(FROM) != F.col(TO))
        moved = [Part(number, held.where((F.col(FROM) == number) & is_moved).select(*CHANGED)) for number in sources]
        return Flows(changes, arriving, sum(flow["n"] for flow in flows), tuple(moved))

    def changes_of_leaves(self, changed: Rows, until: ExitStack) -> list[tuple[Relation, Rows]]:
        """Split changed rows (as for `Transaction.rewrite`) by the leaf that has each row, with all columns of the leaf.

        The columns that only the leaf has are read from its stored row. They do not change, except that generated ones are NULL in `new`
        until they are computed. Frames stay persisted `until` then.
        """
        if isinstance(changed, pa.Table):
            parts = self.parts(self.sources(changed["file"]))
            return [(leaf, self._complete_few(leaf, changed.take(indexes))) for leaf, indexes in parts]
        held = until.enter_context(persisted(changed.withColumn(FROM, self.source_column())))
        numbers = sorted(held.select(FROM).distinct().toArrow()[FROM].to_pylist())
        return [(self.leaves[number], self._complete(self.leaves[number], held.where(F.col(FROM) == number))) for number in numbers]

    def _complete_few(self, leaf: Relation, changed: pa.Table) -> pa.Table:
        more = [column.name for column in leaf.columns if self.root.column(column.name) is None]
        stored = _beside(changed, self._stored(leaf, changed), more) if more else {}
        computed = {name: pa.nulls(changed.num_rows, stored[name].type) for name in more if name in _generated(leaf)}
        sides = {}
        for side, added in (("old", stored), ("new", stored | computed)):
            structs = buffers.whole(changed[side])
            values = [added[field.name] if field.name in added else structs.field(field.name) for field in arrow_row(leaf)]
            sides[side] = pa.StructArray.from_arrays(values, fields=list(arrow_row(leaf)), mask=structs.is_null())
        others = {name: changed[name] for name in changed.column_names if name not in sides}
        return pa.table({**sides, **others})

    def _stored(self, leaf: Relation, changed: pa.Table) -> pa.Table:
        """Return rows of a leaf with FILE and ROW, at least those that a few changes name."""
        held = self._reader.held_positions(leaf)
        if held is not None:
            return held
        places = local_frame(self._spark, changed.select(["file", "row"]).rename_columns([FILE, ROW]), PLACE)
        rows: pa.Table = self._reader.positions(leaf).join(F.broadcast(places), [FILE, ROW]).toArrow()
        return rows

    def _complete(self, leaf: Relation, changed: DataFrame) -> DataFrame:
        more = {column.name: own_name(f"_more{column.attnum}") for column in leaf.columns if self.root.column(column.name) is None}
        if more:
            added = [F.col(quoted(name)).alias(key) for name, key in more.items()]
            stored = self._reader.positions(leaf).select(FILE, ROW, *added)
            changed = changed.join(stored, (F.col("file") == F.col(FILE)) & (F.col("row") == F.col(ROW)))
        row, generated = columns(leaf), _generated(leaf)

        def side(name: str) -> Column:
            fields = [
                (F.lit(None) if name == "new" and field in generated and field in more
                 else F.col(more[field] if field in more else f"{name}.{quoted(field)}")).alias(field)
                for field in row.fieldNames()
            ]  # fmt: skip
            return F.when(F.col(name).isNotNull(), F.struct(*fields)).cast(row).alias(name)

        others = [F.col(name) for name in changed.columns if name not in ("old", "new", FROM, FILE, ROW, *more.values())]
        return changed.select(side("old"), side("new"), *others)

    def in_order(self, parts: Sequence[Part]) -> Rows:
        """Return the rows of leaves with the root's columns: those of Arrow tables in their order before they were split."""
        tables = [of_root(self.root, part.rows) for part in parts if isinstance(part.rows, pa.Table)]
        if parts and not tables:
            return functools.reduce(DataFrame.unionAll, [self._whole(part.rows) for part in parts])
        order = np.concatenate([np.empty(0, np.int64), *[part.at[: part.rows.num_rows] for part in parts if part.at is not None]])
        whole = pa.concat_tables([arrow_row(self.root).empty_table(), *tables])
        return whole.take(pa.array(np.argsort(order, kind="stable")))

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Return a leaf's rows with the root's columns, and any others after them."""
        others = [F.col(quoted(name)) for name in rows.columns if self.root.column(name) is None]
        return rows.select(*_columns(self.root), *others)

    def _tag_leaves(self, changed: DataFrame, *, moves: bool) -> DataFrame:
        """Add to a changed frame the leaf numbers that each row comes from and goes to (columns FROM and TO; NOWHERE: none)."""
        placed = changed.withColumn(FROM, self.source_column())
        target = self.place_column("new.") if moves else F.col(FROM)
        return placed.withColumn(TO, F.when(F.col("new").isNotNull(), target).otherwise(F.lit(NOWHERE)))

    def _leaving(self, tagged: DataFrame, number: int) -> DataFrame:
        """Return the changes to the rows of one leaf, with extra columns. Rows that move to another leaf are deleted."""
        row = columns(self.leaves[number])

        def side(name: str, when: Column) -> Column:
            return (
                F.when(when, F.struct(*[F.col(f"{name}.{quoted(field)}").alias(field) for field in row.fieldNames()])).cast(row).alias(name)
            )

        stays = (F.col(TO) == number) & F.col("new").isNotNull()
        return tagged.where(F.col(FROM) == number).select(
            side("old", F.col("old").isNotNull()), side("new", stays), "file", "row", *_other_columns(tagged)
        )

    def _arriving(self, tagged: DataFrame, number: int) -> DataFrame:
        """Return the rows that are new in one leaf or come from others, with extra columns."""
        names = [F.col(f"new.{quoted(column.name)}").alias(column.name) for column in self.leaves[number].columns]
        return tagged.where((F.col(TO) == number) & (F.col(FROM) != number)).select(*names, *_other_columns(tagged))


def _columns(relation: Relation) -> list[Column]:
    return [F.col(quoted(column.name)) for column in relation.columns]


def _other_columns(tagged: DataFrame) -> list[Column]:
    """Return the columns of tagged changes that do not describe the change itself."""
    return [F.col(name) for name in tagged.columns if name not in ("old", "new", "file", "row", FROM, TO)]


def _generated(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns if column.generated is not None}


def _beside(changed: pa.Table, stored: pa.Table, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return columns of stored rows (with FILE and ROW) in the order of their changes."""
    at = pa.table({"file": changed["file"], "row": changed["row"], "at": np.arange(changed.num_rows)})
    of = pa.table({"file": stored[FILE], "row": stored[ROW], "of": np.arange(stored.num_rows)})
    found = at.join(of, ["file", "row"]).sort_by("at")
    return {name: buffers.whole(stored[name].take(found["of"])) for name in names}


def _together(leaves: Sequence[Relation], held: Callable[[Relation], pa.Table | None], names: Sequence[str]) -> pa.Table | None:
    parts, count = [], 0
    for leaf in leaves:
        part = held(leaf)
        if part is None or (count := count + part.num_rows) > RESIDENT_ROWS:
            return None
        parts.append(part.select(names))
    return pa.concat_tables(parts) if parts else None
