"""Measure row filters: a node's compiled filter, the nearest Spark SQL filter, and PostgreSQL's WHERE.

Called by `__main__`. The same expressions create the rows of a Parquet folder and of a PostgreSQL table. Each run counts the rows that
pass the filter, and all three counts must be equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psycopg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.expression.node import ColumnRef, walk
from headgate.expression.spark import compiler
from headgate.rowfilter.filter import bind_filter
from headgate.sql.parser import parse_expression
from headgate.types import registry, typmod

COLUMNS = (
    ("id", "bigint", "id"),
    ("a", "integer", "CAST((id * 7919) % 1000003 AS integer)"),
    ("b", "integer", "CAST((id * 31) % 1009 AS integer)"),
    ("n", "numeric(12,2)", "CAST((id % 100000) / 8.0 AS numeric(12,2))"),
    ("s", "text", "CASE id % 5 WHEN 0 THEN 'new' WHEN 1 THEN 'Paid' WHEN 2 THEN 'sent' WHEN 3 THEN 'VOID' ELSE 'held' END"),
    ("t", "text", "md5(CAST(id AS text)) || '-' || CAST(id AS text)"),
    ("d", "date", "CAST('2015-01-01' AS date) + CAST(id % 4000 AS integer)"),
)
"""(name, type, expression in PostgreSQL's SQL; `_spark_expression` translates it for Spark)"""


@dataclass(frozen=True)
class Case:
    """A filter, and the nearest Spark SQL. `needs_correction`: Spark has no exact expression for a part of the filter."""

    name: str
    where: str
    spark: str
    needs_correction: bool = False


CASES = (
    Case("simple", "a > 500000", "a > 500000"),
    Case(
        "five terms",
        "a > 100000 AND b BETWEEN 10 AND 900 AND s IN ('new', 'sent') AND n >= 12.50 AND d >= '2016-03-01'",
        "a > 100000 AND b BETWEEN 10 AND 900 AND s IN ('new', 'sent') AND n >= 12.50 AND d >= DATE'2016-03-01'",
    ),
    Case(
        "text",
        "t LIKE '%77%' AND lower(s) <> 'void' AND t ~ '^[a-f0-9]+-[0-9]+$' AND length(t) > 35",
        "t LIKE '%77%' AND lower(s) <> 'void' AND t RLIKE '^[a-f0-9]+-[0-9]+$' AND length(t) > 35",
        needs_correction=True,
    ),
    Case(
        "text, in Python",
        "substring(t from '-(.+)') LIKE '%77'",
        "regexp_extract(t, '-(.+)', 1) LIKE '%77'",
        needs_correction=True,
    ),
)


def _spark_expression(text: str) -> str:
    return text.replace("AS text", "AS string").replace("AS numeric", "AS decimal")


def write_parquet(spark: SparkSession, folder: Path, rows: int) -> None:
    """Write the rows as Parquet."""
    frame = spark.range(rows).select(*(F.expr(_spark_expression(expression)).alias(name) for name, _, expression in COLUMNS))
    frame.write.mode("overwrite").parquet(str(folder))


def fill(connection: psycopg.Connection, rows: int) -> None:
    """Create a PostgreSQL table with the rows."""
    select_list = ", ".join(f"{expression} AS {name}" for name, _, expression in COLUMNS)
    connection.execute("DROP TABLE IF EXISTS filtered")
    connection.execute(f"CREATE TABLE filtered AS SELECT {select_list} FROM generate_series(0::bigint, {rows - 1}) g(id)".encode())
    connection.execute("VACUUM (FREEZE, ANALYZE) filtered")


def relation() -> SimpleNamespace:
    """Return the description of the table that `bind_filter` needs."""
    columns = []
    types = registry.builtin()
    for attnum, (name, type_name, _) in enumerate(COLUMNS, 1):
        is_numeric = "numeric" in type_name
        row = types.by_oid(registry.NUMERIC) if is_numeric else types.by_name(_CATALOG_NAMES.get(type_name, type_name))
        modifier = typmod.numeric(12, 2) if is_numeric else -1
        columns.append(SimpleNamespace(name=name, attnum=attnum, type_oid=row.oid, typmod=modifier, collation=row.collation))
    return SimpleNamespace(oid=16400, schema="public", name="filtered", columns=tuple(columns))


_CATALOG_NAMES = {"bigint": "int8", "integer": "int4"}


def timed_count(count: Callable[[], int]) -> tuple[float, int]:
    """Return the seconds of the call, and its result."""
    began = time.monotonic()
    rows = count()
    return time.monotonic() - began, rows


def measure(spark: SparkSession, connection: psycopg.Connection, folder: Path, case: Case, runs: int) -> dict[str, list[float]]:
    """Return the seconds of each run of 'PostgreSQL', 'Spark' and 'node'. A first run of each warms up and is not counted."""
    frame = spark.read.parquet(str(folder))
    bound = bind_filter(parse_expression(case.where), relation()).expression
    condition = compiler.compile(bound, {column.key: F.col(column.name) for column in walk(bound) if isinstance(column, ColumnRef)})

    def native() -> int:
        row = connection.execute(f"SELECT count(*) FROM filtered WHERE {case.where}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    engines: dict[str, Callable[[], int]] = {
        "PostgreSQL": native,
        "Spark": lambda: frame.where(case.spark).count(),
        "node": lambda: frame.where(condition).count(),
    }
    times: dict[str, list[float]] = {name: [] for name in engines}
    for run in range(runs + 1):
        counts = {}
        for name, count in engines.items():
            seconds, counts[name] = timed_count(count)
            if run:
                times[name].append(seconds)
        if len(set(counts.values())) != 1:
            raise AssertionError(f"{case.name}: {counts}")
    return times
