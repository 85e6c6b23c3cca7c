"""CREATE INDEX and DROP INDEX.

An index of a node holds no data: it is kept because a unique one is a constraint and can be a replica identity. Whether the
rows are unique is checked when it is made, by `uniqueness`.
"""

from __future__ import annotations

from typing import Any

from headgate.catalog import definition
from headgate.catalog import relation as relations
from headgate.catalog.definition import Key
from headgate.catalog.physical import one, run
from headgate.commands import lookup, privilege, uniqueness
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import oids
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import unwrap


def create(node: Any, session: Session) -> CommandResult:
    """CREATE [UNIQUE] INDEX."""
    if node.concurrent:
        session.prevent_in_block("CREATE INDEX CONCURRENTLY")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = lookup.target(cursor, context, node.relation)
    if relation.kind not in "rpm":
        raise PostgresError(
            "42809",
            f'cannot create index on relation "{relation.name}"',
            detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
        )
    privilege.check_owner(cursor, context.user, relation.owner, "table", relation.name)
    if node.idxname and relations.find_oid(cursor, context.database, relation.schema, node.idxname) is not None:
        if not node.if_not_exists:
            raise PostgresError("42P07", f'relation "{node.idxname}" already exists')
        session.notices.notice(f'relation "{node.idxname}" already exists, skipping', sqlstate="42P07")
        return CommandResult("CREATE INDEX")
    attnums: list[int] = []
    for item in node.index_params:
        element = unwrap(item)
        if element.HasField("expr"):
            raise not_supported("indexes on expressions are not supported")
        attnums.append(_attnum(relation, element.name))
    for item in node.index_including_params:
        _attnum(relation, unwrap(item).name)
    if node.HasField("where_clause"):
        raise not_supported("partial indexes are not supported")
    if node.access_method not in ("", "btree"):
        known = one(cursor, "SELECT 1 FROM hg.pg_am WHERE amname = ? AND amtype = 'i'", [node.access_method])
        if known is None:
            raise PostgresError("42704", f'access method "{node.access_method}" does not exist')
        if node.unique:
            raise PostgresError("0A000", f'access method "{node.access_method}" does not support unique indexes')
    name = node.idxname or definition.choose_name(
        cursor, context.database, relation.namespace_oid, relation.name, "_".join(_name(relation, each) for each in attnums), "idx"
    )
    key = Key(tuple(attnums), unique=node.unique, name=name, constraint=False)
    if node.unique:
        uniqueness.check_table(transaction, relation, key.attnums, name)
    definition.add_key(cursor, oids(transaction), relation, key)
    transaction.catalog_changed()
    return CommandResult("CREATE INDEX")


def _attnum(relation: relations.Relation, name: str) -> int:
    column = relation.column(name)
    if column is None:
        raise PostgresError("42703", f'column "{name}" does not exist')
    return column.attnum


def _name(relation: relations.Relation, attnum: int) -> str:
    column = relation.numbered(attnum)
    return "" if column is None else column.name


def drop(node: Any, session: Session) -> CommandResult:
    """DROP INDEX [IF EXISTS]."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    for item in node.objects:
        schema, name = names.split_name(unwrap(item).items, context.database_name)
        found = relations.lookup(cursor, context.database, schema, name, lookup.search_path(cursor, context))
        if found is None:
            if not node.missing_ok:
                raise PostgresError("42704", f'index "{name}" does not exist')
            session.notices.notice(f'index "{name}" does not exist, skipping')
            continue
        if found.kind not in "iI":
            raise PostgresError("42809", f'"{name}" is not an index')
        owner = one(cursor, "SELECT indrelid FROM hg.pg_index WHERE dbid = ? AND indexrelid = ?", [context.database, found.oid])
        assert owner is not None
        relation = relations.get(cursor, context.database, int(owner[0]))
        privilege.check_owner(cursor, context.user, relation.owner, "index", found.name)
        constraint = next((each for each in relation.indexes if each.oid == found.oid and each.constraint), None)
        if constraint is not None:
            message = f"cannot drop index {found.name} because constraint {found.name} on table {relation.name} requires it"
            hint = f"You can drop constraint {found.name} on table {relation.name} instead."
            raise PostgresError("2BP01", message, hint=hint)
        definition.drop_index(cursor, relation, found.oid)
        run(cursor, "DELETE FROM hg.pg_description WHERE dbid = ? AND objoid = ?", [context.database, found.oid])
    transaction.catalog_changed()
    return CommandResult("DROP INDEX")
