"""Analyse ORDER BY, DISTINCT ON, LIMIT and OFFSET (transformSortClause and its neighbours in parse_clause.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import Limit, PlanColumn, SelectItem, Sort, reference
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import resolve_unknown, to_specific
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.binding.sort_operator import require_order
from headgate.expression.builtin import builtins
from headgate.expression.node import ColumnRef, Expression, TypeRef, walk
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.sql.parser import walk as walk_tree
from headgate.types import registry

_COLLECTING = {"array_agg", "string_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"}
"""Aggregates whose value depends on the order of the rows."""


def read(
    context: BindContext,
    nodes: Sequence[pb.Node],
    targets: Sequence[SelectItem],
    scope: Scope,
    windows: Mapping[str, pb.WindowDef] | None,
) -> list[Sort]:
    """Bind ORDER BY of a plain SELECT. An item is the name or position of an output column, or an expression over FROM."""
    context = context.within(construct="ORDER BY", aggregates=True, windows=windows)
    return [_sort(node, _item(unwrap(node).node, targets, scope, context)) for node in nodes]


def _is_call(node: ParseNode) -> bool:
    return bool(node.DESCRIPTOR.name == "FuncCall")


def unsorted(node: pb.SelectStmt) -> bool:
    """Return whether the result of a SELECT of one relation shows the storage order. The rows are then read as they were written."""
    if len(node.from_clause) != 1 or unwrap(node.from_clause[0]).DESCRIPTOR.name != "RangeVar":
        return False
    if node.sort_clause or node.distinct_clause:
        return False
    parts = [descendant for item in node.target_list for descendant in walk_tree(item)]
    inner = {node.location for part in parts if part.DESCRIPTOR.name == "SubLink" for node in walk_tree(part.subselect) if _is_call(node)}
    calls = [node for node in parts if _is_call(node) and node.location not in inner]
    called = {function for call in calls for function in builtins().functions_named.get(names.strings(call.funcname)[-1], ())}
    aggregates = {function.name for function in called if function.kind == "a"}
    return bool(aggregates & _COLLECTING) or not (aggregates or node.group_clause or node.HasField("having_clause"))


def _sort(node: ParseNode, expression: Expression) -> Sort:
    item = unwrap(node)
    if item.sortby_dir == pb.SORTBY_USING:
        raise not_supported("ORDER BY ... USING is not supported", location=item.location)
    require_order(expression, unwrap(item.node).location)
    descending = item.sortby_dir == pb.SORTBY_DESC
    first = item.sortby_nulls == pb.SORTBY_NULLS_FIRST or (item.sortby_nulls != pb.SORTBY_NULLS_LAST and descending)
    return Sort(expression, descending, first)


def _item(node: ParseNode, targets: Sequence[SelectItem], scope: Scope, context: BindContext) -> Expression:
    place = place_of(node, len(targets), "ORDER BY")
    if place is not None:
        return resolve_unknown(targets[place].expression, context)
    name = plain_name(node)
    named = [target for target in targets if target.name == name] if name is not None else []
    if len({target.expression for target in named}) > 1:
        raise PostgresError("42702", f'ORDER BY "{name}" is ambiguous', location=unwrap(node).location)
    if named:
        return resolve_unknown(named[0].expression, context)
    return binder.bind(node, scope, context=context)


def place_of(node: ParseNode, count: int, clause: str) -> int | None:
    """Return the index for an integer constant, or None if the node is not a constant.

    Raise 42P10 if there is no such column, and 42601 for other constants.
    """
    inner = unwrap(node)
    if inner.DESCRIPTOR.name != "A_Const":
        return None
    if inner.WhichOneof("val") != "ival":
        raise PostgresError("42601", f"non-integer constant in {clause}", location=inner.location)
    number = inner.ival.ival
    if not 1 <= number <= count:
        raise PostgresError("42P10", f"{clause} position {number} is not in select list", location=inner.location)
    return int(number) - 1


def plain_name(node: ParseNode, table: str = "") -> str | None:
    """Return the name if the node is a column name, bare or after the name of `table`, or None."""
    inner = unwrap(node)
    if inner.DESCRIPTOR.name != "ColumnRef" or any(unwrap(part).DESCRIPTOR.name != "String" for part in inner.fields):
        return None
    *qualifier, name = names.strings(inner.fields)
    return name if qualifier in ([], [table]) else None


def by_output(nodes: Sequence[pb.Node], columns: Sequence[PlanColumn]) -> list[Sort]:
    """Bind ORDER BY of a set operation or VALUES, which can only name result columns or their positions."""
    sorts = []
    for node in nodes:
        inner = unwrap(unwrap(node).node)
        place = place_of(inner, len(columns), "ORDER BY")
        name = plain_name(inner, "*VALUES*")  # PostgreSQL's name of VALUES, which the text of a view has
        column = columns[place] if place is not None else next((candidate for candidate in columns if candidate.name == name), None)
        if column is None and name is not None:
            raise PostgresError("42703", f'column "{name}" does not exist', location=inner.location)
        if column is None:
            raise PostgresError(
                "0A000",
                "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                detail="Only result column names can be used, not expressions or functions.",
                hint="Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
            )
        sorts.append(_sort(node, reference(column)))
    return sorts


def check_distinct(sorts: Sequence[Sort], targets: Sequence[SelectItem], *, on: bool) -> None:
    """Raise 42P10 if SELECT DISTINCT sorts by an expression that it does not select."""
    if on:
        return
    selected = {target.expression for target in targets}
    if any(item.expression not in selected for item in sorts):
        raise PostgresError("42P10", "for SELECT DISTINCT, ORDER BY expressions must appear in select list")


def read_on(context: BindContext, node: pb.SelectStmt, targets: Sequence[SelectItem], scope: Scope, sorts: Sequence[Sort]) -> list[Sort]:
    """Bind the expressions of DISTINCT ON. Raise 42P10 if ORDER BY does not begin with them."""
    nodes = [item for item in node.distinct_clause if unwrap(item) is not None]
    context = context.within(construct="DISTINCT ON", aggregates=True)
    on = [Sort(_item(item, targets, scope, context), False, False) for item in nodes]
    expressions = {item.expression for item in on}
    leading = [item.expression for item in sorts][: len(expressions)]
    if expressions and any(expression not in expressions for expression in leading):
        raise PostgresError("42P10", "SELECT DISTINCT ON expressions must match initial ORDER BY expressions")
    return on


def limit(context: BindContext, node: pb.SelectStmt, sorts: Sequence[Sort]) -> Limit | None:
    """Analyse LIMIT and OFFSET. Return None if the query has neither."""
    with_ties = node.limit_option == pb.LIMIT_OPTION_WITH_TIES
    if with_ties and not sorts:
        raise PostgresError("42601", "WITH TIES cannot be specified without ORDER BY clause")
    offset = _count(context, node.limit_offset, "OFFSET") if node.HasField("limit_offset") else None
    count = _count(context, node.limit_count, "LIMIT") if node.HasField("limit_count") else None
    if with_ties and isinstance(unwrapped := unwrap(node.limit_count), pb.A_Const) and unwrapped.isnull:
        raise PostgresError("2201W", "row count cannot be null in FETCH FIRST ... WITH TIES clause")
    return Limit(count, offset, with_ties) if count is not None or offset is not None else None


def _count(context: BindContext, node: ParseNode, clause: str) -> Expression:
    """Return LIMIT or OFFSET as a bigint expression. Raise 42804 for another type and 42P10 for a column."""
    context = context.within(construct=clause, aggregates=False)
    value = to_specific(binder.bind_raw(node, Scope(), context), TypeRef(registry.INT8), clause, context)
    if any(isinstance(part, ColumnRef) for part in walk(value)):
        raise PostgresError("42P10", f"argument of {clause} must not contain variables")
    return value
