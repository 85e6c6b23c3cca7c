"""Binds ARRAY[…] (PostgreSQL's transformArrayExpr): coerces the elements to one type, and determines the array's type.

Called by `binder`, also for a cast around the array, which then determines its type. `bind` receives the binder as a function, and
binds elements with it.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression.binding.coercion import coerce, common_type, to_common
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.scope import Scope
from headgate.expression.location import location_of
from headgate.expression.node import ArrayExpr, Expression, Form, TypeRef
from headgate.sql.parser import unwrap


def bind(node: pb.A_ArrayExpr, scope: Scope, context: BindContext, binder: Binder, target: int = 0) -> Expression:
    """Bind ARRAY[…]. `target` is the array type of a cast around it."""
    element = context.types.by_oid(target).element if target else 0
    bound: list[Expression] = []
    nested = False
    for item in node.elements:
        inner = unwrap(item)
        if inner.DESCRIPTOR.name == "A_ArrayExpr":
            nested = True
            bound.append(bind(inner, scope, context, binder, target))
        else:
            bound.append(binder(inner, scope, context))
    if not target:
        if not bound:
            raise PostgresError(
                "42P18",
                "cannot determine type of empty array",
                hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
                position=context.position(node.location),
            )
        common = common_type(bound, "ARRAY", context)
        definition = context.types.by_oid(common)
        if definition.is_array:
            nested, target, element = True, common, definition.element
        else:
            element, target = common, definition.array
            if not target:
                raise PostgresError(
                    "42704",
                    f"could not find array type for data type {context.show_type(common)}",
                    position=context.position(node.location),
                )
        done = [to_common(value, target if nested else element, "ARRAY", context) for value in bound]
    else:
        nested = nested or any(context.types.by_oid(value.type.oid).is_array for value in bound)
        done = [_element(value, target if nested else element, context) for value in bound]
    return ArrayExpr(
        type=TypeRef(target, -1, context.inherited_collation(target, done)), elements=tuple(done), nested=nested, location=node.location
    )


def _element(expression: Expression, target: int, context: BindContext) -> Expression:
    kind = TypeRef(target, -1, context.collation_of_type(target))
    result = coerce(expression, kind, Reach.EXPLICIT, context, form=Form.EXPLICIT)
    if result is None:
        raise PostgresError(
            "42846",
            f"cannot cast type {context.show_type(expression.type.oid)} to {context.show_type(target)}",
            position=context.position(location_of(expression)),
        )
    return result
