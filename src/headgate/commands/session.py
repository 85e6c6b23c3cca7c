"""What a command may ask of the session that runs it, and of the node behind it. The server implements both Protocols.

What must hold: commands never commit or roll back; `begin_statement` gives the transaction, and an error raised out of a
command undoes the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from headgate.catalog.catalog import Catalog
from headgate.catalog.session import SessionContext
from headgate.commands.constraint.deferral import Deferral
from headgate.errors import Notices
from headgate.lsn import Lsn
from headgate.settings.node import Settings
from headgate.storage.engine import Engine
from headgate.storage.transaction.transaction import Transaction


class Parameter(Protocol):
    """A value of the extended protocol, in PostgreSQL's text form."""

    @property
    def type_oid(self) -> int:
        """The parameter's type."""
        ...

    @property
    def text(self) -> str | None:
        """Its text form; None is NULL."""
        ...


class SettingsView(Protocol):
    """The session's settings."""

    def value(self, name: str) -> Any:
        """The typed value."""
        ...

    def text(self, name: str) -> str:
        """The value as SHOW prints it."""
        ...


class NodeParts(Protocol):
    """The node."""

    catalog: Catalog
    engine: Engine
    settings: Settings
    data_dir: Path
    slots: Any
    launcher: Any

    def sessions_of(self, database_oid: int) -> int:
        """How many other sessions are connected to the database."""
        ...

    def terminate_database(self, database_oid: int) -> None:
        """Ends the other sessions of a database."""
        ...


class Session(Protocol):
    """The session that runs a command."""

    node: NodeParts
    context: SessionContext
    notices: Notices
    settings: Any
    parameters: tuple[Any, ...]
    dynamic: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]]
    in_block: bool
    job_group: str
    deferral: Deferral

    @property
    def read_only(self) -> bool:
        """Whether the transaction is READ ONLY."""
        ...

    @property
    def snapshot(self) -> Lsn | None:
        """The LSN under which the session must read, None for the newest."""
        ...

    def begin_statement(self) -> Transaction:
        """The open transaction, or a new one that the server ends after the statement."""
        ...

    @property
    def written(self) -> Hashable:
        """What the open transaction has written so far: another value after each write."""
        ...

    def plan_again(self, *, first: bool) -> bool:
        """Begins the statement anew, by what is committed now; False where the transaction must not see that.

        `first`: the transaction had no snapshot before the statement. PostgreSQL waits for the locks of tables before it takes one.
        """
        ...

    def begin_command(self) -> Transaction:
        """The same for a command that takes no snapshot."""
        ...

    def use_types(self) -> None:
        """Puts the types of the session's database in force for the thread."""
        ...

    def prevent_in_block(self, command: str) -> None:
        """25001 when inside a transaction block."""
        ...

    def check_cancel(self) -> None:
        """57014 when the client asked to cancel."""
        ...

    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> AbstractContextManager[None]:
        """While inside, a cancel request calls `stop`; `in_java`: what runs takes memory of Java's."""
        ...

    def after_commit(self, action: Callable[[], None]) -> None:
        """Runs `action` once the transaction has committed."""
        ...

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Runs `action` if the transaction rolls back."""
        ...
