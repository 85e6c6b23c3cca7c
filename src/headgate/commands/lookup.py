"""Resolve the names in a statement to relations, schemas and roles. Raise PostgreSQL's errors if they do not exist.

Called by all commands. DDL and DML differ in the error for a missing schema: DDL names the schema (3F000), a query names the relation
(42P01) with its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import hold, system_view
from headgate.catalog import namespace as namespaces
from headgate.catalog.function import UserFunction
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, TABLE_KINDS, RelationKind
from headgate.catalog.session import SessionContext
from headgate.commands import privilege
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing
from headgate.initial_catalog.rows import schemas
from headgate.sql import names
from headgate.sql.parser import ParseNode, position, unwrap
from headgate.types import registry
from headgate.types.registry import FIRST_USER_OID

KINDS = {"r": "table", "p": "table", "i": "index", "I": "index", "S": "sequence", "v": "view", "m": "materialized view",
         "f": "foreign table",         "c": "type", "t": "table"}  # fmt: skip
"""The names of pg_class.relkind in messages."""

PLURALS = {"i": "indexes", "I": "partitioned indexes", "S": "sequences", "v": "views", "m": "materialized views", "f": "foreign tables",
           "c": "composite types", "p": "partitioned tables", "r": "tables", "t": "TOAST tables"}  # fmt: skip
"""Their plurals, for DETAIL `This operation is not supported for views.`"""


def shown(node: pb.RangeVar) -> str:
    """Return a RangeVar as messages show it: schema.table."""
    return f"{node.schemaname}.{node.relname}" if node.schemaname else str(node.relname)


def named(cursor: Cursor, context: SessionContext, text: str) -> Relation:
    """Return the relation that a text names, as regclass reads it. Raise 42602 for an invalid name and 42P01 if it does not exist."""
    parts = names.split_identifiers(text, ".")
    if not parts or len(parts) > 2:
        raise PostgresError("42602", "invalid name syntax")
    oid = relations.find_oid(cursor, context.database, parts[0] if len(parts) > 1 else None, parts[-1], search_path(cursor, context))
    return existing(None if oid is None else relations.find(cursor, context.database, oid), "42P01", f'relation "{text}"')


def functions_named(cursor: Cursor, context: SessionContext, parts: Iterable[pb.Node]) -> list[UserFunction]:
    """Return the user-defined functions and procedures that a name can denote, in the order of the search path."""
    schema, name = names.split_name(parts, context.database_name)
    if schema == registry.BY_OID:
        function = functions.find(cursor, context.database, int(name)) if name.isdecimal() else None
        return [] if function is None else [function]
    path = [schema] if schema else search_path(cursor, context)
    visible = [function for function in functions.named(cursor, context.database, name) if function.schema in path]
    return sorted(visible, key=lambda function: path.index(function.schema))


def on_tables(
    node: pb.DropStmt, session: Session, word: str, names_of: Callable[[Relation], Iterable[str]]
) -> Iterator[tuple[pb.RangeVar, str]]:
    """Yield the objects that DROP names with their tables (``DROP POLICY p ON t``): table and name of each.

    With IF EXISTS, missing objects are skipped with a NOTICE. `word`: the kind of object. `names_of`: returns the names that a table has.
    """
    cursor, context = session.begin_statement().cursor, session.context
    for item in node.objects:
        *parts, last = unwrap(item).items
        schema, table = names.split_name(parts, context.database_name)
        target, name = pb.RangeVar(relname=table, schemaname=schema or ""), unwrap(last).sval
        relation = find(cursor, context, target) if node.missing_ok else None
        if node.missing_ok and relation is None:
            session.notices.notice(f'relation "{table}" does not exist, skipping')
        elif relation is not None and name not in names_of(relation):
            session.notices.notice(f'{word} "{name}" for relation "{relation.name}" does not exist, skipping')
        else:
            yield target, name


def altered(cursor: Cursor, session: Session, node: pb.RangeVar, *, missing_ok: bool) -> Relation | None:
    """Return the relation that ALTER names. With IF EXISTS, send a NOTICE and return None if it does not exist."""
    if not missing_ok:
        return target(cursor, session.context, node)
    relation = find(cursor, session.context, node)
    if relation is None:
        session.notices.notice(f'relation "{node.relname}" does not exist, skipping')
    return relation


def search_path(cursor: Cursor, context: SessionContext) -> list[str]:
    """Return the schemas of the search path that exist and that the user may use, with "$user" resolved and without pg_catalog."""
    names: list[str] = []
    for name in context.search_path:
        real = context.user if name == "$user" else name
        if real in names:
            continue
        schema = namespaces.lookup(cursor, context.database, real)
        if schema is None:
            continue
        if real == context.temp_schema or privilege.may_in_schema(cursor, context.user, context.database, schema.oid, "USAGE"):
            names.append(real)
    return names


def used_namespace(cursor: Cursor, database: int, name: str) -> int:
    """Return the oid of a schema in which the command creates an object, and protect the schema from DROP meanwhile. Raise 3F000."""
    oid = namespaces.get(cursor, database, name).oid
    hold.use(cursor, "pg_namespace", oid)
    return oid


def creation_schema(cursor: Cursor, context: SessionContext, schema: str) -> tuple[int, str]:
    """Return (oid, name) of the schema for a new object. Protect the schema and the user from DROP.

    Raise 3F000 if there is no schema, and 42501 without CREATE on it.
    """
    privilege.used_role(cursor, context.user)
    if not schema:
        path = [name for name in search_path(cursor, context) if name not in ("pg_catalog", context.temp_schema)]
        if not path:
            raise PostgresError("3F000", "no schema has been selected to create in")
        schema = path[0]
    oid = used_namespace(cursor, context.database, schema)
    privilege.check_create_in_schema(cursor, context.user, context.database, oid)
    return oid, schema


def check_database(node: pb.RangeVar, context: SessionContext) -> None:
    """Raise 0A000 for a RangeVar in another database."""
    if node.catalogname and node.catalogname != context.database_name:
        full = f"{node.catalogname}.{node.schemaname}.{node.relname}"
        raise PostgresError("0A000", f'cross-database references are not implemented: "{full}"')


def find(cursor: Cursor, context: SessionContext, node: pb.RangeVar, *, check: bool = True) -> Relation | None:
    """Return the relation that a RangeVar names, or None. Raise 42501 if the user may not use the named schema."""
    check_database(node, context)
    if node.schemaname == "pg_temp":
        return relations.lookup(cursor, context.database, context.temp_schema or "pg_temp", node.relname)
    if node.schemaname and node.schemaname != context.temp_schema and check:
        namespaces.check_use(cursor, context.user, context.database, node.schemaname)
    return relations.lookup(cursor, context.database, node.schemaname or None, node.relname, search_path(cursor, context))


def target(cursor: Cursor, context: SessionContext, node: pb.RangeVar) -> Relation:
    """Return the relation that a DDL command names. Raise 3F000 for a missing schema and 42P01 for a missing relation, without position."""
    relation = find(cursor, context, node)
    if relation is None:
        if node.schemaname:
            namespaces.get(cursor, context.database, node.schemaname)
        raise PostgresError("42P01", f'relation "{shown(node)}" does not exist')
    return relation


def source(cursor: Cursor, context: SessionContext, node: pb.RangeVar, *, check: bool = True) -> Relation:
    """Return the relation that a query names. Raise 42P01 with the position. `check`: whether the user must have USAGE on the schema."""
    try:
        relation = find(cursor, context, node, check=check)
    except PostgresError as error:
        error.position = position(node.location)
        raise
    if relation is None:
        raise PostgresError("42P01", f'relation "{shown(node)}" does not exist', location=node.location)
    return relation


def queried(cursor: Cursor, context: SessionContext, node: pb.RangeVar, *, check: bool = True) -> Relation:
    """Return the relation that FROM names, as `source` does, without ONLY together with the tables that inherit from it.

    A system relation is as the release has it that the node announces.
    """
    check_database(node, context)
    named = system_relation(node.schemaname or "pg_catalog", node.relname, context.announced, context.database)
    if named is not None and not node.schemaname:
        oid = relations.find_oid(cursor, context.database, None, node.relname, search_path(cursor, context))
        named = named if oid in (None, named.oid) else None
    relation = named or source(cursor, context, node, check=check)
    if relation.kind in INDEX_KINDS:
        raise PostgresError("42809", f'"{relation.name}" is an index', location=node.location)
    if named is None and relation.oid < FIRST_USER_OID:
        return system_relation(relation.schema, relation.name, context.announced, context.database) or relation
    return inheritance.expanded(cursor, relation) if node.inh else relation


@lru_cache(maxsize=2048)
def system_relation(schema: str, name: str, announced: int, database: int) -> Relation | None:
    """Return a system relation as the release `announced` has it, or one of the node's own tables, which system views read.

    Return None for other relations. A domain of information_schema is replaced by its base type.
    """
    base, builtin = system_view.relation(schema, name, announced), registry.builtin()
    if base is not None:
        namespace = next(oid for oid, own_name in schemas().items() if own_name == schema)
        columns = [
            Column(column.attnum, column.name, column.type_oid, column.typmod, collation=builtin.by_oid(column.type_oid).collation)
            for column in base.columns
        ]
        return Relation(base.oid, database, namespace, schema, name, RelationKind(base.kind), tuple(columns))
    if schema != system_view.NODE_SCHEMA or name not in system_view.NODE_TABLES:
        return None
    listed = enumerate(system_view.NODE_TABLES[name], 1)
    columns = [Column(place, column, kind, collation=builtin.by_oid(kind).collation) for place, (column, kind) in listed]
    return Relation(0, database, 0, schema, name, RelationKind.TABLE, tuple(columns))


def table(cursor: Cursor, context: SessionContext, node: ParseNode) -> Relation:
    """Return the table (plain or partitioned) that a DDL command names. Raise 42809 for other relations; see `target`."""
    relation = target(cursor, context, node)
    if relation.kind not in TABLE_KINDS:
        raise PostgresError("42809", f'"{relation.name}" is not a table')
    return relation


_DROPS = {
    "r": "Use DROP TABLE to remove a table.",
    "p": "Use DROP TABLE to remove a table.",
    "v": "Use DROP VIEW to remove a view.",
    "S": "Use DROP SEQUENCE to remove a sequence.",
    "i": "Use DROP INDEX to remove an index.",
    "I": "Use DROP INDEX to remove an index.",
}
"""HINT of a DROP that names a relation of another kind (DropErrorMsgWrongType)."""


def dropped(cursor: Cursor, session: Session, node: pb.DropStmt, kind: str) -> Iterator[Relation]:
    """Yield the relations that DROP TABLE, VIEW, SEQUENCE or INDEX names, each once. Raises as `_dropped`."""
    seen: set[int] = set()
    for item in node.objects:
        relation = _dropped(cursor, session, unwrap(item).items, kind, missing_ok=node.missing_ok)
        if relation is not None and relation.oid not in seen:
            seen.add(relation.oid)
            yield relation


def _dropped(cursor: Cursor, session: Session, parts: Iterable[pb.Node], kind: str, *, missing_ok: bool) -> Relation | None:
    """Return the relation that DROP TABLE, VIEW, SEQUENCE or INDEX names, or None with a NOTICE if IF EXISTS does not find it.

    Raise 3F000 for a missing schema, 42P01 for a missing relation (42704 for an index), and 42809 for one that is not a `kind` (a word of
    KINDS).
    """
    context = session.context
    schema, name = names.split_name(parts, context.database_name)
    if schema is not None and schema != context.temp_schema:
        namespaces.check_use(cursor, context.user, context.database, schema)
    relation = relations.lookup(cursor, context.database, schema, name, search_path(cursor, context))
    if relation is None:
        missing = PostgresError("42704" if kind == "index" else "42P01", f'{kind} "{name}" does not exist')
        if schema is not None and namespaces.lookup(cursor, context.database, schema) is None:
            missing = PostgresError("3F000", f'schema "{schema}" does not exist')
        session.notices.skip(missing, allowed=missing_ok)
        return None
    if KINDS.get(relation.kind) != kind:
        raise PostgresError("42809", f'"{name}" is not {"an" if kind == "index" else "a"} {kind}', hint=_DROPS.get(relation.kind))
    return relation
