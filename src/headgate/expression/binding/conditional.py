"""Binds conditional expressions: CASE, COALESCE, GREATEST and LEAST (manual, 9.18; NULLIF is bound as an operator).

Called by `binder`. The branches are coerced to one type (manual, 10.5). Each function receives the binder as a function, and binds
operands with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression.binding import operators
from headgate.expression.binding.coercion import common_type, modifier_of, resolve_unknown, to_boolean, to_common
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.overload_resolution import ordering_operator
from headgate.expression.binding.scope import Scope
from headgate.expression.node import UNKNOWN, Case, CaseTest, Coalesce, Const, Expression, MinMax, TypeRef
from headgate.sql.parser import ParseNode, unwrap


def case(node: pb.CaseExpr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    arg = binder(node.arg, scope, context) if node.HasField("arg") else None
    if arg is not None:
        arg = resolve_unknown(arg, context)
    conditions, results = [], []
    for argument in node.args:
        when = unwrap(argument)
        if arg is None:
            condition = binder(when.expr, scope, context)
        else:
            test = CaseTest(type=arg.type)
            value = binder(when.expr, scope, context)
            condition = operators.make(["="], test, value, context, when.location)
        conditions.append(to_boolean(condition, "CASE/WHEN", context))
        results.append(binder(when.result, scope, context))
    default = binder(node.defresult, scope, context) if node.HasField("defresult") else Const(type=UNKNOWN, value=None, location=-1)
    oid = common_type([default, *results], "CASE", context)
    default = to_common(default, oid, "CASE/ELSE", context)
    done = [to_common(result, oid, "CASE/WHEN", context) for result in results]
    modifier = modifier_of([default, *done])
    return Case(
        type=TypeRef(oid, modifier, context.inherited_collation(oid, [*done, default])),
        arg=arg,
        conditions=tuple(conditions),
        results=tuple(done),
        default=default,
        location=node.location,
    )


def coalesce(node: pb.CoalesceExpr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    args, kind = _common(node.args, "COALESCE", scope, context, binder)
    return Coalesce(type=kind, args=args, location=node.location)


def min_max(node: pb.MinMaxExpr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    greatest = node.op == pb.IS_GREATEST
    args, kind = _common(node.args, "GREATEST" if greatest else "LEAST", scope, context, binder)
    if ordering_operator(kind.oid, 1, context) is None:
        raise PostgresError("42883", f"could not identify a comparison function for type {context.show_type(kind.oid)}")
    return MinMax(type=kind, greatest=greatest, args=args, location=node.location)


def _common(
    nodes: Sequence[ParseNode], construct: str, scope: Scope, context: BindContext, binder: Binder
) -> tuple[tuple[Expression, ...], TypeRef]:
    bound = [binder(node_argument, scope, context) for node_argument in nodes]
    oid = common_type(bound, construct, context)
    done = tuple(to_common(operand, oid, construct, context) for operand in bound)
    return done, TypeRef(oid, modifier_of(done), context.inherited_collation(oid, done))
