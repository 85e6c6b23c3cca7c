"""Insert rows into a table: fill in defaults, compute generated columns, check constraints, route to partitions, append.

Called by INSERT, MERGE and COPY FROM, and by `changed_rows` for rows that move to another partition. Rows come either as an Arrow table
(few rows: the driver does everything, except CHECK and generated columns) or as a Spark frame. Both have the table's columns by name, in
stored types. Messages name the leaf of a partitioned table and show the row in the columns of the table that the statement names, as
PostgreSQL's do. All leaves that receive rows are locked before any is written. If a leaf was dropped or changed while the statement waited
for its lock, the statement starts again, which is not possible after it has written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Column, Index, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.changes import lookup as key_lookup
from headgate.commands import disclosure, stored_expression
from headgate.commands.constraint import referential_action, row_constraint, row_key, uniqueness
from headgate.commands.dml.rows import first_error, many_rows, next_value
from headgate.commands.dml.rows.next_value import Numbers
from headgate.commands.dml.rows.owed_references import OwedReferences
from headgate.commands.query import row_by_row
from headgate.commands.query.driver import values_list
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Violation
from headgate.commands.trigger.firing import Firing
from headgate.commands.trigger.statement import of_statement
from headgate.errors import PostgresError
from headgate.expression.node import Const, Expression
from headgate.expression.spark import domain
from headgate.storage import row_set
from headgate.storage.lock import Keys
from headgate.storage.partitioned import Fence, Part
from headgate.storage.row_set import Rows
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.spark.persisted import persisted, places
from headgate.storage.write import SMALL_ROWS
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers, registry
from headgate.types.storage import arrow_type, spark_type


class NewRows:
    """Writes rows into one table within one statement. Rows of a partitioned table go to its leaves (`spread`)."""

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
        inserted = functools.partial(referential_action.inserted, planner.session, self.transaction, relation)
        self.owed = OwedReferences(planner, relation, inserted)
        self._owed_of_leaves: dict[int, OwedReferences] = {}
        self.firing = of_statement(planner, relation) if fires else None
        self.count = 0
        """The number of rows that were added."""
        self._earlier: dict[int, Numbers] = {}
        """The last sequence numbers that the defaults of these rows got, for currval in a default (`next_value.taken`)."""
        self._later = False
        self._kept = ExitStack()

    def close(self) -> None:
        """Release the rows that Spark has persisted, after the statement has written its rows or has failed."""
        self._kept.close()

    # ---- defaults --------------------------------------------------------------------------------------------

    def default(self, column: Column, rows: int) -> pa.Array:
        """Return `rows` default values of a column, for rows that get no others."""
        self._earlier.clear()
        return self._default(column, rows)

    def _default(self, column: Column, rows: int) -> pa.Array:
        kind = arrow_type(column.type_oid, column.typmod)
        numbers = self._numbers(column, rows)
        if numbers is not None:
            return numbers.array(rows).cast(kind)
        default = default_of(self.relation, column)
        if default.expression is None:
            return pa.nulls(rows, kind)
        if default.is_counted:
            return self._number_rows(default.expression, rows).cast(kind)
        if isinstance(default.expression, Const):
            return values_list.column_of(self.planner, column, [default.expression] * rows)
        prepared = self.planner.prepare(default.expression)
        if not stored_expression.volatile(prepared):
            [value] = values_list.evaluate(self.planner, [prepared])
            return value.cast(kind).take(pa.array(np.zeros(rows, np.int64)))
        return values_list.column_of(self.planner, column, [prepared] * rows)

    def _numbers(self, column: Column, rows: int) -> Numbers | None:
        """Return the sequence numbers for the rows if the column's default is only a call of nextval, otherwise None."""
        session, name = self.planner.session, next_value.alone(column.default)
        if column.identity:
            owned = sequences.of_column(self.transaction.cursor, self.relation.database, self.relation.oid, column.attnum)
            assert owned is not None
            return next_value.of_sequence(owned, session, self.transaction, rows, self._earlier)
        return None if name is None else next_value.of_name(name, session, self.transaction, rows, self._earlier)

    def _number_rows(self, default: Expression, rows: int) -> pa.Array:
        """Return the values of a default that calls nextval, with a separate number for each row."""
        expression, numbers = next_value.taken(default, self.planner.session, self.transaction, self._earlier, rows)
        table = pa.table(
            [column_numbers.array(rows) for column_numbers in numbers], names=[column_numbers.key for column_numbers in numbers]
        )
        frame = local_frame(
            self.planner.session_spark, table, StructType([StructField(column_numbers.key, LongType()) for column_numbers in numbers])
        )
        return buffers.whole(frame.select(self.planner.column(expression).alias("value")).toArrow().column(0))

    def completed(self, rows: Rows) -> Rows:
        """Return the rows with missing columns set to their defaults, in the table's order of columns.

        If a column of a frame uses sequence numbers, Spark persists the counted rows until `close`.
        """
        present = set(row_set.names(rows))
        self._earlier.clear()
        if isinstance(rows, pa.Table):
            values = {
                column.name: rows.column(column.name) if column.name in present else self._default(column, rows.num_rows)
                for column in self.relation.columns
            }
            return pa.table(values) if values else rows
        selected: list[SparkColumn] = []
        numbered: list[SparkColumn] = []
        placed: tuple[SparkColumn, int] | None = None
        for column in self.relation.columns:
            default = None if column.name in present else default_of(self.relation, column)
            if default is None:
                value = F.col(quoted(column.name))
            elif default.is_counted:
                placed = placed or places(self._kept.enter_context(persisted(rows)))
                value, number_columns = self.numbered_column(column, default.expression, *placed, len(numbered))
                value = value.cast(spark_type(column.type_oid, column.typmod))
                numbered += number_columns
            else:
                rows, value = default.column(self.planner, rows)
            selected.append(value.alias(column.name))
        return rows.select("*", *numbered).select(*selected)

    def numbered_column(
        self, column: Column, default: Expression | None, place: SparkColumn, rows: int, others: int
    ) -> tuple[SparkColumn, list[SparkColumn]]:
        """Return the value of a column with sequence numbers, and the number columns that it uses. `others` such columns exist already."""
        numbers = self._numbers(column, rows)
        if numbers is not None:
            return numbers.column(place), []
        assert default is not None
        expression, number_columns = next_value.taken(default, self.planner.session, self.transaction, self._earlier, rows, first=others)
        return self.planner.column(expression), [number_column.column(place).alias(number_column.key) for number_column in number_columns]

    def of_leaf(self, leaf: Relation, *, fires: bool = False) -> NewRows:
        """Return the writer of the statement's rows for a leaf. `fires`: its triggers fire there, and not in the order of all rows."""
        writer = NewRows(self.planner, leaf, violations=self.violations, routed_from=self.relation, fires=fires)
        writer._kept = self._kept
        writer.owed = self._owed_of_leaves.setdefault(leaf.oid, writer.owed)
        return writer

    def spread(self, rows: Rows, *, fires: bool = False) -> list[tuple[NewRows, Part]]:
        """Return the writers of the leaves that receive rows, with the rows. Raise 23514 for a row without a leaf."""
        table = self.transaction.partitioned(self.relation)
        inside = self.inside(rows)
        with disclosure.routing(self.planner, self.relation, table.router.key_names()):
            parts = table.split(inside, self._kept)
        return [(self.of_leaf(table.leaves[part.number], fires=fires), part) for part in parts]

    # ---- checks ----------------------------------------------------------------------------------------------

    @property
    def has_rules(self) -> bool:
        """Whether rows must be evaluated, by Arrow or Spark: for policies, CHECK constraints, domains and generated columns."""
        return bool(self.violations or self.relation.checks) or any(
            column.generated is not None or domain.constrained(column.type_oid) for column in self.relation.columns
        )

    def checked(self, rows: Rows) -> Rows:
        """Return the rows with generated columns. Raise 42501, 23502 or 23514, for a frame when it is computed.

        A few rows are checked in the driver if Arrow can do that: most tables need no Spark job then, and an INSERT of one row takes 8 ms.
        """
        if isinstance(rows, DataFrame):
            return self._check_frame(rows, self.fence)
        if self.has_rules and rows.num_rows:
            passed = None if self.violations else row_constraint.passed(self.relation, rows)
            if passed is None:
                schema = spark_columns(self.relation) if self.relation.columns else None
                passed = self._check_frame(local_frame(self.planner.session_spark, rows, schema), None).toArrow()
            rows = passed
        row_constraint.refuse_null(self.relation, rows, functools.partial(self._row_detail, rows))
        return self.inside(rows)

    def _check_frame(self, rows: DataFrame, fence: Fence | None) -> DataFrame:
        generated = row_constraint.with_generated(self.planner.evaluation, self.relation, rows)
        disclosed = disclosure.of_row(self.planner, self.shown)
        last = row_constraint.outside(self.planner.evaluation, self.relation, fence, disclosed)
        return row_constraint.checked(self.planner.evaluation, self.relation, generated, shown=disclosed, first=self.violations, last=last)

    def inside(self, rows: Rows) -> Rows:
        """Return the rows. Raise 23514 for the first row that does not belong to the partition that the statement names."""
        if self.fence is None:
            return rows
        suspects = rows
        if isinstance(rows, DataFrame):
            rows = self._kept.enter_context(persisted(rows))
            suspects = many_rows.of(self.relation, row_set.first(rows.where(self.fence.column())))
        row_constraint.refuse_outside(self.fence, suspects, functools.partial(self._row_detail, suspects))
        return rows

    def _row_detail(self, rows: pa.Table, row: int) -> str | None:
        forms = self.planner.evaluation.context.forms
        return disclosure.of_row(self.planner, self.shown).row_detail(rows, row, forms)

    # ---- writing ---------------------------------------------------------------------------------------------

    def insert(self, rows: Rows) -> int:
        """Check all rows of a statement and add them, those of a frame in chunks if row triggers fire. Return their number."""
        if isinstance(rows, DataFrame) and self.fires_rows:
            with closing(many_rows.chunks(rows, self.relation, self.planner.session, self.transaction)) as chunks:
                for chunk in chunks:
                    self.append(chunk)
        else:
            self.append(rows)
        self.check_references()
        return self.count

    @property
    def fires_rows(self) -> bool:
        """Whether INSERT fires row triggers here, or collects rows for them. They get the rows in the driver."""
        return self.firing is not None and self.firing.has_rows(triggers.INSERT)

    @property
    def fires_before(self) -> bool:
        """Whether BEFORE INSERT triggers fire for each row. PostgreSQL then inserts the rows of COPY one by one."""
        return self.firing is not None and self.firing.fires_before(triggers.INSERT)

    def append(self, rows: Rows) -> Rows:
        """Check rows and add them. Return them as stored. Those of a frame stay persisted until `close` if others are checked with them."""
        if self.relation.kind == RelationKind.VIEW:
            return self._insert_instead(rows)
        return self.passing(rows, self._add)

    def _insert_instead(self, rows: Rows) -> Rows:
        """Pass rows to the INSTEAD OF triggers of a view. Return those that they return."""
        assert isinstance(self.firing, Firing), "a view without triggers is not writable"
        inserted, _ = self.firing.instead(triggers.INSERT, None, rows)
        self.count += inserted.num_rows
        return inserted

    def _add(self, arriving: Rows) -> Rows:
        """Check and add rows that have passed the BEFORE triggers."""
        if not self.relation.is_partitioned:
            return self.store(first_error.checked(arriving, self.accepted))
        parts = first_error.checked(arriving, lambda prefix: [(leaf, part, leaf.accepted(part.rows)) for leaf, part in self.spread(prefix)])
        stored = self.together([(part, leaf.store(accepted)) for leaf, part, accepted in parts])
        self.count += sum(leaf.count for leaf, _, _ in parts)
        self.fire_after(stored)
        return stored

    def together(self, stored: Sequence[tuple[Part, Rows]]) -> Rows:
        """Return the rows that the leaves have stored, in the order of the rows that were spread."""
        return self.transaction.partitioned(self.relation).in_order([replace(part, rows=rows) for part, rows in stored])

    def passing(self, rows: Rows, add: Callable[[Rows], Rows]) -> Rows:
        """Pass rows through the BEFORE INSERT triggers to `add`. Return its results. They do not fire for a frame (see `insert`)."""
        if self.firing is None or isinstance(rows, DataFrame):
            return add(rows)
        added: list[pa.Table] = []
        remaining, places = self.firing.before_insert(rows, lambda ready: added.append(add(ready)))
        try:
            last = add(remaining)
        except PostgresError as error:
            error.row = None if error.row is None else places[error.row]
            raise
        return pa.concat_tables([*added, last], promote_options="permissive") if added else last

    def accepted(self, rows: Rows) -> Rows:
        """Return rows with generated columns, after all checks that precede storing them. Changes nothing."""
        return self.admitted(self.checked(rows))

    def admitted(self, rows: Rows, without: Sequence[Index] = ()) -> Rows:
        """Return rows that are `checked`, after they were checked against other rows, for unique keys. See `uniqueness.refuse_clash`."""
        if row_set.is_known_empty(rows):
            return rows
        self._later = self._may_wait(rows)
        if not self._later:
            referential_action.lock(self.transaction, self.relation)
            self.transaction.lock(self.relation, keys=functools.partial(self.keys, rows) if isinstance(rows, pa.Table) else None)
        if isinstance(rows, DataFrame) and (self.relation.unique_indexes or self.relation.foreign_keys):
            rows = self._kept.enter_context(persisted(rows))
        with self.transaction.reader.looking_up():
            self.refuse_clash(rows, without)
        return rows

    def refuse_clash(self, rows: Rows, without: Sequence[Index] = ()) -> None:
        """Raise 23505 if the key of a row is in use."""
        uniqueness.refuse_clash(self.planner.session, self.transaction, self.relation, rows, without=without)

    def _may_wait(self, rows: Rows) -> bool:
        """Return whether the rows may be added without the table's lock, concurrently with others. Their keys are then claimed."""
        relation, indexes = self.relation, self.relation.unique_indexes
        if relation.foreign_keys or relation.persistence == "t" or not relation.columns:
            return False
        if isinstance(rows, DataFrame) or rows.num_rows > SMALL_ROWS or not all(index.immediate for index in indexes):
            return False
        return self.transaction.claim(relation, self.keys(rows))

    def keys(self, rows: pa.Table) -> Keys:
        """Return the unique keys of rows, as transactions claim them."""
        return {index.oid: self._members(rows, index) for index in self.relation.unique_indexes}

    def _members(self, rows: pa.Table, index: Index) -> frozenset[Hashable]:
        return key_lookup.members(row_key.of_rows(self.transaction, self.relation, index, rows).drop_columns("place"))

    def store(self, rows: Rows) -> Rows:
        """Add rows that are `accepted`. Return them."""
        if row_set.is_known_empty(rows):
            return rows
        if self._later and isinstance(rows, pa.Table):
            self.transaction.add_later(self.relation, rows, self.refuse_clash)
            self.count += rows.num_rows
        else:
            self.count += self.transaction.append(self.relation, rows)
        self.owed.add(rows)
        uniqueness.put_off(self.planner.session, self.transaction, self.relation, rows)
        self.fire_after(rows)
        return rows

    def fire_after(self, rows: Rows) -> None:
        """Schedule the AFTER INSERT triggers of stored rows, which fire at the end of the statement."""
        if self.firing is not None and isinstance(rows, pa.Table) and rows.num_rows:
            self.planner.triggers.later += self.firing.after(triggers.INSERT, None, rows)

    def check_references(self) -> None:
        """Raise 23503 unless the referenced rows exist. Called when the statement has written all its rows."""
        for owed in (self.owed, *self._owed_of_leaves.values()):
            owed.check()


@dataclass(frozen=True)
class Default:
    """The DEFAULT of a column: its own, or that of its domain. Without `expression` it is NULL, or the number of an identity column.

    `is_counted`: it depends on sequence numbers, which each row has for itself.
    """

    of: Column
    expression: Expression | None
    is_counted: bool

    def column(self, planner: Planner, frame: DataFrame) -> tuple[DataFrame, SparkColumn]:
        """Return the value as a Column over a frame, if it is not counted. The frame may receive further columns for it."""
        if self.expression is None:
            return frame, F.lit(None).cast(spark_type(self.of.type_oid, self.of.typmod))
        frame, [value] = row_by_row.settled(planner.evaluation, frame, [self.expression])
        return frame, planner.column(value)


def default_of(relation: Relation, column: Column) -> Default:
    """Return the DEFAULT of a column. That of a generated column is NULL."""
    if column.generated is not None:
        return Default(column, None, is_counted=False)
    domain_type = registry.known().find(column.type_oid) if column.default is None else None
    text = column.default if domain_type is None else domain_type.default
    expression = None if text is None else stored_expression.stored(text, relation, column)
    return Default(column, expression, bool(column.identity) or (expression is not None and next_value.depends_on_calls(expression)))
