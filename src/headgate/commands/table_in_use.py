"""Refuse commands that change or drop a table in use by the same session (CheckTableNotInUse).

Called by the commands before they change the table. A table is in use while a statement changes its rows, while an open cursor or a
loop of a function reads it, or while deferred checks wait for its rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Relation
from headgate.commands import lookup
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.parser import ParseNode, walk


def check(session: Session, cursor: Cursor, relation: Relation, command: str) -> None:
    """Raise 55006 if a table, or a table below it, is in use."""
    read = set(_read(session, cursor))
    waiting = session.deferral.waiting
    if relation.oid in session.deferral.tables_in_use or (read and not read.isdisjoint(_sources(cursor, relation))):
        raise _in_use(relation, command)
    if not read and not waiting:
        return
    for table in (relation, *inheritance.below(cursor, relation)):
        if table.oid in read:
            raise _in_use(table, command)
        if table.oid in waiting:
            raise PostgresError("55006", f'cannot {command} "{table.name}" because it has pending trigger events')


def _in_use(relation: Relation, command: str) -> PostgresError:
    return PostgresError("55006", f'cannot {command} "{relation.name}" because it is being used by active queries in this session')


def _read(session: Session, cursor: Cursor) -> Iterator[int]:
    """Yield the relations (oids) that the queries of the transaction's cursors and loops name."""
    cursors: list[ParseNode] = [] if session.portals is None else session.portals.queries()
    for query in (*session.deferral.queries_in_use, *cursors):
        for node in walk(query):
            named = lookup.find(cursor, session.context, node, check=False) if node.DESCRIPTOR.name == "RangeVar" else None
            if named is not None:
                yield named.oid


def _sources(cursor: Cursor, relation: Relation) -> set[int]:
    """Return the relations (oids) through which a query reads a table: the table, the tables above it, and the views of these."""
    sources: set[int] = set()
    found = [relation.oid, *relations.ancestors(cursor, relation.database, relation.oid), *inheritance.parents(cursor, relation)]
    while found:
        oid = found.pop()
        if oid not in sources:
            sources.add(oid)
            found += views.readers(cursor, relation.database, oid)
    return sources
