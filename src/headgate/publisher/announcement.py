"""Relation and Type messages: what a client must know before the first change of a relation (manual, 55.5.2, 55.9).

`Announcer` remembers what has been announced on one connection and forgets it where PostgreSQL's invalidations would: any
change of a publication forgets all, a changed definition its relation, TRUNCATE its relation before and after. Called by `stream`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headgate.catalog.history import PublishedState
from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation.relation import Relation
from headgate.pgoutput import message as m
from headgate.pgoutput import write
from headgate.publisher.published import Published, identity_columns
from headgate.settings.encoding import UTF8, Encoding

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog

FIRST_USER_TYPE = 10000
"""Types with smaller oids are known everywhere (FirstGenbkiObjectId)."""


class Announcer:
    """What one connection has announced."""

    def __init__(self, catalog: Catalog, database: int, encoding: Encoding = UTF8) -> None:
        self._catalog = catalog
        self._database = database
        self._encoding = encoding
        self._known: set[int] = set()
        self._state: PublishedState | None = None

    def move(self, state: PublishedState) -> None:
        """The following changes are judged by `state`: forgets what is no longer true."""
        before, self._state = self._state, state
        if before is None or before is state:
            return
        if before.publications != state.publications:
            self._known.clear()
            return
        for oid in list(self._known):
            parents = [oid, *state.ancestors(oid)]
            if any(before.relations.get(each) != state.relations.get(each) for each in parents):
                self._known.discard(oid)

    def knows(self, relation: int) -> bool:
        """Whether the relation has been announced."""
        return relation in self._known

    def forget(self, relation: int) -> None:
        """The relation must be announced again."""
        self._known.discard(relation)

    def forget_all(self) -> None:
        """Every relation must be announced again."""
        self._known.clear()

    def announce(self, plan: Published, send_time: int) -> bytes:
        """The frames that announce the relation (and the one it is sent as, first)."""
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
            found = self._named(cursor, oid)
        return frame(m.Type(oid, *found), 0, send_time, self._encoding)

    def _named(self, cursor: Cursor, oid: int) -> tuple[str, str]:
        """Schema ('' for pg_catalog) and name; of a domain those of its base type."""
        sql = (
            "SELECT t.typtype, t.typbasetype, n.nspname, t.typname FROM hg.pg_type t JOIN hg.pg_namespace n ON n.oid = t.typnamespace"
            " AND n.dbid IN (0, ?) WHERE t.oid = ? AND t.dbid IN (0, ?)"
        )
        found = one(cursor, sql, [self._database, oid, self._database])
        if found is None:
            return "", "unknown"
        if found[0] == "d":
            return self._named(cursor, int(found[1]))
        return ("" if found[2] == "pg_catalog" else str(found[2])), str(found[3])


def frame(message: m.Message, lsn: int, send_time: int, encoding: Encoding = UTF8) -> bytes:
    """One message as a whole CopyData of XLogData."""
    return write.copy_data(write.write_frame(m.XLogData(lsn, lsn, send_time, write.write(message, encoding))))
