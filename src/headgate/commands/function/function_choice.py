"""Choose the user-defined function or procedure that a call denotes, and its arguments (PostgreSQL's func_get_detail).

`row_call` and `row_function` call it with bound arguments, `user_call`, `call` and `host` with the arguments' values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from postgast import pg_query_pb2 as pb

from headgate.catalog.function import POLYMORPHIC_ELEMENTS, UserFunction
from headgate.commands import lookup
from headgate.commands.function.permission import check_execute
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding import binder, named_argument, overload_resolution
from headgate.expression.binding.coercion import coerce_type
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.expression.binding.signature import POLYMORPHIC
from headgate.expression.builtin import Function
from headgate.expression.node import ArrayExpr, ColumnRef, Expression, TypeRef
from headgate.sql import names
from headgate.sql.parser import parse_expression, unwrap
from headgate.types import registry

CALL_ARGUMENTS = {"construct": "CALL arguments", "refuse_subquery": "cannot use subquery in CALL argument"}
"""The context in which the arguments of CALL are bound."""

A = TypeVar("A", bound=named_argument.Typed)


@dataclass(frozen=True)
class Choice(Generic[A]):
    """The function that a call denotes, with real types in the place of polymorphic ones, and the arguments of the call."""

    function: UserFunction
    given: Sequence[A | None]
    """A value for each input of the function. None: the call leaves it out, or `spread` has it."""
    spread: Sequence[A] = ()
    """The elements of the last input, if the function is variadic and the call does not say VARIADIC."""

    def arguments(self, array: Callable[[Sequence[A], int], A], default: Callable[[str], A]) -> list[A]:
        """Return a value for each input. `array` makes an array of a type from its elements, `default` evaluates a default."""
        completed = []
        for value, argument in zip(self.given, self.function.inputs, strict=True):
            if value is not None:
                completed.append(value)
            elif argument.mode == "v" and self.spread:
                completed.append(array(self.spread, argument.type_oid))
            else:
                completed.append(default(argument.default or "NULL"))
        return completed


def choose(node: pb.FuncCall, candidates: Sequence[UserFunction], args: Sequence[A], context: BindContext) -> Choice[A] | None:
    """Return the candidate that fits a call with these arguments, or None if none does.

    Raise 42725 if several do, and 42601 if the order of positional and named arguments is wrong.
    """
    named_argument.check_order(node, context)
    unwrapped = [unwrap(argument) for argument in node.args]
    by_name = {inner.name: value for inner, value in zip(unwrapped, args, strict=True) if named_argument.is_named(inner)}
    plain = [value for inner, value in zip(unwrapped, args, strict=True) if not named_argument.is_named(inner)]
    offered = {}
    for option in candidates:
        places = _places(option, len(plain), by_name, has_variadic=node.func_variadic)
        if places is not None:
            offered[option.oid] = (option, places)
    called = [
        replace(as_builtin(option), arguments=tuple(option.types[place] for place in places), variadic=0, defaults=0)
        if by_name
        else as_builtin(option)
        for option, places in offered.values()
    ]
    types = [value.type.oid for value in (*plain, *by_name.values())]
    candidate = overload_resolution.among(called, types, context, variadic=node.func_variadic)
    if candidate is None:
        return None
    if candidate.function is None:
        kind = "procedure" if candidates[0].kind == "p" else "function"
        raise overload_resolution.not_unique(kind, named_argument.signature(node, args, context), context, node.location)
    option, places = offered[candidate.function.oid]
    function = specialized(option, candidate.arguments, types, context)
    fixed = len(function.inputs) - 1 if candidate.spread else len(plain)
    inputs = [*plain[:fixed], *(by_name.get(argument.name) for argument in function.inputs[fixed:])]
    return Choice(function, inputs, plain[fixed:])


def choose_function(node: pb.FuncCall, candidates: Sequence[UserFunction], args: Sequence[A], context: BindContext) -> Choice[A]:
    """Return the function that fits a call. Raise 42883 if there is none, and 42809 if it is a procedure."""
    choice = choose(node, candidates, args, context)
    if choice is None:
        raise overload_resolution.no_function(named_argument.signature(node, args, context), context, node.location)
    function = choice.function
    if function.kind == "p":
        shown = f"{function.name}({', '.join(registry.format_type(oid) for oid in function.types)})"
        hint = "To call a procedure, use CALL."
        raise PostgresError("42809", f"{shown} is a procedure", hint=hint, location=node.location)
    return choice


def choose_procedure(node: pb.FuncCall, session: Session, value_of: Callable[[pb.Node], A]) -> tuple[UserFunction, Choice[A]]:
    """Return the procedure that CALL names, and the choice with its arguments, of which OUT parameters are a part.

    Raises 42883 if no procedure fits, and 42809 for a function.
    """
    named_argument.check_order(node, BindContext())
    candidates = lookup.functions_named(session.begin_statement().cursor, session.context, node.funcname)
    values = [value_of(inner.arg if named_argument.is_named(inner := unwrap(argument)) else argument) for argument in node.args]
    procedures = {candidate.oid: candidate for candidate in candidates if candidate.kind == "p"}
    choice = choose(node, [_with_outputs_as_inputs(procedure) for procedure in procedures.values()], values, BindContext())
    if choice is None:
        raise _no_procedure(node, candidates, values)
    procedure = procedures[choice.function.oid]
    check_execute(session, procedure)
    real = (argument.type_oid for argument in choice.function.arguments)
    arguments = tuple(replace(argument, type_oid=oid) for argument, oid in zip(procedure.arguments, real, strict=True))
    return replace(choice.function, arguments=arguments), choice


def _with_outputs_as_inputs(procedure: UserFunction) -> UserFunction:
    return replace(procedure, arguments=tuple(replace(argument, mode=argument.mode.replace("o", "i")) for argument in procedure.arguments))


def _no_procedure(node: pb.FuncCall, candidates: Sequence[UserFunction], values: Sequence[named_argument.Typed]) -> PostgresError:
    shown = named_argument.signature(node, values, BindContext())
    parts = names.strings(node.funcname)
    same_named = builtin.builtins().functions_named.get(parts[-1], ()) if len(parts) == 1 else ()
    is_builtin = overload_resolution.among(same_named, [value.type.oid for value in values], BindContext()) is not None
    if is_builtin or any(candidate.kind == "f" for candidate in candidates):
        hint = "To call a function, use SELECT."
        return PostgresError("42809", f"{shown} is not a procedure", hint=hint, location=node.location)
    hint = "No procedure matches the given name and argument types. You might need to add explicit type casts."
    return PostgresError("42883", f"procedure {shown} does not exist", hint=hint, location=node.location)


def choose_bound(
    node: pb.FuncCall, candidates: Sequence[UserFunction], args: Sequence[Expression], context: BindContext
) -> tuple[UserFunction, list[Expression]]:
    """Return the function that a call with bound arguments denotes, and a bound argument for each of its inputs."""
    choice = choose_function(node, candidates, [_of_table(arg, context) for arg in args], context)

    def array(items: Sequence[Expression], oid: int) -> Expression:
        element = context.types.by_oid(oid).element
        elements = tuple(coerce_type(item, element, Reach.IMPLICIT, context) for item in items)
        return ArrayExpr(type=TypeRef(oid, -1, context.collation_of_type(oid)), elements=elements, location=-1)

    arguments = choice.arguments(array, lambda text: binder.bind_raw(parse_expression(text), EMPTY, context.within(stored=True)))
    types = choice.function.types
    return choice.function, [coerce_type(value, oid, Reach.IMPLICIT, context) for value, oid in zip(arguments, types, strict=True)]


def passed(node: pb.FuncCall, function: UserFunction) -> tuple[tuple[int, str], ...]:
    """Return the input's place, and the name if the call has it, of each argument of a call. The elements of a variadic input are one."""
    inner = [unwrap(argument) for argument in node.args]
    places = {argument.name: place for place, argument in enumerate(function.inputs)}
    plain = sum(not named_argument.is_named(argument) for argument in inner)
    listed = [(place, "") for place in range(min(plain, len(function.inputs)))]
    return (*listed, *((places[argument.name], argument.name) for argument in inner[plain:]))


def _of_table(arg: Expression, context: BindContext) -> Expression:
    """Return the whole row of a table with the type of the table's rows. Outside of calls, a whole row is a record."""
    row_type = context.types.of_relation(arg.relation) if isinstance(arg, ColumnRef) and arg.attnum == 0 and arg.relation else None
    return arg if row_type is None else replace(arg, type=TypeRef(row_type.oid))


def _places(function: UserFunction, plain: int, by_name: Mapping[str, A], *, has_variadic: bool) -> Sequence[int] | None:
    """Return the input of the function that each argument of a call has, or None if names or missing arguments do not fit it.

    `plain`: the number of positional arguments. Names fit a variadic function only if the call says VARIADIC.
    """
    if not by_name:
        return range(plain)
    places = {argument.name: place for place, argument in enumerate(function.inputs) if place >= plain}
    is_variadic = bool(function.inputs) and function.inputs[-1].mode == "v"
    if plain > len(function.inputs) or not by_name.keys() <= places.keys() or (is_variadic and not has_variadic):
        return None
    if any(argument.name not in by_name and argument.default is None for argument in function.inputs[plain:]):
        return None
    return [*range(plain), *(places[name] for name in by_name)]


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
