"""start, stop, restart, reload and status have the exit codes and messages of the real pg_ctl, with "node" for "server"."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import HEADGATE, PG_BIN, free_port, until

STANDIN = Path(__file__).parent / "standin"


class Directory:
    """A node's data directory, and a stand-in for the node itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.port = free_port()
        paths = [str(STANDIN), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.environment.pop("HEADGATE_DATA", None)

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HEADGATE, *arguments], capture_output=True, text=True, timeout=60, env={**self.environment, **environment}, cwd=self.folder
        )

    def do(self, command: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self(command, "-D", str(self.data), *arguments, **environment)

    def start(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.do("start", "-l", str(self.log), "-p", str(self.port), *arguments, **environment)

    def pid(self) -> int:
        return int((self.data / "headgate.pid").read_text().split("\n")[0])

    def _is_ours(self, cmdline: Path) -> bool:
        try:
            command = cmdline.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return False
        return "run" in command and str(self.data) in command

    def leaves_nothing(self) -> bool:
        running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_ours(path)]
        return not (self.data / "headgate.pid").exists() and not running


@pytest.fixture(scope="session")
def fresh_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory as initdb creates it, to be copied."""
    data = tmp_path_factory.mktemp("fresh") / "data"
    subprocess.run([*HEADGATE, "initdb", "-D", data, "-U", "postgres", "-A", "trust"], check=True, capture_output=True)
    return data


@pytest.fixture
def directory(tmp_path: Path, fresh_data: Path) -> Iterator[Directory]:
    data_directory = Directory(tmp_path)
    shutil.copytree(fresh_data, data_directory.data)
    yield data_directory
    if (data_directory.data / "headgate.pid").exists():
        data_directory.do("stop", "-m", "immediate")


@pytest.fixture
def pg_ctl(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the real pg_ctl. It rejects root, so the user postgres runs it if root runs the tests."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        environment = {name: value for name, value in os.environ.items() if name != "PGDATA"}
        return subprocess.run([*owner, PG_BIN / "pg_ctl", *arguments], capture_output=True, text=True, cwd="/", env=environment)

    return call


def as_node(text: str) -> str:
    """Return pg_ctl's messages in headgate's words."""
    for word, replacement in (
        ("pg_ctl", "headgate"),
        ("postmaster.pid", "headgate.pid"),
        ("database directory", "data directory"),
        ("server", "node"),
        ("PGDATA", "HEADGATE_DATA"),
    ):
        text = text.replace(word, replacement)
    return text


@pytest.mark.parametrize(
    "command", ["status", "start", *(pytest.param(command, marks=pytest.mark.slow) for command in ("stop", "reload", "restart"))]
)
def test_missing_directory_is_rejected_as_by_pg_ctl(
    command: str, directory: Directory, pg_ctl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    expected = pg_ctl(command, "-D", "/nonexistent/data")
    actual = directory(command, "-D", "/nonexistent/data")
    hint = 'HINT: Create it with "headgate initdb -D /nonexistent/data".\n'
    assert (actual.returncode, actual.stderr, actual.stdout) == (expected.returncode, as_node(expected.stderr) + hint, expected.stdout)


@pytest.mark.parametrize("command", ["start", *(pytest.param(command, marks=pytest.mark.slow) for command in ("status", "stop", "reload"))])
def test_message_without_a_directory_is_pg_ctls(
    command: str, directory: Directory, pg_ctl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    expected, actual = pg_ctl(command), directory(command)
    assert (actual.returncode, actual.stderr) == (expected.returncode, as_node(expected.stderr))


@pytest.mark.parametrize("arguments", [[], ["bogus"]])
def test_unknown_command_fails_with_exit_code_1(arguments: list[str], directory: Directory) -> None:
    completed = directory(*arguments)
    assert completed.returncode == 1
    assert completed.stderr.endswith('Try "headgate --help" for more information.\n')


@pytest.mark.parametrize(("command", "code"), [("status", 3), ("stop", 1), ("reload", 1)])
def test_exit_code_and_message_without_a_running_node_are_pg_ctls(
    command: str, code: int, directory: Directory, pg_ctl: Callable[..., subprocess.CompletedProcess[str]], postgres_data: Path
) -> None:
    pg_ctl_result = pg_ctl(command, "-D", str(postgres_data))
    actual = directory.do(command)
    assert actual.returncode == pg_ctl_result.returncode == code
    expected = as_node(pg_ctl_result.stdout + pg_ctl_result.stderr).replace(str(postgres_data), str(directory.data))
    assert actual.stdout + actual.stderr == expected


@pytest.fixture(scope="session")
def postgres_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty cluster that is not running, in a folder that the user postgres can read."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="headgate-test-"))
    owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if owner:
        shutil.chown(folder, "postgres")
    subprocess.run([*owner, PG_BIN / "initdb", "-D", folder / "data", "-A", "trust", "-N"], check=True, capture_output=True, cwd="/")
    yield folder / "data"
    shutil.rmtree(folder)


def test_node_starts_shows_its_state_and_stops(directory: Directory) -> None:
    started = directory.start()
    assert (started.returncode, started.stderr) == (0, "")
    assert started.stdout.startswith("waiting for node to start...")
    assert started.stdout.endswith(" done\nnode started\n")
    with socket.create_connection(("127.0.0.1", directory.port)):
        pass
    status = directory.do("status")
    assert status.returncode == 0
    assert status.stdout.startswith(f"headgate: node is running (PID: {directory.pid()})\n")
    lines = (directory.data / "headgate.pid").read_text().split("\n")
    assert (lines[1], lines[3], lines[7]) == (str(directory.data), str(directory.port), "ready   ")
    stopped = directory.do("stop")
    assert stopped.returncode == 0
    assert stopped.stdout.startswith("waiting for node to shut down...")
    assert stopped.stdout.endswith(" done\nnode stopped\n")
    assert directory.leaves_nothing()


@pytest.mark.slow
def test_node_that_accepts_no_connections_is_not_reported_as_running(directory: Directory) -> None:
    assert directory.start(STANDIN_SILENT="1").returncode == 0
    pid = directory.pid()
    status = directory.do("status")
    assert (status.returncode, status.stdout.split("\n")[:2]) == (
        3,
        [f"headgate: node does not accept connections (PID: {pid})", "headgate: no answer within 10 s"],
    )
    report = json.loads(directory.do("status", "--json").stdout)
    assert (report["running"], report["accepting"], report["trouble"], report["pid"]) == (False, False, "no answer within 10 s", pid)


def test_environment_names_the_data_directory(directory: Directory) -> None:
    assert directory("status", HEADGATE_DATA=str(directory.data)).returncode == 3


def test_second_start_is_rejected_and_the_first_node_stays(directory: Directory) -> None:
    directory.start()
    pid = directory.pid()
    elsewhere = f"-c port={free_port()}"
    second = directory.start("-o", elsewhere)
    assert second.returncode == 1
    assert "headgate: another node might be running; trying to start node anyway\n" in second.stderr
    assert 'FATAL:  lock file "headgate.pid" already exists\n' in second.stderr
    assert f'HINT:  Is another node (PID {pid}) running in data directory "{directory.data}"?\n' in second.stderr
    assert second.stderr.endswith("headgate: could not start node\nExamine the log output.\n")
    status = directory.do("status")
    assert status.stdout.startswith(f"headgate: node is running (PID: {pid})"), status
    assert elsewhere not in status.stdout, "the refused start left its options to the next restart"


def test_port_in_use_is_reported_and_nothing_is_left_behind(directory: Directory) -> None:
    with socket.create_server(("127.0.0.1", directory.port)):
        started = directory.start()
    assert started.returncode == 1
    assert 'LOG:  could not bind IPv4 address "127.0.0.1": Address already in use\n' in started.stderr
    hint = f"Is another server already running on port {directory.port}? If not, wait a few seconds and retry."
    assert f'HINT:  {hint} For another port give -p to headgate start, or set port in "headgate.conf".\n' in started.stderr
    assert "FATAL:  could not create any TCP/IP sockets\n" in started.stderr
    assert directory.leaves_nothing()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(
            "nosuch = 1", 'LOG:  unrecognized configuration parameter "nosuch" in file "{conf}" line {line}', marks=pytest.mark.slow
        ),
        pytest.param("port = abc", 'LOG:  invalid value for parameter "port": "abc"', marks=pytest.mark.slow),
        ("port = 70000", 'LOG:  70000 is outside the valid range for parameter "port" (1 .. 65535)'),
        pytest.param(
            "wal_sender_timeout = 10x",
            'HINT:  Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".',
            marks=pytest.mark.slow,
        ),
        ("port 1 2", 'LOG:  syntax error in file "{conf}" line {line}, near token "2"'),
        ("server_version = '9'", "HINT:  A node can speak as PostgreSQL 15, 16, 17 or 18, such as 18.1."),
        pytest.param("server_version_num = 180001", 'LOG:  parameter "server_version_num" cannot be changed', marks=pytest.mark.slow),
    ],
)
def test_invalid_configuration_line_is_reported_and_nothing_is_left_behind(line: str, message: str, directory: Directory) -> None:
    conf = directory.data / "headgate.conf"
    with conf.open("a") as text:
        text.write(line + "\n")
    started = directory.do("start", "-l", str(directory.log))
    assert started.returncode == 1
    assert message.format(conf=conf, line=len(conf.read_text().splitlines())) in started.stderr
    assert f'FATAL:  configuration file "{conf}" contains errors\n' in started.stderr
    assert directory.leaves_nothing()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("-c nosuch=1", 'FATAL:  unrecognized configuration parameter "nosuch"'),
        pytest.param("--nosuch=1", 'FATAL:  unrecognized configuration parameter "nosuch"', marks=pytest.mark.slow),
        pytest.param("-c port=abc", 'FATAL:  invalid value for parameter "port": "abc"', marks=pytest.mark.slow),
        pytest.param("-c wal_level=x", "HINT:  Available values: minimal, replica, logical.", marks=pytest.mark.slow),
        ("-c port", "FATAL:  -c port requires a value"),
    ],
)
def test_invalid_option_is_reported_and_nothing_is_left_behind(option: str, message: str, directory: Directory) -> None:
    started = directory.do("start", "-l", str(directory.log), "-o", option)
    assert started.returncode == 1
    assert message in started.stderr
    assert directory.leaves_nothing()


def test_missing_java_is_reported_with_what_to_install(directory: Directory, tmp_path: Path) -> None:
    started = directory.start(JAVA_HOME=str(tmp_path / "none"))
    assert started.returncode == 1
    assert "FATAL:  could not find a Java runtime in JAVA_HOME" in started.stderr
    assert "openjdk-17-jre-headless" in started.stderr
    assert directory.leaves_nothing()


@pytest.mark.parametrize("version", ["11.0.2", "25.0.3"])
def test_java_on_which_spark_does_not_run_is_rejected(directory: Directory, tmp_path: Path, version: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    started = directory.start(JAVA_HOME=str(tmp_path))
    assert started.returncode == 1
    assert f"is Java {version[:2]}, but Java 17 to 23 is needed" in started.stderr


def test_missing_jars_are_reported_with_what_to_do(directory: Directory, tmp_path: Path) -> None:
    completed = directory.do("run", HEADGATE_JARS=str(tmp_path))
    assert completed.returncode == 1
    assert 'FATAL:  could not find "delta-spark_4.1_2.13-4.4.0.jar"' in completed.stderr
    assert f"HINT:  HEADGATE_JARS is set to {tmp_path}; unset it, or put the jar there." in completed.stderr


def test_error_during_the_start_ends_the_node_with_its_message(directory: Directory) -> None:
    completed = directory.do("run", "-p", str(directory.port), STANDIN_FAILS="1")
    assert completed.returncode == 1
    assert "FATAL:  could not start Spark: as the test wants it\n" in completed.stderr
    assert directory.leaves_nothing()


def test_start_names_the_signal_that_ended_the_node(directory: Directory) -> None:
    completed = directory.start(STANDIN_FALLS="1")
    assert completed.returncode == 1
    assert completed.stderr.endswith("headgate: could not start node\nThe process was terminated by signal 11.\nExamine the log output.\n")


@pytest.mark.slow
def test_pid_file_of_a_killed_node_is_replaced(directory: Directory) -> None:
    directory.start()
    os.kill(directory.pid(), 9)
    while directory.do("status").returncode != 3:
        pass
    assert (directory.data / "headgate.pid").exists()
    assert directory.start().returncode == 0
    assert directory.do("status").returncode == 0


@pytest.mark.slow
def test_pid_file_that_names_an_unrelated_process_is_stale(directory: Directory) -> None:
    (directory.data / "headgate.pid").write_text(f"{os.getpid()}\n{directory.data}\n1\n5432\n\n\n\nready   \n")
    assert directory.do("status").returncode == 3
    assert directory.start().returncode == 0


@pytest.mark.parametrize("mode", ["fast", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("smart", "immediate"))])
def test_each_mode_of_stop_ends_the_node(mode: str, directory: Directory) -> None:
    directory.start()
    assert directory.do("stop", "-m", mode).returncode == 0
    assert directory.leaves_nothing()


def test_unknown_mode_of_stop_is_rejected(directory: Directory) -> None:
    completed = directory.do("stop", "-m", "slow")
    assert completed.returncode == 1
    assert completed.stderr == 'headgate: unrecognized shutdown mode "slow"\nTry "headgate --help" for more information.\n'


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "environment"), [(["-t", "0.3"], {}), ([], {"PGCTLTIMEOUT": "0.3"})])
def test_stop_ends_after_its_timeout(directory: Directory, arguments: list[str], environment: dict[str, str]) -> None:
    directory.start(STANDIN_STAYS="1")
    completed = directory.do("stop", "-m", "smart", *arguments, **environment)
    assert completed.returncode == 1
    assert completed.stderr.startswith('headgate: node does not shut down\nHINT: The "-m fast" option immediately disconnects sessions')
    assert (directory.data / "headgate.pid").read_text().split("\n")[7] == "stopping"


def test_reload_makes_the_node_read_its_files_again(directory: Directory) -> None:
    directory.start()
    with (directory.data / "headgate.conf").open("a") as conf:
        conf.write("work_mem = 8MB\n")
    completed = directory.do("reload")
    assert (completed.returncode, completed.stdout) == (0, "node signaled\n")
    reloaded = directory.data / "reloaded"
    while not reloaded.exists() or not reloaded.read_text():
        pass
    assert reloaded.read_text() == "work_mem"


def test_reload_names_the_settings_that_need_a_restart(directory: Directory) -> None:
    directory.start()
    with (directory.data / "headgate.conf").open("a") as conf:
        conf.write("work_mem = 8MB\nmax_connections = 7\nmax_wal_senders = 3\n")
    completed = directory.do("reload")
    assert completed.stdout == (
        'node signaled\nparameter "max_connections" counts from the next start\nparameter "max_wal_senders" counts from the next start\n'
    )
    assert (completed.returncode, completed.stderr) == (0, "")


def test_reload_of_files_with_errors_is_reported(directory: Directory) -> None:
    directory.start()
    with (directory.data / "headgate.conf").open("a") as conf:
        conf.write("no_such_setting = 1\n")
    completed = directory.do("reload")
    assert completed.stderr == "headgate: the configuration files have errors, and not all changes were applied: see the server log\n"


@pytest.mark.slow
def test_interrupted_start_reports_that_the_node_continues(directory: Directory) -> None:
    command = [*HEADGATE, "start", "-D", str(directory.data), "-l", str(directory.log), "-p", str(directory.port)]
    environment = {**directory.environment, "STANDIN_NEVER_READY": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as starting:
        until(lambda: (directory.data / "headgate.pid").exists() and "standing in" in directory.log.read_text())
        starting.send_signal(signal.SIGINT)
        errors = starting.communicate()[1]
    assert starting.returncode == 130, errors
    assert errors.startswith(f"headgate: the node goes on starting (PID {directory.pid()})")
    assert directory.do("stop").returncode == 0
    assert directory.leaves_nothing()


@pytest.mark.slow
def test_restart_keeps_the_options_of_the_last_start(directory: Directory) -> None:
    directory.start("-o", "-c cluster_name=lake")
    pid_before = directory.pid()
    completed = directory.do("restart", "-l", str(directory.log))
    assert completed.returncode == 0
    assert directory.pid() != pid_before
    status = directory.do("status").stdout
    assert "cluster_name=lake" in status
    assert f"-p {directory.port}" in status


def test_command_line_does_not_import_heavy_modules() -> None:
    probe = "import sys, headgate.cli.main; print([name for name in ('pyspark', 'duckdb', 'pyarrow', 'numpy') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout == "[]\n"
