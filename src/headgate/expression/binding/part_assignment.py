"""Assignment to a part of a column: ``SET a[1] = 2``, ``SET a[2:3] = …``, ``SET c.field = …`` (transformAssignmentIndirection).

Called by `commands.dml.assignment` for UPDATE and by `commands.dml.insert` for INSERT. `store` returns the whole new value of the column,
made of its current value and the assigned one. Parts may stand in each other, as in ``SET c.numbers[1] = 2``: each step assigns to a part
of the step before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import indirection
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Const, Expression, FieldStore, SetToDefault, Subscript, SubscriptStore, TypeRef
from headgate.sql.parser import unwrap
from headgate.types import registry

_HINT = "You will need to rewrite or cast the expression."


@dataclass(frozen=True)
class Target:
    """A part of a column: the name of the column, the subscripts and attributes after it, and where the target stands in the text."""

    column: str
    steps: Sequence[pb.Node]
    location: int
    scope: Scope
    context: BindContext
    binder: Binder

    def store(self, current: Expression, value: Expression) -> Expression:
        """Return the value of the column after `value` is assigned to the part of `current`.

        Raises 42804 if the column has no such part or the value does not fit, 42703 for an unknown attribute, 0A000 for DEFAULT and for a
        part of a jsonb value.
        """
        if isinstance(value, SetToDefault):
            kind = "an array element" if unwrap(self.steps[0]).DESCRIPTOR.name == "A_Indices" else "a subfield"
            raise self._error("0A000", f"cannot set {kind} to DEFAULT")
        part, remaining_steps, name = self._part(current)
        stored = replace(self, column=name, steps=remaining_steps).store(part, value) if remaining_steps else value
        stored = self._coerce(part, stored, name)
        whole = replace(current.type, oid=self.context.base_type(current.type.oid))
        if isinstance(part, Subscript):
            return SubscriptStore(type=whole, arg=current, lower=part.lower, upper=part.upper, value=stored, location=value.location)
        return FieldStore(type=whole, arg=current, name=name, value=stored, location=value.location)

    def type(self, current: Expression) -> TypeRef:
        """Return the type of the part of `current`."""
        part, remaining_steps, name = self._part(current)
        return replace(self, column=name, steps=remaining_steps).type(part) if remaining_steps else part.type

    def _part(self, current: Expression) -> tuple[Expression, Sequence[pb.Node], str]:
        """Return the part that the first step names (adjacent subscripts are one step), the steps after it, and the name for messages."""
        steps = [unwrap(step) for step in self.steps]
        kind = self.context.types.by_oid(self.context.base_type(current.type.oid))
        shown = self.context.show_type(current.type.oid)
        if steps[0].DESCRIPTOR.name != "A_Indices":
            name, problem = steps[0].sval, None
            if not kind.attributes:
                problem = "42804", f"its type {shown} is not a composite type"
            elif all(attribute.name != name for attribute in kind.attributes):
                problem = "42703", f"there is no such column in data type {shown}"
            if problem is not None:
                raise self._error(problem[0], f'cannot assign to field "{name}" of column "{self.column}" because {problem[1]}')
            return indirection.field(current, name, self.context), self.steps[1:], name
        if kind.oid == registry.JSONB:
            raise not_supported("assignment to a part of a jsonb value is not supported", location=self.location)
        if not kind.is_array:
            location = -1 if isinstance(current, Const) else self.location  # INSERT has no column to point at
            raise PostgresError("42804", f"cannot subscript type {shown} because it does not support subscripting", location=location)
        count = next((place for place, step in enumerate(steps) if step.DESCRIPTOR.name != "A_Indices"), len(steps))
        return indirection.subscript(current, steps[:count], self.scope, self.context, self.binder), self.steps[count:], self.column

    def _coerce(self, part: Expression, value: Expression, name: str) -> Expression:
        fitted = coerce(value, part.type, Reach.ASSIGNMENT, self.context)
        if fitted is not None:
            return fitted
        expected, shown = self.context.show_type(part.type.oid), self.context.show_type(value.type.oid)
        verb = f'subscripted assignment to "{name}" requires' if isinstance(part, Subscript) else f'subfield "{name}" is of'
        raise self._error("42804", f"{verb} type {expected} but expression is of type {shown}", _HINT)

    def _error(self, sqlstate: str, message: str, hint: str | None = None) -> PostgresError:
        return PostgresError(sqlstate, message, hint=hint, location=self.location)


def operands(expression: Expression) -> Iterator[Expression]:
    """Yield the expressions that an assignment evaluates: the value and the subscripts, but not the column, whose other parts stay."""
    match expression:
        case SubscriptStore(lower=lower, upper=upper, value=value):
            yield from (bound for bound in (*lower, *upper) if bound is not None)
            yield from operands(value)
        case FieldStore(value=value):
            yield from operands(value)
        case _:
            yield expression
