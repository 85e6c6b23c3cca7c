"""headgate.verify() and `headgate verify` compare a node with a real PostgreSQL, at rest and while both are written to."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.conftest import HEADGATE, NodeServer, PostgresServer, SqlError
from tests.system.chain import Database, arrived, meanwhile, subscribe

MAKE = """
CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(12,2), at timestamptz DEFAULT '2024-02-29 12:00:00+00', f float8, b bool, c char(5), j jsonb);
CREATE TABLE u (a int, b text);
CREATE TABLE other (id {big} PRIMARY KEY, x {text}, y numeric{scale});
"""
FILL = """
INSERT INTO t SELECT i, CASE i % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE md5(i::text) END, i * 1.5, now(), sqrt(i), i % 2 = 0, 'ab', '{"a": [1]}'
  FROM generate_series(1, 2000) i;
INSERT INTO u SELECT i % 10, 'x' FROM generate_series(1, 50) i; ALTER TABLE u REPLICA IDENTITY FULL;
INSERT INTO other SELECT i, i, i / 3.0 FROM generate_series(1, 100) i;
CREATE PUBLICATION p FOR TABLE t WHERE (id % 5 <> 0), u, other
"""
PLANT = """
DELETE FROM t WHERE id = 1; INSERT INTO t (id) VALUES (5); UPDATE t SET v = NULL WHERE id = 4; UPDATE t SET v = '' WHERE id = 3;
UPDATE t SET f = f + 0.0000001, b = NOT b WHERE id = 7; INSERT INTO u VALUES (3, 'x'); DELETE FROM other WHERE id = 77
"""
PLANTED = [
    "public|other|different||", "public|other|missing|(id)=(77)|", "public|t|different||", "public|t|different|(id)=(3)|v",
    "public|t|different|(id)=(4)|v", "public|t|different|(id)=(7)|f, b", "public|t|extra|(id)=(5)|", "public|t|missing|(id)=(1)|",
    "public|u|different||", "public|u|extra|(a, b)=(3, x)|",
]  # fmt: skip
VERIFY = "SELECT schema, name, result, key, columns FROM headgate.verify('s')"
EQUAL = [f"public|{name}|equal||" for name in ("other", "t", "u")]


@pytest.fixture
def pair(postgres: PostgresServer, node: NodeServer) -> Iterator[tuple[Database, Database]]:
    """A publisher, and a subscriber that has its rows."""
    publisher, subscriber = Database.new(postgres), Database.new(node)
    publisher.sql(MAKE.format(big="int", text="int", scale="") + FILL)
    subscriber.sql(MAKE.format(big="bigint", text="text", scale="(10,3)"))
    subscribe(subscriber, publisher, "s", "p")
    yield publisher, subscriber
    subscriber.unsubscribe()


@pytest.mark.slow
def test_each_planted_difference_is_named_and_nothing_else(pair: tuple[Database, Database], node: NodeServer) -> None:
    publisher, subscriber = pair
    assert subscriber.rows(VERIFY) == EQUAL
    subscriber.sql(PLANT)
    assert subscriber.rows(VERIFY) == sorted(PLANTED)
    assert subscriber.rows("SELECT result, key FROM headgate.verify('s', 'other')") == ["different|", "missing|(id)=(77)"]
    command = [*HEADGATE, "verify", "-D", str(node.data), "-U", "postgres", "-d", subscriber.name, "--json"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert completed.returncode == 1, completed.stderr
    assert [row["key"] for row in json.loads(completed.stdout) if row["name"] == "other"] == [None, "(id)=(77)"]
    repaired = subprocess.run([*command[:-1], "--repair"], capture_output=True, text=True, timeout=180)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert "public.other: is made equal" in repaired.stdout
    assert subscriber.rows(VERIFY) == EQUAL
    assert publisher.sql("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%verify%'") == "0"


def test_values_of_both_sides_are_shown_on_request(pair: tuple[Database, Database], node: NodeServer) -> None:
    _, subscriber = pair
    subscriber.sql(PLANT)
    values = {}
    for line in subscriber.rows("SELECT name, key, theirs, ours FROM headgate.verify('s', NULL, true) WHERE key IS NOT NULL"):
        name, key, *sides = line.split("|")
        values[name, key] = [json.loads(side) if side else None for side in sides]
    assert values["other", "(id)=(77)"] == [{"id": "77", "x": "77", "y": "25.667"}, None]
    assert values["t", "(id)=(3)"] == [{"v": None}, {"v": ""}]
    assert values["t", "(id)=(7)"][0] == {"f": "2.6457513110645907", "b": "f"}
    assert values["t", "(id)=(7)"][1]["b"] == "t"
    assert values["t", "(id)=(5)"][0] is None
    assert values["t", "(id)=(5)"][1].items() >= {"id": "5", "v": None, "at": "2024-02-29 12:00:00+00"}.items()
    assert values["u", "(a, b)=(3, x)"] == [None, {"a": "3", "b": "x"}]
    command = [*HEADGATE, "verify", "-D", str(node.data), "-d", subscriber.name, "s", "other"]  # as the role of initdb
    for more, output in (
        ([], "missing: (id)=(77)\n"),
        (["--values"], 'missing: (id)=(77), there {"id": "77", "x": "77", "y": "25.667"}\n'),
    ):
        completed = subprocess.run([*command, *more], capture_output=True, text=True, timeout=180)
        assert output in completed.stdout
        assert re.search(r"public\.other: different, 100 rows, \d+ ranges, ", completed.stdout)


def test_difference_changed_by_the_stream_is_reported_as_it_is_now(pair: tuple[Database, Database]) -> None:
    """The publisher's snapshot is older than the subscriber's rows. The rows that changed in between are taken from its stream."""
    publisher, subscriber = pair
    subscriber.sql("UPDATE t SET v = 'mine' WHERE id IN (1, 2)")
    with psycopg.connect(publisher.conninfo) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("INSERT INTO u VALUES (1, 'open')")  # the slot waits for the end of this transaction
        comparison = pool.submit(subscriber.rows, "SELECT key, theirs, ours FROM headgate.verify('s', 't', true) WHERE key IS NOT NULL")
        publisher.wait("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%verify%'", "1")
        publisher.sql("UPDATE t SET n = 7 WHERE id = 1")
        holder.commit()
        differences = dict(line.split("|", 1) for line in comparison.result(120))
    assert differences["(id)=(2)"] == '{"v": "c81e728d9d4c2f636f067f89cc14862c"}|{"v": "mine"}'
    assert differences.get("(id)=(1)") in (None, '{"v": "c4ca4238a0b923820dcc509a6f75849b"}|{"v": "mine"}')


def test_comparison_ends_after_verify_snapshot_timeout(pair: tuple[Database, Database]) -> None:
    publisher, subscriber = pair
    with pytest.raises(SqlError, match='canceling comparison due to "verify_snapshot_timeout"'):
        subscriber.sql(f"SET verify_snapshot_timeout = '1ms'; {VERIFY}")
    publisher.wait("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%verify%'", "0")


@pytest.mark.slow
def test_table_that_takes_too_long_is_skipped_and_later_ones_are_compared_under_another_snapshot(
    pair: tuple[Database, Database], postgres: PostgresServer
) -> None:
    publisher, subscriber = pair
    table = "CREATE TABLE slow (id int PRIMARY KEY)"
    publisher.sql(f"{table}; INSERT INTO slow SELECT generate_series(1, 800)")
    publisher.sql("ALTER PUBLICATION p ADD TABLE slow WHERE (length(repeat('x', 5000000 + id)) > 0)")  # about 15 ms a row
    subscriber.sql(f"{table}; ALTER SUBSCRIPTION s REFRESH PUBLICATION")
    subscriber.wait("SELECT srsubstate FROM pg_stat_subscription_rel WHERE relname = 'slow' AND subname = 's'", "r")
    log_length = len(postgres.log())
    results = subscriber.rows(f"SET verify_snapshot_timeout = '4s'; {VERIFY}")
    assert results == [EQUAL[0], 'public|slow|skipped||it takes longer than "verify_snapshot_timeout"', *EQUAL[1:]]
    assert len(set(re.findall(r'CREATE_REPLICATION_SLOT "(\w*verify\w*)"', postgres.log()[log_length:]))) == 3


@pytest.mark.slow
def test_table_that_cannot_be_reconciled_is_reported_with_the_suggested_action(pair: tuple[Database, Database], node: NodeServer) -> None:
    _, subscriber = pair
    subscriber.sql("DELETE FROM other WHERE id = 77; ALTER TABLE other ADD CHECK (id <> 77)")
    command = [*HEADGATE, "verify", "-D", str(node.data), "-U", "postgres", "-d", subscriber.name, "s", "other", "--repair"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert completed.returncode == 1
    assert 'tables of subscription "s" could not be made equal' in completed.stderr
    assert "headgate status" in completed.stderr
    subscriber.sql("ALTER TABLE other DROP CONSTRAINT other_id_check")
    subscriber.wait("SELECT count(*) FROM other", "100")


@pytest.mark.parametrize("times", [1, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])])
def test_no_difference_is_reported_while_both_sides_are_written_to(pair: tuple[Database, Database], times: int) -> None:
    publisher, subscriber = pair
    with psycopg.connect(publisher.conninfo, autocommit=True) as writer:

        def change(number: int) -> None:
            key = number * 37 % 2000
            writer.execute("UPDATE t SET v = md5(%s::text), n = n + 1 WHERE id BETWEEN %s AND %s", (number, key, key + 20))
            writer.execute("UPDATE t SET id = id + 100000 WHERE id = %s", (key,))
            writer.execute("DELETE FROM t WHERE id = %s", (key + 7,))
            writer.execute("INSERT INTO t (id, v) VALUES (%s, 'new')", (300_000 + number,))
            writer.execute("UPDATE other SET x = x + 1 WHERE id = %s", (number % 100,))

        with meanwhile(change):
            results = [subscriber.rows(VERIFY) for _ in range(times)]
    assert results == [EQUAL] * times
    arrived(publisher, "s")


@pytest.mark.slow
def test_constantly_changing_or_unpublished_table_is_skipped_and_a_truncated_one_is_compared_again(
    pair: tuple[Database, Database],
) -> None:
    publisher, subscriber = pair
    with psycopg.connect(publisher.conninfo, autocommit=True) as writer, meanwhile(lambda _: writer.execute("UPDATE u SET a = a + 1")):
        results = {line.split("|")[1]: line.split("|")[2] for line in subscriber.rows(VERIFY)}
    assert results["t"] == results["other"] == "equal"
    assert results["u"] in ("skipped", "equal")
    publisher.sql("TRUNCATE t; ALTER PUBLICATION p DROP TABLE other")
    assert sorted(subscriber.rows(VERIFY)) == ["public|other|skipped||it is not published", *EQUAL[1:]]


def test_only_the_owner_can_verify_and_a_disabled_subscription_is_rejected(pair: tuple[Database, Database]) -> None:
    _, subscriber = pair
    role = f"reader_{subscriber.name}"
    subscriber.sql(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(SqlError, match="must be owner of subscription s"):
        subscriber.sql(f"SET ROLE {role}; {VERIFY}")
    with pytest.raises(SqlError, match='subscription "nosuch" does not exist'):
        subscriber.sql("SELECT * FROM headgate.verify('nosuch')")
    with pytest.raises(SqlError, match='relation "nosuch" does not exist'):
        subscriber.sql("SELECT * FROM headgate.verify('s', 'nosuch')")
    with pytest.raises(SqlError, match=r'table "public\.own" is not in subscription "s"'):
        subscriber.sql("CREATE TABLE own (a int); SELECT * FROM headgate.verify('s', 'own')")
    subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    with pytest.raises(SqlError, match='subscription "s" is disabled'):
        subscriber.sql(VERIFY)


@pytest.mark.slow
def test_cancel_ends_the_comparison_and_leaves_nothing_at_the_publisher(pair: tuple[Database, Database]) -> None:
    publisher, subscriber = pair
    with psycopg.connect(publisher.conninfo) as holder:
        holder.execute("INSERT INTO u VALUES (1, 'open')")  # the slot waits for the end of this transaction
        with pytest.raises(SqlError, match="canceling statement due to statement timeout"):
            subscriber.sql(f"SET statement_timeout = '2s'; {VERIFY}")
        holder.rollback()
    publisher.wait("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%verify%'", "0")
    assert subscriber.rows(VERIFY) == EQUAL


@pytest.mark.slow
def test_table_that_is_being_copied_is_not_reported_as_different(
    pair: tuple[Database, Database], postgres: PostgresServer, node: NodeServer
) -> None:
    """Each of three attempts has its own slot. The publisher drops the previous one after it has noticed that its reader has disconnected.

    `headgate verify` waits for the copy instead.
    """
    publisher, subscriber = pair
    log_length = len(postgres.log())
    with psycopg.connect(subscriber.conninfo) as writer:
        writer.execute("UPDATE t SET v = 'open' WHERE id = 3")
        subscriber.sql("SELECT headgate.resync('s', 't')")  # which waits for the writer
        subscriber.wait("SELECT srsubstate FROM pg_stat_subscription_rel WHERE relname = 't' AND subname = 's'", "d")
        publisher.sql("UPDATE t SET v = 'later'")
        assert subscriber.rows(VERIFY) == ["public|other|equal||", "public|t|skipped||it is being copied", "public|u|equal||"]
        assert len(set(re.findall(r'CREATE_REPLICATION_SLOT "(\w*verify\w*)"', postgres.log()[log_length:]))) == 3
        command = [*HEADGATE, "verify", "-D", str(node.data), "-d", subscriber.name, "s"]
        compared = subprocess.run([*command, "--no-wait"], capture_output=True, text=True)
        assert (compared.returncode, compared.stdout.splitlines()[-1]) == (2, "compared 2 tables, skipped 1: all rows are equal")
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "s: waiting for 1 table that is being copied or reconciled (public.t)\n"
        writer.rollback()
        assert waiting.communicate(timeout=180)[0].count(": equal, ") == 3
    subscriber.wait("SELECT srsubstate FROM pg_stat_subscription_rel WHERE relname = 't' AND subname = 's'", "r")
    assert subscriber.rows(VERIFY) == EQUAL
