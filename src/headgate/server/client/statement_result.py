"""Runs one statement and sends its result: rows, COPY data or just the command tag.

`ResultSender.run_simple` does both for the simple query protocol. The extended query protocol runs a statement with `start` and sends the
portal's rows itself. Statements of the session (BEGIN, SET, PREPARE, FETCH …) are run by `utility`, all others by
`headgate.commands.execute`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headgate.commands.result import CopyIn, CopyOut
from headgate.errors import PostgresError, Severity
from headgate.server.protocol import data_row
from headgate.server.protocol import message as protocol
from headgate.server.protocol import portal as portals
from headgate.server.protocol.row_source import RowSource
from headgate.server.session import utility
from headgate.sql import command_tag, parser
from headgate.types.resultset import ResultSet

if TYPE_CHECKING:
    from headgate.commands.result import CommandResult, CopyProgress, Result
    from headgate.server.session.session import ClientSession
    from headgate.sql.parser import Statement


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


class ResultSender:
    """Runs statements for one session."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    def start(self, statement: Statement) -> Result | str:
        """Run the statement until its result is available: a ResultSet with lazy batches, a command tag, or a COPY."""
        session = self.session
        session.show(command_tag.of(statement.node))
        if not utility.allowed_when_failed(statement):
            session.block.check_not_failed()
            session.use_types()
        if utility.handles(statement):
            return utility.run(session, statement)
        from headgate.commands.execute import execute

        session.block.touch()
        with session.executing():
            return execute(statement.node, session)

    def run_simple(self, statement: Statement) -> str:
        """Run the statement, send its row description and rows, and return the command tag."""
        session = self.session
        result = self.start(statement)
        if isinstance(result, ResultSet):
            source = RowSource(result)
            formats = (int(result.binary),) * len(result.columns)
            session.send_notices()
            self.describe(result, formats)
            try:
                portals.send(session.connection, source.take(0), source.columns, formats, session.context.forms)
            finally:
                source.close()
            return result.command_tag
        return self.tag_of(result)

    def tag_of(self, result: str | CommandResult | CopyIn | CopyOut) -> str:
        """Return the command tag of a result without rows. Transfer the data of a COPY first."""
        if isinstance(result, str):
            return result
        if isinstance(result, CopyIn):
            return copy_in(self.session, result)
        if isinstance(result, CopyOut):
            return copy_out(self.session, result)
        return str(result.tag)

    def count(self, statement: Statement, began: float, tag: str, *, calls: int = 1) -> None:
        """Count a statement that has ended in pg_stat_statements. `began`: time.monotonic. `calls`: 0 if it continues an earlier portal."""
        if statement.length > parser.SMALL:  # such statements are not counted; return before the text is copied
            return
        context, duration = self.session.context, (time.monotonic() - began) * 1000
        self.session.node.statements.ran(context.user_oid, context.database, statement.source, statement.kind, duration, tag, calls=calls)

    def describe(self, result: ResultSet, formats: tuple[int, ...]) -> None:
        connection = self.session.connection
        connection.write(protocol.row_description(result.columns, formats, connection.encoding))
