"""The backends of a node: who is connected and what they do (pg_stat_activity), and how to end them.

Sessions and workers enter with `enter` and leave with `leave`. Process ids are virtual: one process serves all sessions, so each
gets an integer of its own. Any thread may call anything here.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.errors import PostgresError, Severity
from headgate.server.authentication.certificate import ClientCertificate
from headgate.server.authentication.tls import TlsStream
from headgate.server.session.interrupts import Interrupts
from headgate.storage.lock import Mode

if TYPE_CHECKING:
    from headgate.commands.result import CopyProgress


_WAITS = {Mode.LOCK: "relation", Mode.CLAIM: "transactionid", Mode.ADVISORY: "advisory"}
"""The wait_event of each lock."""
_LAST_PID = 2**31 - 1


@dataclass(frozen=True)
class TlsFacts:
    """How a connection is encrypted, and the client's certificate."""

    version: str
    cipher: str
    bits: int
    certificate: ClientCertificate | None

    @classmethod
    def of(cls, stream: TlsStream | None) -> TlsFacts | None:
        """Of a connection after its handshake."""
        return None if stream is None else cls(stream.version, *stream.cipher, stream.certificate)


@dataclass(eq=False)
class Backend:
    """One row of pg_stat_activity. Times are seconds since 1970; `database` is None for workers of the whole node."""

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
    """As far as it has been looked up: for log_hostname, or a name in pg_hba.conf."""
    started: float = field(default_factory=time.time)
    query: str = ""
    state: str | None = "idle"
    query_start: float | None = None
    state_change: float | None = None
    transaction_start: float | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    wake: Callable[[], None] | None = None
    is_client_gone: Callable[[], bool] = lambda: False
    """Whether the client has closed its connection; from any thread."""
    client_check_due: float | None = None
    """When to begin to ask that (seconds, monotonic); None while no statement runs, or if client_connection_check_interval is 0."""
    tls: TlsFacts | None = None
    """What pg_stat_ssl shows; None without TLS."""
    copy: CopyProgress | None = None
    """How far the COPY is that runs."""
    wait: tuple[str, str] | None = None
    """What it waits for, a lock, or what gives a worker something to do: wait_event_type and wait_event."""
    at_rest: tuple[str, str] | None = None
    """What it waits for while it waits for no lock."""

    def start(self, query: str) -> None:
        """A statement begins."""
        now = time.time()
        self.query = query[:1024]
        self.query_start = self.state_change = now
        if self.transaction_start is None:
            self.transaction_start = now
        self.state = "active"

    def rest(self, state: str) -> None:
        """The session waits for its client."""
        self.state = state
        self.state_change = time.time()
        if state == "idle":
            self.transaction_start = None

    def waits_for(self, mode: Mode | None) -> None:
        """The backend waits for a lock; None: no more."""
        self.wait = self.at_rest if mode is None else ("Lock", _WAITS[mode])

    def terminate(self) -> None:
        """Asks the backend to end."""
        self.interrupts.terminate()
        if self.wake is not None:
            self.wake()


class Activity:
    """All backends of the node."""

    def __init__(self, first_pid: int = 10_000) -> None:
        self._lock = threading.Lock()
        self._gone = threading.Condition(self._lock)
        self._backends: dict[int, Backend] = {}
        self._first_pid = self._next_pid = first_pid
        self.refused_at: dict[str, float] = {}
        """When a backend of a kind was last refused because of a limit, in seconds of the monotonic clock."""

    def reserve(self) -> int:
        """A process id for a connection that may become a backend."""
        with self._lock:
            return self._free_pid()

    def enter(self, kind: str, limit: int | None = None, pid: int | None = None) -> Backend:
        """A new backend, with a `pid` that was reserved; FATAL 53300 when `limit` backends of the kind are there already."""
        with self._lock:
            if limit is not None and sum(one.kind == kind for one in self._backends.values()) >= limit:
                self.refused_at[kind] = time.monotonic()
                raise PostgresError("53300", "sorry, too many clients already", severity=Severity.FATAL)
            backend = Backend(self._free_pid() if pid is None or pid in self._backends else pid, secrets.randbits(32), kind)
            self._backends[backend.pid] = backend
            return backend

    def _free_pid(self) -> int:
        """The next process id that no backend has; they begin again after the greatest that an int4 holds, as the system's do."""
        while True:
            pid = self._next_pid
            self._next_pid = pid + 1 if pid < _LAST_PID else self._first_pid
            if pid not in self._backends:
                return pid

    def leave(self, pid: int) -> None:
        """The backend with that pid has ended."""
        with self._gone:
            self._backends.pop(pid, None)
            self._gone.notify_all()

    def find(self, pid: int) -> Backend | None:
        """The backend with that pid."""
        with self._lock:
            return self._backends.get(pid)

    def all(self) -> list[Backend]:
        """The backends now."""
        with self._lock:
            return list(self._backends.values())

    def cancel(self, pid: int, secret: int | None = None) -> bool:
        """Cancels what the backend runs; with a wrong secret nothing happens."""
        backend = self.find(pid)
        if backend is None or (secret is not None and backend.secret != secret):
            return False
        backend.interrupts.cancel()
        return True

    def terminate(self, pid: int) -> bool:
        """Asks the backend to end; whether there is one."""
        backend = self.find(pid)
        if backend is None:
            return False
        backend.terminate()
        return True

    def of_database(self, database: int, besides: int | None = None) -> list[Backend]:
        """The backends in a database."""
        return [one for one in self.all() if one.database == database and one.pid != besides]

    def wait_gone(self, backends: list[Backend], timeout: float) -> bool:
        """Waits until all these have left."""
        with self._gone:
            return self._gone.wait_for(lambda: not any(one.pid in self._backends for one in backends), timeout)
