"""Relations and rows for the tests of storage and changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headgate.catalog.relation.relation import Column, Relation
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.engine import Engine
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.types import registry

DATABASE = 5
INT8, TEXT, INT4 = registry.INT8, registry.TEXT, registry.INT4


def relation(oid: int, name: str, **columns: int | tuple[int, int]) -> Relation:
    """Return a table with these columns: type oid, or (type oid, typmod)."""
    described = []
    for number, (column, kind) in enumerate(columns.items(), 1):
        type_oid, typmod = kind if isinstance(kind, tuple) else (kind, -1)
        described.append(Column(number, column, type_oid, typmod))
    return Relation(oid, DATABASE, 2200, "public", name, "r", tuple(described))


def rows(table: Relation, *values: tuple[Any, ...]) -> pa.Table:
    """Return rows of a relation."""
    schema = arrow_row(table)
    return pa.table([pa.array([row[index] for row in values], field.type) for index, field in enumerate(schema)], schema=schema)


def made(engine: Engine, table: Relation, *values: tuple[Any, ...]) -> Relation:
    """Create a table with rows, in a separate transaction."""
    transaction = engine.begin(DATABASE)
    transaction.ddl.create(table)
    if values:
        transaction.append(table, rows(table, *values))
    transaction.commit()
    return table


def contents(reader: Engine | Transaction, table: Relation) -> list[tuple[Any, ...]]:
    """Return the rows of a table, sorted."""
    if isinstance(reader, Transaction):
        return _sorted(reader.reader.frame(table).toArrow())
    transaction = reader.begin(DATABASE)
    try:
        return _sorted(transaction.reader.frame(table).toArrow())
    finally:
        transaction.rollback()


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*[column.to_pylist() for column in table.columns], strict=True), key=repr)


def change(transaction: Transaction, table: Relation, condition: str, **values: str) -> int:
    """Run UPDATE … SET values WHERE condition (Spark's SQL), or a DELETE without values."""
    from pyspark.sql import functions as F

    changed_rows = transaction.reader.positions(table).where(condition)
    names = [column.name for column in table.columns]
    old = F.struct(*[F.col(quoted(name)).alias(name) for name in names])
    new = F.struct(*[F.expr(values[name]).alias(name) if name in values else F.col(quoted(name)).alias(name) for name in names])
    chosen = new if values else F.lit(None).cast(_struct(table))
    return transaction.rewrite(
        table, changed_rows.select(old.alias("old"), chosen.alias("new"), F.col(FILE).alias("file"), F.col(ROW).alias("row"))
    )


def _struct(table: Relation) -> Any:
    from headgate.storage.write import columns

    return columns(table)
