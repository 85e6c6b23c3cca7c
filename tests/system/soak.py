"""`make soak MINUTES=n`: run a chain of servers under load and faults for some minutes, and compare the servers after each round.

    PostgreSQL ──► node ──► PostgreSQL         20 tables, which the node publishes with a row filter, and a table of the node's own

In each round, writers on the publisher and on the node work while faults happen one after another (FAULTS). The faults are kill -9 of the
node, of its Java virtual machine and of the publisher, restarts of each server, connections that are cut or stall, a full disk, no free
connections, and CHECKPOINT. Then the writers stop, and these conditions are checked:

    The node has the publisher's rows, and its subscriber has those that pass the filter (a digest of each table is compared).
    The rows that the node has acknowledged to its sessions are stored once. The rows that it has rejected are not stored.
    No session waits for a lock, and each server answers.

Each round prints the resources that the node uses: memory, threads, descriptors, segment files, table files, and the size of the catalog.
At the end, the minimum of the last third of the rounds is compared with the minimum of the second third. No measure may have grown by more
than GROWTH. `headgate check` runs last.

The exit code is 0 if all conditions hold. The seed is printed. ``--seed`` repeats the order of the faults, not their times.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

import psycopg
import pytest
from tests.conftest import HEADGATE, NodeServer, PostgresServer, SqlError, until
from tests.disk import Disk
from tests.system.chain import Database, arrived, subscribe
from tests.system.proxy import Proxy

TABLES = 20
ROUND_SECONDS = 40.0
PATIENCE = 300.0
GROWTH = 1.25
"""The factor by which the minimum of a measure may grow between the second and the last third of a run."""
DISK_MEGABYTES = 3_000
CLEANING = {"file_retention": "1min", "checkpoint_timeout": "1min"}
"""Unused files are removed within two rounds. By default they are kept for a week, so their number would grow during the whole run."""
FILTER = "id % 3 <> 0"
MAKE = "".join(f"CREATE TABLE t{n} (id int PRIMARY KEY, v text, n numeric(12,2), at timestamptz); " for n in range(TABLES))
PUBLISH = "CREATE PUBLICATION p FOR TABLE " + ", ".join(f"t{n}{{0}}" for n in range(TABLES))
DIGEST = "SELECT count(*), md5(string_agg(id || '|' || coalesce(v, '-') || '|' || n || '|' || at, ',' ORDER BY id)) FROM t{} WHERE {}"


class Soak:
    """The servers, the writers and the faults."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.disk: Disk | None = None
        (folder / "lake").mkdir()
        with contextlib.suppress(pytest.skip.Exception):
            self.disk = Disk(folder / "lake", DISK_MEGABYTES)
        self.servers = [
            PostgresServer(_make_folder(folder / "source")),
            NodeServer(folder / "lake", **CLEANING),
            PostgresServer(_make_folder(folder / "last")),
        ]
        for server in self.servers:
            server.create()
            server.start()
        self.source, self.node, self.last = (Database.new(server) for server in self.servers)
        self.proxies = [Proxy(self.servers[0].port), Proxy(self.servers[1].port)]
        self.writing = threading.Event()
        self.ended = False
        self.acknowledged: set[int] = set()
        """The numbers whose INSERT the node has confirmed."""
        self.refused: set[int] = set()
        self.transactions = 0
        self._chain()
        self._threads = [threading.Thread(target=writer, daemon=True) for writer in (self._publish, self._publish, self._insert)]
        for thread in self._threads:
            thread.start()

    def _chain(self) -> None:
        for database in (self.source, self.node, self.last):
            database.sql(MAKE)
        self.node.sql("CREATE TABLE own (number int PRIMARY KEY, twice int)")
        self.source.sql(PUBLISH.format(""))
        self.node.sql(PUBLISH.format(f" WHERE ({FILTER})"))
        for subscriber, publisher, proxy in ((self.node, self.source, 0), (self.last, self.node, 1)):
            proxied = Database(_BehindProxy(publisher.server, self.proxies[proxy].port), publisher.name)
            subscribe(subscriber, proxied, "s", "p")

    # ---- writers ----------------------------------------------------------------------------------------
    def _publish(self) -> None:
        """Run transactions of all sizes on the publisher."""
        random = Random(self.random.random())
        while not self.ended:
            self.writing.wait()
            with contextlib.suppress(SqlError, subprocess.TimeoutExpired):
                self.source.sql("BEGIN; " + "; ".join(_change(random) for _ in range(random.randint(1, 4))) + "; COMMIT")
                self.transactions += 1
            time.sleep(random.uniform(0, 0.1))

    def _insert(self) -> None:
        """Insert rows one by one through a session of the node. Each number is tried once."""
        number = 0
        while not self.ended:
            self.writing.wait()
            with contextlib.suppress(psycopg.Error), psycopg.connect(self.node.conninfo, autocommit=True, connect_timeout=10) as session:
                while self.writing.is_set():
                    number += 1
                    try:
                        session.execute("INSERT INTO own VALUES (%s, %s)", (number, number * 2))
                    except psycopg.OperationalError as error:
                        if error.sqlstate is not None and not error.sqlstate.startswith("57"):
                            self.refused.add(number)  # the server has answered; a lost connection has no SQLSTATE
                        raise
                    except psycopg.Error:
                        self.refused.add(number)
                        raise
                    self.acknowledged.add(number)
                    if number % 50 == 0:
                        session.execute("UPDATE own SET twice = number * 2 WHERE number > %s", (number - 20,))
            time.sleep(0.2)

    # ---- faults -----------------------------------------------------------------------------------------
    def strike(self) -> str:
        """Cause a random fault and return its name."""
        names = [name for name in FAULTS if name != "a full disk" or self.disk is not None]
        name = self.random.choice(names)
        FAULTS[name](self)
        return name

    def kill(self, place: int) -> None:
        self.servers[place].kill()
        until(lambda: _started(self.servers[place]), "a killed server does not start", PATIENCE)

    def kill_jvm(self) -> None:
        """Kill the Java virtual machine of a node that has started. A node whose JVM dies earlier ends and does not restart itself."""
        until(self.answers, "a node whose virtual machine was killed does not start", PATIENCE)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a node that restarts itself has no pid file for a moment
            pids = subprocess.run(["pgrep", "-P", str(self.servers[1].pid), "java"], capture_output=True, text=True).stdout.split()
            for pid in pids:
                os.kill(int(pid), signal.SIGKILL)

    def answers(self) -> bool:
        """Return whether the node accepts sessions."""
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.node.conninfo, connect_timeout=10):
            return True
        return False

    def stall(self) -> None:
        for proxy in self.proxies:
            proxy.stalled = True
        time.sleep(5)
        for proxy in self.proxies:
            proxy.stalled = False

    def fill(self) -> None:
        assert self.disk is not None
        self.disk.fill(but=self.random.choice((0, 1 << 16, 1 << 20)))
        time.sleep(5)
        self.disk.free()

    def crowd(self) -> None:
        """Open connections until the node rejects one, and hold them for three seconds."""
        connections = []
        with contextlib.suppress(psycopg.Error):
            for _ in range(300):
                connections.append(psycopg.connect(self.node.conninfo, connect_timeout=2))  # noqa: PERF401 (those before the one that fails are held)
        time.sleep(3)
        for connection in connections:
            connection.close()

    def checkpoint(self) -> None:
        with contextlib.suppress(SqlError):
            self.servers[1].psql(self.node.name, "CHECKPOINT", timeout=PATIENCE)  # Delta checkpoints of 20 tables on a busy machine

    # ---- a round ----------------------------------------------------------------------------------------
    def round(self) -> tuple[list[str], list[str]]:
        """Run a round. Return its faults, and the problems found after it."""
        struck, end = [], time.monotonic() + ROUND_SECONDS
        self.writing.set()
        while time.monotonic() < end:
            time.sleep(self.random.uniform(1, 6))
            struck.append(self.strike())
        self.writing.clear()
        for server in (self.source, self.node, self.last):
            until(lambda server=server: _answers(server), f"{server.name} does not answer", PATIENCE)
        arrived(self.source, "s", PATIENCE)
        arrived(self.node, "s", PATIENCE)
        return struck, self.problems()

    def problems(self) -> list[str]:
        """Return the conditions of the module docstring that do not hold while the writers are stopped."""
        problems = []
        for number in range(TABLES):
            for upstream, downstream, where in ((self.source, self.node, "true"), (self.node, self.last, FILTER)):
                digests = (
                    upstream.sql(DIGEST.format(number, where)),
                    downstream.sql(DIGEST.format(number, where if downstream is self.node else "true")),
                )
                if digests[0] != digests[1]:
                    problems.append(
                        f"t{number}: {upstream.name} of {type(upstream.server).__name__} has {digests[0]}, its subscriber {digests[1]}"
                    )
        stored = {int(row) for row in self.node.rows("SELECT number FROM own")}
        if lost := self.acknowledged - stored:
            problems.append(f"{len(lost)} acknowledged rows are missing, {min(lost)} is the first")
        if refused_but_stored := self.refused & stored:
            problems.append(f"{len(refused_but_stored)} rejected rows are stored, the first one is {min(refused_but_stored)}")
        if self.node.sql("SELECT count(*) FROM own WHERE twice <> number * 2 OR twice IS NULL") != "0":
            problems.append("a row of a local table is half changed")
        if self.node.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != "0":
            problems.append("a session waits for a lock while the writers are stopped")
        return problems

    def resources(self) -> dict[str, float]:
        """Return the resources that the node uses (megabytes and counts). Files are counted after a CHECKPOINT, which removes unused ones."""
        self.checkpoint()
        pid, data = self.servers[1].pid, self.servers[1].data
        java = subprocess.run(["pgrep", "-P", str(pid), "java"], capture_output=True, text=True).stdout.split()
        status = {name: value for line in Path(f"/proc/{pid}/status").read_text().splitlines() for name, _, value in [line.partition(":")]}
        megabytes = lambda line: int(line.split()[0]) / 1024  # noqa: E731
        java_status = Path(f"/proc/{java[0]}/status").read_text().split("VmRSS:")[1] if java else "0"
        return {
            "python MB": megabytes(status["VmRSS"]),
            "java MB": megabytes(java_status),
            "threads": float(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208
            "segments": len([*data.glob("pg_replication/**/*")]),
            "files": len([*data.glob("base/*/*/*.parquet")]),
            "log files": len([*data.glob("base/*/*/_delta_log/*")]),
            "catalog MB": sum(path.stat().st_size for path in data.glob("catalog.duckdb*")) / 2**20,
        }

    def end(self) -> int:
        """Stop the writers, the proxies and the servers. Return the exit code of `headgate check`."""
        self.ended = True
        self.writing.set()
        for thread in self._threads:
            thread.join(60)
        for proxy in self.proxies:
            proxy.__exit__()
        for server in reversed(self.servers):
            with contextlib.suppress(Exception):
                server.stop("fast")
        return subprocess.run([*HEADGATE, "check", "-D", str(self.servers[1].data)], text=True).returncode

    def keep(self, folder: Path) -> None:
        """Copy the node and its log from its small disk, which is removed after the run."""
        shutil.copytree(self.servers[1].data, folder, symlinks=True)
        shutil.copy(self.servers[1].logfile, folder.with_suffix(".log"))

    def close(self) -> None:
        """Remove the disk."""
        if self.disk is not None:
            self.disk.end()


FAULTS: dict[str, Callable[[Soak], None]] = {
    "kill -9 of the node": lambda soak: soak.kill(1),
    "kill -9 of its Java virtual machine": Soak.kill_jvm,
    "kill -9 of the publisher": lambda soak: soak.kill(0),
    "restart of the node": lambda soak: soak.servers[1].restart(),
    "restart of the publisher": lambda soak: soak.servers[0].restart(),
    "restart of the subscriber": lambda soak: soak.servers[2].restart(),
    "lines cut": lambda soak: [proxy.cut() for proxy in soak.proxies] and None,
    "lines stalled": Soak.stall,
    "a full disk": Soak.fill,
    "no connections left": Soak.crowd,
    "CHECKPOINT": Soak.checkpoint,
}


class _BehindProxy:
    """A server whose subscriber connects through a proxy."""

    def __init__(self, server: PostgresServer | NodeServer, port: int) -> None:
        self.port, self._server, self._proxy = server.port, server, str(port)

    def conninfo(self, database: str) -> str:
        return self._server.conninfo(database, port=self._proxy)


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _answers(server: Database) -> bool:
    """Return whether a server answers. A node whose Java virtual machine was killed last is restarting itself."""
    with contextlib.suppress(SqlError, subprocess.TimeoutExpired):
        return server.sql("SELECT 1") == "1"
    return False


def _started(server: PostgresServer | NodeServer) -> bool:
    with contextlib.suppress(Exception):
        server.start()
        return True
    return False


def _change(random: Random) -> str:
    table, low = f"t{random.randrange(TABLES)}", random.randrange(5_000)
    high = low + random.choice((1, 1, 5, 50, 500))
    return random.choice((
        f"INSERT INTO {table} SELECT i, md5(i::text), i * 1.5, now() FROM generate_series({low}, {high}) i ON CONFLICT (id) DO UPDATE SET n = {table}.n + 1",
        f"UPDATE {table} SET v = 'u' || {low}, at = now() WHERE id BETWEEN {low} AND {high}",
        f"DELETE FROM {table} WHERE id BETWEEN {low} AND {high}",
        f"UPDATE {table} SET id = id + 10000 WHERE id BETWEEN {low} AND {min(high, low + 5)} AND id NOT IN (SELECT id - 10000 FROM {table})",
    ))  # fmt: skip


def grown(rounds: list[dict[str, float]]) -> list[str]:
    """Return the measures that grew between the second and the last third of the rounds. The first third warms the node up.

    The minima are compared, because the number of files and the size of heaps vary by a factor of ten with the load of the last minute and
    with the next cleaning. A leak also raises the minimum.
    """
    third = len(rounds) // 3
    if third < 2:
        return []
    grown_measures = []
    for name in rounds[0]:
        earlier, later = (
            min(measures[name] for measures in rounds[third : 2 * third]),
            min(measures[name] for measures in rounds[2 * third :]),
        )
        if later > earlier * GROWTH + 8:
            grown_measures.append(f"{name} grew from {earlier:.0f} to {later:.0f}")
    return grown_measures


def main() -> int:
    parser = argparse.ArgumentParser(description="A chain of servers under load and faults.")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="headgate-soak-"))
    folder.chmod(0o755)
    with contextlib.closing(Soak(folder, arguments.seed)) as soak:
        problems = run(soak, arguments.minutes)
        if problems:
            soak.keep(folder / "node")
    if problems:
        print(f"the servers' files are kept in {folder}", flush=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def run(soak: Soak, minutes: float) -> list[str]:
    """Run rounds for some minutes, or until one finds a problem, and then `headgate check`. Return the problems."""
    rounds: list[dict[str, float]] = []
    problems: list[str] = []
    end = time.monotonic() + minutes * 60
    try:
        while time.monotonic() < end and not problems:
            struck, problems = soak.round()
            rounds.append(soak.resources())
            measures = ", ".join(f"{name} {value:.0f}" for name, value in rounds[-1].items())
            counts = f"{soak.transactions} transactions, {len(soak.acknowledged)} rows"
            print(f"round {len(rounds)}: {counts}; {'; '.join(struck)}\n  {measures}", flush=True)
    except (AssertionError, OSError, SqlError, psycopg.Error, subprocess.TimeoutExpired) as error:
        traceback.print_exc()
        problems = [f"{type(error).__name__}: {error}"]
    finally:
        checked = soak.end()
    problems += grown(rounds) + ([f"headgate check: exit code {checked}"] if checked else [])
    print("\n".join(problems) if problems else f"{len(rounds)} rounds, nothing lost, nothing twice, nothing grown", flush=True)
    return problems


if __name__ == "__main__":
    sys.exit(main())
