"""ORDER BY, DISTINCT, LIMIT and OFFSET.

Rows are sorted and compared by `compile.sort_key`, a key with the order and the equality of PostgreSQL's values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from headgate.commands.query.clause.select_list import SelectItem
from headgate.commands.query.plan import Plan, Sort, col, reference
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import coerce, resolve_unknown
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.overload_resolution import ordering_operator
from headgate.expression.binding.scope import Scope
from headgate.expression.builtin import builtins
from headgate.expression.location import location_of
from headgate.expression.node import ColumnRef, Const, Expression, FuncExpr, TypeRef, walk
from headgate.expression.spark.comparison import C_COLLATIONS
from headgate.sql import names
from headgate.sql.parser import ParseNode, position, unwrap
from headgate.sql.parser import walk as walk_tree
from headgate.types import registry
from headgate.types.base.base_types import base_type
from headgate.types.storage import stored_as_text

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

_COLLECTING = {"array_agg", "string_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"}
"""Aggregates whose value depends on the order of the rows."""


def read(
    planner: Planner,
    nodes: Sequence[pb.Node],
    targets: Sequence[SelectItem],
    scope: Scope,
    windows: Mapping[str, pb.WindowDef] | None = None,
) -> list[Sort]:
    """Bind ORDER BY of a plain SELECT. An item is the name or position of an output column, or an expression over FROM."""
    context = planner.context.within(construct="ORDER BY", aggregates=True, windows=windows)
    return [_sort(node, _item(planner, unwrap(node).node, targets, scope, context)) for node in nodes]


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
        raise not_supported("ORDER BY ... USING is not supported", position=position(item.location))
    require_order(expression, position(unwrap(item.node).location))
    descending = item.sortby_dir == pb.SORTBY_DESC
    first = item.sortby_nulls == pb.SORTBY_NULLS_FIRST or (item.sortby_nulls != pb.SORTBY_NULLS_LAST and descending)
    return Sort(expression, descending, first)


def require_order(expression: Expression, where: int | None) -> None:
    """Raise 42883 for a type without an ordering operator (json, xml, point)."""
    context = BindContext()
    if ordering_operator(expression.type.oid, 1, context) is None:
        shown = context.show_type(expression.type.oid)
        raise PostgresError(
            "42883",
            f"could not identify an ordering operator for type {shown}",
            hint="Use an explicit ordering operator or modify the query.",
            position=where,
        )


def require_equality(expression: Expression) -> None:
    """Raise 42883 for a type without an equality operator (json, xml, point)."""
    context = BindContext()
    if ordering_operator(expression.type.oid, 3, context) is None and expression.type.oid not in (registry.XID, registry.CID):
        shown = context.show_type(expression.type.oid)
        where = position(location_of(expression))
        raise PostgresError("42883", f"could not identify an equality operator for type {shown}", position=where)


def _item(planner: Planner, node: ParseNode, targets: Sequence[SelectItem], scope: Scope, context: BindContext) -> Expression:
    place = _place(node, len(targets), "ORDER BY")
    if place is not None:
        return resolve_unknown(targets[place].expression, planner.context)
    name = plain_name(node)
    named = [target for target in targets if target.name == name] if name is not None else []
    if len({target.expression for target in named}) > 1:
        raise PostgresError("42702", f'ORDER BY "{name}" is ambiguous', position=position(unwrap(node).location))
    if named:
        return resolve_unknown(named[0].expression, planner.context)
    return binder.bind(node, scope, context=context)


def _place(node: ParseNode, count: int, clause: str) -> int | None:
    """Return the index for an integer constant, or None if the node is not a constant.

    Raise 42P10 if there is no such column, and 42601 for other constants.
    """
    inner = unwrap(node)
    if inner.DESCRIPTOR.name != "A_Const":
        return None
    if inner.WhichOneof("val") != "ival":
        raise PostgresError("42601", f"non-integer constant in {clause}", position=position(inner.location))
    number = inner.ival.ival
    if not 1 <= number <= count:
        raise PostgresError("42P10", f"{clause} position {number} is not in select list", position=position(inner.location))
    return int(number) - 1


def plain_name(node: ParseNode) -> str | None:
    """Return the name if the node is a bare column name, or None."""
    inner = unwrap(node)
    if inner.DESCRIPTOR.name == "ColumnRef" and len(inner.fields) == 1 and unwrap(inner.fields[0]).DESCRIPTOR.name == "String":
        return str(unwrap(inner.fields[0]).sval)
    return None


def by_output(planner: Planner, nodes: Sequence[pb.Node], plan: Plan) -> list[Sort]:
    """Bind ORDER BY of a set operation or VALUES, which can only name result columns or their positions."""
    sorts = []
    for node in nodes:
        inner = unwrap(unwrap(node).node)
        place = _place(inner, len(plan.columns), "ORDER BY")
        name = plain_name(inner)
        column = (
            plan.columns[place] if place is not None else next((candidate for candidate in plan.columns if candidate.name == name), None)
        )
        if column is None and name is not None:
            raise PostgresError("42703", f'column "{name}" does not exist', position=position(inner.location))
        if column is None:
            raise PostgresError(
                "0A000",
                "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                detail="Only result column names can be used, not expressions or functions.",
                hint="Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
            )
        sorts.append(_sort(node, reference(column)))
    return sorts


def group_place(node: ParseNode, targets: Sequence[SelectItem]) -> int | None:
    """Return the index of the target that a GROUP BY item names by position, or None."""
    return _place(node, len(targets), "GROUP BY")


def sort(planner: Planner, plan: Plan, sorts: Sequence[Sort]) -> Plan:
    """Sort the plan. Columns that are only sort keys follow the columns of the plan."""
    if not sorts:
        return plan
    return Plan(plan.frame.orderBy(*[_direction(planner, item) for item in sorts]), plan.columns, tuple(sorts))


def sort_key(planner: Planner, expression: Expression) -> Column:
    """Return a Column with PostgreSQL's order and equality for the expression's values. Only the C collations are supported."""
    if expression.type.collation not in C_COLLATIONS:
        raise not_supported("sorting by a collation other than C is not supported")
    return planner.evaluation.sort_key(expression)


def plain_equality(kind: TypeRef) -> bool:
    """Return whether stored values of the type are equal exactly when PostgreSQL's values are."""
    described = base_type(kind.oid)
    return not stored_as_text(kind.oid, kind.typmod) or (described.one_text and described.key is not None)


