"""A connection to a publisher: replication commands, the stream and COPY, over a `link`.

Used by CREATE, ALTER and DROP SUBSCRIPTION, by apply workers and table syncs. One thread uses it at a time; a stopped `Waker` ends all
waits.

States: idle → (START_REPLICATION) streaming → (the publisher's end) closed. Errors are PostgresError, as in `link`: 08006 for the
connection, `PublisherError` for errors of the publisher. Callers append its text to their own
(``could not create replication slot "s": ERROR:  …``) with ``raise … from``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from headgate.errors import PostgresError, Severity
from headgate.failpoint import Step, step
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import write_reply
from headgate.sql.names import quote_ident
from headgate.walreceiver import answer
from headgate.walreceiver.link import Link, Row
from headgate.walreceiver.waker import Waker


@dataclass(frozen=True)
class System:
    """The result of IDENTIFY_SYSTEM."""

    system_id: str
    timeline: int
    position: Lsn
    database: str | None


@dataclass(frozen=True)
class CreatedSlot:
    """The result of CREATE_REPLICATION_SLOT."""

    name: str
    consistent_point: Lsn
    snapshot: str | None


class PublisherConnection(Link):
    """A replication connection to a publisher."""

    def __init__(self, pgconn: PGconn, waker: Waker | None, check: Callable[[], None] | None = None) -> None:
        super().__init__(pgconn, waker, check)
        self.streaming = False
        self._failure: psycopg.Error | None = None
        """The error that came after the last frames that `receive` has returned. The next call raises it."""
        self.arriving = (0, 0)
        """The messages and bytes of the piece of a COPY that is being received."""
        self.heard_at = 0.0
        """When data of a COPY last arrived (`time.monotonic`)."""

    # ---- commands ---------------------------------------------------------------------------------------

    def identify_system(self) -> System:
        rows = _expect(self.query("IDENTIFY_SYSTEM"), 3)
        system_id, timeline, position = rows[0][:3]
        return System(str(system_id), answer.number(timeline), Lsn.parse(position or ""), rows[0][3] if len(rows[0]) > 3 else None)

    def create_slot(
        self, name: str, *, snapshot: str = "nothing", temporary: bool = False, two_phase: bool = False, failover: bool = False
    ) -> CreatedSlot:
        """Run CREATE_REPLICATION_SLOT … LOGICAL pgoutput. Raise 08P01 ``could not create replication slot "…": …``."""
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
            raise prefixed(error, "08P01", f'could not create replication slot "{name}"') from error
        return CreatedSlot(row[0] or name, Lsn.parse(row[1] or ""), row[2])

    def alter_slot(self, name: str, *, failover: bool) -> None:
        """Run ALTER_REPLICATION_SLOT (PostgreSQL 17). Raise 08P01 ``could not alter replication slot "…": …``."""
        try:
            self.query(f"ALTER_REPLICATION_SLOT {quote_ident(name)} ( FAILOVER {'true' if failover else 'false'} );")
        except PostgresError as error:
            raise prefixed(error, "08P01", f'could not alter replication slot "{name}"') from error

    def drop_slot(self, name: str, *, missing_ok: bool = False) -> bool:
        """Run DROP_REPLICATION_SLOT … WAIT. Return whether the slot existed. Raise 08006 ``could not drop replication slot …``."""
        try:
            self.query(f"DROP_REPLICATION_SLOT {quote_ident(name)} WAIT")
        except PostgresError as error:
            if missing_ok and error.sqlstate == "42704":
                return False
            raise prefixed(error, "08006", f'could not drop replication slot "{name}" on publisher') from error
        return True

    # ---- the stream -------------------------------------------------------------------------------------

    @property
    def protocol(self) -> int:
        """The latest protocol version that both the publisher and a PostgreSQL 15 subscriber support."""
        return 3 if self.server_version >= 150000 else 2 if self.server_version >= 140000 else 1

    def start_streaming(self, slot: str, position: Lsn, publications: Sequence[str], options: Mapping[str, str] | None = None) -> None:
        """Run START_REPLICATION. Raise 08P01 ``could not start WAL streaming: …``.

        Args:
            slot: name of the slot.
            position: start here, or at the slot's confirmed position if that is later.
            publications: names.
            options: further options in PostgreSQL's order, such as ``{"streaming": "on"}``; `binary` is sent last.
        """
        further_options = dict(options or {})
        binary = further_options.pop("binary", None)
        listed = ",".join(_always_quoted(name) for name in publications)
        parts = {"proto_version": str(self.protocol)} | further_options | {"publication_names": listed}
        if binary is not None:
            parts["binary"] = binary
        # not as an SQL literal: in the replication grammar a backslash is an ordinary character
        shown = ", ".join(f"{name} {_plain_literal(value)}" for name, value in parts.items())
        try:
            result = self._start(f"START_REPLICATION SLOT {_always_quoted(slot)} LOGICAL {position} ({shown})")
            if result.status != pq.ExecStatus.COPY_BOTH:
                raise self._failed(result)
        except PostgresError as error:
            raise prefixed(error, "08P01", "could not start WAL streaming") from error
        self.streaming = True

    def receive(self, limit: int = 256 << 10) -> list[bytes] | None:
        """Return the contents of the CopyData messages that have arrived, about `limit` bytes at most, or None at the end of the stream.

        It does not wait. Raise 57P01 if the waker has been stopped: with a publisher that sends without pause, the worker might never wait.
        """
        self._check_stopped()
        if not self.streaming:
            return None
        frames: list[bytes] = []  # not memoryviews: Python's garbage collector would visit them, and all other objects, repeatedly
        size = 0
        get = self._pgconn.get_copy_data
        try:
            if self._failure is not None:
                raise self._failure
            while size < limit:
                length, data = get(1)
                if length == 0:
                    self._pgconn.consume_input()  # at most some 32 KB: libpq's buffer
                    self._forget_notifications()
                    length, data = get(1)
                if length > 0:
                    frames.append(bytes(data))
                    size += length
                elif length == 0 or frames:
                    break
                else:
                    self._end_of_stream()
                    return None
        except psycopg.Error as error:
            if not frames:
                self._raise_end("could not receive data from WAL stream", error)
                return None
            self._failure = error
        return frames

    def _raise_end(self, about: str, error: psycopg.Error) -> None:
        """Raise the error with which the publisher ended the stream, or 08006 with libpq's text if the stream has not ended.

        If the stream has ended without an error, return. libpq refuses all COPY data after the publisher's error has arrived, and its own
        text hides that error.
        """
        text = f"{about}: {self._error(error)}"
        length = -1
        with contextlib.suppress(psycopg.Error):
            while (length := self._pgconn.get_copy_data(1)[0]) > 0:
                pass
        if length < 0:
            self._end_of_stream()
        if self.streaming or self._pgconn.status == pq.ConnStatus.BAD:
            raise PostgresError("08006", text) from error

    def _end_of_stream(self) -> None:
        """Read the results after CopyDone, or raise the error that ended the stream."""
        self.streaming = False
        result = self._result()
        while result is not None:
            if result.status == pq.ExecStatus.COPY_IN:
                with contextlib.suppress(psycopg.Error):
                    self._pgconn.put_copy_end()
                    self._flush()
            elif result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                raise prefixed(self._failed(result), "08P01", "could not receive data from WAL stream")
            result = self._result()

    def wait(self, timeout: float | None) -> bool:
        """Wait for input. Return False if the waker or the timeout came first. Raise 57P01 if the waker has been stopped."""
        return self._wait(timeout)

    def send_status(self, status: m.StatusUpdate) -> None:
        """Send a Standby Status Update.

        Raise the publisher's error if it has ended the stream with one, otherwise 08006 ``could not send data to WAL stream: …``.
        """
        try:
            with step(Step.FEEDBACK):
                self._pgconn.put_copy_data(write_reply(status))
                self._flush()
        except psycopg.Error as error:
            self._raise_end("could not send data to WAL stream", error)

    # ---- COPY -------------------------------------------------------------------------------------------

    def copy_out(self, sql: str, size: int = 1 << 20) -> Iterator[bytes]:
        """Run COPY … TO STDOUT. Yield its data in pieces of whole CopyData messages of about `size` bytes."""
        result = self._start(sql)
        if result.status != pq.ExecStatus.COPY_OUT:
            raise self._failed(result)
        pieces: list[bytes] = []
        held = 0
        while True:
            try:
                length, data = self._pgconn.get_copy_data(1)
                if length == 0:
                    self.arriving = (len(pieces), held)
                    self._wait(None)
                    self._pgconn.consume_input()
                    self.heard_at = time.monotonic()
                    continue
            except psycopg.Error as error:
                raise PostgresError("08006", f"could not receive data from WAL stream: {self._error(error)}") from error
            if length < 0:
                break
            pieces.append(bytes(data))  # not memoryviews, as in `receive`
            held += length
            if held >= size:
                self._check_stopped()
                self.arriving = (0, 0)
                yield b"".join(pieces)
                pieces, held = [], 0
        self.arriving = (0, 0)
        if pieces:
            yield b"".join(pieces)
        if self._finish(self._result()) is None:
            raise PostgresError("08P01", "invalid response from publisher", detail="A COPY ended without its CommandComplete.")


def _always_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(text: str) -> str:
    """Return a string literal that does not depend on standard_conforming_strings."""
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def _expect(rows: list[Row], fields: int) -> list[Row]:
    if len(rows) != 1 or len(rows[0]) < fields:
        actual = f"{len(rows)} rows, {len(rows[0]) if rows else 0} fields"
        raise PostgresError("08P01", "invalid response from primary server", detail=f"Expected 1 row and {fields} fields, got {actual}.")
    return rows


def prefixed(error: PostgresError, sqlstate: str, text: str) -> PostgresError:
    """Wrap an error of the publisher in PostgreSQL's error text. The error of a stopped worker is returned unchanged."""
    return error if error.sqlstate == "57P01" and error.severity is Severity.FATAL else PostgresError(sqlstate, f"{text}: {error.message}")
