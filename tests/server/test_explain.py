"""EXPLAIN shows Spark's measurements in PostgreSQL's formats."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conftest import Server


@pytest.fixture(scope="module")
def link(node: Server) -> Any:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t SELECT g, 'x' || g % 10 FROM generate_series(1, 30000) g"
        )
        yield session


def steps(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Yield a step of the plan and all steps below it."""
    return [node, *(step for inner in node.get("Plans", []) for step in steps(inner))]


def test_analyze_counts_the_rows_of_each_step_in_json(link: psycopg.Connection) -> None:
    [(plan_document,)] = link.execute("EXPLAIN (ANALYZE, FORMAT JSON) SELECT b, count(*) FROM t WHERE a <= 20000 GROUP BY b").fetchall()
    [explained] = plan_document  # a driver reads json
    rows = {step["Node Type"].strip(): step.get("Actual Rows") for step in steps(explained["Plan"])}
    assert rows["Scan parquet"] == 20000  # of 30,000: Spark skips pages by their statistics
    assert rows["Filter"] == 20000
    assert explained["Execution Time"] > 0
    assert explained["Planning Time"] > 0


def test_analyze_as_text_ends_with_the_times_unless_summary_is_off(link: psycopg.Connection) -> None:
    lines = [line for (line,) in link.execute("EXPLAIN ANALYZE SELECT count(*) FROM t")]
    assert any("FileScan parquet" in line or "actual rows=1 loops=1" in line for line in lines)
    assert [line.split(":")[0] for line in lines[-2:]] == ["Planning Time", "Execution Time"]
    assert link.execute("EXPLAIN (ANALYZE, SUMMARY OFF) SELECT relname FROM pg_class WHERE relname = 'pg_type'").fetchall() == [
        ("Catalog Query  (actual rows=1 loops=1)",)
    ]


def test_catalog_answers_only_what_needs_it(link: psycopg.Connection) -> None:
    for query, by_catalog in {
        "SELECT * FROM pg_class": True,
        "WITH t AS (SELECT 1) SELECT * FROM t": True,
        "SELECT 'pg_class'::regclass": True,
        "SELECT pg_encoding_to_char(g) FROM generate_series(1, 3) g": True,  # Spark does not have the function
        "SELECT 1": False,
        "SELECT * FROM t": False,
        "SELECT * FROM pg_class WHERE EXISTS (SELECT 1 FROM t)": False,
        "SELECT bit_xor(1::smallint) FROM pg_am": False,  # DuckDB has no exact form
    }.items():
        lines = [line for (line,) in link.execute(f"EXPLAIN {query}").fetchall()]  # type: ignore[arg-type]
        assert (lines == ["Catalog Query"]) == by_catalog, query
        described = link.execute(query, prepare=True).description  # type: ignore[arg-type]
        assert described, "described as it is run"


