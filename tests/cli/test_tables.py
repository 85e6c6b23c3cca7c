"""Tables can be found from outside: by headgate.snapshot(), by `headgate tables` of a running or stopped node, and by statements for Spark."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import NodeServer, Server, SqlError, until

from headgate.cli.tables import statements
from headgate.storage import inventory

SNAPSHOT = "SELECT schema, name, path, version, lsn FROM headgate.snapshot() ORDER BY 1, 2"


def rows_at(named: list[tuple[Any, ...]]) -> dict[str, int]:
    """Return the number of rows, by table, that the files have at the versions of a snapshot."""
    return {name: inventory.size(Path(path), version)[0] for _, name, path, version, *_ in named}


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[None]:
    """Call a function repeatedly inside the context. An error in it fails the test."""
    done, failed = threading.Event(), []

    def loop() -> None:
        try:
            while not done.is_set():
                work()
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failed


@pytest.mark.slow
def test_snapshot_names_consistent_versions_while_others_commit(node: Server) -> None:
    database = node.new_database()
    node.psql(database, "CREATE TABLE a (i int); CREATE SCHEMA s; CREATE TABLE s.b (i int)")
    with closing(psycopg.connect(node.conninfo(database))) as writer, closing(psycopg.connect(node.conninfo(database))) as reader:

        def write() -> None:
            writer.execute("INSERT INTO a VALUES (1)")
            writer.execute("INSERT INTO s.b VALUES (1)")
            writer.commit()

        write()
        with in_background(write):
            for _ in range(5):
                snapshot_rows = reader.execute(SNAPSHOT).fetchall()
                assert len({row[4] for row in snapshot_rows}) == 1
                rows = rows_at(snapshot_rows)
                assert rows["a"] == rows["b"] > 0
                reader.commit()
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        first = reader.execute(SNAPSHOT).fetchall()
        write()
        assert reader.execute(SNAPSHOT).fetchall() == first
        assert rows_at(first)["a"] == reader.execute("SELECT count(*) FROM a").fetchone()[0]
        reader.rollback()
        assert reader.execute(SNAPSHOT).fetchall()[0][3] > first[0][3]


@pytest.mark.slow
def test_snapshot_shows_only_committed_tables_that_the_session_may_read(node: Server) -> None:
    database = node.new_database()
    node.psql(
        database,
        """CREATE TABLE seen (i int); CREATE TABLE hidden (i int); CREATE SCHEMA closed; CREATE TABLE closed.off (i int);
        CREATE TABLE parted (i int) PARTITION BY LIST (i); CREATE TABLE leaf PARTITION OF parted FOR VALUES IN (1);
        CREATE ROLE onlooker LOGIN; GRANT SELECT ON seen, closed.off TO onlooker""",
    )
    names = "SELECT name FROM headgate.snapshot() ORDER BY 1"
    assert node.psql(database, names).split() == ["hidden", "leaf", "off", "seen"]
    assert node.psql(database, "SET ROLE onlooker; SELECT name, path IS NULL FROM headgate.snapshot()") == "seen|t"
    own = "BEGIN; CREATE TABLE mine (i int); INSERT INTO seen VALUES (1); DROP TABLE hidden; "
    assert node.psql(database, own + "SELECT name, version FROM headgate.snapshot() ORDER BY 1").split() == ["leaf|0", "off|0", "seen|0"]
    joined = "SELECT s.name, count(t.i) FROM headgate.snapshot() s LEFT JOIN seen t ON true GROUP BY 1 ORDER BY 1 LIMIT 1"
    assert node.psql(database, joined) == "hidden|0"
    with pytest.raises(SqlError, match=r"function headgate.snapshot is only supported in FROM"):
        node.psql(database, "SELECT headgate.snapshot()")
    with pytest.raises(SqlError, match=r"function snapshot\(\) does not exist"):
        node.psql(database, "SELECT * FROM snapshot()")


def test_snapshot_of_a_past_lsn_keeps_its_tables_while_the_transaction_reads_them(node: Server) -> None:
    database = node.new_database()
    node.psql(
        database, "CREATE TABLE a (i int); CREATE TABLE gone (i int); CREATE ROLE past_reader LOGIN; GRANT SELECT ON a TO past_reader"
    )
    slot = f"{database}_past"
    node.psql(
        database, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput'); INSERT INTO a VALUES (1); INSERT INTO gone VALUES (1)"
    )
    lsn = node.psql(database, "SELECT pg_current_wal_lsn()")
    node.psql(
        database,
        "INSERT INTO a VALUES (2); DELETE FROM a WHERE i = 1; ALTER TABLE a RENAME TO b; DROP TABLE gone; CREATE TABLE later (i int)",
    )
    past = SNAPSHOT.replace("()", f"('{lsn}')")
    with closing(psycopg.connect(node.conninfo(database))) as reader:
        tables = reader.execute(past).fetchall()
        assert [row[1] for row in tables] == ["a", "gone"]
        assert {row[4] for row in tables} == {lsn}
        node.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")
        node.psql(database, "CHECKPOINT")
        node.psql(database, "CREATE TABLE passing (i int); DROP TABLE passing")  # each DROP removes files that are no longer needed
        assert rows_at(tables) == {"a": 1, "gone": 1}
        assert node.psql(database, f"SET ROLE past_reader; SELECT name, path IS NULL FROM headgate.snapshot('{lsn}')") == "a|t"

    def error_after_checkpoint() -> str:
        node.psql(database, "CHECKPOINT")
        try:
            node.psql(database, past)
        except SqlError as error:
            return str(error)
        return ""

    # The server ends the reader's session a moment after its client has closed it.
    error = until(error_after_checkpoint, "the tables of the past are still kept")
    assert re.search(rf"the tables as of LSN {lsn} are no longer kept\n.*The oldest retained LSN is ", error)
    assert not Path(tables[1][2]).exists()
    with pytest.raises(SqlError, match="LSN FFFFFFFF/0 is after the end of the log"):
        node.psql(database, "SELECT * FROM headgate.snapshot('FFFFFFFF/0')")
    node.psql(database, "DROP OWNED BY past_reader; DROP ROLE past_reader")


def test_tables_of_a_running_and_of_a_stopped_node_are_listed(spare_node: Callable[..., Server]) -> None:
    node = spare_node()
    assert isinstance(node, NodeServer)
    database = node.new_database()
    node.psql(
        database,
        """CREATE TABLE "odd 'name" (id bigint PRIMARY KEY, price numeric(10,2), tags text[]); CREATE TABLE empty ();
        INSERT INTO "odd 'name" SELECT i, i FROM generate_series(1, 500) i; DELETE FROM "odd 'name" WHERE id > 450""",
    )
    running = json.loads(node.headgate("tables", "-U", "postgres", "-d", database, "--json").stdout)
    assert [(table["schema"], table["name"], table["rows"]) for table in running] == [("public", "empty", 0), ("public", "odd 'name", 450)]
    assert running[1]["columns"] == [
        {"name": "id", "type": "bigint"}, {"name": "price", "type": "numeric(10,2)"}, {"name": "tags", "type": "text[]"},
    ]  # fmt: skip
    assert (Path(running[1]["path"]) / "_delta_log" / f"{running[1]['version']:020d}.json").exists()
    output = node.headgate("tables", "-U", "postgres", "-d", database).stdout
    assert f"public.odd 'name (database {database})" in output
    assert "rows     450 in " in output
    assert "columns  id bigint, price numeric(10,2), tags text[]" in output
    node.stop()
    stopped = json.loads(node.headgate("tables", "-d", database, "--json").stdout)
    assert [{**table, "lsn": None} for table in stopped] == [{**table, "lsn": None} for table in running]
    with pytest.raises(AssertionError, match='database "nowhere" does not exist'):
        node.headgate("tables", "-d", "nowhere")


def test_names_that_spark_does_not_accept_are_replaced_by_distinct_ones() -> None:
    printed = list(
        statements(
            [
                ("shop", "public", "orders", "/d/base/5/1"),
                ("shop", "public", "Orders", "/d/base/5/2"),
                ("shop", "public", "../../etc", "/d/it's here/5/3"),
                ("shop", "PUBLIC", "orders", "/d/base/5/4"),
                ("shop", "public", "`; DROP TABLE x", "/d/base/5/5"),
                ("shop", "public", "\N{SNOWMAN}" * 85, "/d/base/5/6"),
            ]
        )
    )
    assert printed == [
        "CREATE SCHEMA IF NOT EXISTS `shop_public`;",
        "CREATE TABLE IF NOT EXISTS `shop_public`.`orders` USING delta LOCATION 'file:///d/base/5/1';",
        "CREATE TABLE IF NOT EXISTS `shop_public`.`orders_2` USING delta LOCATION 'file:///d/base/5/2';",
        "CREATE TABLE IF NOT EXISTS `shop_public`.`______etc` USING delta LOCATION 'file:///d/it\\'s here/5/3';",
        "CREATE SCHEMA IF NOT EXISTS `shop_public_2`;",
        "CREATE TABLE IF NOT EXISTS `shop_public_2`.`orders` USING delta LOCATION 'file:///d/base/5/4';",
        "CREATE TABLE IF NOT EXISTS `shop_public`.`___drop_table_x` USING delta LOCATION 'file:///d/base/5/5';",
        f"CREATE TABLE IF NOT EXISTS `shop_public`.`{'_' * 85}` USING delta LOCATION 'file:///d/base/5/6';",
    ]
