"""Calls in a parse tree: functions, aggregates, set-returning functions, casts written as calls (PostgreSQL's parse_func.c).

Called by `binder` for FuncCall. Whether an aggregate or a set-returning function may stand there, the context says.
"""

from __future__ import annotations

from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import named_argument, user_function, window
from headgate.expression.binding.coercion import coerce, coerce_type, strip_implicit, to_boolean
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.overload_resolution import Candidate, find_function, real_types
from headgate.expression.binding.scope import Scope
from headgate.expression.builtin import Function
from headgate.expression.location import location_of
from headgate.expression.node import Aggregate, ArrayExpr, Expression, Form, FuncExpr, TypeRef, WindowCall, walk
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

_CLAUSES = {"PUBLICATION WHERE": "WHERE"}


def clause(context: BindContext) -> str:
    """The clause as it stands behind "are not allowed in"; a publication's WHERE is WHERE there."""
    return _CLAUSES.get(context.construct, context.construct)


def bind(node: pb.FuncCall, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    """The typed expression of a FuncCall."""
    parts = names.strings(node.funcname)
    schema, name = (parts[-2] if len(parts) > 1 else None), parts[-1]
    args = [binder(each.arg if named_argument.is_named(each) else each, scope, context) for each in map(unwrap, node.args)]
    shown = None
    if (schema or "pg_catalog") != "pg_catalog" or name not in builtin.builtins().functions_named:
        users = user_function.resolve(node, args, context)
        if users is not None:
            return users
    if any(map(named_argument.is_named, map(unwrap, node.args))):
        shown = named_argument.signature(node, args, context)
        args = named_argument.placed(node, args, context, lambda default: binder(default, scope, context))
    if node.agg_within_group:
        return _ordered_set(node, schema, name, args, scope, context, binder)
    given = [each.type.oid for each in args]
    candidate = find_function(schema, name, given, context, node.location, variadic=node.func_variadic, shown=shown)
    if candidate is None:
        return _as_cast(schema, name, args[0], context, node.location)
    assert candidate.function is not None
    function = candidate.function
    _check_marks(node, function, parts, args, context)
    if node.func_variadic and function.variadic == registry.ANY:
        _require_array(args[-1], context)
    done, result = _arguments(candidate, args, node, context)
    kind = TypeRef(result, -1, context.inherited_collation(result, done))
    if function.kind == "a" and not node.HasField("over"):
        return _aggregate(node, function, done, kind, scope, context, binder)
    if function.kind == "w" or node.HasField("over"):
        return _window(node, function, name, done, kind, scope, context, binder)
    if function.retset and not context.sets:
        raise PostgresError(
            "0A000",
            f"set-returning functions are not allowed in {clause(context)}",
            position=context.position(node.location),
        )
    form = Form.SQL if node.funcformat == pb.COERCE_SQL_SYNTAX else Form.CALL
    return FuncExpr(
        type=kind,
        function=function.oid,
        args=done,
        form=form,
        variadic=bool(node.func_variadic) and function.variadic != 0,
        location=node.location,
    )


def _require_array(last: Expression, context: BindContext) -> None:
    """42804 for what stands behind VARIADIC of a function that takes values of any type: its elements are the values."""
    if not context.types.by_oid(context.base_type(last.type.oid)).is_array:
        raise PostgresError("42804", "VARIADIC argument must be an array", position=context.position(location_of(last)))


def _as_cast(schema: str | None, name: str, arg: Expression, context: BindContext, location: int) -> Expression:
    target = context.types.by_name(name, schema or "pg_catalog").oid
    kind = TypeRef(target, -1, context.collation_of_type(target))
    result = coerce(arg, kind, Reach.EXPLICIT, context, form=Form.EXPLICIT, location=location)
    assert result is not None
    return result


def _check_marks(node: pb.FuncCall, function: Function, parts: list[str], args: list[Expression], context: BindContext) -> None:
    """What only aggregates may have: *, DISTINCT, ORDER BY, FILTER, OVER."""
    if function.kind in "aw" or (function.kind == "f" and not _marked(node)):
        if function.kind == "a" and not args and not node.agg_star:
            raise PostgresError(
                "42809",
                f"{parts[-1]}(*) must be used to call a parameterless aggregate function",
                position=context.position(node.location),
            )
        return
    name = ".".join(parts)
    if node.agg_star:
        message = f"{name}(*) specified, but {name} is not an aggregate function"
    elif node.agg_distinct:
        message = f"DISTINCT specified, but {name} is not an aggregate function"
    elif node.agg_order:
        message = f"ORDER BY specified, but {name} is not an aggregate function"
    elif node.HasField("agg_filter"):
        message = f"FILTER specified, but {name} is not an aggregate function"
    else:
        message = f"OVER specified, but {name} is not a window function nor an aggregate function"
    raise PostgresError("42809", message, position=context.position(node.location))


def _marked(node: pb.FuncCall) -> bool:
    return bool(node.agg_star or node.agg_distinct or node.agg_order or node.HasField("agg_filter") or node.HasField("over"))


def _arguments(candidate: Candidate, args: list[Expression], node: pb.FuncCall, context: BindContext) -> tuple[tuple[Expression, ...], int]:
    assert candidate.function is not None
    actual = [each.type.oid for each in args]
    real, result = real_types(actual, candidate.arguments, candidate.function.result, context, node.location)
    done = []
    for each, oid in zip(args, real, strict=True):
        done.append(coerce_type(each, oid, Reach.IMPLICIT, context))
    if candidate.spread and candidate.function.variadic != registry.ANY:
        done = _gather(candidate, done, context)
    return tuple(done), result


def _gather(candidate: Candidate, args: list[Expression], context: BindContext) -> list[Expression]:
    """The spread arguments of a variadic function become one array."""
    fixed, rest = args[: -candidate.spread], args[-candidate.spread :]
    over = context.types.by_oid(rest[0].type.oid).array
    array = ArrayExpr(type=TypeRef(over, -1, context.inherited_collation(over, rest)), elements=tuple(rest), location=-1)
    return [*fixed, array]


def _aggregate(
    node: pb.FuncCall,
    function: Function,
    args: tuple[Expression, ...],
    kind: TypeRef,
    scope: Scope,
    context: BindContext,
    binder: Binder,
) -> Expression:
    where = context.position(node.location)
    if not context.aggregates:
        raise PostgresError("42803", f"aggregate functions are not allowed in {clause(context)}", position=where)
    if any(isinstance(each, Aggregate) for arg in args for each in walk(arg)):
        raise PostgresError("42803", "aggregate function calls cannot be nested", position=where)
    condition = None
    if node.HasField("agg_filter"):
        inner = context.within(construct="FILTER", aggregates=False)
        condition = to_boolean(binder(node.agg_filter, scope, inner), "FILTER", inner)
    # an argument that was coerced is still what ORDER BY writes, and gives it its type (findTargetlistEntrySQL99)
    coerced = {strip_implicit(each): each for each in args}
    written = window.bind_order(node.agg_order, scope, context, binder)
    order = [(coerced.get(each, each), descending, nulls_first) for each, descending, nulls_first in written]
    if node.agg_distinct and any(each not in args for each, _, _ in order):
        message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list"
        raise PostgresError("42P10", message, position=where)
    return Aggregate(
        type=kind,
        function=function.oid,
        args=args,
        star=bool(node.agg_star),
        distinct=bool(node.agg_distinct),
        filter=condition,
        order=tuple(order),
        location=node.location,
    )


def _ordered_set(
    node: ParseNode, schema: str | None, name: str, args: list[Expression], scope: Scope, context: BindContext, binder: Binder
) -> Expression:
    """``percentile_cont(0.5) WITHIN GROUP (ORDER BY x)``: the sorted values are arguments behind the written ones."""
    where = context.position(node.location)
    order = window.bind_order(node.agg_order, scope, context, binder)
    actual = [*args, *(each for each, _, _ in order)]
    if not any(each.aggregate_kind in ("o", "h") for each in builtin.builtins().functions_named.get(name, ())):
        find_function(schema, name, [each.type.oid for each in args], context, node.location)
        raise PostgresError("42809", f"{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP", position=where)
    candidate = find_function(schema, name, [each.type.oid for each in actual], context, node.location)
    assert candidate is not None
    assert candidate.function is not None
    if candidate.function.kind != "a" or candidate.function.variadic:
        raise not_supported(f"the hypothetical-set aggregate {name} is not supported", position=where)
    done, result = _arguments(candidate, actual, node, context)
    direct, sorted_args = done[: len(args)], done[len(args) :]
    kind = TypeRef(result, -1, context.inherited_collation(result, done))
    made = _aggregate(node, candidate.function, direct, kind, scope, context, binder)
    assert isinstance(made, Aggregate)
    resorted = tuple((each, down, first) for each, (_, down, first) in zip(sorted_args, order, strict=True))
    return replace(made, order=resorted)


def _window(
    node: pb.FuncCall,
    function: Function,
    name: str,
    args: tuple[Expression, ...],
    kind: TypeRef,
    scope: Scope,
    context: BindContext,
    binder: Binder,
) -> Expression:
    where = context.position(node.location)
    if not node.HasField("over"):
        raise PostgresError("42P20", f"window function {name} requires an OVER clause", position=where)
    if context.windows is None:
        raise PostgresError("42P20", f"window functions are not allowed in {clause(context)}", position=where)
    if node.agg_distinct:
        raise PostgresError("0A000", "DISTINCT is not implemented for window functions", position=where)
    if node.agg_order:
        raise PostgresError("0A000", "aggregate ORDER BY is not implemented for window functions", position=where)
    if function.retset:
        raise PostgresError("42P20", "window functions cannot return sets", position=where)
    inner = context.within(windows=None)
    if any(isinstance(each, WindowCall) for arg in args for each in walk(arg)):
        raise PostgresError("42P20", "window function calls cannot be nested", position=where)
    condition = None
    if node.HasField("agg_filter"):
        if function.kind == "w":
            raise PostgresError("0A000", "FILTER is not implemented for non-aggregate window functions", position=where)
        filtering = inner.within(construct="FILTER", aggregates=False)
        condition = to_boolean(binder(node.agg_filter, scope, filtering), "FILTER", filtering)
    partition, order, frame, offsets = window.bind(node.over, scope, inner, binder, context.windows)
    return WindowCall(
        type=kind,
        function=function.oid,
        args=args,
        star=bool(node.agg_star),
        filter=condition,
        partition=partition,
        order=order,
        frame=frame,
        offsets=offsets,
        location=node.location,
    )
