"""Which operator or function a name means for given argument types (PostgreSQL's parse_oper.c and parse_func.c; manual, 10.2, 10.3).

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
from headgate.types import registry

_OPERATOR_HINT = "No operator matches the given name and argument types. You might need to add explicit type casts."
_OPERATOR_HINT_ONE = "No operator matches the given name and argument type. You might need to add an explicit type cast."
_FUNCTION_HINT = "No function matches the given name and argument types. You might need to add explicit type casts."
_AMBIGUOUS_OPERATOR = "Could not choose a best candidate operator. You might need to add explicit type casts."
_AMBIGUOUS_FUNCTION = "Could not choose a best candidate function. You might need to add explicit type casts."


@dataclass(frozen=True)
class Candidate:
    """A candidate with the argument types it takes in this call (a variadic one is spread out)."""

    arguments: tuple[int, ...]
    function: Function | None = None
    operator: Operator | None = None
    spread: int = 0


def binary_operator(name: str, left: int, right: int, context: BindContext, location: int) -> Operator:
    """The infix operator for these operand types; 42883 if there is none, 42725 if several."""
    if max(left, right) < registry.FIRST_USER_OID and (known := _known_operator(name, left, right)) is not None:
        return known
    named = [each for each in builtin.builtins().operators_named.get(name, ()) if each.kind == "b"]
    exact = _binary_exact(named, left, right, context)
    if exact is not None:
        return exact
    candidates = [Candidate((each.left, each.right), operator=each) for each in named]
    chosen, several = _select(candidates, (left, right), context)
    if chosen is not None and chosen.operator is not None:
        return chosen.operator
    raise _no_operator(name, left, right, several, context, location)


@functools.lru_cache(maxsize=4096)
def _known_operator(name: str, left: int, right: int) -> Operator | None:
    """As `binary_operator`, for built-in types, of which no user changes anything; None where that raises."""
    context = BindContext(types=registry.builtin())
    named = [each for each in builtin.builtins().operators_named.get(name, ()) if each.kind == "b"]
    exact = _binary_exact(named, left, right, context)
    if exact is not None:
        return exact
    chosen, _ = _select([Candidate((each.left, each.right), operator=each) for each in named], (left, right), context)
    return None if chosen is None else chosen.operator


def prefix_operator(name: str, right: int, context: BindContext, location: int) -> Operator:
    """The prefix operator for this operand type."""
    named = [each for each in builtin.builtins().operators_named.get(name, ()) if each.kind == "l"]
    for each in named:
        if each.right == right:
            return each
    chosen, several = _select([Candidate((each.right,), operator=each) for each in named], (right,), context)
    if chosen is not None and chosen.operator is not None:
        return chosen.operator
    raise _no_operator(name, 0, right, several, context, location)


def _binary_exact(named: Sequence[Operator], left: int, right: int, context: BindContext) -> Operator | None:
    """binary_oper_exact: an unknown operand is first taken to be of the other one's type, or of that type's base type."""
    was_unknown = False
    if left == registry.UNKNOWN and right != 0:
        left, was_unknown = right, True
    elif right == registry.UNKNOWN and left != 0:
        right, was_unknown = left, True
    for each in named:
        if (each.left, each.right) == (left, right):
            return each
    if was_unknown:
        base = context.base_type(left)
        for each in named:
            if base != left and (each.left, each.right) == (base, base):
                return each
    return None


def _no_operator(name: str, left: int, right: int, several: bool, context: BindContext, location: int) -> PostgresError:
    shown = (f"{context.show_type(left)} " if left else "") + f"{name} {context.show_type(right)}"
    if several:
        return PostgresError("42725", f"operator is not unique: {shown}", hint=_AMBIGUOUS_OPERATOR, position=context.position(location))
    hint = _OPERATOR_HINT if left else _OPERATOR_HINT_ONE
    return PostgresError("42883", f"operator does not exist: {shown}", hint=hint, position=context.position(location))


def find_function(
    schema: str | None,
    name: str,
    arguments: Sequence[int],
    context: BindContext,
    location: int,
    *,
    variadic: bool = False,
    shown: str | None = None,
) -> Candidate | None:
    """func_get_detail: the function for these argument types, None if the call must be read as a cast (``int4(x)``).

    `shown`: the call as messages show it, if not by the types of its arguments.

    Raises 42883 ``function f(integer) does not exist`` and 42725 ``function f(unknown) is not unique``.
    """
    if all(each < registry.FIRST_USER_OID for each in arguments):
        known = _known_function(schema, name, tuple(arguments), variadic)
        if known is not None:
            return known
    candidates = _candidates(schema, name, len(arguments), variadic)
    for candidate in candidates:
        if candidate.arguments == tuple(arguments):
            return candidate
    if len(arguments) == 1 and _is_cast(schema, name, arguments[0], context):
        return None
    chosen, several = _select(candidates, arguments, context)
    if chosen is not None:
        return chosen
    shown = shown or f"{name if schema is None else f'{schema}.{name}'}({', '.join(context.show_type(each) for each in arguments)})"
    if several:
        raise PostgresError("42725", f"function {shown} is not unique", hint=_AMBIGUOUS_FUNCTION, position=context.position(location))
    raise no_function(shown, context, location)


def _candidates(schema: str | None, name: str, count: int, variadic: bool) -> list[Candidate]:
    named = [each for each in builtin.builtins().functions_named.get(name, ()) if each.schema == (schema or "pg_catalog")]
    return _prefer_plain([found for each in named if (found := _candidate(each, count, variadic)) is not None])


@functools.lru_cache(maxsize=4096)
def _known_function(schema: str | None, name: str, arguments: tuple[int, ...], variadic: bool) -> Candidate | None:
    """As `find_function`, for built-in types; None where that raises, and where the call must be read as a cast."""
    context = BindContext(types=registry.builtin())
    candidates = _candidates(schema, name, len(arguments), variadic)
    exact = next((each for each in candidates if each.arguments == arguments), None)
    if exact is not None or (len(arguments) == 1 and _is_cast(schema, name, arguments[0], context)):
        return exact
    return _select(candidates, arguments, context)[0]


def among(named: Sequence[Function], arguments: Sequence[int], context: BindContext, *, variadic: bool = False) -> Candidate | None:
    """The function of these that a call with such arguments means; None where none or several fit."""
    candidates = _prefer_plain([found for each in named if (found := _candidate(each, len(arguments), variadic)) is not None])
    exact = next((each for each in candidates if each.arguments == tuple(arguments)), None)
    return exact or _select(candidates, arguments, context)[0]


def no_function(shown: str, context: BindContext, location: int) -> PostgresError:
    """42883 for a call, `shown` with its types."""
    return PostgresError("42883", f"function {shown} does not exist", hint=_FUNCTION_HINT, position=context.position(location))


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
    """FuncnameGetCandidates: of two candidates with equal argument types, the one that is not variadic and needs no defaults."""
    kept: dict[tuple[int, ...], Candidate] = {}
    for each in candidates:
        other = kept.get(each.arguments)
        if other is None or (other.spread and not each.spread):
            kept[each.arguments] = each
    return list(kept.values())


def _is_cast(schema: str | None, name: str, source: int, context: BindContext) -> bool:
    """Whether ``name(x)`` may be read as a cast: the name is a type's, and the cast needs no function of its own (parse_func.c)."""
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
    """func_match_argtypes and func_select_candidate: (the candidate, whether several were left over)."""
    possible = [each for each in candidates if can_coerce(actual, each.arguments, Reach.IMPLICIT, context)]
    if len(possible) <= 1:
        return (possible[0] if possible else None), False
    bases = [context.base_type(each) if each != registry.UNKNOWN else each for each in actual]
    unknown = [place for place, oid in enumerate(bases) if oid == registry.UNKNOWN]
    possible = _best(possible, lambda each: sum(b == a for b, a in zip(bases, each.arguments, strict=True) if b != registry.UNKNOWN))
    if len(possible) == 1:
        return possible[0], False
    possible = _best(possible, lambda each: sum(_exact_or_preferred(b, a, context) for b, a in zip(bases, each.arguments, strict=True)))
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
        fitting = [each for each in possible if can_coerce(same, each.arguments, Reach.IMPLICIT, context)]
        if len(fitting) == 1:
            return fitting[0], False
    return None, True


