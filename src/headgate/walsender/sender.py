"""COPY BOTH: sends the published changes of a slot and processes the client's positions (manual, 55.4.1).

`Sender.run` is the loop of one stream, in the session's thread. Each iteration processes the client's messages. If the log has more, it
sends the next batch of whole transactions. Else it waits for the log, the client, or the next keepalive. While it judges changes, which
may take minutes and send nothing, another thread processes the client's messages: a client without an answer would disconnect. Invariants:
the connection belongs to the thread that holds `_channel_lock`. `confirmed_flush_lsn` is advanced only by the client's flush position. A
client that is silent is asked to reply after half of wal_sender_timeout and disconnected after all of it. The states are those of
pg_stat_replication:

    startup     the stream has not begun
    catchup     the log has entries that were there when the stream began
    streaming   everything has been sent once
    stopping    the node is shutting down

Traced: the client starts at 0/0, the slot is confirmed at 0/1500. The stream begins at 0/1500. Entry 0/1500…0/1600 publishes nothing:
`sent` becomes 0/1600, and only a keepalive 0/1600 is sent. The client answers flush 0/1600, and the slot's confirmed position becomes
0/1600.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.catalog.replication.slot import Slot
from headgate.errors import PostgresError, Severity
from headgate.lsn import Lsn
from headgate.pgoutput import codec
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import read_reply
from headgate.publisher.stream import Stream, StreamRequest
from headgate.storage.spark import job_group
from headgate.storage.transaction.log import now
from headgate.types import text_column
from headgate.walsender import options
from headgate.walsender.host import Host
from headgate.walsender.options import PgoutputOptions
from headgate.walsender.statistics import SenderState

_log = logging.getLogger("headgate.walsender")
POLL_SECONDS = 10.0
CLIENT_SECONDS = 1.0
"""The interval at which the client's messages are processed while changes are judged."""


class SilentClientError(Exception):
    """Raised to end the session: the client has not answered for wal_sender_timeout."""


class StreamEnd(Exception):
    """Raised to end the stream without an error: the client has sent CopyDone, or the node is shutting down."""


