"""Resolves operators and functions from a name and argument types (PostgreSQL's parse_oper.c and parse_func.c; manual, 10.2, 10.3).

Called by the binder. The steps are the manual's: an exact match, then candidates whose arguments can be coerced implicitly,
then most exact matches, preferred types, the category of unknown literals, and the type of the known arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding.coercion_pathway import Reach, find_path
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.signature import can_coerce, resolve_polymorphic
from headgate.expression.builtin import Function, Operator
from headgate.sql import parser
from headgate.types import registry

_OPERATOR_HINT = "No operator matches the given name and argument types. You might need to add explicit type casts."
_OPERATOR_HINT_ONE = "No operator matches the given name and argument type. You might need to add an explicit type cast."
_FUNCTION_HINT = "No function matches the given name and argument types. You might need to add explicit type casts."
_ORDERED_HINT = (
    "No aggregate function matches the given name and argument types."
    " Perhaps you misplaced ORDER BY; ORDER BY must appear after all regular arguments of the aggregate."
)
_AMBIGUOUS_OPERATOR = "Could not choose a best candidate operator. You might need to add explicit type casts."


@dataclass(frozen=True)
class Candidate:
    """A candidate with its argument types in this call (the last argument of a variadic function is repeated `spread` times)."""

    arguments: tuple[int, ...]
    function: Function | None = None
    operator: Operator | None = None
    spread: int = 0


def find_operator(name: str, operands: tuple[int, ...], context: BindContext, location: int) -> Operator:
    """Return the operator for operands of these types (one for a prefix operator). Raise 42883 if none matches, 42725 if several do."""
    if max(operands) < registry.FIRST_USER_OID and (known := _known_operator(name, operands)) is not None:
        return known
    operator, several = _select_operator(name, operands, context)
    if operator is None:
        raise no_operator(name, operands, context, location, several=several)
    return operator


@functools.lru_cache(maxsize=4096)
def _known_operator(name: str, operands: tuple[int, ...]) -> Operator | None:
    """Like `find_operator`, for built-in types, which users cannot change. Return None if `find_operator` would raise."""
    return _select_operator(name, operands, BindContext(types=registry.builtin()))[0]


def _select_operator(name: str, operands: tuple[int, ...], context: BindContext) -> tuple[Operator | None, bool]:
    """Return the operator, or None, and whether several match."""
    count = len(operands)
    candidates = [
        Candidate((operator.left, operator.right)[-count:], operator=operator)
        for operator in builtin.builtins().operators_named.get(name, ())
        if operator.kind == ("b" if count == 2 else "l")
    ]
    tried = (_exact(candidates, types) for types in _with_known_types(operands, context))
    chosen, several = next(((exact, False) for exact in tried if exact is not None), None) or _select(candidates, operands, context)
    return None if chosen is None else chosen.operator, several


def _with_known_types(operands: tuple[int, ...], context: BindContext) -> list[tuple[int, ...]]:
    """binary_oper_exact: an unknown operand is first assumed to have the type of the other operand, then the base type of that type."""
    if len(operands) == 1 or registry.UNKNOWN not in operands:
        return [operands]
    known = operands[0] if operands[1] == registry.UNKNOWN else operands[1]
    return [(known, known), (context.base_type(known),) * 2]


def _exact(candidates: Sequence[Candidate], arguments: Sequence[int]) -> Candidate | None:
    return next((candidate for candidate in candidates if candidate.arguments == tuple(arguments)), None)


def no_operator(name: str, operands: Sequence[int], context: BindContext, location: int, *, several: bool = False) -> PostgresError:
    """Return the error for an operator that does not exist (42883), or for `several` that match (42725)."""
    shown = " ".join([*(context.show_type(oid) for oid in operands[:-1]), name, context.show_type(operands[-1])])
    if several:
        return PostgresError("42725", f"operator is not unique: {shown}", hint=_AMBIGUOUS_OPERATOR, location=location)
    hint = _OPERATOR_HINT if len(operands) == 2 else _OPERATOR_HINT_ONE
    return PostgresError("42883", f"operator does not exist: {shown}", hint=hint, location=location)


def find_function(
    schema: str | None,
    name: str,
    arguments: Sequence[int],
    context: BindContext,
    location: int,
    *,
    variadic: bool = False,
    ordered: bool = False,
    shown: str | None = None,
) -> Candidate | None:
    """func_get_detail: return the function for these argument types, or None if the call must be read as a cast (``int4(x)``).

    `ordered`: whether it sorts by several expressions. `shown`: the call as errors show it, if not with the types of its arguments.

    Raises 42883 ``function f(integer) does not exist`` and 42725 ``function f(unknown) is not unique``.
    """
    if all(oid < registry.FIRST_USER_OID for oid in arguments):
        known = _known_function(schema, name, tuple(arguments), variadic)
        if known is not None:
            return known
    candidates = _candidates(schema, name, len(arguments), variadic)
    exact = _exact(candidates, arguments)
    if exact is not None:
        return exact
    if len(arguments) == 1 and _is_cast(schema, name, arguments[0], context):
        return None
    chosen, several = _select(candidates, arguments, context)
    if chosen is not None:
        return chosen
    shown = shown or f"{name if schema is None else f'{schema}.{name}'}({', '.join(context.show_type(oid) for oid in arguments)})"
    if several:
        raise not_unique("function", shown, context, location)
    raise no_function(shown, context, location, _ORDERED_HINT if ordered else _FUNCTION_HINT)


def _candidates(schema: str | None, name: str, count: int, variadic: bool) -> list[Candidate]:
    named = [function for function in builtin.builtins().functions_named.get(name, ()) if function.schema == (schema or "pg_catalog")]
    return _prefer_plain([candidate for function in named if (candidate := _candidate(function, count, variadic)) is not None])


@functools.lru_cache(maxsize=4096)
def _known_function(schema: str | None, name: str, arguments: tuple[int, ...], variadic: bool) -> Candidate | None:
    """Like `find_function`, for built-in types. Return None if it would raise, or if the call must be read as a cast."""
    context = BindContext(types=registry.builtin())
    candidates = _candidates(schema, name, len(arguments), variadic)
    exact = _exact(candidates, arguments)
    if exact is not None or (len(arguments) == 1 and _is_cast(schema, name, arguments[0], context)):
        return exact
    return _select(candidates, arguments, context)[0]


def among(named: Sequence[Function], arguments: Sequence[int], context: BindContext, *, variadic: bool = False) -> Candidate | None:
    """Return the one of these functions that a call with these argument types resolves to, or None if none matches.

    The candidate has no function if several match.
    """
    candidates = _prefer_plain(
        [candidate for function in named if (candidate := _candidate(function, len(arguments), variadic)) is not None]
    )
    exact = _exact(candidates, arguments)
    if exact is not None:
        return exact
    candidate, several = _select(candidates, arguments, context)
    return Candidate(tuple(arguments)) if several else candidate


def not_unique(kind: str, shown: str, context: BindContext, location: int) -> PostgresError:
    """Return the 42725 error for a call of several functions or procedures (`kind`). `shown`: the call with its types."""
    hint = f"Could not choose a best candidate {kind}. You might need to add explicit type casts."
    return PostgresError("42725", f"{kind} {shown} is not unique", hint=hint, location=location)


def no_function(shown: str, context: BindContext, location: int, hint: str = _FUNCTION_HINT) -> PostgresError:
    """Return the 42883 error for a call, which `shown` gives with its types."""
    return PostgresError("42883", f"function {shown} does not exist", hint=hint, location=location)


def _candidate(function: Function, count: int, variadic: bool) -> Candidate | None:
    declared = function.arguments
    if function.kind == "p":
        return None
    if function.variadic and not variadic:
        if count >= len(declared):
            extra = count - len(declared) + 1
            return Candidate((*declared[:-1], *([function.variadic] * extra)), function=function, spread=extra)
    elif len(declared) == count:
        return Candidate(declared, function=function)
    if count < len(declared) <= count + function.defaults:
        return Candidate(declared[:count], function=function)
    return None


def _prefer_plain(candidates: list[Candidate]) -> list[Candidate]:
    """FuncnameGetCandidates: of candidates with equal argument types, keep the first schema's, and of these the one that is not variadic.

    If several remain because of their defaults, the candidate has no function: the call is ambiguous.
    """
    best: dict[tuple[int, ...], Candidate] = {}
    for candidate in candidates:
        known = best.setdefault(candidate.arguments, candidate)
        if known is candidate or known.function is None or candidate.function is None or known.function.schema != candidate.function.schema:
            continue
        if known.spread and not candidate.spread:
            best[candidate.arguments] = candidate
        elif bool(known.spread) == bool(candidate.spread):
            best[candidate.arguments] = Candidate(candidate.arguments)
    return list(best.values())


def _is_cast(schema: str | None, name: str, source: int, context: BindContext) -> bool:
    """Return whether ``name(x)`` may be read as a cast: `name` is a type, and the cast needs no cast function (parse_func.c)."""
    target = context.types.find_name(name, schema or "pg_catalog")
    if target is None or target.kind is registry.TypeKind.COMPOSITE:
        return False
    if source == registry.UNKNOWN:
        return True
    path = find_path(source, target.oid, Reach.EXPLICIT, context)
    if path is None:
        return False
    if path.how == "relabel":
        return True
    return path.how == "io" and not (source == registry.RECORD or context.is_composite(source))


def _select(candidates: Sequence[Candidate], actual: Sequence[int], context: BindContext) -> tuple[Candidate | None, bool]:
    """func_match_argtypes and func_select_candidate: return the candidate, or None, and whether several candidates remain."""
    possible = [candidate for candidate in candidates if can_coerce(actual, candidate.arguments, Reach.IMPLICIT, context)]
    if len(possible) <= 1:
        return (possible[0] if possible else None), False
    bases = [context.base_type(oid) if oid != registry.UNKNOWN else oid for oid in actual]
    unknown = [position for position, oid in enumerate(bases) if oid == registry.UNKNOWN]
    possible = _best(
        possible, lambda candidate: sum(b == a for b, a in zip(bases, candidate.arguments, strict=True) if b != registry.UNKNOWN)
    )
    if len(possible) == 1:
        return possible[0], False
    possible = _best(
        possible, lambda candidate: sum(_exact_or_preferred(b, a, context) for b, a in zip(bases, candidate.arguments, strict=True))
    )
    if len(possible) == 1:
        return possible[0], False
    if not unknown:
        return None, True
    possible, resolved = _by_category(possible, unknown, context)
    if resolved and len(possible) == 1:
        return possible[0], False
    known = {oid for oid in bases if oid != registry.UNKNOWN}
    if len(known) == 1:
        same = [known.copy().pop()] * len(bases)
        matching = [candidate for candidate in possible if can_coerce(same, candidate.arguments, Reach.IMPLICIT, context)]
        if len(matching) == 1:
            return matching[0], False
    return None, True


def _exact_or_preferred(base: int, argument: int, context: BindContext) -> bool:
    if base == registry.UNKNOWN:
        return False
    if base == argument:
        return True
    source, target = context.types.find(base), context.types.find(argument)
    return source is not None and target is not None and target.preferred and target.category == source.category


def _by_category(candidates: list[Candidate], unknown: Sequence[int], context: BindContext) -> tuple[list[Candidate], bool]:
    """Step 4.e of the manual: find the category of each unknown argument, and keep the candidates that accept it.

    Return the candidates and whether all unknown arguments have a category.
    """
    chosen: dict[int, tuple[str, bool]] = {}
    for position in unknown:
        kinds = [context.types.by_oid(candidate.arguments[position]) for candidate in candidates]
        categories = {kind.category for kind in kinds}
        if "S" in categories:
            category = "S"
        elif len(categories) == 1:
            category = categories.pop()
        else:
            return candidates, False
        chosen[position] = (category, any(kind.category == category and kind.preferred for kind in kinds))

    def keeps(candidate: Candidate) -> bool:
        for position, (category, preferred) in chosen.items():
            kind = context.types.by_oid(candidate.arguments[position])
            if kind.category != category or (preferred and not kind.preferred):
                return False
        return True

    remaining = [candidate for candidate in candidates if keeps(candidate)]
    return (remaining, True) if remaining else (candidates, True)


def _best(candidates: Sequence[Candidate], score: Callable[[Candidate], int]) -> list[Candidate]:
    scores = [score(candidate) for candidate in candidates]
    top = max(scores)
    return [candidate for candidate, points in zip(candidates, scores, strict=True) if points == top]


def real_types(
    actual: Sequence[int], declared: Sequence[int], result: int, context: BindContext, location: int
) -> tuple[tuple[int, ...], int]:
    """Return the argument and result types of the chosen candidate with polymorphic types resolved. Errors point to `location`."""
    try:
        return resolve_polymorphic(actual, declared, result, context)
    except PostgresError as error:
        error.position = parser.position(location)
        raise
