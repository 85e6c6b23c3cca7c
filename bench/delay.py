"""A proxy that makes an object store far: each HTTP request waits for some milliseconds before the store gets it.

Used by `cluster` between nodes and the store. It is a process of its own and looks at no body: on a connection, the first bytes that come
from the client behind an answer begin a request (nobody here sends a second one before the first is answered), and ``100 Continue`` is no
answer. Connections are kept, and none waits for another.
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
    """The process; `port` is where it listens, `log` gets a line for each request: when it came, when its answer began, what it was."""

    def __init__(self, target: int, log: Path | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._seconds, self._requests = context.Value("d", 0.0), context.Value("Q", 0)
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            self.port: int = listener.getsockname()[1]
            given = (listener, target, self._seconds, self._requests, log)
            self._process = context.Process(target=_serve, args=given, daemon=True)
            self._process.start()

    @property
    def milliseconds(self) -> float:
        """What each request waits."""
        return float(self._seconds.value) * 1000

    @milliseconds.setter
    def milliseconds(self, value: float) -> None:
        self._seconds.value = value / 1000

    @property
    def requests(self) -> int:
        """How many there have been."""
        return int(self._requests.value)

    def end(self) -> None:
        """Ends the process, and all connections with it."""
        self._process.kill()
        self._process.join()


class _Connection:
    """One client's connection and the one to the store that belongs to it."""

    def __init__(self, begun: Callable[[], float], answered: Callable[[float, bytes], None]) -> None:
        self._begun, self._answered = begun, answered
        self._request: tuple[float, bytes] | None = None
        """That which is not answered yet: when it came, its first line."""

    async def ask(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """From the client to the store."""
        while data := await source.read(READ):
            if self._request is None:
                self._request = asyncio.get_running_loop().time(), data.partition(b"\r\n")[0]
                await asyncio.sleep(self._begun())
            sink.write(data)
            await sink.drain()

    async def answer(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """From the store to the client."""
        while data := await source.read(READ):
            if self._request is not None and not data.startswith(CONTINUE):
                self._answered(*self._request)
                self._request = None
            sink.write(data)
            await sink.drain()


def _serve(listener: socket.socket, target: int, seconds: object, requests: object, log: Path | None) -> None:
    """The process."""
    said = log.open("w", buffering=1) if log is not None else None

    def begun() -> float:
        requests.value += 1  # type: ignore[attr-defined]
        return float(seconds.value)  # type: ignore[attr-defined]

    def answered(came: float, line: bytes) -> None:
        if said is not None:
            said.write(f"{came:.4f} {asyncio.get_running_loop().time():.4f} {line.decode(errors='replace')}\n")

    async def connected(client_says: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        store = None
        try:
            store_says, store = await asyncio.open_connection("127.0.0.1", target, limit=READ)
            connection = _Connection(begun, answered)
            ways = [asyncio.create_task(each) for each in (connection.ask(client_says, store), connection.answer(store_says, client))]
            _, other = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for each in other:
                each.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the store does not take connections: the client sees its own end
        finally:
            for end in (client, store):
                if end is not None:
                    end.close()

    async def run() -> None:
        server = await asyncio.start_server(connected, sock=listener, limit=READ)
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())
