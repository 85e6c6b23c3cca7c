"""The servers that tests run on: a real PostgreSQL 15, a Spark session and headgate nodes. All end with the tests.

Fixtures: `postgres` (one cluster for the whole run), `spark` (one session), `node` (one node, started by the command line), `server`
(runs a test with both), `spare_node` (a node that tests restart, kill and configure), `own_node` (creates nodes for a single test, which
takes fifteen seconds), `cluster` (creates PostgreSQL clusters for a single test).

The suite runs in two processes (``make test``), so that both cores are busy. The tests of a file run in the same process, so that fixtures
of the file are created once. One process begins with the files that use the shared node, the other with those that use the Spark session
(`FromBothEnds`). So each process starts one Java virtual machine. ``--quick`` runs only tests that need no server. ``--all`` also runs tests
that are marked slow, and draws more examples. ``--on`` selects where nodes have their tables and run their tasks (`place`).
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from tests import cost
from tests.place import Place, Surroundings, bare
from tests.postgresql_version import binaries
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from headgate.check.finding import FindingSeverity
from headgate.cli.demo.servers import free_port

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter
    from pyspark.sql import SparkSession
    from tests.azure_storage import AzureStorage
    from tests.google_storage import GoogleStorage
    from tests.object_store import ObjectStore

    from headgate.storage.engine import Engine

PG_BIN = Path(os.environ.get("PG_BIN", "/usr/lib/postgresql/15/bin"))
HEADGATE = [sys.executable, "-m", "headgate.cli.main"]

settings.register_profile("headgate", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("quick", parent=settings.get_profile("headgate"), max_examples=15)
settings.register_profile("long", parent=settings.get_profile("headgate"), max_examples=2000, derandomize=False)

NEWEST_SPARK = "4.2.0"
"""The newest version of pyspark that delta-spark has a jar for."""
DECLARED_SECONDS = 20
"""A test with a longer ``timeout`` of its own must be marked slow. A test without one has the limit of pyproject.toml, for a machine that hangs."""

SPARE = {"spare_node", "_farm"}
"""Fixtures of tests that stop and start servers."""
SERVERS = {"_session_farm", "azure_storage", "google_storage", "object_store", "spark", "node", "recorded", "fresh_data", *SPARE}
"""Fixtures that quick tests do not use. Tests with `fresh_data` start processes repeatedly."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select tests."""
    group = parser.getgroup("headgate")
    group.addoption("--quick", action="store_true", help="only the tests that need no server")
    group.addoption("--all", action="store_true", help="everything at length: also the tests that are marked slow")
    group.addoption("--on", choices=[place.value for place in Place], default="disk", help="where nodes have their tables and their tasks")


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples, the same ones in each run, or with ``--all`` many, which differ in each run."""
    settings.load_profile("long" if config.getoption("--all") else "quick" if config.getoption("--quick") else "headgate")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests as the options require, and sort files so that those that use the same servers are together."""
    if config.option.collectonly and (long := {name for item in items if (name := _declared_long(item))}):  # as `make check` does
        raise pytest.UsageError("\n".join(f"{name} declares more than {DECLARED_SECONDS} s: mark it slow" for name in sorted(long)))
    unwanted = [item for item in items if _unwanted(config, item)]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if item not in set(unwanted)]
    needed: dict[str, set[str]] = {}
    for item in items:
        needed.setdefault(_file(item), set()).update(_fixtures(item))
    items.sort(key=lambda item: _place(needed[_file(item)]))


def _declared_long(item: pytest.Item) -> str:
    """Return the name of a test that has a ``timeout`` above the limit and is not marked slow, else an empty string."""
    timeout = item.get_closest_marker("timeout")
    is_long = timeout is not None and timeout.args[0] > DECLARED_SECONDS
    return item.nodeid if is_long and not item.get_closest_marker("slow") else ""


def _place(needed: set[str]) -> int:
    """Return the sort key of a file that needs these fixtures: first files with the shared node, last those with the Spark session."""
    spare = not SPARE.isdisjoint(needed)
    if "node" in needed:
        return 2 if "spark" in needed else 0 if spare else 1
    if "spark" in needed:
        return 6 if spare else 5
    return 4 if spare else 3


