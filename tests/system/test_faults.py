"""After faults under a workload no row is missing or duplicated, without manual intervention.

One test runs with the suite: it kills the node's Java virtual machine and then the node. The others (a connection that is cut, stalled or
slow, a killed publisher, full disks, a crash during copies) run with `make test-all`.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import check, patience
from tests.subscriber.workload import CONTENTS, PUBLISHED, READY, TABLES, Workload
from tests.system.proxy import Proxy

IMPATIENT = {"wal_receiver_timeout": "3s", "wal_receiver_status_interval": "1s"}
"""Settings of a node with short timeouts."""


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
    """A database of PostgreSQL with a workload, and a node that subscribes to it through a proxy."""

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
        """Return what psql prints on the node."""
        return str(self.node.psql(self.lake, script))

    def subscribe(self) -> None:
        """Create the subscription, through the proxy."""
        conninfo = self.publisher.conninfo(self.database, port=str(self.proxy.port))
        self.sql(f"CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p WITH (slot_name = '{self.database}')")

    def write(self) -> None:
        """Start the workload."""
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
        """Stop the workload, and wait until both servers have the same rows."""
        self.quiet()
        ready = "SELECT count(*) FILTER (WHERE srsubstate <> 'r') FROM pg_subscription_rel"
        until(lambda: self.sql(ready) == "0", "tables are not ready")
        end = self.publisher.psql(self.database, "SELECT pg_current_wal_lsn()")
        confirmed = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{self.database}'"
        until(lambda: self.publisher.psql(self.database, confirmed) == "t", f"the slot does not reach {end}")
        for name, query in CONTENTS.items():
            expected = sorted(self.publisher.psql(self.database, query).split("\n"))
            assert sorted(self.sql(query).split("\n")) == expected, name
        sync_slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%_sync_%'"
        until(lambda: self.publisher.psql(self.database, sync_slots) == "0", "a synchronization slot is left")
        check(self.node, self.lake)

    def kill_jvm(self) -> None:
        """Kill the node's Java virtual machine, and wait until the node runs with another one."""
        old = self.jvm()
        os.kill(old, signal.SIGKILL)
        until(lambda: self.jvm() != old and self.sql("SELECT 1") == "1", "the node does not start again")

    def crash_publisher(self) -> None:
        """Kill the postmaster, and start it again as soon as its backends have ended."""
        self.publisher.kill()
        until(lambda: self.publisher.start() is None, "the publisher does not start")

    def quiet(self) -> None:
        """Stop the workload."""
        self._stop.set()
        if self._writer is not None:
            self._writer.join()

    def jvm(self) -> int:
        """Return the process id of the node's Java virtual machine."""
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
    replicas: list[Replica] = []

    def make(**conf: str) -> Replica:
        replicas.append(Replica(cluster(), own_node(**IMPATIENT, **conf)))
        return replicas[-1]

    yield make
    for replica_to_close in replicas:
        replica_to_close.close()


@pytest.mark.slow
def test_node_recovers_from_a_killed_java_virtual_machine_and_a_kill_without_loss(postgres, spare_node) -> None:
    with closing(Replica(postgres, spare_node(**IMPATIENT))) as replica:
        _kill_both(replica)


def _kill_both(replica: Replica) -> None:
    logged = len(replica.node.log())
    replica.subscribe()
    until(lambda: replica.sql(READY) == "t", "tables are not ready")
    replica.write()
    until(lambda: replica.sql("SELECT count(*) FROM wide") != "0", "nothing arrives")
    os.kill(replica.jvm(), signal.SIGKILL)
    until(lambda: "all server processes terminated; reinitializing" in replica.node.log()[logged:], "the node does not notice")
    until(lambda: replica.sql("SELECT 1") == "1", "the node does not start again")
    rows = replica.sql("SELECT count(*) FROM wide")
    until(lambda: replica.sql("SELECT count(*) FROM wide") != rows, "nothing arrives at the restarted node")
    leftover = replica.node.data / "pgsql_tmp" / "result-of-a-killed-node"
    leftover.mkdir()
    replica.node.kill()
    replica.node.start()
    assert not leftover.exists()
    replica.check()
    replica.sql("DROP SUBSCRIPTION s")


@pytest.mark.slow
def test_cut_or_stalled_connection_is_opened_again(replica) -> None:
    source = replica()
    source.subscribe()
    source.proxy.cut()
    until(lambda: source.sql(READY) == "t", "tables are not ready")
    source.write()
    for _ in range(3):
        time.sleep(0.7)
        source.proxy.cut()
    streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name = 's'"
    until(lambda: source.publisher.psql(source.database, streaming) == "1", "the subscription does not stream again")
    source.proxy.stalled = True
    until(lambda: "terminating logical replication worker due to timeout" in source.node.log(), "the stalled connection does not time out")
    source.proxy.stalled = False
    source.check()


@pytest.mark.slow
def test_killed_node_continues_its_copies(replica) -> None:
    source = replica()
    source.write()
    source.subscribe()
    for pause in (0.2, 1.0, 2.5):
        time.sleep(pause)
        source.node.kill()
        source.node.start()
    source.check()


