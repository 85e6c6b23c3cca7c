"""CREATE TYPE … AS (…), ALTER TYPE … ADD, DROP, ALTER and RENAME ATTRIBUTE (manual, part VI; 8.16 Composite Types).

Called by `execute`. A composite type has a row of pg_class and rows of pg_attribute, as in PostgreSQL. Columns store its values as text,
and stored expressions name its attributes. So the attributes of a type that a table's column has cannot change. ALTER TYPE then raises
0A000, with PostgreSQL's message for a change of an attribute's type.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog import user_type as types
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import attribute, definition, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.definition import Definition
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.user_type import TypeRow
from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import table_definition
from headgate.commands.type import user_type
from headgate.errors import PostgresError, not_supported
from headgate.expression.spark import domain
from headgate.sql import names, statement
from headgate.sql.parser import unwrap
from headgate.types import registry


def create(node: pb.CompositeTypeStmt, session: Session) -> CommandResult:
    """Execute CREATE TYPE name AS (…)."""
    try:
        return _create(node, session)
    except PostgresError as error:
        error.position = None  # PostgreSQL creates a composite type without the text of the statement
        raise


def _create(node: pb.CompositeTypeStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    place, _ = lookup.creation_schema(cursor, context, node.typevar.schemaname)
    name = node.typevar.relname
    types.require_free(cursor, context.database, place, name)
    columns = _columns(node.coldeflist, name, session)
    owner = privilege.used_role(cursor, context.user)
    new_type = Definition(place, name, columns, owner, kind=RelationKind.COMPOSITE_TYPE)
    definition.create(cursor, transaction.catalog.next_oid, context.database, new_type)
    user_type.changed(session)
    return CommandResult("CREATE TYPE")


def _columns(nodes: Sequence[pb.Node], name: str, session: Session) -> Sequence[Column]:
    """Return the attributes that a statement defines. Raise 0A000 for a domain with constraints, which would not be checked in a value."""
    cursor, context = session.begin_statement().cursor, session.context
    columns = table_definition.read(nodes, name, cursor, context.database, context.forms).columns
    for column in columns:
        if domain.constrained(column.type_oid):
            raise not_supported("attributes of domains with constraints are not supported")
    return columns


def alter(node: pb.AlterTableStmt, session: Session) -> CommandResult:
    """Execute ALTER TYPE … ADD, DROP, ALTER ATTRIBUTE."""
    transaction = session.begin_statement()
    composite = _find_owned(node.relation, session, transaction.cursor)
    transaction.catalog.lock_object("pg_type", composite.oid)
    for command in map(unwrap, node.cmds):
        _refuse_use(session, composite)
        relation = relations.get(transaction.cursor, session.context.database, composite.relation)
        match command.subtype:
            case pb.AT_AddColumn:
                _add(relation, unwrap(getattr(command, "def")), composite, session)
            case pb.AT_DropColumn:
                _drop(relation, command, session)
            case pb.AT_AlterColumnType:
                _alter(relation, command, composite, session)
            case _:
                raise not_supported("this ALTER TYPE is not supported")
        user_type.changed(session)
    return CommandResult("ALTER TYPE")


def rename_attribute(node: pb.RenameStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor = transaction.cursor
    composite = _find_owned(node.relation, session, cursor)
    transaction.catalog.lock_object("pg_type", composite.oid)
    _refuse_use(session, composite)
    relation = relations.get(cursor, session.context.database, composite.relation)
    attribute.rename_column(cursor, relation, relation.existing_column(node.subname).attnum, node.newname)
    user_type.changed(session)
    return CommandResult("ALTER TYPE")


def _find_owned(name: pb.RangeVar, session: Session, cursor: Cursor) -> TypeRow:
    parts = statement.strings([name.schemaname, name.relname] if name.schemaname else [name.relname])
    no_relation = PostgresError("42P01", f'relation "{".".join(names.strings(parts))}" does not exist')
    try:
        composite = user_type.owned(parts, session, cursor)
    except PostgresError as error:
        raise no_relation if error.sqlstate == "42704" else error from None
    if not composite.relation:
        raise no_relation
    if composite.kind != "c" or registry.known().by_oid(composite.oid).of_table:
        raise PostgresError("42809", f'"{composite.name}" is not a composite type')
    return composite


def _add(relation: Relation, element: pb.ColumnDef, type_row: TypeRow, session: Session) -> None:
    transaction = session.begin_statement()
    [column] = _columns([pb.Node(column_def=element)], relation.name, session)
    _refuse_itself(column, type_row)
    attribute.add_column(transaction.cursor, transaction.catalog.next_oid, relation, column)


def _drop(relation: Relation, command: pb.AlterTableCmd, session: Session) -> None:
    if relation.column(command.name) is None and command.missing_ok:
        message = f'column "{command.name}" of relation "{relation.name}" does not exist, skipping'
        session.notices.notice(message, sqlstate="00000")
        return
    removal.drop_column(session.begin_statement().cursor, relation, relation.existing_column(command.name).attnum)


def _alter(relation: Relation, command: pb.AlterTableCmd, type_row: TypeRow, session: Session) -> None:
    cursor = session.begin_statement().cursor
    element = pb.ColumnDef()
    element.CopyFrom(unwrap(getattr(command, "def")))
    element.colname = command.name
    attnum = relation.existing_column(command.name).attnum
    [column] = _columns([pb.Node(column_def=element)], relation.name, session)
    _refuse_itself(column, type_row)
    attribute.set_type(cursor, relation, attnum, column.type_oid, column.typmod, column.collation, column.dimensions)


def _refuse_itself(column: Column, type_row: TypeRow) -> None:
    """Raise 42P16 for a type that would contain itself."""
    if type_row.oid in registry.known().of_users(column.type_oid):
        raise PostgresError("42P16", f"composite type {type_row.name} cannot be made a member of itself")


def _refuse_use(session: Session, type_row: TypeRow) -> None:
    """Raise 0A000 if a column of a table has the type, directly or within another one."""
    all_types = registry.known()
    using = [user_type.oid for user_type in all_types.user_types() if type_row.oid in all_types.of_users(user_type.oid)]
    cursor, database = session.begin_statement().cursor, session.context.database
    for relation, column, _ in types.columns_of(cursor, database, using):
        table = relations.get(cursor, database, relation).name
        raise not_supported(f'cannot alter type "{type_row.name}" because column "{table}.{column}" uses it')
