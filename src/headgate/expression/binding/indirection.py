"""Binds A_Indirection: subscripts, slices and fields after a value (PostgreSQL's transformIndirection).

Called by `binder`. `bind` receives the binder as a function, and binds subscripts with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.scope import Scope, has_table, resolve
from headgate.expression.location import location_of
from headgate.expression.node import INTEGER, UNKNOWN, ColumnRef, Const, Expression, FieldSelect, Subscript, TypeRef, record_fields
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

_MAX_SUBSCRIPTS = 6


def bind(node: pb.A_Indirection, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    inner = unwrap(node.arg)
    steps = [unwrap(step) for step in node.indirection]
    if inner.DESCRIPTOR.name == "ColumnRef" and len(inner.fields) == 1 and steps and steps[0].DESCRIPTOR.name == "String":
        name = unwrap(inner.fields[0]).sval
        if has_table(name, scope) and not _is_column(name, scope):
            result: Expression = resolve([name, steps[0].sval], scope, inner.location)
            steps = steps[1:]
            return _steps(result, steps, scope, context, binder)
    return _steps(binder(inner, scope, context), steps, scope, context, binder)


def _is_column(name: str, scope: Scope) -> bool:
    return any(column.name == name for table in scope.tables for column in table.columns)


def _steps(result: Expression, steps: list[ParseNode], scope: Scope, context: BindContext, binder: Binder) -> Expression:
    position = 0
    while position < len(steps):
        step = steps[position]
        kind = step.DESCRIPTOR.name
        position += 1
        if kind == "A_Indices":
            indices = [step]
            while position < len(steps) and steps[position].DESCRIPTOR.name == "A_Indices":
                indices.append(steps[position])
                position += 1
            result = subscript(result, indices, scope, context, binder)
        elif kind == "String" and isinstance(result, ColumnRef) and result.attnum == 0:
            result = resolve([result.qualifier, step.sval], scope, result.location)
        elif kind == "String":
            if not context.is_composite(result.type.oid):
                raise PostgresError(
                    "42809",
                    f"column notation .{step.sval} applied to type {context.show_type(result.type.oid)}, which is not a composite type",
                    location=location_of(result),
                )
            result = field(result, step.sval, context)
        else:
            raise PostgresError("42601", 'row expansion via "*" is not supported here', location=location_of(result))
    return result


def field(arg: Expression, name: str, context: BindContext) -> Expression:
    """Return a column of a composite value. Its type is unknown if the context does not know the columns of the value."""
    known = fields(arg, context)
    if known is None:
        return FieldSelect(type=UNKNOWN, arg=arg, name=name, location=arg.location)
    kind = dict(known).get(name)
    if kind is None:
        oid = context.base_type(arg.type.oid)
        message = (
            f'could not identify column "{name}" in record data type'
            if oid == registry.RECORD
            else f'column "{name}" not found in data type {context.show_type(oid)}'
        )
        raise PostgresError("42703", message, location=location_of(arg))
    return FieldSelect(type=kind, arg=arg, name=name, location=arg.location)


def fields(arg: Expression, context: BindContext) -> Sequence[tuple[str, TypeRef]] | None:
    """Return the names and types of the columns of a composite value, or None if they are not known."""
    composite = context.types.find(context.base_type(arg.type.oid))
    if composite is not None and composite.attributes:
        return [
            (attribute.name, TypeRef(attribute.type_oid, attribute.typmod, context.collation_of_type(attribute.type_oid)))
            for attribute in composite.attributes
        ]
    return record_fields(arg) or None


def subscript(arg: Expression, indices: list[pb.A_Indices], scope: Scope, context: BindContext, binder: Binder) -> Subscript:
    """transformContainerSubscripts: bind all adjacent subscripts at once. If one is a slice, ``[n]`` means ``[1:n]``."""
    base = context.types.by_oid(context.base_type(arg.type.oid))
    if base.is_vector:
        base = context.types.by_oid(context.types.by_oid(base.element).array)
    document = base.oid == registry.JSONB
    if base.oid == registry.NAME and not any(item.is_slice for item in indices) and len(indices) == 1:
        index = _index(indices[0].uidx, scope, context, binder)
        return Subscript(type=TypeRef(registry.CHAR), arg=arg, lower=(), upper=(index,), location=arg.location)
    if not base.is_array and not document:
        raise PostgresError(
            "42804",
            f"cannot subscript type {context.show_type(arg.type.oid)} because it does not support subscripting",
            location=location_of(arg),
        )
    sliced = any(item.is_slice for item in indices)
    if document and sliced:
        slice_item = next(item for item in indices if item.is_slice)
        bound = slice_item.uidx if slice_item.HasField("uidx") else slice_item.lidx
        location = location_of(binder(bound, scope, context)) if slice_item.HasField("uidx") or slice_item.HasField("lidx") else -1
        raise PostgresError("42804", "jsonb subscript does not support slices", location=location)
    if len(indices) > _MAX_SUBSCRIPTS and not document:
        message = f"number of array dimensions ({len(indices)}) exceeds the maximum allowed ({_MAX_SUBSCRIPTS})"
        raise PostgresError("54000", message)
    bound = _key if document else _index
    lower: list[Expression | None] = []
    for item in indices if sliced else ():
        if item.HasField("lidx"):
            lower.append(bound(item.lidx, scope, context, binder))
        else:
            lower.append(None if item.is_slice else Const(type=INTEGER, value="1"))
    upper = tuple(bound(item.uidx, scope, context, binder) if item.HasField("uidx") else None for item in indices)
    oid = base.oid if document or sliced else base.element
    kind = TypeRef(oid, -1 if document else arg.type.typmod, arg.type.collation if context.collation_of_type(oid) else 0)
    return Subscript(type=kind, arg=arg, lower=tuple(lower), upper=upper, location=arg.location)


def _index(node: ParseNode, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    raw = binder(node, scope, context)
    coerced = coerce(raw, TypeRef(registry.INT4), Reach.ASSIGNMENT, context)
    if coerced is None:
        raise PostgresError("42804", "array subscript must have type integer", location=location_of(raw))
    return coerced


def _key(node: ParseNode, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    """Bind a subscript of jsonb: an integer, or text."""
    raw = binder(node, scope, context)
    if raw.type.oid == registry.INT4:
        return raw
    coerced = coerce(raw, TypeRef(registry.TEXT, -1, context.collation_of_type(registry.TEXT)), Reach.IMPLICIT, context)
    if coerced is None:
        raise PostgresError(
            "42804",
            f"subscript type {context.show_type(raw.type.oid)} is not supported",
            hint="jsonb subscript must be coercible to either integer or text.",
            location=location_of(raw),
        )
    return coerced
