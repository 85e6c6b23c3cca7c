"""DECLARE, FETCH, MOVE and CLOSE (manual, part VI).

A cursor is a portal whose rows are taken by FETCH. Rows that a scrollable or WITH HOLD cursor has given are kept, so that it can
go back; other cursors only go forward. Called by `utility`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.server.block import State
from headgate.server.portal import Portal, Prepared, RowSource
from headgate.sql import parser
from headgate.sql.parser import Statement
from headgate.types.resultset import ResultColumn, ResultSet, batch_of_rows

if TYPE_CHECKING:
    from headgate.server.session import Session

_SCROLL, _NO_SCROLL, _HOLD = 0x0002, 0x0004, 0x0020
_ALL = 2**62


class Position:
    """Where a cursor stands: `at` rows have been passed; `rows` keeps what a scrollable one has read."""

    def __init__(self, *, scroll: bool) -> None:
        self.scroll = scroll
        self.at = 0
        self.kept: list[pa.RecordBatch] = []

    def table(self, columns: tuple[ResultColumn, ...]) -> pa.Table:
        """The rows read so far."""
        return pa.Table.from_batches(self.kept or [batch_of_rows(columns, [])])


def declare(session: Session, node: Any, text: str) -> str:
    """DECLARE name CURSOR FOR query."""
    hold = bool(node.options & _HOLD)
    if not hold and session.block.state is State.IDLE and not session.block.several:
        raise PostgresError("25P01", "DECLARE CURSOR can only be used in transaction blocks")
    if node.portalname in session.portals:
        raise PostgresError("42P03", f'cursor "{node.portalname}" already exists')
    from headgate.commands.execute import execute

    inner = parser.unwrap(node.query)
    result = execute(inner, text, cast("Any", session))
    if not isinstance(result, ResultSet):
        raise PostgresError("42P11", "cannot open a query without rows as cursor")
    if hold:
        result = ResultSet(result.columns, list(result))
    prepared = Prepared("", text, Statement(inner, text, 0, len(text)), (), result.columns)
    portal = Portal(node.portalname, prepared, (), rows=RowSource(result), started=True, hold=hold)
    portal.buffered = Position(scroll=bool(node.options & _SCROLL) or (hold and not node.options & _NO_SCROLL))
    session.portals[node.portalname] = portal
    return "DECLARE CURSOR"


def fetch(session: Session, node: Any, text: str) -> str | ResultSet:
    """FETCH and MOVE."""
    portal = session.portals.get(node.portalname)
    if portal is None or portal.rows is None:
        raise PostgresError("34000", f'cursor "{node.portalname}" does not exist')
    if portal.buffered is None:
        portal.buffered = Position(scroll=False)
    direction = str(node.DESCRIPTOR.fields_by_name["direction"].enum_type.values_by_number[node.direction].name)
    batches = _move(portal.rows, portal.buffered, direction, node.how_many)
    count = sum(batch.num_rows for batch in batches)
    if node.ismove:
        return f"MOVE {count}"
    return ResultSet(portal.rows.columns, batches, f"FETCH {count}")


def _move(source: RowSource, position: Position, direction: str, many: int) -> list[pa.RecordBatch]:
    if direction == "FETCH_FORWARD" and many > 0:
        return _forward(source, position, many)
    if direction == "FETCH_BACKWARD" and many < 0:
        return _forward(source, position, -many)
    if direction in ("FETCH_FORWARD", "FETCH_BACKWARD"):
        if many == 0:
            return _at(source, position, position.at)
        return _backward(source, position, abs(many))
    if direction == "FETCH_ABSOLUTE":
        return _to(source, position, many if many >= 0 else _count(source, position) + 1 + many)
    return _to(source, position, position.at + many)


def _forward(source: RowSource, position: Position, many: int) -> list[pa.RecordBatch]:
    if position.scroll:
        _read(source, position, position.at + many)
        found: list[pa.RecordBatch] = position.table(source.columns).slice(position.at, min(many, _ALL)).to_batches()
        count = sum(batch.num_rows for batch in found)
        position.at += count if count == many else count + 1
        return found
    found = list(source.take(0 if many >= _ALL else many))
    position.at += sum(batch.num_rows for batch in found)
    return found


def _backward(source: RowSource, position: Position, many: int) -> list[pa.RecordBatch]:
    _scrolls(position)
    first = max(position.at - 1 - many, 0)
    table = position.table(source.columns).slice(first, max(position.at - 1 - first, 0))
    position.at = max(position.at - many, 0)
    order = pa.array(range(len(table) - 1, -1, -1), pa.int64())
    return list(table.take(order).combine_chunks().to_batches())


def _to(source: RowSource, position: Position, place: int) -> list[pa.RecordBatch]:
    if not position.scroll:
        if place <= position.at:
            _scrolls(position)
        for _ in source.take(place - position.at - 1) if place - position.at > 1 else ():
            pass
        position.at = place - 1
        return _forward(source, position, 1)
    position.at = max(place, 0)
    return _at(source, position, place)


def _at(source: RowSource, position: Position, place: int) -> list[pa.RecordBatch]:
    if place < 1:
        return []
    _read(source, position, place)
    return list(position.table(source.columns).slice(place - 1, 1).to_batches())


def _count(source: RowSource, position: Position) -> int:
    _scrolls(position)
    _read(source, position, _ALL)
    return sum(batch.num_rows for batch in position.kept)


def _read(source: RowSource, position: Position, until: int) -> None:
    _scrolls(position)
    have = sum(batch.num_rows for batch in position.kept)
    if until > have:
        position.kept += list(source.take(0 if until >= _ALL else until - have))


def _scrolls(position: Position) -> None:
    if not position.scroll:
        raise PostgresError("55000", "cursor can only scan forward", hint="Declare it with SCROLL option to enable backward scan.")


def close(session: Session, node: Any, text: str) -> str:
    """CLOSE name, CLOSE ALL."""
    if not node.portalname:
        for name in list(session.portals):
            session.close_portal(name)
        return "CLOSE CURSOR ALL"
    if node.portalname not in session.portals:
        raise PostgresError("34000", f'cursor "{node.portalname}" does not exist')
    session.close_portal(node.portalname)
    return "CLOSE CURSOR"