class FromBothEnds(LoadFileScheduling):
    """Assigns whole files to processes: to every second process from the end of the list."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FromBothEnds | None:
    """Return the scheduler that assigns files to the processes of ``--dist loadfile``."""
    return FromBothEnds(config, log) if config.getvalue("dist") == "loadfile" else None


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def _fixtures(item: pytest.Item) -> set[str]:
    """Return the fixtures of a test, including those that a fixture requests by its parameter."""
    parameters = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return {*getattr(item, "fixturenames", ()), *(parameter for parameter in parameters if isinstance(parameter, str))}


def _unwanted(config: pytest.Config, item: pytest.Item) -> bool:
    if item.get_closest_marker("slow") and not config.getoption("--all"):
        return True
    if item.get_closest_marker("on_disk") and Place(config.getoption("--on")).is_store:
        return True
    if item.get_closest_marker("one_java") and config.getoption("--on") == Place.CLUSTER.value:
        return True
    return bool(config.getoption("--quick")) and not SERVERS.isdisjoint(_fixtures(item))


_CPU_SECONDS_BEFORE = pytest.StashKey[float]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_CPU_SECONDS_BEFORE] = cost.cpu_seconds()


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Print the cost of the run."""
    reports = [
        report
        for reports_of_outcome in terminalreporter.stats.values()
        for report in reports_of_outcome
        if isinstance(report, pytest.TestReport)
    ]
    terminalreporter.section("cost")
    for file, seconds in cost.slowest_files(reports):
        terminalreporter.write_line(f"{seconds:7.1f} s  {file}")
    used = cost.cpu_seconds() - config.stash[_CPU_SECONDS_BEFORE]
    terminalreporter.write_line(f"{used:7.0f} CPU seconds of all processes of this machine")


def pytest_report_header() -> list[str]:
    """Return the versions of the servers."""
    psql = subprocess.run([PG_BIN / "psql", "--version"], capture_output=True, text=True)
    return [f"servers: {psql.stdout.strip()}"]


def until(condition: Callable[[], Any], what: str = "", seconds: float = 30) -> Any:
    """Poll until the condition is true, and return its value. Fail with the message `what` at the timeout."""
    deadline = time.monotonic() + seconds * patience()
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return value


def patience() -> int:
    """Return the factor by which the timeouts of tests are multiplied, for the place that ``--on`` selects."""
    return 1 if NodeServer.surroundings is None else NodeServer.surroundings.place.patience


class SqlError(Exception):
    """psql failed. The text is its stderr."""