class Sender:
    """The stream of one slot to one client."""

    def __init__(self, host: Host, slot: Slot, start: Lsn, plugin_options: PgoutputOptions) -> None:
        self.host = host
        self.node = host.node
        self.slot = slot
        self.name = slot.name
        confirmed = slot.confirmed_flush_lsn
        if start and start < confirmed:
            _log.info("%s has been already streamed, forwarding to %s", start, confirmed)
        begin = max(start, confirmed)
        if plugin_options.two_phase:
            self.node.slots.enable_two_phase(self.name, begin)
        self.timeout: float = host.settings.milliseconds("wal_sender_timeout") / 1000
        settings = host.settings
        self.stream = Stream(
            self.node.engine,
            host.context.database,
            self.name,
            begin,
            StreamRequest(
                plugin_options.publications,
                binary=plugin_options.binary,
                session=text_column.TextSettings.of(settings),
                options=options.stream_options(plugin_options, settings, self.node.slots.get(self.name)),
                created=self.node.slots.get(self.name).created_lsn,
            ),
            self.node.changes,
        )
        self.statistics = self.node.senders.enter(host.pid)  # last, because only `close` removes the entry
        self.statistics.sent = begin
        self._last_reply = time.monotonic()
        self._has_pinged = False
        """Whether the client has been asked to reply and has not done so."""
        self._kept_alive: Lsn | None = None
        """The position that the last keepalive has sent."""
        self._jobs = job_group.EndedJobs(f"walsender-{host.pid}", "headgate walsender", self._check_end)
        self._channel_lock = threading.Lock()
        self._end: Exception | None = None
        """The reason to end the stream, which arrived while changes were judged."""

    def close(self) -> None:
        self.stream.close()
        self.node.senders.leave(self.host.pid)

    def run(self) -> None:
        """Stream until the client sends CopyDone. Raise the error that ends the stream otherwise."""
        channel = self.host.channel
        self.statistics.state = SenderState.CATCHUP
        channel.flush()
        with self.node.log_watch.watching(channel.interrupt), self._attended():
            try:
                while True:
                    self._process_messages()
                    if not self._send_next():
                        self._wait_for_log()
            except StreamEnd:
                pass
            except SilentClientError:
                _log.info("terminating walsender process due to replication timeout")
                self.host.leave()

    def _send_next(self) -> bool:
        """Send the next batch. Return whether the log contained anything."""
        if self.node.engine.log.end <= self.stream.position:
            return False
        with self._judging():
            batch = self.stream.next()
        if batch is None:
            return False
        channel, frames = self.host.channel, iter(batch.frames)
        while True:
            with self._judging():
                piece = next(frames, None)
            if piece is None:
                break
            channel.flush_while(self._process_messages, piece)  # `write` would send a large piece, and wait for the client without a limit
        self.statistics.passed(batch.position)
        self.node.slots.count(self.name, batch.counts)
        return True

    @contextmanager
    def _judging(self) -> Iterator[None]:
        """Let the other thread process the client's messages inside the context.

        Cancel the Spark jobs inside when the walsender must end, even if they wait for executors.
        """
        self._channel_lock.release()
        try:
            with self._jobs.entered(self.node.engine.spark.sparkContext), self.host.cancelling(self._jobs.end):
                yield
        except Exception:
            self._check_request()
            raise
        finally:
            self._channel_lock.acquire()
            if self._end is not None:
                raise self._end

    def _check_end(self) -> None:
        """Raise the reason to end the stream. Called by long-running code that judges changes."""
        if self._end is not None:
            raise self._end
        self.host.check()

    @contextmanager
    def _attended(self) -> Iterator[None]:
        """Process the client's messages in another thread while this one is `_judging`. A reason to end the stream ends the judging."""
        over = threading.Event()

        def attend() -> None:
            while not over.wait(CLIENT_SECONDS):
                with self._channel_lock:
                    if over.is_set():
                        return
                    try:
                        self._process_messages()
                    except Exception as error:  # noqa: BLE001 (`_judging` raises it)
                        self._end = error
                if self._end is not None:
                    self._jobs.end()
                    return

        with self._channel_lock:
            threading.Thread(target=attend, name="walsender client", daemon=True).start()
            try:
                yield
            finally:
                over.set()

    def _wait_for_log(self) -> None:
        """Send a keepalive if necessary after everything has been sent, then wait."""
        if self.statistics.state is not SenderState.STREAMING:
            self.statistics.state = SenderState.STREAMING
            self.node.senders.on_change()
        sent = self.statistics.sent
        if self._kept_alive != sent and self.statistics.flush < sent:
            self._keepalive(ask=False)
        self._wait()

    def _wait(self) -> None:
        channel = self.host.channel
        channel.resume()
        if self.node.engine.log.end > self.stream.position:
            return
        message = channel.poll(self._poll_seconds())
        if message is not None:
            self._process_message(*message)
        self._check()

    def _poll_seconds(self) -> float:
        """Return how long to wait for the client: until it must be asked to reply, or has not replied in time."""
        if not self.timeout:
            return POLL_SECONDS
        silent = time.monotonic() - self._last_reply
        return max(0.01, (self.timeout if self._has_pinged else self.timeout / 2) - silent)

    def _check(self) -> None:
        """End the stream if it must end. Ask a silent client to reply."""
        self._check_request()
        if not self.timeout:
            return
        silent = time.monotonic() - self._last_reply
        if silent >= self.timeout and (message := self.host.channel.poll(0)) is not None:
            self._process_message(*message)  # the client has answered; this side was late
            return
        if silent >= self.timeout:
            raise SilentClientError
        if silent >= self.timeout / 2 and not self._has_pinged:
            self._has_pinged = True
            self._keepalive(ask=True)

    def _check_request(self) -> None:
        """End the stream if another thread has requested it."""
        pending = self.host.pending()
        if pending is not None:
            if self.node.is_stopping():
                self.statistics.state = SenderState.STOPPING
                raise StreamEnd
            raise pending

    # ---- the client's messages --------------------------------------------------------------------------
    def _process_messages(self) -> None:
        while (message := self.host.channel.poll(0)) is not None:
            self._process_message(*message)
        self._check()

    def _process_message(self, kind: str, body: bytes) -> None:
        if kind == "d":
            self._reply(body)
        elif kind == "c":
            self.host.channel.write(b"c\0\0\0\4")
            raise StreamEnd
        elif kind == "X":
            self.host.leave()
        else:
            raise PostgresError("08P01", f'invalid standby message type "{kind}"', severity=Severity.FATAL)

    def _reply(self, body: bytes) -> None:
        reply = read_reply(body)
        if isinstance(reply, m.StatusUpdate):
            self._confirm(reply)
            if reply.reply_requested:
                self._keepalive(ask=False)
        self._last_reply = time.monotonic()
        self._has_pinged = False

    def _confirm(self, reply: m.StatusUpdate) -> None:
        # a position after the end of the log would confirm entries that do not exist yet, and they would never be sent
        end = max(self.node.engine.log.end, self.statistics.sent)
        written, flushed, applied = (min(Lsn(position), end) for position in (reply.written, reply.flushed, reply.applied))
        self.statistics.replied(written, flushed, applied, reply.send_time)
        self.node.senders.on_change()
        if flushed:
            self.node.slots.confirm(self.name, flushed)

    def _keepalive(self, *, ask: bool) -> None:
        sent = self.statistics.sent
        if not ask:
            self._kept_alive = sent
        self.host.channel.write(codec.copy_data(codec.write_frame(m.Keepalive(sent, now(), ask))))
        self.host.channel.flush()
