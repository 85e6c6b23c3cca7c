"""A session with a publisher through libpq (`psycopg.pq`): connecting, SQL, and all waits.

`connection.PublisherConnection` adds the replication protocol. One thread uses it at a time. All waits are on the socket and a `Waker`, or
call a function periodically, so that a worker can be stopped anywhere. libpq handles conninfo, TLS, SCRAM, service files and .pgpass. The
startup parameters are those of a PostgreSQL 15 subscriber (libpqrcv_connect in libpqwalreceiver.c), and further settings that affect text
output (`TEXT_SETTINGS`).

Errors are PostgresError: 08006 for the session, `answer.PublisherError` for errors of the publisher.
"""

from __future__ import annotations

import contextlib
import re
import select
import time
from collections.abc import Callable
from typing import Self

import psycopg
from psycopg import conninfo as conninfos
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from headgate.errors import PostgresError, Severity
from headgate.pgoutput.text_settings import TEXT_SETTINGS
from headgate.walreceiver import answer
from headgate.walreceiver.waker import Waker

OPTIONS = "".join(f" -c {name}={value}" for name, value in TEXT_SETTINGS.items())
Row = tuple[str | None, ...]
CHECK_SECONDS = 0.5


def check_conninfo(conninfo: str) -> None:
    """Raise 42601 ``invalid connection string syntax: …`` for a string that libpq rejects."""
    try:
        pq.Conninfo.parse(conninfo.encode())
    except psycopg.Error as error:
        # libpq's text ends with a line feed, which PostgreSQL keeps here
        raise PostgresError("42601", f"invalid connection string syntax: {_chomp(str(error))}\n") from error


def terminated() -> PostgresError:
    """Return the error that a stopped worker raises from a wait."""
    return PostgresError("57P01", "terminating logical replication worker due to administrator command", severity=Severity.FATAL)