class Server:
    """A server, PostgreSQL or a node, in its own folder."""

    def __init__(self, folder: Path, **conf: str) -> None:
        self.folder = folder
        self.conf = conf
        self.port = free_port()
        self.data = folder / "data"
        self.logfile = folder / "server.log"
        self._databases = itertools.count(1)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        raise NotImplementedError

    def stop(self, mode: str = "fast") -> None:
        """Stop the server."""
        raise NotImplementedError

    def restart(self, mode: str = "fast") -> None:
        """Stop the server and start it again."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill the server's process with SIGKILL, as in a crash."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            pass

    @property
    def pid(self) -> int:
        """The process id of the server."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped since then. A killed server counts as running."""
        raise NotImplementedError

    def log(self) -> str:
        """Return the server's log."""
        return self.logfile.read_text(errors="replace") if self.logfile.exists() else ""

    def conninfo(self, database: str = "postgres", user: str = "postgres", **more: str) -> str:
        """Return a connection string."""
        parameters = {"host": "127.0.0.1", "port": str(self.port), "dbname": database, "user": user, **more}
        return " ".join(f"{name}={value}" for name, value in parameters.items())

    def psql(self, database: str, sql: str, *flags: str, user: str = "postgres", timeout: float = 120) -> str:
        """Run a script with psql (``-At`` unless other flags are given) and return its output. Raise SqlError if it fails."""
        command = [
            PG_BIN / "psql",
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            *(flags or ("-At",)),
            "-d",
            self.conninfo(database, user),
            "-f",
            "-",
        ]
        completed = subprocess.run(
            command, input=sql, capture_output=True, text=True, timeout=timeout * patience(), env={**os.environ, "PGCLIENTENCODING": "UTF8"}
        )
        if completed.returncode:
            raise SqlError(completed.stderr)
        return completed.stdout.rstrip("\n")

    def script(self, database: str, script: Path, *flags: str, **environment: str) -> str:
        """Run a file with psql and return its output, including the statements and errors. `environment`: psql's variables."""
        command = [PG_BIN / "psql", "-X", "-a", *flags, "-d", self.conninfo(database)]
        with script.open() as source:
            completed = subprocess.run(
                command,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=280,
                env={**os.environ, **environment},
            )
        return completed.stdout

    def new_database(self) -> str:
        """Create an empty database and return its name. Names have the same length on all servers, as psql cuts long lines of errors."""
        name = f"test_{next(self._databases):04}"
        self.psql("postgres", f"CREATE DATABASE {name}")
        return name

    def await_release(self, slot: str, timeout: float = 60) -> None:
        """Wait until a slot is not in use: a walsender ends some time after its client has disconnected."""
        deadline = time.monotonic() + timeout * patience()
        while self.psql("postgres", f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'") == "t":
            assert time.monotonic() < deadline, f'replication slot "{slot}" is still in use'

    def drop_slot(self, database: str, slot: str) -> None:
        """Drop a slot as soon as it is not in use."""
        self.await_release(slot)
        self.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")


class PostgresServer(Server):
    """A real PostgreSQL: 15, or the version of `programs`. If root runs the tests, it runs as the user postgres, as it rejects root."""

    programs: ClassVar[Path] = PG_BIN
    defaults: ClassVar = {
        "wal_level": "logical",
        "max_replication_slots": "60",
        "max_wal_senders": "60",
        "max_logical_replication_workers": "20",
        "max_sync_workers_per_subscription": "4",
        "max_worker_processes": "60",
        "max_connections": "200",
        "max_prepared_transactions": "10",
        "wal_retrieve_retry_interval": "200ms",
        "fsync": "off",
        "autovacuum": "off",  # after each ANALYZE, a stream would send the Relation messages again, at an unpredictable time
        "timezone": "'UTC'",
        "log_timezone": "'UTC'",
        "listen_addresses": "'127.0.0.1'",
    }

    def _run(self, program: str, *arguments: str) -> None:
        owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        subprocess.run(
            [*owner, self.programs / program, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/"
        )

    def create(self) -> None:
        """Create the cluster."""
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        lines = {**self.defaults, "port": str(self.port), "unix_socket_directories": f"'{self.folder}'", **self.conf}
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in lines.items())

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-l", str(self.logfile), "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])

    @property
    def running(self) -> bool:
        return (self.data / "postmaster.pid").exists()


