"""The benchmark's proxy delays each request once, however it is sent, and no connection waits for another."""

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
from tests.conftest import until

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
        delay_proxy = Delay(server.server_port)
        yield delay_proxy
        delay_proxy.end()
        server.shutdown()


def put(connection: http.client.HTTPConnection, body: bytes) -> float:
    """Send a request and return its seconds."""
    began = time.perf_counter()
    connection.request("PUT", "/file", body)
    assert connection.getresponse().read() == body
    return time.perf_counter() - began


def test_each_request_of_a_persistent_connection_is_delayed_once(delay: Delay) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", delay.port)
    delay.milliseconds = 0
    put(connection, b"the process is up")
    delay.milliseconds = MILLISECONDS

    def is_delayed_once() -> bool:
        requests_before = delay.requests
        durations = [put(connection, body) for body in (b"", b"small", BODY)]
        assert all(seconds >= MILLISECONDS / 1000 for seconds in durations)
        assert delay.requests - requests_before == 3
        return sum(durations) < 6 * MILLISECONDS / 1000

    until(is_delayed_once, "each attempt takes as long as two delays")  # on a busy machine the first attempt can
    connection.close()


def test_body_that_waits_for_100_continue_is_part_of_its_request(delay: Delay) -> None:
    delay.milliseconds = 0
    requests_before = delay.requests
    with socket.create_connection(("127.0.0.1", delay.port)) as client:
        client.sendall(b"PUT /file HTTP/1.1\r\nHost: store\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"body")
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 200 ")

    assert delay.requests - requests_before == 1


@pytest.mark.slow
def test_connections_are_delayed_concurrently(delay: Delay) -> None:
    delay.milliseconds, connections = MILLISECONDS, 40
    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(lambda _: put(http.client.HTTPConnection("127.0.0.1", delay.port), b"body"), range(connections)))

    assert time.perf_counter() - began < connections * MILLISECONDS / 1000 / 2, "sequential requests would take twice as long"
