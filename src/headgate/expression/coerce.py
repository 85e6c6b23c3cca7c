"""Coercions: from which type to which, by what, and the node that does it (PostgreSQL's parse_coerce.c; manual, 10.4, 10.5).

Called by the binder for every operand, argument, CASE and column. `Reach` is how far a coercion may go: implicit in
expressions, assignment to a column, explicit cast.

What must hold: the result of `coerce` has exactly the type asked for; a literal of type unknown is read here, once, by the
type's input rules, so that a Const of type unknown outlives binding only where PostgreSQL keeps it (an argument of VARIADIC "any").
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.errors import PostgresError
from headgate.expression import builtin, literal
from headgate.expression.context import BindContext
from headgate.expression.node import (
    INTEGER,
    ArrayCoerce,
    CoerceViaIO,
    Collate,
    Const,
    DomainCoerce,
    Expression,
    Form,
    FuncExpr,
    Param,
    Relabel,
    RowCoerce,
    RowExpr,
    TypeRef,
    location_of,
)
from headgate.types import registry, typmod

ANYCOMPATIBLE = 5077
ANYCOMPATIBLEARRAY = 5078
ANYCOMPATIBLENONARRAY = 5079
ANYCOMPATIBLERANGE = 5080
ANYNONARRAY = 2776
ANYRANGE = 3831
ANYMULTIRANGE = 4537
ANYCOMPATIBLEMULTIRANGE = 4538
POLYMORPHIC = frozenset(
    {
        registry.ANYELEMENT,
        registry.ANYARRAY,
        ANYNONARRAY,
        registry.ANYENUM,
        ANYRANGE,
        ANYMULTIRANGE,
        ANYCOMPATIBLE,
        ANYCOMPATIBLEARRAY,
        ANYCOMPATIBLENONARRAY,
        ANYCOMPATIBLERANGE,
        ANYCOMPATIBLEMULTIRANGE,
    }
)
_RECORD_ARRAY = 2287


class Reach(enum.IntEnum):
    """How far a coercion may go (CoercionContext)."""

    IMPLICIT = 0
    ASSIGNMENT = 1
    EXPLICIT = 2


_NEEDS = {"i": Reach.IMPLICIT, "a": Reach.ASSIGNMENT, "e": Reach.EXPLICIT}


@dataclass(frozen=True)
class Path:
    """How one type becomes another: by 'relabel', 'function' (its oid), 'io' or 'array' (the element's function, 0 none, -1 io)."""

    how: str
    function: int = 0


def find_path(source: int, target: int, reach: Reach, context: BindContext) -> Path | None:
    """find_coercion_pathway: how `source` becomes `target` within `reach`, or None."""
    source, target = context.base_type(source), context.base_type(target)
    if source == target:
        return Path("relabel")
    cast = builtin.builtins().casts.get((source, target))
    if cast is not None:
        if reach < _NEEDS[cast.context]:
            return None
        return {"f": Path("function", cast.function), "b": Path("relabel"), "i": Path("io")}[cast.method]
    from_type, to_type = context.types.find(source), context.types.find(target)
    if from_type is None or to_type is None:
        return None
    if from_type.is_array and to_type.is_array:
        element = find_path(from_type.element, to_type.element, reach, context)
        if element is not None and element.how != "array":
            return Path("array", -1 if element.how == "io" else element.function)
        return None
    if reach >= Reach.ASSIGNMENT and to_type.category == "S":
        return Path("io")
    if reach >= Reach.EXPLICIT and from_type.category == "S":
        return Path("io")
    return None


def can_coerce(sources: Sequence[int], targets: Sequence[int], reach: Reach, context: BindContext) -> bool:
    """can_coerce_type for a whole argument list."""
    generic = False
    for source, target in zip(sources, targets, strict=True):
        if target in (source, registry.ANY):
            continue
        if target in POLYMORPHIC:
            generic = True
        elif (
            source == registry.UNKNOWN
            or find_path(source, target, reach, context) is not None
            or (target == registry.RECORD and context.is_composite(source))
            or (source == registry.RECORD and (context.is_composite(target) or target == registry.RECORD))
        ):
            continue
        else:
            return False
    return not generic or polymorphic_fits(sources, targets, context)


def polymorphic_fits(sources: Sequence[int], targets: Sequence[int], context: BindContext) -> bool:
    """check_generic_type_consistency: whether the polymorphic arguments agree with each other."""
    try:
        resolve_polymorphic(sources, targets, registry.BOOL, context, complete=False)
    except PostgresError:
        return False
    return True


def resolve_polymorphic(
    sources: Sequence[int], declared: Sequence[int], result: int, context: BindContext, *, complete: bool = True
) -> tuple[tuple[int, ...], int]:
    """enforce_generic_type_consistency: the real argument types and the real result type of a polymorphic call.

    Raises 42804 where the arguments do not agree. Unknown literals take the type that the others fix; text if none does. Without
    `complete`, a type that nothing fixes is no error: such a candidate may still be chosen.
    """
    if result not in POLYMORPHIC and not any(each in POLYMORPHIC for each in declared):
        return tuple(declared), result
    element, array = _family(
        sources, declared, {registry.ANYELEMENT, ANYNONARRAY, registry.ANYENUM}, registry.ANYARRAY, context, common=False
    )
    compatible, compatible_array = _family(
        sources, declared, {ANYCOMPATIBLE, ANYCOMPATIBLENONARRAY}, ANYCOMPATIBLEARRAY, context, common=True
    )
    ranges = _ranges(sources, declared, context)
    real = {
        **ranges,
        registry.ANYELEMENT: element,
        ANYNONARRAY: element,
        registry.ANYENUM: element,
        registry.ANYARRAY: array,
        ANYCOMPATIBLE: compatible,
        ANYCOMPATIBLENONARRAY: compatible,
        ANYCOMPATIBLEARRAY: compatible_array,
    }
    for oid in (*declared, result):
        if complete and oid in POLYMORPHIC and not real.get(oid):
            named = f"{context.show_type(oid)} " if oid in _RANGES else ""
            raise PostgresError("42804", f"could not determine polymorphic type {named}because input has type unknown")
    if ANYNONARRAY in declared and element and context.types.by_oid(element).is_array:
        raise PostgresError("42804", f"type matched to anynonarray is an array type: {context.show_type(element)}")
    if registry.ANYENUM in declared and element and context.types.by_oid(element).kind is not registry.Kind.ENUM:
        raise PostgresError("42804", f"type matched to anyenum is not an enum type: {context.show_type(element)}")
    return tuple(real.get(each, each) for each in declared), real.get(result, result)


_RANGES = {ANYRANGE: "r", ANYMULTIRANGE: "m", ANYCOMPATIBLERANGE: "r", ANYCOMPATIBLEMULTIRANGE: "m"}


def _ranges(sources: Sequence[int], declared: Sequence[int], context: BindContext) -> dict[int, int]:
    """The range types that a call's arguments fix; 42804 where an argument is no range or two differ."""
    fixed: dict[int, int] = {}
    for source, target in zip(sources, declared, strict=False):
        if target not in _RANGES or source == registry.UNKNOWN:
            continue
        found = context.types.find(context.base_type(source))
        if found is None or found.kind.value != _RANGES[target] or fixed.setdefault(target, source) != source:
            raise PostgresError("42804", f"argument declared anyrange is not a range type but type {context.show_type(source)}")
    return fixed


def _family(
    sources: Sequence[int], declared: Sequence[int], elements: set[int], array_type: int, context: BindContext, *, common: bool
) -> tuple[int, int]:
    """(element type, array type) of one family of polymorphic types; 0 if its arguments fix none."""
    known: list[int] = []
    mentioned = False
    for source, target in zip(sources, declared, strict=False):
        if target != array_type and target not in elements:
            continue
        mentioned = True
        if source == registry.UNKNOWN:
            continue
        base = context.base_type(source) if target == array_type else source
        found = context.types.find(base)
        if target == array_type:
            if base == registry.ANYARRAY:
                known.append(registry.ANYELEMENT)
                continue
            if found is None or not found.element or found.category != "A":
                raise PostgresError("42804", f"argument declared anyarray is not an array but type {context.show_type(source)}")
            known.append(found.element)
        else:
            known.append(source)
    if not known:
        if not mentioned:
            return 0, 0
        if common:
            return registry.TEXT, registry.TEXT_ARRAY
        return 0, 0
    chosen = known[0]
    if common:
        chosen = _common_of(known, context)
    elif any(each != chosen for each in known):
        other = next(each for each in known if each != chosen)
        raise PostgresError(
            "42804",
            'arguments declared "anyelement" are not all alike',
            detail=f"{context.show_type(chosen)} versus {context.show_type(other)}",
        )
    return chosen, context.types.by_oid(chosen).array


def _common_of(oids: Sequence[int], context: BindContext) -> int:
    """select_common_type_from_oids: of one category, the type that the others become; a preferred one stays."""
    chosen = oids[0]
    for oid in oids[1:]:
        before, after = context.types.by_oid(context.base_type(chosen)), context.types.by_oid(context.base_type(oid))
        if oid == chosen:
            continue
        if before.category != after.category:
            raise PostgresError("42804", "arguments of anycompatible family cannot be cast to a common type")
        if (
            not before.preferred
            and can_coerce([chosen], [oid], Reach.IMPLICIT, context)
            and not can_coerce([oid], [chosen], Reach.IMPLICIT, context)
        ):
            chosen = oid
    for oid in oids:
        if not can_coerce([oid], [chosen], Reach.IMPLICIT, context):
            raise PostgresError("42804", "arguments of anycompatible family cannot be cast to a common type")
    return chosen


def coerce(
    expression: Expression,
    target: TypeRef,
    reach: Reach,
    context: BindContext,
    *,
    form: Form = Form.IMPLICIT,
    location: int = -1,
) -> Expression | None:
    """coerce_to_target_type: the expression as `target` (its modifier included), None if there is no such coercion."""
    if not can_coerce([expression.type.oid], [target.oid], reach, context):
        return None
    inner = expression
    while isinstance(inner, Collate):
        inner = inner.arg
    if target.oid != inner.type.oid and context.base_type(target.oid) != target.oid:
        return _recollate(expression, inner, to_domain(inner, target.oid, reach, context, form, location), context)
    result = coerce_type(inner, target.oid, reach, context, form=form, location=location, modifier=target.typmod)
    if target.typmod >= 0:
        result = _apply_modifier(
            result, target.typmod, reach, context, form=form, location=location, hide=result is not inner and not isinstance(result, Const)
        )
    return _recollate(expression, inner, result, context)


def to_domain(expression: Expression, domain: int, reach: Reach, context: BindContext, form: Form, location: int) -> Expression:
    """coerce_to_domain: as the base type with the domain's modifier (too long is an error even in an explicit cast), then as the domain."""
    base, modifier = context.types.base(domain)
    below = coerce_type(expression, base, reach, context, location=location, modifier=modifier)
    if modifier >= 0:
        below = _apply_modifier(below, modifier, Reach.IMPLICIT, context, form=Form.IMPLICIT, location=location, hide=False)
    kind = TypeRef(domain, -1, context.inherited_collation(domain, (below,)))
    return DomainCoerce(type=kind, arg=hide_form(below), form=form, location=location)


def _recollate(outer: Expression, inner: Expression, result: Expression, context: BindContext) -> Expression:
    """Puts a COLLATE clause back above the coerced argument, if the result can have one."""
    if outer is inner or not isinstance(outer, Collate) or not context.collation_of_type(result.type.oid):
        return result
    return Collate(type=replace(result.type, collation=outer.type.collation), arg=result, location=outer.location)


def coerce_type(
    expression: Expression,
    target: int,
    reach: Reach,
    context: BindContext,
    *,
    form: Form = Form.IMPLICIT,
    location: int = -1,
    modifier: int = -1,
) -> Expression:
    """coerce_type: the expression as type `target`, its modifier not applied; the caller knows that it can be done."""
    source = expression.type.oid
    if target in (source, registry.ANY):
        return expression
    if target in POLYMORPHIC and source != registry.UNKNOWN:
        return expression
    if source == registry.UNKNOWN:
        if isinstance(expression, Const):
            return _read(expression, target, context, modifier)
        if isinstance(expression, Param):
            return context.infer_parameter(expression, target)
    if isinstance(expression, Collate):
        below = coerce_type(expression.arg, target, reach, context, form=form, location=location, modifier=modifier)
        return _recollate(expression, expression.arg, below, context)
    path = find_path(source, target, reach, context) if source != registry.UNKNOWN else Path("io")
    if path is not None:
        return _by_path(expression, path, target, reach, context, form, location, modifier)
    if isinstance(expression, RowExpr) or context.is_composite(source) or target == registry.RECORD:
        return RowCoerce(type=TypeRef(target), arg=expression, form=form, location=location)
    raise PostgresError("XX000", f"failed to find conversion function from {context.show_type(source)} to {context.show_type(target)}")


def _by_path(
    expression: Expression, path: Path, target: int, reach: Reach, context: BindContext, form: Form, location: int, modifier: int
) -> Expression:
    collation = context.inherited_collation(target, (expression,))
    plain = TypeRef(target, -1, collation)
    if path.how == "relabel":
        return Relabel(type=plain, arg=expression, form=form, location=location)
    if path.how == "io":
        return CoerceViaIO(type=plain, arg=expression, form=form, location=location)
    if path.how == "array":
        result = TypeRef(target, modifier, collation)
        return ArrayCoerce(type=result, arg=expression, function=path.function, form=form, location=location)
    function = builtin.function(path.function)
    args: list[Expression] = [expression]
    takes = len(function.arguments)
    if takes >= 2:
        args.append(Const(type=INTEGER, value=str(modifier)))
    if takes >= 3:
        args.append(Const(type=TypeRef(registry.BOOL), value="t" if reach is Reach.EXPLICIT else "f"))
    result = TypeRef(target, modifier if takes >= 2 else -1, collation)
    return FuncExpr(type=result, function=function.oid, args=tuple(args), form=form, location=location)


def _read(constant: Const, target: int, context: BindContext, modifier: int) -> Const:
    """Reads an unknown literal by the type's input function; errors point to the literal."""
    base = context.base_type(target)
    use = modifier if base == registry.INTERVAL else -1
    collation = context.collation_of_type(target)
    if constant.value is None:
        return Const(type=TypeRef(target, use, collation), value=None, location=constant.location)
    try:
        value = literal.read(constant.value, base, use, context)
    except PostgresError as error:
        if error.position is None:
            error.position = context.position(constant.location)
        raise
    return Const(type=TypeRef(target, use, collation), value=value, location=constant.location)


def _apply_modifier(
    expression: Expression, modifier: int, reach: Reach, context: BindContext, *, form: Form, location: int, hide: bool
) -> Expression:
    """coerce_type_typmod: applies a length or precision by the type's own cast function, or only labels."""
    kind = expression.type
    if kind.typmod == modifier:
        return expression
    cast = builtin.builtins().casts.get((kind.oid, kind.oid))
    found = context.types.by_oid(kind.oid)
    if hide:
        expression = hide_form(expression)
    if cast is not None and cast.function:
        return _by_path(expression, Path("function", cast.function), kind.oid, reach, context, form, location, modifier)
    if found.is_array and (element := builtin.builtins().casts.get((found.element, found.element))) and element.function:
        result = TypeRef(kind.oid, modifier, kind.collation)
        return ArrayCoerce(type=result, arg=expression, function=element.function, form=form, location=location)
    return Relabel(type=replace(kind, typmod=modifier), arg=expression, form=form, location=location)


def hide_form(expression: Expression) -> Expression:
    """hide_coercion_node: marks a cast as implicit, so that it is not printed beside the one above it."""
    if isinstance(expression, (FuncExpr, Relabel, CoerceViaIO, ArrayCoerce, RowCoerce)):
        return replace(expression, form=Form.IMPLICIT)
    return expression


def common_type(expressions: Sequence[Expression], construct: str, context: BindContext) -> int:
    """select_common_type (manual, 10.5): the type that UNION, CASE, VALUES, ARRAY, GREATEST take; 42804 if there is none.

    `construct` is the word of the message: "CASE types text and integer cannot be matched".
    """
    oids = [each.type.oid for each in expressions]
    if oids[0] != registry.UNKNOWN and all(each == oids[0] for each in oids):
        return oids[0]
    chosen, chosen_type = registry.UNKNOWN, context.types.by_oid(registry.UNKNOWN)
    for expression in expressions:
        oid = context.base_type(expression.type.oid)
        if oid in (registry.UNKNOWN, chosen):
            continue
        found = context.types.by_oid(oid)
        if chosen == registry.UNKNOWN:
            chosen, chosen_type = oid, found
        elif found.category != chosen_type.category:
            raise PostgresError(
                "42804",
                f"{construct} types {context.show_type(chosen)} and {context.show_type(oid)} cannot be matched",
                position=context.position(location_of(expression)),
            )
        elif (
            not chosen_type.preferred
            and can_coerce([chosen], [oid], Reach.IMPLICIT, context)
            and not can_coerce([oid], [chosen], Reach.IMPLICIT, context)
        ):
            chosen, chosen_type = oid, found
    return registry.TEXT if chosen == registry.UNKNOWN else chosen


def common_modifier(expressions: Sequence[Expression], target: int) -> int:
    """select_common_typmod: the modifier that all have, -1 where they differ."""
    modifiers = {each.type.typmod if each.type.oid == target else -1 for each in expressions}
    return modifiers.pop() if len(modifiers) == 1 else -1


def to_common(expression: Expression, target: int, construct: str, context: BindContext) -> Expression:
    """coerce_to_common_type; 42846 if it cannot be done."""
    if expression.type.oid == target:
        return expression
    if can_coerce([expression.type.oid], [target], Reach.IMPLICIT, context):
        return coerce_type(expression, target, Reach.IMPLICIT, context)
    raise PostgresError(
        "42846",
        f"{construct} could not convert type {context.show_type(expression.type.oid)} to {context.show_type(target)}",
        position=context.position(location_of(expression)),
    )


def to_boolean(expression: Expression, construct: str, context: BindContext) -> Expression:
    """coerce_to_boolean: 42804 "argument of WHERE must be type boolean, not type integer"."""
    if expression.type.oid != registry.BOOL:
        result = coerce(expression, TypeRef(registry.BOOL), Reach.ASSIGNMENT, context)
        if result is None:
            raise PostgresError(
                "42804",
                f"argument of {construct} must be type boolean, not type {context.show_type(expression.type.oid)}",
                position=context.position(location_of(expression)),
            )
        expression = result
    return expression


def to_specific(expression: Expression, target: int, construct: str, context: BindContext) -> Expression:
    """coerce_to_specific_type: as `to_boolean` for LIMIT, OFFSET and their like (``argument of LIMIT must be type bigint``)."""
    if expression.type.oid == target:
        return expression
    result = coerce(expression, TypeRef(target), Reach.ASSIGNMENT, context)
    if result is None:
        raise PostgresError(
            "42804",
            f"argument of {construct} must be type {context.show_type(target)}, not type {context.show_type(expression.type.oid)}",
            position=context.position(location_of(expression)),
        )
    return result


def resolve_unknown(expression: Expression, context: BindContext) -> Expression:
    """resolveTargetListUnknowns: what is still unknown becomes text."""
    if expression.type.oid != registry.UNKNOWN:
        return expression
    return coerce_type(expression, registry.TEXT, Reach.IMPLICIT, context)


def is_length_coercion(expression: Expression) -> int:
    """exprIsLengthCoercion: the modifier that a cast applies, -1 if it applies none."""
    if isinstance(expression, FuncExpr) and expression.form in (Form.EXPLICIT, Form.IMPLICIT) and len(expression.args) in (2, 3):
        second = expression.args[1]
        if isinstance(second, Const) and second.type.oid == registry.INT4 and second.value is not None:
            return int(second.value)
    if isinstance(expression, ArrayCoerce):
        return expression.type.typmod
    return typmod.NONE


def modifier_of(expressions: Sequence[Expression]) -> int:
    """The modifier of CASE, COALESCE, GREATEST: that of all operands if they agree in type and modifier (exprTypmod)."""
    first = expressions[0].type
    if all(each.type.oid == first.oid and each.type.typmod == first.typmod for each in expressions):
        return first.typmod
    return typmod.NONE
