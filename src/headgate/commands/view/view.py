"""CREATE [OR REPLACE] VIEW, ALTER VIEW and DROP VIEW.

A view is a query that is planned when another query names it (`commands.query.clause.from_clause`). It is read with the rights of the
view's owner or of the user who runs the query (`view_option`). Views can be written only through INSTEAD OF triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import default_privilege, dependency, lookup, privilege
from headgate.commands.function import dependant as dependant_functions
from headgate.commands.query import engine
from headgate.commands.query.planner import Planner
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.view import view_option, view_query, view_text
from headgate.errors import PostgresError, not_supported
from headgate.expression.node import TypeRef
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry


def create(node: pb.ViewStmt, session: Session) -> CommandResult:
    """CREATE [OR REPLACE] [RECURSIVE] VIEW."""
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
    options = view_option.read(node.options)
    resolved, uses = resolve(select, session, transaction)
    columns = _columns(resolved, names.strings(node.aliases), session, transaction)
    for column in columns:
        hold.use(cursor, "pg_type", column.type_oid)
    namespace, schema = lookup.creation_schema(cursor, context, target.schemaname)
    privilege.check_create_in_schema(cursor, context.user, context.database, namespace)
    texts = view_text.texts(resolved, cursor, context.database, registry.known())
    existing = relations.lookup(cursor, context.database, schema, target.relname)
    next_oid = transaction.engine.catalog.next_oid
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


def resolve(select: pb.SelectStmt, session: Session, transaction: Transaction) -> tuple[pb.SelectStmt, set[tuple[int, int]]]:
    """Return a copy of the query that does not depend on the search path, and the objects that it reads."""
    copied = pb.SelectStmt()
    copied.CopyFrom(select)
    resolver = view_query.Resolver(transaction.cursor, session.context)
    resolver.select(copied)
    return copied, resolver.uses


def _columns(select: pb.SelectStmt, column_names: Sequence[str], session: Session, transaction: Transaction) -> list[Column]:
    """Return the view's columns: types and names of the query's columns, with the names that CREATE VIEW specifies."""
    described = output(select, session, transaction)
    if len(column_names) > len(described):
        raise PostgresError("42601", "CREATE VIEW specifies more column names than columns")
    named = list(column_names) + [name for name, _ in described[len(column_names) :]]
    _write_names(select, named)
    used_names: set[str] = set()
    columns = []
    for place, (name, (_, kind)) in enumerate(zip(named, described, strict=True), 1):
        if name in used_names:
            raise PostgresError("42701", f'column "{name}" specified more than once')
        used_names.add(name)
        columns.append(Column(place, name, kind.oid, kind.typmod, collation=kind.collation))
    return columns


def _write_names(select: pb.SelectStmt, named: Sequence[str]) -> None:
    first = select
    while first.op != pb.SETOP_NONE:
        first = first.larg
    for item, name in zip(first.target_list, named, strict=False):
        item.res_target.name = name


def output(select: pb.SelectStmt, session: Session, transaction: Transaction) -> list[tuple[str, TypeRef]]:
    """Return the names and types of a query's columns. The query is planned, not run."""
    planner = Planner(session, transaction, {})
    query = engine.analysed(planner, select)

    def named_types(chosen: engine.Engine) -> list[tuple[str, TypeRef]]:
        if chosen is engine.SPARK:
            return [(column.name, column.type) for column in planner.plan(query).columns]
        collation = planner.context.collation_of_type
        columns = chosen.columns(planner, query)
        return [(column.name, TypeRef(column.type_oid, column.typmod, collation(column.type_oid))) for column in columns]

    return engine.first(planner, query, named_types, engine.PLANNING)


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
    """DROP VIEW [IF EXISTS] a, b [CASCADE]."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    dropped_views: list[Relation] = []
    for item in node.objects:
        relation = lookup.dropped(cursor, session, unwrap(item).items, "view", missing_ok=node.missing_ok)
        if relation is None:
            continue
        if relation.oid < registry.FIRST_USER_OID:
            raise PostgresError("2BP01", f"cannot drop view {relation.name} because it is required by the database system")
        privilege.check_owner(cursor, context.user, relation.owner, "view", relation.name)
        if all(relation.oid != view.oid for view in dropped_views):
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
            dependency.drop_relation(cursor, context, relation.oid)
    transaction.catalog_changed()
    return CommandResult("DROP VIEW")


def hold_readers(transaction: Transaction, relation: Relation) -> None:
    """Lock the queries of the views that read a relation, which is about to be renamed, against other writers."""
    for oid in views.readers(transaction.cursor, relation.database, relation.oid):
        transaction.catalog.change_object("pg_class", oid)


def renamed(transaction: Transaction, old: Relation, new: Relation) -> None:
    """Rewrite the queries of the views that read a relation, after it, a column of it, or its schema was renamed."""
    cursor, database = transaction.cursor, old.database
    if old.kind == RelationKind.VIEW:
        [own] = parse(views.query(cursor, database, old.oid))
        _write_names(own.node, [column.name for column in new.columns])
        views.write_texts(cursor, database, old.oid, view_text.texts(own.node, cursor, database, registry.known()))
    for oid in views.readers(cursor, database, old.oid):
        [statement] = parse(views.query(cursor, database, oid))
        _rename(statement.node, old, new)
        views.write_texts(cursor, database, oid, view_text.texts(statement.node, cursor, database, registry.known()))


def _rename(select: pb.SelectStmt, old: Relation, new: Relation) -> None:
    """Replace the names of a relation and its columns in a resolved query, at all levels."""
    columns = {
        old_column.name: new_column.name
        for old_column in old.columns
        for new_column in new.columns
        if old_column.attnum == new_column.attnum
    }
    _visit(select, _Renaming(old, new, columns), frozenset())


@dataclass(frozen=True)
class _Renaming:
    old: Relation
    new: Relation
    columns: dict[str, str]

    def table(self, node: pb.RangeVar, aliases: frozenset[str]) -> None:
        """Rename a table in FROM."""
        if (node.schemaname, node.relname) == (self.old.schema, self.old.name):
            node.schemaname, node.relname = self.new.schema, self.new.name
            if (
                node.alias.aliasname == self.old.name and self.new.name not in aliases
            ):  # there is no explicit alias: the name is the table's
                node.alias.aliasname = self.new.name

    def column(self, node: pb.ColumnRef, aliases: frozenset[str]) -> None:
        """Rename the column, and possibly the alias, of a reference ``alias.column``."""
        first, second = (unwrap(field) for field in node.fields)
        if first.sval in aliases and second.DESCRIPTOR.name == "String" and second.sval in self.columns:
            second.sval = self.columns[second.sval]
            if first.sval == self.old.name and self.new.name not in aliases:
                first.sval = self.new.name

    def aliases(self, select: pb.SelectStmt) -> frozenset[str]:
        """Return the aliases under which a query level reads the relation."""
        names_found: set[str] = set()
        pending = [unwrap(node) for node in select.from_clause]
        while pending:
            item = pending.pop()
            if item.DESCRIPTOR.name == "RangeVar" and (item.schemaname, item.relname) == (self.old.schema, self.old.name):
                names_found.add(item.alias.aliasname)
            elif item.DESCRIPTOR.name == "JoinExpr":
                pending += [unwrap(item.larg), unwrap(item.rarg)]
        return frozenset(names_found)


def _visit(node: ParseNode, renaming: _Renaming, aliases: frozenset[str]) -> None:
    inner = unwrap(node)
    if inner is None:
        return
    kind = inner.DESCRIPTOR.name
    if kind == "SelectStmt":
        aliases = aliases | renaming.aliases(inner)
    elif kind == "RangeVar":
        renaming.table(inner, aliases)
    elif kind == "ColumnRef" and len(inner.fields) == 2:
        renaming.column(inner, aliases)
    for descriptor, value in inner.ListFields():
        if descriptor.message_type is not None:
            for child in value if descriptor.is_repeated else [value]:
                _visit(child, renaming, aliases)