def check_distinct(sorts: Sequence[Sort], targets: Sequence[SelectItem], *, on: bool) -> None:
    """Raise 42P10 if SELECT DISTINCT sorts by an expression that it does not select."""
    if on:
        return
    selected = {target.expression for target in targets}
    if any(item.expression not in selected for item in sorts):
        raise PostgresError("42P10", "for SELECT DISTINCT, ORDER BY expressions must appear in select list")


def distinct(planner: Planner, plan: Plan) -> Plan:
    """Return the distinct rows."""
    for column in plan.columns:
        require_equality(reference(column))
    if all(plain_equality(column.type) for column in plan.columns):
        return Plan(plan.frame.select(*[col(column.key) for column in plan.columns]).distinct(), plan.columns)
    keys = [sort_key(planner, reference(column)) for column in plan.columns]
    names = [planner.key("equal") for _ in keys]
    frame = plan.frame.select("*", *(key.alias(name) for key, name in zip(keys, names, strict=True))).dropDuplicates(names)
    return Plan(frame.select(*[col(column.key) for column in plan.columns]), plan.columns)


def read_on(planner: Planner, node: pb.SelectStmt, targets: Sequence[SelectItem], scope: Scope, sorts: Sequence[Sort]) -> list[Sort]:
    """Bind the expressions of DISTINCT ON. Raise 42P10 if ORDER BY does not begin with them."""
    nodes = [item for item in node.distinct_clause if unwrap(item) is not None]
    context = planner.context.within(construct="DISTINCT ON", aggregates=True)
    on = [Sort(_item(planner, item, targets, scope, context), False, False) for item in nodes]
    expressions = {item.expression for item in on}
    leading = [item.expression for item in sorts][: len(expressions)]
    if expressions and any(expression not in expressions for expression in leading):
        raise PostgresError("42P10", "SELECT DISTINCT ON expressions must match initial ORDER BY expressions")
    return on


