"""Compares argument types with the types that a function declares, including polymorphic ones (manual, 38.2.5).

Called by `overload_resolution` for every candidate, and by callers that test whether a type can be coerced (`can_coerce`).
`resolve_polymorphic` determines the actual types of anyelement, anyarray and similar types in one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.errors import PostgresError
from headgate.expression.binding.coercion_pathway import Reach, find_path
from headgate.expression.binding.context import BindContext
from headgate.types import registry
from headgate.types.registry import ANYMULTIRANGE, ANYRANGE

ANYCOMPATIBLE = 5077
ANYCOMPATIBLEARRAY = 5078
ANYCOMPATIBLENONARRAY = 5079
ANYCOMPATIBLERANGE = 5080
ANYNONARRAY = 2776
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
_RANGES = {ANYRANGE: "r", ANYMULTIRANGE: "m", ANYCOMPATIBLERANGE: "r", ANYCOMPATIBLEMULTIRANGE: "m"}


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
    """check_generic_type_consistency: return whether the polymorphic arguments are consistent."""
    try:
        resolve_polymorphic(sources, targets, registry.BOOL, context, complete=False)
    except PostgresError:
        return False
    return True


def resolve_polymorphic(
    sources: Sequence[int], declared: Sequence[int], result: int, context: BindContext, *, complete: bool = True
) -> tuple[tuple[int, ...], int]:
    """enforce_generic_type_consistency: return the actual argument types and the actual result type of a polymorphic call.

    Raises 42804 if the arguments are inconsistent. Unknown literals get the type that the other arguments determine, or text. If
    `complete` is false, an undetermined type is not an error, because the candidate may still be chosen.
    """
    if result not in POLYMORPHIC and not any(oid in POLYMORPHIC for oid in declared):
        return tuple(declared), result
    element, array = _family(
        sources, declared, {registry.ANYELEMENT, ANYNONARRAY, registry.ANYENUM}, registry.ANYARRAY, context, common=False
    )
    ranges = _ranges(sources, declared, context)
    subtype = _compatible_subtype(ranges)
    compatible, compatible_array = _family(
        sources, declared, {ANYCOMPATIBLE, ANYCOMPATIBLENONARRAY}, ANYCOMPATIBLEARRAY, context, common=True, subtype=subtype
    )
    if subtype not in (0, compatible):
        shown, chosen = context.show_type(ranges.get(ANYCOMPATIBLERANGE, subtype)), context.show_type(compatible)
        raise PostgresError("42804", f"anycompatiblerange type {shown} does not match anycompatible type {chosen}")
    if ANYRANGE in ranges:
        element, array = _subtype(ranges[ANYRANGE], element, context)
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
    for oid, name in ((ANYNONARRAY, "anynonarray"), (ANYCOMPATIBLENONARRAY, "anycompatiblenonarray")):
        if oid in declared and real[oid] and context.types.by_oid(context.base_type(real[oid])).is_array:
            raise PostgresError("42804", f"type matched to {name} is an array type: {context.show_type(real[oid])}")
    if registry.ANYENUM in declared and element and context.types.by_oid(element).kind is not registry.TypeKind.ENUM:
        raise PostgresError("42804", f"type matched to anyenum is not an enum type: {context.show_type(element)}")
    return tuple(real.get(oid, oid) for oid in declared), real.get(result, result)


def _ranges(sources: Sequence[int], declared: Sequence[int], context: BindContext) -> dict[int, int]:
    """Return the range and multirange types that a call's arguments fix: one of them fixes both.

    Raises 42804 if an argument is not a range, or if two differ.
    """
    fixed: dict[int, int] = {}
    for source, target in zip(sources, declared, strict=False):
        if target not in _RANGES or source == registry.UNKNOWN:
            continue
        base = context.base_type(source)
        definition = context.types.find(base)
        if definition is None or definition.kind.value != _RANGES[target]:
            kind = "multirange" if _RANGES[target] == "m" else "range"
            name = context.show_type(target)
            raise PostgresError("42804", f"argument declared {name} is not a {kind} type but type {context.show_type(source)}")
        if fixed.setdefault(target, base) != base:
            raise PostgresError(
                "42804",
                f'arguments declared "{context.show_type(target)}" are not all alike',
                detail=f"{context.show_type(fixed[target])} versus {context.show_type(base)}",
            )
    if {ANYCOMPATIBLERANGE, ANYCOMPATIBLEMULTIRANGE} <= fixed.keys():
        range_type = registry.RANGES[fixed[ANYCOMPATIBLEMULTIRANGE]]
        if fixed[ANYCOMPATIBLERANGE] != range_type:
            multirange, given_range = fixed[ANYCOMPATIBLEMULTIRANGE], fixed[ANYCOMPATIBLERANGE]
            raise _inconsistent_error("anycompatiblemultirange", multirange, "anycompatiblerange", given_range, context)
    if ANYMULTIRANGE in fixed:
        range_type = registry.RANGES[fixed[ANYMULTIRANGE]]
        if fixed.setdefault(ANYRANGE, range_type) != range_type:
            raise _inconsistent_error("anymultirange", fixed[ANYMULTIRANGE], "anyrange", fixed[ANYRANGE], context)
    elif ANYRANGE in fixed:
        fixed[ANYMULTIRANGE] = registry.MULTIRANGES[fixed[ANYRANGE]]
    return fixed


def _compatible_subtype(ranges: Mapping[int, int]) -> int:
    """Return the subtype of the range or multirange of the anycompatible family, or 0 if there is none."""
    if ANYCOMPATIBLERANGE in ranges:
        return registry.SUBTYPES[ranges[ANYCOMPATIBLERANGE]]
    return registry.SUBTYPES[registry.RANGES[ranges[ANYCOMPATIBLEMULTIRANGE]]] if ANYCOMPATIBLEMULTIRANGE in ranges else 0


def _subtype(kind: int, element: int, context: BindContext) -> tuple[int, int]:
    """Return the (element type, array type) that a range type fixes. Raises 42804 if the arguments fix another element type."""
    subtype = registry.SUBTYPES[kind]
    if element not in (0, subtype):
        raise _inconsistent_error("anyrange", kind, "anyelement", element, context)
    return subtype, context.types.by_oid(subtype).array


def _inconsistent_error(first: str, first_oid: int, second: str, second_oid: int, context: BindContext) -> PostgresError:
    detail = f"{context.show_type(first_oid)} versus {context.show_type(second_oid)}"
    return PostgresError("42804", f"argument declared {first} is not consistent with argument declared {second}", detail=detail)


def _family(
    sources: Sequence[int], declared: Sequence[int], elements: set[int], array_type: int, context: BindContext, *,
    common: bool, subtype: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Return the element type and array type of one family of polymorphic types, or 0 if its arguments do not determine them.

    `subtype`: that of a range of the family, or 0.
    """
    known = [subtype] if subtype else []
    mentioned = bool(subtype)
    for source, target in zip(sources, declared, strict=False):
        if target != array_type and target not in elements:
            continue
        mentioned = True
        if source == registry.UNKNOWN:
            continue
        base = context.base_type(source) if target == array_type else source
        definition = context.types.find(base)
        if target == array_type:
            if base == registry.ANYARRAY:
                known.append(registry.ANYELEMENT)
                continue
            if definition is None or not definition.element or definition.category != "A":
                raise PostgresError("42804", f"argument declared anyarray is not an array but type {context.show_type(source)}")
            known.append(definition.element)
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
    elif any(oid != chosen for oid in known):
        different = next(oid for oid in known if oid != chosen)
        raise PostgresError(
            "42804",
            'arguments declared "anyelement" are not all alike',
            detail=f"{context.show_type(chosen)} versus {context.show_type(different)}",
        )
    return chosen, context.types.by_oid(chosen).array


def _common_of(oids: Sequence[int], context: BindContext) -> int:
    """select_common_type_from_oids: return the common type of types of one category. A preferred type is kept."""
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
