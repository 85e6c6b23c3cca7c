"""The schema of a session's temporary objects, pg_temp_<pid>: its creation, its names, and ON COMMIT DELETE ROWS.

It is the first schema in the session's search path, so commands find a temporary table like any other. Called by INSERT and by the
statements that create tables and sequences. `table.temporary` drops its contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.commands import privilege
from headgate.errors import PostgresError
from headgate.storage.transaction.prepared import OPERATED_ON_TEMPORARY

if TYPE_CHECKING:
    from headgate.commands.session import Session
    from headgate.storage.transaction.transaction import Transaction

PREFIX = "pg_temp_"


def wanted(node: pb.RangeVar) -> bool:
    """Return whether a RangeVar to create is a temporary relation. Raise 42P16 if it is in another schema."""
    if node.relpersistence == "t":
        if node.schemaname and not _is_temporary(node.schemaname):
            raise PostgresError("42P16", "cannot create temporary relation in non-temporary schema", location=node.location)
        return True
    if node.schemaname and _is_temporary(node.schemaname):
        if node.relpersistence == "u":
            raise PostgresError("42P16", "cannot create temporary relation in non-temporary schema")
        return True
    return False


def _is_temporary(schema: str) -> bool:
    return schema == "pg_temp" or schema.startswith(PREFIX)


def schema(session: Session, transaction: Transaction) -> tuple[int, str]:
    """Return (oid, name) of the session's temporary schema. Create it if necessary."""
    cursor, context = transaction.cursor, session.context
    if not privilege.may_on_database(cursor, context.user, context.database, "TEMPORARY"):
        raise PostgresError("42501", f'permission denied to create temporary tables in database "{context.database_name}"')
    transaction.unpreparable = OPERATED_ON_TEMPORARY
    name = f"{PREFIX}{context.pid}"
    temporary = namespace.lookup(cursor, context.database, name)
    if temporary is None:
        temporary = namespace.make(cursor, transaction.catalog.next_oid(), context.database, name, 10)
    if name not in context.search_path:
        context.temp_schema = name
        context.search_path = [name, *context.search_path]
    return temporary.oid, name


def holds(cursor: Cursor, database: int, schema: int) -> bool:
    """Return whether a schema (oid) holds temporary objects."""
    found_schema = namespace.find(cursor, database, schema)
    return found_schema is not None and found_schema.name.startswith(PREFIX)


def touched(session: Session, transaction: Transaction, relation: Relation) -> None:
    """Record a write to a temporary table: with ON COMMIT DELETE ROWS, it is truncated when the transaction commits."""
    if relation.oid in session.context.emptied_at_commit:
        session.deferral.at_end(relation.oid, lambda: _empty(transaction, relation))


def _empty(transaction: Transaction, relation: Relation) -> None:
    """Truncate the table in its current definition, if it still exists."""
    current = relations.find(transaction.cursor, relation.database, relation.oid)
    if current is not None:
        transaction.truncate([current])
