"""CREATE, ALTER and DROP SCHEMA."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import namespace
from headgate.catalog import user_type as types
from headgate.catalog.physical import run, update
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import removal
from headgate.catalog.relation import sequence as sequences
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


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    """Execute DROP SCHEMA [IF EXISTS] a, b [CASCADE]."""
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
    contents = [(schema, content) for schema in schemas for content in _contents(session, schema)]
    dropped_oids = {content.oid for _, content in contents}
    dependants = []
    for schema, content in contents:
        description = dependency.shown(cursor, context, content)
        if content.parent not in dropped_oids:  # a partition is dropped with its parent, and not reported
            dependants.append(
                dependency.Dependant((1259, content.oid), description, f"schema {names.quote_ident(schema.name)}", lambda: None, content)
            )
        dependants += [
            dependant
            for dependant in dependency.of_relation(cursor, context, content)
            if dependant.key[0] == 2606 or dependant.key[1] not in dropped_oids
        ]
    kinds = [(schema, type_row) for schema in schemas for type_row in types.of_schema(cursor, context.database, schema.oid)]
    for schema, kind in kinds:
        dependants.append(dependency.Dependant((1247, kind.oid), _type(kind), f"schema {names.quote_ident(schema.name)}", lambda: None))
    contained = [(schema, function) for schema in schemas for function in functions.in_schema(cursor, context.database, schema.oid)]
    for schema, function in contained:
        dependants += dependant_functions.with_dependants(session, function, f"schema {names.quote_ident(schema.name)}")
    dependants += dependant_functions.of_rows(session, (content for _, content in contents))
    dependants += dependant_functions.of_types(session, [oid for _, kind in kinds for oid in (kind.oid, kind.array)])
    order = {dropped.oid: index for index, dropped in enumerate(schemas)}
    sort_order = (
        {(1259, content.oid): order[schema.oid] for schema, content in contents}
        | {(1247, kind.oid): order[schema.oid] for schema, kind in kinds}
        | {(dependant_functions.PROC, function.oid): order[schema.oid] for schema, function in contained}
    )
    # the last schema comes first, and within a schema the order is by oid
    dependants.sort(key=lambda dependant: (-sort_order.get(dependant.key, 0), dependant.key[1]))
    subjects = [f"schema {names.quote_ident(dropped_schema.name)}" for dropped_schema in schemas]
    foreign_keys = [(2606, key.oid) for _, content in contents for key in content.foreign_keys]
    for _, kind in kinds:
        transaction.catalog.lock_object("pg_type", kind.oid)
    dependency.settle(transaction, dependants, subjects, session.notices, cascade=node.behavior == pb.DROP_CASCADE, going=foreign_keys)
    tables = [content for _, content in contents if content.kind in TABLE_KINDS]
    for dropped_table in tables:
        subscriptions.refuse_unfinished_sync(cursor, dropped_table.database, dropped_table.oid, dropped_table.name)
    table.drop_all(
        transaction,
        [
            candidate
            for candidate in tables
            if not candidate.parent or all(candidate.parent != dropped_table.oid for dropped_table in tables)
        ],
    )
    for _, content in contents:
        if content.kind not in TABLE_KINDS and relations.find(cursor, context.database, content.oid) is not None:
            removal.drop(cursor, context.database, content.oid)
    if kinds:
        user_type.drop_all(session, transaction, [type_row for _, type_row in kinds], cascade=True)
        user_type.changed(session)
    for schema in schemas:
        namespace.drop(cursor, context.database, schema.oid)
    transaction.catalog_changed()
    return CommandResult("DROP SCHEMA")


def _contents(session: Session, schema: namespace.Namespace) -> list[Relation]:
    cursor, database = session.begin_statement().cursor, session.context.database
    contents = sorted(relations.in_schema(cursor, database, schema.oid, NAMED_KINDS), key=lambda relation: relation.oid)
    owned = {
        oid
        for (oid,) in run(
            cursor,
            "SELECT objid FROM hg.pg_depend WHERE dbid = ? AND classid = 1259 AND deptype IN ('a', 'i') AND refobjsubid > 0",
            [database],
        ).fetchall()
    }
    return [relation for relation in contents if relation.oid not in owned]


def _type(type_row: types.TypeRow) -> str:
    return f"type {registry.format_type(type_row.oid)}"


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    """Execute ALTER SCHEMA … RENAME TO."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    schema = namespace.get(cursor, context.database, node.subname)
    namespace.require_free(cursor, context.database, node.newname)
    privilege.check_owner(cursor, context.user, schema.owner, "schema", schema.name)
    privilege.check_create_on_database(cursor, context.user, context.database)
    transaction.catalog.lock_object("pg_namespace", schema.oid)
    named = views.naming(cursor, context.database, f"{names.quote_ident(schema.name)}.")
    with view.rewritten(session, transaction, named):
        with sequences.followed(cursor, context.database):
            namespace.rename(cursor, context.database, schema.oid, node.newname)
        user_type.changed(session)
    transaction.catalog_changed()
    return CommandResult("ALTER SCHEMA")


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    """Execute ALTER SCHEMA … OWNER TO."""
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
