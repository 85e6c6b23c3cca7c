"""The simple query protocol: one query string, one transaction, one ReadyForQuery (manual, 55.2.2).

The session calls `SimpleQuery.run` for each Query message. On a replication connection the string is a replication command if it starts
with the keyword of one, and SQL otherwise.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.server.client import audit
from headgate.server.client.statement_result import ResultSender
from headgate.server.protocol import message
from headgate.sql import parser

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


class SimpleQuery:
    """Runs the query strings of one session."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.sender = ResultSender(session)

    def run(self, body: bytes) -> None:
        """Run the statements of one Query message. The first error ends it."""
        session = self.session
        encoding = session.connection.encoding
        reader = message.FrontendReader(body, encoding)
        raw = reader.raw_string()
        reader.end()
        text = encoding.decode(raw)
        session.start(text)
        began = time.monotonic()
        session.portals.close("")
        session.prepared.remove("")
        if session.walsender is not None and session.walsender.run(text):
            return
        statements = parser.parse(text)
        if not statements:
            session.connection.write(message.EMPTY_QUERY)
            return
        with session.share.running(statements[0].weight):
            self._run(text, statements, began)

    def _run(self, text: str, statements: list[parser.Statement], began: float) -> None:
        session = self.session
        logged = audit.statements(session, text, statements)
        session.block.several = len(statements) > 1
        for index, statement in enumerate(statements):
            session.interrupts.check()
            if index:
                session.interrupts.time(session.settings.milliseconds("statement_timeout"))
            session.parameters = ()
            began_alone = time.monotonic()
            tag = self.sender.run_simple(statement)
            if index == len(statements) - 1:
                self._finish()
            self.sender.count(statement, began_alone, tag)
            session.send_notices()
            session.connection.write(message.command_complete(tag))
        audit.simple_duration(session, text, statements, began, logged=logged)

    def _finish(self) -> None:
        session = self.session
        session.block.finish()