def distinct_on(planner: Planner, plan: Plan, on: Sequence[Sort], sorts: Sequence[Sort]) -> Plan:
    """Return the first row, in sort order, of each set of rows that are equal in `on` (over the projected frame or its targets)."""
    place = planner.key("place")
    window = Window.partitionBy(*[sort_key(planner, item.expression) for item in on])
    window = window.orderBy(*([_direction(planner, item) for item in sorts] or [F.lit(0)]))
    frame = plan.frame.select("*", F.row_number().over(window).alias(place)).where(col(place) == 1)
    return Plan(frame, plan.columns)


def _direction(planner: Planner, item: Sort) -> Column:
    value = sort_key(planner, item.expression)
    if item.descending:
        return value.desc_nulls_first() if item.nulls_first else value.desc_nulls_last()
    return value.asc_nulls_first() if item.nulls_first else value.asc_nulls_last()


def limit(planner: Planner, plan: Plan, node: pb.SelectStmt, sorts: Sequence[Sort] = ()) -> Plan:
    """Apply LIMIT and OFFSET. WITH TIES also returns the rows that sort equal to the last one."""
    frame = plan.frame
    ties = node.limit_option == pb.LIMIT_OPTION_WITH_TIES
    if ties and not sorts:
        raise PostgresError("42601", "WITH TIES cannot be specified without ORDER BY clause")
    offset = _count(planner, node.limit_offset, "OFFSET") if node.HasField("limit_offset") else None
    count = _count(planner, node.limit_count, "LIMIT") if node.HasField("limit_count") else None
    if offset is not None and offset < 0:
        raise PostgresError("2201X", "OFFSET must not be negative")
    if count is not None and count < 0:
        raise PostgresError("2201W", "LIMIT must not be negative")
    if ties and count is not None:
        return _with_ties(planner, plan, offset or 0, count, sorts)
    if offset:
        frame = frame.offset(offset)
    if count is not None:
        frame = frame.limit(min(count, 2**31 - 1))
    return Plan(frame, plan.columns, plan.sorts)


def _with_ties(planner: Planner, plan: Plan, offset: int, count: int, sorts: Sequence[Sort]) -> Plan:
    row, rank = planner.key("row"), planner.key("rank")
    window = Window.orderBy(*[_direction(planner, item) for item in sorts])
    numbered = plan.frame.select("*", F.row_number().over(window).alias(row), F.rank().over(window).alias(rank))
    selected = numbered.where((col(row) > offset) & (col(rank) <= offset + count)) if count else numbered.where(F.lit(False))
    return Plan(selected.orderBy(col(row)), plan.columns)


_WHOLE = re.compile(r"-?\d+")


def constant_count(planner: Planner, node: ParseNode, clause: str) -> tuple[Const | None, Expression]:
    """Return LIMIT or OFFSET as a constant, or None if it must be computed, and as a bigint expression without substituted parameters."""
    context = planner.context.within(construct=clause, aggregates=False)
    bound = binder.bind_raw(node, Scope(), context)
    value = coerce(bound, TypeRef(registry.INT8), Reach.ASSIGNMENT, context)
    if value is None:
        raise PostgresError("42804", f"argument of {clause} must be type bigint, not type {context.show_type(bound.type.oid)}")
    prepared = planner.prepare(value)
    while isinstance(prepared, FuncExpr) and len(prepared.args) == 1:
        prepared = prepared.args[0]
    is_whole = isinstance(prepared, Const) and (prepared.value is None or _WHOLE.fullmatch(prepared.value))
    return (prepared if is_whole and isinstance(prepared, Const) else None), value


def _count(planner: Planner, node: ParseNode, clause: str) -> int | None:
    constant, value = constant_count(planner, node, clause)
    if constant is not None:
        return None if constant.value is None else int(constant.value)
    if any(isinstance(part, ColumnRef) for part in walk(value)):
        raise PostgresError("42P10", f"argument of {clause} must not contain variables")
    [row] = planner.one_row().select(planner.column(value).alias("count")).collect()
    return None if row["count"] is None else int(row["count"])
