"""``headgate hook``: calls a Python function with the published changes of a node as Arrow batches, at least once.

Called by `main`. The process needs a connection to the node, not its data directory. A replication slot keeps the position, and the node's
log from there on; no stream reads it.

A round reads the log from the position of the slot up to one LSN, table by table. The LSN is chosen so that no table has more than about
`max_rows` changes and no table's columns change. After the function has returned for the last batch, the slot moves to that LSN. If the
function raises an exception, or if the process or the node ends, the round is repeated. The order of commits holds within a table.

The initial copy is protected by a slot of its own, ``<slot>_initial``. It is copied to the slot when the rows have been delivered, and then
dropped. If the process is killed before that, the next one reads the same rows again.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import io
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import TupleRow

from headgate.cli.message import err, fail
from headgate.lsn import Lsn
from headgate.types.copy_file import CopyFile

Hook = Callable[[str, pa.RecordBatch], object]
"""A function of the name of a table, as ``schema.name``, and a batch of its changes."""
LONGEST_SLOT = 63 - len("_initial")
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0
"""The seconds before a failed round is repeated: twice as many after each further failure."""
_LOCKS = 57


CONTENT_TYPE = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class HookOptions:
    """The options of the command. `start`: how a slot that does not exist begins; None: it must exist."""

    url: str
    publication: str
    slot: str
    start: str | None = None
    max_rows: int = 100_000
    interval: float = 1.0
    timeout: float = 60.0
    once: bool = False


class HookFailed(Exception):
    """The function raised an exception, which is the cause."""


def hook(target: str, options: HookOptions) -> None:
    """Deliver changes until the process is ended; with `once`, until the function has all changes that there were at the start."""
    function = HttpHook(target, options.timeout) if "://" in target else _function(target)
    delay = FIRST_DELAY
    while True:
        try:
            with contextlib.closing(_Delivery(function, options)) as delivery:
                delivery.begin()
                target_lsn = delivery.current() if options.once else None
                while target_lsn is None or delivery.position() < target_lsn:
                    delivered = delivery.round(target_lsn)
                    delay = FIRST_DELAY
                    if not delivered:
                        time.sleep(options.interval)
                return
        except HookFailed as error:
            failure = f"the hook failed for {error}: {type(error.__cause__).__name__}: {error.__cause__}"
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            fail(_primary(error))
        except psycopg.OperationalError as error:
            failure = _primary(error)
        except psycopg.Error as error:
            fail(_primary(error))
        if options.once:
            fail(failure)
        err(f"headgate: {failure}; retrying in {delay:g} s")
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY)


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip()


def _function(target: str) -> Hook:
    """Import ``module:function``, also from the working directory."""
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        fail(f'invalid hook "{target}"', "Give module:function, or the address of an HTTP server.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        function: Hook = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        fail(f'could not import hook "{target}": {error}')
    if not callable(function):
        fail(f'hook "{target}" is not a function')
    return function


class _Delivery:
    """A session with the node that delivers changes. Another process with the same slot waits until the session ends."""

    def __init__(self, function: Hook, options: HookOptions) -> None:
        self._function, self._options = function, options
        self._connection: psycopg.Connection = psycopg.connect(options.url, autocommit=True, cursor_factory=psycopg.ClientCursor)
        if "headgate" not in (self._connection.info.parameter_status("server_version") or ""):
            self.close()
            fail("the server is not a headgate node", "A node can subscribe to PostgreSQL and publish its tables.")

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _rows(self, query: str, *values: object) -> list[TupleRow]:
        return self._connection.execute(query, values).fetchall()

    def begin(self) -> None:
        """Wait for other processes with the same slot. Create the slot if it does not exist, and deliver the initial copy."""
        slot, initial = self._options.slot, f"{self._options.slot}_initial"
        self._rows("SELECT pg_advisory_lock(%s, %s)", _LOCKS, zlib.crc32(slot.encode()) - (1 << 31))
        self.tables()
        if self._slot(slot) is None:
            if self._options.start is None:
                fail(f'replication slot "{slot}" does not exist', "Option --start creates it: now, or snapshot for the tables' rows first.")
            if self._options.start == "snapshot":
                self._copy(initial)
                self._rows("SELECT pg_copy_logical_replication_slot(%s, %s)", initial, slot)
            else:
                self._rows("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
        self._rows("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", initial)

    def _copy(self, initial: str) -> None:
        """Deliver the rows of all tables as of the position of a slot, which is created if it does not exist."""
        if self._slot(initial) is None:
            self._rows("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", initial)
        position = self._slot(initial)
        assert position is not None
        for table in self.tables():
            self._deliver(table, None, position)

    def _slot(self, name: str) -> Lsn | None:
        rows = self._rows("SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s", name)
        if rows and rows[0][1] == "lost":
            fail(f'replication slot "{name}" is lost', "Drop it, and start the hook with option --start.")
        return Lsn.parse(rows[0][0]) if rows else None

    def current(self) -> Lsn:
        """Return the end of the node's log."""
        return Lsn.parse(self._rows("SELECT pg_current_wal_lsn()::text")[0][0])

    def position(self) -> Lsn:
        """Return the LSN up to which everything has been delivered."""
        position = self._slot(self._options.slot)
        if position is None:
            fail(f'replication slot "{self._options.slot}" does not exist')
        return position

    def tables(self) -> list[tuple[str, str]]:
        """Return the published tables. Fail if the publication does not exist: the slot must not move then."""
        publication = self._options.publication
        if not self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", publication):
            fail(f'publication "{publication}" does not exist')
        query = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s ORDER BY 1, 2"
        return self._rows(query, publication)

    def round(self, target: Lsn | None) -> bool:
        """Deliver the next changes and move the slot. Return False if there are none up to `target`, or up to the end of the log."""
        position, end = self.position(), target or self.current()
        if end <= position:
            return False
        changed = []
        query = "SELECT to_lsn::text, changes FROM headgate.change_ranges(%s, %s, %s, %s, %s, 1)"
        for table in self.tables():
            for to_lsn, changes in self._rows(
                query, self._options.publication, _quote(table), str(position), str(end), self._options.max_rows
            ):
                end = min(end, Lsn.parse(to_lsn))
                changed += [table] if changes else []
        for table in changed:
            self._deliver(table, position, end)
        self._rows("SELECT pg_replication_slot_advance(%s, %s)", self._options.slot, str(end))
        return True

    def _deliver(self, table: tuple[str, str], start: Lsn | None, end: Lsn) -> None:
        name = ".".join(table)
        with contextlib.suppress(psycopg.errors.UndefinedObject):  # the table is published only after this range
            for batch in self._batches(table, start, end):
                try:
                    self._function(name, batch)
                except Exception as error:
                    raise HookFailed(f'table "{name}"') from error

    def _batches(self, table: tuple[str, str], start: Lsn | None, end: Lsn) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a table in (start, end], or without a start its rows as of `end`. It uses a separate connection."""
        query = sql.SQL("COPY (SELECT * FROM headgate.changes({}, {}, {}, {})) TO STDOUT (FORMAT arrow)").format(
            self._options.publication, _quote(table), sql.NULL if start is None else str(start), str(end)
        )
        connection = psycopg.connect(self._options.url, autocommit=True)
        try:
            copy = connection.cursor().copy(query)
            yield from (
                batch for batch in pa.ipc.open_stream(io.BufferedReader(CopyFile(iter(copy.__enter__())), 1 << 20)) if batch.num_rows
            )
        finally:
            connection.close()


def _quote(table: tuple[str, str]) -> str:
    return sql.Identifier(*table).as_string()


class HttpHook:
    """A hook that sends batches to an address. Any answer but 2xx is an exception, redirections included."""

    def __init__(self, address: str, timeout: float) -> None:
        parts = urlsplit(address)
        try:
            port = parts.port
        except ValueError:
            fail("invalid port in the address of the HTTP server")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            fail("invalid address of the HTTP server", "Give http://host/path or https://host/path, without a user name.")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._timeout = parts.hostname, port, timeout
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def __call__(self, table: str, batch: pa.RecordBatch) -> None:
        """Send a batch. Raise an exception unless the server has accepted it."""
        headers = {"Content-Type": CONTENT_TYPE, "Headgate-Table": quote(table)}
        if authorization := os.environ.get("HEADGATE_HOOK_AUTHORIZATION"):
            headers["Authorization"] = authorization
        body = pa.BufferOutputStream()
        with pa.ipc.new_stream(body, batch.schema) as stream:
            stream.write_batch(batch)
        with contextlib.closing(self._kind(self._host, self._port, timeout=self._timeout)) as connection:
            connection.request("POST", self._path, body.getvalue().to_pybytes(), headers)
            answer = connection.getresponse()
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"the HTTP server answered with status {answer.status}")
