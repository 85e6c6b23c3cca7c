"""A connection to a publisher through libpq (`psycopg.pq`): SQL, replication commands, COPY, the stream.

Used by CREATE, ALTER and DROP SUBSCRIPTION, by apply workers and table syncs. One thread at a time. All waiting is on the
socket and a `Waker`, so that a worker can be stopped at any place. libpq does what belongs to it: conninfo, TLS, SCRAM,
service files, .pgpass. Start-up parameters are those of a PostgreSQL 15 subscriber (postgresql-behaviour.md §5.1).

States: idle → (START_REPLICATION) streaming → (`end_streaming`, or the publisher's end) closed. Errors are PostgresError: of the
connection 08006, of the publisher with the publisher's SQLSTATE and libpq's text (``ERROR:  …``) as message, which callers put behind
their own (``could not create replication slot "s": ERROR:  …``).
"""

from __future__ import annotations

import contextlib
import re
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import psycopg
from psycopg import conninfo as conninfos
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from headgate.errors import PostgresError, Severity
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.pgoutput.write import write_reply
from headgate.sql.names import quote_ident
from headgate.walreceiver.waker import Waker

OPTIONS = " -c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3"
Row = tuple[str | None, ...]


@dataclass(frozen=True)
class System:
    """The answer to IDENTIFY_SYSTEM."""

    system_id: str
    timeline: int
    position: Lsn
    database: str | None


@dataclass(frozen=True)
class CreatedSlot:
    """The answer to CREATE_REPLICATION_SLOT."""

    name: str
    consistent_point: Lsn
    snapshot: str | None


def check_conninfo(conninfo: str) -> None:
    """Raises 42601 ``invalid connection string syntax: …`` for a string that libpq does not take."""
    try:
        pq.Conninfo.parse(conninfo.encode())
    except psycopg.Error as error:
        raise PostgresError("42601", f"invalid connection string syntax: {_chomp(str(error))}") from error


def terminated() -> PostgresError:
    """What a stopped worker raises out of a wait."""
    return PostgresError("57P01", "terminating logical replication worker due to administrator command", severity=Severity.FATAL)


