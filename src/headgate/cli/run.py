"""``headgate run``: runs the node in the foreground. ``headgate start`` runs this command in the background.

Everything that can be checked cheaply is checked before Spark starts, in this order: the data directory, the settings, Java,
the jars, the lock file, the port. A problem is printed as a line of the server log and ends the process with exit code 1. The
pid file is removed in any case. Then `Node.run` handles the signals and blocks until the node has stopped.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from headgate.backup.target import is_incomplete
from headgate.catalog.layout.format import FORMAT
from headgate.cli import initdb, message
from headgate.cli.pidfile import OPTIONS_FILE, PidFile
from headgate.errors import PostgresError, Severity, disk_full
from headgate.settings.node import CONF, Settings
from headgate.storage.location import disk_reserve as reserve
from headgate.storage.spark.application import jars

JAVA, NEWEST_JAVA = 17, 23
"""The versions of Java with which Spark runs. Java 24 has removed the security manager, which Hadoop asks for the user."""


def run(data_dir: Path, command_line: Mapping[str, str]) -> int:
    """Run a node until it is stopped. Return the exit code. Only the owner can read the files that the process creates."""
    os.umask(0o077)
    try:
        _serve(data_dir, command_line)
    except PostgresError as error:
        message.log(error, Severity.FATAL)
        return 1
    except Exception as error:  # noqa: BLE001 - the last place that can say why the process ends
        full = disk_full(error)
        if full is not None:
            message.log(full, Severity.FATAL)
            return 1
        text = f"the node ended unexpectedly: {error}"
        message.log(PostgresError("XX000", text, detail=traceback.format_exc().rstrip()), Severity.FATAL)
        return 1
    return 0


def _serve(data_dir: Path, command_line: Mapping[str, str]) -> None:
    check_directory(data_dir)
    settings = read_settings(data_dir, command_line)
    check_java()
    jars.ensure()
    reserve.make_room(data_dir)
    _handle_signals()
    with _pid_file(data_dir, settings) as pid_file:
        check_port(settings)
        from headgate.server.node import Node

        node = Node(data_dir, settings, on_ready=pid_file.ready)
        node.on_stopping = pid_file.stopping
        node.on_reloaded = lambda reload: pid_file.reloaded(settings.pending, has_errors=reload.has_errors)
        node.has_directory = pid_file.is_in_force
        node.run()


@contextmanager
def _pid_file(data_dir: Path, settings: Settings) -> Iterator[PidFile]:
    address, directory = (next(iter(settings.places(name)), "") for name in ("listen_addresses", "unix_socket_directories"))
    pid_file = PidFile.create(data_dir, settings.integer("port"), address, directory)
    try:
        options = data_dir / OPTIONS_FILE
        words = shlex.join([sys.executable, "-m", "headgate.cli.main", *sys.argv[1:]]) + "\n"
        if not options.exists() or options.read_text() != words:
            draft = options.with_name(f"{OPTIONS_FILE}.tmp")
            draft.write_text(words)
            draft.chmod(0o600)
            draft.rename(options)
        yield pid_file
    finally:
        pid_file.remove()


def _handle_signals() -> None:
    """Handle signals until the node does: a stop signal ends the process cleanly, and the others are ignored."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(1)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, end)
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def check_directory(data_dir: Path) -> None:
    """Raise F0000 if the directory has no node, a node of another version, or an incomplete backup."""
    if is_incomplete(data_dir):
        raise PostgresError(
            "F0000", f'directory "{data_dir}" holds a backup that is not complete', hint="Repeat the backup into an empty directory."
        )
    try:
        version = (data_dir / initdb.VERSION_FILE).read_text().strip()
    except OSError as error:
        raise PostgresError(
            "58P01",
            f'"{data_dir}" is not a valid data directory',
            detail=f'File "{data_dir / initdb.VERSION_FILE}" is missing.',
            hint="You might need to initdb.",
        ) from error
    if version != str(FORMAT):
        older = version.isdigit() and int(version) < FORMAT
        raise PostgresError(
            "F0000",
            "database files are incompatible with headgate",
            detail=f"The data directory was initialized by headgate format version {version}, which is not compatible with this version "
            f"{FORMAT}.",
            hint=f'Run "headgate upgrade -D {data_dir}".' if older else "Use the version of headgate that made it, or a newer one.",
        )


def read_settings(data_dir: Path, command_line: Mapping[str, str]) -> Settings:
    """Read the settings. Errors in the files are logged line by line before F0000 is raised."""
    settings = Settings(data_dir, command_line)
    try:
        return settings.load()
    finally:
        for complaint in settings.complaints:
            message.log(complaint)


def check_java() -> None:
    """Check the Java that Spark will start. Raise 58P01 if there is none, or if Spark does not run on its version."""
    hint = f"Install a Java {JAVA} runtime (on Debian: apt-get install openjdk-{JAVA}-jre-headless), or set JAVA_HOME to one."
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if program is None:
        where = f'in JAVA_HOME, "{home}"' if home else "in PATH"
        raise PostgresError("58P01", f"could not find a Java runtime {where}", hint=hint)
    java = Path(program).resolve()
    version = _java_version(java)
    if version is None:
        raise PostgresError("58P01", f'could not run "{program}"', hint=hint)
    if not JAVA <= version <= NEWEST_JAVA:
        raise PostgresError("58P01", f'"{program}" is Java {version}, but Java {JAVA} to {NEWEST_JAVA} is needed', hint=hint)


def _java_version(java: Path) -> int | None:
    """Return the major version, from the runtime's ``release`` file if there is one, because running java takes 0.1 s or more."""
    try:
        text = (java.parent.parent / "release").read_text()
    except OSError:
        try:
            text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
        except (OSError, subprocess.SubprocessError):
            return None
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def check_port(settings: Settings) -> None:
    """Check the addresses before Spark starts. Log each one that cannot be bound, and raise 58000 if none can."""
    port = settings.integer("port")
    addresses = settings.places("listen_addresses")
    could = 0
    for address in addresses:
        bound = _try(address, port)
        if not bound:
            message.log(PostgresError("58000", f'could not create listen socket for "{address}"', severity=Severity.WARNING))
        could += bound
    if addresses and not could:
        raise PostgresError("58000", "could not create any TCP/IP sockets")


def _try(address: str, port: int) -> bool:
    host = None if address == "*" else address
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        text = f'could not translate host name "{address}", service "{port}" to address: {error.strerror}'
        message.log(PostgresError("58000", text, severity=Severity.LOG))
        return False
    could = False
    for family, kind, protocol, _, target in addresses:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(target)
                probe.listen(1)
                could = True
        except OSError as error:
            name = "IPv6" if family == socket.AF_INET6 else "IPv4"
            in_use = (
                f"Is another server already running on port {port}? If not, wait a few seconds and retry. For another port give -p to"
                f' headgate start, or set port in "{CONF}".'
            )
            message.log(
                PostgresError(
                    "58000",
                    f'could not bind {name} address "{target[0]}": {error.strerror}',
                    hint=in_use if error.errno in {98, 48} else None,
                    severity=Severity.LOG,
                )
            )
    return could
