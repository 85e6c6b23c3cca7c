"""Insert rows into a table: fill in defaults, compute generated columns, check constraints, append.

Called by INSERT and COPY FROM. Rows come either as an Arrow table (few rows: the driver does everything, except CHECK and generated
columns) or as a Spark frame. Both have the table's columns by name, in stored types.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import ExitStack, closing

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
from headgate.commands.constraint import referential_action, row_constraint, row_key, uniqueness
from headgate.commands.constraint.reference_key import Rows
from headgate.commands.dml.rows import first_error, many_rows, next_value, routed_rows
from headgate.commands.dml.rows.next_value import Numbers
from headgate.commands.dml.rows.owed_references import OwedReferences
from headgate.commands.query.driver import values_list
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Violation
from headgate.commands.trigger.firing import of_statement
from headgate.errors import PostgresError
from headgate.expression.node import Const, Expression
from headgate.expression.spark import domain
from headgate.storage.partitioned import Fence
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.spark.persisted import persisted, places
from headgate.storage.write import SMALL_ROWS
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers, registry
from headgate.types.storage import arrow_type, spark_type
from headgate.types.text.text import write_text


class NewRows:
    """Writes rows into one table within one statement. Rows of a partitioned table go to its leaves (`routed_rows`)."""

    def __init__(
        self, planner: Planner, relation: Relation, *, violations: Sequence[Violation], routed_from: Relation | None = None,
        fires: bool = True,
    ) -> None:  # fmt: skip
        """Prepare to write rows of a statement.

        `violations` are conditions for rows that row security rejects, by the policies of the table that the statement names. It is empty
        if the statement is exempt. `routed_from` is the table to which the statement writes if this is one of its leaves. Messages show
        rows in its columns. `fires` says whether row triggers fire here.
        """
        self.planner = planner
        self.transaction = planner.transaction
        self.relation = relation
        self.shown = routed_from or relation
        self.violations = violations
        self.fence = Fence(self.transaction.cursor, relation) if relation.parent and routed_from is None else None
        self.owed = OwedReferences(planner, relation)
        self.firing = of_statement(planner, relation) if fires else None
        self._later = False
        self._kept = ExitStack()

    def close(self) -> None:
        """Release the rows that Spark has persisted, after the statement has written its rows or has failed."""
        self._kept.close()

    # ---- defaults --------------------------------------------------------------------------------------------

    def default(self, column: Column, rows: int) -> pa.Array:
        """Return `rows` default values of a column."""
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
        """Return the sequence numbers for the rows if the column's default is only a call of nextval, otherwise None."""
        session, name = self.planner.session, next_value.alone(column.default)
        if column.identity:
            owned = sequences.of_column(self.transaction.cursor, self.relation.database, self.relation.oid, column.attnum)
            assert owned is not None
            return next_value.of_sequence(owned, session, self.transaction, rows)
        return None if name is None else next_value.of_name(name, session, self.transaction, rows)

    def _numbered(self, default: Expression, rows: int) -> pa.Array:
        """Return the values of a default that calls nextval, with a separate number for each row."""
        expression, numbers = next_value.taken(default, self.planner.session, self.transaction, rows)
        table = pa.table(
            [column_numbers.array(rows) for column_numbers in numbers], names=[column_numbers.key for column_numbers in numbers]
        )
        frame = local_frame(
            self.planner.session_spark, table, StructType([StructField(column_numbers.key, LongType()) for column_numbers in numbers])
        )
        return buffers.whole(frame.select(self.planner.column(expression).alias("value")).toArrow().column(0))

    def completed(self, rows: pa.Table) -> pa.Table:
        """Return the rows with missing columns set to their defaults, in the table's order of columns."""
        present = set(rows.column_names)
        arrays = [
            rows.column(column.name) if column.name in present else self.default(column, rows.num_rows) for column in self.relation.columns
        ]
        return pa.table(arrays, names=[column.name for column in self.relation.columns]) if arrays else rows

    def completed_frame(self, rows: DataFrame) -> DataFrame:
        """Do the same for a frame. If a column uses sequence numbers, Spark persists the counted rows until `close`."""
        present = set(rows.columns)
        selected: list[SparkColumn] = []
        numbered: list[SparkColumn] = []
        placed: tuple[SparkColumn, int] | None = None
        for column in self.relation.columns:
            kind = spark_type(column.type_oid, column.typmod)
            if column.name in present:
                selected.append(F.col(quoted(column.name)))
                continue
            bound = None if column.generated is not None else bound_default(self.relation, column)
            if column.identity or (bound is not None and next_value.called(bound)):
                placed = placed or places(self._kept.enter_context(persisted(rows)))
                value, number_columns = self.numbered_column(column, bound, *placed, len(numbered))
                numbered += number_columns
                selected.append(value.cast(kind).alias(column.name))
            elif bound is not None:
                selected.append(self.planner.column(bound).alias(column.name))
            else:
                selected.append(F.lit(None).cast(kind).alias(column.name))
        return rows.select("*", *numbered).select(*selected)

    def numbered_column(
        self, column: Column, default: Expression | None, place: SparkColumn, rows: int, others: int
    ) -> tuple[SparkColumn, list[SparkColumn]]:
        """Return the value of a column with sequence numbers, and the number columns that it uses. `others` such columns exist already."""
        numbers = self._numbers(column, rows)
        if numbers is not None:
            return numbers.column(place), []
        assert default is not None
        expression, number_columns = next_value.taken(default, self.planner.session, self.transaction, rows, first=others)
        return self.planner.column(expression), [number_column.column(place).alias(number_column.key) for number_column in number_columns]

    def of_leaf(self, leaf: Relation, *, fires: bool = False) -> NewRows:
        """Return the writer of the statement's rows for a leaf of the table. Triggers fire in the order of all rows (`routed_rows`)."""
        return NewRows(self.planner, leaf, violations=self.violations, routed_from=self.relation, fires=fires)

    # ---- checks ----------------------------------------------------------------------------------------------

    @property
    def needs_spark(self) -> bool:
        """Whether rows must be processed by Spark: for policies, CHECK constraints, domains and generated columns."""
        return bool(self.violations or self.relation.checks) or any(
            column.generated is not None or domain.constrained(column.type_oid) for column in self.relation.columns
        )

    def checked(self, rows: pa.Table) -> pa.Table:
        """Return the rows with generated columns. Raise 42501, 23502 or 23514."""
        if self.needs_spark and rows.num_rows:
            schema = spark_columns(self.relation) if self.relation.columns else None
            rows = self._checked_frame(local_frame(self.planner.session_spark, rows, schema), None).toArrow()
        for column in self.relation.columns:
            if column.not_null and rows.column(column.name).null_count:
                self._refuse_null(rows, column)
        self.refuse_outside(rows)
        return rows

    def checked_frame(self, rows: DataFrame) -> DataFrame:
        """Do the same for a frame. Errors are raised when it is computed."""
        return self._checked_frame(rows, self.fence)

    def _checked_frame(self, rows: DataFrame, fence: Fence | None) -> DataFrame:
        generated = row_constraint.with_generated(self.planner.evaluation, self.relation, rows)
        disclosed = disclosure.of_row(self.planner, self.shown)
        last = row_constraint.outside(self.planner.evaluation, self.relation, fence, disclosed)
        return row_constraint.checked(self.planner.evaluation, self.relation, generated, shown=disclosed, first=self.violations, last=last)

    def refuse_outside(self, rows: pa.Table) -> None:
        """Raise 23514 for the first row that does not belong to the partition that the statement names."""
        row = None if self.fence is None else self.fence.first_outside(rows)
        if row is not None:
            relation = self.relation
            raise PostgresError(
                "23514", f'new row for relation "{relation.name}" violates partition constraint',
                detail=self._row_detail(rows, row), schema=relation.schema, table=relation.name,
            )  # fmt: skip

    def _refuse_null(self, rows: pa.Table, column: Column) -> None:
        firsts = []
        for index, candidate in enumerate(self.relation.columns):
            if candidate.not_null and rows.column(candidate.name).null_count:
                firsts.append((int(pc.index(rows.column(candidate.name).is_null(), True).as_py()), index, candidate))
        row, _, column = min(firsts, key=lambda first: first[:2])
        relation = self.relation
        raise PostgresError(
            "23502", f'null value in column "{column.name}" of relation "{relation.name}" violates not-null constraint',
            detail=self._row_detail(rows, row), schema=relation.schema, table=relation.name, column=column.name,
        )  # fmt: skip

    def _row_detail(self, rows: pa.Table, row: int) -> str | None:
        """Return a row as "Failing row contains" shows it."""
        values, disclosed = [], disclosure.of_row(self.planner, self.shown)
        for column in disclosed.columns:
            value = rows.column(column.name).slice(row, 1).combine_chunks()
            array = value.chunk(0) if isinstance(value, pa.ChunkedArray) else value
            text = write_text(array, column.type_oid, column.typmod, session=self.planner.evaluation.context.forms)[0].as_py()
            if text is not None and len(text.encode()) > row_constraint.ROW_TEXT:
                text = text.encode()[: row_constraint.ROW_TEXT].decode(errors="ignore") + "..."
            values.append("null" if text is None else text)
        return disclosed.detail(values)

    # ---- writing ---------------------------------------------------------------------------------------------

    def append(self, rows: pa.Table) -> pa.Table:
        """Check rows and add them. Return them as stored."""
        if self.relation.is_partitioned:
            return routed_rows.append(self, self.arriving(rows))
        return self.store(first_error.checked(self.arriving(rows), self.accepted))

    def arriving(self, rows: pa.Table) -> pa.Table:
        """Return the rows after BEFORE INSERT triggers."""
        return rows if self.firing is None else self.firing.before_insert(rows)[0]

    def accepted(self, rows: pa.Table) -> pa.Table:
        """Return rows with generated columns, after all checks that precede storing them. Changes nothing."""
        return self.admitted(self.checked(rows))

    def admitted(self, rows: pa.Table, without: Sequence[Index] = ()) -> pa.Table:
        """Check rows that are `checked` against other rows, for unique keys.

        `without`: indexes that need no check, because the caller holds the table's lock and has found that no row has these keys.
        """
        if rows.num_rows:
            self._later = self._may_wait(rows)
            if not self._later:
                referential_action.lock(self.transaction, self.relation)
                self.transaction.lock(self.relation)
            with self.transaction.looking_up():
                self.refuse_clash(rows, without)
        return rows

    def refuse_clash(self, rows: Rows, without: Sequence[Index] = ()) -> None:
        """Raise 23505 if the key of a row is in use (`uniqueness.refuse_clash`)."""
        uniqueness.refuse_clash(self.planner.session, self.transaction, self.relation, rows, without=without)

    def _may_wait(self, rows: pa.Table) -> bool:
        """Return whether the rows may be added without the table's lock, concurrently with others. Their keys are then claimed."""
        relation, indexes = self.relation, self.relation.unique_indexes
        if relation.foreign_keys or relation.persistence == "t" or not relation.columns or rows.num_rows > SMALL_ROWS:
            return False
        if not all(index.plain and index.immediate for index in indexes):
            return False
        return self.transaction.claim(relation, {index.oid: self._members(rows, index) for index in indexes})

    def _members(self, rows: pa.Table, index: Index) -> frozenset[Hashable]:
        return key_lookup.members(row_key.of_rows(self.relation, index, rows).drop_columns("place"))

    def store(self, rows: pa.Table) -> pa.Table:
        """Add rows that are `accepted`."""
        if rows.num_rows:
            if self._later:
                self.transaction.add_later(self.relation, rows, self.refuse_clash)
            else:
                self.transaction.append(self.relation, rows)
            self.owed.add(rows)
            uniqueness.put_off(self.planner.session, self.transaction, self.relation, rows)
            self.fire_after(rows)
        return rows

    def fire_after(self, rows: pa.Table) -> None:
        """Schedule the AFTER INSERT triggers of stored rows, which fire at the end of the statement."""
        if self.firing is not None and rows.num_rows:
            self.planner.fires_later += self.firing.after(triggers.INSERT, None, rows)

    def check_references(self) -> None:
        """Raise 23503 unless the referenced rows exist. Called when the statement has written all its rows."""
        self.owed.check()

    def append_frame(self, rows: DataFrame) -> int:
        """Check the rows of a frame and add them. Return the number of rows."""
        if self.firing is not None and self.firing.has_rows(triggers.INSERT):
            with closing(many_rows.chunks(rows, self.relation, self.planner.session, self.transaction)) as chunks:
                return sum(self.append(chunk).num_rows for chunk in chunks)
        if self.relation.is_partitioned:
            return routed_rows.append_frame(self, rows)
        if self.relation.unique_indexes or self.relation.foreign_keys:
            with ExitStack() as stack:
                return self.append_kept(rows, stack)[0]
        return self.transaction.append(self.relation, self.checked_frame(rows))

    def append_kept(self, rows: DataFrame, kept: ExitStack) -> tuple[int, DataFrame]:
        """Do the same for a table that is not partitioned. Also return the stored rows, which Spark persists until `kept` is closed."""
        checked = self.checked_frame(rows)
        referential_action.lock(self.transaction, self.relation)
        self.transaction.lock(self.relation)
        persisted_rows = kept.enter_context(persisted(checked))
        self.refuse_clash(persisted_rows)
        count = self.transaction.append(self.relation, persisted_rows)
        uniqueness.put_off(self.planner.session, self.transaction, self.relation, persisted_rows)
        referential_action.inserted(self.planner.session, self.transaction, self.relation, persisted_rows)
        return count, persisted_rows


def default_of(column: Column) -> str | None:
    """Return the text of a column's default: its own, or that of its domain."""
    domain_type = registry.known().find(column.type_oid) if column.default is None else None
    return column.default if domain_type is None else domain_type.default


def bound_default(relation: Relation, column: Column) -> Expression | None:
    """Return a column's default as an expression. An identity column has none."""
    text = default_of(column)
    return None if text is None else stored_expression.stored(text, relation, column)


def _volatile(text: str) -> bool:
    """Return whether a default has another value for each row of a statement."""
    return any(name in text for name in ("random()", "gen_random_uuid()", "clock_timestamp()", "uuid_generate", "nextval("))
