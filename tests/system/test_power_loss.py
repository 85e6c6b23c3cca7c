"""After a power failure at any moment, a node has every acknowledged commit completely, and nothing else.

A node's writes are recorded while a client runs the statements of WORK, one after another. Then moments are drawn. For each, the disk is
reconstructed as a power failure may leave it (`power`), and a node is started on it. It must show the contents after the last acknowledged
statement, or after the next one, which may have been committed without an acknowledgement.

One moment of the first FEW statements runs with the suite, 320 moments of all statements with `make test-all`. Starting Java takes most of
the time, so most nodes start in the process of the tests, on its Spark session. One in WHOLE runs as a separate process.
"""

from __future__ import annotations

import bisect
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from tests.conftest import NodeServer, until
from tests.system.power import Disk, File, Folder, Recording, can_record, replay

from headgate.cli.demo.servers import free_port
from headgate.errors import PostgresError
from headgate.server.node import Node
from headgate.settings.node import Settings

WORK = [
    "CREATE TABLE a (id int PRIMARY KEY, v text)",
    "CREATE TABLE b (id int PRIMARY KEY, v text)",
    "INSERT INTO a SELECT i, 'first' FROM generate_series(1, 50) i",
    "BEGIN; INSERT INTO b SELECT * FROM a; UPDATE a SET v = 'second' WHERE id % 3 = 0; COMMIT",
    "INSERT INTO a VALUES (100, 'one')",
    "INSERT INTO a VALUES (101, 'two'), (102, 'three')",
    "DELETE FROM a WHERE id <= 5",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    "CREATE PUBLICATION p FOR TABLE a",
    "UPDATE a SET v = 'third' WHERE id = 100",
    "BEGIN; INSERT INTO b VALUES (200, 'prepared'); DELETE FROM a WHERE id = 101; PREPARE TRANSACTION 'g'",
    "COMMIT PREPARED 'g'",
    "ALTER TABLE b ADD COLUMN w int DEFAULT 7",
    "INSERT INTO b VALUES (201, 'wide', 8)",
    "BEGIN; INSERT INTO a VALUES (300, 'prepared'); PREPARE TRANSACTION 'h'",
    "ROLLBACK PREPARED 'h'",
    "ALTER TABLE b ALTER w TYPE bigint",
    "CHECKPOINT",
    "UPDATE b SET w = w + 1",
    "CREATE TABLE c (id int)",
    "INSERT INTO c VALUES (1)",
    "TRUNCATE a",
    "DROP TABLE b",
    "INSERT INTO a SELECT i, repeat('long', 500) FROM generate_series(1, 500) i",
    "SELECT pg_drop_replication_slot('s')",
    "CHECKPOINT",
    "INSERT INTO c VALUES (2)",
]
FEW = 6
WHOLE = 20
CATALOG = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname",
    "SELECT gid FROM pg_prepared_xacts ORDER BY gid",
    "SELECT slot_name FROM pg_replication_slots ORDER BY slot_name",
    "SELECT pubname FROM pg_publication ORDER BY pubname",
)
SERVES = "CREATE TABLE serves (id int); INSERT INTO serves VALUES (1); DROP TABLE serves"


def contents(conninfo: str) -> list[list[Any]]:
    """Return what a node shows: names of objects, and the rows of each table."""
    with psycopg.connect(conninfo, autocommit=True) as session:
        catalog_names = [[row[0] for row in session.execute(sql.encode())] for sql in CATALOG]
        return catalog_names + [
            [row[0] for row in session.execute(f"SELECT t::text FROM {name} t ORDER BY id".encode())] for name in catalog_names[0]
        ]


