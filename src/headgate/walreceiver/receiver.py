"""The receiver: a thread that moves a stream from its socket to a spool and reports the applier's progress to the publisher.

Each stream (apply worker, table sync) has one. It never waits for the applier: keepalives are answered during a merge. States:

    streaming   frames go to the spool; status is sent after each step of the applier, after `status_interval`, or on request
    full        the spool and the streamed transactions in progress hold more than `disk_limit`, and the applier has whole transactions
                to process: the socket is not read (so TCP and then the publisher stop); status is still sent
    ended       `error` is the reason: the publisher ended the stream, the connection broke, nothing arrived for `timeout`, or it was
                stopped
"""

from __future__ import annotations

import logging
import operator
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import read_frame, violation
from headgate.pgoutput.outline import XLOG_HEADER
from headgate.settings.node import Settings
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.progress import StreamProgress, now
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.spool import Spool
from headgate.walreceiver.waker import Waker

_log = logging.getLogger("headgate.walreceiver")

_STREAM_ABORT = ord("A")
_KIND, _TAG = operator.itemgetter(0), operator.itemgetter(XLOG_HEADER)
"""The type of a CopyData message, and the type of the message in XLogData."""
STATUS_PAUSE = 0.05
"""The minimum interval in seconds between two status messages that only report progress."""
PING_SECONDS = 10.0
"""The silence after which the publisher is asked to reply, or half of the timeout if that is shorter."""


@dataclass(frozen=True)
class Limits:
    """The limits of a stream in seconds (0: off) and bytes."""

    status_interval: float = 10
    timeout: float = 60
    disk_limit: int = 4 << 30

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        interval, disk = settings.seconds("wal_receiver_status_interval"), settings.bytes("segment_disk_limit")
        return cls(interval, settings.seconds("wal_receiver_timeout"), disk if disk > 0 else 1 << 62)


class StreamEndError(PostgresError):
    """The publisher ended the stream without an error, because it shuts down or the slot was dropped."""


