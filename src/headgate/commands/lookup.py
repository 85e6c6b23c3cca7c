"""From the names in a statement to relations, schemas and roles, with PostgreSQL's errors where nothing bears the name.

Called by all commands. DDL and DML differ in what they say about a missing schema: DDL names the schema (3F000), a query
names the relation (42P01) and points at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import hold
from headgate.catalog import namespace as namespaces
from headgate.catalog.function import UserFunction
from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.catalog.session import SessionContext
from headgate.commands import privilege
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.parser import ParseNode, position, unwrap

KINDS = {"r": "table", "p": "table", "i": "index", "I": "index", "S": "sequence", "v": "view", "m": "materialized view",
         "f": "foreign table",         "c": "type", "t": "table"}  # fmt: skip
"""pg_class.relkind as messages name it."""

PLURALS = {"i": "indexes", "I": "partitioned indexes", "S": "sequences", "v": "views", "m": "materialized views", "f": "foreign tables",
           "c": "composite types", "p": "partitioned tables", "r": "tables", "t": "TOAST tables"}  # fmt: skip
"""The same in DETAIL `This operation is not supported for views.`"""


def shown(node: pb.RangeVar) -> str:
    """A RangeVar as messages show it: schema.table."""
    return f"{node.schemaname}.{node.relname}" if node.schemaname else str(node.relname)


def named(cursor: Cursor, context: SessionContext, text: str) -> Relation:
    """Return the relation that a text names, as regclass reads it; 42602, 42P01."""
    parts = names.split_identifiers(text, ".")
    if not parts or len(parts) > 2:
        raise PostgresError("42602", "invalid name syntax")
    oid = relations.find_oid(cursor, context.database, parts[0] if len(parts) > 1 else None, parts[-1], search_path(cursor, context))
    found = None if oid is None else relations.find(cursor, context.database, oid)
    if found is None:
        raise PostgresError("42P01", f'relation "{text}" does not exist')
    return found


def functions_named(cursor: Cursor, context: SessionContext, parts: Iterable[pb.Node]) -> list[UserFunction]:
    """The functions and procedures of users that a name may mean; those of a schema that comes first in the search path come first."""
    schema, name = names.split_name(parts, context.database_name)
    path = [schema] if schema else search_path(cursor, context)
    found = [each for each in functions.named(cursor, context.database, name) if each.schema in path]
    return sorted(found, key=lambda each: path.index(each.schema))


def on_tables(
    node: pb.DropStmt, session: Session, word: str, names_of: Callable[[Relation], Iterable[str]]
) -> Iterator[tuple[pb.RangeVar, str]]:
    """The objects that DROP names with their tables (``DROP POLICY p ON t``): table and name of each.

    With IF EXISTS those that are not there are left out, with a NOTICE. `word`: what they are; `names_of`: those that a table has.
    """
    cursor, context = session.begin_statement().cursor, session.context
    for item in node.objects:
        *parts, last = unwrap(item).items
        schema, table = names.split_name(parts, context.database_name)
        target, name = pb.RangeVar(relname=table, schemaname=schema or ""), unwrap(last).sval
        known = find(cursor, context, target) if node.missing_ok else None
        if node.missing_ok and known is None:
            session.notices.notice(f'relation "{table}" does not exist, skipping')
        elif known is not None and name not in names_of(known):
            session.notices.notice(f'{word} "{name}" for relation "{known.name}" does not exist, skipping')
        else:
            yield target, name


def namespace(cursor: Cursor, database: int, name: str) -> int:
    """The oid of a schema; 3F000 `schema "s" does not exist`."""
    found = one(cursor, "SELECT oid FROM hg.pg_namespace WHERE nspname = ? AND dbid IN (0, ?)", [name, database])
    if found is None:
        raise PostgresError("3F000", f'schema "{name}" does not exist')
    return int(found[0])


def namespace_name(cursor: Cursor, database: int, oid: int) -> str:
    """The name of a schema."""
    found = one(cursor, "SELECT nspname FROM hg.pg_namespace WHERE oid = ? AND dbid IN (0, ?)", [oid, database])
    return "" if found is None else str(found[0])


def search_path(cursor: Cursor, context: SessionContext) -> list[str]:
    """The schemas of the search path that exist and that the user may use, "$user" resolved, without pg_catalog."""
    names: list[str] = []
    for name in context.search_path:
        real = context.user if name == "$user" else name
        if real in names:
            continue
        found = one(cursor, "SELECT oid FROM hg.pg_namespace WHERE nspname = ? AND dbid IN (0, ?)", [real, context.database])
        if found is None:
            continue
        if real == context.temp_schema or privilege.may_in_schema(cursor, context.user, context.database, found[0], "USAGE"):
            names.append(real)
    return names


def used_namespace(cursor: Cursor, database: int, name: str) -> int:
    """The oid of a schema that the command puts something into, so that nobody drops it meanwhile; 3F000."""
    oid = namespace(cursor, database, name)
    hold.use(cursor, "pg_namespace", oid)
    return oid


def creation_schema(cursor: Cursor, context: SessionContext, schema: str) -> tuple[int, str]:
    """(oid, name) of the schema in which the user makes a new object, both of which stay meanwhile; 3F000 when there is none."""
    privilege.used_role(cursor, context.user)
    if schema:
        return used_namespace(cursor, context.database, schema), schema
    path = [name for name in search_path(cursor, context) if name not in ("pg_catalog", context.temp_schema)]
    if not path:
        raise PostgresError("3F000", "no schema has been selected to create in")
    return used_namespace(cursor, context.database, path[0]), path[0]


def check_database(node: pb.RangeVar, context: SessionContext) -> None:
    """0A000 for a RangeVar in another database."""
    if node.catalogname and node.catalogname != context.database_name:
        full = f"{node.catalogname}.{node.schemaname}.{node.relname}"
        raise PostgresError("0A000", f'cross-database references are not implemented: "{full}"')


def find(cursor: Cursor, context: SessionContext, node: pb.RangeVar, *, check: bool = True) -> Relation | None:
    """The relation that a RangeVar names, or None; 42501 where the user may not use the schema that is written."""
    check_database(node, context)
    if node.schemaname == "pg_temp":
        return relations.lookup(cursor, context.database, context.temp_schema or "pg_temp", node.relname)
    if node.schemaname and node.schemaname != context.temp_schema and check:
        schema = one(cursor, "SELECT oid FROM hg.pg_namespace WHERE nspname = ? AND dbid IN (0, ?)", [node.schemaname, context.database])
        if schema is not None:
            privilege.check_use_of_schema(cursor, context.user, context.database, int(schema[0]))
    return relations.lookup(cursor, context.database, node.schemaname or None, node.relname, search_path(cursor, context))


def target(cursor: Cursor, context: SessionContext, node: pb.RangeVar) -> Relation:
    """The relation that a DDL command names; 3F000 for a missing schema, 42P01 for a missing relation, both without position."""
    found = find(cursor, context, node)
    if found is None:
        if node.schemaname:
            namespace(cursor, context.database, node.schemaname)
        raise PostgresError("42P01", f'relation "{shown(node)}" does not exist')
    return found


def source(cursor: Cursor, context: SessionContext, node: pb.RangeVar, *, check: bool = True) -> Relation:
    """The relation that a query names; 42P01 with the position. `check`: whether the user must have USAGE on the schema."""
    try:
        found = find(cursor, context, node, check=check)
    except PostgresError as error:
        error.position = position(node.location)
        raise
    if found is None:
        raise PostgresError("42P01", f'relation "{shown(node)}" does not exist', position=position(node.location))
    return found


def table(cursor: Cursor, context: SessionContext, node: ParseNode) -> Relation:
    """As `target`, and it must be a table (plain or partitioned): 42809 `"x" is not a table`."""
    found = target(cursor, context, node)
    if found.kind not in TABLE_KINDS:
        raise PostgresError("42809", f'"{found.name}" is not a table')
    return found


_DROPS = {
    "r": "Use DROP TABLE to remove a table.",
    "p": "Use DROP TABLE to remove a table.",
    "v": "Use DROP VIEW to remove a view.",
    "S": "Use DROP SEQUENCE to remove a sequence.",
    "i": "Use DROP INDEX to remove an index.",
    "I": "Use DROP INDEX to remove an index.",
}
"""HINT of a DROP that names a relation of another kind (DropErrorMsgWrongType)."""


def dropped(cursor: Cursor, session: Session, parts: Iterable[pb.Node], kind: str, *, missing_ok: bool) -> Relation | None:
    """What DROP TABLE, VIEW, SEQUENCE or INDEX names; None, with a notice, for what IF EXISTS does not find.

    Raises 3F000 for a schema and 42P01 (42704 for an index) for a relation that is not there, 42809 for one that is no `kind`
    (a word of KINDS).
    """
    context = session.context
    schema, name = names.split_name(parts, context.database_name)
    if schema is not None and schema != context.temp_schema:
        namespaces.check_use(cursor, context.user, context.database, schema)
    relation = relations.lookup(cursor, context.database, schema, name, search_path(cursor, context))
    if relation is None:
        missing = PostgresError("42704" if kind == "index" else "42P01", f'{kind} "{name}" does not exist')
        if schema is not None and not one(
            cursor, "SELECT 1 FROM hg.pg_namespace WHERE nspname = ? AND dbid IN (0, ?)", [schema, context.database]
        ):
            missing = PostgresError("3F000", f'schema "{schema}" does not exist')
        if not missing_ok:
            raise missing
        session.notices.notice(f"{missing.message}, skipping")
        return None
    if KINDS.get(relation.kind) != kind:
        raise PostgresError("42809", f'"{name}" is not {"an" if kind == "index" else "a"} {kind}', hint=_DROPS.get(relation.kind))
    return relation
