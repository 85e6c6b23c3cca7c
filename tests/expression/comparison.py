"""Compare the values of expressions in PostgreSQL and in the compiled Column.

A `Probe` is an expression over columns, with rows of text values. `Comparison.run` returns the `Verdict` on each probe. One query evaluates
many probes. Rows for which PostgreSQL raises an error are in separate queries, in which `caught` returns Spark's error for each row. An
error in an argument of a Python function cannot be caught: for such expressions, one row for each SQLSTATE is evaluated in a separate
query.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace

import psycopg
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from tests.expression.caught import Caught

from headgate.errors import PostgresError
from headgate.expression import node
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope, ScopeColumn, relation_scope
from headgate.expression.functions import network
from headgate.expression.node import Expression, TypeRef
from headgate.expression.spark import compiler
from headgate.expression.spark.session_time import SessionTime
from headgate.sql import names
from headgate.sql.parser import parse_expression, unwrap
from headgate.storage.spark import failure
from headgate.types import registry, storage
from headgate.types.text import text
from headgate.types.text_column import TextSettings

BATCH = 60


@dataclass(frozen=True)
class Probe:
    """An expression, its columns as (name, PostgreSQL type) and rows of texts."""

    expression: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str | None, ...], ...]
    label: str = ""


@dataclass
class Verdict:
    """The result of a probe: 'agree', 'refused' (0A000 when it is bound), 'rejected' (both reject it) or 'differ'."""

    probe: Probe
    outcome: str = "agree"
    expected: list[str | None] = field(default_factory=list)
    got: list[str | None] = field(default_factory=list)
    why: str = ""

    def __str__(self) -> str:
        return f"{self.probe.expression!r} over {self.probe.columns}: rows {self.probe.rows} expected {self.expected} got {self.got} {self.why}"


Planned = tuple[Verdict, Expression, list[int]]
"""Parts to evaluate: the verdict, the bound expression, and the numbers of the rows."""


def type_of(name: str) -> tuple[int, int]:
    """Return (oid, typmod) of a type as written in SQL."""
    cast = parse_expression(f"NULL::{name}")
    return names.type_name(unwrap(cast).type_name)


def scope_of(columns: Sequence[tuple[str, str]], prefix: str = "", table: str = "t") -> Scope:
    """Return a scope with these columns, keyed by prefix and name."""
    columns_by_key = []
    for place, (name, kind) in enumerate(columns, 1):
        oid, modifier = type_of(kind)
        type_entry = registry.by_oid(oid)
        columns_by_key.append(ScopeColumn(name, place, TypeRef(oid, modifier, type_entry.collation), prefix + name))
    return relation_scope(table, "public", columns_by_key)


class Comparison:
    """A Spark session and a PostgreSQL session in which probes are evaluated."""

    def __init__(self, spark: SparkSession, connection: psycopg.Connection, *, timezone: str = "UTC") -> None:
        """`timezone`: that of the Spark session and of `connection`."""
        self.spark = spark
        self.connection = connection
        self.context = BindContext(forms=TextSettings(timezone))
        self.session = SessionTime(self.context.forms, time.time_ns() // 1000)

    def run(self, probes: Sequence[Probe]) -> list[Verdict]:
        """Return the verdicts, in order."""
        verdicts = [Verdict(probe) for probe in probes]
        planned: list[tuple[Verdict, Expression]] = []
        for verdict in verdicts:
            verdict.expected = self.expected(verdict.probe)
            try:
                bound = binder.bind(parse_expression(verdict.probe.expression), scope_of(verdict.probe.columns), context=self.context)
                compiler.check(bound, self.session)
            except PostgresError as error:
                same = all(result == f"!{error.sqlstate}" for result in verdict.expected)
                verdict.outcome = "rejected" if same else "refused" if error.sqlstate == "0A000" else "differ"
                verdict.why = f"{error.sqlstate} {error.message}"
                continue
            planned.append((verdict, bound))
        for verdict, _ in planned:
            verdict.got = [None] * len(verdict.expected)
        succeeding = [
            (verdict, bound, [row_number for row_number, result in enumerate(verdict.expected) if not raised(result)])
            for verdict, bound in planned
        ]
        succeeding = [part for part in succeeding if part[2]]
        for start in range(0, len(succeeding), BATCH):
            self._batch(succeeding[start : start + BATCH])
        failing = [
            (verdict, bound, [row_number for row_number, result in enumerate(verdict.expected) if raised(result)])
            for verdict, bound in planned
        ]
        catchable = [part for part in failing if part[2] and self._is_caught(part[1], part[0].probe)]
        with interpreted(self.spark):
            for start in range(0, len(catchable), BATCH):
                self._batch(catchable[start : start + BATCH], catcher(self.spark))
        caught = {id(verdict) for verdict, _, _ in catchable}
        for verdict, bound, places in failing:
            if id(verdict) not in caught:
                self._alone(verdict, bound, places)
        for verdict, _ in planned:
            if verdict.got != verdict.expected:
                verdict.outcome = "differ"
        return verdicts

    def expected(self, probe: Probe) -> list[str | None]:
        """Return PostgreSQL's text for each row, or ``!SQLSTATE`` for an error."""
        results: list[str | None] = []
        for row in probe.rows:
            columns_of_row = ", ".join(
                ("NULL" if value is None else "'" + value.replace("'", "''") + "'") + f'::{kind} AS "{name}"'
                for (name, kind), value in zip(probe.columns, row, strict=True)
            )
            try:
                result = self.connection.execute(
                    f"SELECT ({probe.expression})::text FROM (SELECT {columns_of_row} OFFSET 0) t".encode()
                ).fetchone()
                results.append(result[0] if result else None)
            except psycopg.Error as error:
                results.append(f"!{error.sqlstate}")
        return results

    def _batch(self, planned: Sequence[Planned], caught: Caught | None = None) -> None:
        """Evaluate rows of many probes in one query, in which errors are caught if `caught`. If it fails, split the batch into halves."""
        work = [(verdict.probe, bound, [verdict.probe.rows[place] for place in places]) for verdict, bound, places in planned]
        try:
            results = self._evaluate(work, caught)
        except Exception as error:  # noqa: BLE001 (Spark's error is the result)
            if len(planned) == 1:
                verdict, bound, places = planned[0]
                if caught is None:
                    verdict.why = str(error)[:600]
                    for place in places:
                        verdict.got[place] = f"!{failure.from_spark(error).sqlstate}"
                else:
                    self._alone(verdict, bound, places)
                return
            middle = len(planned) // 2
            self._batch(planned[:middle], caught)
            self._batch(planned[middle:], caught)
            return
        for (verdict, _, places), values in zip(planned, results, strict=True):
            for place, value in zip(places, values, strict=True):
                verdict.got[place] = value

    def _is_caught(self, bound: Expression, probe: Probe) -> bool:
        """Return whether all errors of a row can be caught: no Python function has an argument that may raise."""
        if not nested(bound):
            return True
        return catcher(self.spark).safe(compiler.compile(bound, {name: F.col(name) for name, _ in probe.columns}, self.session))

    def _alone(self, verdict: Verdict, bound: Expression, places: Sequence[int]) -> None:
        """Evaluate one row for each SQLSTATE that PostgreSQL raises."""
        for place in places:
            verdict.got[place] = verdict.expected[place]
        for place in {verdict.expected[place]: place for place in reversed(places)}.values():
            verdict.got[place] = self._single(verdict.probe, bound, verdict.probe.rows[place])

    def _single(self, probe: Probe, bound: Expression, row: tuple[str | None, ...]) -> str | None:
        try:
            return self._evaluate([(probe, bound, (row,))])[0][0]
        except PostgresError as error:
            return f"!{error.sqlstate}"
        except Exception as error:  # noqa: BLE001 (any error of Spark is a result)
            return f"!{failure.from_spark(error).sqlstate}"

    def _evaluate(
        self, work: Sequence[tuple[Probe, Expression, Sequence[tuple[str | None, ...]]]], caught: Caught | None = None
    ) -> list[list[str | None]]:
        height = max(len(rows) for _, _, rows in work)
        arrays: dict[str, pa.Array] = {"row": pa.array(range(height), pa.int32())}
        outputs: list[Column] = []
        for place, (probe, bound, rows) in enumerate(work):
            columns: dict[str, Column] = {}
            for number, (name, kind) in enumerate(probe.columns):
                values = [row[number] for row in rows] + [None] * (height - len(rows))
                oid, modifier = type_of(kind)
                arrays[f"c{place}_{number}"] = text.read_text(pa.array(values, pa.string()), oid, modifier, session=self.context.forms)
                columns[name] = F.col(f"c{place}_{number}")
            compiled = compiler.compile(bound, columns, self.session)
            if caught is not None:
                compiled = caught.column(compiled)
            outputs.append(F.when(F.col("row") < len(rows), compiled).alias(f"r{place}"))
        frame = self.spark.createDataFrame(pa.table(arrays)).coalesce(1)
        for name, array in arrays.items():
            if pa.types.is_timestamp(array.type) and array.type.tz is None:
                frame = frame.withColumn(name, F.col(name).cast("timestamp_ntz"))
        result = frame.select(*outputs).toArrow()
        texts_by_probe: list[list[str | None]] = []
        for place, (_, bound, rows) in enumerate(work):
            column = result.column(place).combine_chunks().slice(0, len(rows))
            errors: list[str | None] = []
            if caught is not None:
                column, raising = column.flatten()
                errors = raising.to_pylist()
            storage_type = storage.arrow_type(bound.type.oid, bound.type.typmod)
            if column.type != storage_type:
                column = column.cast(storage_type)
            texts = text.write_text(column, bound.type.oid, session=self.context.forms).to_pylist()
            if bound.type.oid in (registry.INET, registry.CIDR):
                texts = [None if value is None else network.shown(value) for value in texts]
            elif bound.type.oid == registry.BOOL:
                texts = [None if value is None else {"t": "true", "f": "false"}[value] for value in texts]
            elif bound.type.oid == registry.BPCHAR:
                texts = [None if value is None else value.rstrip(" ") for value in texts]
            for row, error in enumerate(errors):
                if error is not None:
                    texts[row] = f"!{failure.from_spark(RuntimeError(error)).sqlstate}"
            texts_by_probe.append(texts)
        return texts_by_probe


