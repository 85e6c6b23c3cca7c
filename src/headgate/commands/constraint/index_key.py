"""The key of an index: its parts as expressions, the columns that it depends on, and its values in a Spark frame.

Called by `uniqueness`, `row_key`, `on_conflict` for the index that ON CONFLICT names, and by DDL that changes columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Column as TableColumn
from headgate.catalog.relation.relation import Index, Relation
from headgate.commands import stored_expression
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.node import ColumnRef, Expression, walk
from headgate.expression.spark import compiler
from headgate.sql.names import quote_ident
from headgate.storage.spark.column_name import quoted


@dataclass(frozen=True)
class KeyPart:
    """One part of a key: the title of a column or index expression in messages, and the expression to evaluate."""

    title: str
    expression: Expression


def expressions(relation: Relation, index: Index) -> list[Expression]:
    """Return the columns and expressions of an index's key, in order. Expressions are parsed and bound again by each call."""
    texts, key = iter(index.expressions), list[Expression]()
    for attnum in index.attnums:
        column = relation.numbered(attnum) if attnum else None
        key.append(stored_expression.indexed(next(texts), relation) if column is None else reference(column))
    return key


def parts(relation: Relation, index: Index) -> list[KeyPart]:
    """Return the parts of an index's key with their titles, in order."""
    key_parts, texts = [], iter(index.expressions)
    for attnum, expression in zip(index.attnums, expressions(relation, index), strict=True):
        if attnum and isinstance(expression, ColumnRef):
            key_parts.append(KeyPart(quote_ident(expression.name), expression))
        else:
            title = deparse(expression, pretty=True)
            key_parts.append(KeyPart(f"({title})" if next(texts).startswith("(") else title, expression))
    return key_parts


def reference(column: TableColumn) -> ColumnRef:
    return ColumnRef(type=stored_expression.type_of(column), name=column.name, attnum=column.attnum, key=column.name)


def predicate(relation: Relation, index: Index) -> Expression | None:
    return None if index.predicate is None else stored_expression.indexed(index.predicate, relation)


def used_columns(relation: Relation, index: Index) -> set[int]:
    """Return the attnums of the columns that an index depends on: those of its key, its expressions and its predicate."""
    if not index.expressions and index.predicate is None:
        return set(index.attnums)
    condition = predicate(relation, index)
    used = [*expressions(relation, index), *([condition] if condition is not None else [])]
    return {node.attnum for expression in used for node in walk(expression) if isinstance(node, ColumnRef)}


def keyed(relation: Relation, index: Index, rows: DataFrame, *carried: Column) -> DataFrame:
    """Return the keys of rows that the index includes: their values v0, v1, …, and their sort keys k0, k1, … for comparison.

    `carried`: further columns of the result.
    """
    places = {column.name: F.col(quoted(column.name)) for column in relation.columns}
    condition = predicate(relation, index)
    if condition is not None:
        rows = rows.where(compiler.condition(condition, places))
    selected = list(carried)
    for place, expression in enumerate(expressions(relation, index)):
        value = compiler.compile(expression, places)
        selected += [value.alias(f"v{place}"), compiler.sort_key(expression, places).alias(f"k{place}")]
    keys = rows.select(*selected)
    if not index.nulls_not_distinct:
        for place in range(len(index.attnums)):
            keys = keys.where(F.col(f"v{place}").isNotNull())
    return keys


def is_same(index: Index, left: list[Column], right: list[Column]) -> Column:
    """Return whether two rows have the same key, from the sort keys of its parts."""
    condition = F.lit(True)
    for one, other in zip(left, right, strict=True):
        condition = condition & (one.eqNullSafe(other) if index.nulls_not_distinct else one == other)
    return condition
