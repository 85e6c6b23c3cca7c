"""A subquery in an expression can use columns of the query around it, within limits that an error states."""

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
