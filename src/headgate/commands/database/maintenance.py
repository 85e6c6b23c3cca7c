"""VACUUM, ANALYZE, REINDEX.

ANALYZE has nothing to do: Spark plans by Delta's own statistics. VACUUM lets the storage remove what nobody can read any more. All
check their tables' names and privileges as PostgreSQL does.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace
from headgate.catalog.physical import one
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.parser import ParseNode, unwrap


def vacuum(node: ParseNode, session: Session) -> CommandResult:
    """VACUUM and ANALYZE."""
    word = "VACUUM" if node.is_vacuumcmd else "ANALYZE"
    if node.is_vacuumcmd:
        session.prevent_in_block("VACUUM")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    for item in node.rels:
        relation = lookup.target(cursor, context, unwrap(item).relation)
        if relation.kind not in TABLE_KINDS | {RelationKind.MATERIALIZED_VIEW}:
            session.notices.warning(f'skipping "{relation.name}" --- cannot vacuum non-tables or special system tables')
        elif not privilege.owns(cursor, context.user, relation.owner):
            session.notices.warning(f'skipping "{relation.name}" --- only table or database owner can {word.lower()} it')
    if node.is_vacuumcmd:
        transaction.engine.clean()
    return CommandResult(word)


def reindex(node: ParseNode, session: Session) -> CommandResult:
    """REINDEX: indexes hold no data of their own."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    if node.HasField("relation"):
        relation = lookup.target(cursor, context, node.relation)
        kind = "index" if node.kind == pb.REINDEX_OBJECT_INDEX else "table"
        privilege.check_owner(cursor, context.user, relation.owner, kind, relation.name)
        return CommandResult("REINDEX")
    if node.kind == pb.REINDEX_OBJECT_SCHEMA:
        schema = namespace.get(cursor, context.database, node.name)
        if not privilege.owns_schema(cursor, context.user, context.database, schema.owner):
            raise PostgresError("42501", f"must be owner of schema {node.name}")
        return CommandResult("REINDEX")
    if node.name and node.name != context.database_name:
        raise PostgresError("0A000", "can only reindex the currently open database")
    owner = one(cursor, "SELECT datdba FROM hg.pg_database WHERE oid = ?", [context.database])
    assert owner is not None
    privilege.check_owner(cursor, context.user, owner[0], "database", context.database_name)
    return CommandResult("REINDEX")
