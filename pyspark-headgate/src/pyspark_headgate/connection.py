"""A connection to a node: its positions, its slots, the ranges of a table's changes, and the changes as Arrow.

Used by the driver for planning and by tasks for reading. Nothing here depends on Spark. `postgresql` has the same for a PostgreSQL server.
"""

from __future__ import annotations

import io
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, LiteralString, Self

import psycopg
import pyarrow as pa
from psycopg import sql

from headgate.types.copy_file import CopyFile
from pyspark_headgate.options import SourceOptions, lsn_text, parse_lsn

PATIENCE = 60.0
"""The seconds to wait for a slot that another process still uses, such as a task that was killed."""
MARGIN = timedelta(seconds=1)
"""How long before its commit enters the log a transaction of PostgreSQL may read the clock for its commit time."""
LEAST_ROWS = 10_000
"""The number of changes below which a separate task is not worthwhile."""


@dataclass(frozen=True)
class Range:
    """Changes that commit in (start, end], or, without a start, the table as of `end`.

    `snapshot`: the exported snapshot of a PostgreSQL server in which the table is read. A node does not need one.
    """

    start: int | None
    end: int
    snapshot: str = ""


@dataclass(frozen=True)
class SlotState:
    """A replication slot: its position, and whether it has been invalidated."""

    position: int
    is_lost: bool