class NodeServer(Server):
    """A headgate node, started and stopped by the command line."""

    surroundings: ClassVar[Surroundings | None] = None
    """Where nodes have their tables and run their tasks. Set by the first fixture of the run."""
    defaults: ClassVar = {
        "max_replication_slots": "60",
        "max_wal_senders": "60",
        "max_prepared_transactions": "10",
        "max_logical_replication_workers": "20",
        "max_sync_workers_per_subscription": "4",
        "wal_retrieve_retry_interval": "200ms",
        "warm_up": "off",
        "timezone": "'UTC'",
        "listen_addresses": "'127.0.0.1'",
    }

    def headgate(self, *arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run a command on the node's data directory. Raise AssertionError with its output if it fails."""
        completed = subprocess.run(
            [*HEADGATE, arguments[0], "-D", str(self.data), *arguments[1:]], capture_output=True, text=True, timeout=timeout * patience()
        )
        assert completed.returncode == 0, (
            f"headgate {' '.join(arguments)}: exit code {completed.returncode}\n{completed.stdout}{completed.stderr}"
        )
        return completed

    def create(self) -> None:
        """Create the data directory."""
        self.headgate("initdb", "-U", "postgres", "-A", "trust")
        self._around = {} if "data_location" in self.conf or self.surroundings is None else self.surroundings.settings()
        self._initial = {name: (self.data / name).read_text() for name in ("headgate.conf", "pg_hba.conf")}
        self._write_files()

    def _files(self) -> dict[Path, str]:
        """Return the contents of the files with this server's settings and access rules."""
        lines = "".join(
            f"{name} = {value}\n" for name, value in {**self.defaults, "port": str(self.port), **self._around, **self.conf}.items()
        )
        return {self.data / name: text + (lines if name == "headgate.conf" else "") for name, text in self._initial.items()}

    def _write_files(self) -> None:
        for path, text in self._files().items():
            path.write_text(text)

    def start(self) -> None:
        self.headgate("start", "-l", str(self.logfile), "-t", str(160 * patience()))

    def stop(self, mode: str = "fast") -> None:
        self.headgate("stop", "-m", mode, "-t", str(160 * patience()))

    @property
    def pid(self) -> int:
        return int((self.data / "headgate.pid").read_text().split("\n", 1)[0])

    @property
    def running(self) -> bool:
        return (self.data / "headgate.pid").exists()

    def renewed(self, **conf: str) -> NodeServer:
        """Restart the node with exactly these settings, unless it is running with them. Return it."""
        self.conf = conf
        as_wanted = all(path.read_text() == text for path, text in self._files().items())
        if self.running and not as_wanted:
            self.stop()
        if not self.running:
            self._write_files()
            self.start()
        return self


def check(node: Server, database: str | None = None) -> None:
    """Assert that the files and catalogs of a running node are consistent, in one database or in all.

    It sends the command of ``headgate check --online``, because starting that program takes longer than the check.
    """
    command = "CHECK_NODE" if database is None else f"CHECK_NODE '{database}'"
    with psycopg.connect(node.conninfo(replication="database"), autocommit=True, prepare_threshold=None) as connection:
        findings = connection.execute(command.encode()).fetchall()
    assert [finding for finding in findings if finding[0] != FindingSeverity.NOTICE] == []


class _Farm:
    """Creates servers, and ends all of them."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.folders: list[Path] = []
        """Other folders to remove at the end."""

    def make(self, kind: type[PostgresServer | NodeServer], *, start: bool = True, **conf: str) -> Server:
        # not below pytest's own folders, which the user postgres cannot access; a node's folder has a space in its name, as a user's may
        server = kind(Path(tempfile.mkdtemp(" node" if kind is NodeServer else "", "headgate-test-")), **conf)
        self.servers.append(server)
        server.create()
        if start:
            server.start()
        return server

    @staticmethod
    def _end(server: Server) -> None:
        try:
            if server.running:
                server.stop("immediate")
        finally:
            # in the background, because a cluster of some hundred databases has 300,000 files
            subprocess.run(["sh", "-c", 'rm -rf "$0" &', server.folder], check=False)

    def end(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._end, reversed(self.servers)))
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _session_farm() -> Iterator[_Farm]:
    farm = _Farm()
    yield farm
    farm.end()


@pytest.fixture
def _farm() -> Iterator[_Farm]:
    farm = _Farm()
    yield farm
    farm.end()


@pytest.fixture(scope="session")
def postgres(_session_farm: _Farm) -> Server:
    """A real PostgreSQL 15 for the whole run. Tests use a `new_database()` of it."""
    return _session_farm.make(PostgresServer)


@pytest.fixture(scope="session")
def of_version(_session_farm: _Farm, postgres: Server) -> Callable[[int], Server]:
    """A function that returns the server of a version, which it starts at the first call."""
    servers: dict[int, Server] = {15: postgres}

    def server(version: int) -> Server:
        if version not in servers:
            programs = binaries(version)
            _session_farm.folders.append(programs.parent)
            kind = type(f"PostgresServer{version}", (PostgresServer,), {"programs": programs})
            servers[version] = _session_farm.make(kind)
        return servers[version]

    return server


@pytest.fixture(scope="session")
def node(_session_farm: _Farm, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A node for the whole run. Tests use a `new_database()` of it.

    An unexpected error is XX000 for the client, with a traceback in the log. At the end the log must have none. With ``--all`` the node is
    then stopped, and `headgate check` must find no problem. The check of a stopped node also finds files that no version names, which the
    check of a running node cannot do. It takes up to a second for each database.
    """
    server = _session_farm.make(NodeServer)
    yield server
    log_text = server.log()
    warnings = (
        re.findall(r"^.*WARNING:  unforeseen .*(?:\n(?!20\d\d-).*)*", log_text, re.MULTILINE) if "WARNING:  unforeseen " in log_text else []
    )
    assert not warnings, "\n\n".join(warning[:3000] for warning in warnings[:5])
    if request.config.getoption("--all"):
        server.stop()
        server.headgate("check", timeout=840)


@pytest.fixture(params=["postgres", "node"])
def server(request: pytest.FixtureRequest, postgres: Server, node: Server) -> Server:
    """The PostgreSQL and the node: a test with this fixture runs with each of them."""
    return {"postgres": postgres, "node": node}[request.param]


@pytest.fixture(scope="session")
def _spare(_session_farm: _Farm) -> Server:
    return _session_farm.make(NodeServer)


@pytest.fixture
def spare_node(_spare: Server) -> Callable[..., Server]:
    """A node that tests restart, kill and configure: ``spare_node(max_connections="3")``.

    It runs with these settings and the usual access rules. Tests use a `new_database()` of it, and need not restore anything.
    """
    assert isinstance(_spare, NodeServer)
    return _spare.renewed


@pytest.fixture
def own_node(_farm: _Farm) -> Callable[..., Server]:
    """Creates a node for one test: ``own_node(port="5440")``. With ``start=False`` it is not started."""
    return lambda *, start=True, **conf: _farm.make(NodeServer, start=start, **conf)


@pytest.fixture
def cluster(_farm: _Farm) -> Callable[..., Server]:
    """Creates a PostgreSQL cluster for one test."""
    return lambda *, start=True, **conf: _farm.make(PostgresServer, start=start, **conf)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An object store for the whole run. Its `settings()` are the settings for a node."""
    from tests.object_store import ObjectStore

    store = ObjectStore(tmp_path_factory.mktemp("object_store"))
    yield store
    store.end()


@pytest.fixture(scope="session")
def google_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleStorage]:
    """Google's storage for the whole run. Go builds it, which takes minutes the first time, so tests that use it are marked slow."""
    from tests.google_storage import GoogleStorage

    store = GoogleStorage(tmp_path_factory.mktemp("google_storage"))
    yield store
    store.end()


@pytest.fixture(scope="session")
def azure_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStorage]:
    """Azure's storage for the whole run, if its emulator is installed."""
    from tests.azure_storage import AzureStorage

    store = AzureStorage(tmp_path_factory.mktemp("azure_storage"))
    yield store
    store.end()


