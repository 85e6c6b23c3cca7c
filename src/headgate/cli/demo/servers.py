"""The servers of the demonstration: a temporary PostgreSQL 15 and two nodes, each in its own folder.

Called by `course`. PostgreSQL is started and stopped by initdb and pg_ctl, a node by the headgate command. If the caller is root,
PostgreSQL runs as the user postgres, because it does not run as root. Invariant: after `stop` no process is left.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from headgate.errors import PostgresError

MAJOR = "15"
SETTINGS = {"wal_level": "logical", "wal_retrieve_retry_interval": "500ms", "timezone": "'UTC'"}


def free_port() -> int:
    """Return a free TCP port of the loopback interface.

    It is outside the range of the ports for outgoing connections: one of those could be in use again when the server starts.
    """
    while True:
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def postgresql_programs() -> Path:
    """Return the folder with PostgreSQL 15's initdb and pg_ctl. Raise 58P01 with a hint if it is not installed."""
    candidates = [Path(f"/usr/lib/postgresql/{MAJOR}/bin")]
    pg_ctl = shutil.which("pg_ctl")
    if pg_ctl:
        candidates.append(Path(pg_ctl).resolve().parent)
    for folder in candidates:
        if (folder / "initdb").exists():
            return folder
    raise PostgresError(
        "58P01",
        f"could not find PostgreSQL {MAJOR}",
        hint=f"Install it (on Debian: apt-get install postgresql-{MAJOR}), or run make setup.",
    )


def run(*words: str, timeout: float = 180) -> None:
    """Run a program and wait for its end. Raise 58000 with its output if it fails."""
    done = subprocess.run(words, text=True, capture_output=True, timeout=timeout, check=False)
    if done.returncode:
        raise PostgresError(
            "58000", f'"{Path(words[0]).name}" failed with exit code {done.returncode}', detail=(done.stderr or done.stdout).strip()
        )


@dataclass
class DemoServer:
    """One server of the chain. `title`: its name in the display. `settings`: its settings in addition to SETTINGS."""

    title: str
    root: Path
    database: str
    port: int = field(default_factory=free_port)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.root / "data"

    @property
    def logfile(self) -> Path:
        return self.root / "server.log"

    @property
    def conninfo(self) -> str:
        """The connection string for a subscriber of this server."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={self.database}"

    def start(self) -> None:
        """Create the data directory if it does not exist, start the server and wait until it accepts connections."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the server if it is running."""
        raise NotImplementedError

    def connect(self) -> psycopg.Connection:
        """Open a session in the server's database, in autocommit mode."""
        return psycopg.connect(self.conninfo, autocommit=True, connect_timeout=30)

    def create_database(self) -> None:
        """Create the database of the demonstration."""
        with psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres", autocommit=True) as session:
            session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database)))

    def psql(self) -> str:
        """Return the command that connects to it."""
        return f"psql -h 127.0.0.1 -p {self.port} -U postgres {self.database}"

    def write_settings(self, file: str, **more: str) -> None:
        """Append the settings to the server's configuration file."""
        lines = {**SETTINGS, "port": str(self.port), "listen_addresses": "'127.0.0.1'", **self.settings, **more}
        with (self.data / file).open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in lines.items())


class PostgreSQL(DemoServer):
    """A real PostgreSQL 15, owned by the user postgres if the caller is root."""

    def _as_owner(self, *words: str) -> None:
        if os.geteuid() == 0:
            run("runuser", "-u", "postgres", "--", *words)
        else:
            run(*words)

    def start(self) -> None:
        """Run initdb the first time, then pg_ctl start."""
        programs = postgresql_programs()
        if not self.data.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                owner = pwd.getpwnam("postgres")
                os.chown(self.root, owner.pw_uid, owner.pw_gid)
            self._as_owner(
                str(programs / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
            )
            self.write_settings("postgresql.conf", unix_socket_directories=f"'{self.root}'", fsync="off")
        self._as_owner(str(programs / "pg_ctl"), "-D", str(self.data), "-l", str(self.logfile), "-w", "start")

    def stop(self) -> None:
        """Run pg_ctl stop if the server is running."""
        if (self.data / "postmaster.pid").exists():
            self._as_owner(str(postgresql_programs() / "pg_ctl"), "-D", str(self.data), "-m", "fast", "-w", "stop")


class DemoNode(DemoServer):
    """A headgate node."""

    @staticmethod
    def _headgate(*words: str) -> None:
        run(sys.executable, "-m", "headgate.cli.main", *words)

    def start(self) -> None:
        """Run headgate initdb the first time, then headgate start."""
        if not self.data.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            self._headgate("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust")
            self.write_settings("headgate.conf")
        self._headgate("start", "-D", str(self.data), "-l", str(self.logfile), "-t", "170")  # seconds; a busy machine takes more than 60

    def stop(self) -> None:
        """Run headgate stop if the node is running."""
        if (self.data / "headgate.pid").exists():
            self._headgate("stop", "-D", str(self.data), "-m", "fast")