class Link:
    """A session with a publisher, as the module describes."""

    def __init__(self, pgconn: PGconn, waker: Waker | None, check: Callable[[], None] | None = None) -> None:
        self._pgconn = pgconn
        self._waker = waker
        self._check = check

    # ---- opening and closing ----------------------------------------------------------------------------

    @classmethod
    def open(
        cls, conninfo: str, application_name: str, *, waker: Waker | None = None, check: Callable[[], None] | None = None,
        replication: bool = True,
    ) -> Self:  # fmt: skip
        """Connect and clear the search path.

        Args:
            conninfo: of the subscription.
            application_name: the fallback; ``application_name=`` in `conninfo` wins.
            waker: ends waits; a stopped one raises 57P01.
            check: called every CHECK_SECONDS during waits, and may raise to end them; for callers that have no waker.
            replication: False gives an ordinary session (a second reader under an exported snapshot).

        Raises:
            PostgresError: 08006 ``could not connect to the publisher: …``; 42601 for a malformed conninfo.
        """
        check_conninfo(conninfo)
        conninfo_options = conninfos.conninfo_to_dict(conninfo)
        parts: dict[str, str | int | None] = {"client_encoding": "UTF8", "fallback_application_name": application_name}
        parts["options"] = f"{conninfo_options.get('options') or ''}{OPTIONS}"
        if replication:
            parts["replication"] = "database"
        text = conninfos.make_conninfo(conninfo, **parts)
        limit = _connect_timeout(conninfo_options.get("connect_timeout"))
        pgconn = pq.PGconn.connect_start(text.encode())
        link = cls(pgconn, waker, check)
        try:
            link._finish_connecting(None if limit is None else time.monotonic() + limit)
            pgconn.nonblocking = 1
            link.query("SELECT pg_catalog.set_config('search_path', '', false);")
        except BaseException:
            pgconn.finish()
            raise
        return link

    def _finish_connecting(self, deadline: float | None) -> None:
        pgconn = self._pgconn
        status: int = pq.PollingStatus.WRITING
        while True:
            if pgconn.status == pq.ConnStatus.BAD:
                raise PostgresError("08006", f"could not connect to the publisher: {self._error()}")
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise PostgresError("08006", "could not connect to the publisher: timeout expired")
            if not self._wait(remaining, write=status == pq.PollingStatus.WRITING):
                continue
            status = pgconn.connect_poll()
            if status == pq.PollingStatus.OK:
                return
            if status == pq.PollingStatus.FAILED:
                raise PostgresError("08006", f"could not connect to the publisher: {self._error()}")

    def wait_with(self, waker: Waker) -> None:
        """Let another waker end the waits from now on, because another thread uses the connection."""
        self._waker = waker

    def close(self) -> None:
        """Send Terminate and close the connection. It may be called twice."""
        with contextlib.suppress(psycopg.Error):
            self._pgconn.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the publisher ----------------------------------------------------------------------------------

    @property
    def server_version(self) -> int:
        """The publisher's version in libpq's format: 150018."""
        return self._pgconn.server_version

    @property
    def is_node(self) -> bool:
        return b"headgate" in (self._pgconn.parameter_status(b"server_version") or b"")

    def parameter(self, name: str) -> str | None:
        """Return a ParameterStatus of the publisher, such as TimeZone, or None."""
        value = self._pgconn.parameter_status(name.encode())
        return None if value is None else answer.text(value)

    @property
    def host(self) -> str:
        return (self._pgconn.host or b"").decode(errors="replace")

    # ---- SQL --------------------------------------------------------------------------------------------

    def query(self, sql: str, fields: int | None = None) -> list[Row]:
        """Run SQL or a replication command with the simple query protocol. Return the rows of the last result in text format.

        Raise 08P01 if rows do not have `fields` fields, 22021 for invalid text, 54000 for more than `answer.LARGEST` bytes.
        """
        self._send(sql)
        self._pgconn.set_single_row_mode()
        rows: list[Row] = []
        size, complete, failed = 0, False, None
        while (result := self._result()) is not None:
            match result.status:
                case pq.ExecStatus.SINGLE_TUPLE:
                    cells = [result.get_value(0, column) for column in range(result.nfields)]
                    size += answer.ROW + sum(len(cell) for cell in cells if cell is not None)
                    if size > answer.LARGEST:
                        self._pgconn.finish()
                        raise PostgresError("54000", f"answer of the publisher is larger than {answer.LARGEST >> 20} MB")
                    if failed is None:
                        failed = self._add_row(rows, cells, fields)
                case pq.ExecStatus.TUPLES_OK | pq.ExecStatus.COMMAND_OK | pq.ExecStatus.EMPTY_QUERY:
                    complete = True
                case _:
                    failed = failed or self._not_rows(result)
            if self._pgconn.status == pq.ConnStatus.BAD:
                break
        if failed is None and not complete:
            failed = PostgresError("08P01", "invalid response from publisher", detail="It ended without a CommandComplete.")
        if failed is not None:
            raise failed
        return rows

    @staticmethod
    def _add_row(rows: list[Row], cells: list[bytes | None], fields: int | None) -> PostgresError | None:
        """Add a row. Return the error if it is invalid: the rest of the answer must still be read."""
        try:
            answer.check_fields(len(cells), fields)
            rows.append(tuple(None if cell is None else answer.text(cell) for cell in cells))
        except PostgresError as error:
            return error
        return None

    # ---- inside -----------------------------------------------------------------------------------------

    def _send(self, sql: str) -> None:
        try:
            self._pgconn.send_query(sql.encode())
            self._flush()
        except psycopg.Error as error:
            raise PostgresError("08006", self._error(error)) from error

    def _start(self, sql: str) -> PGresult:
        self._send(sql)
        result = self._result()
        if result is None:
            raise PostgresError("08006", "unexpected end of results from the publisher")
        return result

    def _finish(self, result: PGresult | None) -> PGresult | None:
        """Read all results. Return the last one, or raise the first error."""
        last, failed = None, None
        while result is not None:
            if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY):
                last = result
            else:
                failed = failed or self._not_rows(result)
            if self._pgconn.status == pq.ConnStatus.BAD:
                break
            result = self._result()
        if failed is not None:
            raise failed
        return last

    def _not_rows(self, result: PGresult) -> PostgresError:
        """Return the publisher's error. Raise 08P01 for an unexpected COPY, which would otherwise be its answer forever."""
        if result.status in (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH):
            self._pgconn.finish()
            raise PostgresError("08P01", "invalid response from publisher", detail="It began a COPY that was not asked for.")
        return self._failed(result)

    def _forget_notifications(self) -> None:
        """Discard notifications, which libpq would otherwise store forever."""
        while self._pgconn.notifies() is not None:
            pass

    def _result(self) -> PGresult | None:
        try:
            while self._pgconn.is_busy():
                self._wait(None)
                self._pgconn.consume_input()
                self._forget_notifications()
            return self._pgconn.get_result()
        except psycopg.Error as error:
            raise PostgresError("08006", self._error(error)) from error

    def _flush(self) -> None:
        while self._pgconn.flush() == 1:
            self._wait(None, write=True)
            self._pgconn.consume_input()

    def _failed(self, result: PGresult) -> PostgresError:
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        text = _chomp(result.error_message.decode(errors="replace")) or self._error()
        return answer.PublisherError(answer.sqlstate(state), text)

    def _error(self, error: Exception | None = None) -> str:
        text = _chomp(self._pgconn.error_message.decode(errors="replace"))
        return text or (str(error) if error is not None else "no connection to the server")

    def _wait(self, timeout: float | None, *, write: bool = False) -> bool:
        """Wait for the socket. Return False if the waker or the timeout came first."""
        self._check_stopped()
        waker = self._waker
        poll = select.poll()
        socket = self._pgconn.socket
        poll.register(socket, select.POLLIN | (select.POLLOUT if write else 0))
        if waker is not None:
            poll.register(waker.fileno(), select.POLLIN)
        ready = self._poll(poll, timeout)
        if waker is not None and waker.fileno() in ready:
            waker.clear()
            self._check_stopped()
        return socket in ready

    def _poll(self, poll: select.poll, timeout: float | None) -> dict[int, int]:
        """Return the events of the next ready descriptors, none after the timeout."""
        if self._check is None:
            return dict(poll.poll(None if timeout is None else max(timeout, 0) * 1000))
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._check()
            seconds = CHECK_SECONDS if deadline is None else min(CHECK_SECONDS, max(deadline - time.monotonic(), 0))
            events = poll.poll(seconds * 1000)
            if events or (deadline is not None and time.monotonic() >= deadline):
                return dict(events)

    def _check_stopped(self) -> None:
        """Raise 57P01 if the waker has been stopped, in loops that may always find input and never wait."""
        if self._waker is not None and self._waker.stopped:
            raise terminated()


def _connect_timeout(value: str | int | None) -> int | None:
    """Return the seconds after which libpq gives up connecting, or None for no limit. Raise 08006 for a value that libpq rejects."""
    text = str(value or 0).strip()
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -(2**31) <= int(text) < 2**31:
        problem = f'invalid integer value "{value}" for connection option "connect_timeout"'
        raise PostgresError("08006", f"could not connect to the publisher: {problem}")
    return max(int(text), 2) if int(text) > 0 else None


def _chomp(text: str) -> str:
    return re.sub(r"\n+\Z", "", text)
