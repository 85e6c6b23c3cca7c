"""Bind a subquery in an expression: the type of a SubLink, and the comparison of a row with ANY and ALL (transformSubLink).

The analysis and the planner call it from the binder's callback, after the subquery has been analysed.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder, operators
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.node import BOOLEAN, CaseTest, Expression, RowExpr, SubLink, TypeRef
from headgate.sql import names
from headgate.sql.parser import written
from headgate.types import registry

_KINDS = {pb.EXISTS_SUBLINK: "EXISTS", pb.EXPR_SUBLINK: "EXPR", pb.ANY_SUBLINK: "ANY", pb.ALL_SUBLINK: "ALL",
          pb.ARRAY_SUBLINK: "ARRAY"}  # fmt: skip


def bound(node: pb.SubLink, scope: Scope, context: BindContext, columns: Sequence[TypeRef], query: object) -> Expression:
    """Return the SubLink over a planned `query` with columns of these types. Raise 42601 or 42804 if they do not fit."""
    word = _KINDS.get(node.sub_link_type)
    if word is None:
        raise not_supported("this kind of subquery is not supported", location=node.location)
    source = written(node.subselect)
    if word == "EXISTS":
        return SubLink(type=BOOLEAN, kind=word, query=query, source=source, location=node.location)
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
