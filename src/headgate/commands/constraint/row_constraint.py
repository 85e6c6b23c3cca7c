"""Check NOT NULL, CHECK, generated columns and domains: of a few rows in the driver, of others inside the Spark job that writes them.

Called by INSERT, UPDATE, COPY and ALTER TABLE. A violated constraint raises an error in the task, with the row in its DETAIL, which becomes
PostgreSQL's error (`headgate.storage.spark.failure`). Rows of a statement are checked in no particular order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Column as TableColumn
from headgate.catalog.relation.relation import Relation
from headgate.commands import disclosure, stored_expression
from headgate.commands.disclosure import ROW_TEXT, RowShown
from headgate.commands.query import row_by_row
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.row_security import Violation
from headgate.errors import PostgresError
from headgate.expression import columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Expression, FuncExpr, TypeRef
from headgate.expression.spark import compiler, domain
from headgate.storage.partitioned import Fence
from headgate.storage.spark import failure
from headgate.storage.spark.column_name import quoted
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry

_CONCAT = 3058
"""The oid of concat(VARIADIC "any")."""


def with_generated(evaluation: Evaluation, relation: Relation, rows: DataFrame) -> DataFrame:
    """Return rows (columns by name) with the generated columns computed, in the table's column order."""
    generated = [column for column in relation.columns if column.generated is not None]
    if not generated:
        return rows
    further_columns = [F.col(quoted(name)) for name in rows.columns if relation.column(name) is None]
    expressions = [stored_expression.stored(str(column.generated), relation, column) for column in generated]
    rows, expressions = row_by_row.settled(evaluation, rows, expressions)
    values = {column.name: evaluation.column(value) for column, value in zip(generated, expressions, strict=True)}
    selected = [values.get(column.name, F.col(quoted(column.name))).alias(column.name) for column in relation.columns]
    return rows.select(*selected, *further_columns)


def checked(
    evaluation: Evaluation,
    relation: Relation,
    rows: DataFrame,
    *,
    shown: RowShown | None,
    first: Sequence[Violation],
    last: Sequence[Violation] = (),
) -> DataFrame:
    """Return rows (columns by name) that raise 23502 or 23514 during execution if they violate a constraint of the table.

    `shown`: the part of a row that messages show; all of it if None. `first` and `last` are evaluated before and after NOT NULL and CHECK.
    They are the rejections of row security, and of rows outside of a partition (`outside`).
    """
    whole, names = shown or disclosure.whole_row(relation), rows.columns
    rows, first_columns = _conditions(evaluation, rows, first)
    opening = _opening(whole)
    of_domains = [
        violation
        for column in relation.columns
        if domain.constrained(column.type_oid)
        for violation in domain.violations(column.type_oid, compiler.plan)(F.col(quoted(column.name)))
    ]
    of_rows = [
        (F.col(quoted(column.name)).isNull(), _null(relation, column).column(opening)) for column in relation.columns if column.not_null
    ]
    rows, expressions = row_by_row.settled(
        evaluation, rows, [stored_expression.stored(check.expression, relation) for check in relation.checks]
    )
    for check, expression in zip(relation.checks, expressions, strict=True):
        is_met = evaluation.column(expression)
        text = f'new row for relation "{relation.name}" violates check constraint "{check.name}"'
        of_rows.append((~F.coalesce(is_met, F.lit(True)), _error_of(relation, "23514", text, constraint=check.name).column(opening)))
    rows, last_columns = _conditions(evaluation, rows, last)
    groups = (first_of([*of_domains, *first_columns]), _with_row(first_of(of_rows), evaluation, whole), first_of(last_columns))
    messages = [group for group in groups if group is not None]
    if not messages:
        return rows.select(*[F.col(quoted(name)) for name in names])
    violation = F.coalesce(*messages)
    if not relation.columns:
        return rows.where(F.when(violation.isNull(), F.lit(True)).otherwise(failure.raised(violation).cast("boolean")))
    carrier = relation.columns[0].name
    guarded = F.when(violation.isNull(), F.col(quoted(carrier))).otherwise(failure.raised(violation).cast(rows.schema[carrier].dataType))
    return rows.select(*[guarded.alias(name) if name == carrier else F.col(quoted(name)) for name in names])


def passed(relation: Relation, rows: pa.Table) -> pa.Table | None:
    """Return a few rows (the relation's columns) with generated columns, if Arrow can evaluate them and every CHECK, and all rows pass.

    Otherwise return None: Spark then evaluates the rows, and raises the error of one that breaks a constraint. This second body takes 10 to
    30 ms, where a Spark job takes 150 to 500 ms.
    """
    if any(domain.constrained(column.type_oid) for column in relation.columns):
        return None
    try:
        columns = {column.name: buffers.whole(rows.column(column.name)) for column in relation.columns}
        for column in relation.columns:
            if column.generated is not None:
                columns[column.name] = _value(stored_expression.stored(column.generated, relation, column), columns, rows.num_rows)
        for check in relation.checks:
            is_met = _value(stored_expression.stored(check.expression, relation), columns, rows.num_rows)
            if not pc.all(pc.fill_null(is_met, pa.scalar(True))).as_py():
                return None
        return pa.table(columns, schema=arrow_row(relation))
    except NotColumnwise:
        return None


