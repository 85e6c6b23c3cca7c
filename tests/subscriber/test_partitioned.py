"""Subscriptions into partitioned tables route rows to their leaf, move them between leaves and find them by the leaf's key."""

from __future__ import annotations

import pytest
from tests.subscriber.conftest import READY

ROOT = """
CREATE TABLE t(x text DEFAULT 'root', b text, a int PRIMARY KEY) PARTITION BY RANGE (a);
CREATE TABLE low(a int NOT NULL, x text DEFAULT 'leaf', b text);
ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (100) PARTITION BY HASH (a);
CREATE TABLE high0 PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE high1 PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 1)
"""


def start(publisher, subscriber, remote: str, local: str) -> None:
    publisher.sql(remote)
    subscriber.sql(local)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")


def test_copied_and_streamed_rows_go_to_their_leaves_and_move_between_them(publisher, subscriber) -> None:
    remote = "CREATE TABLE t(a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t SELECT g, 'c' FROM generate_series(1, 12) g"
    start(publisher, subscriber, remote, ROOT)
    publisher.sql(
        "INSERT INTO t VALUES (20, 's'); UPDATE t SET a = 13 WHERE a = 1; UPDATE t SET b = 'u' WHERE a IN (2, 11); DELETE FROM t WHERE a = 12"
    )
    publisher.sql("BEGIN; UPDATE t SET a = 99 WHERE a = 3; UPDATE t SET a = 3 WHERE a = 11; UPDATE t SET a = 11 WHERE a = 99; COMMIT")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT a, b FROM low ORDER BY a") == "2|u\n3|u\n4|c\n5|c\n6|c\n7|c\n8|c\n9|c"
    assert subscriber.sql("SELECT a, b, x FROM high ORDER BY a") == "10|c|root\n11|c|root\n13|c|root\n20|s|root"
    publisher.sql("TRUNCATE t; INSERT INTO t VALUES (5, 'after')")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT tableoid::regclass, * FROM t") == "low|root|after|5"


def test_rows_without_a_key_are_found_by_all_their_columns(publisher, subscriber) -> None:
    remote = "CREATE TABLE t(a int, b text); ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1, 'x'), (1, 'x'), (5, NULL)"
    local = "CREATE TABLE t(b text, a int) PARTITION BY LIST (a); CREATE TABLE one PARTITION OF t FOR VALUES IN (1); CREATE TABLE rest PARTITION OF t DEFAULT"
    start(publisher, subscriber, remote, local)
    publisher.sql("UPDATE t SET a = 7 WHERE ctid = (SELECT min(ctid) FROM t); DELETE FROM t WHERE b IS NULL")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT tableoid::regclass, a, b FROM t ORDER BY a") == "one|1|x\nrest|7|x"


def test_new_row_with_the_key_of_its_leaf_stops_the_worker(publisher, subscriber) -> None:
    remote = (
        "CREATE TABLE t(a int, b int); ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1, 1)"
    )
    local = "CREATE TABLE t(a int, b int) PARTITION BY LIST (b); CREATE TABLE leaf(a int PRIMARY KEY, b int); ALTER TABLE t ATTACH PARTITION leaf FOR VALUES IN (1, 2)"
    start(publisher, subscriber, remote, f"{local}; CREATE TABLE rest PARTITION OF t DEFAULT")
    publisher.sql("INSERT INTO t VALUES (1, 2)")
    subscriber.log.error('duplicate key value violates unique constraint "leaf_pkey"')
    subscriber.sql("DELETE FROM t")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT a, b FROM t") == "1|2"
    # one leaf has no key: REPLICA IDENTITY FULL decides whether rows are found by all their columns
    publisher.sql("""BEGIN; INSERT INTO t VALUES (2, 1), (3, 9); UPDATE t SET a = 4 WHERE a = 3; ALTER TABLE t REPLICA IDENTITY DEFAULT;
                     INSERT INTO t VALUES (5, 1), (6, 9); COMMIT""")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT a, b FROM t ORDER BY a") == "1|2\n2|1\n4|9\n5|1\n6|9"


@pytest.mark.slow
def test_constraints_of_a_single_leaf_are_checked(publisher, subscriber) -> None:
    remote = "CREATE TABLE t(a int PRIMARY KEY, b int, c text); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1, 1, 'x'), (11, 1, NULL)"
    local = """
CREATE TABLE t(c text, a int PRIMARY KEY, b int) PARTITION BY RANGE (a);
CREATE TABLE low(a int NOT NULL, b int CHECK (b > 0), c text NOT NULL, UNIQUE (b));
ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)"""
    start(publisher, subscriber, remote, local)
    publisher.sql("INSERT INTO t VALUES (12, 1, NULL), (13, -1, NULL), (2, 2, 'y')")
    publisher.wait_confirmed()
    for wrong, repair, message in (
        (
            "INSERT INTO t VALUES (3, -1, 'z')",
            "ALTER TABLE low DROP CONSTRAINT low_b_check",
            'new row for relation "low" violates check constraint "low_b_check"',
        ),
        (
            "UPDATE t SET c = NULL WHERE a = 2",
            "ALTER TABLE low ALTER c DROP NOT NULL",
            'null value in column "c" of relation "low" violates not-null constraint',
        ),
        (
            "UPDATE t SET b = 1 WHERE a = 2",
            "ALTER TABLE low DROP CONSTRAINT low_b_key",
            'duplicate key value violates unique constraint "low_b_key"',
        ),
    ):
        publisher.sql(wrong)
        assert 'replication target relation "public.t"' in subscriber.log.error(message).context
        subscriber.sql(repair)
        publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM low ORDER BY a") == "1|1|x\n2|1|\n3|-1|z"


def test_subscribed_partition_accepts_only_its_own_rows(publisher, subscriber) -> None:
    remote = "CREATE TABLE t(a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1)"
    start(
        publisher,
        subscriber,
        remote,
        "CREATE TABLE r(a int PRIMARY KEY) PARTITION BY RANGE (a); CREATE TABLE t PARTITION OF r FOR VALUES FROM (0) TO (10)",
    )
    publisher.sql("INSERT INTO t VALUES (3); INSERT INTO t VALUES (30)")
    assert "INSERT" in subscriber.log.error('new row for relation "t" violates partition constraint').context
    assert subscriber.sql("SELECT a FROM r ORDER BY a") == "1\n3"
