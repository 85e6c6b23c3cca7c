"""DECLARE, FETCH, MOVE and CLOSE (manual, part VI).

A cursor is a portal whose rows are taken by FETCH; where it stands is its `CursorPosition`, which moves as PostgreSQL's portals do
(pquery.c). Rows that a cursor has given are kept, so that it can go back: all of them with SCROLL, none with NO SCROLL, otherwise as long
as they are few. What is kept lies in a file where it is much (`row_store`). Called by `utility`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.commands.open_cursor import OpenCursor
from headgate.errors import PostgresError, not_supported
from headgate.server.protocol.portal import Portal, PreparedStatement, RowSource
from headgate.server.session.transaction_block import BlockState
from headgate.sql import parser
from headgate.sql.parser import Statement, position
from headgate.storage.row_store import NO_ROWS, RowPart, RowStore
from headgate.types.resultset import ResultSet, batch_of_rows

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

_BINARY, _SCROLL, _NO_SCROLL, _INSENSITIVE, _HOLD = 0x0001, 0x0002, 0x0004, 0x0008, 0x0020
_ALL = 2**63 - 1
"""The count of FETCH ALL."""
_KEPT_BYTES = 16 << 20
"""What a cursor keeps that was declared without SCROLL and NO SCROLL."""


class CursorPosition:
    """Where a cursor stands: on row `at`, or before the first or behind the last one. `scroll` None: as long as its rows are few."""

    def __init__(self, new_store: Callable[[], RowStore], *, scroll: bool | None) -> None:
        self.scroll = scroll
        self.at = 0
        self.at_start = True
        self.at_end = False
        self.new_store = new_store
        self._kept = new_store()
        self._last = (self._kept, 0)
        """Where the row is that it has given last: the store, and the place there."""

    @property
    def on_row(self) -> bool:
        """Whether it stands on a row."""
        return not self.at_start and not self.at_end

    def row(self) -> pa.RecordBatch:
        """The row on which it stands."""
        store, place = self._last
        [batch] = store.part(place, 1)
        return batch

    def forward(self, source: RowSource, many: int) -> RowPart:
        """The next rows."""
        if self.at_end or many <= 0:
            return NO_ROWS
        found = self._next(source, many)
        self.at_start = self.at_start and not found.rows
        self.at_end = found.rows < many
        self.at += found.rows
        return found

    def _next(self, source: RowSource, many: int) -> RowPart:
        first = 0 if self.scroll is False else self.at
        kept = self.new_store() if self.scroll is False else self._kept
        missing = many - (kept.rows - first)
        if missing > 0:
            for batch in source.take(0 if many == _ALL else missing):
                kept.append(batch)
        found = kept.part(first, many)
        if self.scroll is None and kept.nbytes > _KEPT_BYTES:
            self.scroll, self._kept = False, self.new_store()
        if found.rows:
            self._stand(kept, first + found.rows - 1)
        return found

    def _stand(self, store: RowStore, place: int) -> None:
        """Notes where the row is on which it stands; of a store that is not kept a copy of it."""
        if self.scroll is False:
            [row] = store.part(place, 1)
            store, place = self.new_store(), 0
            store.append(row.take(pa.array([0])) if row.num_columns else row)
        self._last = (store, place)

    def backward(self, many: int) -> RowPart:
        """The rows before, the nearest first."""
        self.check_scrolls()
        if self.at_start or many <= 0:
            return NO_ROWS
        last = self.at if self.at_end else self.at - 1
        first = max(last - many, 0)
        found = self._kept.part(first, last - first, backward=True)
        self.at_start = last - first < many
        self.at = 0 if self.at_start else first + 1
        self._last = (self._kept, first)
        self.at_end = self.at_end and last == first
        return found

    def rewind(self) -> None:
        """Goes before the first row."""
        if self.at_start and not self.at_end:
            return
        self.check_scrolls()
        self.at, self.at_start, self.at_end = 0, True, False

    def check_scrolls(self) -> None:
        """55000 for a cursor that only goes forward."""
        if self.scroll is False:
            raise PostgresError("55000", "cursor can only scan forward", hint="Declare it with SCROLL option to enable backward scan.")


def _new_store(session: ClientSession) -> Callable[[], RowStore]:
    from headgate.commands.query import rendering

    return lambda: rendering.kept(session)


def declare(session: ClientSession, node: pb.DeclareCursorStmt, text: str) -> str:
    """DECLARE name CURSOR FOR query."""
    from headgate.commands.execute import execute

    inner = parser.unwrap(node.query)
    _check_options(session, node, inner)
    if node.portalname in session.portals:
        raise PostgresError("42P03", f'cursor "{node.portalname}" already exists')
    result = execute(inner, text, session)
    if not isinstance(result, ResultSet):
        raise PostgresError("42P11", "cannot open a query without rows as cursor")
    prepared = PreparedStatement("", text, Statement(inner, text, 0, len(text)), (), result.columns)
    formats = (1,) * len(result.columns) if node.options & _BINARY else ()
    portal = Portal(node.portalname, prepared, (), formats, rows=RowSource(result), started=True, hold=bool(node.options & _HOLD))
    scroll = True if node.options & _SCROLL else False if node.options & _NO_SCROLL else None
    portal.buffered = CursorPosition(_new_store(session), scroll=scroll)
    portal.view = session.begin_statement().statement_view()
    session.portals.open(portal)
    return "DECLARE CURSOR"


def opened(session: ClientSession, name: str) -> OpenCursor | None:
    """A cursor or portal, for ``WHERE CURRENT OF``."""
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
        raise PostgresError("42601", message, position=position(query.into_clause.rel.location))
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
"""LockClauseStrength."""


def fetch(session: ClientSession, node: pb.FetchStmt, text: str) -> str | ResultSet:
    """FETCH and MOVE."""
    portal = session.portals.get(node.portalname)
    if portal is None or portal.prepared.statement is None:
        raise PostgresError("34000", f'cursor "{node.portalname}" does not exist')
    if not portal.started:
        own = session.parameters
        try:
            session.extended.start_portal(portal, portal.prepared.statement)
        finally:
            session.parameters = own
    if portal.rows is None:
        raise PostgresError("55000", f'portal "{node.portalname}" cannot be run')
    if portal.buffered is None:
        portal.buffered = CursorPosition(_new_store(session), scroll=False)
    direction = str(node.DESCRIPTOR.fields_by_name["direction"].enum_type.values_by_number[node.direction].name)
    with portal.running():
        found, count = _moved(portal.rows, portal.buffered, direction, node.how_many, fetching=not node.ismove)
    if node.ismove:
        return f"MOVE {count}"
    columns = portal.rows.columns
    return ResultSet(columns, found if found.rows else [batch_of_rows(columns, [])], f"FETCH {count}", binary=any(portal.formats))


def _moved(source: RowSource, position: CursorPosition, direction: str, many: int, *, fetching: bool) -> tuple[RowPart, int]:
    """The rows to which the cursor moves, and how many they are (DoPortalRunFetch)."""
    if direction == "FETCH_ABSOLUTE":
        found = _absolute(source, position, many)
        return found, found.rows
    if direction == "FETCH_RELATIVE" and many:
        if many > 0:
            position.forward(source, many - 1)
            found = position.forward(source, 1)
        else:
            position.backward(-many - 1)
            found = position.backward(1)
        return found, found.rows
    backward = direction != "FETCH_FORWARD"
    if many < 0:
        backward, many = not backward, -many
    if not many:
        if not fetching or not position.on_row:
            return NO_ROWS, int(position.on_row)
        position.backward(1)
        found = position.forward(source, 1)
    elif backward and many == _ALL and not fetching:
        passed = position.at if position.at_end else max(position.at - 1, 0)
        position.rewind()
        return NO_ROWS, passed
    else:
        found = position.backward(many) if backward else position.forward(source, many)
    return found, found.rows


def _absolute(source: RowSource, position: CursorPosition, place: int) -> RowPart:
    if place > 0:
        if place - 1 <= position.at // 2:
            position.rewind()
            position.forward(source, place - 1)
        else:
            now = position.at + position.at_end
            if place <= now:
                position.backward(now - place + 1)
            else:
                position.forward(source, place - now - 1)
        return position.forward(source, 1)
    if place < 0:
        position.forward(source, _ALL)
        position.backward(-place - 1)
        return position.backward(1)
    position.rewind()
    return NO_ROWS


def close(session: ClientSession, node: pb.ClosePortalStmt, text: str) -> str:
    """CLOSE name, CLOSE ALL."""
    if not node.portalname:
        session.portals.close_all()
        return "CLOSE CURSOR ALL"
    if node.portalname not in session.portals:
        raise PostgresError("34000", f'cursor "{node.portalname}" does not exist')
    session.portals.close(node.portalname)
    return "CLOSE CURSOR"
