"""Coercions: converts an expression to another type, and finds the common type of several expressions (PostgreSQL's parse_coerce.c).

Called by the binder for every operand, argument, CASE and column (manual, 10.4, 10.5). `coercion_pathway` finds the cast between two
types. `signature` decides whether the arguments of a call match.

Invariant: the result of `coerce` has exactly the requested type. A literal of type unknown is read here, once, by the
type's input rules. So a Const of type unknown outlives binding only where PostgreSQL keeps it (an argument of VARIADIC "any").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import literal
from headgate.expression.binding.coercion_pathway import Path, Reach, find_path
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.signature import POLYMORPHIC, can_coerce
from headgate.expression.location import location_of
from headgate.expression.node import (
    BOOLEAN,
    INTEGER,
    ArrayCoerce,
    CoerceViaIO,
    Collate,
    ColumnRef,
    Const,
    DomainCoerce,
    Expression,
    FieldSelect,
    Form,
    FuncExpr,
    Param,
    Relabel,
    RowCoerce,
    RowExpr,
    TypeRef,
)
from headgate.sql import parser
from headgate.types import registry, typmod


def coerce(
    expression: Expression,
    target: TypeRef,
    reach: Reach,
    context: BindContext,
    *,
    form: Form = Form.IMPLICIT,
    location: int = -1,
) -> Expression | None:
    """coerce_to_target_type: return the expression as `target` (its modifier included), or None if there is no such coercion."""
    if not can_coerce([expression.type.oid], [target.oid], reach, context):
        return None
    inner = expression
    while isinstance(inner, Collate):
        inner = inner.arg
    if isinstance(inner, ColumnRef) and inner.attnum == 0 and inner.relation:
        row = _as_row_of(inner, target.oid, context)
        if row is None:
            return None
        expression = inner = row
    if target.oid != inner.type.oid and context.base_type(target.oid) != target.oid:
        return _recollate(expression, inner, to_domain(inner, target.oid, reach, context, form, location), context)
    result = coerce_type(inner, target.oid, reach, context, form=form, location=location, modifier=target.typmod)
    if target.typmod >= 0:
        result = _apply_modifier(
            result, target.typmod, reach, context, form=form, location=location, hide=result is not inner and not isinstance(result, Const)
        )
    return _recollate(expression, inner, result, context)


def _as_row_of(row: ColumnRef, target: int, context: BindContext) -> Expression | None:
    """Return the row of a table with the columns of a table from which it inherits (ConvertRowtypeExpr), None if it does not inherit.

    For other targets, return the row.
    """
    kind, own = context.types.find(target), context.types.of_relation(row.relation)
    if kind is None or not kind.of_table or kind.relation == row.relation or own is None:
        return row
    if kind.relation not in own.above:
        return None
    fields = [FieldSelect(type=TypeRef(part.type_oid, part.typmod), arg=row, name=part.name) for part in kind.attributes]
    return RowExpr(type=row.type, args=tuple(fields), names=tuple(part.name for part in kind.attributes), present=row)


def to_domain(expression: Expression, domain: int, reach: Reach, context: BindContext, form: Form, location: int) -> Expression:
    """coerce_to_domain: coerce to the base type with the domain's modifier, then to the domain. An explicit cast cuts values."""
    base, modifier = context.types.base(domain)
    below = coerce_type(expression, base, reach, context, location=location, modifier=modifier)
    if modifier >= 0:
        below = _apply_modifier(below, modifier, reach, context, form=Form.IMPLICIT, location=location, hide=False)
    kind = TypeRef(domain, -1, context.inherited_collation(domain, (below,)))
    return DomainCoerce(type=kind, arg=hide_form(below), form=form, location=location)


def _recollate(outer: Expression, inner: Expression, result: Expression, context: BindContext) -> Expression:
    """Put a COLLATE clause back above the coerced argument, if the result can have one."""
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
    """coerce_type: return the expression as type `target` without applying a modifier. The caller has checked that a coercion exists."""
    source = expression.type.oid
    if target in (source, registry.ANY):
        return expression
    if target in POLYMORPHIC and source != registry.UNKNOWN:
        return expression
    if not (isinstance(expression, Const) and expression.value is None):
        _refuse_unchecked(target, context, location)
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
        kind = context.types.find(target)
        if isinstance(expression, RowExpr) and kind is not None and kind.attributes:
            expression = _with_attributes(expression, kind, reach, context)
        return RowCoerce(type=TypeRef(target), arg=expression, form=form, location=location)
    array = context.types.find(source)
    if target == registry.RECORD_ARRAY and array is not None and array.is_array and context.is_composite(array.element):
        return expression
    raise PostgresError("XX000", f"failed to find conversion function from {context.show_type(source)} to {context.show_type(target)}")


