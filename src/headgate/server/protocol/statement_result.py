"""Runs one statement and sends what comes of it: rows, COPY data, or just the tag.

`ResultSender.run_simple` does both at once for the simple query; the extended query starts a statement with `start` and sends its
portal's rows by itself. Statements of the session itself (BEGIN, SET, PREPARE, FETCH …) go to `utility`, all
others to `headgate.commands.execute`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.commands.result import CopyIn, CopyOut
from headgate.server.protocol import message
from headgate.server.protocol import portal as portals
from headgate.server.protocol.copying import copy_in, copy_out
from headgate.server.protocol.portal import RowSource
from headgate.server.session import utility
from headgate.sql import command_tag, parser
from headgate.types.resultset import ResultSet

if TYPE_CHECKING:
    from headgate.commands.result import CommandResult, Result
    from headgate.server.session.session import ClientSession
    from headgate.sql.parser import Statement


class ResultSender:
    """Runs statements for one session."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    def start(self, statement: Statement) -> Result | str:
        """Runs the statement as far as its result is known: a ResultSet whose batches are lazy, a tag, or a COPY."""
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
            return execute(statement.node, statement.text, session)

    def run_simple(self, statement: Statement) -> str:
        """Runs the statement, sends its rows with their description; returns the tag."""
        session = self.session
        result = self.start(statement)
        if isinstance(result, ResultSet):
            source = RowSource(result)
            formats = (int(result.binary),) * len(result.columns)
            session.send_notices()
            self.describe(result, formats)
            try:
                portals.send(session.connection, source, 0, formats, session.context.forms)
            finally:
                source.close()
            return result.command_tag
        return self.tag_of(result)

    def tag_of(self, result: str | CommandResult | CopyIn | CopyOut) -> str:
        """The tag of a result without rows; COPY takes its data first."""
        if isinstance(result, str):
            return result
        if isinstance(result, CopyIn):
            return copy_in(self.session, result)
        if isinstance(result, CopyOut):
            return copy_out(self.session, result)
        return str(result.tag)

    def count(self, statement: Statement, began: float, tag: str, *, calls: int = 1) -> None:
        """Counts a statement that has ended for pg_stat_statements; `began` by time.monotonic, `calls` 0 where a portal goes on."""
        if statement.length > parser.SMALL:  # not counted there: not even copied here
            return
        context, took = self.session.context, (time.monotonic() - began) * 1000
        self.session.node.statements.ran(context.user_oid, context.database, statement.source, statement.kind, took, tag, calls=calls)

    def describe(self, result: ResultSet, formats: tuple[int, ...]) -> None:
        """RowDescription of a result."""
        connection = self.session.connection
        connection.write(message.row_description(result.columns, formats, connection.encoding))