AUDITED = """CREATE TABLE own (id int PRIMARY KEY);
CREATE TABLE audit (tab text, id int, PRIMARY KEY (tab, id));
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.audit VALUES (TG_TABLE_NAME, NEW.id); RETURN NEW; END $$;
CREATE TRIGGER note AFTER INSERT ON own FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT ON toasted FOR EACH ROW EXECUTE FUNCTION note();
ALTER TABLE toasted ENABLE ALWAYS TRIGGER note"""
"""Triggers that write to a second table, for a client's rows and for applied rows."""
UNAUDITED = """WITH written AS (SELECT 'own' AS tab, id FROM own UNION ALL SELECT 'toasted', id FROM toasted)
SELECT tab, count(*) FROM ((TABLE written EXCEPT TABLE audit) UNION ALL (TABLE audit EXCEPT TABLE written)) d GROUP BY tab"""
"""The number of rows that are in only one of the two tables."""


@pytest.mark.slow
def test_killed_node_has_a_row_if_and_only_if_it_has_what_its_trigger_writes(replica) -> None:
    source = replica()
    source.sql(AUDITED)
    source.subscribe()
    until(lambda: source.sql(READY) == "t", "tables are not ready")
    numbers, committed = itertools.count(1), 0

    def write() -> None:
        """Insert rows on both servers until the node is killed. Count the client's rows that it has committed."""
        nonlocal committed
        for number in numbers:
            first = 3 * number
            source.publisher.psql(
                source.database, f"INSERT INTO toasted SELECT 100000 + i, 'b', 'n' FROM generate_series({first}, {first + 2}) i"
            )
            try:
                source.sql(f"INSERT INTO own SELECT generate_series({first}, {first + 2})")
            except Exception:  # noqa: BLE001 (psql fails when the node is killed)
                return
            committed += 3

    for more in (3, 9, 30):
        goal = committed + more
        with ThreadPoolExecutor() as pool:
            writer = pool.submit(write)
            until(lambda: committed >= goal or writer.done(), "the client does not write")  # noqa: B023 (called in this iteration)
            source.node.kill()
            writer.result()
        source.node.start()
        assert source.sql(UNAUDITED) == ""
        assert int(source.sql("SELECT count(*) FROM own")) >= committed
    source.check()
    assert source.sql(UNAUDITED) == ""
    assert int(source.sql("SELECT count(*) FROM audit WHERE tab = 'toasted' AND id > 100000")) >= committed


@pytest.mark.slow
@pytest.mark.parametrize("what", ["virtual machine", "publisher", "line", "node"])
def test_copies_and_table_handovers_complete_after_any_interruption(replica, what: str) -> None:
    source = replica()
    source.proxy.rate = 400_000
    source.write()
    source.subscribe()
    for pause in (0.3, 1.0, 2.0, 4.0):
        time.sleep(pause)
        match what:
            case "virtual machine":
                source.kill_jvm()
            case "publisher":
                source.crash_publisher()
            case "line":
                source.proxy.cut()
            case "node":
                source.node.kill()
                source.node.start()
    source.proxy.rate = None
    source.check()


@pytest.mark.slow
def test_java_virtual_machine_that_does_not_respond_is_replaced(replica) -> None:
    source = replica()
    old = source.jvm()
    os.kill(old, signal.SIGSTOP)
    until(lambda: not Path(f"/proc/{old}").exists(), "the old virtual machine is still running", 150)
    until(lambda: source.jvm() != old and source.sql("SELECT 1") == "1", "the node does not start again")


@pytest.mark.slow
def test_killed_publisher_is_reconnected_to(replica) -> None:
    source = replica()
    source.subscribe()
    until(lambda: source.sql(READY) == "t", "tables are not ready")
    source.write()
    for _ in range(3):
        time.sleep(2)
        source.crash_publisher()
    source.check()


@pytest.mark.slow
def test_slow_connection_delivers_everything(replica) -> None:
    source = replica()
    source.proxy.rate = 300_000
    source.write()
    source.subscribe()
    time.sleep(10)
    source.proxy.rate = None
    source.check()


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
def test_full_disk_stops_replication_until_there_is_room(replica, small_disk, tmp_path: Path, what: str) -> None:
    folder = small_disk(tmp_path / "small")
    source = replica(**({"data_location": f"'{folder}'"} if what == "tables" else {}))
    if what == "segments":
        (source.node.data / "pg_replication").mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", str(folder), str(source.node.data / "pg_replication")], check=True)
    source.subscribe()
    until(lambda: source.sql(READY) == "t", "tables are not ready")
    filler = folder / "filler"
    filler.write_bytes(b"x" * (4 << 20))
    source.publisher.psql(
        source.database, "INSERT INTO toasted SELECT i, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 60) WHERE i > 0), 'n'"
        " FROM generate_series(10001, 16000) i"
    )  # fmt: skip
    until(lambda: "No space left on device" in source.node.log(), "the full disk is not reported")
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=300m", str(folder)], check=True)
    source.check()
    if what == "segments":
        subprocess.run(["umount", "-l", str(source.node.data / "pg_replication")], check=True)