class ServerConnection:
    """A connection to a server with logical replication slots. A context manager; each statement is a transaction of its own."""

    def __init__(self, url: str, connection: psycopg.Connection[Any] | None = None) -> None:
        self.url = url
        self._connection = connection or _connected(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _one(self, query: LiteralString, *values: object) -> Any:
        return self._connection.execute(query, values).fetchone()

    @property
    def is_node(self) -> bool:
        """Whether the server is a node."""
        return "headgate" in (self._connection.info.parameter_status("server_version") or "")

    def current(self) -> int:
        """Return the end of the server's log."""
        return parse_lsn(self._one("SELECT pg_current_wal_flush_lsn()::text")[0], "")

    def slot(self, name: str) -> SlotState | None:
        """Return the state of a slot, None if it does not exist."""
        query = "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s"
        row = self._one(query, name)
        return None if row is None else SlotState(parse_lsn(row[0], ""), row[1] == "lost")

    def ensured_slot(self, name: str) -> SlotState:
        """Return the state of a slot. Create it at the end of the log if it does not exist. Raise RuntimeError if it is lost."""
        slot = self.slot(name)
        if slot is None:
            row = self._one("SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", name)
            slot = SlotState(parse_lsn(row[0], ""), is_lost=False)
        if slot.is_lost:
            raise lost(name)
        return slot

    def advance(self, name: str, position: int) -> None:
        """Move a slot forward to a position; it never goes back."""
        slot = self.slot(name)
        if slot is None or slot.is_lost:
            raise lost(name)
        if position > slot.position:
            self._when_free("SELECT pg_replication_slot_advance(%s, %s)", name, lsn_text(position))

    def drop_slot(self, name: str) -> None:
        """Drop a slot. Nothing is done without one."""
        self._when_free("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", name)

    def _when_free(self, query: LiteralString, *values: object) -> None:
        """Execute a statement about a slot. A walsender of PostgreSQL uses its slot for a moment after its client has gone."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._one(query, *values)
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return


def _connected(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor)


def lost(slot: str) -> RuntimeError:
    """Return the error for a slot that no longer keeps the log that the query needs."""
    return RuntimeError(
        f'replication slot "{slot}" is lost: the server no longer has all changes since the last micro-batch.'
        " Drop it with pyspark_headgate.drop_slot, and start the query with a new checkpoint."
    )


class NodeConnection(ServerConnection):
    """A connection to a node."""

    def ranges(self, options: SourceOptions, whole: Range, rows: int, first: int | None = None) -> list[tuple[Range, int, bool]]:
        """Return ranges of about `rows` changes, cut at transactions: each with its changes, and whether its columns are new there.

        `first`: how many ranges to return; the node does not read its log behind them. None: all.
        """
        assert whole.start is not None
        if whole.end <= whole.start:
            return []
        query = "SELECT from_lsn::text, to_lsn::text, changes, altered FROM headgate.change_ranges(%s, %s, %s, %s, %s, %s)"
        values = (options.publication, options.table, lsn_text(whole.start), lsn_text(whole.end), rows, first)
        range_rows = self._connection.execute(query, values).fetchall()
        return [(Range(parse_lsn(start, ""), parse_lsn(end, "")), changes, altered) for start, end, changes, altered in range_rows]

    def shares(self, options: SourceOptions, whole: Range) -> list[Range]:
        """Return the ranges of the tasks of a micro-batch, with about as many changes each. No range crosses a change of the columns."""
        cuts = self.ranges(options, whole, LEAST_ROWS)
        share = -(-sum(changes for _, changes, _ in cuts) // options.tasks)
        shares: list[tuple[Range, int]] = []
        for part, changes, altered in cuts:
            if shares and not altered and shares[-1][1] + changes <= share:
                shares[-1] = Range(shares[-1][0].start, part.end), shares[-1][1] + changes
            elif changes:
                shares.append((part, changes))
        return [part for part, _ in shares]

    def check_table(self, options: SourceOptions) -> None:
        """Do nothing: a node has past states of a table."""

    def schema(self, options: SourceOptions, position: int) -> pa.Schema:
        """Return the columns of the first change after a position, or as they are now."""
        cuts = self.ranges(options, Range(position, self.current()), 1, first=1)
        part = cuts[0][0] if cuts else Range(position, position)
        with closing(self.batches(options, part)) as batches:
            return next(batches).schema

    def batches(self, options: SourceOptions, part: Range) -> Generator[pa.RecordBatch]:
        """Yield the changes of a range as they come; the first batch is empty. A connection of its own ends with the iteration."""
        query = sql.SQL("COPY (SELECT * FROM headgate.changes({}, {}, {}, {})) TO STDOUT (FORMAT arrow)").format(
            options.publication, options.table, sql.NULL if part.start is None else lsn_text(part.start), lsn_text(part.end)
        )
        # a range that is read no further ends with its connection: the node would send the rest of it otherwise
        connection = psycopg.connect(self.url, autocommit=True)
        try:
            copy = connection.cursor().copy(query)
            reader = pa.ipc.open_stream(io.BufferedReader(CopyFile(iter(copy.__enter__())), 1 << 20))
            yield pa.RecordBatch.from_pylist([], schema=reader.schema)
            yield from reader
        finally:
            connection.close()

    def wait(self, subscription: str, lsn: str, timeout: float) -> bool:
        """Wait until what the publisher of a subscription had at `lsn` is visible. Return False after `timeout` seconds."""
        return bool(self._one("SELECT headgate.wait_for_lsn(%s, %s, %s)", subscription, lsn, timeout)[0])

    def complete_until(self, table: str, timeout: float) -> datetime | None:
        """Return a time up to which nothing is missing of a table; None if none is known after `timeout` seconds."""
        moment: datetime | None = self._one("SELECT headgate.complete_until(%s, %s)", table, timeout)[0]
        return moment


def drop_slot(url: str, slot: str) -> None:
    """Drop the slot of a query that will not be started again. The server then no longer keeps its log. Do nothing without a slot."""
    with ServerConnection(url) as server:
        server.drop_slot(slot)


def wait(url: str, subscription: str, lsn: str, timeout: float = 60) -> None:
    """Wait until a node has applied what the publisher of a subscription had at `lsn`; TimeoutError after `timeout` seconds."""
    with NodeConnection(url) as node:
        if not node.wait(subscription, lsn, float(timeout)):
            raise TimeoutError(f'subscription "{subscription}" has not reached LSN {lsn} after {timeout} seconds')


def complete_until(url: str, table: str, timeout: float = 60) -> datetime:
    """Return the time up to which nothing is missing of a table of a subscription: the node has every commit of the publisher until then.

    It is the publisher's time at the call. TimeoutError if the node has not applied everything that had been committed then after
    `timeout` seconds.
    """
    with NodeConnection(url) as node:
        moment = node.complete_until(table, float(timeout))
    if moment is None:
        raise TimeoutError(f'table "{table}" does not have all changes of its publisher after {timeout} seconds')
    return moment