def _value(expression: Expression, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    if not columnwise.is_known(expression):
        raise NotColumnwise("a function")
    return columnwise.value(expression, columns, rows)


def _conditions(evaluation: Evaluation, rows: DataFrame, violations: Sequence[Violation]) -> tuple[DataFrame, list[tuple[Column, Column]]]:
    """Return the rows, with further columns if functions need the session, and Columns that are true for rows to reject, with messages."""
    met = [condition for condition, _ in violations if not isinstance(condition, Column)]
    rows, settled = row_by_row.settled(evaluation, rows, met)
    remaining = iter(settled)
    return rows, [
        (condition if isinstance(condition, Column) else ~evaluation.condition(next(remaining)), message)
        for condition, message in violations
    ]


def outside(evaluation: Evaluation, relation: Relation, fence: Fence | None, shown: RowShown) -> list[Violation]:
    """Return the condition that rejects rows outside of the partition's bounds.

    PostgreSQL evaluates it last in INSERT, and first in UPDATE.
    """
    if fence is None or not fence.above:
        return []
    message = _with_row(_outside(relation).column(_opening(shown)), evaluation, shown)
    assert message is not None
    return [(fence.column(), message)]


def refuse_null(relation: Relation, rows: pa.Table, detail: Callable[[int], str | None]) -> None:
    """Raise 23502 for the first row with NULL in a NOT NULL column. `detail` returns the DETAIL of a row.

    This second body of NOT NULL, and `refuse_outside`, check a few rows in the driver.
    """
    nullable = [column for column in relation.columns if column.not_null and rows.column(column.name).null_count]
    if nullable:
        firsts = [int(pc.index(rows.column(column.name).is_null(), True).as_py()) for column in nullable]
        raise _null(relation, nullable[int(np.argmin(firsts))]).error(detail(min(firsts)))


def refuse_outside(fence: Fence, rows: pa.Table, detail: Callable[[int], str | None]) -> None:
    """Raise 23514 for the first row outside of the partition's bounds."""
    row = fence.first_outside(rows)
    if row is not None:
        raise _outside(fence.relation).error(detail(row))


def _opening(shown: RowShown) -> str:
    """Return the text before the values of a row in a DETAIL."""
    return "" if shown.opening is None else f"|DETAIL|{shown.opening}"


def first_of(conditions: Sequence[tuple[Column, Column]]) -> Column | None:
    """Return the message of the first condition that is true, NULL if none is true, or None without conditions."""
    message_column: Column | None = None
    for failed, message in conditions:
        message_column = F.when(failed, message) if message_column is None else message_column.when(failed, message)
    return message_column


def _with_row(message: Column | None, evaluation: Evaluation, shown: RowShown) -> Column | None:
    """Return the message followed by the row.

    The row occurs in the expression once, not for each constraint, because its text is a Python function of each column.
    """
    if message is None or shown.opening is None:
        return message
    return F.concat(message, _row_text(evaluation, shown.columns), F.lit(")."))


@dataclass(frozen=True)
class _Broken:
    """The error of a row that breaks a constraint. `fields`: the names of the table and of its part."""

    sqlstate: str
    text: str
    fields: dict[str, Any]

    def column(self, opening: str) -> Column:
        """Return the message that a task raises, up to the values of the row."""
        return F.lit(failure.marked(self.sqlstate, failure.with_fields(self.text, **self.fields) + opening))

    def error(self, detail: str | None) -> PostgresError:
        return PostgresError(self.sqlstate, self.text, detail=detail, **self.fields)


def _error_of(relation: Relation, sqlstate: str, text: str, **fields: str) -> _Broken:
    return _Broken(sqlstate, text, {"schema": relation.schema, "table": relation.name, **fields})


def _null(relation: Relation, column: TableColumn) -> _Broken:
    text = f'null value in column "{column.name}" of relation "{relation.name}" violates not-null constraint'
    return _error_of(relation, "23502", text, column=column.name)


def _outside(relation: Relation) -> _Broken:
    return _error_of(relation, "23514", f'new row for relation "{relation.name}" violates partition constraint')


def _row_text(evaluation: Evaluation, columns: Sequence[TableColumn]) -> Column:
    """Return a row as in "Failing row contains": the values in text form, joined by commas, with NULL as null.

    concat() gives a value as a client receives it, a cast to text does not: true is t, and an inet has no mask.
    """
    parts = []
    for column in columns:
        reference = ColumnRef(type=stored_expression.type_of(column), name=column.name, attnum=column.attnum, key=column.name)
        shown = evaluation.column(FuncExpr(type=TypeRef(registry.TEXT, -1, 100), function=_CONCAT, args=(reference,)))
        first = F.make_valid_utf8(F.substring(shown.cast("binary"), 1, ROW_TEXT).cast("string"))  # the last character may be cut
        cut = F.when(F.octet_length(shown) > ROW_TEXT, F.concat(F.regexp_replace(first, "\ufffd$", ""), F.lit("..."))).otherwise(shown)
        parts.append(F.when(F.col(quoted(column.name)).isNull(), F.lit("null")).otherwise(cut))
    return F.concat_ws(", ", *parts)
