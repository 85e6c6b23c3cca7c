"""Choose the user-defined function that a call denotes, and its arguments (PostgreSQL's func_get_detail).

Called by `row_call` and `row_function`, which have bound the arguments, and by `user_call`, which has their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog.function import POLYMORPHIC_ELEMENTS, UserFunction
from headgate.errors import PostgresError
from headgate.expression.binding import binder, overload_resolution
from headgate.expression.binding.coercion import coerce_type
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.expression.binding.signature import POLYMORPHIC
from headgate.expression.builtin import Function
from headgate.expression.node import ArrayExpr, Expression, TypeRef
from headgate.sql import names
from headgate.sql.parser import parse_expression, unwrap
from headgate.types import registry


def chosen(
    node: pb.FuncCall, candidates: Sequence[UserFunction], args: Sequence[Expression], context: BindContext
) -> tuple[UserFunction, list[Expression]]:
    """Return the function that a call means, and its arguments in their order with the defaults of those that are left out."""
    argument_nodes = [unwrap(argument) for argument in node.args]
    by_name = {
        argument_node.name: value
        for argument_node, value in zip(argument_nodes, args, strict=True)
        if argument_node.DESCRIPTOR.name == "NamedArgExpr"
    }
    plain = [value for argument_node, value in zip(argument_nodes, args, strict=True) if argument_node.DESCRIPTOR.name != "NamedArgExpr"]
    spread, candidate = 0, None
    if by_name:
        fitting = [option for option in candidates if set(by_name) <= {argument.name for argument in option.inputs[len(plain) :]}]
        function = fitting[0] if fitting else None
    else:
        described = {option.oid: option for option in candidates}
        candidate = overload_resolution.among(
            [as_builtin(option) for option in candidates], [option.type.oid for option in plain], context, variadic=node.func_variadic
        )
        function = described[candidate.function.oid] if candidate is not None and candidate.function is not None else None
        spread = 0 if candidate is None else candidate.spread
    where = context.position(node.location)
    if function is None:
        shown = ", ".join(context.show_type(argument.type.oid) for argument in args)
        raise overload_resolution.no_function(f"{'.'.join(names.strings(node.funcname))}({shown})", context, node.location)
    if function.kind == "p":
        shown = f"{function.name}({', '.join(registry.format_type(oid) for oid in function.types)})"
        raise PostgresError("42809", f"{shown} is a procedure", hint="To call a procedure, use CALL.", position=where)
    types = function.types
    if by_name:
        places = [
            *range(len(plain)),
            *(place for place, parameter in enumerate(function.inputs) if place >= len(plain) and parameter.name in by_name),
        ]
        declared, actual = (
            [types[place] for place in places],
            [*plain, *(by_name[function.inputs[place].name] for place in places[len(plain) :])],
        )
    else:
        assert candidate is not None
        declared, actual = list(candidate.arguments), plain
    function = specialized(function, declared, [argument.type.oid for argument in actual], context)
    inputs, coerced = function.inputs, []
    if spread:
        fixed = len(inputs) - 1
        kind = TypeRef(inputs[-1].type_oid, -1, context.collation_of_type(inputs[-1].type_oid))
        element = context.types.by_oid(kind.oid).element
        items = tuple(coerce_type(argument, element, Reach.IMPLICIT, context) for argument in plain[fixed:])
        plain = [*plain[:fixed], ArrayExpr(type=kind, elements=items, location=-1)]
    for place, argument in enumerate(inputs):
        if place < len(plain):
            value = plain[place]
        elif argument.name in by_name:
            value = by_name[argument.name]
        elif argument.default is not None:
            value = binder.bind_raw(parse_expression(argument.default), EMPTY, context)
        else:
            raise overload_resolution.no_function(f"{function.name}()", context, node.location)
        coerced.append(coerce_type(value, argument.type_oid, Reach.IMPLICIT, context))
    return function, coerced


def specialized(function: UserFunction, declared: Sequence[int], actual: Sequence[int], context: BindContext) -> UserFunction:
    """Return a function with real types in the place of polymorphic ones. `declared`, `actual`: the types of the arguments of a call."""
    if not POLYMORPHIC.intersection((*(argument.type_oid for argument in function.arguments), function.result)):
        return function

    def real(oid: int) -> int:
        return overload_resolution.real_types(actual, declared, oid, context, -1)[1]

    arguments = tuple(replace(argument, type_oid=real(argument.type_oid)) for argument in function.arguments)
    return replace(function, arguments=arguments, result=real(function.result), declared_types=function.types)


def as_builtin(function: UserFunction) -> Function:
    """Return a function as overload resolution takes it."""
    inputs = function.inputs
    last = inputs[-1].type_oid if inputs and inputs[-1].mode == "v" else 0
    variadic = (POLYMORPHIC_ELEMENTS.get(last) or registry.known().by_oid(last).element) if last else 0
    defaults = sum(argument.default is not None for argument in inputs)
    return Function(
        function.oid, function.name, "f", function.types, function.result, function.volatility, function.strict, variadic,
        function.is_set, defaults, function.name, function.schema,
    )  # fmt: skip
