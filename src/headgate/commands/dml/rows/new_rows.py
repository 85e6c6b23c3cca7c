"""Rows on their way into a table: defaults filled in, generated columns computed, constraints checked, then appended.

Called by INSERT and COPY FROM. Rows come either as an Arrow table (small: everything is done by the driver, but for CHECK and
generated columns) or as a Spark frame. Both have the table's columns by name, in stored types.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Column, Index, Relation
from headgate.changes import lookup as key_lookup
from headgate.commands import disclosure, stored_expression
from headgate.commands.constraint import referential_action, row_constraint, uniqueness
from headgate.commands.dml.rows import first_error, many_rows, next_value, routed_rows
from headgate.commands.dml.rows.next_value import Numbers
from headgate.commands.dml.rows.owed_references import OwedReferences
from headgate.commands.query.driver import values_list
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Violation
from headgate.commands.trigger.firing import firing_of
from headgate.errors import PostgresError
from headgate.expression.node import Const, Expression
from headgate.expression.spark import domain
from headgate.sql.names import quote_ident
from headgate.storage.partitioned import Fence
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.spark.persisted import persisted, places
from headgate.storage.write import SMALL_ROWS
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers, registry
from headgate.types.storage import arrow_type, spark_type
from headgate.types.text.text import write_text


@dataclass(frozen=True)
class Clash:
    """A new row whose key is taken: by a stored row, or by an earlier new row."""

    row: int
    index: Index


class NewRows:
    """Writes rows into one table within one statement. Rows of a partitioned table go to its leaves (`routed_rows`)."""

    def __init__(
        self, planner: Planner, relation: Relation, *, violations: Sequence[Violation], routed_from: Relation | None = None,
        fires: bool = True,
    ) -> None:  # fmt: skip
        """`violations`: the rows that row security rejects, by the policies of the table that the statement names; none if it is exempt.

        `routed_from`: the table to which the statement writes, whose leaf this is: messages show rows in its columns. `fires`: whether
        the triggers of the rows fire here.
        """
        self.planner = planner
        self.transaction = planner.transaction
        self.relation = relation
        self.shown = routed_from or relation
        self.violations = violations
        self.fence = Fence(self.transaction.cursor, relation) if relation.parent and routed_from is None else None
        self.owed = OwedReferences(planner, relation)
        self.firing = firing_of(planner.session, relation) if fires else None
        self._later = False
        self._kept = ExitStack()

    def close(self) -> None:
        """The statement has written its rows, or has failed: Spark keeps none of them any longer."""
        self._kept.close()

    # ---- defaults --------------------------------------------------------------------------------------------

    def default(self, column: Column, rows: int) -> pa.Array:
        """`rows` default values of a column."""
        kind = arrow_type(column.type_oid, column.typmod)
        numbers = self._numbers(column, rows)
        if numbers is not None:
            return numbers.array(rows).cast(kind)
        text = default_of(column)
        if text is None or column.generated is not None:
            return pa.nulls(rows, kind)
        bound = stored_expression.stored(text, self.relation, column)
        if next_value.called(bound):
            return self._numbered(bound, rows).cast(kind)
        if not isinstance(bound, Const):
            prepared = self.planner.prepare(bound)
            if stored_expression.immutable(prepared) or not _volatile(text):
                [value] = values_list.evaluate(self.planner, [prepared])
                return value.cast(kind).take(pa.array(np.zeros(rows, np.int64)))
            return values_list.column_of(self.planner, column, [prepared] * rows)
        return values_list.column_of(self.planner, column, [bound] * rows)

    def _numbers(self, column: Column, rows: int) -> Numbers | None:
        """What nextval gives the rows where it is all that the column's default is; None otherwise."""
        session, name = self.planner.session, next_value.alone(column.default)
        if column.identity:
            owned = sequences.of_column(self.transaction.cursor, self.relation.database, self.relation.oid, column.attnum)
            assert owned is not None
            return next_value.of_sequence(owned, session, self.transaction, rows)
        return None if name is None else next_value.of_name(name, session, self.transaction, rows)

    def _numbered(self, default: Expression, rows: int) -> pa.Array:
        """The values of a default that calls nextval, a number of its own for each row."""
        expression, made = next_value.taken(default, self.planner.session, self.transaction, rows)
        table = pa.table([each.array(rows) for each in made], names=[each.key for each in made])
        frame = local_frame(self.planner.session_spark, table, StructType([StructField(each.key, LongType()) for each in made]))
        return buffers.whole(frame.select(self.planner.column(expression).alias("value")).toArrow().column(0))

    def completed(self, rows: pa.Table) -> pa.Table:
        """Rows with the columns that they lack at their defaults, in the table's order."""
        given = set(rows.column_names)
        arrays = [rows.column(each.name) if each.name in given else self.default(each, rows.num_rows) for each in self.relation.columns]
        return pa.table(arrays, names=[each.name for each in self.relation.columns]) if arrays else rows

    def completed_frame(self, rows: DataFrame) -> DataFrame:
        """The same for a frame; where a column takes numbers of a sequence, Spark keeps the rows that were counted until `close`."""
        given = set(rows.columns)
        selected: list[SparkColumn] = []
        numbered: list[SparkColumn] = []
        placed: tuple[SparkColumn, int] | None = None
        for each in self.relation.columns:
            kind = spark_type(each.type_oid, each.typmod)
            if each.name in given:
                selected.append(F.col(quoted(each.name)))
                continue
            bound = None if each.generated is not None else bound_default(self.relation, each)
            if each.identity or (bound is not None and next_value.called(bound)):
                placed = placed or places(self._kept.enter_context(persisted(rows)))
                value, made = self.numbered_column(each, bound, *placed, len(numbered))
                numbered += made
                selected.append(value.cast(kind).alias(each.name))
            elif bound is not None:
                selected.append(self.planner.column(bound).alias(each.name))
            else:
                selected.append(F.lit(None).cast(kind).alias(each.name))
        return rows.select("*", *numbered).select(*selected)

    def numbered_column(
        self, column: Column, default: Expression | None, place: SparkColumn, rows: int, others: int
    ) -> tuple[SparkColumn, list[SparkColumn]]:
        """The value of a column with numbers, and the columns of the numbers that it is made of; `others` there are already."""
        numbers = self._numbers(column, rows)
        if numbers is not None:
            return numbers.column(place), []
        assert default is not None
        expression, made = next_value.taken(default, self.planner.session, self.transaction, rows, first=others)
        return self.planner.column(expression), [each.column(place).alias(each.key) for each in made]

    def of_leaf(self, leaf: Relation, *, fires: bool = False) -> NewRows:
        """Return what writes the statement's rows into a leaf of the table; triggers fire in the order of all rows (`routed_rows`)."""
        return NewRows(self.planner, leaf, violations=self.violations, routed_from=self.relation, fires=fires)

    # ---- checks ----------------------------------------------------------------------------------------------

    @property
    def needs_spark(self) -> bool:
        """Whether rows must pass through Spark: for policies, CHECK constraints, domains and generated columns."""
        return bool(self.violations or self.relation.checks) or any(
            each.generated is not None or domain.constrained(each.type_oid) for each in self.relation.columns
        )

    def checked(self, rows: pa.Table) -> pa.Table:
        """Rows with generated columns; 42501, 23502 and 23514."""
        if self.needs_spark and rows.num_rows:
            schema = spark_columns(self.relation) if self.relation.columns else None
            rows = self._checked_frame(local_frame(self.planner.session_spark, rows, schema), None).toArrow()
        for each in self.relation.columns:
            if each.not_null and rows.column(each.name).null_count:
                self._refuse_null(rows, each)
        self.refuse_outside(rows)
        return rows

    def checked_frame(self, rows: DataFrame) -> DataFrame:
        """The same for a frame; the errors come when it is computed."""
        return self._checked_frame(rows, self.fence)

    def _checked_frame(self, rows: DataFrame, fence: Fence | None) -> DataFrame:
        generated = row_constraint.with_generated(self.planner.evaluation, self.relation, rows)
        told = disclosure.of_row(self.planner, self.shown)
        last = row_constraint.outside(self.planner.evaluation, self.relation, fence, told)
        return row_constraint.checked(self.planner.evaluation, self.relation, generated, shown=told, first=self.violations, last=last)

    def refuse_outside(self, rows: pa.Table) -> None:
        """23514 for the first row that does not belong into the partition that the statement names."""
        row = None if self.fence is None else self.fence.first_outside(rows)
        if row is not None:
            relation = self.relation
            raise PostgresError(
                "23514", f'new row for relation "{relation.name}" violates partition constraint',
                detail=self._row_detail(rows, row), schema=relation.schema, table=relation.name,
            )  # fmt: skip

    def _refuse_null(self, rows: pa.Table, column: Column) -> None:
        firsts = []
        for place, each in enumerate(self.relation.columns):
            if each.not_null and rows.column(each.name).null_count:
                firsts.append((int(pc.index(rows.column(each.name).is_null(), True).as_py()), place, each))
        row, _, column = min(firsts, key=lambda found: found[:2])
        relation = self.relation
        raise PostgresError(
            "23502", f'null value in column "{column.name}" of relation "{relation.name}" violates not-null constraint',
            detail=self._row_detail(rows, row), schema=relation.schema, table=relation.name, column=column.name,
        )  # fmt: skip

    def _row_detail(self, rows: pa.Table, row: int) -> str | None:
        """A row as "Failing row contains" shows it."""
        shown, told = [], disclosure.of_row(self.planner, self.shown)
        for each in told.columns:
            value = rows.column(each.name).slice(row, 1).combine_chunks()
            array = value.chunk(0) if isinstance(value, pa.ChunkedArray) else value
            text = write_text(array, each.type_oid, each.typmod, session=self.planner.evaluation.context.forms)[0].as_py()
            if text is not None and len(text.encode()) > row_constraint.ROW_TEXT:
                text = text.encode()[: row_constraint.ROW_TEXT].decode(errors="ignore") + "..."
            shown.append("null" if text is None else text)
        return told.detail(shown)

    # ---- keys ------------------------------------------------------------------------------------------------

    def clashes(self, rows: pa.Table, indexes: Sequence[Index]) -> list[Clash]:
        """The new rows whose key is taken, by row and then by index."""
        found: list[Clash] = []
        for index in indexes:
            stored = self.stored_keys(rows, index)
            taken = {int(each) for each in stored["place"].to_pylist()}
            taken |= set(self.repeated(rows, index))
            found += [Clash(row, index) for row in taken]
        return sorted(found, key=lambda each: (each.row, indexes.index(each.index)))

    def keys(self, rows: pa.Table, index: Index) -> tuple[key_lookup.RowKey, pa.Table]:
        """The key's columns of the rows that have no NULL in it: k0, k1, … and `place`, the row."""
        key = key_lookup.key_of(self.relation, index.attnums)
        arrays = [
            key_lookup.canonical_array(buffers.whole(rows.column(name)), kind) for name, kind in zip(key.names, key.kinds, strict=True)
        ]
        table = pa.table([*arrays, pa.array(np.arange(rows.num_rows))], names=[f"k{place}" for place in range(len(arrays))] + ["place"])
        valid = None
        for place in range(len(arrays)):
            here = table.column(place).is_valid()
            valid = here if valid is None else pc.and_(valid, here)
        return key, table if valid is None else table.filter(valid)

    def repeated(self, rows: pa.Table, index: Index) -> list[int]:
        """The rows whose key an earlier new row has."""
        _, keys = self.keys(rows, index)
        names = [name for name in keys.column_names if name != "place"]
        grouped = keys.group_by(names, use_threads=False).aggregate([("place", "min"), ("place", "count")])
        if not grouped.num_rows or pc.max(grouped["place_count"]).as_py() < 2:
            return []
        firsts = set(grouped["place_min"].to_pylist())
        return [place for place in keys["place"].to_pylist() if place not in firsts]

    def stored_keys(self, rows: pa.Table, index: Index) -> pa.Table:
        """The stored rows that have the key of a new one: `place` (the new row), `old` struct, `file`, `row`."""
        wanted, firsts = self._distinct(rows, index)
        found = key_lookup.find(self.transaction, self.relation, key_lookup.key_of(self.relation, index.attnums), wanted)
        return found.append_column("place", firsts.take(found["i"]))

    def _distinct(self, rows: pa.Table, index: Index) -> tuple[pa.Table, pa.Array]:
        """The keys of the rows, each once, and the first row of each."""
        _, keys = self.keys(rows, index)
        names = [name for name in keys.column_names if name != "place"]
        first = keys.group_by(names, use_threads=False).aggregate([("place", "min")])
        return first.select(names), first["place_min"].combine_chunks()

    def refuse_clash(self, rows: pa.Table, without: Sequence[Index] = ()) -> None:
        """23505 for the first row whose key is taken."""
        indexes = [each for each in uniqueness.judged(self.planner.session, self.relation) if each not in without]
        found = self.clashes(rows, [each for each in indexes if each.plain])
        if found:
            raise self.violated(rows, found[0])
        special = [each for each in indexes if not each.plain]
        if special:
            frame = local_frame(self.planner.session_spark, rows, spark_columns(self.relation))
            uniqueness.check_new(self.planner.session, self.transaction, self.relation, frame, indexes=special)

    def violated(self, rows: pa.Table, clash: Clash) -> PostgresError:
        """23505 with the key in its DETAIL."""
        if not disclosure.tells_key(self.planner.session, self.transaction.cursor, self.relation, clash.index.attnums):
            return uniqueness.violated(self.relation, clash.index)
        names, values = [], []
        for attnum in clash.index.attnums:
            column = self.relation.numbered(attnum)
            assert column is not None
            names.append(quote_ident(column.name))
            array = buffers.whole(rows.column(column.name).slice(clash.row, 1))
            values.append(str(write_text(array, column.type_oid, column.typmod, session=self.planner.evaluation.context.forms)[0].as_py()))
        return uniqueness.violated(self.relation, clash.index, f"({', '.join(names)})=({', '.join(values)})")

    # ---- writing ---------------------------------------------------------------------------------------------

    def append(self, rows: pa.Table) -> pa.Table:
        """Checks rows and adds them; gives them as they were stored."""
        if self.relation.is_partitioned:
            return routed_rows.append(self, self.arriving(rows))
        return self.store(first_error.checked(self.arriving(rows), self.accepted))

    def arriving(self, rows: pa.Table) -> pa.Table:
        """Rows as BEFORE INSERT triggers make them."""
        return rows if self.firing is None else self.firing.before_insert(rows)[0]

    def accepted(self, rows: pa.Table) -> pa.Table:
        """Rows with generated columns, after every check that stands before their storing; changes nothing."""
        return self.admitted(self.checked(rows))

    def admitted(self, rows: pa.Table, without: Sequence[Index] = ()) -> pa.Table:
        """Rows that are `checked`, after what other rows say of them.

        `without`: indexes in which nobody has their keys; the table's lock is held.
        """
        if rows.num_rows:
            self._later = self._may_wait(rows)
            if not self._later:
                referential_action.lock(self.transaction, self.relation)
                self.transaction.lock(self.relation)
            with self.transaction.looking_up():
                self.refuse_clash(rows, without)
        return rows

    def _may_wait(self, rows: pa.Table) -> bool:
        """Whether the rows may be added without the table's lock, so that others add theirs meanwhile: their keys are claimed then."""
        relation, indexes = self.relation, self.relation.unique_indexes
        if relation.foreign_keys or relation.persistence == "t" or not relation.columns or rows.num_rows > SMALL_ROWS:
            return False
        if not all(each.plain and each.immediate for each in indexes):
            return False
        return self.transaction.claim(relation, {each.oid: self._members(rows, each) for each in indexes})

    def _members(self, rows: pa.Table, index: Index) -> frozenset[Hashable]:
        return key_lookup.members(self.keys(rows, index)[1].drop_columns("place"))

    def store(self, rows: pa.Table) -> pa.Table:
        """Adds rows that are `accepted`."""
        if rows.num_rows:
            if self._later:
                self.transaction.add_later(self.relation, rows, self.refuse_clash)
            else:
                self.transaction.append(self.relation, rows)
            self.owed.add(rows)
            self.put_off(rows)
            self.fire_after(rows)
        return rows

    def fire_after(self, rows: pa.Table) -> None:
        """The AFTER INSERT triggers of rows that are stored fire at the end of the statement."""
        if self.firing is not None and rows.num_rows:
            self.planner.fires_later += self.firing.after(triggers.INSERT, None, rows)

    def put_off(self, rows: pa.Table) -> None:
        """Rows are written whose deferred keys are checked at the end."""
        uniqueness.put_off(self.planner.session, self.transaction, self.relation, lambda index: self._distinct(rows, index)[0])

    def check_references(self) -> None:
        """23503 unless what the rows written so far name is there; called when the statement has written all its rows."""
        self.owed.check()

    def append_frame(self, rows: DataFrame) -> int:
        """Checks the rows of a frame and adds them; the number of rows."""
        if self.firing is not None and self.firing.has_rows(triggers.INSERT):
            with closing(many_rows.chunks(rows, self.relation, self.planner.session, self.transaction)) as chunks:
                return sum(self.append(chunk).num_rows for chunk in chunks)
        if self.relation.is_partitioned:
            return routed_rows.append_frame(self, rows)
        if self.relation.unique_indexes or self.relation.foreign_keys:
            with ExitStack() as done:
                return self.append_kept(rows, done)[0]
        return self.transaction.append(self.relation, self.checked_frame(rows))

    def append_kept(self, rows: DataFrame, kept: ExitStack) -> tuple[int, DataFrame]:
        """The same of a table that is not partitioned; with them the rows as they were stored, which Spark keeps until `kept` is closed."""
        checked = self.checked_frame(rows)
        referential_action.lock(self.transaction, self.relation)
        self.transaction.lock(self.relation)
        held = kept.enter_context(persisted(checked))
        indexes = uniqueness.judged(self.planner.session, self.relation)
        uniqueness.check_new(self.planner.session, self.transaction, self.relation, held, indexes=indexes)
        count = self.transaction.append(self.relation, held)
        uniqueness.put_off(self.planner.session, self.transaction, self.relation)
        referential_action.inserted(self.planner.session, self.transaction, self.relation, held)
        return count, held


def default_of(column: Column) -> str | None:
    """The text of a column's default: its own, or that of the domain that is its type."""
    known = registry.known().find(column.type_oid) if column.default is None else None
    return column.default if known is None else known.default


def bound_default(relation: Relation, column: Column) -> Expression | None:
    """The default as an expression; an identity column has none."""
    text = default_of(column)
    return None if text is None else stored_expression.stored(text, relation, column)


def _volatile(text: str) -> bool:
    """Whether a default gives another value for each row of a statement."""
    return any(name in text for name in ("random()", "gen_random_uuid()", "clock_timestamp()", "uuid_generate", "nextval("))