class Recorded:
    """A node that has run statements of WORK: its directory before them, its recorded writes, and what it showed after each statement."""

    def __init__(self, node: NodeServer, folder: Path, work: list[str]) -> None:
        self.node, self.folder, self.work = node, folder, work
        self.before = folder / "before"
        shutil.copytree(node.data, self.before)
        self.recording = Recording(
            [sys.executable, "-m", "headgate.cli.main", "run", "-D", str(node.data)], folder / "trace", folder / "log"
        )
        conninfo = node.conninfo("postgres")
        until(lambda: _answers(conninfo), "the node does not start under strace", 120)
        self.acknowledged: list[int] = []
        """The position in the recording at which each statement was acknowledged."""
        self.began = self.recording.moment()
        self.contents = [contents(conninfo)]
        with psycopg.connect(conninfo, autocommit=True) as session:
            for sql in work:
                session.execute(sql.encode())
                self.acknowledged.append(self.recording.moment())
                self.contents.append(contents(conninfo))
        self.recording.end(node.pid)

    def states(self, random: Random, count: int) -> Iterator[tuple[int, Path]]:
        """Yield possible contents of the disk at random moments: the number of acknowledged statements, and the folder."""
        trace, cwd = self.recording.trace, Path.cwd()
        positions = [position for position in replay(self.disk(), trace, cwd) if position >= self.began]
        chosen = sorted(random.choices(range(len(positions)), k=count))
        disk, number = self.disk(), -1
        for position in replay(disk, trace, cwd):
            number += position >= self.began
            while chosen and chosen[0] == number:
                chosen.pop(0)
                target = self.folder / "state"
                shutil.rmtree(target, ignore_errors=True)
                disk.crashed(random, target)
                yield bisect.bisect_right(self.acknowledged, position), target

    def disk(self) -> Disk:
        """Return the disk as it was before the statements."""
        disk = Disk(self.before)
        disk.root = self.node.data
        return disk


def _answers(conninfo: str) -> bool:
    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def strace() -> None:
    """Skip the test if strace cannot be used."""
    if not can_record():
        pytest.skip("strace is not installed, or not permitted")


@pytest.fixture
def recorded(count: int, strace: None) -> Iterator[Recorded]:
    """A recording for `count` states."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-power-"))
    node = NodeServer(folder)
    node.create()
    try:
        yield Recorded(node, folder, WORK if count > FEW else WORK[:FEW])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.on_disk
@pytest.mark.one_java  # the writes of executors are not recorded
@pytest.mark.parametrize(("seed", "count"), [(1, 1), pytest.param(2, 320, marks=pytest.mark.timeout(6 * 3600))])
def test_node_has_exactly_the_acknowledged_commits_after_a_power_failure(
    request: pytest.FixtureRequest, recorded: Recorded, seed: int, count: int
) -> None:
    wrong = []
    for number, (acknowledged, state) in enumerate(recorded.states(Random(seed), count)):
        title = f"state {number} after statement {acknowledged} ({recorded.work[acknowledged - 1]})"
        expected = recorded.contents[acknowledged : acknowledged + 2]
        try:
            with _as_process(recorded.node, state) if number % WHOLE == WHOLE - 1 else _in_this_process(request, state, number) as conninfo:
                actual = contents(conninfo)
                if actual not in expected:
                    wrong.append(f"{title}: {_difference(actual, expected[0])}")
                with psycopg.connect(conninfo, autocommit=True) as session:
                    session.execute(SERVES.encode())
        except (AssertionError, PostgresError, psycopg.Error) as error:
            wrong.append(f"{title}: {error}")
            if (kept_states := os.environ.get("HEADGATE_KEEP_STATES")) is not None:
                shutil.copytree(state, Path(kept_states) / str(number))
    assert wrong == []


@contextmanager
def _as_process(node: NodeServer, state: Path) -> Iterator[str]:
    """Start a node on a state as a separate process."""
    until(lambda: _is_removed(node.data), "the folder of the previous state cannot be removed")
    shutil.copytree(state, node.data)
    try:
        node.start()
        yield node.conninfo("postgres")
    except (AssertionError, psycopg.Error) as error:
        raise AssertionError(f"{error}\n{node.log()[-2000:]}") from error
    finally:
        if node.running:
            node.kill()


@contextmanager
def _in_this_process(request: pytest.FixtureRequest, state: Path, number: int) -> Iterator[str]:
    """Start a node on a state in this process. It gets its own folder, because DuckDB identifies a file by its path."""
    folder, port = state.with_name(f"state {number}"), free_port()
    shutil.copytree(state, folder)
    settings = {"port": str(port), "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "warm_up": "off"}
    node = Node(folder, Settings(folder, settings).load(), spark=request.getfixturevalue("spark"))
    try:
        node.start()
        try:
            yield f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
        finally:
            node.stop("fast")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_removed(folder: Path) -> bool:
    """Remove a folder. The Java virtual machine of a killed node may remove its own files there for a moment longer."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _difference(actual: list[list[Any]], expected: list[list[Any]]) -> str:
    return (
        "; ".join(
            f"{actual_rows[:5]} instead of {expected_rows[:5]}"
            for actual_rows, expected_rows in zip(actual, expected, strict=False)
            if actual_rows != expected_rows
        )
        or "more or fewer tables"
    )


