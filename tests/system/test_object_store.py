"""A node whose tables are in an object store does everything with table files, and recovers after crashes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.conftest import NodeServer, Server, SqlError, until
from tests.object_store import BUCKET, SECRET, ObjectStore

from headgate.failpoint import Step
from headgate.storage.delta import file_action


def command_lines() -> str:
    """Return the command lines of all processes."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # the process has ended
    return "\n".join(lines)


def subscribed(own_node: Callable[..., Server], store: ObjectStore, postgres: Server) -> tuple[NodeServer, str]:
    """Return a node and the publisher's database.

    The node has copied and streamed a table `p`, and has a local table `t`.
    """
    node = own_node(**store.settings())
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
        lambda: node.psql("postgres", "SELECT count(*) FILTER (WHERE v = 'streamed'), count(*) FROM p") == "10|499",
        "the change does not arrive",
        60,
    )
    return node, source


def test_node_keeps_its_tables_in_an_object_store(own_node: Callable[..., Server], object_store: ObjectStore, postgres: Server) -> None:
    node, _ = subscribed(own_node, object_store, postgres)
    assert list((node.data / "base").iterdir()) == []
    assert any(name.endswith(".parquet") for name in object_store.files.find(BUCKET))
    assert node.psql("postgres", "SELECT count(*), min(v), max(v) FROM t") == "2999|x|z"
    settings = node.psql("postgres", "SHOW ALL; SELECT * FROM pg_settings")
    assert all(SECRET not in text for text in (settings, node.log(), command_lines()))
    node.psql("postgres", "DROP SUBSCRIPTION s3")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_node_finds_its_tables_in_the_object_store_and_continues(
    own_node: Callable[..., Server], object_store: ObjectStore, postgres: Server
) -> None:
    node, source = subscribed(own_node, object_store, postgres)
    node.kill()
    node.start()
    assert node.psql("postgres", "SELECT count(*), min(v), max(v) FROM t") == "2999|x|z"
    node.psql("postgres", "INSERT INTO t VALUES (8, 'again')")
    postgres.psql(source, "INSERT INTO p VALUES (1000, 'after')")
    until(lambda: node.psql("postgres", "SELECT v FROM p WHERE id = 1000") == "after", "no change arrives after the crash", 60)
    node.psql("postgres", "DROP SUBSCRIPTION s3")
    node.headgate("check", "--online", "-U", "postgres")


def arm(node: NodeServer, faults: str) -> None:
    """Set failpoints of the node."""
    node.conf = {**node.conf, "headgate.failpoints": f"'{faults}'"}
    node._write_files()
    os.kill(node.pid, signal.SIGHUP)
    armed = "SELECT coalesce(current_setting('headgate.failpoints', true), '')"
    until(lambda: node.psql("postgres", armed) == faults, "the node does not reload")


def start_again(node: NodeServer) -> None:
    """Start a node that a failpoint has killed, without failpoints."""
    node.conf = {name: value for name, value in node.conf.items() if name != "headgate.failpoints"}
    node._write_files()
    node.headgate("start", "-t", "240", "-l", str(node.logfile))


