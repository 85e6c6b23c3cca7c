"""What a walsender needs of the session that hosts it. The server implements these Protocols (the floors forbid the import)."""

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
        """Its type."""
        ...

    @property
    def body(self) -> bytes:
        """Its body."""
        ...


class Channel(Protocol):
    """The client's connection."""

    interrupted: bool

    def poll(self, timeout: float | None) -> Message | None:
        """The next message; None after the timeout or an interrupt."""
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Puts bytes behind what waits."""
        ...

    def flush(self) -> None:
        """Sends what waits."""
        ...

    def flush_while(self, pump: Callable[[], None], data: bytes | memoryview = b"") -> None:
        """Send what waits, and `data` behind it.

        Calls `pump` whenever the client has sent something, or every 100 ms, while the socket is full.
        """
        ...

    def interrupt(self) -> None:
        """Makes `poll` return; from any thread."""
        ...

    def client_gone(self) -> bool:
        """Whether the client has closed its side; from any thread."""
        ...


class Finding(Protocol):
    """Something that `headgate.check` has found (its `Finding`)."""

    @property
    def severity(self) -> object:
        """How bad it is; its text is a word."""
        ...

    @property
    def place(self) -> str:
        """Where it is."""
        ...

    @property
    def what(self) -> str:
        """What is wrong."""
        ...

    @property
    def advice(self) -> str:
        """What to do about it."""
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
        """Its directory."""
        ...

    @property
    def system_identifier(self) -> str:
        """As in pg_control_system()."""
        ...

    @property
    def slots(self) -> Slots:
        """The replication slots."""
        ...

    @property
    def senders(self) -> Senders:
        """The streams that run."""
        ...

    @property
    def changes(self) -> Shared:
        """What streams have decoded, for each other."""
        ...

    @property
    def log_watch(self) -> LogWatch:
        """Wakes who waits for the log."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the node shuts down."""
        ...

    def findings(self, database: str | None, progress: Callable[[str], None]) -> Generator[Finding, None, int]:
        """Yield what is wrong about what the node keeps on disk. Return the number of tables that were checked."""
        ...


class Block(Protocol):
    """The session's transaction block."""

    imported: Lsn | None
    """A snapshot that was given to the transaction."""

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
        """How many statements of the transaction have taken a snapshot."""
        ...

    def check_not_failed(self) -> None:
        """25P02 where the transaction has failed."""
        ...


class Interrupts(Protocol):
    """What others ask of the session."""

    def check(self) -> None:
        """Raises what is asked for."""
        ...

    def pending(self) -> PostgresError | None:
        """The error that `check` would raise."""
        ...

    def forget_cancel(self) -> None:
        """A cancel has been heeded."""
        ...

    def cancelling(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Inside, `stop` is called when something is asked, from another thread and until it has been left."""
        ...


class Backend(Protocol):
    """The session's entry in pg_stat_activity."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def application_name(self) -> str:
        """What the client calls itself."""
        ...


class Activity(Protocol):
    """All backends of the node."""

    def find(self, pid: int) -> Backend | None:
        """The backend with that pid."""
        ...


class Host(Protocol):
    """The session."""

    @property
    def node(self) -> Node:
        """The node that it belongs to."""
        ...

    @property
    def context(self) -> SessionContext:
        """Who it is."""
        ...

    @property
    def notices(self) -> Notices:
        """What the client is told besides results."""
        ...

    @property
    def settings(self) -> SessionSettings:
        """The settings in force for it."""
        ...

    @property
    def block(self) -> Block:
        """Its transaction block."""
        ...

    @property
    def interrupts(self) -> Interrupts:
        """What others ask of it."""
        ...

    @property
    def connection(self) -> Channel:
        """The client's connection."""
        ...

    @property
    def backend(self) -> Backend:
        """Its entry in pg_stat_activity."""
        ...

    def tell_progress(self, text: str) -> None:
        """Tell a client that asked for DEBUG messages how far a long command is."""
        ...

    def send_result(self, result: ResultSet) -> None:
        """RowDescription, the rows, CommandComplete."""
        ...

    def send_description(self, result: ResultSet) -> None:
        """RowDescription alone."""
        ...

    def complete(self, tag: str) -> None:
        """CommandComplete."""
        ...

    def leave(self) -> NoReturn:
        """Ends the session: the client has said that it goes."""
        ...

    def copy_both(self) -> None:
        """CopyBothResponse."""
        ...
