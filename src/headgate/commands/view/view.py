"""CREATE [OR REPLACE] VIEW, ALTER VIEW and DROP VIEW.

CREATE VIEW analyses the query and stores its text (`analysis.query_text`). The text is analysed again when another query names the view. A
view is read with the rights of its owner, or with security_invoker those of the user who runs the query. Views can be written only
through INSTEAD OF triggers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.analysis import query_text
from headgate.analysis.query import Grouped, Query, RelationItem, parts, renamed
from headgate.analysis.query_analyser import QueryAnalyser
from headgate.catalog import hold
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import inheritance, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.relation.view import Texts
from headgate.commands import default_privilege, dependency, lookup, privilege, storage_parameter
from headgate.commands.function import dependant as dependant_functions
from headgate.commands.function import row_call
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import user_function
from headgate.expression.deparsing import named_object
from headgate.expression.node import ColumnRef, Const
from headgate.sql import names
from headgate.sql.options import Option, options
from headgate.sql.parser import parse, unwrap, walk
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry

if TYPE_CHECKING:
    from headgate.commands.alteration import Alteration


_BOOLEAN = ("security_barrier", "security_invoker")


def create(node: pb.ViewStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    target, select = node.view, unwrap(node.query)
    if select.DESCRIPTOR.name != "SelectStmt":
        raise not_supported("this kind of query is not supported in a view")
    if target.relpersistence == "u":
        raise PostgresError("42601", "views cannot be unlogged because they do not have storage")
    if target.relpersistence == "t":
        raise not_supported("temporary views are not supported")
    if node.with_check_option != pb.NO_CHECK_OPTION:
        raise not_supported("WITH CHECK OPTION is not supported", hint="A view of a node cannot be written to.")
    options = read_options(node.options)
    query = _analyse(select, session, transaction)
    columns = _columns(query, names.strings(node.aliases))
    for column in columns:
        hold.use(cursor, "pg_type", column.type_oid)
    namespace, schema = lookup.creation_schema(cursor, context, target.schemaname)
    uses = _hold_uses(cursor, query)
    texts = _texts(query, columns, cursor, context.database)
    existing = relations.lookup(cursor, context.database, schema, target.relname)
    next_oid = transaction.catalog.next_oid
    if existing is None:
        owner = privilege.role_oid(cursor, context.user)
        view = views.create(cursor, next_oid, context.database, namespace, target.relname, owner, columns, texts, uses, options)
        default_privilege.apply_default(cursor, view, context.user)
    else:
        if not node.replace:
            raise PostgresError("42P07", f'relation "{target.relname}" already exists')
        _replace(existing, columns, session, transaction)
        transaction.own(existing)
        added = columns[len(existing.columns) :]
        views.replace(cursor, next_oid, existing, added, texts, uses, options)
    transaction.catalog_changed(frozenset())  # streams do not use views
    return CommandResult("CREATE VIEW")


def _analyse(select: pb.SelectStmt, session: Session, transaction: Transaction) -> Query:
    """Analyse the query of a view. Raise 0A000 for SELECT INTO and for data-modifying statements in WITH."""
    if select.into_clause.ByteSize():
        raise PostgresError("0A000", "views must not contain SELECT INTO")
    if any(unwrap(unwrap(item).ctequery).DESCRIPTOR.name != "SelectStmt" for item in select.with_clause.ctes):
        raise PostgresError("0A000", "views must not contain data-modifying statements in WITH")
    for node in walk(select):
        if node.DESCRIPTOR.name == "ParamRef":
            raise PostgresError("42P02", f"there is no parameter ${node.number}", location=node.location)
    with user_function.resolving(row_call.Resolver(session, computes=False)):
        return QueryPlanner(session, transaction, {}).analyse(select)


def _columns(query: Query, column_names: Sequence[str]) -> list[Column]:
    """Return the view's columns: types and names of the query's columns, with the names that CREATE VIEW specifies."""
    if len(column_names) > len(query.columns):
        raise PostgresError("42601", "CREATE VIEW specifies more column names than columns")
    columns: list[Column] = []
    for place, column in enumerate(renamed(query.columns, column_names), 1):
        if any(column.name == before.name for before in columns):
            raise PostgresError("42701", f'column "{column.name}" specified more than once')
        columns.append(Column(place, column.name, column.type.oid, column.type.typmod, collation=column.type.collation))
    return columns


def _named(query: Query) -> set[int]:
    """Return the users' relations that constants of type regclass name. Raise 42P01 for one that does not exist."""
    constants = (part for part in parts(query) if isinstance(part, Const) and part.type.oid == registry.REGCLASS and part.value is not None)
    return {oid for constant in constants if (oid := registry.referenced(named_object.stored_text(constant))) is not None}


def _hold_uses(cursor: Cursor, query: Query) -> set[views.Use]:
    """Hold the relations that a query reads. Return what it uses: columns, and primary keys that its columns beside GROUP BY depend on."""
    items = {part for part in parts(query) if isinstance(part, RelationItem)}
    keys = {part.key for part in parts(query) if isinstance(part, ColumnRef)}
    dependent = {column.key for part in parts(query) if isinstance(part, Grouped) for column in part.dependent}
    uses: set[views.Use] = {(views.RELATION, oid, 0) for oid in _named(query)}
    for item in items:
        relation = item.relation
        if relation.persistence == "t":
            detail = f'The view would read the temporary relation "{relation.name}".'
            raise not_supported("temporary views are not supported", detail=detail)
        hold.use(cursor, "pg_class", relation.oid)
        hold.use(cursor, "pg_namespace", relation.namespace_oid)  # the view's text contains its name
        used = {column.attnum for shown, column in zip(item.star, relation.columns, strict=False) if shown.key in keys}
        uses |= {(views.RELATION, relation.oid, attnum) for attnum in used or {0}}
        if any(column.key in dependent for column in item.star):
            uses |= {(views.CONSTRAINT, index.constraint, 0) for index in relation.indexes if index.primary}
    return uses


