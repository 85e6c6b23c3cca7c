"""CREATE, ALTER and DROP SCHEMA."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import namespace
from headgate.catalog import user_type as types
from headgate.catalog.function import UserFunction
from headgate.catalog.physical import rows, update
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import removal
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import NAMED_KINDS, TABLE_KINDS
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.session import SessionContext
from headgate.commands import default_privilege, dependency, lookup, privilege
from headgate.commands.function import dependant as dependant_functions
from headgate.commands.result import CommandResult
from headgate.commands.role import grant
from headgate.commands.sequence import sequence
from headgate.commands.session import Session
from headgate.commands.table import index, table
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
    oid = transaction.engine.catalog.next_oid()
    namespace.create(cursor, oid, context.database, name, owner_oid)
    items = default_privilege.default_acl(cursor, context.database, owner, 0, "n")
    if items is not None:
        update(cursor, "pg_namespace", {"dbid": context.database, "oid": oid}, nspacl=items)
    transaction.catalog_changed()
    _make_elements(node.schema_elts, session, name, owner, owner_oid)
    return CommandResult("CREATE SCHEMA")


@dataclass(frozen=True)
class _Contents:
    """The objects in schemas to be dropped, each with its schema. Sequences of columns are not listed."""

    relations: list[tuple[namespace.Namespace, Relation]]
    types: list[tuple[namespace.Namespace, types.TypeRow]]
    functions: list[tuple[namespace.Namespace, UserFunction]]

    @classmethod
    def of(cls, session: Session, schemas: Sequence[namespace.Namespace]) -> _Contents:
        cursor, database = session.begin_statement().cursor, session.context.database
        return cls(
            [(schema, relation) for schema in schemas for relation in _relations(session, schema)],
            [(schema, row) for schema in schemas for row in types.of_schema(cursor, database, schema.oid)],
            [(schema, function) for schema in schemas for function in functions.in_schema(cursor, database, schema.oid)],
        )


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    """Execute DROP SCHEMA [IF EXISTS] a, b [CASCADE]."""
    transaction = session.begin_statement()
    schemas = _dropped(node, session)
    contents = _Contents.of(session, schemas)
    dependants = _dependants(session, schemas, contents)
    for _, row in contents.types:
        transaction.catalog.lock_object("pg_type", row.oid)
    dependency.settle(
        transaction,
        dependants,
        [_shown(schema) for schema in schemas],
        session.notices,
        cascade=node.behavior == pb.DROP_CASCADE,
        going=[(2606, key.oid) for _, relation in contents.relations for key in relation.foreign_keys],
    )
    _drop_contents(session, contents)
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
            lookup.skip_missing(session, "3F000", f'schema "{name}"', missing_ok=node.missing_ok)
            continue
        if schema.oid < registry.FIRST_USER_OID and name != "public":
            raise PostgresError("2BP01", f"cannot drop schema {name} because it is required by the database system")
        privilege.check_owner(cursor, context.user, schema.owner, "schema", name)
        transaction.catalog.lock_object("pg_namespace", schema.oid)
        schemas.append(schema)
    return schemas


def _shown(schema: namespace.Namespace) -> str:
    return f"schema {names.quote_ident(schema.name)}"


def _dependants(session: Session, schemas: Sequence[namespace.Namespace], contents: _Contents) -> list[dependency.Dependant]:
    """Return the contents of schemas, and the objects that depend on them, in PostgreSQL's order: the last schema first, then by oid."""
    cursor, context = session.begin_statement().cursor, session.context
    dropped_oids = {relation.oid for _, relation in contents.relations}
    dependants = []
    for schema, relation in contents.relations:
        if relation.parent not in dropped_oids:  # a partition is dropped with its parent, and not reported
            shown = dependency.shown(cursor, context, relation)
            dependants.append(dependency.Dependant((1259, relation.oid), shown, _shown(schema), lambda: None, relation))
        dependants += [
            dependant
            for dependant in dependency.of_relation(cursor, context, relation)
            if dependant.key[0] == 2606 or dependant.key[1] not in dropped_oids
        ]
    for schema, row in contents.types:
        shown = f"type {registry.format_type(row.oid)}"
        dependants.append(dependency.Dependant((1247, row.oid), shown, _shown(schema), lambda: None))
    for schema, function in contents.functions:
        dependants += dependant_functions.with_dependants(session, function, _shown(schema))
    dependants += dependant_functions.of_rows(session, (relation for _, relation in contents.relations))
    dependants += dependant_functions.of_types(session, [oid for _, row in contents.types for oid in (row.oid, row.array)])
    place = {schema.oid: index for index, schema in enumerate(schemas)}
    places = (
        {(1259, relation.oid): place[schema.oid] for schema, relation in contents.relations}
        | {(1247, row.oid): place[schema.oid] for schema, row in contents.types}
        | {(dependant_functions.PROC, function.oid): place[schema.oid] for schema, function in contents.functions}
    )
    return sorted(dependants, key=lambda dependant: (-places.get(dependant.key, 0), dependant.key[1]))


def _drop_contents(session: Session, contents: _Contents) -> None:
    """Drop the tables, then the other relations, then the types of schemas. Functions have been dropped as dependent objects."""
    transaction = session.begin_statement()
    cursor, database = transaction.cursor, session.context.database
    tables = {relation.oid: relation for _, relation in contents.relations if relation.kind in TABLE_KINDS}
    for relation in tables.values():
        subscriptions.refuse_unfinished_sync(cursor, relation.database, relation.oid, relation.name)
    table.drop_all(transaction, [relation for relation in tables.values() if relation.parent not in tables])
    for _, relation in contents.relations:
        if relation.kind not in TABLE_KINDS and relations.find(cursor, database, relation.oid) is not None:
            removal.drop(cursor, database, relation.oid)
    if contents.types:
        user_type.drop_all(session, transaction, [row for _, row in contents.types], cascade=True)
        user_type.changed(session)


def _relations(session: Session, schema: namespace.Namespace) -> list[Relation]:
    cursor, database = session.begin_statement().cursor, session.context.database
    contents = sorted(relations.in_schema(cursor, database, schema.oid, NAMED_KINDS), key=lambda relation: relation.oid)
    of_columns = "SELECT objid FROM hg.pg_depend WHERE dbid = ? AND classid = 1259 AND deptype IN ('a', 'i') AND refobjsubid > 0"
    owned = {oid for (oid,) in rows(cursor, of_columns, [database])}
    return [relation for relation in contents if relation.oid not in owned]


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


def _make_elements(elements: Iterable[pb.Node], session: Session, schema: str, owner: str, owner_oid: int) -> None:
    order = list(_KINDS)
    superuser = privilege.is_superuser(session.begin_statement().cursor, owner)
    with _inside(session.context, schema, owner, owner_oid, superuser=superuser):
        for element in sorted(map(unwrap, elements), key=lambda element_node: order.index(element_node.DESCRIPTOR.name)):
            field, action = _KINDS[element.DESCRIPTOR.name]
            if field is not None:
                getattr(element, field).schemaname = schema
            action(element, session)


@contextmanager
def _inside(context: SessionContext, schema: str, owner: str, owner_oid: int, *, superuser: bool) -> Iterator[None]:
    """Put the schema first in the search_path, and make its owner the current user."""
    saved = context.search_path, context.user, context.user_oid, context.superuser
    context.search_path = [schema, *context.search_path]
    context.user, context.user_oid, context.superuser = owner, owner_oid, superuser
    try:
        yield
    finally:
        context.search_path, context.user, context.user_oid, context.superuser = saved
