"""What a walsender needs of the session that hosts it. The server implements these Protocols (the floors forbid the import)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from headgate.catalog.session import SessionContext
from headgate.errors import Notices
from headgate.types.resultset import ResultSet


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

    def flush_while(self, pump: Callable[[], None]) -> None:
        """Sends what waits; calls `pump` whenever the client has sent something, or every 100 ms, while the socket is full."""
        ...

    def interrupt(self) -> None:
        """Makes `poll` return; from any thread."""
        ...


class Host(Protocol):
    """The session."""

    node: Any
    context: SessionContext
    notices: Notices
    settings: Any
    block: Any
    interrupts: Any
    connection: Any
    backend: Any

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

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions that act."""
        ...
