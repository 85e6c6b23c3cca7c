"""The extended query protocol: Parse, Bind, Describe, Execute, Close, Flush and Sync (manual, 55.2.3).

`message_loop` calls `message` for each message that it does not skip, and `sync` at Sync. The statements of a pipeline are one implicit
transaction, which Sync commits. Invariants: Describe answers before the statement has run, because drivers such as JDBC ask for
the columns first. The text of a parameter is validated at Bind, as PostgreSQL's input functions do.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.commands.session import Parameter
from headgate.errors import PostgresError, Severity, existing
from headgate.server.client import audit
from headgate.server.client.statement_result import ResultSender
from headgate.server.protocol import message as protocol
from headgate.server.protocol import parameter
from headgate.server.protocol import portal as portals
from headgate.server.protocol.message import FrontendReader
from headgate.server.protocol.portal import Portal, PreparedStatement, column_formats
from headgate.server.protocol.row_source import RowSource
from headgate.server.session import utility
from headgate.server.session.nested_statements import NestedStatements
from headgate.sql import parser
from headgate.types import registry
from headgate.types.resultset import ResultColumn, ResultSet

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession
    from headgate.sql.parser import Statement


class ExtendedQuery:
    """The extended protocol of one session."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.sender = ResultSender(session)
        session.nested_statements = NestedStatements(
            self.prepare, self.start_portal, self.check_unchanged, start=self.sender.start, tag_of=self.sender.tag_of
        )

    @property
    def begun(self) -> bool:
        """Whether a pipeline's transaction is open."""
        return self.session.block.pipelined

    def message(self, kind: str, body: bytes) -> None:
        if self.session.walsender is not None:
            raise PostgresError("08P01", "extended query protocol not supported in a replication connection")
        reader = FrontendReader(body, self.session.connection.encoding)
        {"P": self._parse, "B": self._bind, "D": self._describe, "E": self._execute, "C": self._close, "H": self._flush}[kind](reader)

    def sync(self) -> None:
        """End the pipeline's transaction at Sync."""
        self.session.block.finish()

    # ---- Parse ------------------------------------------------------------------------------------------
    def _parse(self, reader: FrontendReader) -> None:
        name, text = reader.string(), reader.string()
        types = tuple(reader.int32() & 0xFFFFFFFF for _ in range(_count(reader)))
        reader.end()
        session, began = self.session, time.monotonic()
        session.start(text)
        if name and name in session.prepared:
            raise PostgresError("42P05", f'prepared statement "{name}" already exists')
        session.prepared.remove("")
        prepared = self.prepare(name, text, types)
        session.prepared.keep(name, prepared)
        session.connection.write(protocol.PARSE_COMPLETE)
        audit.parse_duration(session, prepared, began)

    def prepare(self, name: str, text: str, types: tuple[int, ...], statement: Statement | None = None) -> PreparedStatement:
        """Parse and describe one statement. Raise 42601 if there are several."""
        if statement is None:
            statements = parser.parse(text)
            if len(statements) > 1:
                raise PostgresError("42601", "cannot insert multiple commands into a prepared statement")
            if not statements:
                return PreparedStatement(name, text, None, types, None)
            statement = statements[0]
        if not utility.allowed_when_failed(statement):
            self.session.block.check_not_failed()
            self.session.use_types()
        with self.session.share.running(statement.weight):
            parameters, columns = self._describe_types(statement, types)
        return PreparedStatement(name, text, statement, parameters, columns, declared=types)

    def _describe_types(self, statement: Statement, types: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[ResultColumn, ...] | None]:
        if utility.handles(statement) and statement.kind != "DeclareCursorStmt":
            return types, utility.columns(self.session, statement)
        from headgate.commands.describe import describe

        self.session.block.touch()
        type_oids = tuple(0 if oid == registry.UNKNOWN else oid for oid in types)
        description = describe(statement.node, self.session, type_oids)
        return description.parameters, description.columns

    # ---- Bind -------------------------------------------------------------------------------------------
    def _bind(self, reader: FrontendReader) -> None:
        portal_name, statement_name = reader.string(), reader.string()
        formats = [reader.int16() for _ in range(_count(reader))]
        values = [self._value(reader) for _ in range(_count(reader))]
        result_formats = [reader.int16() for _ in range(_count(reader))]
        reader.end()
        session, began = self.session, time.monotonic()
        prepared = self._find_prepared(statement_name)
        session.statement_text = prepared.text
        self._check_counts(prepared, formats, values)
        if prepared.statement is None or not utility.allowed_when_failed(prepared.statement):
            session.block.check_not_failed()
            session.use_types()
        codes = column_formats(formats, len(values))
        parameters = tuple(self._parameter(oid, code, value) for oid, code, value in zip(prepared.parameters, codes, values, strict=True))
        if portal_name and portal_name in session.portals:
            raise PostgresError("42P03", f'cursor "{portal_name}" already exists')
        session.portals.close(portal_name)
        columns = column_formats(result_formats, len(prepared.columns)) if prepared.columns is not None else tuple(result_formats)
        if any(code not in (0, 1) for code in columns):
            raise PostgresError("22023", f"unsupported format code: {next(code for code in columns if code not in (0, 1))}")
        portal = Portal(portal_name, prepared, parameters, columns)
        session.portals.open(portal)
        session.connection.write(protocol.BIND_COMPLETE)
        audit.bind_duration(session, portal, began)

    @staticmethod
    def _value(reader: FrontendReader) -> bytes | None:
        length = reader.int32()
        return None if length == -1 else reader.take(length)

    @staticmethod
    def _check_counts(prepared: PreparedStatement, formats: list[int], values: list[bytes | None]) -> None:
        if len(formats) > 1 and len(formats) != len(values):
            raise PostgresError("08P01", f"bind message has {len(formats)} parameter formats but {len(values)} parameters")
        if len(values) != len(prepared.parameters):
            raise PostgresError(
                "08P01",
                f"bind message supplies {len(values)} parameters, but prepared statement"
                f' "{prepared.name}" requires {len(prepared.parameters)}',
            )

    def _parameter(self, type_oid: int, code: int, value: bytes | None) -> Parameter:
        if value is None:
            return Parameter(type_oid, None)
        if code == 0:
            text = self.session.connection.encoding.decode(value)
            parameter.check(text, type_oid, self.session.context.forms)
            return Parameter(type_oid, text)
        if code == 1:
            return Parameter(type_oid, parameter.text_of_binary(value, type_oid, self.session.connection.encoding))
        raise PostgresError("22023", f"unsupported format code: {code}")

    def _find_prepared(self, name: str) -> PreparedStatement:
        prepared = self.session.prepared.get(name)
        if prepared is None:
            if name:
                raise PostgresError("26000", f'prepared statement "{name}" does not exist')
            raise PostgresError("26000", "unnamed prepared statement does not exist")
        return prepared

    # ---- Describe, Execute, Close -----------------------------------------------------------------------
    def _describe(self, reader: FrontendReader) -> None:
        kind, name = chr(reader.byte()), reader.string()
        reader.end()
        session = self.session
        if kind == "S":
            prepared = self._find_prepared(name)
            if prepared.columns is not None:
                session.block.check_not_failed()
            session.connection.write(protocol.parameter_description(prepared.parameters))
            self._describe_columns(prepared.columns, (0,) * len(prepared.columns or ()))
        elif kind == "P":
            portal = self._portal(name)
            if portal.prepared.columns is not None:
                session.block.check_not_failed()
            self._describe_columns(portal.prepared.columns, portal.formats)
        else:
            raise PostgresError("08P01", f"invalid DESCRIBE message subtype {ord(kind)}")

    def _describe_columns(self, columns: tuple[ResultColumn, ...] | None, formats: tuple[int, ...]) -> None:
        if columns is None:
            self.session.connection.write(protocol.NO_DATA)
        else:
            connection = self.session.connection
            codes = column_formats(formats, len(columns))
            connection.write(protocol.row_description(columns, codes, connection.encoding))

    def _portal(self, name: str) -> Portal:
        return existing(self.session.portals.get(name), "34000", f'portal "{name}"')

    def _execute(self, reader: FrontendReader) -> None:
        name, limit = reader.string(), reader.int32()
        reader.end()
        session = self.session
        portal = self._portal(name)
        statement = portal.prepared.statement
        if statement is None:
            session.connection.write(protocol.EMPTY_QUERY)
            return
        began, description, calls = time.monotonic(), audit.executed(portal), int(not portal.started)
        session.start(portal.prepared.text)
        logged = audit.execution(session, portal)
        if portal.failed or not utility.allowed_when_failed(statement):
            session.block.check_not_failed()
        with session.share.running(statement.weight):
            if not portal.started:
                self._start(portal, statement)
            tag = self._answer(portal, name, max(limit, 0))
        self.sender.count(statement, began, tag, calls=calls)
        audit.execute_duration(session, description, portal, began, logged=logged)

    def _answer(self, portal: Portal, name: str, limit: int) -> str:
        """Send the portal's result and return its command tag, also if more rows may follow."""
        source = portal.rows
        if source is None:
            tag = portal.tag
            if portal.done and not tag:
                raise PostgresError("55000", f'portal "{name}" cannot be run')
            self._complete(tag)
            portal.tag = ""
            return tag
        return self._send(portal, source, limit)

    def _start(self, portal: Portal, statement: Statement) -> None:
        block = self.session.block
        block.several, block.pipelined = block.pipelined, True
        self.start_portal(portal, statement)
        if block.commits_alone:
            block.finish()

    def start_portal(self, portal: Portal, statement: Statement) -> None:
        """Run the statement of a bound portal until its result is available, for Execute or for a FETCH or MOVE that names the portal."""
        session = self.session
        session.parameters = portal.parameters
        portal.started = True
        if portal.prepared.name:
            session.analysed.expect(statement.node)
        result = self.sender.start(statement)
        if isinstance(result, ResultSet):
            self.check_unchanged(portal.prepared, statement, result)
            portal.rows = RowSource(result)
            portal.formats = column_formats(portal.formats, len(result.columns))
            return
        portal.tag = self.sender.tag_of(result)
        portal.done = True

    def check_unchanged(self, prepared: PreparedStatement, statement: Statement, result: ResultSet) -> None:
        """Raise 0A000 if the statement's columns differ from those described: drivers decode rows by the description.

        A second description decides, except for headgate.changes, whose columns depend on the values of parameters.
        """
        if utility.handles(statement) or prepared.columns is None or _shape(prepared.columns) == _shape(result.columns):
            return
        from headgate.commands.query import change_scan

        _, current = self._describe_types(statement, prepared.parameters)
        if current is None or _shape(current) != _shape(prepared.columns) or change_scan.is_in(statement.node):
            raise PostgresError("0A000", "cached plan must not change result type")

    def _send(self, portal: Portal, source: RowSource, limit: int) -> str:
        session = self.session
        with portal.running():
            count = portals.send(session.connection, portal.take(source, limit), source.columns, portal.formats, session.context.forms)
        session.send_notices()
        command, _, number = source.result.command_tag.rpartition(" ")
        tag = f"{command} {count}" if number.isdecimal() else source.result.command_tag
        if limit and count == limit:
            session.connection.write(protocol.PORTAL_SUSPENDED)
        else:
            self._complete(tag)
        return tag

    def _complete(self, tag: str) -> None:
        self.session.send_notices()
        self.session.connection.write(protocol.command_complete(tag))

    def _close(self, reader: FrontendReader) -> None:
        kind, name = chr(reader.byte()), reader.string()
        reader.end()
        if kind == "S":
            self.session.prepared.remove(name)
        elif kind == "P":
            self.session.portals.close(name)
        else:
            raise PostgresError("08P01", f"invalid CLOSE message subtype {ord(kind)}")
        self.session.connection.write(protocol.CLOSE_COMPLETE)

    def _flush(self, reader: FrontendReader) -> None:
        reader.end()
        self.session.connection.flush()


def _shape(columns: tuple[ResultColumn, ...]) -> list[tuple[str, int, int]]:
    """Return the properties of columns that must not change after Describe."""
    return [(column.name, column.type_oid, column.typmod) for column in columns]


def _count(reader: FrontendReader) -> int:
    """Read an unsigned 16-bit count. Raise 08P01 if the message is too short for it."""
    count = reader.int16() & 0xFFFF
    if count > reader.rest:
        raise PostgresError("08P01", "insufficient data left in message", severity=Severity.ERROR)
    return count
