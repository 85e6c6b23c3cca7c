"""Tests whether a node answers a client that connects now.

Called by `status`. A successful connect proves nothing, because the kernel accepts connections before the node does. So the probe
requests encryption by GSSAPI, as libpq may do first: ``N`` is an answer that needs no handshake, and an ErrorResponse has the reason.
"""

from __future__ import annotations

import socket
import struct

from headgate.cli.pidfile import Running

SECONDS = 10.0
"""The seconds that a node has to answer."""
_GSSENC_REQUEST = struct.pack("!ii", 8, 80877104)


def trouble(running: Running) -> str | None:
    """Return why the node does not answer, or None if it does. A node that does not listen anywhere counts as answering."""
    if not running.address and not running.directory:
        return None
    try:
        with _connect(running, SECONDS) as connection:
            connection.sendall(_GSSENC_REQUEST)
            answer = connection.recv(4096)
    except TimeoutError:
        return f"no answer within {SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    if answer[:1] in {b"N", b"G"}:
        return None
    fields = answer[5:].split(b"\0") if answer[:1] == b"E" else []
    message = next((field[1:].decode(errors="replace") for field in fields if field[:1] == b"M"), "")
    return message or "it closes connections at once"


def _connect(running: Running, seconds: float) -> socket.socket:
    if running.address:
        return socket.create_connection((running.host, running.port), seconds)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(f"{running.directory}/.s.PGSQL.{running.port}")
    except OSError:
        connection.close()
        raise
    return connection
