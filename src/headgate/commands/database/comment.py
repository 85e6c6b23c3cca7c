"""COMMENT ON: pg_description and pg_shdescription."""

from __future__ import annotations

from collections.abc import Iterable

from postgast import pg_query_pb2 as pb

from headgate.catalog import database as databases
from headgate.catalog import namespace as namespaces
from headgate.catalog.physical import Cursor, insert, one, run, tables
from headgate.catalog.relation import relation as relations
from headgate.catalog.replication import publication as publications
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.security import role as roles
from headgate.commands import lookup, privilege
from headgate.commands.function import definition
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.type import user_type
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import unwrap
from headgate.types import registry

_RELATION, _NAMESPACE, _DATABASE, _ROLE, _PUBLICATION, _SUBSCRIPTION, _FUNCTION, _TYPE = 1259, 2615, 1262, 1260, 6104, 6100, 1255, 1247

_ON_TABLES = {
    pb.OBJECT_TABCONSTRAINT: (2606, "pg_constraint", "con"), pb.OBJECT_TRIGGER: (2620, "pg_trigger", "tg"),
    pb.OBJECT_POLICY: (3256, "pg_policy", "pol"),
}  # fmt: skip
"""The catalog of the objects that are named with a table: its oid, its name, and the prefix of its columns."""


def comment(node: pb.CommentStmt, session: Session) -> CommandResult:
    """Execute COMMENT ON … IS 'text' | NULL."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    catalog, oid, sub, shared = _object(node, session, cursor)
    transaction.catalog.change_object(next(table.name for table in tables().values() if table.oid == catalog), oid)
    scope = "objoid = ? AND classoid = ?"
    if shared:
        run(cursor, f"DELETE FROM hg.pg_shdescription WHERE {scope}", [oid, catalog])
        if node.comment:
            insert(cursor, "pg_shdescription", objoid=oid, classoid=catalog, description=node.comment)
    else:
        run(cursor, f"DELETE FROM hg.pg_description WHERE dbid = ? AND {scope} AND objsubid = ?", [context.database, oid, catalog, sub])
        if node.comment:
            insert(cursor, "pg_description", dbid=context.database, objoid=oid, classoid=catalog, objsubid=sub, description=node.comment)
    return CommandResult("COMMENT")


def _object(node: pb.CommentStmt, session: Session, cursor: Cursor) -> tuple[int, int, int, bool]:
    """Return (catalog, oid, attnum, whether the comment is shared by all databases) of the commented object."""
    context, target = session.context, unwrap(node.object)
    database = context.database
    match node.objtype:
        case pb.OBJECT_TABLE | pb.OBJECT_INDEX | pb.OBJECT_SEQUENCE | pb.OBJECT_VIEW:
            relation = _relation(target.items, session, cursor)
            return _RELATION, relation.oid, 0, False
        case pb.OBJECT_COLUMN:
            relation = _relation(list(target.items)[:-1], session, cursor)
            name = unwrap(list(target.items)[-1]).sval
            column = relation.existing_column(name)
            return _RELATION, relation.oid, column.attnum, False
        case pb.OBJECT_TABCONSTRAINT | pb.OBJECT_TRIGGER | pb.OBJECT_POLICY:
            return _on_table(node, session, cursor)
        case pb.OBJECT_TYPE | pb.OBJECT_DOMAIN:
            kind = user_type.find(target.names, session, cursor)
            assert kind is not None
            privilege.check_owner(cursor, context.user, kind.owner, "type", registry.format_type(kind.oid))
            return _TYPE, kind.oid, 0, False
        case pb.OBJECT_SCHEMA:
            schema = namespaces.get(cursor, database, target.sval)
            privilege.check_owner_of_schema(cursor, context.user, database, schema)
            return _NAMESPACE, schema.oid, 0, False
        case pb.OBJECT_PUBLICATION:
            publication = publications.get(cursor, database, target.sval)
            privilege.check_owner(cursor, context.user, publication.owner, "publication", publication.name)
            return _PUBLICATION, publication.oid, 0, False
        case pb.OBJECT_SUBSCRIPTION:
            subscription = subscriptions.get(cursor, database, target.sval)
            privilege.check_owner(cursor, context.user, subscription.owner, "subscription", subscription.name)
            return _SUBSCRIPTION, subscription.oid, 0, False  # pg_description, although pg_subscription is shared
        case pb.OBJECT_DATABASE:
            commented = databases.get(cursor, target.sval)
            privilege.check_owner(cursor, context.user, commented.owner, "database", commented.name)
            return _DATABASE, commented.oid, 0, True
        case pb.OBJECT_ROLE:
            return _ROLE, _role(target.sval, session, cursor), 0, True
        case kind if kind in definition.ROUTINES:
            word = definition.ROUTINES[kind]
            function = definition.named(target, session, cursor, word)
            assert function is not None
            privilege.check_owner(cursor, context.user, function.owner, word, function.name)
            return _FUNCTION, function.oid, 0, False
        case _:
            raise not_supported("COMMENT ON objects of this kind is not supported")


def _on_table(node: pb.CommentStmt, session: Session, cursor: Cursor) -> tuple[int, int, int, bool]:
    """Return what `_object` does, of a constraint, trigger or policy, which is named with its table."""
    *table, last = unwrap(node.object).items
    relation, name = _relation(table, session, cursor, "relation"), unwrap(last).sval
    catalog, table_name, prefix = _ON_TABLES[node.objtype]
    sql = f"SELECT oid FROM hg.{table_name} WHERE dbid = ? AND {prefix}relid = ? AND {prefix}name = ?"
    row = one(cursor, sql, [relation.database, relation.oid, name])
    session.begin_statement().catalog.change_object("pg_class", relation.oid)
    if row is None:
        word = table_name.removeprefix("pg_")
        raise PostgresError("42704", f'{word} "{name}" for table "{relation.name}" does not exist')
    return catalog, int(row[0]), 0, False


def _role(name: str, session: Session, cursor: Cursor) -> int:
    """Check that the user may comment on a role. It needs CREATEROLE, and superuser for a superuser's role."""
    role, user = roles.get(cursor, name), roles.get(cursor, session.context.user)
    if role.superuser and not user.superuser:
        raise PostgresError("42501", "must be superuser")
    if not (user.superuser or user.create_role):
        raise PostgresError("42501", "must have CREATEROLE privilege")
    return role.oid


def _relation(items: Iterable[pb.Node], session: Session, cursor: Cursor, word: str | None = None) -> relations.Relation:
    """Return the relation of these names. Raise 42501 if the user is not its owner; `word`: what the message calls it."""
    context = session.context
    schema, name = names.split_name(items, context.database_name)
    relation = relations.lookup(cursor, context.database, schema, name, lookup.search_path(cursor, context))
    if relation is None:
        if schema is not None:
            namespaces.get(cursor, context.database, schema)
        full_name = name if schema is None else f"{schema}.{name}"
        raise PostgresError("42P01", f'relation "{full_name}" does not exist')
    privilege.check_owner(cursor, context.user, relation.owner, word or lookup.KINDS[relation.kind], relation.name)
    return relation
