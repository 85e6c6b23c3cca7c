"""CREATE, ALTER and DROP SCHEMA."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace
from headgate.catalog import user_type as types
from headgate.catalog.physical import update
from headgate.catalog.relation import view as views
from headgate.commands import default_privilege, dependency, privilege
from headgate.commands.result import CommandResult
from headgate.commands.role import grant
from headgate.commands.schema_contents import SchemaContents
from headgate.commands.sequence import sequence
from headgate.commands.session import Session
from headgate.commands.table import drop_table, index, table
from headgate.commands.type import user_type
from headgate.commands.view import view
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

_KINDS: dict[str, tuple[str | None, Callable[[ParseNode, Session], CommandResult]]] = {
    "CreateSeqStmt": ("sequence", sequence.create_sequence),
    "CreateStmt": ("relation", table.create),
    "ViewStmt": ("view", view.create),
    "IndexStmt": ("relation", index.create),
    "GrantStmt": (None, grant.grant),
}
"""The elements in the order of their creation, with the field that names the relation and the function that creates it."""


def create(node: pb.CreateSchemaStmt, session: Session) -> CommandResult:
    """Execute CREATE SCHEMA [IF NOT EXISTS] s [AUTHORIZATION r] [elements]."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    owner = names.role_name(node.authrole, context.user, context.session_user) if node.HasField("authrole") else context.user
    name = node.schemaname or owner
    owner_oid = privilege.used_role(cursor, owner)
    privilege.check_create_on_database(cursor, context.user, context.database)
    privilege.check_member(cursor, context.user, owner)
    if node.if_not_exists and namespace.lookup(cursor, context.database, name) is not None:
        session.notices.notice(f'schema "{name}" already exists, skipping', sqlstate="42P06")
        return CommandResult("CREATE SCHEMA")
    _check_elements(node.schema_elts, name)
    oid = transaction.catalog.next_oid()
    namespace.create(cursor, oid, context.database, name, owner_oid)
    items = default_privilege.default_acl(cursor, context.database, owner, 0, "n")
    if items is not None:
        update(cursor, "pg_namespace", {"dbid": context.database, "oid": oid}, nspacl=items)
    transaction.catalog_changed()
    with privilege.acting_as(owner_oid, cursor, context):
        _make_elements(node.schema_elts, session, name)
    return CommandResult("CREATE SCHEMA")


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    """Execute DROP SCHEMA [IF EXISTS] a, b [CASCADE]."""
    transaction = session.begin_statement()
    schemas = _dropped(node, session)
    contents = SchemaContents.of(session, schemas)
    dependants = contents.dependants(session)
    for _, row in contents.types:
        transaction.catalog.lock_object("pg_type", row.oid)
    oids = [oid for _, row in contents.types for oid in (row.oid, row.array)]
    columns = types.columns_of(transaction.cursor, session.context.database, oids or [0])
    dependency.settle(
        transaction,
        dependants,
        [f"schema {names.quote_ident(schema.name)}" for schema in schemas],
        session.notices,
        cascade=node.behavior == pb.DROP_CASCADE,
        going=contents.partitions(transaction.cursor),
        silent=user_type.parts_of_columns(transaction.cursor, session.context.database, columns),
    )
    drop_table.refuse_replicated(session, [relation for _, relation in contents.relations])
    contents.drop_relations(session)
    if contents.types:
        user_type.drop_all(session, transaction, [row for _, row in contents.types], cascade=True)
        user_type.changed(session)
    for schema in schemas:
        namespace.drop(transaction.cursor, session.context.database, schema.oid)
    transaction.catalog_changed()
    return CommandResult("DROP SCHEMA")


def _dropped(node: pb.DropStmt, session: Session) -> list[namespace.Namespace]:
    """Return the schemas that DROP SCHEMA names, locked."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    schemas: list[namespace.Namespace] = []
    for item in node.objects:
        name = unwrap(item).sval
        schema = namespace.lookup(cursor, context.database, name)
        if schema is None:
            session.notices.skip(PostgresError("3F000", f'schema "{name}" does not exist'), allowed=node.missing_ok)
            continue
        if schema.oid < registry.FIRST_USER_OID and name != "public":
            raise PostgresError("2BP01", f"cannot drop schema {name} because it is required by the database system")
        privilege.check_owner(cursor, context.user, schema.owner, "schema", name)
        transaction.catalog.lock_object("pg_namespace", schema.oid)
        schemas.append(schema)
    return schemas


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    schema = namespace.get(cursor, context.database, node.subname)
    namespace.require_free(cursor, context.database, node.newname)
    privilege.check_owner(cursor, context.user, schema.owner, "schema", schema.name)
    privilege.check_create_on_database(cursor, context.user, context.database)
    transaction.catalog.lock_object("pg_namespace", schema.oid)
    named = views.naming(cursor, context.database, f"{names.quote_ident(schema.name)}.")
    with view.rewritten(session, transaction, named):
        namespace.rename(cursor, context.database, schema.oid, node.newname)
        user_type.changed(session)
    transaction.catalog_changed()
    return CommandResult("ALTER SCHEMA")


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    new_owner, oid = privilege.new_owner(cursor, context, node.newowner)
    schema = namespace.get(cursor, context.database, unwrap(node.object).sval)
    if oid != schema.owner:
        privilege.check_may_give(cursor, context.user, schema.owner, "schema", schema.name, new_owner)
        privilege.check_create_on_database(cursor, context.user, context.database)
    transaction.catalog.change_object("pg_namespace", schema.oid)
    namespace.set_owner(cursor, context.database, schema.oid, oid)
    return CommandResult("ALTER SCHEMA")


def _check_elements(elements: Iterable[pb.Node], schema: str) -> None:
    """Raise 42P15 for an element that names another schema, 0A000 for one that a node cannot create."""
    for element in map(unwrap, elements):
        kind = element.DESCRIPTOR.name
        if kind not in _KINDS:
            raise not_supported("CREATE SCHEMA with triggers is not supported")
        field, _ = _KINDS[kind]
        schema_name = "" if field is None else getattr(element, field).schemaname
        if schema_name not in ("", schema):
            raise PostgresError("42P15", f"CREATE specifies a schema ({schema_name}) different from the one being created ({schema})")


def _make_elements(elements: Iterable[pb.Node], session: Session, schema: str) -> None:
    """Create the elements, with the schema first in the search_path."""
    order, context = list(_KINDS), session.context
    search_path, context.search_path = context.search_path, [schema, *context.search_path]
    try:
        for element in sorted(map(unwrap, elements), key=lambda element_node: order.index(element_node.DESCRIPTOR.name)):
            field, action = _KINDS[element.DESCRIPTOR.name]
            if field is not None:
                getattr(element, field).schemaname = schema
            action(element, session)
    finally:
        context.search_path = search_path
