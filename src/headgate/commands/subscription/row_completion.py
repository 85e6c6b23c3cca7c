"""Complete the rows that a worker applies: defaults, generated columns and constraints.

The subscriber must not import this package. It calls it through `headgate.subscriber.rows.row_completion.RowCompletion`; the server passes
it `applied_rows`. As in PostgreSQL, a worker acts as the subscription's owner, or the table's, with an empty search path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.catalog import database as databases
from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.security import acl
from headgate.catalog.session import SessionContext
from headgate.catalog.system_view import Provider
from headgate.commands import privilege
from headgate.commands.deferral import Deferral
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.function import row_call
from headgate.commands.open_cursor import OpenCursor
from headgate.commands.pending_notifications import PendingNotifications
from headgate.commands.query.analysed_statement import AnalysedStatements
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import NodeParts, Parameter
from headgate.commands.subscription.target_privilege import owner_of
from headgate.commands.transition_table import TransitionTable
from headgate.errors import Notices, PostgresError, not_supported
from headgate.expression.binding import user_function
from headgate.lsn import Lsn
from headgate.settings.node import Settings
from headgate.settings.session import SessionSettings
from headgate.storage.transaction.transaction import Transaction


@dataclass
class WorkerSession:
    """The part of a session that the expressions of a table need."""

    parts: NodeParts
    context: SessionContext
    transaction: Transaction
    settings: SessionSettings
    notices: Notices = field(default_factory=Notices)
    parameters: Sequence[Parameter] = ()
    transition_tables: Mapping[str, TransitionTable] = field(default_factory=dict)
    dynamic: Mapping[str, Provider] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    in_block: bool = False
    job_group: str = "apply"
    snapshot: Lsn | None = None
    read_only: bool = False
    deferral: Deferral = field(default_factory=Deferral)
    pending: PendingNotifications = field(default_factory=PendingNotifications)
    analysed: AnalysedStatements = field(default_factory=AnalysedStatements)
    portals: Any = None

    def begin_statement(self) -> Transaction:
        return self.transaction

    def begin_command(self) -> Transaction:
        return self.transaction

    @property
    def written(self) -> tuple[int, int, int]:
        """A token for the writes of the worker's transaction, which changes with each write."""
        return self.transaction.place

    @property
    def shows_old_catalog(self) -> bool:
        return self.transaction.catalog.is_old

    def plan_again(self, *, first: bool) -> bool:
        """Restart a statement with the latest committed data."""
        return self.transaction.plan_again()

    def open_cursor(self, name: str) -> OpenCursor | None:
        """Return None: a worker has no cursors."""
        return None

    def check_cancel(self) -> None:
        """Raise an error if the worker has to stop."""
        if self.transaction.locks.cancelled is not None:
            self.transaction.locks.cancelled()

    def forget_cancel(self, error: PostgresError) -> None:
        """Do nothing: the end of a worker is FATAL, which no handler catches."""

    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return a context without effect: a worker's jobs are cancelled with those of its batch."""
        return contextlib.nullcontext()

    def nested(self) -> contextlib.AbstractContextManager[None]:
        """Return a context without effect: a worker has no advisory locks."""
        return contextlib.nullcontext()

    def prevent_in_block(self, command: str) -> None:
        """Raise 25001, because applied changes are part of a transaction."""
        raise PostgresError("25001", f"{command} cannot be executed from a function")

    def end_transaction(self, *, commits: bool, chain: bool) -> None:
        """Raise 2D000, because applied changes are part of a transaction."""
        raise PostgresError("2D000", "invalid transaction termination")

    def after_commit(self, action: Callable[[], None]) -> None:
        """Raise 0A000: actions after a worker's commit are not supported."""
        raise not_supported("this command is not supported in a function that a worker calls")

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Raise 0A000, as `after_commit` does."""
        self.after_commit(action)

    def use_types(self) -> None:
        """Do nothing: the worker has activated the types before the batch."""


def workers_settings(node: Settings) -> SessionSettings:
    """Return the node's settings, without those that could stop applied changes: foreign keys, policies and limits are not checked."""
    session_settings = SessionSettings(node)
    session_settings.override("session_replication_role", "replica")
    session_settings.override("row_security", "on")
    session_settings.override("temp_file_limit", "-1")
    return session_settings


def owners_context(node: NodeParts, cursor: Cursor, subscription: Subscription) -> SessionContext:
    database = databases.find(cursor, subscription.database)
    owner = acl.role_name(cursor, subscription.owner)
    return SessionContext(
        subscription.database, database.name if database is not None else "", owner, user_oid=subscription.owner,
        superuser=privilege.is_superuser(cursor, owner), search_path=[], settings={"TimeZone": node.settings.text("TimeZone")},
    )  # fmt: skip


def writers_context(node: NodeParts, cursor: Cursor, subscription: Subscription, table: Relation) -> SessionContext:
    """Return the context in which the changes of a table are applied: that of its owner with run_as_owner = false (PostgreSQL 16)."""
    context, owner = owners_context(node, cursor, subscription), owner_of(cursor, table)
    if subscription.run_as_owner or owner is None:
        return context
    name = acl.role_name(cursor, owner)
    return replace(context, user=name, user_oid=owner, superuser=privilege.is_superuser(cursor, name))


def applied_rows(
    node: NodeParts, subscription: Subscription, transaction: Transaction, relation: Relation, routed_from: Relation | None = None
) -> NewRows:
    """Return the object that completes and checks the rows of one table within a worker's transaction."""
    context = writers_context(node, transaction.cursor, subscription, routed_from or relation)
    session = WorkerSession(node, context, transaction, workers_settings(node.settings))
    user_function.use(row_call.Resolver(session))
    return NewRows(QueryPlanner(session, transaction), relation, violations=(), routed_from=routed_from)
