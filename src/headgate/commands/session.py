"""What a command may ask of the session that runs it, and of the node behind it. The server implements both Protocols.

What must hold: commands never commit or roll back; `begin_statement` gives the transaction, and an error raised out of a
command undoes the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.catalog.catalog import Catalog
from headgate.catalog.session import SessionContext
from headgate.catalog.system_view import Provider
from headgate.commands.deferral import Deferral
from headgate.commands.open_cursor import OpenCursor
from headgate.commands.pending_notifications import PendingNotifications
from headgate.commands.result import Result
from headgate.commands.transition_table import TransitionTable
from headgate.errors import Notices
from headgate.lsn import Lsn
from headgate.settings.node import Settings
from headgate.settings.session import SessionSettings
from headgate.sql.parser import ParseNode
from headgate.storage.engine import Engine
from headgate.storage.transaction.transaction import Transaction
from headgate.types.resultset import ResultSet

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.publisher.slots import Slots
    from headgate.subscriber.launcher import Launcher


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


class NodeParts(Protocol):
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
    def settings(self) -> Settings:
        """The node's settings."""
        ...

    @property
    def data_dir(self) -> Path:
        """Its directory."""
        ...

    @property
    def slots(self) -> Slots:
        """The replication slots."""
        ...

    @property
    def launcher(self) -> Launcher:
        """Whose workers apply what subscriptions receive."""
        ...

    def run_statement(self, statement: ParseNode, session: Session) -> Result:
        """Runs a statement that is part of another, in the same transaction."""
        ...

    def insert_rows(self, statement: ParseNode, session: Session, rows: pa.Table) -> None:
        """Insert rows in place of the row of values that an INSERT of a function names."""
        ...

    def modify(self, statement: ParseNode, planner: object) -> ResultSet | None:
        """Runs an INSERT, UPDATE or DELETE of a WITH clause by the query's `Planner` (or only describes it); the rows of its RETURNING."""
        ...

    def announce(self, database_oid: int, pending: PendingNotifications) -> None:
        """Tell the sessions that listen of what a replication worker has committed."""
        ...

    def sessions_of(self, database_oid: int) -> int:
        """How many other sessions are connected to the database."""
        ...

    def terminate_database(self, database_oid: int) -> None:
        """Ends the other sessions of a database."""
        ...


class Session(Protocol):
    """The session that runs a command."""

    parameters: Sequence[Parameter]
    """The values of the statement's parameters; a function puts its variables here for what it runs."""
    transition_tables: Mapping[str, TransitionTable]
    """The transition tables that the statement can read, by name: those of the trigger whose function runs it."""

    @property
    def node(self) -> NodeParts:
        """The node that it belongs to."""
        ...

    @property
    def context(self) -> SessionContext:
        """Who it is, and what names mean to it."""
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
    def dynamic(self) -> Mapping[str, Provider]:
        """The system relations that are computed when they are asked for."""
        ...

    @property
    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions that act on the node or the session."""
        ...

    @property
    def in_block(self) -> bool:
        """Whether the statement's transaction goes on behind it."""
        ...

    @property
    def job_group(self) -> str:
        """The name under which Spark knows its work."""
        ...

    @property
    def deferral(self) -> Deferral:
        """What the transaction puts off until its end."""
        ...

    @property
    def pending(self) -> PendingNotifications:
        """What the transaction has asked for by LISTEN, UNLISTEN and NOTIFY."""
        ...

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

    @property
    def shows_old_catalog(self) -> bool:
        """Whether the statement does not see what others have committed to the catalog, and is to run again if it fails."""
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

    def open_cursor(self, name: str) -> OpenCursor | None:
        """A cursor of the session's."""
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
