"""DECLARE, FETCH, MOVE and CLOSE (manual, part VI), and the cursors of functions.

A cursor is a portal whose rows FETCH reads. Called by `utility`, and for functions through `commands.session.NodeParts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.server.protocol.cursor_position import CursorPosition
from headgate.server.protocol.open_portals import OpenPortals
from headgate.server.protocol.portal import Portal, PreparedStatement
from headgate.server.protocol.row_source import RowSource
from headgate.server.protocol.statement_memory import OF_ALL, Pool, Share
from headgate.server.session.transaction_block import BlockState
from headgate.sql import parser
from headgate.sql.parser import ParseNode, Statement
from headgate.storage.row_store import NO_ROWS, RowPart, RowStore
from headgate.types.resultset import ResultSet, batch_of_rows

if TYPE_CHECKING:
    from headgate.commands.session import Session
    from headgate.server.session.session import ClientSession

_BINARY, _SCROLL, _NO_SCROLL, _INSENSITIVE, _HOLD = 0x0001, 0x0002, 0x0004, 0x0008, 0x0020


def _new_store(session: Session) -> Callable[[], RowStore]:
    from headgate.commands.query import rendering

    return lambda: rendering.kept(session)


def declare(session: ClientSession, node: pb.DeclareCursorStmt, text: str) -> str:
    """Execute DECLARE name CURSOR FOR query. Raise 25P01 outside a transaction block, 42P03 if the cursor exists."""
    from headgate.commands.execute import execute

    inner = parser.unwrap(node.query)
    _check_options(session, node, inner)
    if node.portalname in session.portals:
        raise PostgresError("42P03", f'cursor "{node.portalname}" already exists')
    result = execute(inner, session)
    if not isinstance(result, ResultSet):
        raise PostgresError("42P11", "cannot open a query without rows as cursor")
    prepared = PreparedStatement("", text, Statement(inner, text, 0, len(text)), (), result.columns)
    portal = _portal(node.portalname, prepared, result)
    portal.hold, portal.binary = bool(node.options & _HOLD), bool(node.options & _BINARY)
    scroll = True if node.options & _SCROLL else False if node.options & _NO_SCROLL else None
    portal.buffered = _position(session, inner, scroll)
    portal.view = session.begin_statement().reader.statement_view()
    session.portals.open(portal)
    return "DECLARE CURSOR"


def _portal(name: str, prepared: PreparedStatement, result: ResultSet) -> Portal:
    return Portal(name, prepared, (), (0,) * len(result.columns), rows=RowSource(result), started=True)


def _position(session: Session, query: ParseNode, scroll: bool | None) -> CursorPosition:
    """Return the position before the first row. Without SCROLL, a cursor with a locking clause only moves forward (PerformCursorOpen)."""
    if scroll is None and query.DESCRIPTOR.name == "SelectStmt" and query.locking_clause:
        scroll = False
    return CursorPosition(_new_store(session), scroll=scroll)


def _check_options(session: ClientSession, node: pb.DeclareCursorStmt, query: pb.SelectStmt) -> None:
    if not node.options & _HOLD and session.block.state is BlockState.IDLE and not session.block.several:
        raise PostgresError("25P01", "DECLARE CURSOR can only be used in transaction blocks")
    if query.DESCRIPTOR.name != "SelectStmt":
        return
    if query.HasField("into_clause"):
        message = "SELECT ... INTO is not allowed here"
        raise PostgresError("42601", message, location=query.into_clause.rel.location)
    if not query.locking_clause:
        return
    word = "FOR " + _STRENGTHS[parser.unwrap(query.locking_clause[0]).strength]
    if node.options & _HOLD:
        raise not_supported(f"DECLARE CURSOR WITH HOLD ... {word} is not supported", detail="Holdable cursors must be READ ONLY.")
    if node.options & _SCROLL:
        raise not_supported(f"DECLARE SCROLL CURSOR ... {word} is not supported", detail="Scrollable cursors must be READ ONLY.")
    if node.options & _INSENSITIVE:
        detail = "Insensitive cursors must be READ ONLY."
        raise PostgresError("42P11", f"DECLARE INSENSITIVE CURSOR ... {word} is not valid", detail=detail)


_STRENGTHS = {2: "KEY SHARE", 3: "SHARE", 4: "NO KEY UPDATE", 5: "UPDATE"}
"""The lock strengths of LockClauseStrength, as SQL."""


def fetch(session: ClientSession, node: pb.FetchStmt, text: str) -> str | ResultSet:
    """Execute FETCH or MOVE. Raise 34000 if the cursor does not exist, 55000 if it cannot run."""
    portal = session.portals.get(node.portalname)
    if portal is None or portal.prepared.statement is None:
        raise PostgresError("34000", f'cursor "{node.portalname}" does not exist')
    if not portal.started:
        parameters = session.parameters
        try:
            session.nested_statements.start_portal(portal, portal.prepared.statement)
        finally:
            session.parameters = parameters
    if portal.rows is None:
        raise PostgresError("55000", f'portal "{node.portalname}" cannot be run')
    direction = str(node.DESCRIPTOR.fields_by_name["direction"].enum_type.values_by_number[node.direction].name)
    part, count = _move(session, portal, portal.rows, direction, node.how_many, fetching=not node.ismove)
    if node.ismove:
        return f"MOVE {count}"
    columns = portal.rows.columns
    return ResultSet(columns, part if part.rows else [batch_of_rows(columns, [])], f"FETCH {count}", binary=portal.binary)


def _move(session: Session, portal: Portal, source: RowSource, direction: str, many: int, *, fetching: bool) -> tuple[RowPart, int]:
    """Move the cursor of a portal. Return the rows and their number."""
    if portal.buffered is None:
        portal.buffered = CursorPosition(_new_store(session), scroll=False)
    with portal.running():
        return portal.buffered.move(source, direction, many, fetching=fetching)


def open_for_function(session: Session, name: str | None, query: ParseNode, result: ResultSet, scroll: bool | None) -> str:
    """Open a cursor of a function (SPI_cursor_open) and return its name. Raise 42P03 if the name is in use."""
    if session.portals is None:
        session.portals = OpenPortals(Share(Pool(OF_ALL)))
    if name is None:
        name = next(unnamed for number in itertools.count(1) if (unnamed := f"<unnamed portal {number}>") not in session.portals)
    if name in session.portals:
        raise PostgresError("42P03", f'cursor "{name}" already in use')
    prepared = PreparedStatement("", "", Statement(query, "", 0, 0), (), result.columns)
    portal = _portal(name, prepared, result)
    portal.buffered = _position(session, query, scroll)
    portal.view = session.begin_statement().reader.statement_view()
    session.portals.open(portal)
    return name


def move_for_function(session: Session, name: str, direction: str, many: int, is_move: bool) -> tuple[ResultSet, int]:
    """Move a cursor of a function. Return the rows, and their number. MOVE returns no rows. Raise 34000 if the cursor does not exist."""
    portal = None if session.portals is None else session.portals.get(name)
    if portal is None or portal.rows is None:
        raise PostgresError("34000", f'cursor "{name}" does not exist')
    part, count = _move(session, portal, portal.rows, direction, many, fetching=not is_move)
    return ResultSet(portal.rows.columns, NO_ROWS if is_move else part), count


def close_for_function(session: Session, name: str) -> None:
    """Close a cursor of a function. Raise 34000 if it does not exist."""
    if session.portals is None or name not in session.portals:
        raise PostgresError("34000", f'cursor "{name}" does not exist')
    session.portals.close(name)


def close(session: ClientSession, node: pb.ClosePortalStmt, text: str) -> str:
    """Execute CLOSE name or CLOSE ALL. Raise 34000 if the cursor does not exist."""
    if not node.portalname:
        session.portals.close_all()
        return "CLOSE CURSOR ALL"
    if node.portalname not in session.portals:
        raise PostgresError("34000", f'cursor "{node.portalname}" does not exist')
    session.portals.close(node.portalname)
    return "CLOSE CURSOR"