@pytest.fixture(scope="session", autouse=True)
def surroundings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    """The location of the run's nodes and engines, as ``--on`` selects it."""
    place = Place(request.config.getoption("--on"))
    store = {Place.GS: "google_storage", Place.AZURE: "azure_storage"}.get(place, "object_store")
    servers = Surroundings(place, lambda: request.getfixturevalue(store), lambda: tmp_path_factory.mktemp("cluster"))
    NodeServer.surroundings = servers
    yield servers
    servers.end()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, surroundings: Surroundings) -> Iterator[SparkSession]:
    """The Spark session of the run, created as a node creates it."""
    from headgate.storage.spark.application import heap
    from headgate.storage.spark.application import spark_session as storage

    session = storage.start(bare(surroundings.spark_settings()), scratch=tmp_path_factory.mktemp("spark"))
    heap.settle()  # as a node does after its start, so that a collection does not visit the objects of all tests
    yield session
    session.stop()


@pytest.fixture(scope="session")
def newest_spark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that finds the newest pyspark before the installed one, and Delta's jars for it."""
    folder = tmp_path_factory.mktemp("pyspark")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), f"pyspark=={NEWEST_SPARK}"]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-m", "headgate.storage.spark.application.jars"], check=True, env=environment)
    return environment


@pytest.fixture(scope="session")
def catalog_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog as initdb creates it, to be copied."""
    from headgate.catalog.catalog import Catalog

    path = tmp_path_factory.mktemp("catalog") / "catalog.duckdb"
    Catalog.create(path).close()
    return path


@pytest.fixture
def engine_settings(surroundings: Surroundings) -> dict[str, str]:
    """The settings for an engine. It has its own data location if ``--on`` puts the tables outside the data directory."""
    return bare(surroundings.settings())


@pytest.fixture
def engine(spark: SparkSession, catalog_file: Path, tmp_path: Path, engine_settings: dict[str, str]) -> Iterator[Engine]:
    """The storage of a node without the node, in an empty data directory."""
    from headgate.catalog.catalog import Catalog
    from headgate.storage.engine import Engine

    shutil.copy(catalog_file, tmp_path / "catalog.duckdb")
    catalog = Catalog.open(tmp_path / "catalog.duckdb")
    yield Engine(engine_settings, catalog, tmp_path, session=spark)
    catalog.close()
