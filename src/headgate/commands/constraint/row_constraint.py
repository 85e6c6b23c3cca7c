"""Check NOT NULL, CHECK, generated columns and domains of rows inside the Spark job that writes them.

Called by INSERT, UPDATE, COPY and ALTER TABLE. A violated constraint raises an error in the task, with the row in its DETAIL, which becomes
PostgreSQL's error (`headgate.storage.spark.failure`). Rows of a statement are checked in no particular order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Check, Relation
from headgate.catalog.relation.relation import Column as TableColumn
from headgate.commands import disclosure, stored_expression
from headgate.commands.disclosure import RowShown
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.row_security import Violation
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.node import ColumnRef, TypeRef
from headgate.expression.spark import compiler, domain
from headgate.storage.partitioned import Fence
from headgate.storage.spark import failure
from headgate.storage.spark.column_name import quoted
from headgate.types import registry

ROW_TEXT = 64
"""Each value is cut to this many bytes in the DETAIL, as PostgreSQL does."""


def with_generated(evaluation: Evaluation, relation: Relation, rows: DataFrame) -> DataFrame:
    """Rows (columns by name) with the generated columns computed; the columns come out in the table's order."""
    if not any(each.generated for each in relation.columns):
        return rows
    selected = []
    for each in relation.columns:
        if each.generated is None:
            selected.append(F.col(quoted(each.name)))
        else:
            value = stored_expression.stored(each.generated, relation, each)
            selected.append(evaluation.column(value).alias(each.name))
    others = [F.col(quoted(name)) for name in rows.columns if relation.column(name) is None]
    return rows.select(*selected, *others)


def checked(
    evaluation: Evaluation,
    relation: Relation,
    rows: DataFrame,
    checks: Sequence[Check] | None = None,
    *,
    shown: RowShown | None = None,
    first: Sequence[Violation] = (),
    last: Sequence[Violation] = (),
) -> DataFrame:
    """Rows (columns by name) that raise 23502 or 23514 when they are computed and violate a constraint of the table.

    `shown`: what messages show of a row; all of it if None. `first` and `last` are evaluated before and after NOT NULL and CHECK: what row
    security rejects, and rows outside of a partition (`outside`).
    """
    whole = shown or disclosure.whole_row(relation)
    opening = _opening(whole)
    of_domains = [
        violation
        for column in relation.columns
        if domain.constrained(column.type_oid)
        for violation in domain.violations(column.type_oid, compiler.plan)(F.col(quoted(column.name)))
    ]
    of_rows = [
        (F.col(quoted(column.name)).isNull(), _not_null(relation, column.name, opening)) for column in relation.columns if column.not_null
    ]
    for check in relation.checks if checks is None else checks:
        met = evaluation.column(stored_expression.stored(check.expression, relation))
        text = f'new row for relation "{relation.name}" violates check constraint "{check.name}"'
        of_rows.append((~F.coalesce(met, F.lit(True)), _message("23514", _of(relation, text, constraint=check.name) + opening)))
    groups = (first_of([*of_domains, *first]), _with_row(first_of(of_rows), evaluation, whole), first_of(last))
    found = [group for group in groups if group is not None]
    if not found:
        return rows
    violation = F.coalesce(*found)
    if not relation.columns:
        return rows.where(F.when(violation.isNull(), F.lit(True)).otherwise(F.raise_error(violation).cast("boolean")))
    carrier = relation.columns[0].name
    guarded = F.when(violation.isNull(), F.col(quoted(carrier))).otherwise(F.raise_error(violation).cast(rows.schema[carrier].dataType))
    return rows.select(*[guarded.alias(name) if name == carrier else F.col(quoted(name)) for name in rows.columns])


def outside(evaluation: Evaluation, relation: Relation, fence: Fence | None, shown: RowShown) -> list[Violation]:
    """Return what rejects rows outside of the partition's bounds. PostgreSQL evaluates it last in INSERT, and first in UPDATE."""
    if fence is None or not fence.above:
        return []
    text = f'new row for relation "{relation.name}" violates partition constraint'
    message = _with_row(_message("23514", _of(relation, text) + _opening(shown)), evaluation, shown)
    assert message is not None
    return [(fence.column(), message)]


def _opening(shown: RowShown) -> str:
    """Return what stands before the values of a row in a DETAIL."""
    return "" if shown.opening is None else f"|DETAIL|{shown.opening}"


def first_of(found: Sequence[Violation]) -> Column | None:
    """The message of the first condition that is true, NULL if none is; None without conditions."""
    made: Column | None = None
    for failed, message in found:
        made = F.when(failed, message) if made is None else made.when(failed, message)
    return made


def _with_row(message: Column | None, evaluation: Evaluation, shown: RowShown) -> Column | None:
    """The message, at whose end the row is shown.

    The row stands in the expression once, not with each constraint: its text is a Python function of each column.
    """
    if message is None or shown.opening is None:
        return message
    return F.concat(message, _row_text(evaluation, shown.columns), F.lit(")."))


def _not_null(relation: Relation, name: str, opening: str) -> Column:
    """The message of a row that has NULL in a NOT NULL column."""
    text = f'null value in column "{name}" of relation "{relation.name}" violates not-null constraint'
    return _message("23502", _of(relation, text, column=name) + opening)


def _of(relation: Relation, text: str, **fields: str) -> str:
    return failure.with_fields(text, schema=relation.schema, table=relation.name, **fields)


def _message(state: str, text: str) -> Column:
    return F.lit(failure.marked(state, text))


def _row_text(evaluation: Evaluation, columns: Sequence[TableColumn]) -> Column:
    """A row as "Failing row contains" shows it: the values in text form, joined by commas, NULL as null."""
    parts = []
    for each in columns:
        reference = ColumnRef(type=stored_expression.type_of(each), name=each.name, attnum=each.attnum, key=each.name)
        text = coerce(reference, TypeRef(registry.TEXT, -1, 100), Reach.EXPLICIT, evaluation.context)
        shown = evaluation.column(text if text is not None else reference).cast("string")
        cut = F.when(F.octet_length(shown) > ROW_TEXT, F.concat(F.substring(shown, 1, ROW_TEXT), F.lit("..."))).otherwise(shown)
        parts.append(F.coalesce(cut, F.lit("null")))
    return F.concat_ws(", ", *parts)
