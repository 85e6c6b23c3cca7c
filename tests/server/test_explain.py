"""EXPLAIN with what Spark has measured, in the form that programs read."""

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
    """A step and all below it."""
    return [node, *(each for inner in node.get("Plans", []) for each in steps(inner))]


def test_analyze_counts_the_rows_of_each_step_in_json(link: psycopg.Connection) -> None:
    [(found,)] = link.execute("EXPLAIN (ANALYZE, FORMAT JSON) SELECT b, count(*) FROM t WHERE a <= 20000 GROUP BY b").fetchall()
    [explained] = found  # a driver reads json
    rows = {step["Node Type"].strip(): step.get("Actual Rows") for step in steps(explained["Plan"])}
    assert rows["Scan parquet"] == 30000
    assert rows["Filter"] == 20000
    assert explained["Execution Time"] > 0
    assert explained["Planning Time"] > 0


def test_analyze_as_text_ends_with_the_times_unless_they_are_not_wanted(link: psycopg.Connection) -> None:
    lines = [line for (line,) in link.execute("EXPLAIN ANALYZE SELECT count(*) FROM t")]
    assert any("FileScan parquet" in line or "actual rows=1 loops=1" in line for line in lines)
    assert [line.split(":")[0] for line in lines[-2:]] == ["Planning Time", "Execution Time"]
    assert link.execute("EXPLAIN (ANALYZE, SUMMARY OFF) SELECT relname FROM pg_class WHERE relname = 'pg_type'").fetchall() == [
        ("Catalog Query  (actual rows=1 loops=1)",)
    ]


def test_analyze_raises_what_the_query_raises_and_plain_explain_does_not_run_it(link: psycopg.Connection) -> None:
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
def test_what_ended_in_an_error_of_pythons_or_in_another_message_is_as_in_postgresql(
    postgres: Server, node: Server, statements: str
) -> None:
    found = []
    for server in (node, postgres):
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
            answer: Any = None
            try:
                for each in statements.split("; "):
                    cursor = session.execute(each)  # type: ignore[arg-type]
                    answer = cursor.fetchall() if cursor.description else cursor.statusmessage
            except psycopg.Error as error:
                answer = error.sqlstate, error.diag.message_primary
            found.append(answer)
    assert found[0] == found[1]
