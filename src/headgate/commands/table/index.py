"""CREATE INDEX and DROP INDEX.

An index of a node holds no data. It exists because a unique one is a constraint and can be a replica identity, and because clients
and dumps show it. `uniqueness` checks the rows when the index is created, and at every write.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.catalog import history
from headgate.catalog.physical import Cursor, delete, one
from headgate.catalog.relation import index as indexes
from headgate.catalog.relation import key_text, object_name, partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.index import IndexKey
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.replication import subscription_history
from headgate.catalog.session import SessionContext
from headgate.commands import dependency, lookup, privilege, storage_parameter, stored_expression, table_in_use
from headgate.commands.partition import partition_index
from headgate.commands.query import rendering, row_by_row
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import resolve_unknown
from headgate.expression.deparsing import deparse
from headgate.expression.node import ColumnRef, Expression
from headgate.sql import column_name, names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry
from headgate.types.text_column import TextSettings as Forms

MAX_KEYS = 32


def create(node: pb.IndexStmt, session: Session) -> CommandResult:
    if node.concurrent:
        session.prevent_in_block("CREATE INDEX CONCURRENTLY")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = lookup.target(cursor, context, node.relation)
    if relation.kind not in TABLE_KINDS | {RelationKind.MATERIALIZED_VIEW}:
        raise PostgresError(
            "42809",
            f'cannot create index on relation "{relation.name}"',
            detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
        )
    privilege.check_owner(cursor, context.user, relation.owner, "table", relation.name)
    privilege.refuse_system(relation)
    privilege.check_new_name(cursor, context.user, relation)
    if node.unique:
        subscription_history.refuse_change(cursor, relation.database, relation.oid, relation.name, "create a unique index on")
    table_in_use.check(session, cursor, relation, "CREATE INDEX")
    transaction.catalog.change_object("pg_class", relation.oid)
    key = _key(node, relation, cursor, session.context.forms)
    partition_index.require_partition_columns(relation, key)
    if node.idxname and relations.find_oid(cursor, context.database, relation.schema, node.idxname) is not None:
        taken = PostgresError("42P07", f'relation "{node.idxname}" already exists')
        session.notices.skip(taken, allowed=node.if_not_exists, sqlstate="42P07")
        return CommandResult("CREATE INDEX")
    with rendering.running(session, transaction):
        partition_index.add(transaction, relation, key, only=not node.relation.inh)
    transaction.catalog_changed(history.touched(relation))
    return CommandResult("CREATE INDEX")


@dataclass
class _Parts:
    """The parameters of an index, as they are read."""

    attnums: list[int] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    expressions: list[str] = field(default_factory=list)
    expression_columns: list[Column] = field(default_factory=list)
    options: list[int] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)


def _key(node: pb.IndexStmt, relation: Relation, cursor: Cursor, forms: Forms) -> IndexKey:
    method, method_name = _method(node, cursor)
    storage_parameter.check_index(node.options, method_name)
    if len(node.index_params) + len(node.index_including_params) > MAX_KEYS:
        raise PostgresError("54011", f"cannot use more than {MAX_KEYS} columns in an index")
    if node.index_including_params and method_name not in ("btree", "gist", "spgist"):
        raise PostgresError("0A000", f'access method "{method_name}" does not support included columns')
    if len(node.index_params) > 1 and method_name in ("hash", "spgist"):
        raise PostgresError("0A000", f'access method "{method_name}" does not support multicolumn indexes')
    predicate = _predicate(node.where_clause, relation, forms) if node.HasField("where_clause") else None
    parts = _Parts()
    for item in node.index_params:
        _take(unwrap(item), relation, parts, method, method_name, cursor, forms)
    included = []
    for item in node.index_including_params:
        element = unwrap(item)
        if element.HasField("expr"):
            raise PostgresError("0A000", "expressions are not supported in included columns")
        if element.ordering != pb.SORTBY_DEFAULT:
            raise PostgresError("42P17", "including column does not support ASC/DESC options")
        if element.nulls_ordering != pb.SORTBY_NULLS_DEFAULT:
            raise PostgresError("42P17", "including column does not support NULLS FIRST/LAST options")
        included.append(_column(relation, element.name))
    middle = "_".join(_distinct([index_column.name for index_column in parts.columns + included]))
    name = node.idxname or object_name.choose_name(cursor, relation.database, relation.namespace_oid, relation.name, middle, "idx")
    return IndexKey(
        tuple(parts.attnums), unique=node.unique, name=name, constraint=False, included=tuple(column.attnum for column in included),
        expressions=tuple(parts.expressions), expression_columns=tuple(parts.expression_columns), predicate=predicate,
        nulls_not_distinct=node.nulls_not_distinct, options=tuple(parts.options), classes=tuple(parts.classes), method=method,
    )  # fmt: skip


def _distinct(names: list[str]) -> list[str]:
    """Return the names of an index's columns, with a number appended to repeated ones (ChooseIndexColumnNames)."""
    distinct: list[str] = []
    for name in names:
        chosen, count = name, 0
        while chosen in distinct:
            count += 1
            chosen = f"{name}{count}"
        distinct.append(chosen)
    return distinct


def _method(node: pb.IndexStmt, cursor: Cursor) -> tuple[int, str]:
    name = node.access_method or "btree"
    row = existing(one(cursor, "SELECT oid FROM hg.pg_am WHERE amname = ? AND amtype = 'i'", [name]), "42704", f'access method "{name}"')
    if node.unique and name != "btree":
        raise PostgresError("0A000", f'access method "{name}" does not support unique indexes')
    return int(row[0]), name


