"""A backup contains a node at one position of its log, and a node starts from it. An incomplete backup does not start."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.conftest import HEADGATE, NodeServer, Server, until
from tests.disk import Disk

from headgate.backup import catalog, tables, target
from headgate.catalog.catalog import Catalog
from headgate.catalog.relation import relation as relations
from headgate.check import course, subject
from headgate.lsn import Lsn
from headgate.storage.engine import Engine

# backups of what a disk holds; those of tables in an object store are made in tests/system/test_object_store.py
pytestmark = pytest.mark.on_disk
TABLES = """
CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text); CREATE TABLE copied (id int PRIMARY KEY, v text);
INSERT INTO a SELECT i, 'first' FROM generate_series(1, 300) i; INSERT INTO b SELECT * FROM a;
CREATE PUBLICATION p FOR TABLE a; SELECT pg_create_logical_replication_slot('left_out', 'pgoutput');
"""
NAMES = ("a", "b", "copied")


@contextlib.contextmanager
def writing(conninfo: str, statements: Callable[[int], str]) -> Iterator[Callable[[], int]]:
    """Run transactions until the end of the context. Yield a function that returns how many were committed."""
    done, stop = [0], threading.Event()

    def work() -> None:
        with psycopg.connect(conninfo, autocommit=True) as session:
            while not stop.is_set():
                session.execute(statements(done[0]).encode())
                done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        stop.set()
        thread.join()


def both(number: int) -> str:
    """Return the statements of one transaction. Both tables have the same keys after each commit."""
    row = 1000 + number
    return (
        f"BEGIN; INSERT INTO a VALUES ({row}, 'n'); UPDATE b SET v = 'u{number}' WHERE id <= 10; INSERT INTO b VALUES ({row}, 'n');"
        f" UPDATE a SET v = 'w{number}' WHERE id = {number % 300 + 1}; COMMIT"
    )


def start(folder: Path, port: int, log: Path) -> subprocess.CompletedProcess[str]:
    command = [*HEADGATE, "start", "-D", str(folder), "-l", str(log), "-p", str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


def backup(node: NodeServer, folder: Path) -> subprocess.CompletedProcess[str]:
    """Create a backup. It must succeed."""
    return subprocess.run([*HEADGATE, "backup", "-D", str(node.data), str(folder)], capture_output=True, text=True, timeout=180)


def findings(folder: Path, spark: SparkSession) -> list[str]:
    with subject.of_stopped(folder, {}, session=spark) as checked:
        return [finding.line for finding in course.run(checked)]


def contents(folder: Path, spark: SparkSession, database: str, at: Lsn | None = None) -> tuple[Lsn, dict[str, list[str]]]:
    """Return the end of the log in a stopped node's directory, and the rows of its tables as of an LSN."""
    catalog = Catalog.open(folder / "catalog.duckdb")
    try:
        engine, cursor = Engine({}, catalog, folder, session=spark), catalog.cursor()
        [(oid,)] = cursor.execute("SELECT oid FROM hg.pg_database WHERE datname = ?", [database]).fetchall()
        rows_by_table = {}
        for name in NAMES:
            relation = relations.lookup(cursor, oid, "public", name)
            rows_by_table[name] = sorted(map(str, engine.frame_at(relation, at or engine.log.end).toArrow().to_pylist()))
        return engine.log.end, rows_by_table
    finally:
        catalog.close()


