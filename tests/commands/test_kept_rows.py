"""Rows that Spark persists for a statement are released with it. Spark's pages show what is persisted.

Otherwise they would stay in memory or on disk as long as the node runs, together with the plan that computed them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests import spark_pages
from tests.conftest import NodeServer, Server, SqlError, until
from tests.spark_pages import SparkPages

MADE = """
CREATE TABLE source AS SELECT i, md5(i::text) || md5((-i)::text) AS t FROM generate_series(1, 50000) i;
CREATE TABLE numbered (id bigserial PRIMARY KEY, other bigserial, v int, t text);
CREATE TABLE parted (id bigint GENERATED ALWAYS AS IDENTITY, v int, t text) PARTITION BY RANGE (v);
CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (25000);
CREATE TABLE high PARTITION OF parted FOR VALUES FROM (25000) TO (60000)
"""  # the source is too large for the driver
STATEMENTS = (
    "INSERT INTO numbered (v, t) SELECT i, t FROM source",
    "INSERT INTO parted (v, t) SELECT i, t FROM source",
    "INSERT INTO numbered (v, t) SELECT i, t FROM source ON CONFLICT DO NOTHING",
    "MERGE INTO numbered n USING source s ON n.v = -s.i WHEN NOT MATCHED THEN INSERT (v, t) VALUES (s.i, s.t)",
    "UPDATE numbered SET v = v + 1, id = -id",
    "UPDATE parted SET v = 50000 - v",
    "DELETE FROM numbered WHERE v % 2 = 0",
    "ALTER TABLE numbered ADD COLUMN more bigserial, ADD COLUMN further bigint GENERATED ALWAYS AS IDENTITY",
)
REFUSED = (
    "INSERT INTO numbered (id, v, t) SELECT 7, i, t FROM source",
    "INSERT INTO parted (v, t) SELECT i + 20000, t FROM source",
    "INSERT INTO numbered (v, t) SELECT 1 / (40000 - i), t FROM source",
    "UPDATE numbered SET id = 7",
    "UPDATE parted SET v = v + 30000",
)


@pytest.mark.slow  # each statement is several jobs
@pytest.mark.timeout(900)
def test_rows_persisted_for_a_statement_are_released_with_it(own_node: Callable[..., NodeServer]) -> None:
    node = own_node(**spark_pages.SETTINGS)
    pages = SparkPages(node)
    node.psql("postgres", MADE)

    for statement in (*STATEMENTS, *REFUSED):
        with contextlib.suppress(SqlError) if statement in REFUSED else contextlib.nullcontext():
            node.psql("postgres", statement)
            assert statement in STATEMENTS, f"not refused: {statement}"
        until(lambda: not pages.kept(), f"still persisted after: {statement}", 10)

    assert node.psql("postgres", "SELECT count(*) > 0 FROM numbered") == "t"


def test_each_row_of_a_large_insert_gets_the_next_number_of_each_sequence(server: Server) -> None:
    database = server.new_database()
    server.psql(database, MADE)

    server.psql(database, "INSERT INTO numbered (v, t) SELECT i, t FROM source ORDER BY i DESC")

    assert (
        server.psql(database, "SELECT count(*), min(id), max(id), bool_and(id = other AND id = 50001 - v) FROM numbered")
        == "50000|1|50000|t"
    )
    assert server.psql(database, "INSERT INTO numbered (v) VALUES (0) RETURNING id, other") == "50001|50001"


@pytest.mark.slow
def test_each_row_gets_its_own_number_in_an_added_column(server: Server) -> None:
    database = server.new_database()
    server.psql(database, MADE)

    server.psql(
        database, "ALTER TABLE source ADD COLUMN n bigserial, ADD COLUMN m bigint GENERATED ALWAYS AS IDENTITY (START 10 INCREMENT 5)"
    )

    numbers = "count(*), count(DISTINCT n), min(n), max(n), count(DISTINCT m), min(m), max(m)"
    assert server.psql(database, f"SELECT {numbers} FROM source") == "50000|50000|1|50000|50000|10|250005"
    assert server.psql(database, "INSERT INTO source (i) VALUES (0) RETURNING n, m") == "50001|250010"
