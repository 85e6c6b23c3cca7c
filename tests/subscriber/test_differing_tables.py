"""Tables that are not the same on both sides: order and types of columns, extra ones, defaults, generated columns, checks."""

from __future__ import annotations

import pytest
from tests.subscriber.test_errors import context, log  # noqa: F401
from tests.subscriber.test_stream import READY


def start(publisher, subscriber, remote: str, local: str, rows: str = "") -> None:
    publisher.sql(f"CREATE TABLE t({remote}); CREATE PUBLICATION p FOR TABLE t; {rows}")
    assert "ERROR" not in subscriber.sql(f"CREATE TABLE t({local})")
    assert "ERROR" not in subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")


def test_columns_are_matched_by_name_and_values_converted(publisher, subscriber) -> None:
    start(
        publisher,
        subscriber,
        "id int PRIMARY KEY, n numeric, s text",
        "s varchar(20), id bigint PRIMARY KEY, n text",
        "INSERT INTO t VALUES (1, 1.50, 'a')",
    )
    publisher.sql("INSERT INTO t VALUES (2, 2.00, 'b')")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT id, n, s FROM t ORDER BY id") == "1|1.50|a\n2|2.00|b"


def test_the_local_precision_rounds_as_postgresql_does(publisher, subscriber) -> None:
    start(
        publisher,
        subscriber,
        "id int PRIMARY KEY, n numeric, m timestamp",
        "id int PRIMARY KEY, n numeric(4,2), m timestamp(0)",
        "INSERT INTO t VALUES (1, 1.239, '2024-01-02 03:04:05.6')",
    )
    publisher.sql("INSERT INTO t VALUES (2, -1.235, '2024-12-31 23:59:59.5')")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == "1|1.24|2024-01-02 03:04:06\n2|-1.24|2025-01-01 00:00:00"


def test_extra_columns_get_their_default_and_are_left_alone_by_updates(publisher, subscriber) -> None:
    local = "id int PRIMARY KEY, v text, w int DEFAULT 7, x text, d timestamptz DEFAULT now(), n serial"
    start(publisher, subscriber, "id int PRIMARY KEY, v text", local, "INSERT INTO t VALUES (1, 'a')")
    publisher.sql("INSERT INTO t VALUES (2, 'b'), (3, 'c')")
    publisher.wait_confirmed()
    subscriber.sql("UPDATE t SET w = 8, x = 'mine' WHERE id = 2")
    publisher.sql(
        "UPDATE t SET v = upper(v); UPDATE t SET id = 20 WHERE id = 2; BEGIN; INSERT INTO t VALUES (4, 'd'); UPDATE t SET v = 'D' WHERE id = 4; COMMIT"
    )
    publisher.wait_confirmed()
    assert (
        subscriber.sql("SELECT id, v, w, x, d IS NOT NULL, n FROM t ORDER BY id") == "1|A|7||t|1\n3|C|7||t|3\n4|D|7||t|4\n20|B|8|mine|t|2"
    )


def test_generated_columns_are_computed_here(publisher, subscriber) -> None:
    start(
        publisher,
        subscriber,
        "id int PRIMARY KEY, v int",
        "id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v * 2) STORED",
        "INSERT INTO t VALUES (1, 5)",
    )
    publisher.sql("INSERT INTO t VALUES (2, 6); UPDATE t SET v = 10 WHERE id = 1")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == "1|10|20\n2|6|12"


def test_a_check_constraint_stops_the_worker(publisher, subscriber, log) -> None:  # noqa: F811
    start(publisher, subscriber, "id int PRIMARY KEY, v int", "id int PRIMARY KEY, v int CHECK (v > 0)")
    publisher.sql("INSERT INTO t VALUES (1, 5); INSERT INTO t VALUES (2, -5)")
    found = context(log, 'new row for relation "t" violates check constraint "t_v_check"')
    assert 'during message type "INSERT" for replication target relation "public.t" in transaction' in found
    assert subscriber.sql("SELECT * FROM t") == "1|5"


@pytest.mark.parametrize("name", ["Odd name", "select", "tab\tname"])
def test_names_that_need_quotes(publisher, subscriber, name) -> None:
    table = f'CREATE SCHEMA "s x"; CREATE TABLE "s x"."{name}"("k y" int PRIMARY KEY, "va,l" text)'
    publisher.sql(f"""{table}; CREATE PUBLICATION p FOR TABLE "s x"."{name}"; INSERT INTO "s x"."{name}" VALUES (1, 'a')""")
    subscriber.sql(table)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql(f"""INSERT INTO "s x"."{name}" VALUES (2, 'b'); UPDATE "s x"."{name}" SET "va,l" = 'c' WHERE "k y" = 1""")
    publisher.wait_confirmed()
    assert subscriber.sql(f'SELECT * FROM "s x"."{name}" ORDER BY 1') == "1|c\n2|b"
