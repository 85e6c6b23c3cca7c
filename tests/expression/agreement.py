"""Evaluate many generated expressions over a table with the compiled Column and with PostgreSQL, and compare the results row by row.

``python -m tests.expression.agreement --count 20000 --seed 1 --database 'host=… port=…'`` runs any number of expressions. It prints each
difference as a `Probe` that can be pasted into a test. `test_generated` runs a few expressions. Each round has its own table. PostgreSQL
evaluates all expressions of a round in one query, and Spark as many as fit into one query. Errors are caught for each row (`caught`), so
that every row's SQLSTATE is compared. Errors in the arguments of Python functions cannot be caught. For such expressions, Spark does not
evaluate the rows for which PostgreSQL raises an error. Then one such row for each expression and SQLSTATE is evaluated alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from random import Random
from threading import local

import psycopg
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.expression.caught import Caught
from tests.expression.comparison import Probe, nested, raised, scope_of, type_of
from tests.expression.generated import GRAMMAR
from tests.expression.grammar import Grammar, hidden, plain

from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.functions import network
from headgate.expression.node import Expression
from headgate.expression.spark import compiler
from headgate.expression.spark.session_time import SessionTime
from headgate.sql.parser import parse_expression
from headgate.storage.spark import failure
from headgate.types import registry, storage
from headgate.types.text import text

SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.extensions": "",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
}
"""Settings of the session of a long run. They omit everything that the expressions do not need."""
_REFUSED = "!0A000 [USER_RAISED_EXCEPTION] headgate:0A000:"
NOT_STORED = (f"{_REFUSED}cannot store a timestamp", f"{_REFUSED}cannot store NaN")
"""Errors for values that a column cannot store (`docs/compatibility.md`)."""
ROWS = 24
SESSION = SessionTime(instant=1_700_000_000_000_000)
ROUND = 100
BATCH = 50
_JUDGE = """
CREATE OR REPLACE FUNCTION pg_temp.judged(expression text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE result text[]; one text; place int;
BEGIN
  BEGIN
    EXECUTE 'SELECT array_agg((' || expression || ')::text ORDER BY place) FROM generated' INTO result;
    RETURN result;
  EXCEPTION WHEN OTHERS THEN NULL;
  END;
  FOR place IN SELECT g.place FROM generated g ORDER BY 1 LOOP
    BEGIN
      EXECUTE 'SELECT (' || expression || ')::text FROM generated WHERE place = $1' USING place INTO one;
    EXCEPTION WHEN OTHERS THEN one := '!' || SQLSTATE;
    END;
    result := result || one;
  END LOOP;
  RETURN result;
END $$
"""


@dataclass
class Report:
    """The number of expressions by outcome, and the `differences`, as probes with the expected and the actual value.

    The outcomes are 'agree', 'refused' (0A000), 'rejected' (both reject the expression), 'not stored' (some rows need a timestamp that
    Delta cannot store), 'other error' (both raise an error, but different ones, because several parts raise: `others`), and 'differ'.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)


@dataclass
class _Outcome:
    expression: str
    expected: list[str | None]
    bound: Expression | None = None
    got: list[str | None] = field(default_factory=list)
    alone: bool = False
    """Whether the rows that raise are evaluated one by one."""

    @property
    def failing(self) -> list[int]:
        return [index for index, result in enumerate(self.expected) if raised(result)]