def _refuse_unchecked(target: int, context: BindContext, location: int) -> None:
    """Raise 0A000 for a cast to an array of a domain with constraints, which would not be checked. ARRAY[…] casts its elements instead."""
    array = context.types.find(target)
    if array is None or not array.is_array:
        return
    element = context.types.find(array.element)
    while element is not None and element.kind is registry.TypeKind.DOMAIN:
        if element.not_null or element.checks:
            raise not_supported("arrays of domains with constraints are not supported", location=location)
        element = context.types.find(element.base)


def _with_attributes(row: RowExpr, kind: registry.PgType, reach: Reach, context: BindContext) -> RowExpr:
    """coerce_record_to_complex: coerce the fields to the attributes of a composite type. Raise 42846 if that is not possible."""
    args = []
    for position, (arg, attribute) in enumerate(zip(row.args, kind.attributes, strict=False), 1):
        target = TypeRef(attribute.type_oid, attribute.typmod, context.collation_of_type(attribute.type_oid))
        coerced = coerce(arg, target, reach, context)
        if coerced is None:
            type_names = context.show_type(arg.type.oid), context.show_type(attribute.type_oid)
            raise _no_cast(kind, f"Cannot cast type {type_names[0]} to {type_names[1]} in column {position}.", row, context)
        args.append(coerced)
    if len(row.args) != len(kind.attributes):
        is_short = len(row.args) < len(kind.attributes)
        raise _no_cast(kind, f"Input has too {'few' if is_short else 'many'} columns.", row, context)
    return replace(row, args=tuple(args))


def _no_cast(kind: registry.PgType, detail: str, row: RowExpr, context: BindContext) -> PostgresError:
    message = f"cannot cast type record to {context.show_type(kind.oid)}"
    return PostgresError("42846", message, detail=detail, location=location_of(row))


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
        element = context.types.by_oid(target).element
        base, element_modifier = context.types.base(element)
        if base != element and element_modifier >= 0:
            of_base = TypeRef(context.types.by_oid(base).array, element_modifier, collation)
            values = coerce(expression, of_base, reach, context, location=location)
            assert values is not None, "an array that can be cast to one of a domain can be cast to one of its base type"
            expression, path = hide_form(values), Path("array", 0)
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
    """Read an unknown literal by the type's input function. Errors point to the literal."""
    base = context.base_type(target)
    use = modifier if base == registry.INTERVAL else -1
    collation = context.collation_of_type(target)
    if constant.value is None:
        return Const(type=TypeRef(target, use, collation), value=None, location=constant.location)
    try:
        value = literal.read(constant.value, base, use, context)
    except PostgresError as error:
        if error.position is None:
            error.position = parser.position(constant.location)
        raise
    return Const(type=TypeRef(target, use, collation), value=value, location=constant.location)


def _apply_modifier(
    expression: Expression, modifier: int, reach: Reach, context: BindContext, *, form: Form, location: int, hide: bool
) -> Expression:
    """coerce_type_typmod: apply a length or precision by the type's own cast function, or only set the type modifier."""
    kind = expression.type
    if kind.typmod == modifier:
        return expression
    cast = builtin.builtins().casts.get((kind.oid, kind.oid))
    definition = context.types.by_oid(kind.oid)
    if hide:
        expression = hide_form(expression)
    if cast is not None and cast.function:
        return _by_path(expression, Path("function", cast.function), kind.oid, reach, context, form, location, modifier)
    if definition.is_array and (element := builtin.builtins().casts.get((definition.element, definition.element))) and element.function:
        result = TypeRef(kind.oid, modifier, kind.collation)
        return ArrayCoerce(type=result, arg=expression, function=element.function, form=form, location=location)
    return Relabel(type=replace(kind, typmod=modifier), arg=expression, form=form, location=location)


def hide_form(expression: Expression) -> Expression:
    """hide_coercion_node: mark a cast as implicit, so that it is not printed beside the one above it."""
    if isinstance(expression, (FuncExpr, Relabel, CoerceViaIO, ArrayCoerce, RowCoerce)):
        return replace(expression, form=Form.IMPLICIT)
    return expression


