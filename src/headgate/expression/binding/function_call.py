"""Binds calls in a parse tree: functions, aggregates, set-returning functions, casts written as calls (PostgreSQL's parse_func.c).

Called by `binder` for FuncCall. The context says whether aggregates and set-returning functions are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import procedure
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.binding import named_argument, sort_operator, user_function, window
from headgate.expression.binding.coercion import coerce, coerce_type, strip_implicit, to_boolean
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.overload_resolution import Candidate, find_function, real_types
from headgate.expression.binding.scope import Scope
from headgate.expression.builtin import Function
from headgate.expression.location import location_of
from headgate.expression.node import Aggregate, ArrayExpr, ColumnRef, Expression, Form, FuncExpr, SubLink, TypeRef, WindowCall, walk
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

_CLAUSES = {"PUBLICATION WHERE": "WHERE", "JOIN/ON": "JOIN conditions"}


def clause(context: BindContext) -> str:
    """Return the clause as error messages show it after "are not allowed in"."""
    return _CLAUSES.get(context.construct, context.construct)


def bind(node: pb.FuncCall, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    """Return the typed expression of a FuncCall."""
    parts = names.strings(node.funcname)
    schema, name = (parts[-2] if len(parts) > 1 else None), parts[-1]
    args = [binder(item.arg if named_argument.is_named(item) else item, scope, context) for item in map(unwrap, node.args)]
    shown = None
    if schema != "pg_catalog" or name not in builtin.builtins().functions_named:
        user_call = user_function.resolve(node, args, context)
        if user_call is not None:
            return user_call
    if any(map(named_argument.is_named, map(unwrap, node.args))):
        shown = named_argument.signature(node, args, context)
        args = named_argument.placed(node, args, context, lambda default: binder(default, scope, context))
    if node.agg_within_group:
        return _ordered_set(node, schema, name, args, scope, context, binder)
    argument_types = [arg.type.oid for arg in args]
    variadic, ordered = node.func_variadic, len(node.agg_order) > 1
    candidate = find_function(schema, name, argument_types, context, node.location, variadic=variadic, ordered=ordered, shown=shown)
    if candidate is None:
        return _as_cast(schema, name, args[0], context, node.location)
    assert candidate.function is not None
    function = candidate.function
    _check_marks(node, function, parts, args, context)
    if node.func_variadic and function.variadic == registry.ANY:
        _require_array(args[-1], context)
    coerced, result = _arguments(candidate, args, node, context)
    kind = TypeRef(result, -1, context.inherited_collation(result, coerced), _outputs(function, coerced, context))
    if function.kind == "a" and not node.HasField("over"):
        return _aggregate(node, function, coerced, kind, scope, context, binder)
    if function.kind == "w" or node.HasField("over"):
        return _window(node, function, name, coerced, kind, scope, context, binder)
    if function.retset and not context.sets:
        raise PostgresError("0A000", f"set-returning functions are not allowed in {clause(context)}", location=node.location)
    form = Form.SQL if node.funcformat == pb.COERCE_SQL_SYNTAX else Form.CALL
    return FuncExpr(
        type=kind,
        function=function.oid,
        args=coerced,
        form=form,
        variadic=bool(node.func_variadic) and function.variadic != 0,
        location=node.location,
    )


def _outputs(function: Function, args: Sequence[Expression], context: BindContext) -> tuple[tuple[str, TypeRef], ...]:
    """Return the names and types of the columns that a function returns by OUT parameters."""
    outputs = procedure.outputs(function.oid) if function.result == registry.RECORD else ()
    oids = ((name, context.types.by_oid(args[0].type.oid).element if oid == registry.ANYELEMENT else oid) for name, oid in outputs)
    return tuple((name, TypeRef(oid, -1, context.collation_of_type(oid))) for name, oid in oids)


def _require_array(last: Expression, context: BindContext) -> None:
    """Raise 42804 unless the VARIADIC argument of a function with arguments of any type is an array. Its elements are the arguments."""
    if not context.types.by_oid(context.base_type(last.type.oid)).is_array:
        raise PostgresError("42804", "VARIADIC argument must be an array", location=location_of(last))


def _as_cast(schema: str | None, name: str, arg: Expression, context: BindContext, location: int) -> Expression:
    target = context.types.by_name(name, schema or "pg_catalog").oid
    kind = TypeRef(target, -1, context.collation_of_type(target))
    result = coerce(arg, kind, Reach.EXPLICIT, context, form=Form.EXPLICIT, location=location)
    assert result is not None
    return result


def _check_marks(node: pb.FuncCall, function: Function, parts: list[str], args: list[Expression], context: BindContext) -> None:
    """Raise 42809 if a function that is not an aggregate has *, DISTINCT, ORDER BY, FILTER or OVER.

    Also raise it if an aggregate without arguments is called without *.
    """
    if function.kind in "aw" or (function.kind == "f" and not _has_aggregate_syntax(node)):
        if function.kind == "a" and not args and not node.agg_star:
            raise PostgresError("42809", f"{parts[-1]}(*) must be used to call a parameterless aggregate function", location=node.location)
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
    raise PostgresError("42809", message, location=node.location)


def _has_aggregate_syntax(node: pb.FuncCall) -> bool:
    return bool(node.agg_star or node.agg_distinct or node.agg_order or node.HasField("agg_filter") or node.HasField("over"))


def _arguments(candidate: Candidate, args: list[Expression], node: pb.FuncCall, context: BindContext) -> tuple[tuple[Expression, ...], int]:
    assert candidate.function is not None
    actual = [arg.type.oid for arg in args]
    real, result = real_types(actual, candidate.arguments, candidate.function.result, context, node.location)
    coerced = []
    for arg, oid in zip(args, real, strict=True):
        coerced.append(coerce_type(arg, oid, Reach.IMPLICIT, context))
    if candidate.spread and candidate.function.variadic != registry.ANY:
        coerced = _gather(candidate, coerced, context)
    return tuple(coerced), result


def _gather(candidate: Candidate, args: list[Expression], context: BindContext) -> list[Expression]:
    """Combine the repeated arguments of a variadic function into one array."""
    fixed, spread = args[: -candidate.spread], args[-candidate.spread :]
    array_type = context.types.by_oid(spread[0].type.oid).array
    array = ArrayExpr(type=TypeRef(array_type, -1, context.inherited_collation(array_type, spread)), elements=tuple(spread), location=-1)
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
    inner_call = next((part for arg in args for part in walk(arg) if isinstance(part, Aggregate)), None)
    if inner_call is not None and context.aggregates:
        raise PostgresError("42803", "aggregate function calls cannot be nested", location=inner_call.location)
    condition = None
    if node.HasField("agg_filter"):
        inner = context.within(construct="FILTER", aggregates=False)
        condition = to_boolean(binder(node.agg_filter, scope, inner), "FILTER", inner)
    columns = [part for arg in (*args, condition) if arg is not None for part in walk(arg) if isinstance(part, ColumnRef)]
    level = min((column.levels_up for column in columns), default=0)
    if not context.aggregates and not level:
        raise PostgresError("42803", f"aggregate functions are not allowed in {clause(context)}", location=node.location)
    # an ORDER BY item that equals an argument gets the coerced argument's type (findTargetlistEntrySQL99)
    coerced = {strip_implicit(arg): arg for arg in args}
    items = window.bind_order(node.agg_order, scope, context, binder)
    order = [(coerced.get(item, item), descending, nulls_first) for item, descending, nulls_first in items]
    unlisted = next((item for item, _, _ in order if item not in args), None)
    if node.agg_distinct and unlisted is not None:
        message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list"
        raise PostgresError("42P10", message, location=location_of(unlisted))
    if node.agg_distinct:
        sort_operator.require_distinct(args)
    aggregate = Aggregate(
        type=kind,
        function=function.oid,
        args=args,
        star=bool(node.agg_star),
        distinct=bool(node.agg_distinct),
        filter=condition,
        order=tuple(order),
        location=node.location,
    )
    return _of_outer_query(aggregate, level, scope, context) if level else aggregate


def _of_outer_query(aggregate: Aggregate, level: int, scope: Scope, context: BindContext) -> Expression:
    """Return the column of an enclosing query, `level` queries up, that has the value of an aggregate over columns of that query.

    Raise 42803 if the subquery is in a clause of that query that cannot have aggregates.
    """
    owner = list(scope.levels)[level]
    if not owner.allowed:
        raise PostgresError("42803", f"aggregate functions are not allowed in {owner.clause}", location=aggregate.location)
    inside = owner.aggregates.keys.values() if owner.aggregates is not None else ()
    nested = next((part for part in walk(aggregate) if isinstance(part, ColumnRef) and part.key in inside), None)
    if nested is not None:
        raise PostgresError("42803", "aggregate function calls cannot be nested", location=nested.location)
    if owner.aggregates is None or any(isinstance(part, SubLink) for part in walk(aggregate)):
        raise not_supported("this aggregate of columns of the outer query is not supported", location=aggregate.location)

    def raised(part: Expression) -> Expression | None:
        return replace(part, levels_up=part.levels_up - level) if isinstance(part, ColumnRef) else None

    key = owner.aggregates.keys.setdefault(rewriting.rewrite(aggregate, raised), owner.aggregates.key())
    return ColumnRef(type=aggregate.type, name="aggregate", attnum=1, key=key, levels_up=level, location=aggregate.location)


def _ordered_set(
    node: ParseNode, schema: str | None, name: str, args: list[Expression], scope: Scope, context: BindContext, binder: Binder
) -> Expression:
    """Bind ``percentile_cont(0.5) WITHIN GROUP (ORDER BY x)``: the sorted values are arguments after the direct ones."""
    location = node.location
    order = window.bind_order(node.agg_order, scope, context, binder)
    actual = [*args, *(item for item, _, _ in order)]
    if not any(function.aggregate_kind in ("o", "h") for function in builtin.builtins().functions_named.get(name, ())):
        find_function(schema, name, [arg.type.oid for arg in actual], context, node.location)
        raise PostgresError("42809", f"{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP", location=location)
    candidate = find_function(schema, name, [arg.type.oid for arg in actual], context, node.location)
    assert candidate is not None
    assert candidate.function is not None
    if candidate.function.kind != "a" or candidate.function.variadic:
        raise not_supported(f"the hypothetical-set aggregate {name} is not supported", location=location)
    coerced, result = _arguments(candidate, actual, node, context)
    direct, sorted_args = coerced[: len(args)], coerced[len(args) :]
    kind = TypeRef(result, -1, context.inherited_collation(result, coerced))
    aggregate = _aggregate(node, candidate.function, direct, kind, scope, context, binder)
    assert isinstance(aggregate, Aggregate)
    resorted = tuple((arg, down, first) for arg, (_, down, first) in zip(sorted_args, order, strict=True))
    return replace(aggregate, order=resorted)


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
    location = node.location
    if not node.HasField("over"):
        raise PostgresError("42P20", f"window function {name} requires an OVER clause", location=location)
    if context.windows is None:
        where = "window definitions" if context.construct.startswith("window ") else clause(context)
        raise PostgresError("42P20", f"window functions are not allowed in {where}", location=location)
    if node.agg_distinct:
        raise PostgresError("0A000", "DISTINCT is not implemented for window functions", location=location)
    if node.agg_order:
        raise PostgresError("0A000", "aggregate ORDER BY is not implemented for window functions", location=location)
    if function.retset:
        raise PostgresError("42P20", "window functions cannot return sets", location=location)
    inner = context.within(windows=None)
    if any(isinstance(part, WindowCall) for arg in args for part in walk(arg)):
        raise PostgresError("42P20", "window function calls cannot be nested", location=location)
    condition = None
    if node.HasField("agg_filter"):
        if function.kind == "w":
            raise PostgresError("0A000", "FILTER is not implemented for non-aggregate window functions", location=location)
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
        window=node.over.name,
        location=node.location,
    )