def _texts(query: Query, columns: Iterable[Column], cursor: Cursor, database: int) -> Texts:
    """Return the texts of a query with the present names of all objects."""
    column_names = [column.name for column in columns]
    by_oid = functools.partial(relations.get, cursor, database)
    return Texts(query_text.text(query, column_names, by_oid), query_text.text(query, column_names, by_oid, pretty=True))


def _replace(existing: Relation, columns: Sequence[Column], session: Session, transaction: Transaction) -> None:
    """Raise an error unless CREATE OR REPLACE VIEW keeps the existing columns with their names and types (checkViewColumns)."""
    if existing.kind != RelationKind.VIEW:
        raise PostgresError("42809", f'"{existing.name}" is not a view')
    privilege.check_owner(transaction.cursor, session.context.user, existing.owner, "view", existing.name)
    if len(columns) < len(existing.columns):
        raise PostgresError("42P16", "cannot drop columns from view")
    for old, new in zip(existing.columns, columns, strict=False):
        if old.name != new.name:
            raise PostgresError(
                "42P16",
                f'cannot change name of view column "{old.name}" to "{new.name}"',
                hint="Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.",
            )
        if (old.type_oid, old.typmod) != (new.type_oid, new.typmod):
            before, after = registry.format_type(old.type_oid, old.typmod), registry.format_type(new.type_oid, new.typmod)
            raise PostgresError("42P16", f'cannot change data type of view column "{old.name}" from {before} to {after}')


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    dropped_views: list[Relation] = []
    for relation in lookup.dropped(cursor, session, node, "view"):
        if relation.oid < registry.FIRST_USER_OID:
            raise PostgresError("2BP01", f"cannot drop view {relation.name} because it is required by the database system")
        privilege.check_owner(cursor, context.user, relation.owner, "view", relation.name)
        dropped_views.append(relation)
    for relation in dropped_views:
        transaction.own(relation)
    dependants = dependant_functions.of_relations(session, dropped_views)
    dependency.settle(
        transaction, dependants, [dependency.shown(cursor, context, view) for view in dropped_views], session.notices,
        cascade=node.behavior == pb.DROP_CASCADE, going=[(1259, view.oid) for view in dropped_views],
    )  # fmt: skip
    for relation in dropped_views:
        if relations.find(cursor, context.database, relation.oid) is not None:
            removal.drop(cursor, context.database, relation.oid)
    transaction.catalog_changed()
    return CommandResult("DROP VIEW")


@contextmanager
def rewritten(session: Session, transaction: Transaction, changed: Iterable[int]) -> Iterator[None]:
    """Print the queries of views again after the block, which renames something that they read.

    `changed`: the views. They are locked against other writers first.
    """
    cursor, database = transaction.cursor, session.context.database
    queries = {}
    for oid in changed:
        transaction.catalog.change_object("pg_class", oid)
        [statement] = parse(views.query(cursor, database, oid))
        analyser = QueryPlanner(session, transaction, {}).analyser
        anywhere = analyser.context.within(types=registry.known().anywhere(), stored=True)
        with user_function.resolving(row_call.Resolver(session, computes=False)):
            queries[oid] = QueryAnalyser(analyser.names, anywhere, {}, in_view=True).select(statement.node, None)
    yield
    for oid, query in queries.items():
        columns = relations.get(cursor, database, oid).columns
        views.write_texts(cursor, database, oid, _texts(query, columns, cursor, database))


def naming_views(cursor: Cursor, relation: Relation) -> list[int]:
    """Return the views (oids) whose texts have the name of a relation, of its columns, or of the columns of the tables below it."""
    readers = views.readers(cursor, relation.database, relation.oid)
    for child in inheritance.children(cursor, relation):
        readers += [oid for oid in naming_views(cursor, child) if oid not in readers]
    return [relation.oid, *readers] if relation.kind == RelationKind.VIEW else readers


def read_options(nodes: Iterable[pb.Node]) -> list[str]:
    """Return the options in the form of pg_class.reloptions. Raise 22023 for an unknown option or an invalid value."""
    values: dict[str, str] = {}
    for option in options(nodes):
        if option.name in values:
            raise PostgresError("22023", f'parameter "{option.name}" specified more than once')
        values[option.name] = _check_option(option)
    return [f"{name}={value}" for name, value in values.items()]


def _check_option(option: Option) -> str:
    value = "true" if option.value is None else option.value
    if option.name == "check_option":
        raise not_supported("WITH CHECK OPTION is not supported", hint="A view of a node cannot be written to.")
    if option.name not in _BOOLEAN:
        raise PostgresError("22023", f'unrecognized parameter "{option.name}"')
    storage_parameter.check_boolean(option.name, value)
    return value


def alter_options(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    relation = alteration.relation
    before = views.options(alteration.cursor, relation.database, relation.oid)
    settings = storage_parameter.changed(before, command, read_options)
    views.set_options(alteration.cursor, relation.database, relation.oid, settings)
