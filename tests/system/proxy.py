"""A TCP proxy that cuts connections, stalls them, or limits their rate on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Self


class Proxy:
    """A proxy with a separate port that forwards all bytes to and from the port `target`.

    `rate` limits the bytes per second. While `stalled` is true, nothing is forwarded.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.rate: float | None = None
        self.stalled = False
        self.before: Callable[[bytes], None] | None = None
        """Called with bytes before they are forwarded, in the thread of their connection."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections at once."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for end_of_connection in (client, server):
                end_of_connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                while self.stalled and not self._closed:
                    time.sleep(0.05)
                if self.rate is not None:
                    time.sleep(len(data) / self.rate)
                if self.before is not None:
                    self.before(data)
                sink.sendall(data)
        self._end(source, sink)

    def _end(self, *ends: socket.socket) -> None:
        """Close both ends of a connection."""
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._open.discard(end)
            with contextlib.suppress(OSError):
                end.close()
