"""The HTTP port for metrics: `metrics_listen_addresses`, `metrics_port`.

One thread of the node serves all requests; the node starts it if `metrics_port` is not 0. Invariant: the cost of a client is
limited, whatever it sends:

    connections     `MOST` at a time; one more closes the oldest
    a connection    ends with its response, or after `SECONDS`; it may send `REQUEST_BYTES`; the thread never blocks on it
    a response      is gathered at most once in `FRESH` seconds and in ten times the duration of gathering, for all clients together

A scrape can be as old as that. If sockets cannot be bound, the thread retries (`supervision`); the node works without them.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headgate.errors import PostgresError
from headgate.server.listener import listening_socket, places
from headgate.supervision import Supervised

_log = logging.getLogger("headgate.server")

MOST = 32
SECONDS = 10.0
REQUEST_BYTES = 8192
FRESH = 1.0
SHARE = 10
REST_SECONDS = 0.1
"""How long no connection is accepted after descriptors have run out."""
PATH = "/metrics"

Render = Callable[[bool], tuple[str, bytes]]
"""Takes whether the client accepts OpenMetrics. Returns content type and body."""


@dataclass(eq=False)
class _Client:
    """A connection with its request and the unsent part of its response."""

    socket: socket.socket
    until: float
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None


class Scrape(Supervised):
    """The thread that serves metrics, as the module describes."""

    def __init__(self, addresses: list[str], port: int, gather: Callable[[], Render]) -> None:
        """`gather` reads the metrics and returns the function that renders them."""
        super().__init__("metrics", self._serve_all, patience=5)
        self._addresses, self.port, self._gather = addresses, port, gather
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._clients: dict[socket.socket, _Client] = {}
        """By socket, oldest first."""
        self._render: Render | None = None
        self._stale = 0.0

    def stop(self) -> None:
        """End the thread and close its sockets."""
        with contextlib.suppress(OSError):
            self._stop_writer.send(b"\0")
        super().stop()
        for sock in (self._stop_reader, self._stop_writer):
            sock.close()

    # ---- the thread -------------------------------------------------------------------------------------
    def _serve_all(self) -> None:
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            stack.callback(self._close_all)
            listening = list(self._open(stack))
            for sock in listening:
                selector.register(sock, selectors.EVENT_READ)
            selector.register(self._stop_reader, selectors.EVENT_READ)
            rest_until = 0.0
            while True:
                for key, _ in selector.select(0.5 if self._clients else None):
                    if key.fileobj is self._stop_reader:
                        return
                    if key.fileobj in listening:
                        if time.monotonic() >= rest_until and not self._accept(selector, key.fileobj):
                            rest_until = time.monotonic() + REST_SECONDS
                            time.sleep(REST_SECONDS)
                    elif isinstance(key.fileobj, socket.socket) and (client := self._clients.get(key.fileobj)) is not None:
                        self._serve(selector, client)
                self._end_late(selector)

    def _open(self, stack: contextlib.ExitStack) -> Iterator[socket.socket]:
        """Yield the listening sockets. Raise 58030 if none could be bound."""
        is_bound = False
        failure = "no address"
        for address in self._addresses:
            for family, address_port in places(address, self.port):
                try:
                    sock = stack.enter_context(listening_socket(family, address_port, MOST))
                except OSError as error:
                    failure = error.strerror or str(error)
                    _log.info('could not bind address "%s", port %d for metrics: %s', address_port[0], self.port, failure)
                    continue
                is_bound = True
                _log.info('serving metrics on address "%s", port %d', address_port[0], self.port)
                yield sock
        if not is_bound:
            raise PostgresError("58030", f"could not create any sockets for metrics: {failure}")

    def _accept(self, selector: selectors.BaseSelector, listening: socket.socket) -> bool:
        """Accept a connection. Return False if descriptors have run out."""
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return True
        except OSError:
            return False
        sock.setblocking(False)
        if len(self._clients) >= MOST:
            self._close(selector, next(iter(self._clients.values())))
        self._clients[sock] = _Client(sock, time.monotonic() + SECONDS)
        selector.register(sock, selectors.EVENT_READ)
        return True

    def _serve(self, selector: selectors.BaseSelector, client: _Client) -> None:
        """Read or write as far as possible without blocking."""
        try:
            done = self._read(selector, client) if client.answer is None else self._write(client)
        except BlockingIOError:
            return
        except OSError:
            done = True
        if done:
            self._close(selector, client)

    def _read(self, selector: selectors.BaseSelector, client: _Client) -> bool:
        """Read a part of the request. Return whether the connection is finished."""
        data = client.socket.recv(REQUEST_BYTES)
        client.request += data
        ended = b"\r\n\r\n" in client.request or b"\n\n" in client.request
        if not ended and len(client.request) < REQUEST_BYTES:
            return not data
        client.answer = memoryview(self._answer(bytes(client.request)) if ended else _response("431 Request Header Fields Too Large"))
        client.request.clear()
        selector.modify(client.socket, selectors.EVENT_WRITE)
        return self._write(client)

    @staticmethod
    def _write(client: _Client) -> bool:
        """Send a part of the response. Return whether it is complete."""
        assert client.answer is not None
        client.answer = client.answer[client.socket.send(client.answer) :]
        if client.answer:
            return False
        client.socket.shutdown(socket.SHUT_WR)
        return True

    def _answer(self, request: bytes) -> bytes:
        head, *lines = request.decode("latin-1").replace("\r\n", "\n").split("\n")
        method, _, rest = head.partition(" ")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed")
        if rest.split(" ")[0].partition("?")[0] != PATH:
            return _response("404 Not Found", body=f"metrics are at {PATH}\n".encode())
        accept = next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("accept:")), "")
        try:
            kind, body = self._current()("application/openmetrics-text" in accept.lower())
        except Exception:  # noqa: BLE001 (the next request tries again)
            _log.exception("could not gather metrics")
            return _response("500 Internal Server Error")
        return _response("200 OK", kind, body, with_body=method == "GET")

    def _current(self) -> Render:
        """Return the metrics. Gather them again if they are too old."""
        began = time.monotonic()
        if self._render is None or began >= self._stale:
            self._render = self._gather()
            ended = time.monotonic()
            self._stale = ended + max(FRESH, SHARE * (ended - began))
        return self._render

    def _end_late(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        while self._clients and (oldest := next(iter(self._clients.values()))).until <= now:
            self._close(selector, oldest)

    def _close(self, selector: selectors.BaseSelector, client: _Client) -> None:
        selector.unregister(client.socket)
        self._clients.pop(client.socket, None)
        client.socket.close()

    def _close_all(self) -> None:
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()


def _response(status: str, kind: str = "text/plain; charset=utf-8", body: bytes = b"", *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + (body if with_body else b"")