def twin(node: NodeServer, own_node: Callable[..., Server]) -> NodeServer:
    """Return a node with a copy of another node's data directory, as on a machine that replaces it."""
    second_node = own_node(start=False, **{name: value for name, value in node.conf.items() if name.startswith("data_")})
    assert isinstance(second_node, NodeServer)
    shutil.rmtree(second_node.data)
    shutil.copytree(node.data, second_node.data, ignore=shutil.ignore_patterns("headgate.pid", "pgsql_tmp", "pg_cache", "*.sock"))
    second_node._write_files()
    return second_node


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_paused_node_writes_nothing_after_another_has_acquired_its_lease(
    own_node: Callable[..., Server], object_store: ObjectStore
) -> None:
    paused = own_node(**object_store.settings())
    assert isinstance(paused, NodeServer)
    paused.psql("postgres", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 3000) i")

    refused = twin(paused, own_node)
    with pytest.raises(AssertionError):
        refused.start()
    assert "is being used by another node" in refused.log()

    arm(paused, "version before=sleep")  # the intent is written, the version is not
    session = psycopg.connect(paused.conninfo(), autocommit=True)

    def commit() -> None:
        with contextlib.suppress(psycopg.Error):  # the client does not learn whether it is committed
            session.execute("UPDATE t SET v = 'in progress' WHERE id <= 10")

    committing = threading.Thread(target=commit)
    committing.start()
    until(lambda: 'failpoint "version before"' in paused.log(), "the commit does not reach the failpoint")
    pid = paused.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        successor = twin(paused, own_node)
        successor.headgate("start", "-t", "240", "-l", str(successor.logfile))
        counts = "SELECT count(*), count(*) FILTER (WHERE v = 'in progress') FROM t"
        assert successor.psql("postgres", counts) == "3000|10", successor.log()
        successor.psql("postgres", "UPDATE t SET v = 'successor' WHERE id = 1; INSERT INTO t VALUES (5000, 'successor')")
        location = paused.conf["data_location"].strip("'").removeprefix("s3a://")
        log_files = {name for name in object_store.files.find(location) if "_delta_log" in name and "_headgate" not in name}
    finally:
        os.kill(pid, signal.SIGCONT)
    until(
        lambda: "has lost the lease" in paused.log() or not Path(f"/proc/{pid}").exists(),
        "the paused node does not notice the lost lease",
        60,
    )
    committing.join(60)
    assert not committing.is_alive()
    until(
        lambda: not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z",
        "the paused node is still running",
        60,
    )
    assert {name for name in object_store.files.find(location) if "_delta_log" in name and "_headgate" not in name} == log_files
    (paused.data / "headgate.pid").unlink()  # a crash would have left the file
    assert successor.psql("postgres", counts) == "3001|9"
    successor.headgate("check", "--online", "-U", "postgres")


KILLS = [f"{step} {place}=kill" for step in (Step.STAGED, Step.INTENT, Step.VERSION, Step.ENTRY) for place in ("before", "behind")]


def orphaned_files(store: ObjectStore, location: str) -> list[str]:
    """Return the data files, change files and deletion vectors below a location that no version of their table names."""
    orphans = []
    logs = {name.rpartition("/")[0] for name in store.files.find(location) if name.endswith(".json")}
    for log in (name for name in logs if name.endswith("/_delta_log")):
        table = log.removesuffix("/_delta_log")
        versions = [store.files.cat_file(name).decode() for name in store.files.find(log) if name.endswith(".json")]
        actions = [json.loads(line) for text in versions for line in text.splitlines()]
        files = [action[kind] for action in actions for kind in ("add", "remove", "cdc") if kind in action]
        named_files = {f"{table}/{name}" for name in file_action.names_of(Path(table), files)}
        orphans += [name for name in store.files.find(table) if "_delta_log" not in name and name not in named_files]
    return orphans


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kill_at_any_step_of_a_commit_loses_nothing_and_leaves_no_orphaned_files(
    own_node: Callable[..., Server], object_store: ObjectStore
) -> None:
    node = own_node(file_retention="0", **object_store.settings())
    assert isinstance(node, NodeServer)
    node.psql("postgres", "CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a SELECT i, 0 FROM generate_series(1, 2000) i")
    node.psql("postgres", "CREATE TABLE b (id int PRIMARY KEY, n int); INSERT INTO b SELECT i, 0 FROM generate_series(1, 2000) i")
    for number, fault in enumerate(KILLS, 1):
        arm(node, fault)
        write = f"BEGIN; UPDATE a SET n = {number} WHERE id <= 5; UPDATE b SET n = {number} WHERE id <= 5; INSERT INTO a VALUES ({10000 + number}, 0); COMMIT"
        with pytest.raises(SqlError):
            node.psql("postgres", write)
        start_again(node)
        counts = f"SELECT (SELECT count(*) FROM a WHERE n = {number}), (SELECT count(*) FROM b WHERE n = {number}), (SELECT count(*) FROM a WHERE id = {10000 + number})"
        result = node.psql("postgres", counts)
        assert result in ("0|0|0", "5|5|1"), f"{fault}: a part of a transaction is visible"
        if result == "0|0|0":
            node.psql("postgres", write)
        assert node.psql("postgres", counts) == "5|5|1", fault
    assert node.psql("postgres", "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)") == f"{2000 + len(KILLS)}|2000"
    location = node.conf["data_location"].strip("'").removeprefix("s3a://")

    def cleaned() -> bool:
        node.psql("postgres", "CHECKPOINT")
        return orphaned_files(object_store, location) == []

    until(cleaned, f"orphaned files are not removed: {orphaned_files(object_store, location)}", 120)
    node.headgate("check", "--online", "-U", "postgres")


