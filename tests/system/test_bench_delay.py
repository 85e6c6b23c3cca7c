"""The proxy of the benchmark that has each request wait: once a request, however it is sent, and no connection for another."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from bench.delay import Delay

BODY = b"x" * 3_000_000
MILLISECONDS = 200


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def delay() -> Iterator[Delay]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = Delay(server.server_port)
        yield made
        made.end()
        server.shutdown()


def put(connection: http.client.HTTPConnection, body: bytes) -> float:
    """Seconds of one request."""
    began = time.perf_counter()
    connection.request("PUT", "/file", body)
    assert connection.getresponse().read() == body
    return time.perf_counter() - began


def test_each_request_of_a_kept_connection_waits_once(delay: Delay) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", delay.port)
    delay.milliseconds = 0
    put(connection, b"the process is up")
    before = delay.requests

    delay.milliseconds = MILLISECONDS
    taken = [put(connection, body) for body in (b"", b"small", BODY)]

    assert all(seconds >= MILLISECONDS / 1000 for seconds in taken)
    assert sum(taken) < 6 * MILLISECONDS / 1000
    assert delay.requests - before == 3
    connection.close()


def test_a_body_that_waits_for_100_is_part_of_its_request(delay: Delay) -> None:
    delay.milliseconds = 0
    before = delay.requests
    with socket.create_connection(("127.0.0.1", delay.port)) as client:
        client.sendall(b"PUT /file HTTP/1.1\r\nHost: store\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"body")
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 200 ")

    assert delay.requests - before == 1


def test_connections_wait_beside_each_other(delay: Delay) -> None:
    delay.milliseconds, connections = MILLISECONDS, 40
    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(lambda _: put(http.client.HTTPConnection("127.0.0.1", delay.port), b"body"), range(connections)))

    assert time.perf_counter() - began < connections * MILLISECONDS / 1000 / 2, "one behind another it would take twice that"
