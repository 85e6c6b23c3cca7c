"""The publisher at one position of its log: a temporary slot, a session under its snapshot, and the later changes.

    opened      the temporary slot is created at `lsn`, the reader has imported its snapshot: repeated reads return the same rows
    streaming   `changes` has started the slot's stream up to a position, once; the reader continues
    closed      the publisher drops slot and snapshot with the connections

The snapshot is held for at most `most` seconds: timeouts at the publisher end a reader that runs a query, or is idle, for longer. Called by
`verification`. The reader's transaction is READ ONLY. The stream requests neither streamed nor prepared transactions, because transactions
that are not committed at the publisher are not compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa

from headgate.catalog.replication.subscription import Subscription
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import decode
from headgate.pgoutput.message import Relation
from headgate.verify.digest import DIGESTS, ROWS, VALUES, Compared, digests_query, rows_query, values_query
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.link import Row
from headgate.walreceiver.progress import StreamProgress
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.receiver import Limits, Receiver
from headgate.walreceiver.spool import Spool
from headgate.walreceiver.waker import Waker

BEGIN = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT {}"
PIECE = 8 << 20
"""Number of bytes of the stream that are decoded at a time."""


def taken(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Convert a result of the publisher to a table. Raise 08P01 if it is not as requested: a publisher may send anything."""
    try:
        columns = [pa.array([row[index] for row in rows], pa.string()).cast(field.type) for index, field in enumerate(schema)]
    except pa.ArrowInvalid as error:
        raise PostgresError("08P01", "invalid response from publisher") from error
    if any(column.null_count for column in columns):
        raise PostgresError("08P01", "invalid response from publisher")
    return pa.table(columns, schema=schema)


class Publisher:
    """The connections to the publisher, as a context (see the module)."""

    def __init__(self, subscription: Subscription, name: str, folder: Path, limits: Callable[[], Limits], most: float = 0) -> None:
        """`name`: the slot's name; `folder`: for the received stream; `most`: seconds that the snapshot may be held, 0 for no limit."""
        self._subscription, self._name, self._folder, self._limits = subscription, name, folder, limits
        self.waker = Waker()
        self._stream_waker = Waker()
        """The stream's own waker: it stops the receiver, while the reader continues."""
        self._control: PublisherConnection | None = None
        self._reader: PublisherConnection | None = None
        self.lsn = Lsn(0)
        self._most, self._opened = most, time.monotonic()

    def __enter__(self) -> Self:
        try:
            self._control = PublisherConnection.open(self._subscription.conninfo, self._name, waker=self._stream_waker)
            created = self._control.create_slot(self._name, snapshot="export", temporary=True)
            self.lsn = created.consistent_point
            self._reader = PublisherConnection.open(self._subscription.conninfo, self._name, waker=self.waker, replication=False)
            self._opened = time.monotonic()
            self._reader.query(BEGIN.format(literal(created.snapshot or "")))
            self._limit()
            self._control.identify_system()  # the next command after CREATE_REPLICATION_SLOT drops the snapshot, now imported by the reader
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self._reader, self._control):
            if connection is not None:
                connection.close()
        self.waker.close()
        self._stream_waker.close()

    def stop(self) -> None:
        """End all waits. Called from another thread."""
        self.waker.stop()
        self._stream_waker.stop()

    @property
    def reader(self) -> PublisherConnection:
        """Return the session that reads at `lsn`."""
        assert self._reader is not None
        return self._reader

    def digests(self, table: Compared, without: Sequence[str]) -> pa.Table:
        """Return the ranges of a table (`digest.DIGESTS`), without the rows whose keys have these hashes."""
        return taken(self._query(digests_query(table, without), len(DIGESTS)), DIGESTS)

    def rows(self, table: Compared, ranges: Sequence[str]) -> pa.Table:
        """Return the rows of some ranges (`digest.ROWS`)."""
        return taken(self._query(rows_query(table, ranges), len(ROWS)), ROWS)

    def values(self, table: Compared, ranges: Sequence[str], hashes: Sequence[str]) -> pa.Table:
        """Return the rows of some ranges whose keys have these hashes (`digest.VALUES`)."""
        return taken(self._query(values_query(table, ranges, hashes), len(VALUES)), VALUES)

    def _query(self, query: str, fields: int) -> list[Row]:
        """Run a query on the reader, which the publisher cancels if the snapshot is held for too long."""
        self._limit()
        return self.reader.query(query, fields)

    def _limit(self) -> None:
        """Set timeouts at the publisher for the rest of the time that the snapshot may be held."""
        if self._most:
            milliseconds = max(1, math.ceil((self._opened + self._most - time.monotonic()) * 1000))
            self.reader.query(
                f"SET LOCAL statement_timeout = {milliseconds}; SET LOCAL idle_in_transaction_session_timeout = {milliseconds}"
            )

    def has_expired(self) -> bool:
        """Whether the snapshot has been held for its time limit."""
        return self._most > 0 and time.monotonic() - self._opened >= self._most

    def changes(self, until: Lsn, check: Callable[[], None]) -> Iterator[decode.DecodedFrames]:
        """Yield the transactions committed after `lsn` that end at or before `until`, in runs. The last run may go further.

        `check` raises to end the wait. Raises as the receiver does.
        """
        connection, subscription = self._control, self._subscription
        assert connection is not None
        only_local = subscription.origin == "none"
        options = {"origin": "none"} if only_local and connection.server_version >= 160000 else {}
        connection.start_streaming(self._name, self.lsn, subscription.publications, options)
        spool, progress = Spool(self._folder), StreamProgress(self.lsn)
        reassembly = Reassembly(spool, only_local=True) if only_local else None
        receiver = Receiver(connection, spool, progress, self._stream_waker, self._limits, reassembly=reassembly)
        receiver.start(f"{self._name} receiver")
        relations: dict[int, Relation] = {}
        try:
            while progress.flushed < until:
                check()
                segment = spool.take(0.1, PIECE)
                if segment is None:
                    continue
                decoded = decode.decode(*segment.read(), relations=relations, first_seq=segment.first_seq)
                relations.update(decoded.relations)
                yield decoded
                progress.record_applied(segment.end)
                spool.release_oldest()
        except PostgresError:
            check()
            raise
        finally:
            receiver.stop()
            spool.close()