def _take(element: pb.IndexElem, relation: Relation, parts: _Parts, method: int, method_name: str, cursor: Cursor, forms: Forms) -> None:
    """Read one parameter of an index: a column, a call, or an expression in parentheses."""
    if element.HasField("expr"):
        bound = _bind(element.expr, relation, forms)
        if isinstance(bound, ColumnRef):
            column = relation.numbered(bound.attnum)
            assert column is not None
            parts.attnums.append(column.attnum)
        else:
            title = column_name.title(element.expr)
            name = "expr" if title == "?column?" else title
            column = Column(0, name, bound.type.oid, bound.type.typmod, collation=bound.type.collation)
            parts.attnums.append(0)
            parts.expressions.append(deparse.stored(bound))
            parts.expression_columns.append(column)
    else:
        column = _column(relation, element.name)
        parts.attnums.append(column.attnum)
    parts.columns.append(column)
    parts.options.append(_option(element, method_name))
    parts.classes.append(_class(element, column, method, method_name, cursor))


def _option(element: pb.IndexElem, method: str) -> int:
    descending = element.ordering == pb.SORTBY_DESC
    if method != "btree":
        if element.ordering != pb.SORTBY_DEFAULT:
            raise PostgresError("0A000", f'access method "{method}" does not support ASC/DESC options')
        if element.nulls_ordering != pb.SORTBY_NULLS_DEFAULT:
            raise PostgresError("0A000", f'access method "{method}" does not support NULLS FIRST/LAST options')
        return 0
    first = descending if element.nulls_ordering == pb.SORTBY_NULLS_DEFAULT else element.nulls_ordering == pb.SORTBY_NULLS_FIRST
    return (key_text.DESCENDING if descending else 0) | (key_text.NULLS_FIRST if first else 0)


def _class(element: pb.IndexElem, column: Column, method: int, method_name: str, cursor: Cursor) -> int:
    """Return the named operator class, or the type's default one."""
    if element.opclass:
        _, name = names.split_name(element.opclass)
        row = one(cursor, "SELECT oid FROM hg.pg_opclass WHERE opcmethod = ? AND opcname = ?", [method, name])
        if row is None:
            raise PostgresError("42704", f'operator class "{name}" does not exist for access method "{method_name}"')
        return int(row[0])
    own = indexes.operator_class(cursor, column.type_oid, method)
    if not own:
        type_text = registry.format_type(column.type_oid)
        raise PostgresError(
            "42704",
            f'data type {type_text} has no default operator class for access method "{method_name}"',
            hint="You must specify an operator class for the index or define a default operator class for the data type.",
        )
    return own


def _bind(node: ParseNode, relation: Relation, forms: Forms) -> Expression:
    context = stored_expression.context(forms).within(
        construct="index expressions", refuse_subquery="cannot use subquery in index expression"
    )
    bound = resolve_unknown(binder.bind_raw(node, stored_expression.scope_of(relation.columns, relation.name), context), context)
    if not stored_expression.immutable(bound):
        raise PostgresError("42P17", "functions in index expression must be marked IMMUTABLE")
    row_by_row.refuse(bound)
    return bound


def _predicate(node: ParseNode, relation: Relation, forms: Forms) -> str:
    context = stored_expression.context(forms).within(refuse_subquery="cannot use subquery in index predicate")
    bound = binder.bind_condition(node, stored_expression.scope_of(relation.columns, relation.name), "WHERE", context=context)
    if not stored_expression.immutable(bound):
        raise PostgresError("42P17", "functions in index predicate must be marked IMMUTABLE")
    row_by_row.refuse(bound)
    return deparse.stored(bound)


def _column(relation: Relation, name: str) -> Column:
    return existing(relation.column(name), "42703", f'column "{name}"')


def _required_error(cursor: Cursor, context: SessionContext, index: Relation, keeper: str) -> PostgresError:
    message = f"cannot drop {dependency.shown(cursor, context, index)} because {keeper} requires it"
    return PostgresError("2BP01", message, hint=f"You can drop {keeper} instead.")


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    for index in lookup.dropped(cursor, session, node, "index"):
        transaction.own(index)
        owner = one(cursor, "SELECT indrelid FROM hg.pg_index WHERE dbid = ? AND indexrelid = ?", [context.database, index.oid])
        assert owner is not None
        relation = relations.get(cursor, context.database, int(owner[0]))
        privilege.check_owner(cursor, context.user, relation.owner, "index", index.name)
        above = partition.index_parents(cursor, context.database).get(index.oid)
        if above is not None:
            raise _required_error(cursor, context, index, dependency.shown(cursor, context, relations.get(cursor, context.database, above)))
        constraint = next((candidate for candidate in relation.indexes if candidate.oid == index.oid and candidate.constraint), None)
        if constraint is not None:
            keeper = f"constraint {names.quote_ident(index.name)} on {dependency.shown(cursor, context, relation)}"
            raise _required_error(cursor, context, index, keeper)
        transaction.own(relation)
        partition_index.drop(cursor, relation, index.oid)
        delete(cursor, "pg_description", dbid=context.database, objoid=index.oid)
    transaction.catalog_changed()
    return CommandResult("DROP INDEX")
