"""A Unix-domain socket in a directory, and the lock file beside it that keeps two servers off one path.

`listener` makes one for each directory of unix_socket_directories. The files are PostgreSQL's own, `.s.PGSQL.5432` and
`.s.PGSQL.5432.lock` with the process id and, a line each, data directory, start time (seconds since 1970), port and socket directory
(miscinit.c, CreateLockFile): a PostgreSQL server finds a node's lock, and a node a PostgreSQL server's.

What must hold: a socket that a living process listens on is never taken away; what a dead one left is.
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
    """The socket of one directory, bound and listening once `bind` has returned; `remove` takes both files away."""

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
        """Takes the lock and listens.

        Raises F0001 where another process holds the lock and 58030 where the directory refuses; nothing is left behind then.
        """
        self._take(data_dir)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.unlink(missing_ok=True)
            sock.bind(str(self.path))
            self._protect()  # before anybody can connect
            sock.listen(backlog)
        except (OSError, PostgresError) as error:
            sock.close()
            self.remove()
            if isinstance(error, PostgresError):
                raise
            raise self._refused(f'create Unix-domain socket "{self.path}"', error) from error
        return sock

    def _protect(self) -> None:
        """Gives the socket its group and its mode."""
        if self._group:
            try:
                number = int(self._group) if self._group.isdecimal() else grp.getgrnam(self._group).gr_gid
                os.chown(self.path, -1, number)
            except KeyError:
                raise PostgresError("22023", f'group "{self._group}" does not exist', severity=Severity.FATAL) from None
            except OSError as error:
                raise self._refused(f'set group of file "{self.path}"', error) from error
        try:
            self.path.chmod(self._mode)
        except OSError as error:
            raise self._refused(f'set permissions of file "{self.path}"', error) from error

    def remove(self) -> None:
        """Takes socket and lock away, if they are this process's."""
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
            raise self._refused(f'create lock file "{self._lock}"', error) from error
        self._locked = True

    def _answers(self) -> bool:
        """Whether somebody listens: the process id alone could be another's by now, in a container above all."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            try:
                sock.connect(str(self.path))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError:
                return True  # it is there, but busy or not for this user
        return True

    def _holder(self) -> int:
        """The process id that the lock file names; 0 where it names none."""
        try:
            return abs(int(self._lock.read_text().split("\n", 1)[0]))
        except (OSError, ValueError):
            return 0

    def _refused(self, what: str, error: OSError) -> PostgresError:
        hint = "Create the directory, or change unix_socket_directories." if isinstance(error, FileNotFoundError) else None
        return PostgresError("58030", f"could not {what}: {error.strerror}", hint=hint, severity=Severity.FATAL)
