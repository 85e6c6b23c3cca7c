"""The table `<table>_history` records every change of a table. At each LSN, replaying it yields the table."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.conftest import until
from tests.publisher import slots
from tests.subscriber.conftest import READY

Row = dict[str, Any]
Rows = dict[int, Row]
TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(10, 2))"
BEGUN = "SELECT count(*) FROM pg_tables WHERE tablename = 't_history'"


def fetch(conninfo: str, *queries: str) -> list[list[Row]]:
    """Return the rows of several queries under one snapshot."""
    with psycopg.connect(conninfo, row_factory=dict_row) as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        return [session.execute(query.encode()).fetchall() for query in queries]


def replay(history: Iterable[Row], upto: int | None = None) -> Rows:
    """Return the rows of a table with the key `id` at an LSN, as its history yields them."""
    rows: Rows = {}
    for change in sorted(history, key=lambda row: (row["_lsn"], row["_seq"])):
        if upto is not None and change["_lsn"] > upto:
            break
        new = {name: value for name, value in change.items() if not name.startswith("_")}
        match change["_op"]:
            case "T":
                rows.clear()
            case "D":
                rows.pop(change["id"], None)
            case "U":
                old = change["id"] if change["_old_id"] is None else change["_old_id"]
                if (row_before := rows.pop(old, None)) is not None:
                    rows[new["id"]] = new | {name: row_before[name] for name in change["_unchanged"] or ()}
            case _:
                rows[new["id"]] = new
    return rows


def by_id(rows: Iterable[Row]) -> Rows:
    return {row["id"]: row for row in rows}


def position(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def change_at_random(publisher: Any, chance: random.Random, number: int) -> None:
    """Run one transaction of several changes. Every sixth transaction truncates the table."""
    key = 100 * number
    statements = [
        f"INSERT INTO t SELECT i, repeat(md5(i::text), 400), i FROM generate_series({key}, {key + 9}) i",
        f"UPDATE t SET n = n + 1 WHERE id % 3 = {chance.randrange(3)}",
        f"UPDATE t SET v = 'short' WHERE id % 5 = {chance.randrange(5)}",
        f"UPDATE t SET id = id + 1000000 WHERE id % 11 = {chance.randrange(11)} AND id < 1000000",
        f"DELETE FROM t WHERE id % 7 = {chance.randrange(7)}",
    ]
    chosen = chance.sample(statements, 4)
    if number % 6 == 5:
        chosen.insert(2, "TRUNCATE t RESTART IDENTITY")
    publisher.sql("; ".join(["BEGIN", *chosen, "COMMIT"]))


@pytest.mark.slow
@pytest.mark.parametrize("small_batch_rows", ["75000", "0"])
def test_history_replays_to_the_table_as_of_each_lsn(publisher, spare: Callable[..., Any], small_batch_rows: str) -> None:
    subscriber = spare(small_batch_rows=small_batch_rows)
    publisher.sql(f"{TABLE}; ALTER TABLE t ALTER v SET STORAGE EXTERNAL; CREATE PUBLICATION p FOR TABLE t")
    publisher.sql("INSERT INTO t SELECT i, repeat(md5(i::text), 400), i FROM generate_series(1, 20) i")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("history = true"))
    subscriber.wait(BEGUN, "1")
    chance, states = random.Random(57), []
    for number in range(12 if small_batch_rows != "0" else 8):
        change_at_random(publisher, chance, number + 1)
        [rows] = fetch(publisher.conninfo, "SELECT * FROM t")
        states.append((position(publisher.end), by_id(rows)))
        table, history = fetch(subscriber.conninfo, "SELECT * FROM t", "SELECT * FROM t_history")
        assert replay(history) == by_id(table)
    publisher.wait_confirmed()
    [history] = fetch(subscriber.conninfo, "SELECT * FROM t_history")
    assert {row["_op"] for row in history} == set("RIUDT")
    for lsn, state in states:
        assert replay(history, lsn) == state


def subscribed(publisher, subscriber, options: str = "history = true", rows: int = 20) -> None:
    """A table with rows on both sides, whose history has begun."""
    publisher.sql(f"{TABLE}; INSERT INTO t SELECT i, 'v', i FROM generate_series(1, {rows}) i; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription(options))
    subscriber.wait(BEGUN, "1")


def test_history_keeps_changes_that_cancel_out_in_a_batch(publisher, subscriber) -> None:
    subscribed(publisher, subscriber, rows=1)
    publisher.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    publisher.sql("BEGIN; INSERT INTO t VALUES (2, 'a', 1); UPDATE t SET v = 'b' WHERE id = 2; DELETE FROM t WHERE id = 2; COMMIT")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT count(*) FROM t") == "1"
    changes = "SELECT string_agg(concat_ws(' ', _op, id, v, n, _old_id, _old_v, _old_n), ', ' ORDER BY _lsn, _seq) FROM t_history"
    assert subscriber.sql(changes) == "R 1 v 1.00, I 2 a 1.00, U 2 b 1.00 2 a 1.00, D 2 b 1.00 2 b 1.00"
    same = "SELECT count(DISTINCT (_lsn, _xid, _commit_time)) FROM t_history WHERE _op <> 'R'"
    assert subscriber.sql(same) == "1"
    assert subscriber.sql("SELECT max(_commit_time) BETWEEN now() - interval '1 minute' AND now() FROM t_history") == "t"


@pytest.mark.slow
def test_history_follows_the_columns_of_its_table(publisher, subscriber) -> None:
    subscribed(publisher, subscriber, "history = true, schema_evolution = follow")
    alterations = ("ADD COLUMN w text", "DROP COLUMN n", "ALTER COLUMN v TYPE varchar(20)", "RENAME COLUMN w TO x")
    for key, alteration in enumerate(alterations, 21):
        publisher.sql(f"ALTER TABLE t {alteration}; INSERT INTO t VALUES ({key}, 'v')")
        subscriber.wait(f"SELECT count(*) FROM t WHERE id = {key}", "1")
    publisher.sql("UPDATE t SET x = 'x' WHERE id = 24")
    publisher.wait_confirmed()
    table, history = fetch(subscriber.conninfo, "SELECT * FROM t", "SELECT id, v, x, _op, _lsn, _seq, _old_id, _unchanged FROM t_history")
    assert by_id(table)[24] == {"id": 24, "v": "v", "x": "x"}
    assert replay(history) == by_id(table)
    assert subscriber.sql("SELECT _old_n, n, w FROM t_history WHERE id = 20 AND _op = 'R' ORDER BY _lsn LIMIT 1") == "|20.00|"


def test_history_starts_again_after_it_was_switched_off(publisher, subscriber) -> None:
    subscribed(publisher, subscriber)
    subscriber.sql("ALTER SUBSCRIPTION s SET (history = false)")
    publisher.sql("DELETE FROM t WHERE id < 10; INSERT INTO t VALUES (100, 'unrecorded', 0)")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT count(*) FROM t_history WHERE id = 100") == "0"
    subscriber.sql("ALTER SUBSCRIPTION s SET (history = 't')")
    subscriber.wait("SELECT count(*) FROM t_history WHERE _op = 'T'", "1")
    publisher.sql("UPDATE t SET v = 'recorded' WHERE id = 100")
    publisher.wait_confirmed()
    table, history = fetch(subscriber.conninfo, "SELECT * FROM t", "SELECT * FROM t_history")
    assert replay(history) == by_id(table)


@pytest.mark.slow
def test_history_starts_again_after_its_table_was_reconciled(publisher, subscriber) -> None:
    subscribed(publisher, subscriber)
    subscriber.sql("DELETE FROM t WHERE id < 10; SELECT headgate.reconcile('s', 'public.t')")
    subscriber.wait("SELECT count(*) FROM t_history WHERE _op = 'T'", "1")
    publisher.sql("INSERT INTO t VALUES (100, 'later', 0)")
    publisher.wait_confirmed()
    table, history = fetch(subscriber.conninfo, "SELECT * FROM t", "SELECT * FROM t_history")
    assert len(table) == 21
    assert replay(history) == by_id(table)


def test_tables_with_a_history_can_be_listed(publisher, subscriber) -> None:
    both = f"{TABLE}; CREATE TABLE u (id int PRIMARY KEY)"
    publisher.sql(f"{both}; CREATE PUBLICATION p FOR TABLE t, u")
    subscriber.sql(both)
    with pytest.raises(psycopg.errors.UndefinedObject, match=r'table "public\.x" is not in subscription "s"'):
        subscriber.sql(publisher.subscription("history = 'public.x', create_slot = false"))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='invalid value for parameter "history"'):
        subscriber.sql(publisher.subscription("history = 'a b'"))
    subscriber.sql(publisher.subscription("history = 'public.t'"))
    subscriber.wait(READY, "t")
    publisher.sql("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT string_agg(tablename, ',') FROM pg_tables WHERE tablename LIKE '%history'") == "t_history"
    assert subscriber.sql("SELECT _op, id FROM t_history") == "I|1"


@pytest.mark.slow
def test_changes_older_than_history_retention_are_removed(publisher, subscriber, set_on_node) -> None:
    subscribed(publisher, subscriber)
    assert subscriber.sql("SELECT count(*) FROM t_history") == "20"
    set_on_node(history_retention="1s")
    subscriber.wait("SELECT count(*) FROM t_history", "0")
    set_on_node(history_retention="1h")
    publisher.sql("INSERT INTO t VALUES (21)")
    subscriber.wait("SELECT string_agg(id::text, ',') FROM t_history", "21")


def test_only_its_subscription_changes_a_history(publisher, subscriber) -> None:
    subscribed(publisher, subscriber)
    cannot = 'cannot {} history table "t_history"'
    for statement, action in (
        ("INSERT INTO t_history (_op) VALUES ('I')", "change"),
        ("UPDATE t_history SET n = 0", "change"),
        ("DELETE FROM t_history", "change"),
        ("MERGE INTO t_history h USING t ON h.id = t.id WHEN MATCHED THEN DELETE", "change"),
        ("COPY t_history FROM STDIN", "change"),
        ("TRUNCATE t, t_history", "truncate"),
        ("ALTER TABLE t_history ADD COLUMN x int", "alter"),
        ("ALTER TABLE t_history ADD CHECK (n > 0)", "alter"),
        ("ALTER TABLE t_history RENAME COLUMN v TO w", "alter"),
        ("CREATE UNIQUE INDEX ON t_history (id)", "create a unique index on"),
    ):
        with pytest.raises(psycopg.Error, match=cannot.format(action)):
            subscriber.sql(statement)
    subscriber.sql("CREATE SCHEMA h; ALTER TABLE t_history SET SCHEMA h; CREATE ROLE reader; ALTER TABLE h.t_history OWNER TO reader")
    for statement in ("DROP TABLE h.t_history", "DROP SCHEMA h CASCADE", "DROP OWNED BY reader"):
        with pytest.raises(psycopg.Error, match=r"cannot drop table h.t_history because subscription .* requires it"):
            subscriber.sql(statement)
    subscriber.sql("ALTER TABLE h.t_history SET SCHEMA public; ALTER TABLE t_history OWNER TO CURRENT_USER; DROP SCHEMA h")
    subscriber.sql("GRANT SELECT ON t_history TO reader; CREATE INDEX ON t_history (id)")
    subscriber.sql("ALTER TABLE t_history RENAME TO changes_of_t; ALTER TABLE t ADD COLUMN x int")
    publisher.sql("ALTER TABLE t ADD COLUMN x int; INSERT INTO t VALUES (21, 'v', 21, 7)")
    subscriber.wait("SELECT count(*) FROM changes_of_t WHERE id = 21", "1")
    assert subscriber.sql("SELECT x FROM changes_of_t WHERE id = 21") == "7"
    subscriber.sql("DROP OWNED BY reader; DROP ROLE reader; DROP TABLE t, changes_of_t")


def test_history_that_has_ended_is_a_plain_table(publisher, subscriber) -> None:
    subscribed(publisher, subscriber)
    subscriber.sql("ALTER SUBSCRIPTION s SET (history = false)")
    subscriber.sql("DELETE FROM t_history WHERE id > 1; ALTER TABLE t_history ADD COLUMN x int; DROP TABLE t_history")


def test_table_that_is_not_a_history_is_not_used_as_one(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(f"{TABLE}; CREATE TABLE t_history (id int)")
    subscriber.sql(publisher.subscription("history = true"))
    assert subscriber.log.error('table "public.t_history" is not a history')
    subscriber.sql("ALTER TABLE t_history RENAME TO other")
    subscriber.wait(BEGUN, "1")


def test_table_of_a_subscription_is_not_continued_as_a_history(publisher, subscriber) -> None:
    subscribed(publisher, subscriber)
    columns = subscriber.sql(
        "SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)"
        " FROM pg_attribute WHERE attrelid = 't_history'::regclass AND attnum > 0"
    )
    subscriber.sql("ALTER SUBSCRIPTION s SET (history = false); DROP TABLE t_history")
    for server in (publisher, subscriber):
        server.sql(f"CREATE TABLE t_history ({columns})")
    publisher.sql("ALTER PUBLICATION p ADD TABLE t_history")
    subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
    subscriber.sql("ALTER SUBSCRIPTION s SET (history = true)")
    assert subscriber.log.error('table "public.t_history" is written by subscription "s"')


def test_history_is_not_the_target_of_a_subscription(publisher, subscriber) -> None:
    subscribed(publisher, subscriber)
    publisher.sql("CREATE TABLE t_history (id int); ALTER PUBLICATION p ADD TABLE t_history")
    with pytest.raises(psycopg.Error, match='cannot replicate to history table "t_history"'):
        subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["staged behind", "intent behind", "version behind", "entry before", "entry behind"])
def test_table_and_history_agree_after_a_kill(publisher, spare: Callable[..., Any], fault: str) -> None:
    subscriber = spare()
    subscribed(publisher, subscriber)
    publisher.wait_confirmed()
    slot = slots.make(subscriber.server, subscriber.name, "kept")
    start = subscriber.sql("CREATE PUBLICATION q FOR TABLE t; SELECT pg_current_wal_lsn()")
    conf = subscriber.server.data / "headgate.conf"
    conf_before = conf.read_text()
    conf.write_text(f"{conf_before}headgate.failpoints = '{fault}=kill'\n")
    subscriber.sql("SELECT pg_reload_conf()")
    subscriber.wait("SHOW headgate.failpoints", f"{fault}=kill")
    pid = subscriber.server.pid
    publisher.sql("BEGIN; UPDATE t SET n = n + 1; UPDATE t SET n = n + 1; DELETE FROM t WHERE id = 1; COMMIT")
    until(lambda: not is_alive(pid), "the node was not killed")
    subscriber.session.close()
    conf.write_text(conf_before)
    subscriber.server.start()
    publisher.wait_confirmed()
    table, history = fetch(subscriber.conninfo, "SELECT * FROM t", "SELECT * FROM t_history")
    assert replay(history) == by_id(table)
    assert len(table) == 19
    assert [sum(row["_op"] == op for row in history) for op in "RUD"] == [20, 40, 1]
    changes = f"SELECT _op, count(*) FROM headgate.changes('q', 't', '{start}', pg_current_wal_lsn()) GROUP BY _op ORDER BY _op"
    assert subscriber.sql(changes) == "D|1\nU|40", "the batch is still marked as recorded"
    subscriber.server.drop_slot(subscriber.name, slot)
