"""The interface between a walsender and its session. The server implements these Protocols, because it may not be imported here."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn, Protocol

from headgate.catalog.catalog import Catalog
from headgate.catalog.session import SessionContext
from headgate.errors import Notices, PostgresError
from headgate.lsn import Lsn
from headgate.publisher.decoded import Shared
from headgate.publisher.slots import Slots
from headgate.publisher.watch import LogWatch
from headgate.settings import SessionSettings
from headgate.storage.engine import Engine
from headgate.types.resultset import ResultSet
from headgate.walsender.statistics import Senders


class Message(Protocol):
    """A message from the client."""

    @property
    def kind(self) -> str:
        """The message type."""
        ...

    @property
    def body(self) -> bytes:
        """The message body."""
        ...


class Channel(Protocol):
    """The client's connection."""

    interrupted: bool

    def poll(self, timeout: float | None) -> Message | None:
        """Return the next message, or None after the timeout or an interrupt."""
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes to the output buffer."""
        ...

    def flush(self) -> None:
        """Send all buffered output."""
        ...

    def flush_while(self, pump: Callable[[], None], data: bytes | memoryview = b"") -> None:
        """Send the buffered output, then `data`.

        While the socket is full, call `pump` when the client has sent something, or every 100 ms.
        """
        ...

    def interrupt(self) -> None:
        """Make `poll` return. Any thread may call it."""
        ...

    def client_gone(self) -> bool:
        """Return whether the client has closed its side. Any thread may call it."""
        ...


class Finding(Protocol):
    """A finding of `headgate.check` (its `Finding`)."""

    @property
    def severity(self) -> object:
        """The severity; its text is a word."""
        ...

    @property
    def place(self) -> str:
        """The location of the problem."""
        ...

    @property
    def what(self) -> str:
        """The problem."""
        ...

    @property
    def advice(self) -> str:
        """The suggested action."""
        ...


class Node(Protocol):
    """The node."""

    @property
    def catalog(self) -> Catalog:
        """The system catalogs."""
        ...

    @property
    def engine(self) -> Engine:
        """The tables."""
        ...

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        ...

    @property
    def system_identifier(self) -> str:
        """The system identifier, as in pg_control_system()."""
        ...

    @property
    def slots(self) -> Slots:
        """The replication slots."""
        ...

    @property
    def senders(self) -> Senders:
        """The statistics of the running streams."""
        ...

    @property
    def changes(self) -> Shared:
        """The cache of changes that streams share."""
        ...

    @property
    def log_watch(self) -> LogWatch:
        """Wakes threads that wait for the log."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the node is shutting down."""
        ...

    def findings(self, database: str | None, progress: Callable[[str], None]) -> Generator[Finding, None, int]:
        """Check the node's files and yield the problems. Return the number of tables that were checked."""
        ...


class Block(Protocol):
    """The session's transaction block."""

    imported: Lsn | None
    """A snapshot that was imported by the transaction."""

    @property
    def in_block(self) -> bool:
        """Whether BEGIN has opened it."""
        ...

    @property
    def isolation(self) -> str:
        """transaction_isolation."""
        ...

    @property
    def statements(self) -> int:
        """The number of statements of the transaction that have taken a snapshot."""
        ...

    def check_not_failed(self) -> None:
        """Raise 25P02 if the transaction has failed."""
        ...


class Interrupts(Protocol):
    """The pending cancel and termination requests of the session."""

    def check(self) -> None:
        """Raise the error of a pending request."""
        ...

    def pending(self) -> PostgresError | None:
        """Return the error that `check` would raise, or None."""
        ...

    def forget_cancel(self) -> None:
        """Discard a cancel request that has been handled."""
        ...

    def cancelling(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `stop` at a request inside the context, from another thread and until the context has been left."""
        ...


class Backend(Protocol):
    """The session's entry in pg_stat_activity."""

    @property
    def pid(self) -> int:
        """The process ID."""
        ...

    @property
    def application_name(self) -> str:
        """The application_name of the client."""
        ...


class Activity(Protocol):
    """All backends of the node."""

    def find(self, pid: int) -> Backend | None:
        """Return the backend with that process ID, or None."""
        ...


class Host(Protocol):
    """The session."""

    @property
    def node(self) -> Node:
        """The node of the session."""
        ...

    @property
    def context(self) -> SessionContext:
        """The session's user and database."""
        ...

    @property
    def notices(self) -> Notices:
        """The notices for the client."""
        ...

    @property
    def settings(self) -> SessionSettings:
        """The settings in force for the session."""
        ...

    @property
    def block(self) -> Block:
        """The session's transaction block."""
        ...

    @property
    def interrupts(self) -> Interrupts:
        """The pending requests of other threads."""
        ...

    @property
    def connection(self) -> Channel:
        """The client's connection."""
        ...

    @property
    def backend(self) -> Backend:
        """The session's entry in pg_stat_activity."""
        ...

    def tell_progress(self, text: str) -> None:
        """Send the progress of a long command, if the client receives DEBUG messages."""
        ...

    def send_result(self, result: ResultSet) -> None:
        """Send RowDescription, the rows and CommandComplete."""
        ...

    def send_description(self, result: ResultSet) -> None:
        """Send RowDescription only."""
        ...

    def complete(self, tag: str) -> None:
        """Send CommandComplete."""
        ...

    def leave(self) -> NoReturn:
        """End the session: the client has sent Terminate."""
        ...

    def copy_both(self) -> None:
        """Send CopyBothResponse."""
        ...
