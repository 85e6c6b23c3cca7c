"""The socket of one client: received messages in, buffered bytes out.

A connection belongs to one thread at a time (decision 0001): that of its session, or the one that answers a walsender's client for it.
Other threads may call only `interrupt`, `close` and `client_gone`. Used by the listener (startup packets), the session (messages) and,
through `walsender.host.Channel`, by the walsender. Invariants: a message that violates the framing rules ends the connection
(ConnectionBroken), as in PostgreSQL. Nothing is sent before `flush`, unless more than a block is buffered. After `start_tls` all bytes go
through a `TlsStream`, which does not hold back readable bytes. So it is enough to wait for the socket.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headgate.errors import PostgresError, Severity
from headgate.server.protocol.message import LARGE, MAX_HELD_MESSAGE, SMALL, length_allowed
from headgate.server.protocol.statement_memory import Pool
from headgate.server.protocol.tls import Tls, TlsStream, reason
from headgate.settings.encoding import UTF8

_log = logging.getLogger("headgate.server")

BLOCK = 1 << 16
"""The number of bytes that are received at once, and of output that is buffered before it is sent."""
PART = 1 << 20
"""The size in bytes above which a message is large. A large message needs room in memory. Large CopyData does not, because it is passed on
in the pieces in which it arrives: its end is not the end of a row."""
ROOM_SECONDS = 60
"""How long a large message waits for room. It is not read in that time, so its client waits to send it. The wait is limited, because a
client that does not send the rest of its message, or runs its statement for hours, keeps its room for that long."""
ROOM_LOOK_SECONDS = 0.05


class ConnectionBroken(Exception):
    """The client has disconnected or violated the framing rules: it can no longer be answered."""


@dataclass(frozen=True)
class FrontendMessage:
    """A message from a client: its type and its body without the length word."""

    kind: str
    body: bytes
    refusal: PostgresError | None = None
    """The error for which its body was discarded on arrival; `body` is then empty."""

    def whole(self) -> bytes:
        """Return the body. Raise the `refusal` if there is one."""
        if self.refusal is not None:
            raise self.refusal
        return self.body


class Connection:
    """The messages on one socket. `poll` waits with a timeout, `receive` without one."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.tls: TlsStream | None = None
        self._in = bytearray()
        self._coming = 0
        """The bytes of a large message that have not arrived yet."""
        self._begun: FrontendMessage | None = None
        """That message, whose body is `_body` when it is complete. None for CopyData, which is passed on as it arrives."""
        self._body = bytearray()
        """The part of its body that has arrived; empty if the message was refused."""
        self.room: Pool | None = None
        """The memory for the large messages of all sessions. None before there is a session; then no message is large."""
        self.longest_statement = MAX_HELD_MESSAGE
        """The size in bytes above which a Query or Parse message is refused."""
        self._reserved = 0
        """The bytes of `room` taken since the last `release_room`."""
        self._without_room_since: float | None = None
        """When the next message began to wait for room (seconds, monotonic)."""
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)
        self.interrupted = False
        self.encoding = UTF8
        """The encoding of the client's text: client_encoding, as soon as there is a session."""
        self.authenticated = False
        """Whether the client is authenticated. Before that a large message is not allowed."""
        self._sending = False
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @property
    def peer(self) -> tuple[str | None, int]:
        """The client's address and port; (None, -1) on a Unix socket."""
        if self.socket.family not in (socket.AF_INET, socket.AF_INET6):
            return None, -1
        try:
            host, port = self.socket.getpeername()[:2]
        except OSError:
            return None, -1
        return str(host).removeprefix("::ffff:"), int(port)

    # ---- TLS --------------------------------------------------------------------------------------------
    def start_tls(self, tls: Tls, deadline: float) -> None:
        """Do the TLS handshake. Raise TimeoutError after the deadline. The caller must reject bytes that were `unread` before it."""
        stream = TlsStream(tls)
        try:
            self._shake_hands(stream, deadline)
        except ConnectionBroken as broken:
            cause = broken.__cause__
            _log.info("could not accept SSL connection: %s", reason(cause) if isinstance(cause, OSError) else broken)
            raise
        self.tls = stream
        self._in += self._decrypt(stream, b"")

    def _shake_hands(self, stream: TlsStream, deadline: float) -> None:
        data = b""
        while True:
            done, answer, error = stream.handshake(data)
            if error is not None:
                with contextlib.suppress(TimeoutError, ConnectionBroken):
                    self._send_before(deadline, answer)
                raise ConnectionBroken("the TLS handshake has failed") from error
            self._send_before(deadline, answer)
            if done:
                return
            while not self._wait(deadline):
                pass
            data = self._receive_block()
            if not data:
                raise ConnectionBroken("EOF detected")

    @property
    def unread(self) -> bool:
        """Whether received bytes have not been read yet."""
        return bool(self._in)

    def _send_before(self, deadline: float, data: bytes) -> None:
        try:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            self.socket.sendall(data)
            self.socket.settimeout(None)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            raise ConnectionBroken(str(error)) from error

    # ---- in ---------------------------------------------------------------------------------------------
    def exactly(self, length: int, deadline: float | None = None) -> bytes:
        """Return the next `length` bytes of a startup packet. Raise TimeoutError after the deadline (time.monotonic)."""
        while len(self._in) < length:
            self._wait(deadline)
            self._read()
        data = bytes(self._in[:length])
        del self._in[:length]
        return data

    def receive(self) -> FrontendMessage | None:
        """Return the next message, or None after an `interrupt`."""
        return self.poll(None)

    def poll(self, timeout: float | None) -> FrontendMessage | None:
        """Return the next message, or None after `timeout` seconds or an interrupt."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = self._take_buffered()
            if message is not None:
                return message
            try:
                if self._without_room_since is not None:
                    if not self._await_room():
                        return None
                    continue
                if not self._wait(deadline):
                    return None
            except TimeoutError:
                return None
            self._read()

    def _take_buffered(self) -> FrontendMessage | None:
        if self._coming:
            return self._part()
        if len(self._in) < 5:
            return None
        kind, length = chr(self._in[0]), int.from_bytes(self._in[1:5], "big", signed=True)
        if kind not in LARGE and kind not in SMALL:
            raise PostgresError("08P01", f"invalid frontend message type {self._in[0]}", severity=Severity.FATAL)
        if not length_allowed(kind, length, authenticated=self.authenticated):
            raise ConnectionBroken(f"invalid message length {length} of type {kind!r}")
        if length > PART:
            if kind != "d" and not self._begin(kind, length - 4):
                return None
            self._coming = length - 4
            del self._in[:5]
            return self._part()
        if len(self._in) < 1 + length:
            return None
        body = bytes(self._in[5 : 1 + length])
        del self._in[: 1 + length]
        return FrontendMessage(kind, body)

    def _begin(self, kind: str, length: int) -> bool:
        """Reserve room for a large message before any of its body is stored. Return False while there is none."""
        refusal = self._too_long(kind, length)
        if refusal is None and self.room is not None and not self.room.reserve(length):
            now = time.monotonic()
            self._without_room_since = self._without_room_since or now
            if now - self._without_room_since < ROOM_SECONDS:
                return False
            refusal = PostgresError(
                "53200",
                "out of memory",
                detail=f"Large statements of other sessions have used the memory for such statements for {ROOM_SECONDS} seconds.",
                hint="Repeat the statement later, or send its values in smaller ones, or with COPY.",
            )
        self._without_room_since = None
        self._reserved += 0 if refusal is not None or self.room is None else length
        self._begun = FrontendMessage(kind, b"", refusal)
        self._body = bytearray()  # grows as data arrives: clearing all of its memory at once would hold the interpreter's lock
        return True

    def _too_long(self, kind: str, length: int) -> PostgresError | None:
        """Return the error for a message that is too long regardless of other sessions, or None."""
        if kind in "QP" and length > self.longest_statement:
            return PostgresError(
                "54000",
                "statement is too large",
                detail=f"The statement has {length} bytes; the limit is {self.longest_statement}.",
                hint='Send large values as parameters or with COPY, or increase the configuration parameter "max_statement_size".',
            )
        if length > MAX_HELD_MESSAGE:
            return PostgresError("53200", "out of memory", detail=f"Failed on request of size {length}.")
        return None

    def _await_room(self) -> bool:
        """Wait for ROOM_LOOK_SECONDS for room to become free. Return False if interrupted."""
        if self.client_gone():
            raise ConnectionBroken("the client has closed the connection")
        return not self._reset_interrupt(readable_of([self._wakened], ROOM_LOOK_SECONDS))

    def release_room(self) -> None:
        """Release the room of the messages received so far, which are no longer needed."""
        if self._reserved and self.room is not None:
            self.room.release(self._reserved)
        self._reserved = 0

    def _part(self) -> FrontendMessage | None:
        """Return the arrived part of a large CopyData as a CopyData message, or another message once it is complete, else None."""
        message, part = self._begun, memoryview(self._in)[: self._coming]
        length = len(part)
        body = bytes(part) if message is None else b""
        if message is not None and message.refusal is None:
            self._body += part
        part.release()
        del self._in[:length]
        self._coming -= length
        if message is None:
            return FrontendMessage("d", body) if body else None
        if self._coming:
            return None
        body, self._body = bytes(self._body), bytearray()
        return replace(message, body=body)

    def _wait(self, deadline: float | None) -> bool:
        """Wait for bytes. Return False if interrupted. Raise TimeoutError at the deadline."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            readable = readable_of([self.socket, self._wakened], timeout)
        except (OSError, ValueError) as error:
            raise ConnectionBroken("the socket is closed") from error
        if self._reset_interrupt(readable):
            return False
        if not readable:
            raise TimeoutError
        return True

    def _reset_interrupt(self, readable: list[socket.socket]) -> bool:
        """Return whether `interrupt` has been called, and reset it."""
        if self._wakened not in readable:
            return False
        with contextlib.suppress(OSError):
            while self._wakened.recv(BLOCK):
                pass
        self.interrupted = True
        return True

    def _read(self) -> None:
        data = self._receive_block()
        if not data:
            raise ConnectionBroken("the client has closed the connection")
        self._in += data if self.tls is None else self._decrypt(self.tls, data)

    def _receive_block(self) -> bytes:
        try:
            return self.socket.recv(BLOCK)
        except OSError as error:
            raise ConnectionBroken(str(error)) from error

    @staticmethod
    def _decrypt(tls: TlsStream, data: bytes) -> bytes:
        if tls.ended:
            raise ConnectionBroken("the client has closed the connection")
        try:
            return tls.opened(data)
        except ssl.SSLError as error:
            _log.info("SSL error: %s", reason(error))
            raise ConnectionBroken("the client has sent bytes that are not TLS") from error

    def client_gone(self) -> bool:
        """Return whether the client has closed its side, even if unread bytes are left. It reads nothing; any thread may call it."""
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    # ---- out --------------------------------------------------------------------------------------------
    def write(self, data: bytes | memoryview) -> None:
        """Append frames to the output buffer. Large ones are sent without being copied."""
        if len(data) >= BLOCK and self._out:
            self.flush()
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Send all buffered output."""
        if self._sending:
            return
        parts, self._out, self._out_size = self._out, [], 0
        if not parts:
            return
        try:
            for chunk in self._encrypt(parts[0] if len(parts) == 1 else b"".join(parts)):
                self.socket.sendall(chunk)
        except (OSError, ValueError) as error:
            raise ConnectionBroken(str(error)) from error

    def flush_while(self, pump: Callable[[], None], data: bytes | memoryview = b"") -> None:
        """Send the buffered output, then `data`. Call `pump` while the socket accepts no more.

        `pump` is called when the client has sent something, or every 100 ms. Its output is sent after the current output. An exception
        that it raises is raised after the current frames are sent, so that an error message is never inside a frame. A FATAL error is
        raised at once.
        """
        parts, self._out, self._out_size = [*self._out, data], [], 0
        raised: Exception | None = None
        for part in parts:
            for chunk in self._encrypt(part):
                raised = self._send_while(pump, chunk) or raised
        if raised is not None:
            raise raised

    def _encrypt(self, data: bytes | memoryview) -> Iterable[bytes | memoryview]:
        """Return the bytes to send: encrypted, if the connection uses TLS."""
        return (data,) if self.tls is None else self.tls.sealed(data)

    def _send_while(self, pump: Callable[[], None], data: bytes | memoryview) -> Exception | None:
        raised: Exception | None = None
        unsent = memoryview(data).cast("B")
        while unsent:
            try:
                sent = self.socket.send(unsent, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if self._full():
                    raised = self._pump(pump) or raised
                continue
            except (OSError, ValueError) as error:
                raise ConnectionBroken(str(error)) from error
            unsent = unsent[sent:]
        return raised

    def _full(self) -> bool:
        """Wait up to 100 ms until the socket is writable or the client has sent something. Return whether it is still full."""
        poller = select.poll()
        poller.register(self.socket.fileno(), select.POLLIN | select.POLLOUT)
        return not any(event & select.POLLOUT for _, event in poller.poll(100))

    def _pump(self, pump: Callable[[], None]) -> Exception | None:
        self._sending = True
        try:
            pump()
        except ConnectionBroken:
            raise
        except PostgresError as error:
            if error.severity is Severity.FATAL:
                raise ConnectionBroken(error.message) from error
            return error
        except Exception as error:  # noqa: BLE001 - raised again by flush_while
            return error
        finally:
            self._sending = False
        return None

    # ---- other threads ----------------------------------------------------------------------------------
    def interrupt(self) -> None:
        """Wake the thread that waits in `receive` or `poll`, which returns None. Any thread may call it."""
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Close the connection. Any thread may call it."""
        with contextlib.suppress(OSError, ValueError):
            if self.tls is not None:
                self.socket.send(self.tls.farewell(), socket.MSG_DONTWAIT)
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        for sock in (self.socket, self._waker, self._wakened):
            with contextlib.suppress(OSError):
                sock.close()


def readable_of(sockets: list[socket.socket], timeout: float | None) -> list[socket.socket]:
    """Return the sockets that are readable or have an error: select() without its limit of 1024 descriptors."""
    poller = select.poll()
    by_number = {sock.fileno(): sock for sock in sockets}
    for number in by_number:
        poller.register(number, select.POLLIN)
    events = poller.poll(None if timeout is None else timeout * 1000)
    return [by_number[number] for number, _ in events]
