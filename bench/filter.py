"""Rows per second through row filters: a node's compiled filter, Spark's own filter as one would write it, PostgreSQL's WHERE.

Called by `__main__`. The same rows lie in a Parquet folder and in a table of PostgreSQL, made by the same formulas; each run counts
what passes, and all three must count the same. `correction`: the filter has parts for which Spark has no exact expression.
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
"""(name, type, the formula in PostgreSQL's SQL, which Spark takes as well)."""


@dataclass(frozen=True)
class Case:
    """A filter, and the Spark SQL that is nearest to it."""

    name: str
    where: str
    spark: str
    correction: bool = False


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
        correction=True,
    ),
    Case(
        "text, in Python",
        "substring(t from '-(.+)') LIKE '%77'",
        "regexp_extract(t, '-(.+)', 1) LIKE '%77'",
        correction=True,
    ),
)


def _formula(text: str) -> str:
    """The formula as Spark takes it."""
    return text.replace("AS text", "AS string").replace("AS numeric", "AS decimal")


def write_parquet(spark: SparkSession, folder: Path, rows: int) -> None:
    """The rows as Parquet."""
    frame = spark.range(rows).select(*(F.expr(_formula(formula)).alias(name) for name, _, formula in COLUMNS))
    frame.write.mode("overwrite").parquet(str(folder))


def fill(connection: psycopg.Connection, rows: int) -> None:
    """The rows as a table of PostgreSQL."""
    made = ", ".join(f"{formula} AS {name}" for name, _, formula in COLUMNS)
    connection.execute("DROP TABLE IF EXISTS filtered")
    connection.execute(f"CREATE TABLE filtered AS SELECT {made} FROM generate_series(0::bigint, {rows - 1}) g(id)".encode())
    connection.execute("VACUUM (FREEZE, ANALYZE) filtered")


def relation() -> SimpleNamespace:
    """The table as a row filter wants it."""
    columns = []
    for place, (name, kind, _) in enumerate(COLUMNS, 1):
        found = registry.builtin().by_oid(registry.NUMERIC) if "numeric" in kind else registry.builtin().by_name(_CATALOG.get(kind, kind))
        modifier = typmod.numeric(12, 2) if "numeric" in kind else -1
        columns.append(SimpleNamespace(name=name, attnum=place, type_oid=found.oid, typmod=modifier, collation=found.collation))
    return SimpleNamespace(oid=16400, schema="public", name="filtered", columns=tuple(columns))


_CATALOG = {"bigint": "int8", "integer": "int4"}


def seconds(work: Callable[[], int]) -> tuple[float, int]:
    """How long it took, and what it counted."""
    started = time.monotonic()
    counted = work()
    return time.monotonic() - started, counted


def three(spark: SparkSession, connection: psycopg.Connection, folder: Path, case: Case, runs: int) -> dict[str, list[float]]:
    """The seconds of each of 'PostgreSQL', 'Spark', 'node', in turn; one warm run is thrown away."""
    frame = spark.read.parquet(str(folder))
    bound = bind_filter(parse_expression(case.where), relation(), case.where).expression
    ours = compiler.compile(bound, {each.key: F.col(each.name) for each in walk(bound) if isinstance(each, ColumnRef)})

    def native() -> int:
        row = connection.execute(f"SELECT count(*) FROM filtered WHERE {case.where}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    works: dict[str, Callable[[], int]] = {
        "PostgreSQL": native,
        "Spark": lambda: frame.where(case.spark).count(),
        "node": lambda: frame.where(ours).count(),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(runs + 1):
        counted = {}
        for name, work in works.items():
            taken, counted[name] = seconds(work)
            if number:
                times[name].append(taken)
        if len(set(counted.values())) != 1:
            raise AssertionError(f"{case.name}: {counted}")
    return times
