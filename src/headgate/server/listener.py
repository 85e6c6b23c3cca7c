"""The sockets on which a node listens, and a thread for each connection (decision 0001).

`Listener.open` binds all addresses of listen_addresses and the Unix sockets in unix_socket_directories. `close` stops accepting. Called by
the node. Invariants: a port in use is reported before anything else has started. If descriptors or threads run out, connections wait or
are refused, and are accepted again as soon as some are free.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headgate.errors import PostgresError, Severity
from headgate.server.protocol.connection import Connection
from headgate.server.protocol.message import error_response
from headgate.supervision import Supervised


class SocketFile:
    """A Unix-domain socket in a directory, and the lock file beside it that prevents two servers from using the same path.

    After `bind` it is listening; `remove` deletes both files. The files are PostgreSQL's own: `.s.PGSQL.5432`, and `.s.PGSQL.5432.lock`
    with a line each for process ID, data directory, start time (seconds since 1970), port and socket directory (miscinit.c,
    CreateLockFile). So PostgreSQL servers and nodes recognize each other's locks.

    Invariant: a socket on which a living process listens is never removed. One that a dead process left is removed.
    """

    def __init__(self, directory: Path, port: int, mode: int, group: str) -> None:
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


_log = logging.getLogger("headgate.server")

REST_MILLISECONDS = 100
"""How long the listener pauses when it cannot accept a connection, as the postmaster does."""


class Listener:
    """Accepts connections and passes each to `serve` in its own thread."""

    def __init__(
        self,
        addresses: list[str],
        port: int,
        directories: list[str],
        data_dir: Path,
        serve: Callable[[Connection], None],
        backlog: int = 128,
        most: int = 1000,
        mode: int = 0o777,
        group: str = "",
    ) -> None:
        """At most `most` connections have a thread at a time, whether authenticated or not. More are refused before they use resources."""
        self.addresses = addresses
        self.port = port
        self.directories = directories
        self.data_dir = data_dir
        self.backlog = backlog
        self._serve = serve
        self._most = most
        self._mode, self._group = mode, group
        self._living = 0
        self._counting = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._files: list[SocketFile] = []
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._trouble: str | None = None
        self.thread = Supervised("listener", self._accept, patience=5)

    def open(self) -> None:
        """Bind the sockets. Raise FATAL 58030 if no TCP address or not all Unix sockets can be bound, F0001 if a Unix socket is in use."""
        failure: OSError | None = None
        for address in self.addresses:
            for family, address_port in places(address, self.port):
                try:
                    self._bind(family, address_port)
                except OSError as error:
                    failure = error
                    hint = {"hint": self._hint(error)}
                    _log.info('could not bind %s address "%s": %s', _name(family), address_port[0], error.strerror, extra=hint)
        if self.addresses and not self._sockets:
            self.close()
            detail = None if failure is None else failure.strerror
            raise PostgresError("58030", "could not create any TCP/IP sockets", severity=Severity.FATAL, detail=detail)
        try:
            for directory in self.directories:
                self._bind_unix(Path(directory))
        except PostgresError:
            self.close()
            raise

    def _hint(self, error: OSError) -> str | None:
        if error.errno == 98:
            return f"Is another server already running on port {self.port}? If not, wait a few seconds and retry."
        return None

    def _bind(self, family: socket.AddressFamily, address_port: tuple[str, int]) -> None:
        sock = listening_socket(family, address_port, self.backlog)
        self.port = sock.getsockname()[1]
        self._sockets.append(sock)
        _log.info('listening on %s address "%s", port %d', _name(family), address_port[0], self.port)

    def _bind_unix(self, directory: Path) -> None:
        file = SocketFile(directory, self.port, self._mode, self._group)
        self._sockets.append(file.bind(self.data_dir, self.backlog))
        self._sockets[-1].setblocking(False)
        self._files.append(file)
        _log.info('listening on Unix socket "%s"', file.path)

    def start(self) -> None:
        """Begin to accept connections."""
        self.thread.start()

    @property
    def trouble(self) -> str | None:
        """The reason why connections cannot be accepted at the moment, or None."""
        return self._trouble or self.thread.health().error

    def _accept(self) -> None:
        poller = select.poll()
        by_number = {sock.fileno(): sock for sock in self._sockets}
        for number in (*by_number, self._stop_reader.fileno()):
            poller.register(number, select.POLLIN)
        while True:
            for number, _ in poller.poll():
                sock = by_number.get(number)
                if sock is None or not self._take(sock):
                    return

    def _take(self, sock: socket.socket) -> bool:
        """Accept one connection. Return False if the listener was closed during a pause because of an error."""
        try:
            client, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return True  # the client has disconnected already
        except OSError as error:
            return self._rest("could not accept new connection", error)
        if self._living >= self._most:
            _refuse(client, PostgresError("53300", "sorry, too many clients already", severity=Severity.FATAL))
            return True
        try:
            self._count(1)
            threading.Thread(target=self._serve_counted, args=(Connection(client),), name="session", daemon=True).start()
        except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
            self._count(-1)
            message = f"could not fork new process for connection: {_reason(error)}"
            _refuse(client, PostgresError("53000", message, severity=Severity.FATAL))
            return self._rest("could not fork new process for connection", error)
        if self._trouble is not None:
            self._trouble = None
            _log.info("new connections are accepted again")
        return True

    def _serve_counted(self, connection: Connection) -> None:
        try:
            self._serve(connection)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._counting:
            self._living += more

    def _rest(self, context: str, error: Exception) -> bool:
        """Pause, so that a descriptor may become free. Return False if the listener was closed in the meantime."""
        message = f"{context}: {_reason(error)}"
        if message != self._trouble:
            self._trouble = message
            _log.info("%s", message)
        poller = select.poll()
        poller.register(self._stop_reader.fileno(), select.POLLIN)
        return not poller.poll(REST_MILLISECONDS)

    def close(self) -> None:
        """Stop accepting. Open connections stay."""
        with contextlib.suppress(OSError):
            self._stop_writer.send(b"\0")
        self.thread.stop()
        for sock in (*self._sockets, self._stop_reader, self._stop_writer):
            sock.close()
        self._sockets.clear()
        for file in self._files:
            file.remove()


def places(address: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Resolve an entry of a list of addresses. Return an empty list and log it if the name cannot be resolved."""
    if address == "*":
        return [(socket.AF_INET, ("0.0.0.0", port)), (socket.AF_INET6, ("::", port))]  # noqa: S104 - the meaning of "*"
    try:
        infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except OSError as error:
        _log.info('could not translate host name "%s", service "%d" to address: %s', address, port, error)
        return []
    return [(family, (str(sockaddr[0]), port)) for family, _, _, _, sockaddr in infos]


def listening_socket(family: socket.AddressFamily, address_port: tuple[str, int], backlog: int) -> socket.socket:
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address_port)
        sock.listen(backlog)
        sock.setblocking(False)
        stack.pop_all()
        return sock


def _name(family: socket.AddressFamily) -> str:
    return "IPv6" if family == socket.AF_INET6 else "IPv4"


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _refuse(client: socket.socket, error: PostgresError) -> None:
    """Send an error to a client that is not served, if that is possible without waiting."""
    with contextlib.suppress(OSError), client:
        client.setblocking(False)
        client.send(error_response(error))
