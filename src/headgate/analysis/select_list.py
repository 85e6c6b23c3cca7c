"""The SELECT list: expand ``*``, and bind and name each item as PostgreSQL does (FigureColname)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import PlanColumn, SelectItem, reference
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder, indirection
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion import resolve_unknown as resolved
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope, ScopeTable, find_table
from headgate.expression.node import ColumnRef, Const, TypeRef
from headgate.sql import names
from headgate.sql.column_name import title
from headgate.sql.parser import unwrap
from headgate.types import registry


class Names(Protocol):
    """A FROM clause with or without its rows."""

    @property
    def tables(self) -> tuple[ScopeTable, ...]: ...

    @property
    def star(self) -> Sequence[PlanColumn]:
        """Return the columns of ``*``."""


def expand(items: Iterable[pb.Node], source: Names, scope: Scope, context: BindContext) -> list[SelectItem]:
    """Return the targets of a list of ResTarget nodes."""
    select_items: list[SelectItem] = []
    origins = {column.key: column for column in source.star}
    for item in items:
        target = unwrap(item)
        node = unwrap(target.val)
        if node.DESCRIPTOR.name == "ColumnRef" and unwrap(node.fields[-1]).DESCRIPTOR.name == "A_Star":
            select_items += _star(node, source, scope)
            continue
        if node.DESCRIPTOR.name == "A_Indirection" and unwrap(node.indirection[-1]).DESCRIPTOR.name == "A_Star":
            select_items += _fields(node, scope, context)
            continue
        expression = binder.bind_raw(node, scope, context)
        origin = origins.get(expression.key) if isinstance(expression, ColumnRef) and not expression.levels_up else None
        select_items.append(
            SelectItem(
                target.name or title(node),
                expression,
                node,
                origin.relation if origin else 0,
                origin.attnum if origin else 0,
            )
        )
    return select_items


def _star(node: pb.ColumnRef, source: Names, scope: Scope) -> list[SelectItem]:
    parts = names.strings(list(node.fields)[:-1])
    if not parts:
        if not source.tables:
            raise PostgresError("42601", "SELECT * with no tables specified is not valid", location=node.location)
        names_of_tables = {column.key: table.name for table in source.tables for column in table.columns}
        return [_target(column, names_of_tables.get(column.key, ""), node.location) for column in source.star]
    table, levels = find_table(parts[-1], parts[-2] if len(parts) > 1 else None, scope, node.location)
    origins = {column.key: column for column in source.star}
    select_items = []
    for place, scope_column in enumerate((column for column in table.columns if column.attnum >= 0), 1):
        column = origins.get(scope_column.key) or PlanColumn(
            scope_column.name, scope_column.type, scope_column.key, table.relation, scope_column.attnum if table.relation else 0
        )
        expression = ColumnRef(
            type=scope_column.type, name=scope_column.name, attnum=place, key=scope_column.key, qualifier=table.name, levels_up=levels
        )
        select_items.append(SelectItem(scope_column.name, expression, None, column.relation, column.attnum))
    return select_items


def _fields(node: pb.A_Indirection, scope: Scope, context: BindContext) -> list[SelectItem]:
    """Return the columns of ``(row).*``. As in PostgreSQL, the row is evaluated for each of its columns."""
    row = indirection.bind(pb.A_Indirection(arg=node.arg, indirection=node.indirection[:-1]), scope, context, binder.bind_raw)
    columns = indirection.fields(row, context)
    if columns is None:
        raise not_supported("expanding this row is not supported", location=row.location)
    return [SelectItem(name, indirection.field(row, name, context), None) for name, _ in columns]


def _target(column: PlanColumn, table: str, location: int) -> SelectItem:
    expression = replace(reference(column), qualifier=table, location=location)
    return SelectItem(column.name, expression, None, column.relation, column.attnum)


def undecided(target: SelectItem) -> Const | None:
    """Return the literal of a target if its type is still unknown, or None."""
    expression = target.expression
    return expression if isinstance(expression, Const) and expression.type.oid == registry.UNKNOWN else None


def resolve_unknown(targets: Sequence[SelectItem], context: BindContext, types: Sequence[TypeRef] = ()) -> list[SelectItem]:
    """Coerce literals of unknown type to the type that INSERT needs at their place, or to text."""
    select_items = []
    for place, target in enumerate(targets):
        expression = target.expression
        if expression.type.oid == registry.UNKNOWN and place < len(types):
            expression = coerce(expression, types[place], Reach.ASSIGNMENT, context) or expression
        select_items.append(SelectItem(target.name, resolved(expression, context), target.node, target.relation, target.attnum))
    return select_items
