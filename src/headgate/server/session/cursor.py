"""DECLARE, FETCH, MOVE and CLOSE (manual, part VI).

A cursor is a portal whose rows FETCH reads. Its position is a `CursorPosition`, which moves as PostgreSQL's portals do (pquery.c).
To scan backward, a cursor keeps the rows it has returned: all of them with SCROLL, none with NO SCROLL, otherwise up to `_KEPT_BYTES`.
Large amounts of kept rows are spilled to a file (`row_store`). Called by `utility`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.commands.open_cursor import OpenCursor
from headgate.errors import PostgresError, not_supported
from headgate.server.protocol.open_portals import OpenPortals
from headgate.server.protocol.portal import Portal, PreparedStatement, RowSource
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
_ALL = 2**63 - 1
"""The count of FETCH ALL."""
_KEPT_BYTES = 16 << 20
"""The most bytes of rows that a cursor declared without SCROLL and NO SCROLL keeps."""


class CursorPosition:
    """The position of a cursor: on row `at`, before the first row or after the last row.

    `scroll` is True or False for SCROLL or NO SCROLL. If it is None, the cursor can move backward while its rows are few.
    """

    def __init__(self, new_store: Callable[[], RowStore], *, scroll: bool | None) -> None:
        self.scroll = scroll
        self.at = 0
        self.at_start = True
        self.at_end = False
        self.new_store = new_store
        self._store = new_store()
        self._last = (self._store, 0)
        """The row returned last: its store and its index there."""

    @property
    def on_row(self) -> bool:
        return not self.at_start and not self.at_end

    def row(self) -> pa.RecordBatch:
        store, index = self._last
        [batch] = store.part(index, 1)
        return batch

    def forward(self, source: RowSource, many: int) -> RowPart:
        """Move forward by up to `many` rows and return them."""
        if self.at_end or many <= 0:
            return NO_ROWS
        part = self._next(source, many)
        self.at_start = self.at_start and not part.rows
        self.at_end = part.rows < many
        self.at += part.rows
        return part

    def _next(self, source: RowSource, many: int) -> RowPart:
        first = 0 if self.scroll is False else self.at
        store = self.new_store() if self.scroll is False else self._store
        missing = many - (store.rows - first)
        if missing > 0:
            for batch in source.take(0 if many == _ALL else missing):
                store.append(batch)
        part = store.part(first, many)
        if self.scroll is None and store.nbytes > _KEPT_BYTES:
            self.scroll, self._store = False, self.new_store()
        if part.rows:
            self._set_current(store, first + part.rows - 1)
        return part

    def _set_current(self, store: RowStore, index: int) -> None:
        """Record the current row. If the store is not kept, copy the row."""
        if self.scroll is False:
            [row] = store.part(index, 1)
            store, index = self.new_store(), 0
            store.append(row.take(pa.array([0])) if row.num_columns else row)
        self._last = (store, index)

    def backward(self, many: int) -> RowPart:
        """Move backward by up to `many` rows and return them, the nearest first. Raise 55000 if the cursor cannot."""
        self.check_scrolls()
        if self.at_start or many <= 0:
            return NO_ROWS
        last = self.at if self.at_end else self.at - 1
        first = max(last - many, 0)
        part = self._store.part(first, last - first, backward=True)
        self.at_start = last - first < many
        self.at = 0 if self.at_start else first + 1
        self._last = (self._store, first)
        self.at_end = self.at_end and last == first
        return part

    def rewind(self) -> None:
        """Move before the first row."""
        if self.at_start and not self.at_end:
            return
        self.check_scrolls()
        self.at, self.at_start, self.at_end = 0, True, False

    def check_scrolls(self) -> None:
        """Raise 55000 if the cursor can only move forward."""
        if self.scroll is False:
            raise PostgresError("55000", "cursor can only scan forward", hint="Declare it with SCROLL option to enable backward scan.")


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
    formats = (1,) * len(result.columns) if node.options & _BINARY else ()
    portal = Portal(node.portalname, prepared, (), formats, rows=RowSource(result), started=True, hold=bool(node.options & _HOLD))
    scroll = True if node.options & _SCROLL else False if node.options & _NO_SCROLL else None
    portal.buffered = CursorPosition(_new_store(session), scroll=scroll)
    portal.view = session.begin_statement().reader.statement_view()
    session.portals.open(portal)
    return "DECLARE CURSOR"


def opened(session: Session, name: str) -> OpenCursor | None:
    """Return the cursor or portal of that name for ``WHERE CURRENT OF``, or None."""
    portal = session.portals.get(name)
    if portal is None or portal.prepared.statement is None:
        return None
    position = portal.buffered or CursorPosition(_new_store(session), scroll=False)
    columns = portal.prepared.columns or ()
    at = position.at if position.on_row else None
    return OpenCursor(portal.prepared.statement.node, columns, portal.view, not portal.fresh, at, position.row, portal.chosen)


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
            session.extended.start_portal(portal, portal.prepared.statement)
        finally:
            session.parameters = parameters
    if portal.rows is None:
        raise PostgresError("55000", f'portal "{node.portalname}" cannot be run')
    direction = str(node.DESCRIPTOR.fields_by_name["direction"].enum_type.values_by_number[node.direction].name)
    part, count = _move(session, portal, portal.rows, direction, node.how_many, fetching=not node.ismove)
    if node.ismove:
        return f"MOVE {count}"
    columns = portal.rows.columns
    return ResultSet(columns, part if part.rows else [batch_of_rows(columns, [])], f"FETCH {count}", binary=any(portal.formats))


def _move(session: Session, portal: Portal, source: RowSource, direction: str, many: int, *, fetching: bool) -> tuple[RowPart, int]:
    """Move the cursor of a portal. Return the rows and their number."""
    if portal.buffered is None:
        portal.buffered = CursorPosition(_new_store(session), scroll=False)
    with portal.running():
        return _move_rows(source, portal.buffered, direction, many, fetching=fetching)


def open_for_function(session: Session, name: str | None, query: ParseNode, result: ResultSet, scroll: bool | None) -> str:
    """Open a cursor of a function (SPI_cursor_open) and return its name. Raise 42P03 if the name is in use."""
    if session.portals is None:
        session.portals = OpenPortals(Share(Pool(OF_ALL)))
    if name is None:
        name = next(unnamed for number in itertools.count(1) if (unnamed := f"<unnamed portal {number}>") not in session.portals)
    if name in session.portals:
        raise PostgresError("42P03", f'cursor "{name}" already in use')
    prepared = PreparedStatement("", "", Statement(query, "", 0, 0), (), result.columns)
    portal = Portal(name, prepared, (), (), rows=RowSource(result), started=True)
    portal.buffered = CursorPosition(_new_store(session), scroll=scroll)
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


def _move_rows(source: RowSource, position: CursorPosition, direction: str, many: int, *, fetching: bool) -> tuple[RowPart, int]:
    """Move the cursor. Return the rows and their number (DoPortalRunFetch)."""
    if direction == "FETCH_ABSOLUTE":
        part = _absolute(source, position, many)
        return part, part.rows
    if direction == "FETCH_RELATIVE" and many:
        if many > 0:
            position.forward(source, many - 1)
            part = position.forward(source, 1)
        else:
            position.backward(-many - 1)
            part = position.backward(1)
        return part, part.rows
    backward = direction != "FETCH_FORWARD"
    if many < 0:
        backward, many = not backward, -many
    if not many:
        if not fetching or not position.on_row:
            return NO_ROWS, int(position.on_row)
        position.backward(1)
        part = position.forward(source, 1)
    elif backward and many == _ALL and not fetching:
        passed = position.at if position.at_end else max(position.at - 1, 0)
        position.rewind()
        return NO_ROWS, passed
    else:
        part = position.backward(many) if backward else position.forward(source, many)
    return part, part.rows


def _absolute(source: RowSource, position: CursorPosition, row_number: int) -> RowPart:
    if row_number > 0:
        if row_number - 1 <= position.at // 2:
            position.rewind()
            position.forward(source, row_number - 1)
        else:
            current = position.at + position.at_end
            if row_number <= current:
                position.backward(current - row_number + 1)
            else:
                position.forward(source, row_number - current - 1)
        return position.forward(source, 1)
    if row_number < 0:
        position.forward(source, _ALL)
        position.backward(-row_number - 1)
        return position.backward(1)
    position.rewind()
    return NO_ROWS


def close(session: ClientSession, node: pb.ClosePortalStmt, text: str) -> str:
    """Execute CLOSE name or CLOSE ALL. Raise 34000 if the cursor does not exist."""
    if not node.portalname:
        session.portals.close_all()
        return "CLOSE CURSOR ALL"
    if node.portalname not in session.portals:
        raise PostgresError("34000", f'cursor "{node.portalname}" does not exist')
    session.portals.close(node.portalname)
    return "CLOSE CURSOR"
