"""The backends of a node and their activity (pg_stat_activity), and how to cancel and terminate them.

Sessions and workers register with `enter` and unregister with `leave`. Process IDs are virtual: one process serves all sessions, so each
backend gets its own number. All functions here are thread-safe.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.errors import PostgresError, Severity
from headgate.server.interrupts import Interrupts
from headgate.server.protocol.certificate import ClientCertificate
from headgate.server.protocol.tls import TlsStream
from headgate.storage.lock import Mode

if TYPE_CHECKING:
    from headgate.commands.result import CopyProgress


_WAITS = {Mode.LOCK: "relation", Mode.CLAIM: "transactionid", Mode.ADVISORY: "advisory"}
"""The wait_event of each lock mode."""
_LAST_PID = 2**31 - 1


@dataclass(frozen=True)
class TlsFacts:
    """The encryption of a connection, and the client's certificate."""

    version: str
    cipher: str
    bits: int
    certificate: ClientCertificate | None

    @classmethod
    def of(cls, stream: TlsStream | None) -> TlsFacts | None:
        """Return the facts of a connection after its handshake, or None without TLS."""
        return None if stream is None else cls(stream.version, *stream.cipher, stream.certificate)


@dataclass(eq=False)
class Backend:
    """One row of pg_stat_activity. Times are seconds since 1970. `database` is None for workers of the whole node."""

    pid: int
    secret: int
    kind: str
    database: int | None = None
    database_name: str | None = None
    role: int | None = None
    role_name: str | None = None
    application_name: str = ""
    client_addr: str | None = None
    client_port: int | None = None
    client_hostname: str | None = None
    """Set only if it has been resolved, for log_hostname or for a name in pg_hba.conf."""
    started: float = field(default_factory=time.time)
    query: str = ""
    state: str | None = "idle"
    query_start: float | None = None
    state_change: float | None = None
    transaction_start: float | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    wake: Callable[[], None] | None = None
    is_client_gone: Callable[[], bool] = lambda: False
    """Return whether the client has closed its connection. Any thread may call it."""
    client_check_due: float | None = None
    """When to begin to check that (seconds, monotonic). None while no statement runs or if client_connection_check_interval is 0."""
    tls: TlsFacts | None = None
    """The values of pg_stat_ssl; None without TLS."""
    copy: CopyProgress | None = None
    """The progress of the running COPY, or None."""
    wait: tuple[str, str] | None = None
    """The (wait_event_type, wait_event) of a wait for a lock or, in a worker, for something to do."""
    at_rest: tuple[str, str] | None = None
    """The value of `wait` while it does not wait for a lock."""

    def start(self, query: str) -> None:
        now = time.time()
        self.query = query[:1024]
        self.query_start = self.state_change = now
        if self.transaction_start is None:
            self.transaction_start = now
        self.state = "active"

    def rest(self, state: str) -> None:
        """Record that the session waits for its client."""
        self.state = state
        self.state_change = time.time()
        if state == "idle":
            self.transaction_start = None

    def waits_for(self, mode: Mode | None) -> None:
        """Record that the backend waits for a lock, or, for None, that the wait has ended."""
        self.wait = self.at_rest if mode is None else ("Lock", _WAITS[mode])

    def terminate(self) -> None:
        self.interrupts.terminate()
        if self.wake is not None:
            self.wake()


class Activity:
    """All backends of a node."""

    def __init__(self, first_pid: int = 10_000) -> None:
        self._lock = threading.Lock()
        self._gone = threading.Condition(self._lock)
        self._backends: dict[int, Backend] = {}
        self._first_pid = self._next_pid = first_pid
        self.refused_at: dict[str, float] = {}
        """The time at which a backend of each kind was last refused because of a limit (seconds, monotonic)."""

    def reserve(self) -> int:
        """Return a process ID for a connection that may become a backend."""
        with self._lock:
            return self._free_pid()

    def enter(self, kind: str, limit: int | None = None, pid: int | None = None) -> Backend:
        """Register a new backend, with a reserved `pid` if given. Raise FATAL 53300 if there are already `limit` backends of the kind."""
        with self._lock:
            if limit is not None and sum(backend.kind == kind for backend in self._backends.values()) >= limit:
                self.refused_at[kind] = time.monotonic()
                raise PostgresError("53300", "sorry, too many clients already", severity=Severity.FATAL)
            backend = Backend(self._free_pid() if pid is None or pid in self._backends else pid, secrets.randbits(32), kind)
            self._backends[backend.pid] = backend
            return backend

    def _free_pid(self) -> int:
        """Return the next process ID that is not in use. After the largest int4 they start again from the first, as the system's do."""
        while True:
            pid = self._next_pid
            self._next_pid = pid + 1 if pid < _LAST_PID else self._first_pid
            if pid not in self._backends:
                return pid

    def leave(self, pid: int) -> None:
        """Remove the backend with that process ID."""
        with self._gone:
            self._backends.pop(pid, None)
            self._gone.notify_all()

    def find(self, pid: int) -> Backend | None:
        with self._lock:
            return self._backends.get(pid)

    def all(self) -> list[Backend]:
        with self._lock:
            return list(self._backends.values())

    def cancel(self, pid: int, secret: int | None = None) -> bool:
        """Cancel the backend's statement. Return False if there is no such backend or the secret is wrong."""
        backend = self.find(pid)
        if backend is None or (secret is not None and backend.secret != secret):
            return False
        backend.interrupts.cancel()
        return True

    def terminate(self, pid: int) -> bool:
        """Request the backend to terminate. Return whether it exists."""
        backend = self.find(pid)
        if backend is None:
            return False
        backend.terminate()
        return True

    def application_name(self, pid: int) -> str | None:
        """Return the application_name of a backend, or None if it does not exist."""
        backend = self.find(pid)
        return None if backend is None else backend.application_name

    def of_database(self, database: int, besides: int | None = None) -> list[Backend]:
        """Return the backends in a database, except the one with the process ID `besides`."""
        return [backend for backend in self.all() if backend.database == database and backend.pid != besides]

    def wait_gone(self, backends: list[Backend], timeout: float) -> bool:
        """Wait until all of these backends have ended. Return False after `timeout` seconds."""
        with self._gone:
            return self._gone.wait_for(lambda: not any(backend.pid in self._backends for backend in backends), timeout)

    def terminate_database(self, database: int) -> None:
        """Terminate the backends in a database and wait up to 5 s for their end."""
        backends = self.of_database(database)
        for backend in backends:
            backend.terminate()
        self.wait_gone(backends, 5.0)
