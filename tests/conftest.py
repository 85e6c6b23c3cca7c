"""The servers that tests run on: a real PostgreSQL 15, a Spark session, headgate nodes. All are real, and all end with the tests.

Fixtures: `postgres` (one cluster for the whole run), `spark` (one session), `node` (one node, started by the command line), `server`
(first the one, then the other), `spare_node` (a node that tests restart, kill and give other settings), `own_node` (makes nodes for a
single test: it costs fifteen seconds), `cluster` (makes PostgreSQL clusters for a single test).

The suite runs in two processes (``make test``), so that both cores work all the time. The tests of a file stay together: what a fixture of
the file makes is made once. The one process begins with the files of the shared node, the other with those of the Spark session, and they
meet where files need neither (`FromBothEnds`): each starts its Java virtual machine once, and keeps it warm. ``--quick`` leaves tests that
need no server; ``--all`` adds those that are marked slow and draws more examples. ``--on`` puts the nodes elsewhere (`place`).
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

DECLARED_SECONDS = 20
"""A test with a longer ``timeout`` of its own must be marked slow. A test without one has the limit of pyproject.toml, for a machine that hangs."""

SPARE = {"spare_node", "_farm"}
"""Fixtures of tests that stop and start servers."""
SERVERS = {"_session_farm", "azure_storage", "google_storage", "object_store", "spark", "node", "recorded", "fresh_data", *SPARE}
"""What a quick test does without; `fresh_data` is of tests that start a process in a node's place, again and again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two other lengths of the suite."""
    group = parser.getgroup("headgate")
    group.addoption("--quick", action="store_true", help="only the tests that need no server")
    group.addoption("--all", action="store_true", help="everything at length: also the tests that are marked slow")
    group.addoption("--on", choices=[place.value for place in Place], default="disk", help="where nodes have their tables and their tasks")


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples, the same ones in each run, or with ``--all`` many and other ones each time."""
    settings.load_profile("long" if config.getoption("--all") else "quick" if config.getoption("--quick") else "headgate")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what this run does not want, and puts files together that need the same servers."""
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
    """Where the files stand whose tests need these fixtures: those of the shared node first, those of the Spark session last."""
    spare = not SPARE.isdisjoint(needed)
    if "node" in needed:
        return 2 if "spark" in needed else 0 if spare else 1
    if "spark" in needed:
        return 6 if spare else 5
    return 4 if spare else 3


class FromBothEnds(LoadFileScheduling):
    """Hands out whole files: to every second process from the end of the list."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FromBothEnds | None:
    """The way files come to the processes of ``--dist loadfile``."""
    return FromBothEnds(config, log) if config.getvalue("dist") == "loadfile" else None


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def _fixtures(item: pytest.Item) -> set[str]:
    """The fixtures of a test, also those that another one asks for by its parameter."""
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
    """Say what the run has cost."""
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
    """The versions of what the tests run on."""
    psql = subprocess.run([PG_BIN / "psql", "--version"], capture_output=True, text=True)
    return [f"servers: {psql.stdout.strip()}"]


def until(condition: Callable[[], Any], what: str = "", seconds: float = 30) -> Any:
    """Polls until the condition holds, and gives what it found; `what` says what was waited for."""
    deadline = time.monotonic() + seconds * patience()
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def patience() -> int:
    """How many times as long as it says a test waits, where ``--on`` has put the run's nodes."""
    return 1 if NodeServer.surroundings is None else NodeServer.surroundings.place.patience


class SqlError(Exception):
    """psql failed; the text is what it wrote to stderr."""


