"""Rows that a worker applies: their defaults, generated columns and constraints.

The subscriber is a floor below and asks through `headgate.subscriber.apply.row_completion.RowCompletion`; the server hands `applied_rows`
to it. A worker acts as the subscription's owner with an empty search path, as PostgreSQL's does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.catalog import database as databases
from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.session import SessionContext
from headgate.catalog.system_view import Provider
from headgate.commands import privilege
from headgate.commands.deferral import Deferral
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.function import row_call
from headgate.commands.open_cursor import OpenCursor
from headgate.commands.pending_notifications import PendingNotifications
from headgate.commands.query.planner import Planner
from headgate.commands.session import NodeParts, Parameter
from headgate.commands.transition_table import TransitionTable
from headgate.errors import Notices, PostgresError, not_supported
from headgate.expression.binding import user_function
from headgate.lsn import Lsn
from headgate.settings.node import Settings
from headgate.settings.session import SessionSettings
from headgate.storage.transaction.transaction import Transaction


@dataclass
class WorkerSession:
    """As much of a session as expressions of a table need."""

    node: NodeParts
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

    def begin_statement(self) -> Transaction:
        """The worker's transaction."""
        return self.transaction

    def begin_command(self) -> Transaction:
        """The worker's transaction."""
        return self.transaction

    @property
    def written(self) -> tuple[int, int, int]:
        """What the worker's transaction has written so far: another value after each write."""
        return self.transaction.place

    @property
    def shows_old_catalog(self) -> bool:
        """See `Session`."""
        return self.transaction.shows_old_catalog

    def plan_again(self, *, first: bool) -> bool:
        """Begins a statement anew, by what is committed now."""
        return self.transaction.plan_again()

    def open_cursor(self, name: str) -> OpenCursor | None:
        """A worker has none."""
        return None

    def check_cancel(self) -> None:
        """Raises where the worker shall end."""
        if self.transaction.cancelled is not None:
            self.transaction.cancelled()

    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> contextlib.AbstractContextManager[None]:
        """A worker's jobs are ended with those of its batch."""
        return contextlib.nullcontext()

    def prevent_in_block(self, command: str) -> None:
        """25001: what is applied is part of a transaction."""
        raise PostgresError("25001", f"{command} cannot be executed from a function")

    def after_commit(self, action: Callable[[], None]) -> None:
        """0A000: nobody waits for a worker's commit."""
        raise not_supported("this command is not supported in a function that a worker calls")

    def after_rollback(self, action: Callable[[], None]) -> None:
        """As `after_commit`."""
        self.after_commit(action)

    def use_types(self) -> None:
        """The worker has put the types in force before the batch."""


def workers_settings(node: Settings) -> SessionSettings:
    """The node's settings, but for those that would stop what is applied: no foreign key, no policy and no limit is looked at."""
    found = SessionSettings(node)
    found.override("session_replication_role", "replica")
    found.override("row_security", "on")
    found.override("temp_file_limit", "-1")
    return found


def owners_context(node: NodeParts, cursor: Cursor, subscription: Subscription) -> SessionContext:
    """The session context of a subscription's owner."""
    database = databases.find(cursor, subscription.database)
    owner = privilege.role_name(cursor, subscription.owner)
    return SessionContext(
        subscription.database, database.name if database is not None else "", owner, user_oid=subscription.owner,
        superuser=privilege.is_superuser(cursor, owner), search_path=[], settings={"TimeZone": node.settings.text("TimeZone")},
    )  # fmt: skip


def applied_rows(
    node: NodeParts, transaction: Transaction, subscription: Subscription, relation: Relation, routed_from: Relation | None = None
) -> NewRows:
    """What completes and checks the rows of one table within a worker's transaction."""
    session = WorkerSession(node, owners_context(node, transaction.cursor, subscription), transaction, workers_settings(node.settings))
    user_function.use(row_call.Resolver(session))
    return NewRows(Planner(session, transaction), relation, violations=(), routed_from=routed_from)
