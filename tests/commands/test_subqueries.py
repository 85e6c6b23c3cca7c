"""What a subquery in an expression may name of the query around it."""

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
def test_a_sum_of_the_outer_query_in_a_subquery_of_a_subquery_was_said_to_be_out_of_range(node: Any, query: str) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE x (id int, v int); CREATE TABLE y (id int, v int)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="a subquery that names columns of the query around it"):
            session.execute(query.encode())
