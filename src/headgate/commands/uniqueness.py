"""PRIMARY KEY and UNIQUE: no two rows of a table with one key (NULLs differ from each other).

`check_new` looks at rows that a statement adds, `check_table` at a table that gets a key. Rows are compared as their types
compare (1.0 and 1.00 are one key). A statement is judged as a whole, when all its rows are there: ``UPDATE t SET a = a + 1``
passes here, where PostgreSQL may or may not refuse it, depending on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import Index, Relation
from headgate.commands import binding
from headgate.commands.query.plan import quoted
from headgate.errors import PostgresError
from headgate.expression import compile as compiler
from headgate.expression.node import ColumnRef
from headgate.storage.transaction import Transaction
from headgate.types.text import write_text


def keys_of(relation: Relation) -> list[Index]:
    """The unique indexes of a table, the primary key first."""
    return sorted((each for each in relation.indexes if each.unique), key=lambda each: not each.primary)


def key_columns(relation: Relation, attnums: Sequence[int]) -> list[Column]:
    """The key of a row as columns that are equal where the key is; over a frame with the table's column names."""
    found = []
    for attnum in attnums:
        column = relation.numbered(attnum)
        assert column is not None
        reference = ColumnRef(type=binding.type_of(column), name=column.name, attnum=attnum, key=column.name)
        found.append(compiler.sort_key(reference, {column.name: F.col(quoted(column.name))}))
    return found


def keyed(relation: Relation, attnums: Sequence[int], rows: DataFrame) -> DataFrame:
    """The rows whose key has no NULL: the key's columns by name, and as k0, k1, … for comparing."""
    names = [column.name for attnum in attnums if (column := relation.numbered(attnum))]
    complete = rows
    for name in names:
        complete = complete.where(F.col(quoted(name)).isNotNull())
    keys = [each.alias(f"k{place}") for place, each in enumerate(key_columns(relation, attnums))]
    return complete.select(*[F.col(quoted(name)).alias(f"v{place}") for place, name in enumerate(names)], *keys)


def check_table(transaction: Transaction, relation: Relation, attnums: Sequence[int], name: str) -> None:
    """23505 `could not create unique index` if the table has a key twice."""
    if relation.kind != "r":
        return
    found = _twice(keyed(relation, attnums, transaction.frame(relation)), len(attnums))
    if found is not None:
        raise PostgresError(
            "23505", f'could not create unique index "{name}"', detail=f"Key {_shown(relation, attnums, found)} is duplicated.",
            schema=relation.schema, table=relation.name, constraint=name,
        )  # fmt: skip


def _twice(rows: DataFrame, width: int) -> DataFrame | None:
    keys = [f"k{place}" for place in range(width)]
    first = [F.first(f"v{place}").alias(f"v{place}") for place in range(width)]
    double = (
        rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows"), *first).where("rows > 1").select(*[f"v{place}" for place in range(width)])
    )
    found = double.limit(1)
    return found if not found.isEmpty() else None


def check_new(transaction: Transaction, relation: Relation, rows: DataFrame, existing: DataFrame | None = None) -> None:
    """23505 `duplicate key value` if the new rows (columns by name) repeat a key among themselves or one of `existing` (the table)."""
    for index in keys_of(relation):
        width = len(index.attnums)
        new = keyed(relation, index.attnums, rows)
        there = keyed(relation, index.attnums, transaction.frame(relation) if existing is None else existing)
        keys = [f"k{place}" for place in range(width)]
        hit = there.join(F.broadcast(new.select(*keys)) if existing is None else new.select(*keys), keys, "left_semi")
        found = hit.select(*[f"v{place}" for place in range(width)]).limit(1)
        if found.isEmpty():
            twice = _twice(new, width)
            if twice is None:
                continue
            found = twice
        raise violated(relation, index, _shown(relation, index.attnums, found))


def violated(relation: Relation, index: Index, shown: str) -> PostgresError:
    """23505 for a key, shown as ``(a)=(1)``."""
    return PostgresError(
        "23505", f'duplicate key value violates unique constraint "{index.name}"', detail=f"Key {shown} already exists.",
        schema=relation.schema, table=relation.name, constraint=index.name,
    )  # fmt: skip


def _shown(relation: Relation, attnums: Sequence[int], found: DataFrame) -> str:
    table = found.toArrow()
    values = []
    names = []
    for place, attnum in enumerate(attnums):
        column = relation.numbered(attnum)
        assert column is not None
        names.append(column.name)
        values.append(write_text(table.column(place).combine_chunks(), column.type_oid, column.typmod)[0].as_py())
    return f"({', '.join(names)})=({', '.join(str(value) for value in values)})"