def test_analyze_raises_the_errors_of_the_query_and_plain_explain_does_not_run_it(link: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        link.execute("EXPLAIN ANALYZE SELECT 1 / (a - 5) FROM t")
    assert link.execute("EXPLAIN SELECT 1 / (a - 5) FROM t").fetchall()


ODD = [
    "SELECT g FROM generate_series(1, 3) g ORDER BY g LIMIT 1.5",
    "PREPARE whole AS SELECT 1 WHERE 2 = $1; EXECUTE whole(1.5)",
    "PREPARE shown(text) AS SELECT $1; EXECUTE shown(1.50)",
    "PREPARE large AS SELECT 1 WHERE 2 = $1; EXECUTE large(99999999999)",
    "CREATE TABLE n (a int); ALTER TABLE n ADD PRIMARY KEY (nosuch)",
    "CREATE TABLE n (a int); ALTER TABLE n ADD UNIQUE (nosuch)",
]


@pytest.mark.parametrize("statements", ODD)
def test_odd_statements_return_postgresqls_rows_or_error(postgres: Server, node: Server, statements: str) -> None:
    outcomes = []
    for server in (node, postgres):
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
            answer: Any = None
            try:
                for statement in statements.split("; "):
                    cursor = session.execute(statement)  # type: ignore[arg-type]
                    answer = cursor.fetchall() if cursor.description else cursor.statusmessage
            except psycopg.Error as error:
                answer = error.sqlstate, error.diag.message_primary
            outcomes.append(answer)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t x, t y WHERE x.a + y.a = 4 AND x.a = y.a",
        "SELECT * FROM t x, t y WHERE x.a = y.a AND x.b = 'x1'",
        "SELECT * FROM t x, t y WHERE x.b = y.b",
        "SELECT * FROM t x, t y WHERE x.a + 1 = y.a",
        "SELECT * FROM t x, t y WHERE length(x.b) + x.a - 1 = length(y.b) + y.a AND x.b LIKE 'x%' AND x.a + y.a > 7",
        "SELECT * FROM t x, t y, t z WHERE x.b = y.b AND y.a + 1 = z.a AND x.a + z.a > 7 AND z.b LIKE 'x%'",
        "SELECT * FROM t x JOIN t y USING (b) WHERE x.a + y.a > 7",
        "SELECT * FROM t x, t y WHERE (x.a = y.a AND x.b = 'x1') OR (x.a = y.a AND y.b = 'x2' AND x.b LIKE 'x%')",
        "SELECT * FROM t x LEFT JOIN t y ON x.a + 1 = y.a - 1 AND y.b LIKE 'x%'",
        "SELECT * FROM t x WHERE EXISTS (SELECT 1 FROM t y WHERE x.a + y.a = 4 AND y.a = x.a)",
        "SELECT * FROM t x WHERE x.b LIKE 'x%' AND NOT EXISTS (SELECT 1 FROM t y WHERE y.b = x.b AND y.b LIKE 'x1%')",
        "SELECT * FROM t x WHERE 10 / a > 0 AND b IN (SELECT b FROM t)",
        "SELECT * FROM t x WHERE b LIKE 'x%' AND b NOT IN (SELECT b FROM t)",
    ],
)
def test_join_condition_with_an_equality_is_a_hash_or_merge_join(link: psycopg.Connection, query: str) -> None:
    plan = "\n".join(line for (line,) in link.execute(f"EXPLAIN {query}"))
    assert "NestedLoop" not in plan
    assert "CartesianProduct" not in plan
    assert "HashJoin" in plan or "SortMergeJoin" in plan


def test_range_of_the_key_is_pushed_to_the_files_beside_a_text_condition(link: psycopg.Connection) -> None:
    plan = "\n".join(line for (line,) in link.execute("EXPLAIN SELECT count(*) FROM t WHERE b LIKE 'x%' AND a > 29000"))
    assert "GreaterThan(a,29000)" in plan


def test_conditions_beside_a_term_that_may_raise_are_evaluated_below_the_join(link: psycopg.Connection) -> None:
    plan = "\n".join(line for (line,) in link.execute("EXPLAIN SELECT * FROM t x, t y WHERE x.a + y.a = 4 AND x.a < 100 AND y.a < 100"))
    above, *below = plan.split("NestedLoopJoin")
    assert "< 100" not in above
    assert "".join(below).count("< 100") == 2


@pytest.mark.parametrize("source", ["t x, t y WHERE x.a = y.a AND", "t x JOIN t y ON x.a = y.a WHERE", "t x JOIN t y USING (a) WHERE"])
def test_range_of_one_column_of_an_equality_is_pushed_to_the_files_of_the_other(link: psycopg.Connection, source: str) -> None:
    column = "a" if "USING" in source else "x.a"
    plan = "\n".join(line for (line,) in link.execute(f"EXPLAIN SELECT x.b, y.b FROM {source} {column} > 29000"))
    assert plan.count("GreaterThan(a,29000)") == 2