def _exact_or_preferred(base: int, argument: int, context: BindContext) -> bool:
    if base == registry.UNKNOWN:
        return False
    if base == argument:
        return True
    found, target = context.types.find(base), context.types.find(argument)
    return found is not None and target is not None and target.preferred and target.category == found.category


def _by_category(candidates: list[Candidate], unknown: Sequence[int], context: BindContext) -> tuple[list[Candidate], bool]:
    """Step 4.e of the manual: the category that each unknown argument must have; keeps the candidates that take it."""
    chosen: dict[int, tuple[str, bool]] = {}
    for place in unknown:
        kinds = [context.types.by_oid(each.arguments[place]) for each in candidates]
        categories = {kind.category for kind in kinds}
        if "S" in categories:
            category = "S"
        elif len(categories) == 1:
            category = categories.pop()
        else:
            return candidates, False
        chosen[place] = (category, any(kind.category == category and kind.preferred for kind in kinds))

    def keeps(candidate: Candidate) -> bool:
        for place, (category, preferred) in chosen.items():
            kind = context.types.by_oid(candidate.arguments[place])
            if kind.category != category or (preferred and not kind.preferred):
                return False
        return True

    kept = [each for each in candidates if keeps(each)]
    return (kept, True) if kept else (candidates, True)


def _best(candidates: Sequence[Candidate], score: Callable[[Candidate], int]) -> list[Candidate]:
    scores = [score(each) for each in candidates]
    top = max(scores)
    return [each for each, got in zip(candidates, scores, strict=True) if got == top]


