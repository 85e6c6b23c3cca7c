"""headgate.snapshot([lsn]): the Delta versions of all tables at one LSN, for programs that read their files.

It shows the tables of the session's database that its user may read: without an
LSN, as the statement sees them (committed data, without writes of the session's own transaction); with one, as they were then, under the
names that they had. Rights are always those of now; a table that was dropped since is shown to the roles that owned it and to members of
pg_read_all_data. Paths are shown only to members of pg_read_all_settings, as all paths of the node.

Invariants: the versions are those of one LSN. While the transaction is open, their files are not removed (`cleaning` gets the oldest LSN
that a transaction can read from the engine, and `Snapshots.holding` those that are older). An LSN before which something may have been
removed is an error (55000): a table is never omitted because its files are gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headgate.catalog import history
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.security import acl
from headgate.catalog.security.role import READ_ALL_DATA, READ_ALL_SETTINGS
from headgate.commands.query.catalog import privilege_inquiry
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import inventory

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

_LAST = 2**31 - 1
"""A sequence number after all changes of a transaction."""


def snapshot(session: ClientSession, lsn: Lsn | None = None) -> Iterator[tuple[object, ...]]:
    """Yield (schema, name, oid, path, version, lsn) of each table."""
    transaction, context = session.begin_statement(), session.context
    engine, cursor, database = session.node.engine, transaction.cursor, context.database
    role = acl.role(cursor, context.user)
    shows_paths = role.owns(READ_ALL_SETTINGS)
    readable, among = privilege_inquiry.readable(cursor, context), None
    position = transaction.snapshot.lsn if lsn is None else Lsn(lsn)
    if lsn is not None:
        _hold(session, position)
        among = history.at(cursor, database, int(position), _LAST).relations
        relation_oids = {oid for oid, *_ in cursor.execute("SELECT oid FROM hg.pg_class WHERE dbid = ?", [database]).fetchall()}
        every = READ_ALL_DATA in role.roles
        readable |= {oid for oid, table in among.items() if oid not in relation_oids and (every or role.owns(table.owner))}
    versions = engine.log.versions(position)
    if among is not None:
        _check_files(position, {oid: among[oid] for oid in among if (database, oid) not in versions})
    relations = None if among is None else among.values()
    for table in inventory.of_database(cursor, engine.folders, versions, database, context.database_name, relations):
        if table.oid in readable:
            yield table.schema, table.name, table.oid, str(table.path) if shows_paths else None, table.version, position


def _hold(session: ClientSession, position: Lsn) -> None:
    """Keep the files of a past LSN until the transaction ends. Raise 22023 if it is not yet reached, 55000 if it is no longer kept."""
    node = session.node
    if position > node.engine.log.end:
        text = f"LSN {position} is after the end of the log"
        raise PostgresError("22023", text, detail=f"The end of the log is {node.engine.log.end}.")
    held = contextlib.ExitStack()
    held.enter_context(node.slots.snapshots.holding(position))
    session.after_commit(held.close)
    session.after_rollback(held.close)
    oldest = node.engine.oldest_readable(session.context.database)
    if position < oldest:
        raise PostgresError(
            "55000",
            f"the tables as of LSN {position} are no longer kept",
            detail=f"The oldest retained LSN is {oldest}.",
            hint="A replication slot retains the tables from its position.",
        )


def _check_files(position: Lsn, without: Mapping[int, Relation]) -> None:
    """Raise 55000 if a table of that LSN has no version: it was dropped, and its files were removed before the node started."""
    for table in without.values():
        if table.kind is RelationKind.TABLE and table.persistence != "t":
            text = f"the tables as of LSN {position} are no longer kept"
            detail = f'Table "{table.schema}.{table.name}" has been dropped since.'
            raise PostgresError("55000", text, detail=detail, hint="A replication slot retains the tables from its position.")
