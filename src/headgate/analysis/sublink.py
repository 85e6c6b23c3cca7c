"""Bind a subquery in an expression: the type of a SubLink, and the comparison of a row with ANY and ALL (transformSubLink).

The analysis and the planner call it from the binder's callback, after the subquery has been analysed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import Limit, PlanColumn, Query, Select, SelectItem
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import binder, operators
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.node import (
    BOOLEAN,
    INTEGER,
    Aggregate,
    CaseTest,
    ColumnRef,
    Const,
    Expression,
    FuncExpr,
    RowExpr,
    SubLink,
    TypeRef,
    WindowCall,
    walk,
)
from headgate.sql import names
from headgate.sql.parser import written
from headgate.types import registry

_KINDS = {pb.EXISTS_SUBLINK: "EXISTS", pb.EXPR_SUBLINK: "EXPR", pb.ANY_SUBLINK: "ANY", pb.ALL_SUBLINK: "ALL",
          pb.ARRAY_SUBLINK: "ARRAY"}  # fmt: skip


def bound(node: pb.SubLink, scope: Scope, context: BindContext, query: Query) -> SubLink:
    """Return the SubLink over an analysed `query`. Raise 42601 or 42804 if its columns do not fit."""
    word = _KINDS.get(node.sub_link_type)
    if word is None:
        raise not_supported("this kind of subquery is not supported", location=node.location)
    source = written(node.subselect)
    if word == "EXISTS":
        return SubLink(type=BOOLEAN, kind=word, query=_without_list(query), source=source, location=node.location, printed=query)
    columns = [column.type for column in query.columns]
    if len(columns) != 1 and word in ("EXPR", "ARRAY"):
        raise PostgresError("42601", "subquery must return only one column", location=node.location)
    if word == "EXPR":
        return SubLink(type=columns[0], kind=word, query=query, source=source, location=node.location)
    if word == "ARRAY":
        kind = context.types.by_oid(columns[0].oid)
        over = TypeRef(kind.oid if kind.is_array else kind.array, -1, columns[0].collation)
        return SubLink(type=over, kind=word, query=query, source=source, location=node.location)
    test = _test(node, binder.bind_raw(node.testexpr, scope, context), columns, context)
    if test.type.oid != registry.BOOL:
        raise PostgresError("42804", "row comparison operator must yield type boolean", location=node.location)
    return SubLink(type=BOOLEAN, kind=word, query=query, source=source, test=test, location=node.location)


def _without_list(query: Query) -> Query:
    """Return the query of EXISTS without its SELECT list, DISTINCT, ORDER BY and LIMIT, which PostgreSQL does not evaluate.

    The result selects the columns that they name, whose privileges are checked. It is the same query if they decide whether there are rows
    (simplify_EXISTS_query).
    """
    select, limit = query.body, query.limit
    if not isinstance(select, Select) or select.grouped is not None or select.locks or not _keeps_rows(limit):
        return query
    expressions = [target.expression for target in select.targets] + [sort.expression for sort in (*query.sorts, *select.on)]
    nodes = [node for expression in expressions for node in walk(expression)]
    if any(isinstance(node, Aggregate | WindowCall) or builtin.returns_set(node) for node in nodes):
        return query
    named: dict[str, Expression] = {node.key: node for node in nodes if isinstance(node, ColumnRef)}
    chosen = tuple(named.values()) or (Const(type=INTEGER, value="1"),)
    targets = tuple(SelectItem("exists", expression) for expression in chosen)
    columns = tuple(PlanColumn("exists", expression.type, f"exists{place}") for place, expression in enumerate(chosen))
    return replace(query, body=replace(select, targets=targets, distinct=False, on=()), columns=columns, sorts=(), limit=None)


def _keeps_rows(limit: Limit | None) -> bool:
    """Return whether there is no OFFSET and LIMIT is a constant that keeps a row."""
    if limit is None:
        return True
    count = limit.count
    if isinstance(count, FuncExpr) and builtin.function(count.function).key == "int48":
        [count] = count.args
    return limit.offset is None and isinstance(count, Const) and (count.value is None or int(count.value) > 0)


def _test(node: pb.SubLink, left: Expression, columns: Sequence[TypeRef], context: BindContext) -> Expression:
    """Return the comparison of x, or of a row, with a row of the subquery in ``x op ANY (SELECT …)``."""
    name = names.strings(node.oper_name) or ["="]
    width = len(left.args) if isinstance(left, RowExpr) else 1
    if width != len(columns):
        few = "few" if width > len(columns) else "many"
        raise PostgresError("42601", f"subquery has too {few} columns", location=node.location)
    values = [CaseTest(type=column, location=place) for place, column in enumerate(columns)]
    if not isinstance(left, RowExpr):
        return operators.make(name, left, values[0], context, node.location)
    row = RowExpr(type=left.type, args=tuple(values))
    return operators.compare_rows(name, left, row, context, node.location)
