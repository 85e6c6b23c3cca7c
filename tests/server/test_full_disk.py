"""Writes of a node on a full disk fail with 53100. Everything else works, and writes succeed after space is free."""

from __future__ import annotations

import contextlib
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import NodeServer, Server, until
from tests.disk import Disk


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for a node, outside pytest's own folders."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def disk(place: Path) -> Iterator[Disk]:
    """The disk of the node's data directory."""
    data_disk = Disk(place / "data", 200)
    yield data_disk
    data_disk.end()


@pytest.fixture
def node(place: Path, disk: Disk) -> Iterator[NodeServer]:
    """The node on the disk."""
    server = NodeServer(place, file_retention="0")
    server.create()
    server.start()
    yield server
    if server.running:
        server.stop("immediate")


def outcome(session: psycopg.Connection[Any], statements: str) -> tuple[str | None, str, str | None] | None:
    """Return the SQLSTATE, message and hint of the first statement that fails, or None."""
    try:
        for statement in statements.split(";"):
            session.execute(statement.encode())
    except psycopg.Error as error:
        session.rollback()
        return error.sqlstate, str(error.diag.message_primary), error.diag.message_hint
    return None


WORK = (
    "INSERT INTO a VALUES (2, 'y')",
    "INSERT INTO a SELECT n, repeat(md5(n::text), 20) FROM generate_series(1000, 31000) n",
    "UPDATE a SET v = v || 'z'",
    "DELETE FROM b WHERE id = 5",
    "BEGIN; INSERT INTO a VALUES (3, 'y'); UPDATE b SET v = 'y' WHERE id = 1; COMMIT",
    "CREATE TABLE c (id int PRIMARY KEY)",
    "CREATE TABLE d AS SELECT * FROM b",
    "TRUNCATE b",
    "ALTER TABLE b ADD COLUMN w int DEFAULT 7",
    "BEGIN; INSERT INTO a VALUES (4, 'y'); PREPARE TRANSACTION 'another'",
    "COMMIT PREPARED 'one'",
)


@pytest.mark.slow
def test_full_disk_is_reported_as_53100_and_the_node_continues(node: NodeServer, disk: Disk, postgres: Server) -> None:
    source = postgres.new_database()
    postgres.psql(source, "CREATE TABLE r (id int PRIMARY KEY, v text); INSERT INTO r VALUES (1, 'x'); CREATE PUBLICATION p FOR TABLE r")
    with psycopg.connect(node.conninfo(), autocommit=True) as session:
        session.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
        session.execute("CREATE TABLE b (id int PRIMARY KEY, v text)")
        session.execute("CREATE TABLE r (id int PRIMARY KEY, v text)")
        session.execute("INSERT INTO a VALUES (1, 'x')")
        session.execute("INSERT INTO b SELECT n, 'x' FROM generate_series(1, 10) n")
        assert outcome(session, "BEGIN; INSERT INTO b VALUES (77, 'prepared'); PREPARE TRANSACTION 'one'") is None
        session.execute(f"CREATE SUBSCRIPTION sub CONNECTION '{postgres.conninfo(source)}' PUBLICATION p".encode())
        until(lambda: session.execute("SELECT count(*) FROM r").fetchone() == (1,), "the table is not copied", 60)
        session.execute("COMMIT PREPARED 'one'")
        session.execute("DELETE FROM b WHERE id = 77")
        assert outcome(session, "BEGIN; INSERT INTO r VALUES (-1, 'prepared'); PREPARE TRANSACTION 'one'") is None

        def seen() -> list[Any]:
            # not sorted: Spark sorts through files
            return [sorted(session.execute(f"SELECT * FROM {name}".encode()).fetchall()) for name in "abr"]

        rows_before = seen()
        disk.fill()
        try:
            for statements in WORK:
                failed = outcome(session, statements)
                assert failed is not None, statements
                assert failed[0] == "53100", (statements, failed)
                assert failed[1].endswith("No space left on device"), (statements, failed)
                assert failed[2] == "Check free disk space.", (statements, failed)
                assert seen() == rows_before, statements
            postgres.psql(source, "INSERT INTO r VALUES (2, 'y')")
            until(lambda: "No space left on device" in node.log(), "the apply worker does not report the full disk", 60)
        finally:
            disk.free()
        for statements in WORK:
            assert outcome(session, statements) is None, statements
        until(lambda: sorted(session.execute("SELECT id FROM r").fetchall()) == [(-1,), (1,), (2,)], "the rows are not applied", 60)
        assert outcome(session, "ROLLBACK PREPARED 'another'") is None
        session.execute("ALTER SUBSCRIPTION sub DISABLE")
        session.execute("ALTER SUBSCRIPTION sub SET (slot_name = NONE)")
        session.execute("DROP SUBSCRIPTION sub")
        rows_after = seen()
    postgres.drop_slot(source, "sub")
    disk.fill()
    node.stop()
    node.start()  # the start uses the reserved disk space
    disk.free()
    with psycopg.connect(node.conninfo(), autocommit=True) as session:
        assert [sorted(session.execute(f"SELECT * FROM {name}".encode()).fetchall()) for name in "abr"] == rows_after
        session.execute("INSERT INTO a VALUES (5, 'z')")
    assert "Traceback" not in node.log()
    assert "unforeseen" not in node.log()


@pytest.mark.slow
def test_failed_checkpoint_of_the_catalog_does_not_make_it_unusable(own_node: Callable[..., Server]) -> None:
    node = own_node()
    pid = node.pid
    with psycopg.connect(node.conninfo(), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int PRIMARY KEY)")
        session.execute("INSERT INTO t VALUES (1)")
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (node.data.joinpath("catalog.duckdb").stat().st_size, -1))
        with pytest.raises(psycopg.Error):
            session.execute("CHECKPOINT")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)

    def answer() -> Any:
        with contextlib.suppress(psycopg.Error), psycopg.connect(node.conninfo(), autocommit=True) as again:
            again.execute("INSERT INTO t VALUES (2) ON CONFLICT DO NOTHING")
            return again.execute("SELECT count(*) FROM t").fetchone()
        return None

    until(lambda: answer() == (2,), "the node does not start again", 120)
    assert node.pid == pid
