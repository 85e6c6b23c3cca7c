"""The built-in hook of ``headgate hook``: sends each batch of changes to an HTTP server, as an Arrow IPC stream in a POST request.

The environment variable HEADGATE_HOOK_AUTHORIZATION is sent as the header Authorization. It is not an option, because other users of the
machine see the options of a process.
"""

from __future__ import annotations

import contextlib
import http.client
import os
from urllib.parse import quote, urlsplit

import pyarrow as pa

from headgate.cli.message import fail

CONTENT_TYPE = "application/vnd.apache.arrow.stream"


class HttpHook:
    """A hook that sends batches to an address. Any answer but 2xx is an exception, redirections included."""

    def __init__(self, address: str, timeout: float) -> None:
        parts = urlsplit(address)
        try:
            port = parts.port
        except ValueError:
            fail("invalid port in the address of the HTTP server")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            fail("invalid address of the HTTP server", "Give http://host/path or https://host/path, without a user name.")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._timeout = parts.hostname, port, timeout
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def __call__(self, table: str, batch: pa.RecordBatch) -> None:
        """Send a batch. Raise an exception unless the server has accepted it."""
        headers = {"Content-Type": CONTENT_TYPE, "Headgate-Table": quote(table)}
        if authorization := os.environ.get("HEADGATE_HOOK_AUTHORIZATION"):
            headers["Authorization"] = authorization
        body = pa.BufferOutputStream()
        with pa.ipc.new_stream(body, batch.schema) as stream:
            stream.write_batch(batch)
        with contextlib.closing(self._kind(self._host, self._port, timeout=self._timeout)) as connection:
            connection.request("POST", self._path, body.getvalue().to_pybytes(), headers)
            answer = connection.getresponse()
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"the HTTP server answered with status {answer.status}")
