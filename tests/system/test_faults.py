"""Faults under a workload: afterwards nothing is missing, nothing is there twice, and nobody had to help.

One runs with the suite: the node's Java virtual machine and then the node itself are killed. The others (a line that is cut, stalled and
slow, a publisher that is killed, full disks, a crash while tables are copied) run with `make test-all`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import check, patience
from tests.subscriber.workload import CONTENTS, PUBLISHED, READY, TABLES, Workload
from tests.system.proxy import Proxy

IMPATIENT = {"wal_receiver_timeout": "3s", "wal_receiver_status_interval": "1s"}
"""Settings of a node that notices soon that nothing comes."""


def until(condition: Callable[[], Any], what: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds * patience()
    while True:
        try:
            if condition():
                return
        except Exception as error:  # noqa: BLE001 (the server may be down)
            what = f"{what}: {error}"[:500]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Replica:
    """A database of a real PostgreSQL with a workload, and a node that subscribes to it (through a proxy)."""

    def __init__(self, publisher: Any, node: Any) -> None:
        self.publisher, self.node = publisher, node
        self.database, self.lake = publisher.new_database(), node.new_database()
        self.proxy = Proxy(publisher.port)
        self.workload = Workload(7, 200)
        self._stop = threading.Event()
        self._writer: threading.Thread | None = None
        publisher.psql(self.database, f"{TABLES} {PUBLISHED}")
        publisher.psql(self.database, "INSERT INTO toasted SELECT i, repeat(md5(i::text), 20), 'n' FROM generate_series(1, 2000) i")
        self.sql(TABLES)

    def sql(self, script: str) -> str:
        """What psql prints for it on the node."""
        return str(self.node.psql(self.lake, script))

    def subscribe(self) -> None:
        """CREATE SUBSCRIPTION, through the proxy."""
        conninfo = self.publisher.conninfo(self.database, port=str(self.proxy.port))
        self.sql(f"CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p WITH (slot_name = '{self.database}')")

    def write(self) -> None:
        """Begins to write."""
        self._stop.clear()

        def work() -> None:
            while not self._stop.is_set():
                try:
                    self.publisher.psql(self.database, self.workload.transaction())
                except Exception:  # noqa: BLE001 (the publisher may be down)
                    time.sleep(0.3)
                time.sleep(0.05)

        self._writer = threading.Thread(target=work, daemon=True)
        self._writer.start()

    def check(self) -> None:
        """Ends the workload and waits until both hold the same."""
        self.quiet()
        ready = "SELECT count(*) FILTER (WHERE srsubstate <> 'r') FROM pg_subscription_rel"
        until(lambda: self.sql(ready) == "0", "tables are not ready")
        end = self.publisher.psql(self.database, "SELECT pg_current_wal_lsn()")
        confirmed = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{self.database}'"
        until(lambda: self.publisher.psql(self.database, confirmed) == "t", f"the slot does not reach {end}")
        for name, query in CONTENTS.items():
            expected = sorted(self.publisher.psql(self.database, query).split("\n"))
            assert sorted(self.sql(query).split("\n")) == expected, name
        left = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%_sync_%'"
        until(lambda: self.publisher.psql(self.database, left) == "0", "a synchronization slot is left")
        check(self.node, self.lake)

    def kill_jvm(self) -> None:
        """Kills the node's Java virtual machine, and waits until the node is there again with another one."""
        old = self.jvm()
        os.kill(old, signal.SIGKILL)
        until(lambda: self.jvm() != old and self.sql("SELECT 1") == "1", "the node does not come back")

    def crash_publisher(self) -> None:
        """Kills the postmaster, and starts it again as soon as its backends have ended."""
        self.publisher.kill()
        until(lambda: self.publisher.start() is None, "the publisher does not start")

    def quiet(self) -> None:
        """Ends the workload."""
        self._stop.set()
        if self._writer is not None:
            self._writer.join()

    def jvm(self) -> int:
        """The process id of the node's Java virtual machine."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            text = stat.read_text()
            if "(java)" in text and int(text.rsplit(")", 1)[1].split()[1]) == self.node.pid:
                return int(stat.parent.name)
        raise AssertionError("no Java virtual machine")

    def close(self) -> None:
        self.quiet()
        self.proxy.__exit__()


@pytest.fixture
def replica(cluster, own_node) -> Iterator[Callable[..., Replica]]:
    made: list[Replica] = []

    def make(**conf: str) -> Replica:
        made.append(Replica(cluster(), own_node(**IMPATIENT, **conf)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.slow
def test_a_killed_java_virtual_machine_and_a_killed_node_come_back_and_lose_nothing(postgres, spare_node) -> None:
    with closing(Replica(postgres, spare_node(**IMPATIENT))) as one:
        _kill_both(one)


def _kill_both(one: Replica) -> None:
    logged = len(one.node.log())
    one.subscribe()
    until(lambda: one.sql(READY) == "t", "tables are not ready")
    one.write()
    until(lambda: one.sql("SELECT count(*) FROM wide") != "0", "nothing arrives")
    os.kill(one.jvm(), signal.SIGKILL)
    until(lambda: "all server processes terminated; reinitializing" in one.node.log()[logged:], "the node does not notice")
    until(lambda: one.sql("SELECT 1") == "1", "the node does not come back")
    rows = one.sql("SELECT count(*) FROM wide")
    until(lambda: one.sql("SELECT count(*) FROM wide") != rows, "nothing arrives at the node that came back")
    left = one.node.data / "pgsql_tmp" / "result-of-a-killed-node"
    left.mkdir()
    one.node.kill()
    one.node.start()
    assert not left.exists()
    one.check()
    one.sql("DROP SUBSCRIPTION s")


@pytest.mark.slow
def test_a_connection_that_is_cut_and_stalled_is_made_again(replica) -> None:
    one = replica()
    one.subscribe()
    one.proxy.cut()
    until(lambda: one.sql(READY) == "t", "tables are not ready")
    one.write()
    for _ in range(3):
        time.sleep(0.7)
        one.proxy.cut()
    streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name = 's'"
    until(lambda: one.publisher.psql(one.database, streaming) == "1", "it does not stream again")
    one.proxy.stalled = True
    until(lambda: "terminating logical replication worker due to timeout" in one.node.log(), "the silence is not noticed")
    one.proxy.stalled = False
    one.check()


@pytest.mark.slow
def test_a_killed_node_goes_on_with_its_copies(replica) -> None:
    one = replica()
    one.write()
    one.subscribe()
    for pause in (0.2, 1.0, 2.5):
        time.sleep(pause)
        one.node.kill()
        one.node.start()
    one.check()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["virtual machine", "publisher", "line", "node"])
def test_whatever_ends_while_tables_are_copied_and_handed_over_they_get_complete(replica, what: str) -> None:
    one = replica()
    one.proxy.rate = 400_000
    one.write()
    one.subscribe()
    for pause in (0.3, 1.0, 2.0, 4.0):
        time.sleep(pause)
        match what:
            case "virtual machine":
                one.kill_jvm()
            case "publisher":
                one.crash_publisher()
            case "line":
                one.proxy.cut()
            case "node":
                one.node.kill()
                one.node.start()
    one.proxy.rate = None
    one.check()


@pytest.mark.slow
def test_a_virtual_machine_that_answers_no_more_is_replaced_by_another(replica) -> None:
    one = replica()
    old = one.jvm()
    os.kill(old, signal.SIGSTOP)
    until(lambda: not Path(f"/proc/{old}").exists(), "it is still there", 150)
    until(lambda: one.jvm() != old and one.sql("SELECT 1") == "1", "the node does not come back")


@pytest.mark.slow
def test_a_killed_publisher_is_found_again(replica) -> None:
    one = replica()
    one.subscribe()
    until(lambda: one.sql(READY) == "t", "tables are not ready")
    one.write()
    for _ in range(3):
        time.sleep(2)
        one.crash_publisher()
    one.check()


@pytest.mark.slow
def test_a_slow_line_delivers_everything(replica) -> None:
    one = replica()
    one.proxy.rate = 300_000
    one.write()
    one.subscribe()
    time.sleep(10)
    one.proxy.rate = None
    one.check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    mounted: list[Path] = []

    def mount(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], check=True)
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["segments", "tables"])
def test_a_full_disk_stops_replication_until_there_is_room(replica, small_disk, tmp_path: Path, what: str) -> None:
    folder = small_disk(tmp_path / "small")
    one = replica(**({"data_location": f"'{folder}'"} if what == "tables" else {}))
    if what == "segments":
        (one.node.data / "pg_replication").mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", str(folder), str(one.node.data / "pg_replication")], check=True)
    one.subscribe()
    until(lambda: one.sql(READY) == "t", "tables are not ready")
    filler = folder / "filler"
    filler.write_bytes(b"x" * (4 << 20))
    one.publisher.psql(
        one.database, "INSERT INTO toasted SELECT i, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 60) WHERE i > 0), 'n'"
        " FROM generate_series(10001, 16000) i"
    )  # fmt: skip
    until(lambda: "No space left on device" in one.node.log(), "the disk does not get full")
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=300m", str(folder)], check=True)
    one.check()
    if what == "segments":
        subprocess.run(["umount", "-l", str(one.node.data / "pg_replication")], check=True)