def strip_implicit(expression: Expression) -> Expression:
    """strip_implicit_coercions: return the expression below implicit casts."""
    while True:
        if isinstance(expression, FuncExpr) and expression.form is Form.IMPLICIT:
            expression = expression.args[0]
        elif isinstance(expression, (Relabel, CoerceViaIO, ArrayCoerce, RowCoerce)) and expression.form is Form.IMPLICIT:
            expression = expression.arg
        else:
            return expression


def common_type(expressions: Sequence[Expression], construct: str, context: BindContext) -> int:
    """select_common_type (manual, 10.5): the common type of UNION, CASE, VALUES, ARRAY or GREATEST. Raise 42804 if there is none.

    `construct` is the word of the message: "CASE types text and integer cannot be matched".
    """
    oids = [expression.type.oid for expression in expressions]
    if oids[0] != registry.UNKNOWN and all(oid == oids[0] for oid in oids):
        return oids[0]
    chosen, chosen_type = registry.UNKNOWN, context.types.by_oid(registry.UNKNOWN)
    for expression in expressions:
        oid = context.base_type(expression.type.oid)
        if oid in (registry.UNKNOWN, chosen):
            continue
        candidate = context.types.by_oid(oid)
        if chosen == registry.UNKNOWN:
            chosen, chosen_type = oid, candidate
        elif candidate.category != chosen_type.category:
            raise PostgresError(
                "42804",
                f"{construct} types {context.show_type(chosen)} and {context.show_type(oid)} cannot be matched",
                location=location_of(expression),
            )
        elif (
            not chosen_type.preferred
            and can_coerce([chosen], [oid], Reach.IMPLICIT, context)
            and not can_coerce([oid], [chosen], Reach.IMPLICIT, context)
        ):
            chosen, chosen_type = oid, candidate
    return registry.TEXT if chosen == registry.UNKNOWN else chosen


def common_modifier(expressions: Sequence[Expression], target: int) -> int:
    """select_common_typmod: return the common modifier, or -1 if the expressions differ."""
    modifiers = {expression.type.typmod if expression.type.oid == target else -1 for expression in expressions}
    return modifiers.pop() if len(modifiers) == 1 else -1


def to_common(expression: Expression, target: int, construct: str, context: BindContext) -> Expression:
    """coerce_to_common_type: coerce the expression to `target`. Raise 42846 if that is not possible."""
    if expression.type.oid == target:
        return expression
    if can_coerce([expression.type.oid], [target], Reach.IMPLICIT, context):
        return coerce_type(expression, target, Reach.IMPLICIT, context)
    raise PostgresError(
        "42846",
        f"{construct} could not convert type {context.show_type(expression.type.oid)} to {context.show_type(target)}",
        location=location_of(expression),
    )


def to_specific(expression: Expression, target: TypeRef, construct: str, context: BindContext) -> Expression:
    """coerce_to_specific_type, coerce_to_boolean. Raise 42804 "argument of WHERE must be type boolean, not type integer"."""
    result = coerce(expression, target, Reach.ASSIGNMENT, context)
    if result is None:
        shown, actual = context.show_type(target.oid), context.show_type(expression.type.oid)
        message = f"argument of {construct} must be type {shown}, not type {actual}"
        raise PostgresError("42804", message, location=location_of(expression))
    return result


def to_boolean(expression: Expression, construct: str, context: BindContext) -> Expression:
    return to_specific(expression, BOOLEAN, construct, context)


def resolve_unknown(expression: Expression, context: BindContext) -> Expression:
    """resolveTargetListUnknowns: coerce an expression of type unknown to text."""
    if expression.type.oid != registry.UNKNOWN:
        return expression
    return coerce_type(expression, registry.TEXT, Reach.IMPLICIT, context)


def is_length_coercion(expression: Expression) -> int:
    """exprIsLengthCoercion: return the modifier that a cast applies, or -1 if it applies none."""
    if isinstance(expression, FuncExpr) and expression.form in (Form.EXPLICIT, Form.IMPLICIT) and len(expression.args) in (2, 3):
        second = expression.args[1]
        if isinstance(second, Const) and second.type.oid == registry.INT4 and second.value is not None:
            return int(second.value)
    if isinstance(expression, ArrayCoerce):
        return expression.type.typmod
    return typmod.NONE


def modifier_of(expressions: Sequence[Expression]) -> int:
    """Return the modifier of CASE, COALESCE or GREATEST: the operands' if all agree in type and modifier (exprTypmod), else -1."""
    first = expressions[0].type
    if all(expression.type.oid == first.oid and expression.type.typmod == first.typmod for expression in expressions):
        return first.typmod
    return typmod.NONE
