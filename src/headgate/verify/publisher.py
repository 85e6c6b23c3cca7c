"""The publisher at one position of its log: a slot of this connection alone, a session under its snapshot, and what comes behind it.

    opened      the temporary slot is made at `lsn`, the reader has imported its snapshot: both read the same rows as often as they like
    streaming   `changes` has started the slot's stream up to a position, once; the reader goes on
    closed      the publisher drops slot and snapshot with the connections

The snapshot is held for `most` seconds at most: the publisher itself ends a reader that asks, or waits, for longer. Called by
`verification`. The reader's transaction is READ ONLY. The stream takes no streamed and no prepared transactions: what is not
committed at the publisher is of no interest.
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
"""Bytes of the stream that are decoded at a time."""


def taken(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """An answer of the publisher; 08P01 where it is not what was asked for: it may say anything."""
    try:
        columns = [pa.array([row[place] for row in rows], pa.string()).cast(field.type) for place, field in enumerate(schema)]
    except pa.ArrowInvalid as error:
        raise PostgresError("08P01", "invalid response from publisher") from error
    if any(column.null_count for column in columns):
        raise PostgresError("08P01", "invalid response from publisher")
    return pa.table(columns, schema=schema)


class Publisher:
    """See the module; a context."""

    def __init__(self, subscription: Subscription, name: str, folder: Path, limits: Callable[[], Limits], most: float = 0) -> None:
        """`name` is that of the slot; `folder` takes what the stream brings; `most`: seconds that the snapshot may be held, 0 for any."""
        self._subscription, self._name, self._folder, self._limits = subscription, name, folder, limits
        self.waker = Waker()
        self._stream_waker = Waker()
        """The stream's own: its receiver ends by it, and the reader goes on."""
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
            self._control.identify_system()  # the next command after the slot's lets go the snapshot, which the reader has now
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._reader, self._control):
            if each is not None:
                each.close()
        self.waker.close()
        self._stream_waker.close()

    def stop(self) -> None:
        """Ends all waits, from another thread."""
        self.waker.stop()
        self._stream_waker.stop()

    @property
    def reader(self) -> PublisherConnection:
        """The session that reads at `lsn`."""
        assert self._reader is not None
        return self._reader

    def digests(self, table: Compared, without: Sequence[str]) -> pa.Table:
        """The ranges of a table (`digest.DIGESTS`), without the rows whose keys have these hashes."""
        return taken(self._asked(digests_query(table, without), len(DIGESTS)), DIGESTS)

    def rows(self, table: Compared, ranges: Sequence[str]) -> pa.Table:
        """The rows of some ranges (`digest.ROWS`)."""
        return taken(self._asked(rows_query(table, ranges), len(ROWS)), ROWS)

    def values(self, table: Compared, ranges: Sequence[str], hashes: Sequence[str]) -> pa.Table:
        """The rows of some ranges whose keys have these hashes (`digest.VALUES`)."""
        return taken(self._asked(values_query(table, ranges, hashes), len(VALUES)), VALUES)

    def _asked(self, query: str, fields: int) -> list[Row]:
        """An answer of the reader, which the publisher ends where the snapshot has been held for too long, whatever is waited for here."""
        self._limit()
        return self.reader.query(query, fields)

    def _limit(self) -> None:
        """Has the publisher end the reader when the snapshot has been held for as long as it may."""
        if self._most:
            left = max(1, math.ceil((self._opened + self._most - time.monotonic()) * 1000))
            self.reader.query(f"SET LOCAL statement_timeout = {left}; SET LOCAL idle_in_transaction_session_timeout = {left}")

    def has_expired(self) -> bool:
        """Whether the snapshot has been held for as long as it may."""
        return self._most > 0 and time.monotonic() - self._opened >= self._most

    def changes(self, until: Lsn, check: Callable[[], None]) -> Iterator[decode.DecodedFrames]:
        """What is committed behind `lsn` and ends at or before `until`, a run of transactions after the other; the last may go further.

        `check` raises to end the wait. Raises what the receiver does.
        """
        connection, subscription = self._control, self._subscription
        assert connection is not None
        only_local = subscription.origin == "none"
        options = {"origin": "none"} if only_local and connection.server_version >= 160000 else {}
        connection.start_streaming(self._name, self.lsn, subscription.publications, options)
        spool, progress = Spool(self._folder), StreamProgress(self.lsn)
        whole = Reassembly(spool, only_local=True) if only_local else None
        receiver = Receiver(connection, spool, progress, self._stream_waker, self._limits, reassembly=whole)
        receiver.start(f"{self._name} receiver")
        known: dict[int, object] = {}
        try:
            while progress.flushed < until:
                check()
                segment = spool.take(0.1, PIECE)
                if segment is None:
                    continue
                decoded = decode.decode(*segment.read(), relations=known, first_seq=segment.first_seq)  # type: ignore[arg-type]
                known.update(decoded.relations)
                yield decoded
                progress.applied(segment.end)
                spool.release(segment)
        except PostgresError:
            check()
            raise
        finally:
            receiver.stop()
            spool.close()