GONE = "SELECT to_regclass('{0}') IS NULL"
BOTH = "BEGIN; UPDATE a SET n = {0} WHERE id = 9; CREATE TABLE t{0} AS SELECT 1 AS id; PREPARE TRANSACTION 'g{0}'"
WORK: dict[str, tuple[str, tuple[Step, ...], str, str]] = {
    "copy on write": (
        "UPDATE a SET n = {0} WHERE id <= 5; INSERT INTO a VALUES (10000 + {0}, {0})",
        (Step.STAGED, Step.VERSION),
        "SELECT count(*) = 5 FROM a WHERE n = {0} AND id <= 5",
        "SELECT count(*) >= 2000 FROM a",
    ),
    "table of a query": (
        "CREATE TABLE t{0} AS SELECT i AS id FROM generate_series(1, 1000) i",
        (Step.STAGED, Step.VERSION, Step.ENTRY),
        "SELECT to_regclass('t{0}') IS NOT NULL",
        "SELECT count(*) = 1000 FROM t{0}",
    ),
    "dropped table": ("DROP TABLE d{0}", (Step.ENTRY, Step.CLEANING), GONE.format("d{0}"), "SELECT true"),
    "compaction, log table": (
        "INSERT INTO small VALUES ({0}); INSERT INTO small VALUES ({0})",
        (Step.COMPACTION, Step.LOG_TABLE),
        "SELECT count(*) >= 1 FROM small WHERE id = {0}",
        "SELECT count(*) >= 32 FROM small",
    ),
    "commit prepared": (
        f"{BOTH}; COMMIT PREPARED 'g{{0}}'",
        (Step.PREPARED, Step.PREPARED_END),
        "SELECT n = {0} FROM a WHERE id = 9",
        "SELECT count(*) = 1 FROM t{0}",
    ),
    "rollback prepared": (
        f"{BOTH}; ROLLBACK PREPARED 'g{{0}}'",
        (Step.PREPARED_END,),
        GONE.format("t{0}"),
        "SELECT n <> {0} FROM a WHERE id = 9",
    ),
}
"""Statements that write or remove files.

For each: the steps at which the node is killed, before and after them, the condition after the statement, and another condition that must
hold then.
"""


def strays(node: NodeServer, store: ObjectStore) -> list[str]:
    """Return the folders below a node's location that belong to no table, and the files that no version names."""
    location = node.conf["data_location"].strip("'").removeprefix("s3a://")
    known_folders = {path.rpartition(f"{location}/")[2] for path in node.psql("postgres", "SELECT path FROM headgate.snapshot()").split()}
    names = [name.removeprefix(f"{location}/") for name in store.files.find(location)]
    folders = {"/".join(name.split("/")[:2]) for name in names} - {"headgate.owner", "headgate.lease", "_headgate/log"}
    return sorted(folders - known_folders) + orphaned_files(store, location)


def settled(node: NodeServer, store: ObjectStore) -> None:
    """Check the node, and that cleaning removes all files that belong to no table."""

    def cleaned() -> bool:
        node.psql("postgres", "CHECKPOINT")
        return strays(node, store) == []

    until(cleaned, f"unknown files are not removed: {strays(node, store)}", 120)
    node.headgate("check", "--online", "-U", "postgres")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("work", WORK)
