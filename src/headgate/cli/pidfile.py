"""headgate.pid: the process that runs in a data directory, and its status.

The lines are those of postmaster.pid: process id, data directory, start time (seconds since 1970), port, socket directory,
listen address, an empty line, status. Two more lines follow once the node accepts connections. The first names the role that initdb
made: the commands that connect to the node use it by default. The second has the outcome of the last reload (`Reloaded`), and is empty
before the first one. `run` creates the file and sets the status, `control` reads it.

Invariant: the process holds a lock (flock) on the file for as long as it lives. So a file without a lock is stale, even if another
process has its process id now, and the next node takes it over. After kill -9 no cleanup is needed.
"""

from __future__ import annotations

import enum
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import PostgresError, Severity

NAME = "headgate.pid"
OPTIONS_FILE = "headgate.opts"
"""The command line of the node that last held the pid file, for `restart` and `status`."""
_TRIES = 20


class Status(enum.StrEnum):
    """The last line, padded as PostgreSQL pads it (miscadmin.h, PM_STATUS_…)."""

    STARTING = "starting"
    READY = "ready   "
    STOPPING = "stopping"


@dataclass(frozen=True)
class Reloaded:
    """The outcome of a reload: its time in nanoseconds, whether the files have errors, the settings that wait for a restart."""

    time: int
    has_errors: bool
    pending: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> Reloaded | None:
        """Return the outcome that a line of the file contains, or None for an empty line."""
        words = line.split()
        return cls(int(words[0]), words[1] == "errors", tuple(words[2:])) if words else None

    def line(self) -> str:
        """Return the line of the file."""
        return " ".join((str(self.time), "errors" if self.has_errors else "read", *self.pending))


@dataclass(frozen=True)
class Running:
    """The contents of the file of a running process."""

    pid: int
    started: int
    port: int
    directory: str
    address: str
    status: str
    superuser: str | None = None
    reloaded: Reloaded | None = None

    @property
    def ready(self) -> bool:
        """Whether the node accepts connections."""
        return self.status == Status.READY

    @property
    def host(self) -> str:
        """The address to which a client connects. `address` may stand for all addresses."""
        return {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)  # noqa: S104 (not bound here)


def read(data_dir: Path) -> Running | None:
    """Return the contents of the file, whether or not the process lives, or None if there is no file or it is just being written."""
    try:
        lines = (data_dir / NAME).read_text().split("\n")
        superuser = lines[8] if len(lines) > 8 and lines[8] else None
        reloaded = Reloaded.of(lines[9]) if len(lines) > 9 else None
        return Running(int(lines[0]), int(lines[2]), int(lines[3]), lines[4], lines[5], lines[7], superuser, reloaded)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def alive(data_dir: Path) -> bool:
    """Return whether a living process holds the file."""
    try:
        handle = os.open(data_dir / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def occupied(data_dir: Path) -> Iterator[None]:
    """Prevent nodes from starting in a data directory while inside. Raise F0001 if one runs there."""
    handle = _lock(data_dir / NAME)
    if handle is None:
        raise _in_use(data_dir)
    try:
        yield
    finally:
        (data_dir / NAME).unlink(missing_ok=True)
        os.close(handle)


def exists(pid: int) -> bool:
    """Return whether a process of that id exists and has not ended (a zombie has)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in {"Z", "X"}


def _lock(path: Path) -> int | None:
    """Open the file, create it if necessary, and lock it for this process. Return None if another process holds the lock."""
    for _ in range(_TRIES):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
                return handle
        except (BlockingIOError, FileNotFoundError):
            pass  # locked by a node, or briefly by a command that checks it, or just removed
        os.close(handle)
        time.sleep(0.02)
    return None


def _in_use(data_dir: Path) -> PostgresError:
    holder = read(data_dir)
    return PostgresError(
        "F0001",
        f'lock file "{NAME}" already exists',
        hint=f'Is another node (PID {holder.pid if holder else 0}) running in data directory "{data_dir}"?',
        severity=Severity.FATAL,
    )


class PidFile:
    """The pid file of this process. `create` makes it and `remove` deletes it."""

    def __init__(self, data_dir: Path, handle: int, port: int, address: str, directory: str) -> None:
        self._path = data_dir / NAME
        self._handle = handle
        self._status = Status.STARTING
        self._more: list[str] = []
        self._lines = [str(os.getpid()), str(data_dir), str(int(time.time())), str(port), directory, address, ""]
        self.status(Status.STARTING)

    @classmethod
    def create(cls, data_dir: Path, port: int, address: str, directory: str) -> PidFile:
        """Create the file, or take over a stale one. Raise F0001 if another process holds it."""
        handle = _lock(data_dir / NAME)
        if handle is None:
            raise _in_use(data_dir)
        return cls(data_dir, handle, port, address, directory)

    def status(self, status: Status) -> None:
        """Write the file with this status."""
        self._status = status
        text = "\n".join([*self._lines, status, *self._more, ""]).encode()
        os.pwrite(self._handle, text, 0)
        os.ftruncate(self._handle, len(text))

    def ready(self, superuser: str) -> None:
        """Record that the node accepts connections, and the name of the role that initdb made."""
        self._more = [superuser]
        self.status(Status.READY)

    def reloaded(self, pending: Iterable[str], *, has_errors: bool) -> None:
        """Record the outcome of a reload, for the command that requested it."""
        self._more[1:] = [Reloaded(time.time_ns(), has_errors, tuple(sorted(pending))).line()]
        self.status(self._status)

    def stopping(self) -> None:
        """Record that the node has been asked to stop."""
        self.status(Status.STOPPING)

    def is_in_force(self) -> bool:
        """Return whether the file in the directory is still this one.

        The directory may have been removed, moved, or used by another node.
        """
        try:
            return self._path.stat().st_ino == os.fstat(self._handle).st_ino
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # the disk does not respond for a moment: this does not mean that another node has replaced the file
            return True

    def remove(self) -> None:
        """Remove the file. The lock ends with the process."""
        self._path.unlink(missing_ok=True)
