"""The session that runs a command, and the parts of its node. The server has the session, and so have replication workers.

Commands must never commit or roll back. `begin_statement` returns the transaction. An error that a command raises undoes the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headgate.catalog.catalog import Catalog
from headgate.catalog.session import SessionContext
from headgate.catalog.system_view import Provider
from headgate.commands.deferral import Deferral
from headgate.commands.open_cursor import OpenCursor
from headgate.commands.pending_notifications import PendingNotifications
from headgate.commands.result import Result
from headgate.commands.transition_table import TransitionTable
from headgate.errors import Notices, PostgresError
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
    from headgate.subscriber.worker_registry import WorkerRegistry


@dataclass(frozen=True)
class Parameter:
    """A parameter $n of the extended protocol: its type (0: to be inferred) and its text form, None for NULL."""

    type_oid: int
    text: str | None


@dataclass(frozen=True)
class NodeParts:
    """The parts of the node that commands use, and the functions of the layers above. `server.node_parts` fills them in.

    run_statement       run a statement that is part of another one, in the same transaction
    insert_rows         insert rows instead of the VALUES row of an INSERT statement in a function
    modify              run (or only describe) an INSERT, UPDATE or DELETE of a WITH clause with the query's `Planner`; return the rows of
                        RETURNING
    open_cursor         open a cursor of the session for a function and return its name (None: make a name; the bool: SCROLL). Raise 42P03
                        if the name is in use
    move_cursor         move a cursor: its name, direction and count, and whether it is MOVE, which returns no rows. Return the rows, and
                        their number
    close_cursor        close a cursor of the session
    announce            send the notifications that a replication worker has committed to the listening sessions of a database
    sessions_of         the number of other sessions that are connected to a database
    terminate_database  terminate the other sessions of a database
    """

    catalog: Catalog
    engine: Engine
    settings: Settings
    data_dir: Path
    slots: Slots
    workers: WorkerRegistry
    run_statement: Callable[[ParseNode, Session], Result]
    insert_rows: Callable[[ParseNode, Session, pa.Table], None]
    modify: Callable[[ParseNode, object], ResultSet | None]
    open_cursor: Callable[[Session, str | None, ParseNode, ResultSet, bool | None], str]
    move_cursor: Callable[[Session, str, str, int, bool], tuple[ResultSet, int]]
    close_cursor: Callable[[Session, str], None]
    announce: Callable[[int, PendingNotifications], None]
    sessions_of: Callable[[int], int]
    terminate_database: Callable[[int], None]


class Session(Protocol):
    """The session that runs a command."""

    parameters: Sequence[Parameter]
    """The values of the statement's parameters. A function replaces them by its variables for the statements that it runs."""
    transition_tables: Mapping[str, TransitionTable]
    """The transition tables that the statement can read, by name: those of the trigger whose function runs it."""

    analysed: Any
    """The statements that the session is going to run again: a `commands.query.analysed_statement.AnalysedStatements`."""

    portals: Any
    """The open cursors and portals, or None before a worker opens the first one. Only the node uses them."""

    @property
    def parts(self) -> NodeParts: ...

    @property
    def context(self) -> SessionContext:
        """The user, the database and the name resolution of the session."""

    @property
    def notices(self) -> Notices: ...

    @property
    def settings(self) -> SessionSettings: ...

    @property
    def dynamic(self) -> Mapping[str, Provider]:
        """The system relations that are computed when they are read."""

    @property
    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions with effects on the node or the session."""

    @property
    def in_block(self) -> bool:
        """Whether the transaction continues after the statement."""

    @property
    def job_group(self) -> str:
        """The name of the session's Spark job group."""

    @property
    def deferral(self) -> Deferral:
        """The actions that the transaction defers to its end."""

    @property
    def pending(self) -> PendingNotifications:
        """The LISTEN, UNLISTEN and NOTIFY commands of the transaction."""

    @property
    def read_only(self) -> bool: ...

    @property
    def snapshot(self) -> Lsn | None:
        """The LSN of the snapshot that the session must read, or None for the latest."""

    def begin_statement(self) -> Transaction:
        """Return the open transaction, or a new one that the server ends after the statement."""

    @property
    def written(self) -> Hashable:
        """A token for the writes of the open transaction, which changes with each write."""

    @property
    def shows_old_catalog(self) -> bool:
        """Whether the statement does not see the latest committed catalog, and must be run again if it fails."""

    def plan_again(self, *, first: bool) -> bool:
        """Restart the statement with the latest committed data. Return False if the transaction's isolation level does not allow that.

        `first`: the transaction had no snapshot before the statement. PostgreSQL waits for the locks of tables before it takes a snapshot.
        """

    def begin_command(self) -> Transaction:
        """Return the open transaction, or a new one, for a command that takes no snapshot."""

    def use_types(self) -> None:
        """Activate the types of the session's database for the current thread."""

    def end_transaction(self, *, commits: bool, chain: bool) -> None:
        """Commit or roll back the transaction in the middle of a procedure. The next statement begins another one.

        `chain`: the next transaction has the isolation level and access mode of this one.
        """

    def nested(self) -> AbstractContextManager[None]:
        """Run a subtransaction of a function. If it raises a PostgresError, close its cursors and release its advisory locks."""

    def prevent_in_block(self, command: str) -> None:
        """Raise 25001 inside a transaction block."""

    def open_cursor(self, name: str) -> OpenCursor | None: ...

    def check_cancel(self) -> None:
        """Raise 57014 if the client has requested a cancel."""

    def forget_cancel(self, error: PostgresError) -> None:
        """Discard the cancel request that raised the error, if one did: a handler of a function has caught it."""

    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> AbstractContextManager[None]:
        """Call `stop` on a cancel request during the block. `in_java`: the work in the block uses Java memory."""

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` after the transaction has committed."""

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Run `action` if the transaction rolls back."""
