"""The end of temporary tables: ON COMMIT, the end of their session, and cleanup after a crash.

Called by CREATE TABLE (`at_commit`), by DISCARD, by the session when it ends (`drop_all`), and by a node when it starts (`clean`).
`temporary_schema` determines their schema.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headgate.catalog import namespace
from headgate.catalog.physical import rows
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import NAMED_KINDS
from headgate.catalog.session import SessionContext
from headgate.commands import temporary_schema
from headgate.commands.table import drop_table

if TYPE_CHECKING:
    from headgate.commands.session import Session
    from headgate.storage.engine import Engine
    from headgate.storage.transaction.transaction import Transaction

PRESERVE, DELETE_ROWS, DROP = 0, 1, 2


def at_commit(session: Session, transaction: Transaction, relation: Relation, what: int) -> None:
    """Register the ON COMMIT action of a new temporary table, which runs at the end of each transaction."""
    if what == DROP:
        session.deferral.at_end(relation.oid, lambda: _drop_with_children(transaction, relation))
    elif what == DELETE_ROWS and not relation.is_partitioned:  # each partition has its own action
        session.context.emptied_at_commit.add(relation.oid)
        temporary_schema.touched(session, transaction, relation)


def _drop_with_children(transaction: Transaction, relation: Relation) -> None:
    current = relations.find(transaction.cursor, relation.database, relation.oid)
    if current is not None:
        _drop(transaction, [*inheritance.below(transaction.cursor, current), current])


def drop_all(engine: Engine, context: SessionContext) -> None:
    """Drop the temporary tables of a session that ends, and its schema."""
    if context.temp_schema is not None:
        _drop_schemas(engine, context.database, [context.temp_schema])


def discard(session: Session) -> None:
    """Drop the temporary tables of the session in its transaction (DISCARD TEMP)."""
    transaction, name = session.begin_statement(), session.context.temp_schema
    schema = None if name is None else namespace.lookup(transaction.cursor, session.context.database, name)
    if schema is not None:
        _drop(transaction, relations.in_schema(transaction.cursor, session.context.database, schema.oid, NAMED_KINDS))


def clean(engine: Engine) -> None:
    """Drop the temporary tables of sessions whose node was not shut down cleanly."""
    with contextlib.closing(engine.catalog.cursor()) as cursor:
        leftovers = rows(cursor, "SELECT dbid, nspname FROM hg.pg_namespace WHERE nspname LIKE 'pg_temp_%' AND dbid <> 0")
    for database in {leftover_database for leftover_database, _ in leftovers}:
        _drop_schemas(engine, database, [name for leftover_database, name in leftovers if leftover_database == database])


def _drop_schemas(engine: Engine, database: int, names: list[str]) -> None:
    transaction = engine.begin(database)
    try:
        transaction.statement()
        for name in names:
            schema = namespace.lookup(transaction.cursor, database, name)
            if schema is not None:
                _drop(transaction, relations.in_schema(transaction.cursor, database, schema.oid, NAMED_KINDS))
                namespace.drop(transaction.cursor, database, schema.oid)
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise


def _drop(transaction: Transaction, tables: list[Relation]) -> None:
    for relation in tables:
        drop_table.drop_relation(transaction, relation)
