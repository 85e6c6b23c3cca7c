"""The schema of a session's temporary objects, pg_temp_<pid>: made with its first one; which names mean it; emptying at COMMIT.

It stands first in the session's search path, so commands find a temporary table like any other. Called by what makes tables and sequences
and by INSERT; `table.temporary` drops what is in it.
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
from headgate.sql.parser import position

if TYPE_CHECKING:
    from headgate.commands.session import Session
    from headgate.storage.transaction.transaction import Transaction

PREFIX = "pg_temp_"


def wanted(node: pb.RangeVar) -> bool:
    """Whether a RangeVar that is created names a temporary relation; 42P16 where it is in another schema."""
    if node.relpersistence == "t":
        if node.schemaname and not _is_temporary(node.schemaname):
            raise PostgresError("42P16", "cannot create temporary relation in non-temporary schema", position=position(node.location))
        return True
    if node.schemaname and _is_temporary(node.schemaname):
        if node.relpersistence == "u":
            raise PostgresError("42P16", "cannot create temporary relation in non-temporary schema")
        return True
    return False


def _is_temporary(schema: str) -> bool:
    return schema == "pg_temp" or schema.startswith(PREFIX)


def schema(session: Session, transaction: Transaction) -> tuple[int, str]:
    """(oid, name) of the session's temporary schema, made if need be."""
    cursor, context = transaction.cursor, session.context
    if not privilege.may_on_database(cursor, context.user, context.database, "TEMPORARY"):
        raise PostgresError("42501", f'permission denied to create temporary tables in database "{context.database_name}"')
    name = f"{PREFIX}{context.pid}"
    found = namespace.lookup(cursor, context.database, name)
    if found is None:
        found = namespace.make(cursor, transaction.engine.catalog.next_oid(), context.database, name, 10)
    if name not in context.search_path:
        context.temp_schema = name
        context.search_path = [name, *context.search_path]
    return found.oid, name


def holds(cursor: Cursor, database: int, schema: int) -> bool:
    """Whether a schema (oid) is one of temporary objects."""
    found = namespace.find(cursor, database, schema)
    return found is not None and found.name.startswith(PREFIX)


def touched(session: Session, transaction: Transaction, relation: Relation) -> None:
    """A temporary table is written to: with ON COMMIT DELETE ROWS it is emptied when the transaction commits."""
    if relation.oid in session.context.emptied_at_commit:
        session.deferral.at_end(relation.oid, lambda: _empty(transaction, relation))


def _empty(transaction: Transaction, relation: Relation) -> None:
    """Truncates the table as it is by then."""
    known = relations.find(transaction.cursor, relation.database, relation.oid)
    if known is not None:
        transaction.truncate([known])
