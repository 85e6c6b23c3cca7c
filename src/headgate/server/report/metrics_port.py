"""The HTTP port for metrics: `metrics_listen_addresses`, `metrics_port`.

One thread of the node serves all requests; the node starts it if `metrics_port` is not 0. Invariant: the cost of a client is
limited, whatever it sends:

    connections     `MOST` at a time; one more closes the oldest
    a connection    ends with its response, or after `SECONDS`; it may send `REQUEST_BYTES`; the thread never blocks on it
    a response      is gathered at most once in `FRESH` seconds and in ten times the duration of gathering, for all clients together

A scrape can be as old as that. If sockets cannot be bound, the thread retries (`supervision`); the node works without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterator
from socket import socket

from headgate.errors import PostgresError
from headgate.server.listener import listening_socket, places
from headgate.supervision import Supervised

_log = logging.getLogger("headgate.server")

MOST = 32
SECONDS = 10.0
REQUEST_BYTES = 8192
FRESH = 1.0
SHARE = 10
STOP_SECONDS = 0.2
"""The interval at which the thread looks whether it is to end."""
PATH = "/metrics"

Render = Callable[[bool], tuple[str, bytes]]
"""Takes whether the client accepts OpenMetrics. Returns content type and body."""


class Scrape(Supervised):
    """The thread that serves metrics, as the module describes."""

    def __init__(self, addresses: list[str], port: int, gather: Callable[[], Render]) -> None:
        """`gather` reads the metrics and returns the function that renders them."""
        super().__init__("metrics", lambda: asyncio.run(self._serve_all()), patience=5)
        self._addresses, self.port, self._gather = addresses, port, gather
        self._clients: list[StreamWriter] = []
        """The connections, oldest first."""
        self._render: Render | None = None
        self._stale = 0.0

    # ---- the thread -------------------------------------------------------------------------------------
    async def _serve_all(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._end_all)
            for sock in list(self._open(stack)):
                await stack.enter_async_context(await asyncio.start_server(self._serve, sock=sock, limit=REQUEST_BYTES, backlog=MOST))
            while not self.stopping.is_set():
                await asyncio.sleep(STOP_SECONDS)

    def _end_all(self) -> None:
        for writer in self._clients:
            writer.transport.abort()
        self._clients.clear()

    def _open(self, stack: contextlib.AsyncExitStack) -> Iterator[socket]:
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

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one connection."""
        self._clients.append(writer)
        if len(self._clients) > MOST:
            self._clients.pop(0).transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                writer.write(await self._read_and_answer(reader))
                writer.close()
                await writer.wait_closed()
        writer.transport.abort()
        if writer in self._clients:
            self._clients.remove(writer)

    async def _read_and_answer(self, reader: StreamReader) -> bytes:
        """Read a request and return the response. It is empty if the client ends before its request does."""
        request = b""
        with contextlib.suppress(ValueError):  # a line of more than REQUEST_BYTES
            async for line in reader:
                request += line
                if len(request) > REQUEST_BYTES:
                    break
                if not line.strip(b"\r\n"):
                    return self._answer(request)
            else:
                return b""
        return _response("431 Request Header Fields Too Large")

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


def _response(status: str, kind: str = "text/plain; charset=utf-8", body: bytes = b"", *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + (body if with_body else b"")