# ---- the disk of the tests itself ----------------------------------------------------------------------------
class FixedChoices(Random):
    """A source of fixed choices: for the file, and if that is None, for each write."""

    def __init__(self, *choices: bool | None) -> None:
        super().__init__()
        self._choices = [*choices]

    def choice(self, seq: object) -> Any:
        return self._choices.pop(0)

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return 1


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        pytest.param((False,), b"synced", id="all lost"),
        pytest.param((True,), b"synceD and more" + bytes(5) + b"t" * 600, id="none lost"),
        pytest.param((None, False, True), b"synced" + bytes(14) + b"t" * 600, id="first write lost"),
        pytest.param((None, True, None), b"synceD and more" + bytes(5) + b"t" * 512, id="second write torn"),
    ],
)
def test_fsynced_bytes_of_a_file_stay(choices: tuple[bool | None, ...], expected: bytes) -> None:
    file = File()
    file.write(0, b"synced")
    file.sync()
    file.write(5, b"D and more")
    file.write(20, b"t" * 600)
    assert file.crashed(FixedChoices(*choices)) == expected


def test_name_in_a_folder_that_was_not_fsynced_may_be_lost_and_a_rename_is_atomic() -> None:
    folder, file = Folder(), File()
    folder.put((".draft", file))
    folder.sync()
    folder.put((".draft", None), ("name", file))
    folder.put(("other", file))
    states = {frozenset(folder.crashed(Random(seed))) for seed in range(50)}
    assert states == {frozenset({".draft"}), frozenset({"name"}), frozenset({"name", "other"})}


def test_command_is_recorded_and_replayed(tmp_path: Path, strace: None) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_text("old")
    disk = Disk(root)
    text = (
        "import os, threading, shutil\n"
        "os.mkdir('d'); f = open('d/f', 'w'); f.write('abc'); f.flush(); os.fsync(f.fileno()); f.seek(1); f.write('X'); f.close()\n"
        "t = threading.Thread(target=lambda: open('g', 'ab').write(b'thread')); t.start(); t.join()\n"
        "os.rename('g', 'h'); os.unlink('old'); os.mkdir('e'); open('e/x', 'w').close(); shutil.rmtree('e')\n"
        "d = os.open('d', os.O_RDONLY); os.fsync(d); os.truncate('d/f', 2)\n"
    )
    command = [sys.executable, "-c", f"import os; os.chdir({str(root)!r})\n{text.replace(chr(39), chr(34))}"]
    recording = Recording(command, tmp_path / "trace", tmp_path / "log")
    recording._process.wait(60)
    assert (tmp_path / "log").read_text() == ""
    assert len(list(replay(disk, recording.trace, root))) > 8
    assert sorted(disk.top.entries) == sorted(path.name for path in root.iterdir()) == ["d", "h"]
    for path in ("d/f", "h"):
        file = disk.find(path.split("/"))
        assert isinstance(file, File)
        file.sync()
        assert bytes(file.synced) == (root / path).read_bytes()
