"""A node whose tables lie in an object store: everything that touches a table's files, in one course, and what a crash leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.conftest import NodeServer, Server, until
from tests.object_store import BUCKET, SECRET, ObjectStore


def command_lines() -> str:
    """What ps shows of all processes."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return "\n".join(found)


@pytest.mark.timeout(600)
def test_a_node_keeps_its_tables_in_an_object_store(own_node: Callable[..., Server], object_store: ObjectStore, postgres: Server) -> None:
    node = own_node(**object_store.settings())
    assert isinstance(node, NodeServer)
    source = postgres.new_database()
    postgres.psql(source, "CREATE TABLE p (id int PRIMARY KEY, v text); INSERT INTO p SELECT i, 'copied' FROM generate_series(1, 500) i")
    postgres.psql(source, "CREATE PUBLICATION pub FOR TABLE p")

    node.psql("postgres", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 3000) i")
    node.psql("postgres", "UPDATE t SET v = 'y' WHERE id = 7; DELETE FROM t WHERE id = 8; UPDATE t SET v = 'z' WHERE id > 2990")
    node.psql("postgres", "CREATE TABLE p (id int PRIMARY KEY, v text)")
    node.psql("postgres", f"CREATE SUBSCRIPTION s3 CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")
    until(lambda: node.psql("postgres", "SELECT count(*) FROM p") == "500", "the table is not copied", 120)
    postgres.psql(source, "UPDATE p SET v = 'streamed' WHERE id <= 10; DELETE FROM p WHERE id = 11")
    until(
        lambda: node.psql("postgres", "SELECT count(*) FILTER (WHERE v = 'streamed'), count(*) FROM p") == "10|499", "no change comes", 60
    )
    assert list((node.data / "base").iterdir()) == []
    assert any(name.endswith(".parquet") for name in object_store.files.find(BUCKET))

    node.kill()
    node.start()
    assert node.psql("postgres", "SELECT count(*), min(v), max(v) FROM t") == "2999|x|z"
    node.psql("postgres", "INSERT INTO t VALUES (8, 'again')")
    postgres.psql(source, "INSERT INTO p VALUES (1000, 'after')")
    until(lambda: node.psql("postgres", "SELECT v FROM p WHERE id = 1000") == "after", "no change comes after the crash", 60)
    node.psql("postgres", "DROP SUBSCRIPTION s3")
    shown = node.psql("postgres", "SHOW ALL; SELECT * FROM pg_settings")
    assert all(SECRET not in text for text in (shown, node.log(), command_lines()))
    node.headgate("check", "--online", "-U", "postgres")


def arm(node: NodeServer, faults: str) -> None:
    """Has faults come at the node's durable steps."""
    node.conf = {**node.conf, "headgate.failpoints": f"'{faults}'"}
    node._write_files()
    os.kill(node.pid, signal.SIGHUP)
    armed = "SELECT coalesce(current_setting('headgate.failpoints', true), '')"
    until(lambda: node.psql("postgres", armed) == faults, "the node does not reload")


def twin(node: NodeServer, own_node: Callable[..., Server]) -> NodeServer:
    """A node with a copy of another's data directory, as on a machine that takes its place."""
    other = own_node(start=False, **{name: value for name, value in node.conf.items() if name.startswith("data_")})
    assert isinstance(other, NodeServer)
    shutil.rmtree(other.data)
    shutil.copytree(node.data, other.data, ignore=shutil.ignore_patterns("headgate.pid", "pgsql_tmp", "pg_cache", "*.sock"))
    other._write_files()
    return other


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_that_was_paused_over_a_take_over_writes_nothing_when_it_wakes(
    own_node: Callable[..., Server], object_store: ObjectStore
) -> None:
    paused = own_node(**object_store.settings())
    assert isinstance(paused, NodeServer)
    paused.psql("postgres", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 3000) i")

    refused = twin(paused, own_node)
    with pytest.raises(AssertionError):
        refused.start()
    assert "is being used by another node" in refused.log()

    arm(paused, "version before=sleep")  # the intent is there, the version is not
    session = psycopg.connect(paused.conninfo(), autocommit=True)

    def commit() -> None:
        with contextlib.suppress(psycopg.Error):  # whether it is committed the client does not learn
            session.execute("UPDATE t SET v = 'under way' WHERE id <= 10")

    committing = threading.Thread(target=commit)
    committing.start()
    until(lambda: 'failpoint "version before"' in paused.log(), "nothing is committed")
    os.kill(paused.pid, signal.SIGSTOP)

    successor = twin(paused, own_node)
    successor.start()
    seen = "SELECT count(*), count(*) FILTER (WHERE v = 'under way') FROM t"
    assert successor.psql("postgres", seen) == "3000|10", successor.log()
    successor.psql("postgres", "UPDATE t SET v = 'successor' WHERE id = 1; INSERT INTO t VALUES (5000, 'successor')")
    location = paused.conf["data_location"].strip("'").removeprefix("s3a://")
    before = {name for name in object_store.files.find(location) if "_delta_log" in name}

    pid = paused.pid
    os.kill(pid, signal.SIGCONT)
    until(lambda: "has lost the lease" in paused.log() or not Path(f"/proc/{pid}").exists(), "it goes on", 60)
    committing.join(60)
    assert not committing.is_alive()
    until(
        lambda: not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z",
        "it lives",
        60,
    )
    assert {name for name in object_store.files.find(location) if "_delta_log" in name} == before
    assert successor.psql("postgres", seen) == "3001|9"
    successor.headgate("check", "--online", "-U", "postgres")