class Server:
    """A running server, PostgreSQL or node, in a folder of its own."""

    def __init__(self, folder: Path, **conf: str) -> None:
        self.folder = folder
        self.conf = conf
        self.port = free_port()
        self.data = folder / "data"
        self.logfile = folder / "server.log"
        self._databases = itertools.count(1)

    def start(self) -> None:
        """Starts the server and waits until it accepts connections."""
        raise NotImplementedError

    def stop(self, mode: str = "fast") -> None:
        """Stops the server."""
        raise NotImplementedError

    def restart(self, mode: str = "fast") -> None:
        """Stops and starts."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Ends the server's process with SIGKILL, as a crash would."""
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
        """Whether it was started and not stopped since; a killed server counts as running."""
        raise NotImplementedError

    def log(self) -> str:
        """The server's log."""
        return self.logfile.read_text(errors="replace") if self.logfile.exists() else ""

    def conninfo(self, database: str = "postgres", user: str = "postgres", **more: str) -> str:
        """A connection string."""
        words = {"host": "127.0.0.1", "port": str(self.port), "dbname": database, "user": user, **more}
        return " ".join(f"{name}={value}" for name, value in words.items())

    def psql(self, database: str, sql: str, *flags: str, user: str = "postgres", timeout: float = 120) -> str:
        """What psql prints for the script (``-At`` unless other flags are given); SqlError when it fails."""
        words = [PG_BIN / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *(flags or ("-At",)), "-d", self.conninfo(database, user), "-f", "-"]
        done = subprocess.run(
            words, input=sql, capture_output=True, text=True, timeout=timeout * patience(), env={**os.environ, "PGCLIENTENCODING": "UTF8"}
        )
        if done.returncode:
            raise SqlError(done.stderr)
        return done.stdout.rstrip("\n")

    def script(self, database: str, script: Path, *flags: str, **environment: str) -> str:
        """What psql prints for a file of statements, these and the errors included; the environment is psql's."""
        words = [PG_BIN / "psql", "-X", "-a", *flags, "-d", self.conninfo(database)]
        with script.open() as source:
            done = subprocess.run(
                words,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=280,
                env={**os.environ, **environment},
            )
        return done.stdout

    def new_database(self) -> str:
        """Makes an empty database and gives its name, which is as long on every server: psql cuts long lines of errors."""
        name = f"test_{next(self._databases):04}"
        self.psql("postgres", f"CREATE DATABASE {name}")
        return name

    def await_release(self, slot: str, timeout: float = 60) -> None:
        """Waits until nobody uses a slot: a walsender ends some time after its client has gone."""
        deadline = time.monotonic() + timeout * patience()
        while self.psql("postgres", f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'") == "t":
            assert time.monotonic() < deadline, f'replication slot "{slot}" is still in use'

    def drop_slot(self, database: str, slot: str) -> None:
        """Drops a slot as soon as nobody uses it."""
        self.await_release(slot)
        self.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")


class PostgresServer(Server):
    """A real PostgreSQL, 15 unless `programs` are another's; run by the user postgres when the tests are run by root, because it refuses root."""

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
        "autovacuum": "off",  # behind its ANALYZE a stream says again what a table is, whenever that happens to be
        "timezone": "'UTC'",
        "log_timezone": "'UTC'",
        "listen_addresses": "'127.0.0.1'",
    }

    def _run(self, program: str, *words: str) -> None:
        owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        subprocess.run([*owner, self.programs / program, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/")

    def create(self) -> None:
        """Makes the cluster."""
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
    """A headgate node, driven by its own command line."""

    surroundings: ClassVar[Surroundings | None] = None
    """Where the run's nodes are, from the run's first fixture on."""
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

    def headgate(self, *words: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Runs a command on the node's data directory; AssertionError with its output when it fails."""
        done = subprocess.run(
            [*HEADGATE, words[0], "-D", str(self.data), *words[1:]], capture_output=True, text=True, timeout=timeout * patience()
        )
        assert done.returncode == 0, f"headgate {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def create(self) -> None:
        """Makes the data directory."""
        self.headgate("initdb", "-U", "postgres", "-A", "trust")
        self._around = {} if "data_location" in self.conf or self.surroundings is None else self.surroundings.settings()
        self._initial = {name: (self.data / name).read_text() for name in ("headgate.conf", "pg_hba.conf")}
        self._write_files()

    def _files(self) -> dict[Path, str]:
        """The files of settings and access rules as this server wants them."""
        lines = "".join(
            f"{name} = {value}\n" for name, value in {**self.defaults, "port": str(self.port), **self._around, **self.conf}.items()
        )
        return {self.data / name: text + (lines if name == "headgate.conf" else "") for name, text in self._initial.items()}

    def _write_files(self) -> None:
        for path, text in self._files().items():
            path.write_text(text)

    def start(self) -> None:
        self.headgate("start", "-l", str(self.logfile), "-t", str(60 * patience()))

    def stop(self, mode: str = "fast") -> None:
        self.headgate("stop", "-m", mode, "-t", str(60 * patience()))

    @property
    def pid(self) -> int:
        return int((self.data / "headgate.pid").read_text().split("\n", 1)[0])

    @property
    def running(self) -> bool:
        return (self.data / "headgate.pid").exists()

    def renewed(self, **conf: str) -> NodeServer:
        """The same node with these settings and no others, started again where it does not run with them."""
        self.conf = conf
        as_wanted = all(path.read_text() == text for path, text in self._files().items())
        if self.running and not as_wanted:
            self.stop()
        if not self.running:
            self._write_files()
            self.start()
        return self


def check(node: Server, database: str | None = None) -> None:
    """All that a running node keeps on disk fits together, of one database or of all: the last line of tests that hurt it.

    Asked as ``headgate check --online`` asks, of which the start alone takes longer than the look.
    """
    command = "CHECK_NODE" if database is None else f"CHECK_NODE '{database}'"
    with psycopg.connect(node.conninfo(replication="database"), autocommit=True, prepare_threshold=None) as connection:
        found = connection.execute(command.encode()).fetchall()
    assert [finding for finding in found if finding[0] != FindingSeverity.NOTICE] == []


class _Farm:
    """Makes servers and ends all that it made."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.folders: list[Path] = []
        """Others that go with the servers."""

    def make(self, kind: type[PostgresServer | NodeServer], *, start: bool = True, **conf: str) -> Server:
        # not below pytest's own folders: those are closed to the user postgres; a node's name has a space, as a user's may
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
            # behind the suite's back: a cluster of some hundred databases has 300,000 files
            subprocess.run(["sh", "-c", 'rm -rf "$0" &', server.folder], check=False)

    def end(self) -> None:
        with ThreadPoolExecutor(4) as beside:
            list(beside.map(self._end, reversed(self.servers)))
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
    """A real PostgreSQL 15 for the whole run; take a `new_database()` of it."""
    return _session_farm.make(PostgresServer)


@pytest.fixture(scope="session")
def of_version(_session_farm: _Farm, postgres: Server) -> Callable[[int], Server]:
    """The server of a version, started when it is first asked for."""
    made: dict[int, Server] = {15: postgres}

    def server(version: int) -> Server:
        if version not in made:
            programs = binaries(version)
            _session_farm.folders.append(programs.parent)
            kind = type(f"PostgresServer{version}", (PostgresServer,), {"programs": programs})
            made[version] = _session_farm.make(kind)
        return made[version]

    return server


@pytest.fixture(scope="session")
def node(_session_farm: _Farm, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A node for the whole run; take a `new_database()` of it.

    What no part of a node foresees is XX000 to a client and a traceback in the log: at the end there must be none.
    With ``--all`` the node is then stopped, and `headgate check` must find nothing in all that the tests left. The check of a stopped node
    also looks for files that no version names, which that of a running one cannot do. It takes up to a second for each database.
    """
    made = _session_farm.make(NodeServer)
    yield made
    log_text = made.log()
    warnings = (
        re.findall(r"^.*WARNING:  unforeseen .*(?:\n(?!20\d\d-).*)*", log_text, re.MULTILINE) if "WARNING:  unforeseen " in log_text else []
    )
    assert not warnings, "\n\n".join(warning[:3000] for warning in warnings[:5])
    if request.config.getoption("--all"):
        made.stop()
        made.headgate("check", timeout=840)


@pytest.fixture(params=["postgres", "node"])
def server(request: pytest.FixtureRequest, postgres: Server, node: Server) -> Server:
    """First the PostgreSQL, then the node: what holds on both."""
    return {"postgres": postgres, "node": node}[request.param]


@pytest.fixture(scope="session")
def _spare(_session_farm: _Farm) -> Server:
    return _session_farm.make(NodeServer)


@pytest.fixture
def spare_node(_spare: Server) -> Callable[..., Server]:
    """A node that one test after the other stops, kills and gives other settings: ``spare_node(max_connections="3")``.

    It runs with these settings and the usual access rules; take a `new_database()` of it. It is left as the next test wants it.
    """
    assert isinstance(_spare, NodeServer)
    return _spare.renewed


@pytest.fixture
def own_node(_farm: _Farm) -> Callable[..., Server]:
    """Makes a node for one test: ``own_node(port="5440")``; ``start=False`` leaves it stopped."""
    return lambda *, start=True, **conf: _farm.make(NodeServer, start=start, **conf)


@pytest.fixture
def cluster(_farm: _Farm) -> Callable[..., Server]:
    """Makes a PostgreSQL cluster for one test."""
    return lambda *, start=True, **conf: _farm.make(PostgresServer, start=start, **conf)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An object store for the whole run; `settings()` of it are those of a node."""
    from tests.object_store import ObjectStore

    store = ObjectStore(tmp_path_factory.mktemp("object_store"))
    yield store
    store.end()


@pytest.fixture(scope="session")
def google_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleStorage]:
    """Google's storage for the whole run; built by Go, minutes the first time, so tests that ask for it are slow ones."""
    from tests.google_storage import GoogleStorage

    store = GoogleStorage(tmp_path_factory.mktemp("google_storage"))
    yield store
    store.end()


@pytest.fixture(scope="session")
def azure_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStorage]:
    """Azure's storage for the whole run, where its emulator is installed."""
    from tests.azure_storage import AzureStorage

    store = AzureStorage(tmp_path_factory.mktemp("azure_storage"))
    yield store
    store.end()


@pytest.fixture(scope="session", autouse=True)
def surroundings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    """Where ``--on`` puts the run's nodes and engines."""
    place = Place(request.config.getoption("--on"))
    store = {Place.GS: "google_storage", Place.AZURE: "azure_storage"}.get(place, "object_store")
    found = Surroundings(place, lambda: request.getfixturevalue(store), lambda: tmp_path_factory.mktemp("cluster"))
    NodeServer.surroundings = found
    yield found
    found.end()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, surroundings: Surroundings) -> Iterator[SparkSession]:
    """The run's one Spark session, made as a node makes it."""
    from headgate.storage.spark.application import heap
    from headgate.storage.spark.application import spark_session as storage

    session = storage.start(bare(surroundings.spark_settings()), scratch=tmp_path_factory.mktemp("spark"))
    heap.settle()  # as a node does when it has been started: the collector need not look at all tests each time
    yield session
    session.stop()


@pytest.fixture(scope="session")
def catalog_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog as initdb makes it, to be copied."""
    from headgate.catalog.catalog import Catalog

    path = tmp_path_factory.mktemp("catalog") / "catalog.duckdb"
    Catalog.create(path).close()
    return path


@pytest.fixture
def engine_settings(surroundings: Surroundings) -> dict[str, str]:
    """What an engine is made with where the run is: a data location of its own where tables are not in the data directory."""
    return bare(surroundings.settings())


@pytest.fixture
def engine(spark: SparkSession, catalog_file: Path, tmp_path: Path, engine_settings: dict[str, str]) -> Iterator[Engine]:
    """The storage of a node without the node: an empty data directory of its own."""
    from headgate.catalog.catalog import Catalog
    from headgate.storage.engine import Engine

    shutil.copy(catalog_file, tmp_path / "catalog.duckdb")
    catalog = Catalog.open(tmp_path / "catalog.duckdb")
    yield Engine(engine_settings, catalog, tmp_path, session=spark)
    catalog.close()
