"""Read or rewrite the rows for ALTER TABLE: fill an added column, look for NULLs, check a new CHECK, change a type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import attribute
from headgate.catalog.relation.relation import Check, Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import stored_expression
from headgate.commands.dml.rows import next_value
from headgate.commands.dml.rows.new_rows import NewRows, default_of
from headgate.commands.query import row_by_row
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import Session
from headgate.commands.table import table_definition
from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.deparsing import deparse
from headgate.expression.node import ColumnRef, Expression, TypeRef
from headgate.expression.spark import domain
from headgate.sql import names
from headgate.sql.parser import ParseNode
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted, places
from headgate.storage.transaction.transaction import Transaction
from headgate.types.storage import spark_type

if TYPE_CHECKING:
    from headgate.commands.alteration import Alteration


def check_no_nulls(transaction: Transaction, relation: Relation, column: Column) -> None:
    """Raise 23502 `column "a" of relation "t" contains null values` if it does."""
    if relation.kind != RelationKind.TABLE:
        return
    transaction.lock(relation)
    frame = transaction.reader.frame(relation)
    if not frame.where(F.col(quoted(column.name)).isNull()).limit(1).isEmpty():
        raise PostgresError(
            "23502", f'column "{column.name}" of relation "{relation.name}" contains null values',
            schema=relation.schema, table=relation.name, column=column.name,
        )  # fmt: skip


def check_rows(session: Session, transaction: Transaction, relation: Relation, check: Check) -> None:
    """Raise 23514 `check constraint "c" of relation "t" is violated by some row` if one violates it."""
    if relation.kind != RelationKind.TABLE:
        return
    transaction.lock(relation)
    evaluation = Evaluation(session)
    expression = stored_expression.stored(check.expression, relation)
    frame, [condition] = row_by_row.settled(evaluation, transaction.reader.frame(relation), [expression])
    if not frame.where(~F.coalesce(evaluation.column(condition), F.lit(True))).limit(1).isEmpty():
        raise PostgresError(
            "23514", f'check constraint "{check.name}" of relation "{relation.name}" is violated by some row',
            schema=relation.schema, table=relation.name, constraint=check.name,
        )  # fmt: skip


def fill_added_column(session: Session, transaction: Transaction, relation: Relation, column: Column) -> None:
    """Set an added column in the rows of a table to its default or generated value."""
    if relation.kind != RelationKind.TABLE:
        return
    bound = _added_value(relation, column)
    if bound is None and not column.identity:
        if column.not_null:
            check_no_nulls(transaction, relation, column)
        return
    positions = _newest(transaction, relation)
    if positions.limit(1).isEmpty():
        return
    if bound is None or next_value.called(bound):  # an identity column has no default
        with persisted(positions) as persisted_rows:
            position, rows = places(persisted_rows)
            value, numbers = NewRows(QueryPlanner(session, transaction), relation, violations=()).numbered_column(
                column, bound, position, rows, 0
            )
            _replace(
                transaction, relation, column, value.cast(spark_type(column.type_oid, column.typmod)), persisted_rows.select("*", *numbers)
            )
    else:
        evaluation = Evaluation(session)
        positions, [settled] = row_by_row.settled(evaluation, positions, [bound])
        _replace(transaction, relation, column, evaluation.column(settled), positions)
    if column.not_null:
        check_no_nulls(transaction, relation, column)


def _added_value(relation: Relation, column: Column) -> Expression | None:
    """Return the generated value or the default of an added column. None is NULL, for which no constraint is to be checked."""
    if column.generated is not None:
        return stored_expression.stored(column.generated, relation, column)
    default = default_of(relation, column).expression
    return stored_expression.stored("NULL", relation, column) if default is None and domain.constrained(column.type_oid) else default


def replace_column(transaction: Transaction, relation: Relation, column: Column, value: SparkColumn) -> None:
    """Rewrite all rows with another value in one column. Streams do not see it, because it belongs to a change of the catalog."""
    _replace(transaction, relation, column, value, _newest(transaction, relation))


def _newest(transaction: Transaction, relation: Relation) -> DataFrame:
    """Return all rows with their positions, including rows that the transaction does not see, because they change too."""
    with transaction.snapshot.seeing_newest():
        return transaction.reader.positions(relation)


def _replace(transaction: Transaction, relation: Relation, column: Column, value: SparkColumn, positions: DataFrame) -> None:
    old = F.struct(*[F.col(quoted(table_column.name)) for table_column in relation.columns])
    new = F.struct(
        *[
            value.alias(table_column.name) if table_column.name == column.name else F.col(quoted(table_column.name))
            for table_column in relation.columns
        ]
    )
    changed = positions.select(old.alias("old"), new.alias("new"), F.col(FILE).alias("file"), F.col(ROW).alias("row"))
    transaction.ddl.fill(relation, changed)


def alter_type(alteration: Alteration, column: Column, kind: pb.TypeName, using: ParseNode | None) -> None:
    """Change the type of a column: a new stored column replaces the old one, with the values cast."""
    relation, transaction, session = alteration.relation, alteration.transaction, alteration.session
    evaluation = Evaluation(session)
    oid, typmod = names.type_name(kind)
    table_definition.check_accepted(oid)
    pg_type = evaluation.context.types.by_oid(oid)
    target = TypeRef(oid, typmod, pg_type.collation)
    if using is not None:
        bound = binder.bind_raw(
            using, stored_expression.scope_of(relation.columns, relation.name), stored_expression.context(evaluation.context.forms)
        )
        value = coerce(bound, target, Reach.ASSIGNMENT, evaluation.context)
        message = (
            f'result of USING clause for column "{column.name}" cannot be cast automatically to type {evaluation.context.show_type(oid)}'
        )
        hint: str | None = "You might need to add an explicit cast."
    else:
        reference = ColumnRef(type=stored_expression.type_of(column), name=column.name, attnum=column.attnum, key=column.name)
        value = coerce(reference, target, Reach.ASSIGNMENT, evaluation.context)
        message = f'column "{column.name}" cannot be cast automatically to type {evaluation.context.show_type(oid)}'
        hint = f'You might need to specify "USING {column.name}::{evaluation.context.types.format_type(oid, typmod)}".'
    if value is None:
        raise PostgresError("42804", message, hint=hint)
    if any(
        column.name in stored_expression.columns_of(table_column.generated, relation)
        for table_column in relation.columns
        if table_column.generated
    ):
        raise PostgresError("0A000", "cannot alter type of a column used by a generated column")
    default = None
    if column.default is not None:
        bound_default = coerce(stored_expression.stored(column.default, relation, column), target, Reach.ASSIGNMENT, evaluation.context)
        if bound_default is None:
            raise PostgresError(
                "42804", f'default for column "{column.name}" cannot be cast automatically to type {evaluation.context.show_type(oid)}'
            )
        default = deparse.stored(bound_default)
    attribute.set_type(alteration.cursor, relation, column.attnum, oid, typmod, pg_type.collation, len(kind.array_bounds))
    if default is not None:
        attribute.set_default(alteration.cursor, transaction.catalog.next_oid, relation, column.attnum, default)
    alteration.refresh()
    if relation.kind == RelationKind.TABLE:
        transaction.ddl.change_type(relation, alteration.relation, column.name, evaluation.column(value))
