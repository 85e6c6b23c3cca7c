"""The context of a binding: the clause, types, session settings and parameters that the binder needs besides parse tree and scope.

The caller of the binder makes it (row filter, query planner, command). A context is used for one statement by one thread. Only the
types of parameters change in it, because binding infers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Collate, Const, Expression, Param, TypeRef
from headgate.sql.parser import ParseNode
from headgate.types import registry, text_column


@dataclass(frozen=True)
class BindContext:
    """The context in which an expression is bound.

    `construct` is the clause as PostgreSQL's messages name it ("WHERE", "SELECT", "CHECK constraints", "PUBLICATION WHERE").
    `aggregates` and `sets`: whether aggregates and set-returning functions are allowed. `windows`: the WINDOW clause by name
    if window functions are allowed, else None. `parameters` maps $n to type oids
    (0 or UNKNOWN: to be inferred). None means that parameters are not allowed. With `infer`, unknown numbers are added.
    `subquery` receives a SubLink's parse node, its scope and this context, and returns the bound SubLink. If it is None, subqueries are
    rejected with the message `refuse_subquery`, or, with `opaque_subquery`, become a SubLink that only a later check rejects.
    `stored`: whether the text is from the catalog, which was written under another search path and before later functions.
    `forms`: the session settings by which constants are read. `default`: whether DEFAULT is allowed as a value.
    """

    construct: str = "SELECT"
    types: registry.TypeRegistry = field(default_factory=registry.known)
    forms: text_column.TextSettings = text_column.PLAIN
    aggregates: bool = False
    sets: bool = False
    windows: Mapping[str, pb.WindowDef] | None = None
    default: bool = False
    stored: bool = False
    parameters: dict[int, int] | None = None
    infer: bool = False
    subquery: Callable[[ParseNode, Scope, BindContext], Expression] | None = None
    opaque_subquery: bool = False
    refuse_subquery: str | None = None

    def within(self, **changes: object) -> BindContext:
        """Return the same context with some fields changed. The parameters stay shared."""
        changed = object.__new__(BindContext)  # dataclasses.replace takes ten times as long, which slows every statement
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    def base_type(self, oid: int) -> int:
        """Return the base type of a domain, or the type itself."""
        definition = self.types.find(oid)
        while definition is not None and definition.kind is registry.TypeKind.DOMAIN and definition.base:
            oid = definition.base
            definition = self.types.find(oid)
        return oid

    def is_composite(self, oid: int) -> bool:
        """Return whether the type is a row type."""
        definition = self.types.find(oid)
        return oid == registry.RECORD or (definition is not None and definition.kind is registry.TypeKind.COMPOSITE)

    def show_type(self, oid: int) -> str:
        """Return the type's name as format_type_be does."""
        return self.types.format_type(oid)

    def collation_of_type(self, oid: int) -> int:
        """Return the default collation of a type, or 0 if it has none."""
        definition = self.types.find(oid)
        return definition.collation if definition is not None else 0

    def inherited_collation(self, oid: int, operands: Iterable[Expression]) -> int:
        """Return the collation of a result of type `oid` over these operands: an explicit one overrides a column's (manual, 24.2).

        Raises 42P21 if two operands have different explicit collations.
        """
        operands = tuple(operands)
        self._refuse_mismatch(operands)
        own = self.collation_of_type(oid)
        if not own:
            return 0
        return collation_of(operands) or own

    def _refuse_mismatch(self, operands: Iterable[Expression]) -> None:
        explicit: Collate | None = None
        for operand in operands:
            mine = _explicit(operand)
            if explicit is not None and mine is not None and mine.type.collation != explicit.type.collation:
                first, second = (builtin.builtins().collation_names.get(collate.type.collation, "") for collate in (explicit, mine))
                raise PostgresError(
                    "42P21", f'collation mismatch between explicit collations "{first}" and "{second}"', location=mine.location
                )
            explicit = explicit or mine

    def infer_parameter(self, parameter: Param, target: int) -> Param:
        """Set the type of a parameter that has none yet. Raise 42P08 if it already has another type."""
        known = (self.parameters or {}).get(parameter.number, 0)
        if self.parameters is None or known not in (0, registry.UNKNOWN, target):
            raise PostgresError(
                "42P08",
                f"inconsistent types deduced for parameter ${parameter.number}",
                detail=f"{self.show_type(known)} versus {self.show_type(target)}",
                location=parameter.location,
            )
        self.parameters[parameter.number] = target
        return Param(type=TypeRef(target, -1, self.collation_of_type(target)), number=parameter.number, location=parameter.location)


Binder = Callable[[ParseNode, Scope, BindContext], Expression]
"""The type of `binder.bind_raw`. The binder passes it to the modules below it, which bind operands with it."""


def _explicit(expression: Expression) -> Collate | None:
    """Return the COLLATE clause that determines an expression's collation, also if it is below the expression's top node."""
    if isinstance(expression, Collate):
        return expression
    if not expression.type.collation:
        return None
    return next((collate for child in expression.children() if (collate := _explicit(child)) is not None), None)


def collation_of(operands: Iterable[Expression]) -> int:
    """Return the collation that operands pass on: an explicit COLLATE first, then a column's, else the default. 0 if none has any."""
    collation = 0
    for operand in operands:
        if isinstance(operand, Collate):
            return operand.type.collation
        if operand.type.collation and (collation in (0, 100) or isinstance(operand, Const)):
            collation = collation if isinstance(operand, Const) and collation else operand.type.collation
    return collation
