"""One client's socket: frames in, buffered bytes out.

A connection belongs to one thread (decision 0001); only `interrupt` and `close` may be called from others. Used by the
listener (start-up packets), the session (messages) and, through `walsender.host.Channel`, by the walsender.
What must hold: a frame that breaks the framing rules ends the connection (ConnectionBroken), as in PostgreSQL; nothing
is sent before `flush`, unless more than a block is waiting. After `start_tls` all bytes go through a `TlsStream`, which keeps none that
could be read: who waits, waits for the socket.
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
from headgate.server.authentication.tls import Tls, TlsStream, reason
from headgate.server.protocol.message import LARGE, MAX_HELD_MESSAGE, SMALL, length_allowed
from headgate.server.protocol.statement_memory import Pool
from headgate.settings.encoding import UTF8

_log = logging.getLogger("headgate.server")

BLOCK = 1 << 16
"""Bytes that are read at once, and that are kept back before they are sent."""
PART = 1 << 20
"""Bytes beyond which a message is large. It needs room then, but for CopyData, which is handed on as it comes, as its end ends no row."""
ROOM_SECONDS = 60
"""How long a large message waits for room. It is not read meanwhile, so its client waits to send it. It does not wait for ever, because a
client that does not send the rest of its message, or runs its statement for hours, keeps its room for so long."""
ROOM_LOOK_SECONDS = 0.05


class ConnectionBroken(Exception):
    """The client is gone, or it has sent something that is no frame: nothing can be answered any more."""


@dataclass(frozen=True)
class FrontendMessage:
    """A message from a client: its type and its body without the length word."""

    kind: str
    body: bytes
    refusal: PostgresError | None = None
    """Why it was skipped as it came, if it was; `body` is empty then."""

    def whole(self) -> bytes:
        """The body; raises the `refusal`."""
        if self.refusal is not None:
            raise self.refusal
        return self.body


class Connection:
    """Frames on one socket; `poll` waits with a limit, `receive` without one."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.tls: TlsStream | None = None
        self._in = bytearray()
        self._coming = 0
        """Bytes of a large message that are still to come."""
        self._begun: FrontendMessage | None = None
        """That message, whose body is `_body` when all has come. None if it is CopyData, which is handed on as it comes."""
        self._body = bytearray()
        """The body of that message as it comes; empty if it was refused."""
        self.room: Pool | None = None
        """What large messages of all sessions may take; None before there is a session, when no message is large."""
        self.longest_statement = MAX_HELD_MESSAGE
        """Bytes of a Query or Parse message beyond which it is refused."""
        self._taken = 0
        """Bytes of `room` that have been taken since `release_room`."""
        self._without_room_since: float | None = None
        """When the message that comes next has begun to wait for room (seconds, monotonic)."""
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)
        self.interrupted = False
        self.encoding = UTF8
        """What the client's text is in: client_encoding, once there is a session."""
        self.authenticated = False
        """Who has not told who it is gets no room for a large message."""
        self._sending = False
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @property
    def peer(self) -> tuple[str | None, int]:
        """Address and port of the client; (None, -1) on a Unix socket."""
        if self.socket.family not in (socket.AF_INET, socket.AF_INET6):
            return None, -1
        try:
            host, port = self.socket.getpeername()[:2]
        except OSError:
            return None, -1
        return str(host).removeprefix("::ffff:"), int(port)

    # ---- TLS --------------------------------------------------------------------------------------------
    def start_tls(self, tls: Tls, deadline: float) -> None:
        """The handshake; TimeoutError after the deadline. What is `unread` before it came in clear text: it is the caller's to refuse."""
        stream = TlsStream(tls)
        try:
            self._shake_hands(stream, deadline)
        except ConnectionBroken as broken:
            cause = broken.__cause__
            _log.info("could not accept SSL connection: %s", reason(cause) if isinstance(cause, OSError) else broken)
            raise
        self.tls = stream
        self._in += self._opened(stream, b"")

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
            data = self._received()
            if not data:
                raise ConnectionBroken("EOF detected")

    @property
    def unread(self) -> bool:
        """Whether bytes have come that nobody has taken."""
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
        """The next `length` bytes, for start-up packets; TimeoutError after the deadline (time.monotonic)."""
        while len(self._in) < length:
            self._wait(deadline)
            self._read()
        data = bytes(self._in[:length])
        del self._in[:length]
        return data

    def receive(self) -> FrontendMessage | None:
        """The next message; None when `interrupt` was called meanwhile."""
        return self.poll(None)

    def poll(self, timeout: float | None) -> FrontendMessage | None:
        """The next message, or None after `timeout` seconds or an interrupt."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._buffered()
            if found is not None:
                return found
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

    def _buffered(self) -> FrontendMessage | None:
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
        """Make room for a large message before any of it is kept; return False while there is none."""
        refusal = self._too_long(kind, length)
        if refusal is None and self.room is not None and not self.room.take(length):
            now = time.monotonic()
            self._without_room_since = self._without_room_since or now
            if now - self._without_room_since < ROOM_SECONDS:
                return False
            refusal = PostgresError(
                "53200",
                "out of memory",
                detail=f"Large statements of other sessions have taken all that they may have for {ROOM_SECONDS} seconds.",
                hint="Repeat the statement later, or send its values in smaller ones, or with COPY.",
            )
        self._without_room_since = None
        self._taken += 0 if refusal is not None or self.room is None else length
        self._begun = FrontendMessage(kind, b"", refusal)
        self._body = bytearray()  # it grows with what comes: to clear its memory at once would hold the interpreter's lock
        return True

    def _too_long(self, kind: str, length: int) -> PostgresError | None:
        """Why a message of that length is not taken, whatever others take."""
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
        """Wait a moment for other sessions' messages to end; return False when interrupted."""
        if self.client_gone():
            raise ConnectionBroken("the client has closed the connection")
        return not self._woken(readable_of([self._wakened], ROOM_LOOK_SECONDS))

    def release_room(self) -> None:
        """The messages that have been received are not needed any more."""
        if self._taken and self.room is not None:
            self.room.give(self._taken)
        self._taken = 0

    def _part(self) -> FrontendMessage | None:
        """What has come of a large message: of CopyData as a CopyData of its own, else nothing until all has come."""
        begun, piece = self._begun, memoryview(self._in)[: self._coming]
        length = len(piece)
        body = bytes(piece) if begun is None else b""
        if begun is not None and begun.refusal is None:
            self._body += piece
        piece.release()
        del self._in[:length]
        self._coming -= length
        if begun is None:
            return FrontendMessage("d", body) if body else None
        if self._coming:
            return None
        body, self._body = bytes(self._body), bytearray()
        return replace(begun, body=body)

    def _wait(self, deadline: float | None) -> bool:
        """Waits for bytes; False when interrupted, TimeoutError at the deadline."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            readable = readable_of([self.socket, self._wakened], timeout)
        except (OSError, ValueError) as error:
            raise ConnectionBroken("the socket is closed") from error
        if self._woken(readable):
            return False
        if not readable:
            raise TimeoutError
        return True

    def _woken(self, readable: list[socket.socket]) -> bool:
        """Whether `interrupt` has been called."""
        if self._wakened not in readable:
            return False
        with contextlib.suppress(OSError):
            while self._wakened.recv(BLOCK):
                pass
        self.interrupted = True
        return True

    def _read(self) -> None:
        data = self._received()
        if not data:
            raise ConnectionBroken("the client has closed the connection")
        self._in += data if self.tls is None else self._opened(self.tls, data)

    def _received(self) -> bytes:
        try:
            return self.socket.recv(BLOCK)
        except OSError as error:
            raise ConnectionBroken(str(error)) from error

    @staticmethod
    def _opened(tls: TlsStream, data: bytes) -> bytes:
        if tls.ended:
            raise ConnectionBroken("the client has closed the connection")
        try:
            return tls.opened(data)
        except ssl.SSLError as error:
            _log.info("SSL error: %s", reason(error))
            raise ConnectionBroken("the client has sent something that is no TLS") from error

    def client_gone(self) -> bool:
        """Whether the client has closed its side, whatever it has said before; reads nothing away, and may be asked by any thread."""
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    # ---- out --------------------------------------------------------------------------------------------
    def write(self, data: bytes | memoryview) -> None:
        """Puts frames behind what waits to be sent."""
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Sends everything that waits."""
        if self._sending:
            return
        parts, self._out, self._out_size = self._out, [], 0
        if not parts:
            return
        try:
            for piece in self._sealed(parts[0] if len(parts) == 1 else b"".join(parts)):
                self.socket.sendall(piece)
        except (OSError, ValueError) as error:
            raise ConnectionBroken(str(error)) from error

    def flush_while(self, pump: Callable[[], None], data: bytes | memoryview = b"") -> None:
        """Send what waits, and `data` behind it.

        While the socket takes no more, `pump` is called when the client has sent something, or every 100 ms.

        What `pump` writes goes behind what is being sent. What it raises is raised once the frames are out, so that an error
        message never stands inside of one; a FATAL error at once.
        """
        parts, self._out, self._out_size = [*self._out, data], [], 0
        raised: Exception | None = None
        for part in parts:
            for piece in self._sealed(part):
                raised = self._send_while(pump, piece) or raised
        if raised is not None:
            raise raised

    def _sealed(self, data: bytes | memoryview) -> Iterable[bytes | memoryview]:
        """The bytes for the socket."""
        return (data,) if self.tls is None else self.tls.sealed(data)

    def _send_while(self, pump: Callable[[], None], data: bytes | memoryview) -> Exception | None:
        raised: Exception | None = None
        rest = memoryview(data).cast("B")
        while rest:
            try:
                sent = self.socket.send(rest, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if self._full():
                    raised = self._pumped(pump) or raised
                continue
            except (OSError, ValueError) as error:
                raise ConnectionBroken(str(error)) from error
            rest = rest[sent:]
        return raised

    def _full(self) -> bool:
        """Waits for room in the socket; whether there is none but something else to do."""
        poller = select.poll()
        poller.register(self.socket.fileno(), select.POLLIN | select.POLLOUT)
        return not any(event & select.POLLOUT for _, event in poller.poll(100))

    def _pumped(self, pump: Callable[[], None]) -> Exception | None:
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
        """Makes the thread that waits in `receive` or `poll` look up (it gets None); from any thread."""
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Ends the connection; from any thread."""
        with contextlib.suppress(OSError, ValueError):
            if self.tls is not None:
                self.socket.send(self.tls.farewell(), socket.MSG_DONTWAIT)
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        for sock in (self.socket, self._waker, self._wakened):
            with contextlib.suppress(OSError):
                sock.close()


def readable_of(sockets: list[socket.socket], timeout: float | None) -> list[socket.socket]:
    """select() without its limit of 1024 descriptors: the sockets that can be read or have an error."""
    poller = select.poll()
    by_number = {sock.fileno(): sock for sock in sockets}
    for number in by_number:
        poller.register(number, select.POLLIN)
    found = poller.poll(None if timeout is None else timeout * 1000)
    return [by_number[number] for number, _ in found]