def test_kill_while_files_are_written_or_removed_leaves_no_orphaned_files(
    own_node: Callable[..., Server], object_store: ObjectStore, work: str
) -> None:
    node = own_node(file_retention="0", **object_store.settings())
    assert isinstance(node, NodeServer)
    statement, steps, done, condition = WORK[work]
    node.psql("postgres", "CREATE TABLE a (id int PRIMARY KEY, n int) WITH (deletion_vectors = off); CREATE TABLE small (id int)")
    node.psql("postgres", "INSERT INTO a SELECT i, 0 FROM generate_series(1, 2000) i")
    for number, where in enumerate((f"{step} {place}" for step in steps for place in ("before", "behind")), 1):
        node.psql("postgres", f"CREATE TABLE d{number} AS SELECT i FROM generate_series(1, 100) i")
        if "small" in statement:
            node.psql("postgres", "TRUNCATE small;" + ";".join("INSERT INTO small VALUES (0)" for _ in range(31)))
        arm(node, f"{where}=kill")
        with contextlib.suppress(SqlError):  # work after a commit may be done after the client has its result
            node.psql("postgres", statement.format(number))
        until(lambda: not is_alive(node), f"{statement} does not pass {where}", 60)
        start_again(node)
        for gid in node.psql("postgres", "SELECT gid FROM pg_prepared_xacts").split():
            node.psql("postgres", f"{'ROLLBACK' if 'ROLLBACK' in statement else 'COMMIT'} PREPARED '{gid}'")
        if node.psql("postgres", done.format(number)) != "t":
            node.psql("postgres", statement.format(number))
        assert node.psql("postgres", f"{done.format(number)}; {condition.format(number)}") == "t\nt", where
    settled(node, object_store)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kill_during_a_copy_or_a_batch_by_tasks_leaves_no_orphaned_files(
    own_node: Callable[..., Server], object_store: ObjectStore, postgres: Server
) -> None:
    node = own_node(file_retention="0", small_batch_rows="0", **object_store.settings())
    assert isinstance(node, NodeServer)
    source = postgres.new_database()
    postgres.psql(source, "CREATE TABLE p (id int PRIMARY KEY, v text); INSERT INTO p SELECT i, 'copied' FROM generate_series(1, 500) i")
    postgres.psql(source, "CREATE PUBLICATION pub FOR TABLE p")
    node.psql("postgres", "CREATE TABLE p (id int PRIMARY KEY, v text)")
    subscribe = f"CREATE SUBSCRIPTION {source} CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub"
    for where in (f"{step} {place}" for step in (Step.STAGED, Step.VERSION) for place in ("before", "behind")):
        for start, arrived in (
            (lambda: node.psql("postgres", subscribe), "SELECT count(*) = 500 FROM p"),
            (lambda: postgres.psql(source, "UPDATE p SET v = v || '+'"), "SELECT count(*) = 500 FROM p WHERE v LIKE '%+'"),
        ):
            arm(node, f"{where}=kill")
            start()
            until(lambda: not is_alive(node), f"no work reaches the failpoint {where}", 120)
            start_again(node)
            until(lambda sql=arrived: node.psql("postgres", sql) == "t", f"the work that was killed at {where} is not completed", 120)
        assert node.psql("postgres", "SELECT v, count(*) FROM p GROUP BY v") == postgres.psql(
            source, "SELECT v, count(*) FROM p GROUP BY v"
        )
        node.psql("postgres", f"DROP SUBSCRIPTION {source}; TRUNCATE p")
        postgres.psql(source, "UPDATE p SET v = 'copied'")
    settled(node, object_store)


def is_alive(node: NodeServer) -> bool:
    """Return whether a node's process runs."""
    try:
        return Path(f"/proc/{node.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_backup_downloads_the_tables_and_one_beside_them_restores_a_lost_disk(
    own_node: Callable[..., Server], object_store: ObjectStore, tmp_path: Path
) -> None:
    node = own_node(**object_store.settings())
    assert isinstance(node, NodeServer)
    node.psql("postgres", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 3000) i")
    node.psql("postgres", "UPDATE t SET v = 'y' WHERE id <= 10; DELETE FROM t WHERE id = 11")
    down = tmp_path / "down"
    node.headgate("backup", str(down), "-U", "postgres")
    assert "data_location = ''" in (down / "headgate.auto.conf").read_text()
    node.headgate("backup", "--beside", "-U", "postgres")
    node.psql("postgres", "INSERT INTO t VALUES (5000, 'lost')")
    node.kill()
    location = node.conf["data_location"].strip("'").removeprefix("s3a://")
    [copy] = object_store.files.ls(f"{location}/_headgate/backup", detail=False)
    shutil.rmtree(node.data)
    node.data.mkdir(mode=0o700)
    for name in object_store.files.find(copy):
        file = node.data / name.removeprefix(f"{copy}/")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        object_store.files.get_file(name, str(file))
        file.chmod(0o600)
    counts = "SELECT count(*), count(*) FILTER (WHERE v = 'y'), count(*) FILTER (WHERE v = 'lost') FROM t"
    node.headgate("start", "-t", "240", "-l", str(node.logfile), "-o", "-c ignore_lost_commits=on")
    assert node.psql("postgres", counts) == "2999|10|0"
    node.psql("postgres", "INSERT INTO t VALUES (5001, 'after')")
    node.headgate("check", "--online", "-U", "postgres")
    node.stop()
    shutil.rmtree(node.data)
    shutil.copytree(down, node.data)
    node.headgate("start", "-t", "240", "-l", str(node.logfile), "-o", f"-c port={node.port}")
    assert node.psql("postgres", counts) == "2999|10|0"