_SORTED_AS = {
    registry.VARCHAR: registry.TEXT,
    registry.CIDR: registry.INET,
    **dict.fromkeys((registry.REGPROC, registry.REGCLASS, registry.REGTYPE, registry.REGROLE, registry.REGNAMESPACE), registry.OID),
}
"""Types that are binary coercible to the one whose operator class they use."""


def ordering_operator(oid: int, strategy: int, context: BindContext) -> int | None:
    """The operator of a type's default btree class with this strategy (1 <, 3 =, 5 >); None if the type cannot be sorted."""
    table = builtin.builtins().ordering
    base = context.base_type(oid)
    found = table.get((base, strategy))
    if found is not None:
        return found
    if base in _SORTED_AS:
        return table.get((_SORTED_AS[base], strategy))
    kind = context.types.find(base)
    if kind is not None and kind.is_array:
        return table.get((registry.ANYARRAY, strategy))
    if kind is not None and kind.kind is registry.TypeKind.ENUM:
        return table.get((registry.ANYENUM, strategy))
    if kind is not None and kind.kind in (registry.TypeKind.RANGE, registry.TypeKind.MULTIRANGE):
        return table.get((registry.ANYRANGE if kind.kind is registry.TypeKind.RANGE else registry.ANYMULTIRANGE, strategy))
    if kind is not None and kind.attributes:
        return table.get((registry.RECORD, strategy))
    return None


def real_types(
    actual: Sequence[int], declared: Sequence[int], result: int, context: BindContext, location: int
) -> tuple[tuple[int, ...], int]:
    """The argument and result types of the chosen candidate, polymorphic ones resolved; errors point to `location`."""
    try:
        return resolve_polymorphic(actual, declared, result, context)
    except PostgresError as error:
        error.position = context.position(location)
        raise
