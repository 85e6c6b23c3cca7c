"""A Unix-domain socket in a directory, and the lock file beside it that prevents two servers from using the same path.

`listener` creates one for each directory of unix_socket_directories. The files are PostgreSQL's own: `.s.PGSQL.5432`, and
`.s.PGSQL.5432.lock` with a line each for process ID, data directory, start time (seconds since 1970), port and socket directory
(miscinit.c, CreateLockFile). So PostgreSQL servers and nodes recognize each other's locks.

Invariant: a socket on which a living process listens is never removed. One that a dead process left is removed.
"""

from __future__ import annotations

import contextlib
import grp
import os
import socket
import time
from pathlib import Path

from headgate.errors import PostgresError, Severity


class SocketFile:
    """The socket of one directory. After `bind` it is listening; `remove` deletes both files."""

    def __init__(self, directory: Path, port: int, mode: int = 0o777, group: str = "") -> None:
        """`mode` and `group` are unix_socket_permissions and unix_socket_group."""
        self.path = directory / f".s.PGSQL.{port}"
        self._directory = directory
        self._port = port
        self._lock = directory / f".s.PGSQL.{port}.lock"
        self._locked = False
        self._mode = mode
        self._group = group

    def bind(self, data_dir: Path, backlog: int) -> socket.socket:
        """Create the lock file and the socket, and listen.

        Raise F0001 if another process holds the lock, or 58030 if a file cannot be created. After an error no file is left.
        """
        self._take(data_dir)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.unlink(missing_ok=True)
            sock.bind(str(self.path))
            self._protect()  # before a client can connect
            sock.listen(backlog)
        except (OSError, PostgresError) as error:
            sock.close()
            self.remove()
            if isinstance(error, PostgresError):
                raise
            raise self._refusal(f'create Unix-domain socket "{self.path}"', error) from error
        return sock

    def _protect(self) -> None:
        """Set the group and the permissions of the socket. Raise 22023 if the group does not exist."""
        if self._group:
            try:
                number = int(self._group) if self._group.isdecimal() else grp.getgrnam(self._group).gr_gid
                os.chown(self.path, -1, number)
            except KeyError:
                raise PostgresError("22023", f'group "{self._group}" does not exist', severity=Severity.FATAL) from None
            except OSError as error:
                raise self._refusal(f'set group of file "{self.path}"', error) from error
        try:
            self.path.chmod(self._mode)
        except OSError as error:
            raise self._refusal(f'set permissions of file "{self.path}"', error) from error

    def remove(self) -> None:
        """Delete the socket and the lock file, if this process created them."""
        if self._locked:
            for path in (self.path, self._lock):
                with contextlib.suppress(OSError):
                    path.unlink()
            self._locked = False

    def _take(self, data_dir: Path) -> None:
        if self._answers():
            raise PostgresError(
                "F0001",
                f'lock file "{self._lock}" already exists',
                hint=f'Is another server (PID {self._holder()}) using socket file "{self.path}"?',
                severity=Severity.FATAL,
            )
        lines = (os.getpid(), data_dir, int(time.time()), self._port, self._directory)
        try:
            self._lock.unlink(missing_ok=True)
            with self._lock.open("x") as file:
                file.write("".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise self._refusal(f'create lock file "{self._lock}"', error) from error
        self._locked = True

    def _answers(self) -> bool:
        """Return whether a process listens on the socket. A living process with the lock's ID proves nothing, above all in containers."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            try:
                sock.connect(str(self.path))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError:
                return True  # it exists, but is busy or not accessible to this user
        return True

    def _holder(self) -> int:
        """Return the process ID in the lock file, or 0 if there is none."""
        try:
            return abs(int(self._lock.read_text().split("\n", 1)[0]))
        except (OSError, ValueError):
            return 0

    def _refusal(self, action: str, error: OSError) -> PostgresError:
        hint = "Create the directory, or change unix_socket_directories." if isinstance(error, FileNotFoundError) else None
        return PostgresError("58030", f"could not {action}: {error.strerror}", hint=hint, severity=Severity.FATAL)
