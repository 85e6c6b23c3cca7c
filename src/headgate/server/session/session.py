"""A session: one client from the end of its start-up to its last message (manual, 55.2 Message Flow).

The thread of the connection runs `ClientSession.run`: it takes messages, hands them to the simple or the extended query, turns what
they raise into ErrorResponse, and says ReadyForQuery. `ClientSession` is also what the commands see (`commands.session.Session`):
the transaction, the settings, the node's parts, notices, interrupts.

Errors: inside a simple query the rest of the string is skipped; inside the extended protocol everything up to Sync
(`skipping`). FATAL errors and a broken connection end the session; its transaction is rolled back, its temporary slots
go, its place among the backends is given back.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from headgate import interruption
from headgate.catalog import namespace
from headgate.catalog.security.role import Role
from headgate.catalog.user_type import KnownTypes
from headgate.commands.table import temporary
from headgate.errors import Notice, Notices, PostgresError, Severity
from headgate.lsn import Lsn
from headgate.server.monitoring import audit
from headgate.server.monitoring.log import said
from headgate.server.monitoring.log_line_prefix import ClientSpeaker
from headgate.server.protocol import message as protocol
from headgate.server.protocol.connection import Connection, ConnectionBroken, FrontendMessage
from headgate.server.protocol.extended_query import ExtendedQuery
from headgate.server.protocol.failure import as_postgres_error
from headgate.server.protocol.open_portals import OpenPortals
from headgate.server.protocol.portal import PreparedStatement, RowSource, send
from headgate.server.protocol.simple_query import SimpleQuery
from headgate.server.protocol.statement_memory import Kept, Share
from headgate.server.session import cursor, session_role
from headgate.server.session.advisory_lock import SessionAdvisoryLocks, most_locks
from headgate.server.session.interrupts import Interrupts
from headgate.server.session.notification import Mailbox, PendingNotifications
from headgate.server.session.transaction_block import BlockState, TransactionBlock
from headgate.settings.encoding import Encoding
from headgate.storage.lock import Patience
from headgate.storage.spark import job_group
from headgate.storage.transaction.transaction import NOTHING
from headgate.types import registry
from headgate.types.resultset import ResultSet

if TYPE_CHECKING:
    from headgate.catalog.session import SessionContext
    from headgate.catalog.system_view import Provider
    from headgate.commands.deferral import Deferral
    from headgate.commands.open_cursor import OpenCursor
    from headgate.commands.session import Parameter
    from headgate.server.monitoring.activity import Backend
    from headgate.server.node import Node
    from headgate.settings import SessionSettings
    from headgate.storage.transaction.transaction import Transaction
    from headgate.walsender.commands import Walsender

_log = logging.getLogger("headgate.server")

SEVERITIES = ["DEBUG5", "DEBUG4", "DEBUG3", "DEBUG2", "DEBUG1", "LOG", "NOTICE", "WARNING", "ERROR"]
"""client_min_messages, from the most to the fewest."""


RESTING = {BlockState.IDLE: "idle", BlockState.BLOCK: "idle in transaction", BlockState.FAILED: "idle in transaction (aborted)"}
"""pg_stat_activity.state between two statements."""


class SessionEnd(Exception):
    """The session is over; everything has been said."""


class ClientSession:
    """One client's session; made by the listener's start-up, used by its thread alone (but for `interrupts`)."""

    def __init__(self, node: Node, connection: Connection, backend: Backend, context: SessionContext, settings: SessionSettings) -> None:
        self.node = node
        self.connection = connection
        self.backend = backend
        self.context = context
        self.settings = settings
        self.interrupts: Interrupts = backend.interrupts
        self.notices = Notices()
        self.parameters: Sequence[Parameter] = ()
        self.share = Share(node.statement_memory, node.running_memory)
        self.portals = OpenPortals(self.share)
        connection.room = node.message_memory
        self.mailbox = Mailbox(context.database, connection.interrupt)
        self.advisory = SessionAdvisoryLocks(node.engine.locks, backend.pid, self._xid, most_locks(settings))
        self.block = TransactionBlock(
            self._begin_storage, settings, self.portals, self._admit, self._announce, self.advisory, self._replicated
        )
        self._types = KnownTypes(node.catalog, context.database)
        self.taken_roles: dict[str, Role] = {}
        """The roles for which it has acted, by name."""
        settings.restored = self.settings_restored
        self.prepared = Kept[PreparedStatement](self.share)
        self.job_group = f"session-{backend.pid}"
        self.statement_text = ""
        self.speaker: ClientSpeaker | None = None
        """What the log says of it."""
        self._executing = False
        self._shown: Transaction | None = None
        """The transaction that has begun the statement that is executing."""
        self.skipping = False
        self.walsender: Walsender | None = None
        """That of a replication connection."""
        self._simple = SimpleQuery(self)
        self.extended = ExtendedQuery(self)

    # ---- what commands see ------------------------------------------------------------------------------
    @property
    def transaction(self) -> Transaction | None:
        """The storage transaction that is open."""
        return self.block.storage

    @property
    def in_block(self) -> bool:
        """Whether the statement's transaction goes on behind it: inside BEGIN … COMMIT, or of a string with several statements."""
        return self.block.state is not BlockState.IDLE or self.block.several

    @property
    def deferral(self) -> Deferral:
        """What the transaction puts off until its end."""
        return self.block.deferral

    @property
    def snapshot(self) -> Lsn | None:
        """The LSN under which this transaction reads; None = the newest."""
        return self.block.imported or self.block.snapshot

    @property
    def dynamic(self) -> Mapping[str, Provider]:
        """The dynamic relations."""
        return self.node.dynamic_relations(self)

    @functools.cached_property
    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions that act; they are asked for with each part of a statement."""
        return self.node.functions(self)

    def start(self, text: str) -> None:
        """A statement of the client's begins."""
        self.statement_text = text
        self.backend.start(text)
        self.context.statement_start = datetime.fromtimestamp(self.backend.query_start or 0, UTC)
        self.context.transaction_start = datetime.fromtimestamp(self.backend.transaction_start or 0, UTC)

    def show(self, tag: str) -> None:
        """What the session does, for the log."""
        if self.speaker is not None:
            self.speaker.tag = tag

    @property
    def read_only(self) -> bool:
        """Whether the transaction is READ ONLY."""
        return self.block.read_only

    def begin_command(self) -> Transaction:
        """Return the transaction of a command that takes no snapshot: LOCK TABLE, SET CONSTRAINTS.

        The first call of a statement shows it what is committed now. Further calls keep that view: a transaction that has changed the
        catalog would otherwise replay its changes each time, if others have committed meanwhile.
        """
        self.interrupts.check()
        transaction = self.block.statement()
        transaction.cancelled = self.patience()
        if self._shown is not transaction:
            transaction.statement()
            session_role.refresh(self, transaction.cursor)
            self.use_types()
        if self._executing:
            self._shown = transaction
        return transaction

    @contextlib.contextmanager
    def executing(self) -> Iterator[None]:
        """Within it one statement runs, which sees what is committed when it begins."""
        before, self._executing, self._shown = self._executing, True, None
        try:
            yield
        finally:
            self._executing, self._shown = before, None

    def patience(self) -> Patience:
        """How long this statement waits for locks: lock_timeout, a cancel, the session's end."""
        limit = self.settings.milliseconds("lock_timeout")
        return Patience(self.interrupts.check, limit / 1000 if limit else None, self.backend.waits_for, self.backend.pid)

    def begin_statement(self) -> Transaction:
        """The transaction in which the statement reads and writes."""
        transaction = self.begin_command()
        self.block.statements += 1
        if self.block.snapshot is None and self.block.isolation in ("repeatable read", "serializable"):
            self.block.snapshot = self.node.engine.log.end
            with self.node.engine.isolation.noted(transaction):
                transaction.isolate(self.block.imported, serializable=self.block.isolation == "serializable")
        return transaction

    @property
    def written(self) -> Hashable:
        """What the open transaction has written so far: another value after each write."""
        storage = self.block.storage
        return NOTHING if storage is None else storage.place

    @property
    def shows_old_catalog(self) -> bool:
        """Whether the statement does not see what others have committed to the catalog, and is to run again if it fails."""
        return self.block.storage is not None and self.block.storage.shows_old_catalog

    def plan_again(self, *, first: bool) -> bool:
        """Begins the statement anew, by what is committed now; False where the transaction must not see that.

        The `first` one of REPEATABLE READ may see it: PostgreSQL waits for the locks of tables before it takes the snapshot.
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

    def use_types(self) -> None:
        """Puts the types of the session's database in force for its thread, as its transaction sees them."""
        storage = self.block.storage
        cursor = None if storage is None else storage.cursor
        self._types.use(self.context.user, self.context.search_path, cursor, None if storage is None else storage.shows_types)
        registry.guard(None if self.context.superuser else self._check_schema)

    def _check_schema(self, schema: str) -> None:
        """42501 where the user names a type in a schema without USAGE on it."""
        storage = self.block.storage
        cursor = self.node.catalog.cursor() if storage is None else storage.cursor
        try:
            namespace.check_use(cursor, self.context.user, self.context.database, schema)
        finally:
            if storage is None:
                cursor.close()

    def _begin_storage(self) -> Transaction:
        return self.node.engine.begin(self.context.database)

    def _xid(self) -> int | None:
        """The transaction that is open; another session asks whose end it waits for."""
        storage = self.block.storage
        return None if storage is None else storage.xid

    def _admit(self, pending: PendingNotifications) -> None:
        """Whether what the transaction has to tell finds a place."""
        self.node.channels.admit(self.mailbox, pending)

    def _announce(self, pending: PendingNotifications) -> None:
        """What the transaction had to tell, to those who listen."""
        self.node.channels.committed(self.mailbox, pending, self.backend.pid)

    def _tell_news(self) -> None:
        """Tells the client of notifications, outside of transactions."""
        while self.block.state is BlockState.IDLE and (news := self.node.channels.next(self.mailbox)) is not None:
            try:
                frame = protocol.notification(news.pid, news.channel, news.payload, self.connection.encoding)
            except PostgresError as untranslatable:
                frame = protocol.error_response(untranslatable)
            self.connection.write(frame)

    def _replicated(self, position: Lsn) -> None:
        """A commit waits for its synchronous standbys; what ends the wait early is a warning, because the commit is done."""
        self.node.standbys.wait(position, self.settings.text("synchronous_commit"), self.interrupts, self.notices)

    def prevent_in_block(self, command: str) -> None:
        """25001 inside a transaction block, and in a function."""
        if self.context.function_depth:
            raise PostgresError("25001", f"{command} cannot be executed from a function")
        self.block.prevent(command)

    def require_block(self, command: str) -> None:
        """25P01 outside a transaction block."""
        if not self.in_block:
            self.block.require(command)

    def open_cursor(self, name: str) -> OpenCursor | None:
        """A cursor of the session's."""
        return cursor.opened(self, name)

    def check_cancel(self) -> None:
        """57014 when the statement was cancelled."""
        self.interrupts.check()

    @contextlib.contextmanager
    def cancelling_jobs(self) -> Iterator[None]:
        """Inside, Spark's jobs end when the statement is cancelled, where it is none that `commands.query.rendering` runs."""
        context = self.node.engine.spark.sparkContext
        job_group.enter(context, self.job_group, "headgate session", self.check_cancel)
        try:
            with self.cancelling(lambda: context.cancelJobGroup(self.job_group)):
                yield
        except Exception:
            self.check_cancel()
            raise

    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> contextlib.AbstractContextManager[None]:
        """Inside, a cancel calls `stop`; `in_java`: what runs takes memory of Java's."""
        return self.interrupts.cancelling(stop, in_java=in_java)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Runs `action` once the transaction has committed."""
        self.block.touch()
        self.block.after_commit(action)

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Runs `action` if the transaction rolls back."""
        self.block.touch()
        self.block.after_rollback(action)

    # ---- life -------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Serves the client until it leaves."""
        try:
            self.greet()
            ready = True
            while True:
                if ready:
                    self.ready()
                message = self._receive()
                if message is not None:
                    ready = self._handle(message)
                    self.connection.release_room()
                else:
                    ready = False
                    self._tell_idle()
        except (ConnectionBroken, SessionEnd):
            pass
        except PostgresError as error:
            self._last_words(error)
        except Exception as error:  # noqa: BLE001 - the edge of a session
            self._last_words(as_postgres_error(error))
        finally:
            self._leave()

    def _tell_idle(self) -> None:
        """The client has been waited for, and something has come from elsewhere."""
        if self.mailbox.waiting and not self.extended.begun:
            self._tell_news()
            self.connection.flush()

    def _last_words(self, error: PostgresError) -> None:
        said(error, self.statement_text, self.settings)
        with contextlib.suppress(ConnectionBroken):
            self._tell(error, Severity.FATAL)
            self.connection.flush()

    def _leave(self) -> None:
        self.connection.release_room()
        self.portals.close_all()
        self.prepared.let_go_all()
        self.node.channels.leave(self.mailbox)
        with contextlib.suppress(Exception):
            self.block.rollback()
        self.advisory.release_all()
        with contextlib.suppress(Exception):
            temporary.drop_all(self.node.engine, self.context)
        with contextlib.suppress(Exception):
            self.node.slots.release_session(self.backend.pid)
        self.node.origin_users.leave(self.backend.pid)
        self.connection.close()
        self.node.activity.leave(self.backend.pid)
        if self.speaker is not None and self.settings.flag("log_disconnections"):
            audit.disconnected(self.speaker)

    def greet(self) -> None:
        """AuthenticationOk has been sent: the settings' report and the key for cancelling."""
        self.setting_changed("client_encoding")
        self._report()
        self.connection.write(protocol.backend_key_data(self.backend.pid, self.backend.secret))

    def _report(self) -> None:
        for name, value in self.settings.reported():
            self.connection.write(protocol.parameter_status(name, value, self.connection.encoding))

    def ready(self) -> None:
        """ReadyForQuery, after the reports of changed settings."""
        self.settings_restored()
        self._report()
        self.send_notices()
        self._tell_news()
        self.statement_text = ""
        self.backend.rest(RESTING[self.block.state])
        self.show(RESTING[self.block.state])
        self.connection.write(protocol.ready_for_query(self.block.letter))
        self.connection.flush()

    def _receive(self) -> FrontendMessage | None:
        if self.interrupts.terminated:
            self.interrupts.check()
        limit, error = self._idle_limit()
        self.connection.interrupted = False
        self.connection.longest_statement = self.settings.integer("max_statement_size") << 10
        message = self.connection.poll(limit)
        if message is None and not self.connection.interrupted and error is not None:
            raise error
        if message is None and self.interrupts.terminated:
            self.interrupts.check()
        return message

    def _idle_limit(self) -> tuple[float | None, PostgresError | None]:
        if self.block.state is BlockState.IDLE:
            wait = self.settings.milliseconds("idle_session_timeout")
            error = PostgresError("57P05", "terminating connection due to idle-session timeout", severity=Severity.FATAL)
        else:
            wait = self.settings.milliseconds("idle_in_transaction_session_timeout")
            error = PostgresError("25P03", "terminating connection due to idle-in-transaction timeout", severity=Severity.FATAL)
        return (wait / 1000, error) if wait else (None, None)

    def _handle(self, message: FrontendMessage) -> bool:
        """Works on one message; whether ReadyForQuery comes next."""
        kind = message.kind
        if kind == "X":
            raise SessionEnd
        if kind in "dcf":
            return False  # of a COPY that has ended already
        if kind == "Q":
            self.skipping = False
            self._guard(lambda: self._simple.run(message.whole()))
            return True
        if kind == "F":
            self._guard(self._function_call)
            return True
        if kind == "S":
            self.skipping = False
            self._guard(self.extended.sync)
            return True
        if kind == "p":
            raise PostgresError("08P01", f"invalid frontend message type {ord(kind)}", severity=Severity.FATAL)
        if not self.skipping and not self._guard(lambda: self.extended.message(kind, message.whole())):
            self.skipping = True
            self.connection.flush()
        return False

    def _function_call(self) -> None:
        raise PostgresError("0A000", "function calls by the fast path are not supported")

    def _guard(self, work: Callable[[], None]) -> bool:
        """Runs `work`; an error is sent to the client and the transaction fails. Whether it went well."""
        try:
            with self._client_watched(), self.interrupts.statement(self.settings.milliseconds("statement_timeout")):
                self._interruptible(work)
            return True
        except (ConnectionBroken, SessionEnd):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of a statement
            self.fail(error)
            return False

    @contextlib.contextmanager
    def _client_watched(self) -> Iterator[None]:
        """Inside, `ClientWatch` ends the session if its client leaves; a walsender notices that by itself."""
        interval = self.settings.milliseconds("client_connection_check_interval") if self.walsender is None else 0
        self.backend.client_check_due = time.monotonic() + interval / 1000 if interval else None
        try:
            yield
        finally:
            self.backend.client_check_due = None

    def _interruptible(self, work: Callable[[], None]) -> None:
        """Runs `work`; an error after a cancel is the cancel's, in whatever words DuckDB or Spark say that they were stopped."""
        try:
            with interruption.watched(self.interrupts.check):
                work()
        except (ConnectionBroken, SessionEnd):
            raise
        except Exception as error:
            asked = self.interrupts.pending()
            if asked is None:
                raise
            raise asked from error

    def fail(self, error: Exception) -> None:
        """Tells the client and the log of an error and lets the transaction fail; a FATAL one ends the session."""
        known = as_postgres_error(error)
        self.node.engine.note_unreadable(known)
        try:
            self.block.fail()
        except Exception as second:  # noqa: BLE001 - the first error is the one to tell
            _log.warning("rollback failed", exc_info=second)
        self.node.slots.error_in_session(self.backend.pid)
        self.parameters = ()
        self.send_notices()
        said(known, self.statement_text, self.settings)
        if known.severity in (Severity.FATAL, Severity.PANIC):
            self._tell(known)
            self.connection.flush()
            raise SessionEnd
        self._tell(known, Severity.ERROR)

    def _tell(self, error: PostgresError, severity: Severity | None = None) -> None:
        """ErrorResponse; where the client's encoding has not what the error says, that it has not."""
        try:
            frame = protocol.error_response(error, severity=severity, encoding=self.connection.encoding)
        except PostgresError as untranslatable:
            frame = protocol.error_response(untranslatable, severity=severity)
        self.connection.write(frame)

    # ---- for simple and extended query ------------------------------------------------------------------
    def send_notices(self) -> None:
        """Sends what the commands have said, as far as client_min_messages lets it through."""
        notices, self.notices.said = self.notices.said, []
        for notice in notices:
            if notice.severity is Severity.WARNING:
                _log.warning("%s", notice.message, extra={"detail": notice.detail, "hint": notice.hint})
            if self._wanted(notice):
                self.connection.write(protocol.notice_response(notice, self.connection.encoding))

    def tell_progress(self, text: str) -> None:
        """Tell a client that asked for DEBUG messages how far a long statement is, at once."""
        notice = Notice(Severity.DEBUG, "00000", text)
        if self._wanted(notice):
            self.connection.write(protocol.notice_response(notice, self.connection.encoding))
            self.connection.flush()

    def _wanted(self, notice: Notice) -> bool:
        level = self.settings.text("client_min_messages").upper()
        if notice.severity is Severity.INFO:
            return True
        place = {Severity.DEBUG: 0, Severity.LOG: 5, Severity.NOTICE: 6, Severity.WARNING: 7}.get(notice.severity, 8)
        return place >= (SEVERITIES.index(level) if level in SEVERITIES else 6)

    def send_description(self, result: ResultSet) -> None:
        """RowDescription alone."""
        self.connection.write(protocol.row_description(result.columns, (0,) * len(result.columns), self.connection.encoding))

    def send_result(self, result: ResultSet) -> None:
        """RowDescription, rows, CommandComplete."""
        self.send_notices()
        self.send_description(result)
        send(self.connection, RowSource(result), 0, (0,) * len(result.columns), self.context.forms)
        self.complete(result.command_tag)

    def complete(self, tag: str) -> None:
        """CommandComplete."""
        self.send_notices()
        self.connection.write(protocol.command_complete(tag))

    def leave(self) -> NoReturn:
        """Ends the session without a word: the client has sent Terminate."""
        raise SessionEnd

    def copy_both(self) -> None:
        """CopyBothResponse."""
        self.send_notices()
        self.connection.write(protocol.copy_response(b"W", 0, binary=False))

    def discard_all(self) -> None:
        """DISCARD ALL."""
        self.portals.close_all()
        self.node.channels.forget(self.mailbox)
        self.prepared.let_go_all()
        self.advisory.give_all_back()
        session_role.discard(self)
        self.settings.reset_all()

    @property
    def is_superuser(self) -> bool:
        """Whether the current user is a superuser, as the transaction sees it."""
        session_role.refresh(self)
        return self.context.superuser

    def setting_changed(self, name: str) -> None:
        """A setting was SET: what the context keeps of it follows."""
        lowered = name.lower()
        if lowered == "search_path":
            words, temp = self.settings.words("search_path"), self.context.temp_schema
            named = [temp or each if each == "pg_temp" else each for each in words]
            self.context.search_path = named if temp is None or temp in named else [temp, *named]
        elif lowered == "application_name":
            self.context.application_name = self.backend.application_name = self.settings.text("application_name")
        elif lowered == "client_encoding":
            self.connection.encoding = Encoding(self.settings.text("client_encoding"))

    def settings_restored(self) -> None:
        """Settings may have gone back at the end of a transaction."""
        self.setting_changed("search_path")
        self.setting_changed("application_name")
        self.setting_changed("client_encoding")
        session_role.follow(self)
