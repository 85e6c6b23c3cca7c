"""The message loop of a client's connection (manual, 55.2 Message Flow; postgres.c, PostgresMain).

`startup` runs it when a session is open, on the connection's thread. It receives messages, passes them to the simple or the extended query
protocol, turns exceptions into ErrorResponse and sends ReadyForQuery.

Errors: in a simple query the rest of the query string is skipped. In the extended protocol all messages up to Sync are skipped
(`_skipping`). A FATAL error or a broken connection ends the session: its transaction is rolled back, its temporary slots are dropped
and its entry in the list of backends is removed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from headgate import interruption
from headgate.commands.table import temporary
from headgate.errors import PostgresError, Severity
from headgate.server.client import audit
from headgate.server.client.extended_query import ExtendedQuery
from headgate.server.client.simple_query import SimpleQuery
from headgate.server.monitoring.log import log_sent_error
from headgate.server.protocol import message as protocol
from headgate.server.protocol.connection import ConnectionBroken, FrontendMessage
from headgate.server.protocol.failure import as_postgres_error
from headgate.server.session.session import ClientSession, SessionEnd
from headgate.server.session.transaction_block import BlockState

_log = logging.getLogger("headgate.server")

_RESTING = {BlockState.IDLE: "idle", BlockState.BLOCK: "idle in transaction", BlockState.FAILED: "idle in transaction (aborted)"}
"""The pg_stat_activity.state between two statements."""


class MessageLoop:
    """Serves the client of one session."""

    def __init__(self, session: ClientSession) -> None:
        """Create the loop. `run` does the work."""
        self._session, self._connection = session, session.connection
        self._simple, self._extended = SimpleQuery(session), ExtendedQuery(session)
        self._skipping = False

    def run(self) -> None:
        """Serve the client until it disconnects or the session is terminated."""
        try:
            self._greet()
            ready = True
            while True:
                if ready:
                    self._ready()
                message = self._receive()
                if message is not None:
                    ready = self._handle(message)
                    self._connection.release_room()
                else:
                    ready = False
                    self._send_notifications_when_idle()
        except (ConnectionBroken, SessionEnd):
            pass
        except PostgresError as error:
            self._end_with_error(error)
        except Exception as error:  # noqa: BLE001 - the edge of a session
            self._end_with_error(as_postgres_error(error))
        finally:
            self._leave()

    def _send_notifications_when_idle(self) -> None:
        """Send pending notifications while the session waits for the client's next message."""
        if self._session.mailbox.waiting and not self._extended.begun:
            self._send_notifications()
            self._connection.flush()

    def _end_with_error(self, error: PostgresError) -> None:
        log_sent_error(error, self._session.statement_text, self._session.settings)
        with contextlib.suppress(ConnectionBroken):
            self._send_error(error, Severity.FATAL)
            self._connection.flush()

    def _leave(self) -> None:
        session = self._session
        self._connection.release_room()
        session.portals.close_all()
        session.prepared.remove_all()
        session.node.channels.leave(session.mailbox)
        with contextlib.suppress(Exception):
            session.block.rollback()
        session.advisory.release_all()
        with contextlib.suppress(Exception):
            temporary.drop_all(session.node.engine, session.context)
        with contextlib.suppress(Exception):
            session.node.slots.release_session(session.backend.pid)
        session.node.origin_users.leave(session.backend.pid)
        self._connection.close()
        session.node.activity.leave(session.backend.pid)
        if session.speaker is not None and session.settings.flag("log_disconnections"):
            audit.disconnected(session.speaker)

    def _greet(self) -> None:
        """Send the parameter status and the cancel key, after AuthenticationOk."""
        self._session.setting_changed("client_encoding")
        self._report()
        self._connection.write(protocol.backend_key_data(self._session.backend.pid, self._session.backend.secret))

    def _report(self) -> None:
        for name, value in self._session.settings.reported():
            self._connection.write(protocol.parameter_status(name, value, self._connection.encoding))

    def _ready(self) -> None:
        """Send changed settings, notices, notifications and ReadyForQuery."""
        session = self._session
        session.settings_restored()
        self._report()
        session.send_notices()
        self._send_notifications()
        session.statement_text = ""
        session.backend.rest(_RESTING[session.block.state])
        session.show(_RESTING[session.block.state])
        self._connection.write(protocol.ready_for_query(session.block.letter))
        self._connection.flush()

    def _send_notifications(self) -> None:
        """Send pending notifications to the client, if no transaction is open."""
        while (
            self._session.block.state is BlockState.IDLE and (item := self._session.node.channels.next(self._session.mailbox)) is not None
        ):
            try:
                frame = protocol.notification(item.pid, item.channel, item.payload, self._connection.encoding)
            except PostgresError as untranslatable:
                frame = protocol.error_response(untranslatable)
            self._connection.write(frame)

    def _receive(self) -> FrontendMessage | None:
        if self._session.interrupts.terminated:
            self._session.interrupts.check()
        limit, error = self._idle_limit()
        self._connection.interrupted = False
        self._connection.longest_statement = self._session.settings.integer("max_statement_size") << 10
        message = self._connection.poll(limit)
        if message is None and not self._connection.interrupted and error is not None:
            raise error
        if message is None and self._session.interrupts.terminated:
            self._session.interrupts.check()
        return message

    def _idle_limit(self) -> tuple[float | None, PostgresError | None]:
        if self._session.block.state is BlockState.IDLE:
            wait = self._session.settings.milliseconds("idle_session_timeout")
            error = PostgresError("57P05", "terminating connection due to idle-session timeout", severity=Severity.FATAL)
        else:
            wait = self._session.settings.milliseconds("idle_in_transaction_session_timeout")
            error = PostgresError("25P03", "terminating connection due to idle-in-transaction timeout", severity=Severity.FATAL)
        return (wait / 1000, error) if wait else (None, None)

    def _handle(self, message: FrontendMessage) -> bool:
        """Process one message. Return whether ReadyForQuery is due."""
        kind = message.kind
        if kind == "X":
            raise SessionEnd
        if kind in "dcf":
            return False  # belongs to a COPY that has already ended
        if kind == "p":
            raise PostgresError("08P01", f"invalid frontend message type {ord(kind)}", severity=Severity.FATAL)
        if self._skipping and kind != "S":
            return False
        if kind == "Q":
            self._guard(lambda: self._simple.run(message.whole()))
            return True
        if kind == "F":
            self._guard(self._function_call)
            return True
        if kind == "S":
            self._skipping = False
            self._guard(self._extended.sync)
            return True
        if not self._guard(lambda: self._extended.message(kind, message.whole())):
            self._skipping = True
            self._connection.flush()
        return False

    def _function_call(self) -> None:
        raise PostgresError("0A000", "function calls by the fast path are not supported")

    def _guard(self, work: Callable[[], None]) -> bool:
        """Run `work`. If it fails, send the error to the client and let the transaction fail. Return whether it succeeded."""
        try:
            with self._client_watched(), self._session.interrupts.statement(self._session.settings.milliseconds("statement_timeout")):
                self._interruptible(work)
            return True
        except (ConnectionBroken, SessionEnd):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of a statement
            self._fail(error)
            return False

    @contextlib.contextmanager
    def _client_watched(self) -> Iterator[None]:
        """Let `ClientWatch` end the session if its client disconnects inside the context. A walsender detects that itself."""
        interval = self._session.settings.milliseconds("client_connection_check_interval") if self._session.walsender is None else 0
        self._session.backend.client_check_due = time.monotonic() + interval / 1000 if interval else None
        try:
            yield
        finally:
            self._session.backend.client_check_due = None

    def _interruptible(self, work: Callable[[], None]) -> None:
        """Run `work`. If it fails after a cancel request, raise the cancel error instead of the error that DuckDB or Spark reports."""
        try:
            with interruption.watched(self._session.interrupts.check):
                work()
        except (ConnectionBroken, SessionEnd):
            raise
        except Exception as error:
            cancel_error = self._session.interrupts.pending()
            if cancel_error is None or (isinstance(error, PostgresError) and error.message == cancel_error.message):
                raise
            raise cancel_error from error

    def _fail(self, error: Exception) -> None:
        """Report an error to the client and the log, and let the transaction fail. A FATAL error ends the session."""
        session = self._session
        reported = as_postgres_error(error)
        session.node.engine.note_unreadable(reported)
        try:
            session.block.fail()
        except Exception as second:  # noqa: BLE001 - the first error is the one to report
            _log.warning("rollback failed", exc_info=second)
        session.node.slots.error_in_session(session.backend.pid)
        session.parameters = ()
        session.send_notices()
        log_sent_error(reported, session.statement_text, session.settings)
        if reported.severity in (Severity.FATAL, Severity.PANIC):
            self._send_error(reported)
            self._connection.flush()
            raise SessionEnd
        self._send_error(reported, Severity.ERROR)

    def _send_error(self, error: PostgresError, severity: Severity | None = None) -> None:
        """Send ErrorResponse. If the client's encoding cannot represent the error, report that instead."""
        try:
            frame = protocol.error_response(error, severity=severity, encoding=self._connection.encoding)
        except PostgresError as untranslatable:
            frame = protocol.error_response(untranslatable, severity=severity)
        self._connection.write(frame)
