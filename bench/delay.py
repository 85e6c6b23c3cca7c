"""A proxy that simulates a distant object store: it delays each HTTP request by some milliseconds before the store gets it.

Used by `cluster` between nodes and the store. It runs in its own process and does not parse bodies. The first bytes from the client
after a response begin a request, because no client here pipelines requests. ``100 Continue`` does not count as a response. Connections
are persistent, and do not wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
from collections.abc import Callable
from pathlib import Path

READ = 1 << 20
CONTINUE = b"HTTP/1.1 100 "


class Delay:
    """The proxy's process. It listens on `port`. `log` gets a line for each request: its time, the time of the response, its first line."""

    def __init__(self, target: int, log: Path | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._seconds, self._requests = context.Value("d", 0.0), context.Value("Q", 0)
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            self.port: int = listener.getsockname()[1]
            arguments = (listener, target, self._seconds, self._requests, log)
            self._process = context.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()

    @property
    def milliseconds(self) -> float:
        """Return the delay of each request."""
        return float(self._seconds.value) * 1000

    @milliseconds.setter
    def milliseconds(self, value: float) -> None:
        self._seconds.value = value / 1000

    @property
    def requests(self) -> int:
        """Return the number of requests since the start."""
        return int(self._requests.value)

    def end(self) -> None:
        """Kill the process, which closes all connections."""
        self._process.kill()
        self._process.join()


class _Connection:
    """A client's connection, and the connection to the store that forwards it."""

    def __init__(self, count_request: Callable[[], float], log_response: Callable[[float, bytes], None]) -> None:
        self._count_request, self._log_response = count_request, log_response
        self._request: tuple[float, bytes] | None = None
        """The time and the first line of the request that the store has not answered yet."""

    async def forward_requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Copy bytes from the client to the store."""
        while data := await source.read(READ):
            if self._request is None:
                self._request = asyncio.get_running_loop().time(), data.partition(b"\r\n")[0]
                await asyncio.sleep(self._count_request())
            sink.write(data)
            await sink.drain()

    async def forward_responses(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Copy bytes from the store to the client."""
        while data := await source.read(READ):
            if self._request is not None and not data.startswith(CONTINUE):
                self._log_response(*self._request)
                self._request = None
            sink.write(data)
            await sink.drain()


def _serve(listener: socket.socket, target: int, seconds: object, requests: object, log: Path | None) -> None:
    """Run the proxy. This is the main function of its process."""
    log_file = log.open("w", buffering=1) if log is not None else None

    def count_request() -> float:
        requests.value += 1  # type: ignore[attr-defined]
        return float(seconds.value)  # type: ignore[attr-defined]

    def log_response(request_time: float, line: bytes) -> None:
        if log_file is not None:
            log_file.write(f"{request_time:.4f} {asyncio.get_running_loop().time():.4f} {line.decode(errors='replace')}\n")

    async def forward(client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        store = None
        try:
            store_reader, store = await asyncio.open_connection("127.0.0.1", target, limit=READ)
            connection = _Connection(count_request, log_response)
            directions = connection.forward_requests(client_reader, store), connection.forward_responses(store_reader, client)
            tasks = [asyncio.create_task(direction) for direction in directions]
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass  # the store does not accept connections; the client's connection is closed below
        finally:
            for writer in (client, store):
                if writer is not None:
                    writer.close()

    async def run() -> None:
        server = await asyncio.start_server(forward, sock=listener, limit=READ)
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())
