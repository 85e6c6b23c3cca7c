"""The receiver: a thread that moves a stream from its socket into a spool and tells the publisher how far the applier is.

One per stream (apply worker, table sync). It never waits for the applier: keepalives are answered while a merge runs. States:

    streaming   frames go to the spool; status after each step of the applier, after `status_interval`, or when asked for
    full        the spool and the streamed transactions in progress hold more than `disk_limit` and the applier has whole transactions to
                work on: the socket is not read (so TCP and then the publisher stop), status goes on being sent
    ended       `error` says why: the publisher ended the stream, the connection broke, nothing came for `timeout`, or it was stopped
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.pgoutput.outline import XLOG_HEADER
from headgate.pgoutput.read import read_frame, violation
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.progress import StreamProgress, now
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.spool import Spool
from headgate.walreceiver.waker import Waker

_log = logging.getLogger("headgate.walreceiver")

_STREAM_ABORT = b"A"
STATUS_PAUSE = 0.05
"""Seconds between two status messages that only report progress."""
PING_SECONDS = 10.0
"""A publisher that has said nothing for so long is asked to answer, or for half of the timeout if that is shorter."""


@dataclass(frozen=True)
class Limits:
    """Settings of a stream: seconds (0: off) and bytes."""

    status_interval: float = 10
    timeout: float = 60
    disk_limit: int = 4 << 30


class StreamEndError(PostgresError):
    """The publisher ended the stream without an error (it shuts down, or the slot was dropped)."""


class Receiver:
    """See the module. `start` begins to receive on a connection that is streaming; `waker` is the one of that connection."""

    def __init__(
        self, connection: PublisherConnection, spool: Spool, progress: StreamProgress, waker: Waker, limits: Callable[[], Limits], *,
        reassembly: Reassembly | None = None,
    ) -> None:  # fmt: skip
        """`reassembly`: for streams that may hold streamed or prepared transactions, or some that are to be dropped."""
        self._reassembly = reassembly
        self._connection, self._spool, self._progress, self._waker, self._limits = connection, spool, progress, waker, limits
        self._thread: threading.Thread | None = None
        self._sent = (Lsn(0), Lsn(0))
        self._sent_at = 0.0
        self._heard_at = 0.0
        self._pinged = False
        self._reply_wanted = True

    def start(self, name: str) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread and waits for it; the connection stays open."""
        self._waker.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._heard_at = time.monotonic()
            while True:
                self._step()
        except PostgresError as error:
            self._spool.fail(error)
        except Exception as error:  # noqa: BLE001 (the applier must learn of it)
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
            self._take_in(frames)
        self._report(limits)
        if not frames:
            self._check_silence(limits, full=full)
            pause = self._pause(limits)
            if full:
                self._rest(pause)
            else:
                self._connection.wait(pause)

    def _take_in(self, frames: Sequence[memoryview]) -> None:
        run: list[memoryview] = []
        for frame in frames:
            if frame[0] == 0x77:
                run.append(frame)
            else:
                self._store(run)
                run = []
                self._keepalive(frame)
        self._store(run)

    def _store(self, run: list[memoryview]) -> None:
        if self._reassembly is None:  # PostgreSQL 18 may send the abort of a transaction that was never streamed: it means nothing
            run = [frame for frame in run if frame[XLOG_HEADER : XLOG_HEADER + 1] != _STREAM_ABORT]
        if not run:
            return
        last = run[-1]
        if self._reassembly is None:
            self._spool.add(run)
            if len(last) < XLOG_HEADER:
                raise violation("insufficient data left in message")
            committed: int | None = next((_commit_end(frame) for frame in reversed(run) if frame[XLOG_HEADER] == 0x43), None)
        else:
            committed = self._reassembly.take(run)
        end = Lsn(max(int.from_bytes(last[9:17]), committed or 0))
        self._progress.received(end, int.from_bytes(last[17:25], signed=True), committed=None if committed is None else Lsn(committed))
        self._progress.note_inside(inside=self._is_inside())
        if self._reassembly is not None and self._reassembly.passed:
            self._progress.passed(Lsn(self._reassembly.passed))

    def _keepalive(self, frame: memoryview) -> None:
        found = read_frame(bytes(frame))
        assert isinstance(found, m.Keepalive)
        self._progress.received(Lsn(found.end), found.send_time, keepalive=True, inside=self._is_inside())
        if found.reply_requested:
            self._reply_wanted = True
        self._spool.wake()

    def _is_inside(self) -> bool:
        """Whether a transaction has come in part."""
        return self._spool.inside_transaction or (self._reassembly is not None and self._reassembly.inside)

    def _report(self, limits: Limits) -> None:
        """Sends a status if one is due."""
        moment = time.monotonic()
        state = (self._progress.written, self._progress.flushed)
        since = moment - self._sent_at
        due = limits.status_interval > 0 and since >= limits.status_interval
        news = state != self._sent and since >= STATUS_PAUSE
        if self._reply_wanted or due or news:
            self._send(state)

    def _send(self, state: tuple[Lsn, Lsn], *, ping: bool = False) -> None:
        written, flushed = state
        self._connection.send_status(m.StatusUpdate(max(written, flushed), flushed, flushed, now(), ping))
        self._sent, self._sent_at, self._reply_wanted = state, time.monotonic(), False

    def _check_silence(self, limits: Limits, *, full: bool) -> None:
        if limits.timeout <= 0 or full:
            if full:
                self._heard_at = time.monotonic()
            return
        silent = time.monotonic() - self._heard_at
        if silent >= limits.timeout:
            raise PostgresError("08006", "terminating logical replication worker due to timeout")
        if silent >= min(limits.timeout / 2, PING_SECONDS) and not self._pinged:
            self._pinged = True
            self._send((self._progress.written, self._progress.flushed), ping=True)

    def _pause(self, limits: Limits) -> float:
        """Seconds until something is due if nothing arrives."""
        moment = time.monotonic()
        ends = [moment + 1.0]
        if limits.status_interval > 0:
            ends.append(self._sent_at + limits.status_interval)
        if limits.timeout > 0:
            ends.append(self._heard_at + (limits.timeout if self._pinged else min(limits.timeout / 2, PING_SECONDS)))
        if (self._progress.written, self._progress.flushed) != self._sent:
            ends.append(self._sent_at + STATUS_PAUSE)
        return max(0.0, min(ends) - moment)

    def _rest(self, seconds: float) -> None:
        """Waits for the applier without reading the socket."""
        poll = select.poll()
        poll.register(self._waker.fileno(), select.POLLIN)
        if poll.poll(max(seconds, 0.01) * 1000):
            self._waker.clear()
        if self._waker.stopped:
            self._connection.wait(0)


def _commit_end(frame: memoryview) -> Lsn:
    return Lsn(int.from_bytes(frame[XLOG_HEADER + 10 : XLOG_HEADER + 18]))
