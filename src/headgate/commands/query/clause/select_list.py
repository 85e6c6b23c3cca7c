"""The SELECT list: expand ``*``, and bind and name each item as PostgreSQL does (FigureColname)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.commands.query.plan import PlanColumn, Source, reference
from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion import resolve_unknown as resolved
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope, find_table
from headgate.expression.node import ColumnRef, Const, Expression, TypeRef
from headgate.sql import names
from headgate.sql.parser import ParseNode, position, unwrap
from headgate.types import registry


@dataclass(frozen=True)
class SelectItem:
    """An item of a SELECT list. `node` is its parse node (None for a column of ``*``)."""

    name: str
    expression: Expression
    node: ParseNode | None = None
    relation: int = 0
    attnum: int = 0


def expand(items: Iterable[pb.Node], source: Source, scope: Scope, context: BindContext) -> list[SelectItem]:
    """Return the targets of a list of ResTarget nodes."""
    select_items: list[SelectItem] = []
    origins = {column.key: column for column in source.star}
    for item in items:
        target = unwrap(item)
        node = unwrap(target.val)
        if node.DESCRIPTOR.name == "ColumnRef" and unwrap(node.fields[-1]).DESCRIPTOR.name == "A_Star":
            select_items += _star(node, source, scope)
            continue
        expression = binder.bind_raw(node, scope, context)
        origin = origins.get(expression.key) if isinstance(expression, ColumnRef) and not expression.levels_up else None
        select_items.append(
            SelectItem(
                target.name or figure_name(node),
                expression,
                node,
                origin.relation if origin else 0,
                origin.attnum if origin else 0,
            )
        )
    return select_items


def _star(node: pb.ColumnRef, source: Source, scope: Scope) -> list[SelectItem]:
    parts = names.strings(list(node.fields)[:-1])
    if not parts:
        if not source.tables:
            raise PostgresError("42601", "SELECT * with no tables specified is not valid", position=position(node.location))
        return [_target(column) for column in source.star]
    table, levels = find_table(parts[-1], parts[-2] if len(parts) > 1 else None, scope, node.location)
    origins = {column.key: column for column in source.star}
    select_items = []
    for place, scope_column in enumerate(table.columns, 1):
        column = origins.get(scope_column.key) or PlanColumn(
            scope_column.name, scope_column.type, scope_column.key, table.relation, scope_column.attnum if table.relation else 0
        )
        expression = ColumnRef(
            type=scope_column.type, name=scope_column.name, attnum=place, key=scope_column.key, qualifier=table.name, levels_up=levels
        )
        select_items.append(SelectItem(scope_column.name, expression, None, column.relation, column.attnum))
    return select_items


def _target(column: PlanColumn) -> SelectItem:
    return SelectItem(column.name, reference(column), None, column.relation, column.attnum)


def undecided(target: SelectItem) -> Const | None:
    """Return the literal of a target if its type is still unknown, or None."""
    expression = target.expression
    return expression if isinstance(expression, Const) and expression.type.oid == registry.UNKNOWN else None


def resolve_unknown(targets: Sequence[SelectItem], context: BindContext, wanted: Sequence[TypeRef] = ()) -> list[SelectItem]:
    """Coerce literals of unknown type to the type that INSERT needs at their place, or to text."""
    select_items = []
    for place, target in enumerate(targets):
        expression = target.expression
        if expression.type.oid == registry.UNKNOWN and place < len(wanted):
            expression = coerce(expression, wanted[place], Reach.ASSIGNMENT, context) or expression
        select_items.append(SelectItem(target.name, resolved(expression, context), target.node, target.relation, target.attnum))
    return select_items


def figure_name(node: ParseNode) -> str:
    """Return the name of a result column without an alias."""
    return _figure(node)[0] or "?column?"


def _figure(node: ParseNode) -> tuple[str | None, int]:  # noqa: C901, PLR0912 (one case per node)
    """Return (name, strength). 2 is a good name, 1 a name that an outer cast may replace (PostgreSQL's FigureColnameInternal)."""
    inner = unwrap(node)
    if inner is None:
        return None, 0
    match inner.DESCRIPTOR.name:
        case "ColumnRef":
            fields = [unwrap(field) for field in inner.fields]
            found = [field.sval for field in fields if field.DESCRIPTOR.name == "String"]
            return (found[-1], 2) if found else (None, 0)
        case "A_Indirection":
            found = [unwrap(step).sval for step in inner.indirection if unwrap(step).DESCRIPTOR.name == "String"]
            return (found[-1], 2) if found else _figure(inner.arg)
        case "FuncCall":
            return names.strings(inner.funcname)[-1], 2
        case "A_Expr":
            return ("nullif", 2) if inner.kind == pb.AEXPR_NULLIF else (None, 0)
        case "TypeCast":
            found_name, strength = _figure(inner.arg)
            if strength <= 1 and inner.type_name.names:
                return names.strings(inner.type_name.names)[-1], 1
            return found_name, strength
        case "CollateClause":
            return _figure(inner.arg)
        case "GroupingFunc":
            return "grouping", 2
        case "SubLink":
            return _figure_sublink(inner)
        case "CaseExpr":
            found_name, strength = _figure(inner.defresult) if inner.HasField("defresult") else (None, 0)
            return (found_name, strength) if strength > 1 else ("case", 1)
        case "A_ArrayExpr":
            return "array", 2
        case "RowExpr":
            return "row", 2
        case "CoalesceExpr":
            return "coalesce", 2
        case "MinMaxExpr":
            return ("greatest" if inner.op == pb.IS_GREATEST else "least"), 2
        case "SQLValueFunction":
            word = pb.SQLValueFunctionOp.Name(inner.op).removeprefix("SVFOP_").removesuffix("_N")
            return word.lower(), 2
        case "XmlExpr" | "XmlSerialize":
            return "xmlserialize", 2
        case _:
            return None, 0


def _figure_sublink(node: pb.SubLink) -> tuple[str | None, int]:
    if node.sub_link_type == pb.EXISTS_SUBLINK:
        return "exists", 2
    if node.sub_link_type == pb.ARRAY_SUBLINK:
        return "array", 2
    if node.sub_link_type == pb.EXPR_SUBLINK:
        query = unwrap(node.subselect)
        while query.larg.ByteSize():
            query = query.larg
        if query.target_list:
            first = unwrap(query.target_list[0])
            return (first.name, 2) if first.name else (_figure(first.val)[0] or "?column?", 2)
        return "column1", 2
    return None, 0