@pytest.fixture
def pair(own_node: Callable[..., Server], postgres: Server) -> Iterator[tuple[NodeServer, str, str]]:
    """A node that subscribes to PostgreSQL: the node, its database, and the publisher's database."""
    node = own_node()
    assert isinstance(node, NodeServer)
    source, database = postgres.new_database(), node.new_database()
    postgres.psql(
        source, "CREATE TABLE copied (id int PRIMARY KEY, v text); INSERT INTO copied SELECT i, 'x' FROM generate_series(1, 50) i"
    )
    postgres.psql(source, "CREATE PUBLICATION p FOR TABLE copied")
    node.psql(database, TABLES)
    node.psql(database, f"CREATE SUBSCRIPTION s CONNECTION '{postgres.conninfo(source)}' PUBLICATION p WITH (slot_name = '{source}')")
    until(lambda: node.psql(database, "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not ready", 60)
    yield node, database, source
    own_slots = f"FROM pg_replication_slots WHERE slot_name = '{source}'"
    until(
        lambda: postgres.psql(source, f"SELECT count(*) {own_slots} AND active") == "0" or node.stop("immediate"), "the slot stays in use"
    )
    postgres.psql(source, f"SELECT pg_drop_replication_slot(slot_name) {own_slots}")


@pytest.mark.slow
def test_backup_is_the_node_at_one_lsn_and_starts_in_its_place(
    pair: tuple[NodeServer, str, str], postgres: Server, spark: SparkSession, tmp_path: Path
) -> None:
    node, database, source = pair
    online, offline = tmp_path / "online", tmp_path / "offline"
    upsert = "INSERT INTO copied VALUES ({0}, 'i') ON CONFLICT (id) DO UPDATE SET v = copied.v || '{0}'"
    with (
        writing(node.conninfo(database), both) as written,
        writing(postgres.conninfo(source), lambda number: upsert.format(number % 90)) as sent,
    ):
        until(lambda: written() > 2 and sent() > 20, "nothing is written", 60)
        output = node.headgate("backup", str(online), "-U", "postgres").stdout
        more = written()
        until(lambda: written() > more, "nothing is written after the backup", 60)
    at = Lsn.parse(re.findall(r"backup completed: LSN ([0-9A-F/]+), \d+ tables, \d+ bytes, [\d.]+ s", output)[0])
    end = postgres.psql(source, "SELECT pg_current_wal_lsn()")
    confirmed = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{source}'"
    until(lambda: postgres.psql(source, confirmed) == "t", "the slot does not advance", 60)
    node.psql(database, "BEGIN; INSERT INTO b VALUES (9000, 'prepared'); PREPARE TRANSACTION 'kept'")
    node.stop()

    assert findings(online, spark) == []
    assert contents(online, spark, database) == (at, contents(node.data, spark, database, at)[1])

    node.headgate("backup", str(offline))
    assert findings(offline, spark) == []
    restored = NodeServer(tmp_path / "there")
    restored.folder.mkdir()
    restored.data = offline
    assert start(offline, restored.port, restored.logfile).returncode == 0, restored.log()
    try:
        postgres.psql(source, "INSERT INTO copied VALUES (7000, 'behind')")
        until(
            lambda: restored.psql(database, "SELECT count(*) FROM copied WHERE id = 7000") == "1", "the subscription does not continue", 60
        )
        assert restored.psql(database, "SELECT count(*) FROM pg_replication_slots") == "0"
        restored.psql(database, "COMMIT PREPARED 'kept'; INSERT INTO a VALUES (9000, 'here')")
        assert (
            restored.psql(database, "SELECT (SELECT array_agg(id ORDER BY id) FROM a) = (SELECT array_agg(id ORDER BY id) FROM b)") == "t"
        )
    finally:
        restored.stop()


@pytest.mark.slow
def test_tables_at_another_location_are_copied_below_the_backup(
    own_node: Callable[..., Server], spark: SparkSession, tmp_path: Path
) -> None:
    node, folder = own_node(data_location=f"'{tmp_path / 'elsewhere'}'"), tmp_path / "copy"
    assert isinstance(node, NodeServer)
    node.psql("postgres", "CREATE TABLE d (id int, r text, PRIMARY KEY (id, r)) PARTITION BY LIST (r)")
    node.psql("postgres", "CREATE TABLE d1 PARTITION OF d FOR VALUES IN ('a'); CREATE TABLE d2 PARTITION OF d FOR VALUES IN ('b')")
    node.psql("postgres", "INSERT INTO d VALUES (1, 'a'), (2, 'b'), (3, 'a')")
    # the leaf of a row is found although the path of its file does not contain a folder `base`
    node.psql("postgres", "UPDATE d SET id = id + 10 WHERE r = 'a'; UPDATE d SET r = 'b' WHERE id = 11; DELETE FROM d WHERE id = 2")
    assert node.psql("postgres", "SELECT tableoid::regclass, id, r FROM d ORDER BY id") == "d2|11|b\nd1|13|a"
    node.headgate("backup", str(folder), "-U", "postgres")
    assert (folder / "headgate.auto.conf").read_text().endswith("data_location = ''\n")
    assert findings(folder, spark) == []


@pytest.mark.slow
def test_files_named_by_a_copied_catalog_are_kept_until_the_next_command(spare_node: Callable[..., Server], tmp_path: Path) -> None:
    node, folder = spare_node(file_retention="0"), tmp_path / "copy"
    database = node.new_database()
    # slots that other test files left on the node keep the files
    node.psql(database, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    node.psql(database, "CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    [file] = (node.data / node.psql(database, "SELECT pg_relation_filepath('t')")).glob("part-*.parquet")
    target.make(folder)
    with psycopg.connect(node.conninfo(database, replication="database"), autocommit=True) as session:
        session.execute(f"BACKUP_CATALOG '{folder}'".encode())
        node.psql(database, "TRUNCATE t; CHECKPOINT")
        assert file.exists()
        session.execute("IDENTIFY_SYSTEM")

        def is_removed() -> bool:
            node.psql(database, "CHECKPOINT")
            return not file.exists()

        until(is_removed, "the file is not removed")


@pytest.mark.slow
def test_database_dropped_during_a_backup_is_in_the_backup(spare_node: Callable[..., Server], spark: SparkSession, tmp_path: Path) -> None:
    node, folder = spare_node(file_retention="0"), tmp_path / "copy"
    dropped, remaining = node.new_database(), node.new_database()
    for database in (dropped, remaining):
        node.psql(database, TABLES.replace("left_out", database))
    files = [node.data / node.psql(dropped, f"SELECT pg_relation_filepath('{name}')") for name in NAMES]
    target.make(folder)
    with psycopg.connect(node.conninfo(replication="database"), autocommit=True) as session:
        [(lsn_text, base)] = session.execute(f"BACKUP_CATALOG '{folder}'".encode()).fetchall()
        node.psql("postgres", f"DROP DATABASE {dropped}")
        node.psql(
            remaining, f"DROP TABLE b; INSERT INTO a VALUES (9000, 'behind'); SELECT pg_drop_replication_slot('{remaining}'); CHECKPOINT"
        )
        copied = catalog.without_slots(folder)
        try:
            tables.copy(copied, Path(base), folder, lambda *_: None)
        finally:
            copied.close()
    target.complete(folder)
    assert findings(folder, spark) == []
    for database in (dropped, remaining):
        at, rows = contents(folder, spark, database)
        assert (at, {name: len(table_rows) for name, table_rows in rows.items()}) == (
            Lsn.parse(lsn_text),
            {"a": 300, "b": 300, "copied": 0},
        )
    node.psql("postgres", "CHECKPOINT")
    assert not any(file.exists() for file in files), "files that were retained for the backup are removed"


@pytest.mark.slow
def test_only_superusers_can_check_and_back_up(node: Server, tmp_path: Path) -> None:
    database = node.new_database()
    node.psql(database, f"CREATE ROLE {database}_r LOGIN REPLICATION")
    with psycopg.connect(node.conninfo(database, f"{database}_r", replication="database"), autocommit=True) as session:
        for command in ("CHECK_NODE", f"BACKUP_CATALOG '{tmp_path}'"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be superuser"):
                session.execute(command.encode())
    node.psql(database, f"DROP ROLE {database}_r")


@pytest.mark.slow
def test_killed_backup_cannot_be_started(own_node: Callable[..., Server], tmp_path: Path) -> None:
    node, folder = own_node(start=False, data_location=f"'{tmp_path / 'tables'}'"), tmp_path / "copy"
    assert isinstance(node, NodeServer)
    with subprocess.Popen([*HEADGATE, "backup", "-D", str(node.data), str(folder)]) as process:
        while not (folder / "headgate.backup").exists():
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    refused = start(folder, node.port, tmp_path / "log")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        1,
        f'headgate: directory "{folder}" holds a backup that is not complete',
    )
    again = backup(node, folder)
    assert (again.returncode, f'directory "{folder}" exists but is not empty' in again.stderr) == (1, True)
    node.headgate("backup", str(tmp_path / "second"))
    assert "data_location = ''" in (tmp_path / "second" / "headgate.auto.conf").read_text()
    assert (tmp_path / "second" / "base" / "headgate.owner").exists()
    inside = backup(node, node.data / "copy")
    assert (inside.returncode, "which is to be copied" in inside.stderr) == (1, True)


def test_backup_on_a_full_disk_fails_and_cannot_be_started(own_node: Callable[..., Server], tmp_path: Path) -> None:
    node, folder = own_node(start=False), tmp_path / "small"
    assert isinstance(node, NodeServer)
    disk = Disk(folder, 1)
    try:
        failed = backup(node, folder)
        assert failed.returncode == 1
        assert "No space left on device" in failed.stderr
        assert f'directory "{folder}" holds a backup that is not complete and cannot be started; remove it' in failed.stderr
        assert start(folder, node.port, tmp_path / "log").returncode == 1
    finally:
        disk.end()
