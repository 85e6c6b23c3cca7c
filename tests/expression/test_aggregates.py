"""Aggregates and sort order give a real PostgreSQL's values on the same rows."""

from __future__ import annotations

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.expression.comparison import scope_of, type_of

from headgate.expression.binding.binder import bind
from headgate.expression.binding.context import BindContext
from headgate.expression.spark import compiler
from headgate.sql.parser import parse_expression
from headgate.types import storage
from headgate.types.text import text

COLUMNS = (
    ("k", "int4"),
    ("i", "int4"),
    ("l", "int8"),
    ("n", "numeric"),
    ("p", "numeric(10,2)"),
    ("f", "float8"),
    ("t", "text"),
    ("c", "char(3)"),
    ("b", "bool"),
    ("d", "date"),
    ("u", "interval"),
)
ROWS = (
    ("1", "1", "9223372036854775807", "1.10", "1.10", "1.5", "b", "a", "t", "2024-01-01", "1 mon"),
    ("1", "2", "9223372036854775807", "1.1", "2.20", "-0.5", "a", "ab", "f", "2023-01-01", "-1 days +00:00:00.5"),
    ("1", None, None, "12345678901234567890123456789012345678901234.5", None, None, None, None, None, None, None),
    ("2", "-5", "3", "NaN", "99999999.99", "0.25", "é", "b", "t", "2024-02-29", "2562047788:00:00"),
    ("2", "7", "-3", "Infinity", "-0.01", "4", "", "", "t", "1999-12-31", "1 year 2 mons"),
    ("3", None, None, None, None, None, None, None, None, None, None),
    ("4", "3", "1", "0.001", "1.00", "2", "z", "z", "f", "2024-01-01", "10:20:30"),
    ("4", "3", "2", "-2", "1.00", "2", "z", "z", "f", "2024-01-01", "-1 mons"),
    ("4", "4", "2", "7", "2.00", "3", "y", "y", "f", "2024-01-02", "3 days"),
)
AGGREGATES = (
    "count(*)", "count(i)", "count(DISTINCT n)", "count(DISTINCT c)", "sum(i)", "sum(l)", "sum(n)", "sum(p)", "sum(f)", "avg(i)", "avg(l)", "avg(n)",
    "avg(p)", "avg(f)", "min(n)", "max(n)", "min(t)", "max(t)", "min(c)", "max(d)", "min(p)", "max(f)", "bool_and(b)", "bool_or(b)", "every(b)",
    "count(*) FILTER (WHERE i > 1)", "sum(i) FILTER (WHERE b)", "sum(DISTINCT i)", "sum(i + 1) * 2", "coalesce(max(i), 0)", "sum(p) / count(*)",
    "string_agg(t, ',' ORDER BY t)", "string_agg(t, c ORDER BY i DESC NULLS LAST, t)", "string_agg(DISTINCT t, '-')", "string_agg(t, NULL ORDER BY t)",
    "array_agg(t ORDER BY n DESC, l)", "array_agg(i ORDER BY i NULLS FIRST, l)", "array_agg(n ORDER BY l, d, t)", "array_agg(DISTINCT t)",
    "array_agg(b ORDER BY l, d) FILTER (WHERE b)", "string_agg(i::text || t, ', ' ORDER BY l DESC, i DESC) FILTER (WHERE i > 0)",
    "upper(string_agg(t, ',' ORDER BY t))", "array_agg(d ORDER BY d DESC)", "array_agg(ARRAY[k] ORDER BY l)", "sum(i ORDER BY t)",
    "sum(u)", "avg(u)", "min(u)", "max(u)",
    "range_agg(int4range(least(i, k), greatest(i, k)))", "range_intersect_agg(int4range(least(i, k), 100))", "range_agg(nummultirange(numrange(p, NULL)))",
)  # fmt: skip


@pytest.mark.slow
def test_aggregates_give_postgresqls_values(spark: SparkSession, oracle: psycopg.Connection) -> None:
    frame = _frame(spark)
    expected = _expected(oracle, ", ".join(f"({aggregate})::text" for aggregate in AGGREGATES), "GROUP BY k ORDER BY k")
    keys = {name: F.col(name) for name, _ in COLUMNS}
    context = BindContext(aggregates=True)
    bound = [bind(parse_expression(aggregate), scope_of(COLUMNS), context=context) for aggregate in AGGREGATES]
    aggregated = frame.groupBy("k").agg(*(compiler.compile(expression, keys).alias(f"a{index}") for index, expression in enumerate(bound)))
    result = aggregated.coalesce(1).sortWithinPartitions("k").drop("k").toArrow()
    columns = []
    for column_index, bound_aggregate in enumerate(bound):
        column = (
            result.column(column_index).combine_chunks().cast(storage.arrow_type(bound_aggregate.type.oid, bound_aggregate.type.typmod))
        )
        texts = text.write_text(column, bound_aggregate.type.oid).to_pylist()
        columns.append([{"t": "true", "f": "false"}.get(value, value) if bound_aggregate.type.oid == 16 else value for value in texts])
    actual = list(zip(*columns, strict=True))
    wrong = [
        (AGGREGATES[index], [row[index] for row in expected], [row[index] for row in actual])
        for index in range(len(AGGREGATES))
        if [(row[index] or "").rstrip() for row in expected] != [(row[index] or "").rstrip() for row in actual]
    ]
    assert wrong == []


def test_values_sort_as_in_postgresql(spark: SparkSession, oracle: psycopg.Connection) -> None:
    frame = _frame(spark)
    keys = {name: F.col(name) for name, _ in COLUMNS}
    for name in ("l", "n", "p", "f", "t", "c", "d", "b"):
        expected = [row[0] for row in _expected(oracle, f"dense_rank() OVER (ORDER BY {name})", f"ORDER BY {name}, k, i")]
        bound = bind(parse_expression(name), scope_of(COLUMNS), context=BindContext())
        key = compiler.sort_key(bound, keys)
        rows = frame.select(key.alias("key"), "k", "i").orderBy(F.asc_nulls_last("key"), "k", F.asc_nulls_last("i")).select("key").collect()
        ranks: list[int] = []
        for index, row in enumerate(rows):
            ranks.append(1 if not index else ranks[-1] + (row[0] != rows[index - 1][0]))
        assert ranks == expected, name


def _frame(spark: SparkSession) -> DataFrame:
    arrays = {}
    for index, (name, kind) in enumerate(COLUMNS):
        oid, modifier = type_of(kind)
        arrays[name] = text.read_text(pa.array([row[index] for row in ROWS], pa.string()), oid, modifier)
    return spark.createDataFrame(pa.table(arrays)).coalesce(1)


def _expected(oracle: psycopg.Connection, select: str, rest: str) -> list[tuple[object, ...]]:
    values = ", ".join("(" + ", ".join("NULL" if value is None else f"'{value}'" for value in row) + ")" for row in ROWS)
    cast = ", ".join(f"v.{name}::{kind} AS {name}" for name, kind in COLUMNS)
    names = ", ".join(name for name, _ in COLUMNS)
    return oracle.execute(f"SELECT {select} FROM (SELECT {cast} FROM (VALUES {values}) v({names})) t {rest}".encode()).fetchall()
