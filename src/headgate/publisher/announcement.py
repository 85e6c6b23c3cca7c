"""Relation and Type messages, which a client needs before the first change of a relation (manual, 55.5.2, 55.9).

`Announcer` records what has been announced on one connection. It drops entries when PostgreSQL's invalidations would: all at any change of
a publication, a relation at a change of its definition, and a relation before and after its TRUNCATE. Called by `stream`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headgate.catalog.history import PublishedState
from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation.relation import Relation
from headgate.pgoutput import codec
from headgate.pgoutput import message as m
from headgate.publisher.published import Published, identity_columns
from headgate.settings.encoding import UTF8, Encoding

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog

FIRST_USER_TYPE = 10000
"""Types with smaller OIDs are known to all clients (FirstGenbkiObjectId)."""


class Announcer:
    """The relations that one connection has announced."""

    def __init__(self, catalog: Catalog, database: int, encoding: Encoding) -> None:
        self._catalog = catalog
        self._database = database
        self._encoding = encoding
        self._known: set[int] = set()
        self._state: PublishedState | None = None

    def move(self, state: PublishedState) -> None:
        """Judge the following changes by `state`, and drop announcements that are no longer valid."""
        previous, self._state = self._state, state
        if previous is None or previous is state:
            return
        if previous.publications != state.publications:
            self._known.clear()
            return
        for oid in list(self._known):
            parents = [oid, *state.ancestors(oid)]
            if any(previous.relations.get(parent) != state.relations.get(parent) for parent in parents):
                self._known.discard(oid)

    def has_announced(self, relation: int) -> bool:
        return relation in self._known

    def forget(self, relation: int) -> None:
        self._known.discard(relation)

    def forget_all(self) -> None:
        self._known.clear()

    def announce(self, plan: Published, send_time: int) -> bytes:
        """Return the frames that announce the relation (and first the one as which it is sent)."""
        self._known.add(plan.relation.oid)
        relations = [plan.relation] if plan.target.oid == plan.relation.oid else [plan.target, plan.relation]
        return b"".join(self._relation(relation, plan, send_time) for relation in relations)

    def _relation(self, relation: Relation, plan: Published, send_time: int) -> bytes:
        names = {column.name for column in plan.sent_columns}
        columns = [column for column in relation.columns if column.name in names]
        key = identity_columns(relation)
        described = tuple(
            m.RelationColumn(key is None or column.attnum in key, column.name, column.type_oid, column.typmod) for column in columns
        )
        schema = "" if relation.schema == "pg_catalog" else relation.schema
        frames = [self._type(oid, send_time) for oid in dict.fromkeys(column.type_oid for column in columns) if oid >= FIRST_USER_TYPE]
        message = m.Relation(relation.oid, schema, relation.name, relation.replica_identity, described)
        return b"".join([*frames, frame(message, 0, send_time, self._encoding)])

    def _type(self, oid: int, send_time: int) -> bytes:
        with contextlib.closing(self._catalog.cursor()) as cursor:
            name = self._named(cursor, oid)
        return frame(m.Type(oid, *name), 0, send_time, self._encoding)

    def _named(self, cursor: Cursor, oid: int) -> tuple[str, str]:
        """Return schema ('' for pg_catalog) and name of a type; for a domain those of its base type."""
        sql = (
            "SELECT t.typtype, t.typbasetype, n.nspname, t.typname FROM hg.pg_type t JOIN hg.pg_namespace n ON n.oid = t.typnamespace"
            " AND n.dbid IN (0, ?) WHERE t.oid = ? AND t.dbid IN (0, ?)"
        )
        row = one(cursor, sql, [self._database, oid, self._database])
        if row is None:
            return "", "unknown"
        if row[0] == "d":
            return self._named(cursor, int(row[1]))
        return ("" if row[2] == "pg_catalog" else str(row[2])), str(row[3])


def frame(message: m.Message, lsn: int, send_time: int, encoding: Encoding = UTF8) -> bytes:
    """Return one message as a complete CopyData of XLogData."""
    return codec.copy_data(codec.write_frame(m.XLogData(lsn, lsn, send_time, codec.write(message, encoding.encode))))
