"""The COPY subprotocols (manual, 55.2.7).

`copy_out` sends the elements of a command's output as CopyData. `copy_in` passes the client's CopyData to a command as they arrive.
After an error during COPY IN the session skips the client's remaining copy messages. While a COPY runs, the backend shows its progress
(pg_stat_progress_copy).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headgate.errors import PostgresError, Severity
from headgate.server.protocol import data_row
from headgate.server.protocol import message as protocol

if TYPE_CHECKING:
    from headgate.commands.result import CopyIn, CopyOut, CopyProgress
    from headgate.server.session.session import ClientSession


def copy_out(session: ClientSession, copy: CopyOut) -> str:
    """Send CopyOutResponse, the data and CopyDone. Return the command tag."""
    session.send_notices()
    session.connection.write(protocol.copy_response(b"H", copy.columns, binary=copy.binary))
    session.backend.copy = copy.progress
    try:
        for lines in copy.lines:
            session.interrupts.check()
            copy.progress.bytes += pc.sum(pc.binary_length(lines)).as_py() or 0
            for frames in data_row.copy_data(lines):
                session.connection.write(frames)
    finally:
        session.backend.copy = None
        close = getattr(copy.lines, "close", None)
        if close is not None:
            close()
    session.connection.write(protocol.COPY_DONE)
    return f"COPY {copy.progress.rows}"


def copy_in(session: ClientSession, copy: CopyIn) -> str:
    """Send CopyInResponse and pass the client's data to the command. Return the command tag."""
    session.send_notices()
    session.connection.write(protocol.copy_response(b"G", copy.columns, binary=copy.binary))
    session.connection.flush()
    pieces = _pieces(session, copy.progress)
    session.backend.copy = copy.progress
    try:
        copy.consume(pieces)
        for _ in pieces:  # data after the end-of-data marker of the text format
            pass
    finally:
        session.backend.copy = None
    return f"COPY {copy.progress.rows}"


def _pieces(session: ClientSession, progress: CopyProgress) -> Iterator[bytes]:
    while True:
        message = session.connection.poll(None)
        session.interrupts.check()
        if message is None or message.kind in "HS":
            continue
        if message.kind == "d":
            progress.bytes += len(message.body)
            yield message.body
        elif message.kind == "c":
            return
        elif message.kind == "f":
            reader = protocol.FrontendReader(message.body, session.connection.encoding)
            raise PostgresError("57014", f"COPY from stdin failed: {reader.string()}")
        elif message.kind == "X":
            raise PostgresError("08006", "unexpected EOF on client connection with an open transaction", severity=Severity.FATAL)
        else:
            text = f"unexpected message type 0x{ord(message.kind):02X} during COPY from stdin"
            raise PostgresError("08P01", text, severity=Severity.FATAL)