class Agreement:
    """The comparison of a grammar's expressions in Spark and in PostgreSQL."""

    def __init__(
        self,
        spark: SparkSession,
        connection: psycopg.Connection,
        grammar: Grammar = GRAMMAR,
        *,
        caught: Caught | None = None,
        interpreted: bool = False,
    ) -> None:
        """`interpreted`: Spark computes in the driver, without a job unless it needs Python, which is much faster for few rows.

        `caught`: catches errors in sessions without generated code. Without it, each row that raises an error is evaluated alone.
        """
        self.interpreted = interpreted
        self.spark = spark
        self.connection = connection
        self.grammar = grammar
        self.columns = grammar.columns
        self.columns_by_name = {name: F.col(name) for name, _ in self.columns}
        self.caught = caught
        connection.execute(_JUDGE)

    def run(self, count: int, seed: int, *, rows: int = ROWS, depth: int = 3) -> Report:
        """Compare `count` expressions that the seed generates, in rounds."""
        report = Report()
        for number, start in enumerate(range(0, count, ROUND)):
            random = Random(f"{seed}/{number}")
            table = [self.grammar.row(random) for _ in range(rows)]
            expressions = [self.grammar.expression(random, 1 + index % depth) for index in range(min(ROUND, count - start))]
            self.round(expressions, table, report)
        return report

    def round(self, expressions: Sequence[str], table: Sequence[tuple[str | None, ...]], report: Report) -> None:
        """Compare the expressions over one table."""
        outcomes = [
            _Outcome(plain(expression), expected)
            for expression, expected in zip(expressions, self._expected(expressions, table), strict=True)
        ]
        planned = []
        for outcome in outcomes:
            try:
                outcome.bound = binder.bind(parse_expression(outcome.expression), scope_of(self.columns), context=BindContext())
                compiler.check(outcome.bound, SESSION)
                planned.append(outcome)
            except PostgresError as error:
                self._not_bound(outcome, error, report)
        frame = self._frame(table)
        for start in range(0, len(planned), BATCH):
            self._batch(frame, planned[start : start + BATCH])
        for outcome in planned:
            if outcome.got != outcome.expected:
                self._folded(outcome)
            if outcome.got == outcome.expected:
                report.outcomes["agree"] += 1
                continue
            pairs = list(zip(outcome.got, outcome.expected, strict=True))
            if all(a == b or (a or "").startswith(NOT_STORED) for a, b in pairs):
                report.outcomes["not stored"] += 1
                continue
            if all(a == b or (raised(a) and raised(b)) for a, b in pairs):
                report.outcomes["other error"] += 1
                report.others.append(self._difference(outcome, table))
                continue
            report.outcomes["differ"] += 1
            report.differences.append(self._difference(outcome, table))

    def _not_bound(self, outcome: _Outcome, error: PostgresError, report: Report) -> None:
        same = all(value == f"!{error.sqlstate}" for value in outcome.expected)
        if same or error.sqlstate == "0A000":
            report.outcomes["rejected" if same else "refused"] += 1
            if not same:
                report.refusals[error.message] += 1
            return
        report.outcomes["differ"] += 1
        report.differences.append(f"{outcome.expression!r} expected {outcome.expected} but is not bound: {error.sqlstate} {error.message}")

    def _expected(self, expressions: Sequence[str], table: Sequence[tuple[str | None, ...]]) -> list[list[str | None]]:
        names = ", ".join(f'"{name}" {kind}' for name, kind in self.columns)
        self.connection.execute(f"DROP TABLE IF EXISTS generated; CREATE TEMP TABLE generated (place int PRIMARY KEY, {names})".encode())
        marks = ", ".join(["%s"] * (len(self.columns) + 1))
        with self.connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO generated VALUES ({marks})".encode(), [(place, *row) for place, row in enumerate(table)])
        query = "SELECT pg_temp.judged(e) FROM unnest(%s::text[]) WITH ORDINALITY u(e, o) ORDER BY o"
        return [row[0] for row in self.connection.execute(query, ([hidden(expression) for expression in expressions],)).fetchall()]

    def _folded(self, outcome: _Outcome) -> None:
        """Accept PostgreSQL's result with literals that its planner can fold: those in `expected` are hidden from the planner."""
        query = "SELECT pg_temp.judged(%s)"
        [folded] = self.connection.execute(query, (outcome.expression,)).fetchone() or [None]
        if folded is not None:
            outcomes = zip(outcome.expected, folded, outcome.got, strict=True)
            outcome.expected = [folded_result if _same(got, folded_result) else result for result, folded_result, got in outcomes]
            outcome.got = [result if _same(got, result) else got for result, got in zip(outcome.expected, outcome.got, strict=True)]

    def _frame(self, table: Sequence[tuple[str | None, ...]]) -> DataFrame:
        arrays: dict[str, pa.Array] = {"place": pa.array(range(len(table)), pa.int32())}
        for number, (name, kind) in enumerate(self.columns):
            oid, modifier = type_of(kind)
            arrays[name] = text.read_text(pa.array([row[number] for row in table], pa.string()), oid, modifier)
        frame = self.spark.createDataFrame(pa.table(arrays))
        if not self.interpreted:
            frame = frame.coalesce(1)
        for name, array in arrays.items():
            if pa.types.is_timestamp(array.type) and array.type.tz is None:
                frame = frame.withColumn(name, F.col(name).cast("timestamp_ntz"))
        return frame

    def _batch(self, frame: DataFrame, judged: Sequence[_Outcome]) -> None:
        """Evaluate all rows. If the Spark job fails, split the batch into halves."""
        try:
            outputs = [self._column(outcome).alias(f"r{number}") for number, outcome in enumerate(judged)]
            result = frame.select("place", *outputs).toArrow().sort_by("place")
        except Exception:  # noqa: BLE001 (after any error of Spark, the rows are evaluated separately)
            if len(judged) == 1:
                self._row_by_row(frame, judged[0])
                return
            self._batch(frame, judged[: len(judged) // 2])
            self._batch(frame, judged[len(judged) // 2 :])
            return
        for place, outcome in enumerate(judged):
            values = result.column(place + 1).combine_chunks()
            errors: list[str | None] = []
            if self.caught is not None:
                values, caught = values.flatten()
                errors = caught.to_pylist()
            outcome.got = shown(values, outcome.bound)
            for row, error in enumerate(errors):
                if error is not None:
                    outcome.got[row] = _error(error, outcome.expected[row])
            if outcome.alone:
                self._raise(frame, outcome)

    def _column(self, outcome: _Outcome) -> Column:
        assert outcome.bound is not None
        compiled = compiler.compile(outcome.bound, self.columns_by_name, SESSION)
        outcome.alone = bool(outcome.failing) and (self.caught is None or (nested(outcome.bound) and not self.caught.safe(compiled)))
        if outcome.alone:
            needed = ~F.col("place").isin(outcome.failing)
            compiled = F.when(needed, compiler.compile(outcome.bound, self.columns_by_name, SESSION, needed=needed))
        return compiled if self.caught is None else self.caught.column(compiled)

    def _raise(self, frame: DataFrame, outcome: _Outcome) -> None:
        """Evaluate one row for each SQLSTATE that PostgreSQL raises."""
        rows = {outcome.expected[place]: place for place in reversed(outcome.failing)}
        for place in outcome.failing:
            outcome.got[place] = outcome.expected[place]
        for place in rows.values():
            outcome.got[place] = self._one_row(frame, outcome, place)

    def _row_by_row(self, frame: DataFrame, outcome: _Outcome) -> None:
        """Evaluate each row alone, because an error that is not caught fails the job for all rows."""
        outcome.got = [self._one_row(frame, outcome, place) for place in range(len(outcome.expected))]

    def _one_row(self, frame: DataFrame, outcome: _Outcome, place: int) -> str | None:
        assert outcome.bound is not None
        compiled = compiler.compile(outcome.bound, self.columns_by_name, SESSION)
        try:
            result = frame.where(F.col("place") == place).select(compiled.alias("r")).toArrow()
            return shown(result.column(0).combine_chunks(), outcome.bound)[0]
        except Exception as error:  # noqa: BLE001 (Spark's error is the result)
            return _error(str(error), outcome.expected[place])

    def _difference(self, outcome: _Outcome, table: Sequence[tuple[str | None, ...]]) -> str:
        """Return a probe with the columns and the first row that show the difference."""
        place = next(place for place, pair in enumerate(zip(outcome.expected, outcome.got, strict=True)) if pair[0] != pair[1])
        got = outcome.got[place]
        used = [number for number, (name, _) in enumerate(self.columns) if f"{name}" in _words(outcome.expression)]
        columns = tuple(self.columns[number] for number in used)
        probe = Probe(outcome.expression, columns, (tuple(table[place][number] for number in used),))
        return f"{probe!r}  # expected {outcome.expected[place]!r} got {got!r}"


def _error(raised_text: str, expected: str | None) -> str:
    actual = f"!{failure.from_spark(RuntimeError(raised_text)).sqlstate}"
    return actual if actual == expected else f"{actual} {raised_text[:300]}"


def _same(got: str | None, expected: str | None) -> bool:
    """Return whether the values are the same, or errors with the same SQLSTATE."""
    return got == expected or (raised(got) and raised(expected) and str(got)[:6] == str(expected)[:6])


def _words(expression: str) -> set[str]:
    return set("".join(character if character.isalnum() or character == "_" else " " for character in expression).split())


def shown(column: pa.Array, bound: Expression | None) -> list[str | None]:
    """Return the values as PostgreSQL's cast to text shows them."""
    assert bound is not None
    kind = bound.type
    storage_type = storage.arrow_type(kind.oid, kind.typmod)
    values = text.write_text(column if column.type == storage_type else column.cast(storage_type), kind.oid).to_pylist()
    if kind.oid == registry.BOOL:
        return [None if value is None else {"t": "true", "f": "false"}[value] for value in values]
    if kind.oid in (registry.INET, registry.CIDR):
        return [None if value is None else network.shown(value) for value in values]
    return [value.rstrip(" ") if value is not None and kind.oid == registry.BPCHAR else value for value in values]


def _reports(session: SparkSession, database: str, rounds: Sequence[tuple[int, int]], depth: int, threads: int) -> Iterator[Report]:
    """Yield the reports of rounds as they complete. Each round is given by its number of expressions and its seed."""
    thread_state = local()

    def run(count: int, seed: int) -> Report:
        if not hasattr(thread_state, "agreement"):
            connection = psycopg.connect(database, autocommit=True)
            connection.execute("SET timezone = 'UTC'")
            thread_state.agreement = Agreement(session, connection, caught=caught, interpreted=True)
        report: Report = thread_state.agreement.run(count, seed, depth=depth)
        return report

    caught = Caught(session)
    with ThreadPoolExecutor(threads) as pool:
        for future in as_completed([pool.submit(run, count, seed) for count, seed in rounds]):
            yield future.result()


def main() -> int:
    """Run the comparison. Return 1 if there is a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--database", required=True, help="a PostgreSQL 15 with C collation, as a connection string")
    options = parser.parse_args()
    from headgate.storage.spark.application import spark_session as spark

    session = spark.start(SETTINGS)
    total = Report()
    started = time.monotonic()
    rounds = [(min(ROUND, options.count - start), options.seed * 1_000_000 + start) for start in range(0, options.count, ROUND)]
    for report in _reports(session, options.database, rounds, options.depth, options.threads):
        total.outcomes.update(report.outcomes)
        total.refusals.update(report.refusals)
        total.differences += report.differences
        for outcome in report.differences + report.others:
            print(outcome, flush=True)
        shown_so_far = ", ".join(f"{times} {name}" for name, times in total.outcomes.items())
        print(f"{sum(total.outcomes.values())} in {time.monotonic() - started:.0f} s: {shown_so_far}", flush=True)
    for message, times in total.refusals.most_common(20):
        print(f"{times} refused: {message}")
    session.stop()
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main())
