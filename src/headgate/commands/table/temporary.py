"""Temporary tables: each session has a schema pg_temp_<pid> of its own, made with its first temporary table and dropped when it ends.

The schema stands first in the session's search path, so the other commands find a temporary table like any other. Called by CREATE
TABLE, by the session when it leaves (`drop_all`), and by a node when it starts (`clean`: what a crash left).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import removal
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import NAMED_KINDS, TABLE_KINDS
from headgate.catalog.session import SessionContext
from headgate.commands import privilege
from headgate.errors import PostgresError
from headgate.sql.parser import position

if TYPE_CHECKING:
    from headgate.commands.session import Session
    from headgate.storage.engine import Engine
    from headgate.storage.transaction.transaction import Transaction

PREFIX = "pg_temp_"
PRESERVE, DELETE_ROWS, DROP = 0, 1, 2


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


def at_commit(session: Session, transaction: Transaction, relation: Relation, what: int) -> None:
    """ON COMMIT: what happens to a new temporary table at the end of each transaction."""
    if what == DROP:
        session.deferral.at_end(relation.oid, lambda: _drop(transaction, [relation]))
    elif what == DELETE_ROWS:
        session.context.emptied_at_commit.add(relation.oid)
        touched(session, transaction, relation)


def touched(session: Session, transaction: Transaction, relation: Relation) -> None:
    """A temporary table is written to: with ON COMMIT DELETE ROWS it is emptied when the transaction commits."""
    if relation.oid in session.context.emptied_at_commit:
        session.deferral.at_end(relation.oid, lambda: _empty(transaction, relation))


def _empty(transaction: Transaction, relation: Relation) -> None:
    """Truncates the table as it is by then."""
    known = relations.find(transaction.cursor, relation.database, relation.oid)
    if known is not None:
        transaction.truncate([known])


def drop_all(engine: Engine, context: SessionContext) -> None:
    """Drops the temporary tables of a session that ends, and its schema."""
    if context.temp_schema is not None:
        _drop_schemas(engine, context.database, [context.temp_schema])


def clean(engine: Engine) -> None:
    """Drops what the sessions of a node that has not been stopped in order left behind."""
    cursor = engine.catalog.cursor()
    try:
        left = rows(cursor, "SELECT dbid, nspname FROM hg.pg_namespace WHERE nspname LIKE 'pg_temp_%' AND dbid <> 0")
    finally:
        cursor.close()
    for database in {each for each, _ in left}:
        _drop_schemas(engine, database, [name for each, name in left if each == database])


def _drop_schemas(engine: Engine, database: int, names: list[str]) -> None:
    transaction = engine.begin(database)
    try:
        transaction.statement()
        for name in names:
            found = namespace.lookup(transaction.cursor, database, name)
            if found is not None:
                _drop(transaction, relations.in_schema(transaction.cursor, database, found.oid, NAMED_KINDS))
                namespace.drop(transaction.cursor, database, found.oid)
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise


def _drop(transaction: Transaction, found: list[Relation]) -> None:
    from headgate.commands.table import table

    for each in found:
        known = relations.find(transaction.cursor, each.database, each.oid)
        if known is None:
            continue
        if known.kind in TABLE_KINDS:
            table.drop_all(transaction, [known])
        else:
            removal.drop(transaction.cursor, known.database, known.oid)