class Receiver:
    """The receiver of one stream. `start` requires a connection that is streaming; `waker` is that of the connection."""

    def __init__(
        self, connection: PublisherConnection, spool: Spool, progress: StreamProgress, waker: Waker, limits: Callable[[], Limits], *,
        reassembly: Reassembly | None = None,
    ) -> None:  # fmt: skip
        """`reassembly`: for streams that may contain streamed or prepared transactions, or transactions to be dropped."""
        self._reassembly = reassembly
        self._connection, self._spool, self._progress, self._waker, self._limits = connection, spool, progress, waker, limits
        self._thread: threading.Thread | None = None
        self._sent = (Lsn(0), Lsn(0))
        self._sent_at = 0.0
        self._heard_at = 0.0
        self._pinged = False
        self._reply_wanted = True

    def start(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. The connection stays open."""
        self._waker.stop()
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """Report the applier's progress to the publisher."""
        self._waker.wake()

    def _run(self) -> None:
        try:
            self._heard_at = time.monotonic()
            while True:
                self._step()
        except PostgresError as error:
            self._spool.fail(error)
        except Exception as error:  # noqa: BLE001 (it must be passed to the applier)
            _log.exception("receiver failed")
            self._spool.fail(PostgresError("XX000", f"receiver failed: {error}"))
        finally:
            if self._reassembly is not None:
                self._reassembly.close()

    def _step(self) -> None:
        limits = self._limits()
        held = self._spool.outstanding + (0 if self._reassembly is None else self._reassembly.kept)
        full = held > limits.disk_limit and (self._progress.outstanding or self._spool.has_whole_transactions)
        frames = [] if full else self._connection.receive()
        if frames is None:
            raise StreamEndError("08006", "data stream from publisher has ended")
        if frames:
            self._heard_at, self._pinged = time.monotonic(), False
            self._process(frames)
        self._report(limits)
        if not frames:
            self._check_silence(limits, full=full)
            pause = self._pause(limits)
            if full:
                self._wait_for_applier(pause)
            else:
                self._connection.wait(pause)

    def _process(self, frames: Sequence[bytes]) -> None:
        kinds = np.fromiter(map(_KIND, frames), np.uint8, len(frames))
        first = 0
        for place in np.flatnonzero(kinds != ord("w")).tolist():
            self._store(frames[first:place])
            self._keepalive(frames[place])
            first = place + 1
        self._store(frames[first:])

    def _store(self, run: Sequence[bytes]) -> None:
        if not run:
            return
        if min(map(len, run)) <= XLOG_HEADER:
            raise violation("insufficient data left in message")
        tags = bytes(map(_TAG, run))
        if self._reassembly is None:
            if _STREAM_ABORT in tags:  # PostgreSQL 18 may send the abort of a transaction that was never streamed; it is ignored
                self._store([frame for frame, tag in zip(run, tags, strict=True) if tag != _STREAM_ABORT])
                return
            self._spool.add(run)
            commit = tags.rfind(b"C")
            committed = None if commit < 0 else _commit_end(run[commit])
        else:
            committed = self._reassembly.take(run)
        last = run[-1]
        end = Lsn(max(int.from_bytes(last[9:17]), committed or 0))
        self._progress.record_data(end, int.from_bytes(last[17:25], signed=True), None if committed is None else Lsn(committed))
        self._progress.record_inside(inside=self._is_inside())
        if self._reassembly is not None and self._reassembly.passed:
            self._progress.record_dropped(Lsn(self._reassembly.passed))

    def _keepalive(self, frame: bytes) -> None:
        keepalive = read_frame(frame)
        assert isinstance(keepalive, m.Keepalive)
        self._progress.record_keepalive(Lsn(keepalive.end), keepalive.send_time, inside=self._is_inside())
        if keepalive.reply_requested:
            self._reply_wanted = True
        self._spool.reach(Lsn(keepalive.end))

    def _is_inside(self) -> bool:
        """Return whether a part of a transaction has arrived."""
        return self._spool.inside_transaction or (self._reassembly is not None and self._reassembly.inside)

    def _report(self, limits: Limits) -> None:
        """Send a status message if one is due."""
        moment = time.monotonic()
        state = (self._progress.written, self._progress.flushed)
        elapsed = moment - self._sent_at
        due = limits.status_interval > 0 and elapsed >= limits.status_interval
        has_news = state != self._sent and elapsed >= STATUS_PAUSE
        if self._reply_wanted or due or has_news:
            self._send(state)

    def _send(self, state: tuple[Lsn, Lsn], *, ping: bool = False) -> None:
        written, flushed = state
        self._connection.send_status(m.StatusUpdate(max(written, flushed), flushed, flushed, now(), ping))
        self._sent, self._sent_at, self._reply_wanted = state, time.monotonic(), False

    def _check_silence(self, limits: Limits, *, full: bool) -> None:
        """Ask a silent publisher to reply. Raise 08006 if it has been silent for the timeout."""
        if full:  # the socket is not read
            self._heard_at = time.monotonic()
        if full or limits.timeout <= 0:
            return
        silent = time.monotonic() - self._heard_at
        if silent >= limits.timeout:
            raise PostgresError("08006", "terminating logical replication worker due to timeout")
        if silent >= min(limits.timeout / 2, PING_SECONDS) and not self._pinged:
            self._pinged = True
            self._send((self._progress.written, self._progress.flushed), ping=True)

    def _pause(self, limits: Limits) -> float:
        """Return the seconds until something is due if nothing arrives."""
        moment = time.monotonic()
        ends = [moment + 1.0]
        if limits.status_interval > 0:
            ends.append(self._sent_at + limits.status_interval)
        if limits.timeout > 0:
            ends.append(self._heard_at + (limits.timeout if self._pinged else min(limits.timeout / 2, PING_SECONDS)))
        if (self._progress.written, self._progress.flushed) != self._sent:
            ends.append(self._sent_at + STATUS_PAUSE)
        return max(0.0, min(ends) - moment)

    def _wait_for_applier(self, seconds: float) -> None:
        """Wait for the applier without reading the socket."""
        poll = select.poll()
        poll.register(self._waker.fileno(), select.POLLIN)
        if poll.poll(max(seconds, 0.01) * 1000):
            self._waker.clear()
        if self._waker.stopped:
            self._connection.wait(0)


def _commit_end(frame: bytes) -> int:
    return int.from_bytes(frame[XLOG_HEADER + 10 : XLOG_HEADER + 18])
