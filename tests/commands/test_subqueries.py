"""Queries whose meaning a node does not have are rejected, with an error that states the limit."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, (SELECT sum(z.v) FROM y z, LATERAL (SELECT z.v + x.v AS q) w WHERE q > 1) FROM x",
        "SELECT id FROM x WHERE v IN (SELECT y.v + x.v FROM y UNION SELECT x.id)",
        "SELECT id, (SELECT count(*) FROM (SELECT y.v FROM y WHERE y.v + x.v > 1 UNION ALL SELECT 1) u) FROM x",
    ],
)
def test_aggregate_of_an_outer_column_in_a_nested_subquery_is_rejected_as_unsupported(node: Any, query: str) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE x (id int, v int); CREATE TABLE y (id int, v int)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="a subquery that names columns of the query around it"):
            session.execute(query.encode())


def test_query_that_would_have_other_rows_is_rejected_as_unsupported(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE x (v int); CREATE FUNCTION f(int) RETURNS SETOF int LANGUAGE sql AS 'SELECT $1'")
        for query, message in (
            (
                "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a FROM r) SEARCH DEPTH FIRST BY a SET s SELECT * FROM r",
                "the SEARCH clause",
            ),
            ("WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a FROM r) CYCLE a SET c USING p SELECT * FROM r", "the CYCLE clause"),
            ("SELECT v AS a, v AS b FROM x GROUP BY a, ROLLUP (b)", "equal expressions"),
            ("SELECT * FROM x, f(x.v)", "columns as arguments of the function f in FROM"),
        ):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=message):
                session.execute(query.encode())
