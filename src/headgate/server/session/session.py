"""A client's session: the interface that commands use (`commands.session.Session`), and what they send to the client.

It has the transaction, the settings, the node's parts, notices and interrupts. `startup` creates it, and `message_loop` serves its client.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from headgate.catalog import namespace
from headgate.catalog.known_types import KnownTypes
from headgate.catalog.security.role import Role
from headgate.commands.function import row_call
from headgate.commands.query.analysed_statement import AnalysedStatements
from headgate.commands.query.catalog import regname
from headgate.errors import Notice, Notices, PostgresError, Severity
from headgate.expression.binding import user_function
from headgate.expression.deparsing import named_object
from headgate.lsn import Lsn
from headgate.server.interrupts import Interrupts
from headgate.server.monitoring.log_line_prefix import ClientSpeaker
from headgate.server.notification import Mailbox
from headgate.server.protocol import message as protocol
from headgate.server.protocol.connection import Connection
from headgate.server.protocol.open_portals import OpenPortals
from headgate.server.protocol.portal import PreparedStatement, send
from headgate.server.protocol.row_source import RowSource
from headgate.server.protocol.statement_memory import Kept, Share
from headgate.server.session.advisory_lock import SessionAdvisoryLocks, most_locks
from headgate.server.session.session_role import SessionRole
from headgate.server.session.transaction_block import BlockState, TransactionBlock
from headgate.settings.encoding import Encoding
from headgate.storage.lock import Patience
from headgate.storage.spark import job_group
from headgate.storage.transaction.transaction import NOTHING
from headgate.types import registry
from headgate.types.resultset import ResultSet

if TYPE_CHECKING:
    from headgate.catalog.physical import Cursor
    from headgate.catalog.session import SessionContext
    from headgate.catalog.system_view import Provider
    from headgate.commands.deferral import Deferral
    from headgate.commands.open_cursor import OpenCursor
    from headgate.commands.pending_notifications import PendingNotifications
    from headgate.commands.session import Parameter
    from headgate.commands.transition_table import TransitionTable
    from headgate.server.monitoring.activity import Backend
    from headgate.server.node_state import NodeState
    from headgate.server.session.nested_statements import NestedStatements
    from headgate.settings.session import SessionSettings
    from headgate.storage.transaction.transaction import Transaction
    from headgate.walsender.commands import Walsender

_log = logging.getLogger("headgate.server")

SEVERITIES = ["DEBUG5", "DEBUG4", "DEBUG3", "DEBUG2", "DEBUG1", "LOG", "NOTICE", "WARNING", "ERROR"]
"""The values of client_min_messages, from the most verbose to the least."""


@dataclass(frozen=True)
class Computed:
    """The tables of the session's functions and dynamic relations. The modules above have them, and `startup` fills them in.

    functions  return the functions that act on the session or the node, by name
    relations  return the relations that are computed when they are read, such as pg_stat_activity, by name
    """

    functions: Callable[[ClientSession], Mapping[str, Callable[..., object]]]
    relations: Callable[[ClientSession], Mapping[str, Provider]]


class SessionEnd(Exception):
    """Raised to end the session. All messages to the client have been sent."""


class ClientSession:
    """The session of one client. The listener creates it during startup; only its own thread uses it, except for `interrupts`."""

    nested_statements: NestedStatements
    """How the session's statements run other ones. `extended_query` sets it."""

    def __init__(
        self,
        node: NodeState,
        connection: Connection,
        backend: Backend,
        context: SessionContext,
        settings: SessionSettings,
        role: Role,
        computed: Computed,
    ) -> None:
        """Create the session of an authenticated client. `role` is the authenticated role."""
        self.node, self.parts = node, node.parts
        self._computed = computed
        self.connection = connection
        self.backend = backend
        self.context = context
        self.settings = settings
        self.interrupts: Interrupts = backend.interrupts
        self.notices = Notices(callers=context.callers)
        self.parameters: Sequence[Parameter] = ()
        self.transition_tables: Mapping[str, TransitionTable] = {}
        self.analysed = AnalysedStatements()
        self.share = Share(node.statement_memory, node.running_memory)
        self.portals = OpenPortals(self.share)
        connection.room = node.message_memory
        self.mailbox = Mailbox(context.database, connection.interrupt)
        self.advisory = SessionAdvisoryLocks(node.engine.locks, backend.pid, self._xid, most_locks(settings))
        self.block = TransactionBlock(
            self._begin_storage, settings, self.portals, self._admit, self._announce, self.advisory, self._await_standbys
        )
        self._types = KnownTypes(node.catalog, context.database, self._catalog_cursor)
        self._functions = row_call.Resolver(self)
        self.role = SessionRole(role, context, settings, self._reading)
        settings.restored = self.settings_restored
        self.prepared = Kept[PreparedStatement](self.share)
        self.job_group = f"session-{backend.pid}"
        self.statement_text = ""
        self.speaker: ClientSpeaker | None = None
        """The session's fields in the log line prefix."""
        self._executing = False
        self._shown: Transaction | None = None
        """The transaction in which the currently executing statement has begun."""
        self.walsender: Walsender | None = None
        """The walsender of a replication connection."""

    # ---- the interface for commands ---------------------------------------------------------------------
    @property
    def transaction(self) -> Transaction | None:
        return self.block.storage

    @property
    def in_block(self) -> bool:
        """Whether the transaction continues after the statement: in BEGIN … COMMIT, among several statements, or in a function."""
        return self.block.state is not BlockState.IDLE or self.block.several or self.context.function_depth > 0

    @property
    def deferral(self) -> Deferral:
        """The actions that the transaction has deferred until its end."""
        return self.block.deferral

    @property
    def pending(self) -> PendingNotifications:
        """The LISTEN, UNLISTEN and NOTIFY commands of the transaction."""
        return self.block.pending

    @property
    def snapshot(self) -> Lsn | None:
        """The LSN at which this transaction reads; None if it reads the latest."""
        return self.block.imported or self.block.snapshot

    @property
    def dynamic(self) -> Mapping[str, Provider]:
        """The dynamic relations, such as the pg_stat_* views."""
        return self._computed.relations(self)

    @functools.cached_property
    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions with side effects. Cached, because each part of a statement looks them up."""
        return self._computed.functions(self)

    def start(self, text: str) -> None:
        self.statement_text = text
        self.backend.start(text)
        self.context.statement_start = datetime.fromtimestamp(self.backend.query_start or 0, UTC)
        self.context.transaction_start = datetime.fromtimestamp(self.backend.transaction_start or 0, UTC)

    def show(self, tag: str) -> None:
        """Set the command tag that the log shows for the session."""
        if self.speaker is not None:
            self.speaker.tag = tag

    @property
    def read_only(self) -> bool:
        return self.block.read_only

    def begin_command(self) -> Transaction:
        """Return the transaction for a command that takes no snapshot, such as LOCK TABLE or SET CONSTRAINTS.

        The first call in a statement makes the latest committed state visible to it. Further calls keep that view. Otherwise a transaction
        that has changed the catalog would replay its changes at each call, if other transactions have committed in the meantime.
        """
        self.interrupts.check()
        transaction = self.block.statement()
        transaction.locks.cancelled = self.patience()
        if self._shown is not transaction:
            transaction.statement()
            self.role.refresh(transaction.cursor)
            self.use_types()
        if self._executing:
            self._shown = transaction
        return transaction

    @contextlib.contextmanager
    def executing(self) -> Iterator[None]:
        """Run one statement inside the context. It sees the state that is committed when it begins."""
        before, self._executing, self._shown = self._executing, True, None
        try:
            yield
        finally:
            self._executing, self._shown = before, None

    def patience(self) -> Patience:
        """Return how long this statement waits for locks: until lock_timeout, a cancel request or the end of the session."""
        limit = self.settings.milliseconds("lock_timeout")
        return Patience(self.interrupts.check, limit / 1000 if limit else None, self.backend.waits_for, self.backend.pid)

    def begin_statement(self) -> Transaction:
        """Return the transaction in which the statement reads and writes. Take the snapshot that the isolation level requires."""
        transaction = self.begin_command()
        self.block.statements += 1
        if self.block.snapshot is None and self.block.isolation in ("repeatable read", "serializable"):
            self.block.snapshot = self.node.engine.log.end
            with self.node.engine.running.noted(transaction):
                transaction.isolate(self.block.imported, serializable=self.block.isolation == "serializable")
        return transaction

    def import_snapshot(self, lsn: Lsn) -> None:
        """Read as of an LSN until the transaction ends. The catalog stays as it is now: the tables must still be as of the LSN."""
        self.block.imported = lsn
        self.begin_statement()

    @property
    def written(self) -> Hashable:
        """A value that changes with each write of the open transaction, and with each transaction that a procedure ends."""
        storage = self.block.storage
        return self.block.ended, NOTHING if storage is None else storage.place

    @property
    def shows_old_catalog(self) -> bool:
        """Whether the statement does not see catalog changes committed since it began, so that it must be retried if it fails."""
        return self.block.storage is not None and self.block.storage.catalog.is_old

    def plan_again(self, *, first: bool) -> bool:
        """Restart the statement with the latest committed state. Return False if the transaction must not see that state.

        `first`: it is the transaction's first statement. In REPEATABLE READ that one may see it, because PostgreSQL takes the snapshot
        after it has waited for the table locks.
        """
        block = self.block
        if block.storage is None:
            return False
        if first:
            block.snapshot = None
            block.storage.forget_snapshot()
        if not block.storage.plan_again():
            return False
        self.use_types()
        return True

    def _catalog_cursor(self) -> Cursor | None:
        """Return the cursor of the open transaction, or None if there is no transaction."""
        return None if self.block.storage is None else self.block.storage.cursor

    def use_types(self) -> None:
        """Make the data types of the session's database, as the transaction sees them, those of the current thread."""
        storage = self.block.storage
        shows = None if storage is None else storage.catalog.type_changes
        self._types.use(self.context.user, self.context.search_path, self._catalog_cursor(), shows)
        registry.guard(None if self.context.superuser else self._check_schema)
        user_function.use(self._functions)
        named_object.use(functools.partial(regname.stored_text, self))

    def _check_schema(self, schema: str) -> None:
        """Raise 42501 if the user does not have USAGE on the schema of a type that it names."""
        with self._reading() as cursor:
            namespace.check_use(cursor, self.context.user, self.context.database, schema)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Cursor]:
        """Yield the open transaction's cursor, so that its own changes of the catalog count. If none is open, yield one in autocommit."""
        storage = self.block.storage
        if storage is not None:
            yield storage.cursor
            return
        with contextlib.closing(self.node.catalog.cursor()) as cursor:
            yield cursor

    def _begin_storage(self) -> Transaction:
        return self.node.engine.begin(self.context.database)

    def _xid(self) -> int | None:
        """Return the open transaction's ID, for sessions that wait for its end."""
        storage = self.block.storage
        return None if storage is None else storage.xid

    def _admit(self, pending: PendingNotifications) -> None:
        """Raise 54000 if the transaction's notifications do not fit into the queue."""
        self.node.channels.admit(self.mailbox, pending)

    def _announce(self, pending: PendingNotifications) -> None:
        """Deliver the transaction's notifications to the sessions that listen."""
        self.node.channels.committed(self.mailbox, pending, self.backend.pid)

    def _await_standbys(self, position: Lsn) -> None:
        """Wait for the synchronous standbys after a commit. If the wait ends early, send a warning: the commit is already durable."""
        if not self.node.standbys.wait(position, self.settings.text("synchronous_commit"), self.interrupts.pending, self.notices):
            self.interrupts.forget_cancel()

    def end_transaction(self, *, commits: bool, chain: bool) -> None:
        """Commit or roll back the transaction in the middle of a procedure. The next statement begins another one."""
        self.block.end(commits=commits, chain=chain)
        self._shown = None
        self.context.transaction_start = datetime.now(UTC)
        self.use_types()

    def prevent_in_block(self, command: str) -> None:
        """Raise 25001 inside a transaction block or a function."""
        if self.context.function_depth:
            raise PostgresError("25001", f"{command} cannot be executed from a function")
        self.block.prevent(command)

    def open_cursor(self, name: str) -> OpenCursor | None:
        from headgate.commands.query import rendering

        return self.portals.cursor(name, lambda: rendering.kept(self))

    def check_cancel(self) -> None:
        """Raise 57014 if the statement was cancelled."""
        self.interrupts.check()

    def forget_cancel(self, error: PostgresError) -> None:
        self.interrupts.forget_cancel(error)

    @contextlib.contextmanager
    def cancelling_jobs(self) -> Iterator[None]:
        """Cancel the Spark jobs that run inside the context when the statement is cancelled.

        It is not needed for jobs that `commands.query.rendering` runs.
        """
        context = self.node.engine.spark.sparkContext
        job_group.enter(context, self.job_group, "headgate session", self.check_cancel)
        try:
            with self.cancelling(lambda: context.cancelJobGroup(self.job_group)):
                yield
        except Exception:
            self.check_cancel()
            raise

    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> contextlib.AbstractContextManager[None]:
        """Call `stop` if the statement is cancelled inside the context. `in_java`: the work inside uses memory of the JVM."""
        return self.interrupts.cancelling(stop, in_java=in_java)

    def nested(self) -> contextlib.AbstractContextManager[None]:
        """Run a subtransaction of a function. If it raises a PostgresError, close its cursors and release its advisory locks."""
        return self.block.nested()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` after the transaction has committed."""
        self.block.touch()
        self.block.after_commit(action)

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Run `action` if the transaction rolls back."""
        self.block.touch()
        self.block.after_rollback(action)

    # ---- for simple and extended query ------------------------------------------------------------------
    def send_notices(self) -> None:
        """Send the notices of the commands that client_min_messages lets through."""
        notices, self.notices.said = self.notices.said, []
        for notice in notices:
            if notice.severity is Severity.WARNING:
                _log.warning("%s", notice.message, extra={"detail": notice.detail, "hint": notice.hint})
            if self._is_wanted(notice):
                self.connection.write(protocol.notice_response(notice, self.connection.encoding))

    def tell_progress(self, text: str) -> None:
        """Send the progress of a long statement at once, if the client receives DEBUG messages."""
        notice = Notice(Severity.DEBUG, "00000", text)
        if self._is_wanted(notice):
            self.connection.write(protocol.notice_response(notice, self.connection.encoding))
            self.connection.flush()

    def _is_wanted(self, notice: Notice) -> bool:
        level = self.settings.text("client_min_messages").upper()
        if notice.severity is Severity.INFO:
            return True
        rank = {Severity.DEBUG: 0, Severity.LOG: 5, Severity.NOTICE: 6, Severity.WARNING: 7}.get(notice.severity, 8)
        return rank >= (SEVERITIES.index(level) if level in SEVERITIES else 6)

    def send_description(self, result: ResultSet) -> None:
        self.connection.write(protocol.row_description(result.columns, (0,) * len(result.columns), self.connection.encoding))

    def send_result(self, result: ResultSet) -> None:
        """Send RowDescription, the rows and CommandComplete."""
        self.send_notices()
        self.send_description(result)
        send(self.connection, RowSource(result).take(0), result.columns, (0,) * len(result.columns), self.context.forms)
        self.complete(result.command_tag)

    def complete(self, tag: str) -> None:
        self.send_notices()
        self.connection.write(protocol.command_complete(tag))

    def leave(self) -> NoReturn:
        """End the session without a message: the client has sent Terminate."""
        raise SessionEnd

    def copy_both(self) -> None:
        self.send_notices()
        self.connection.write(protocol.copy_response(b"W", 0, binary=False))

    def discard_all(self) -> None:
        self.portals.close_all()
        self.node.channels.forget(self.mailbox)
        self.prepared.remove_all()
        self.advisory.release_session_level()
        self.role.discard()
        self.settings.reset_all()

    @property
    def is_superuser(self) -> bool:
        """Whether the current user is a superuser, as the transaction sees it."""
        self.role.refresh()
        return self.context.superuser

    def setting_changed(self, name: str) -> None:
        """Update the session's copies of a setting that has changed."""
        lowered = name.lower()
        if lowered == "search_path":
            self.context.search(self.settings.words("search_path"))
        elif lowered == "application_name":
            self.context.application_name = self.backend.application_name = self.settings.text("application_name")
        elif lowered == "client_encoding":
            self.connection.encoding = Encoding(self.settings.text("client_encoding"))

    def settings_restored(self) -> None:
        """Update the session's copies of settings that the end of a transaction may have restored."""
        self.setting_changed("search_path")
        self.setting_changed("application_name")
        self.setting_changed("client_encoding")
        self.role.follow()