@cache
def catcher(spark: SparkSession) -> Caught:
    """Return the object that catches errors in a session. It is created once."""
    return Caught(spark)


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Use the session without generated code, as `caught` requires, and without the elimination of common subexpressions."""
    names = {
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.subexpressionElimination.enabled": "false",
        # it would move the catching expression into the branches of a CASE, where it does not catch errors of the conditions
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches",
    }
    values_before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in values_before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def nested(expression: Expression) -> bool:
    """Return whether an expression contains a call, which may raise an error before the expression itself is evaluated."""
    calls = [part for part in node.walk(expression) if part is not expression]
    return any(isinstance(call, node.FuncExpr | node.OpExpr | node.CoerceViaIO | node.ArrayCoerce | node.ArrayExpr) for call in calls)


def raised(text: str | None) -> bool:
    """Return whether a result stands for an error."""
    return text is not None and text.startswith("!")


def table_of(columns: Sequence[tuple[str, str]], name: str = "t") -> SimpleNamespace:
    """Return a relation for `bind_filter`."""
    described = []
    for place, (column, kind) in enumerate(columns, 1):
        oid, modifier = type_of(kind)
        described.append(
            SimpleNamespace(name=column, attnum=place, type_oid=oid, typmod=modifier, collation=registry.by_oid(oid).collation)
        )
    return SimpleNamespace(oid=16400, schema="public", name=name, columns=tuple(described))