class Connection:
    """See the module."""

    def __init__(self, pgconn: PGconn, waker: Waker | None) -> None:
        self._pgconn = pgconn
        self._waker = waker
        self.streaming = False

    # ---- opening and closing ----------------------------------------------------------------------------

    @classmethod
    def open(cls, conninfo: str, application_name: str, *, waker: Waker | None = None, replication: bool = True) -> Connection:
        """Connects and clears the search path.

        Args:
            conninfo: of the subscription.
            application_name: the fallback; ``application_name=`` in `conninfo` wins.
            waker: ends waits; a stopped one raises 57P01.
            replication: False gives an ordinary session (a second reader under an exported snapshot).

        Raises:
            PostgresError: 08006 ``could not connect to the publisher: …``; 42601 for a malformed conninfo.
        """
        check_conninfo(conninfo)
        given = conninfos.conninfo_to_dict(conninfo)
        parts: dict[str, str | int | None] = {"client_encoding": "UTF8", "fallback_application_name": application_name}
        parts["options"] = f"{given.get('options') or ''}{OPTIONS}"
        if replication:
            parts["replication"] = "database"
        text = conninfos.make_conninfo(conninfo, **parts)
        limit = int(given.get("connect_timeout") or 0)
        pgconn = pq.PGconn.connect_start(text.encode())
        connection = cls(pgconn, waker)
        try:
            connection._finish_connecting(time.monotonic() + max(limit, 2) if limit > 0 else None)
            pgconn.nonblocking = 1
            connection.query("SELECT pg_catalog.set_config('search_path', '', false);")
        except BaseException:
            pgconn.finish()
            raise
        return connection

    def _finish_connecting(self, deadline: float | None) -> None:
        pgconn = self._pgconn
        status: int = pq.PollingStatus.WRITING
        while True:
            if pgconn.status == pq.ConnStatus.BAD:
                raise PostgresError("08006", f"could not connect to the publisher: {self._error()}")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise PostgresError("08006", "could not connect to the publisher: timeout expired")
            if not self._wait(left, write=status == pq.PollingStatus.WRITING):
                continue
            status = pgconn.connect_poll()
            if status == pq.PollingStatus.OK:
                return
            if status == pq.PollingStatus.FAILED:
                raise PostgresError("08006", f"could not connect to the publisher: {self._error()}")

    def close(self) -> None:
        """Sends Terminate and closes; may be called twice."""
        with contextlib.suppress(psycopg.Error):
            self._pgconn.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- who is there -----------------------------------------------------------------------------------

    @property
    def server_version(self) -> int:
        """As libpq numbers it: 150018."""
        return self._pgconn.server_version

    @property
    def is_node(self) -> bool:
        """Whether the publisher is a headgate node."""
        return b"headgate" in (self._pgconn.parameter_status(b"server_version") or b"")

    def parameter(self, name: str) -> str | None:
        """A ParameterStatus of the publisher, such as TimeZone."""
        found = self._pgconn.parameter_status(name.encode())
        return None if found is None else found.decode()

    @property
    def host(self) -> str:
        """Where the connection goes."""
        return (self._pgconn.host or b"").decode()

    @property
    def backend_pid(self) -> int:
        """The publisher's process."""
        return self._pgconn.backend_pid

    # ---- commands ---------------------------------------------------------------------------------------

    def query(self, sql: str) -> list[Row]:
        """Runs SQL or a replication command by the simple protocol; the rows of the last result, in text form."""
        result = self._run(sql)
        if result is None:
            return []
        cells = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
        return [tuple(None if cell is None else cell.decode() for cell in row) for row in cells]

    def identify_system(self) -> System:
        """IDENTIFY_SYSTEM."""
        rows = _expect(self.query("IDENTIFY_SYSTEM"), 3)
        system_id, timeline, position = rows[0][:3]
        return System(str(system_id), int(timeline or 0), Lsn.parse(position or ""), rows[0][3] if len(rows[0]) > 3 else None)

    def create_slot(
        self, name: str, *, snapshot: str = "nothing", temporary: bool = False, two_phase: bool = False, failover: bool = False
    ) -> CreatedSlot:
        """CREATE_REPLICATION_SLOT … LOGICAL pgoutput; 08P01 ``could not create replication slot "…": …``."""
        words = ["CREATE_REPLICATION_SLOT", _always_quoted(name), *(["TEMPORARY"] if temporary else []), "LOGICAL pgoutput"]
        if self.server_version >= 150000:
            options = [*(["TWO_PHASE"] if two_phase else []), *(["FAILOVER"] if failover else []), f"SNAPSHOT '{snapshot}'"]
            words.append(f"({', '.join(options)})")
        else:
            words += ["TWO_PHASE"] if two_phase else []
            words.append({"nothing": "NOEXPORT_SNAPSHOT", "use": "USE_SNAPSHOT", "export": "EXPORT_SNAPSHOT"}[snapshot])
        try:
            row = _expect(self.query(" ".join(words)), 4)[0]
        except PostgresError as error:
            raise _about(error, "08P01", f'could not create replication slot "{name}"') from error
        return CreatedSlot(row[0] or name, Lsn.parse(row[1] or ""), row[2])

    def alter_slot(self, name: str, *, failover: bool) -> None:
        """ALTER_REPLICATION_SLOT (PostgreSQL 17); XX000 ``could not alter replication slot "…" on publisher: …``."""
        try:
            self.query(f"ALTER_REPLICATION_SLOT {quote_ident(name)} ( FAILOVER {'true' if failover else 'false'} );")
        except PostgresError as error:
            raise _about(error, "08P01", f'could not alter replication slot "{name}"') from error

    def drop_slot(self, name: str, *, missing_ok: bool = False) -> bool:
        """DROP_REPLICATION_SLOT … WAIT; whether there was one. 08006 ``could not drop replication slot "…" on publisher: …``."""
        try:
            self.query(f"DROP_REPLICATION_SLOT {quote_ident(name)} WAIT")
        except PostgresError as error:
            if missing_ok and error.sqlstate == "42704":
                return False
            raise _about(error, "08006", f'could not drop replication slot "{name}" on publisher') from error
        return True

    # ---- the stream -------------------------------------------------------------------------------------

    @property
    def protocol(self) -> int:
        """The newest protocol that the publisher and a PostgreSQL 15 subscriber know."""
        return 3 if self.server_version >= 150000 else 2 if self.server_version >= 140000 else 1

    def start_streaming(self, slot: str, position: Lsn, publications: Sequence[str], options: Mapping[str, str] | None = None) -> None:
        """START_REPLICATION; 08P01 ``could not start WAL streaming: …``.

        Args:
            slot: name of the slot.
            position: start here, or at the slot's confirmed position if that is later.
            publications: names.
            options: further options in PostgreSQL's order, such as ``{"streaming": "on"}``; `binary` goes last.
        """
        given = dict(options or {})
        binary = given.pop("binary", None)
        listed = ",".join(_always_quoted(name) for name in publications)
        parts = {"proto_version": str(self.protocol)} | given | {"publication_names": listed}
        if binary is not None:
            parts["binary"] = binary
        shown = ", ".join(f"{name} {literal(value)}" for name, value in parts.items())
        try:
            result = self._start(f"START_REPLICATION SLOT {_always_quoted(slot)} LOGICAL {position} ({shown})")
            if result.status != pq.ExecStatus.COPY_BOTH:
                raise self._failed(result)
        except PostgresError as error:
            raise _about(error, "08P01", "could not start WAL streaming") from error
        self.streaming = True

    def receive(self, limit: int = 8 << 20) -> list[memoryview] | None:
        """What has arrived, without waiting: contents of CopyData, at most about `limit` bytes; None at the end of the stream."""
        frames: list[memoryview] = []
        size = 0
        get = self._pgconn.get_copy_data
        try:
            while size < limit:
                length, data = get(1)
                if length > 0:
                    frames.append(data)
                    size += length
                elif length == 0:
                    if frames:
                        break
                    self._pgconn.consume_input()
                    length, data = get(1)
                    if length < 0:
                        self._end_of_stream()
                        return None
                    if length == 0:
                        break
                    frames.append(data)
                    size += length
                elif frames:
                    break
                else:
                    self._end_of_stream()
                    return None
        except psycopg.Error as error:
            if frames:
                return frames
            raise PostgresError("08006", f"could not receive data from WAL stream: {self._error(error)}") from error
        return frames

    def _end_of_stream(self) -> None:
        """Reads what follows the CopyDone, or the error that ended the stream."""
        self.streaming = False
        result = self._result()
        while result is not None:
            if result.status == pq.ExecStatus.COPY_IN:
                with contextlib.suppress(psycopg.Error):
                    self._pgconn.put_copy_end()
                    self._flush()
            elif result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                raise _about(self._failed(result), "08P01", "could not receive data from WAL stream")
            result = self._result()

    def wait(self, timeout: float | None) -> bool:
        """Waits for input; False if the waker or the timeout came first. 57P01 if the waker has been stopped."""
        return self._wait(timeout)

    def send_status(self, status: m.StatusUpdate) -> None:
        """Sends a Standby Status Update; 08006 ``could not send data to WAL stream: …``."""
        try:
            self._pgconn.put_copy_data(write_reply(status))
            self._flush()
        except psycopg.Error as error:
            raise PostgresError("08006", f"could not send data to WAL stream: {self._error(error)}") from error

    def end_streaming(self) -> None:
        """Sends CopyDone and reads the stream to its end; what still arrives is dropped."""
        try:
            self._pgconn.put_copy_end()
            self._flush()
        except psycopg.Error as error:
            raise PostgresError("08006", f"could not send end-of-streaming message to primary: {self._error(error)}") from error
        while self.streaming:
            if self.receive() is not None:
                self._wait(None)

    # ---- COPY -------------------------------------------------------------------------------------------

    def copy_out(self, sql: str, size: int = 1 << 20) -> Iterator[bytes]:
        """Runs a COPY … TO STDOUT; its data in pieces of whole CopyData messages of about `size` bytes."""
        result = self._start(sql)
        if result.status != pq.ExecStatus.COPY_OUT:
            raise self._failed(result)
        pieces: list[memoryview] = []
        held = 0
        while True:
            try:
                length, data = self._pgconn.get_copy_data(1)
                if length == 0:
                    self._wait(None)
                    self._pgconn.consume_input()
                    continue
            except psycopg.Error as error:
                raise PostgresError("08006", f"could not receive data from WAL stream: {self._error(error)}") from error
            if length < 0:
                break
            pieces.append(data)
            held += length
            if held >= size:
                yield b"".join(pieces)
                pieces, held = [], 0
        if pieces:
            yield b"".join(pieces)
        self._finish(self._result())

    # ---- inside -----------------------------------------------------------------------------------------

    def _run(self, sql: str) -> PGresult | None:
        return self._finish(self._start(sql))

    def _start(self, sql: str) -> PGresult:
        try:
            self._pgconn.send_query(sql.encode())
            self._flush()
        except psycopg.Error as error:
            raise PostgresError("08006", self._error(error)) from error
        result = self._result()
        if result is None:
            raise PostgresError("08006", "unexpected end of results from the publisher")
        return result

    def _finish(self, result: PGresult | None) -> PGresult | None:
        """Reads all results; gives the last one, raises the first error."""
        last, failed = None, None
        while result is not None:
            if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY):
                last = result
            elif failed is None:
                failed = self._failed(result)
            if self._pgconn.status == pq.ConnStatus.BAD:
                break
            result = self._result()
        if failed is not None:
            raise failed
        return last

    def _result(self) -> PGresult | None:
        try:
            while self._pgconn.is_busy():
                self._wait(None)
                self._pgconn.consume_input()
            return self._pgconn.get_result()
        except psycopg.Error as error:
            raise PostgresError("08006", self._error(error)) from error

    def _flush(self) -> None:
        while self._pgconn.flush() == 1:
            self._wait(None, write=True)
            self._pgconn.consume_input()

    def _failed(self, result: PGresult) -> PostgresError:
        """The publisher's error; its message is libpq's text, ``ERROR:  …`` with DETAIL and HINT lines."""
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        text = _chomp(result.error_message.decode(errors="replace")) or self._error()
        return PostgresError(state.decode() if state else "08006", text)

    def _error(self, error: Exception | None = None) -> str:
        text = _chomp(self._pgconn.error_message.decode(errors="replace"))
        return text or (str(error) if error is not None else "no connection to the server")

    def _wait(self, timeout: float | None, *, write: bool = False) -> bool:
        """Waits for the socket; False if the waker or the timeout came first."""
        waker = self._waker
        if waker is not None and waker.stopped:
            raise terminated()
        poll = select.poll()
        socket = self._pgconn.socket
        poll.register(socket, select.POLLIN | (select.POLLOUT if write else 0))
        if waker is not None:
            poll.register(waker.fileno(), select.POLLIN)
        ready = dict(poll.poll(None if timeout is None else max(timeout, 0) * 1000))
        if waker is not None and waker.fileno() in ready:
            waker.clear()
            if waker.stopped:
                raise terminated()
        return socket in ready


def _always_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def _expect(rows: list[Row], fields: int) -> list[Row]:
    if len(rows) != 1 or len(rows[0]) < fields:
        got = f"{len(rows)} rows, {len(rows[0]) if rows else 0} fields"
        raise PostgresError("08P01", "invalid response from primary server", detail=f"Expected 1 row and {fields} fields, got {got}.")
    return rows


def _about(error: PostgresError, sqlstate: str, text: str) -> PostgresError:
    """PostgreSQL's error around one of the publisher; a stopped worker's stays as it is."""
    return error if error.sqlstate == "57P01" and error.severity is Severity.FATAL else PostgresError(sqlstate, f"{text}: {error.message}")


def _chomp(text: str) -> str:
    return re.sub(r"\n+\Z", "", text)
