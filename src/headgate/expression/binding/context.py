"""What the binder must know besides the parse tree and the names in scope: the clause, the types, the session, parameters.

Made by whoever binds (row filter, query planner, command). A context is used for one statement by one thread; the only
thing that changes in it are the types of parameters, which binding infers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Collate, Const, Expression, Param, TypeRef
from headgate.sql.parser import ParseNode
from headgate.types import registry, text_column


@dataclass(frozen=True)
class BindContext:
    """How an expression is bound.

    `construct` is the clause as PostgreSQL's messages name it ("WHERE", "SELECT", "CHECK constraints", "PUBLICATION WHERE").
    `aggregates` and `sets`: whether aggregates and set-returning functions may stand here. `windows`: the WINDOW clause by name
    where window functions may stand, else None. `parameters` maps $n to type oids
    (0 or UNKNOWN: to be inferred); None means that there are no parameters at all. With `infer`, unknown numbers are added.
    `subquery` gets a SubLink's parse node, its scope and this context, and gives the bound SubLink; None: subqueries are refused
    by `refuse_subquery` (the message), or, with `opaque_subquery`, become a SubLink that only a later check refuses.
    `fields`: names and types of the columns of a record, as far as somebody knows them.
    `forms`: what the session says of text forms, by which constants are read. `default`: whether DEFAULT may stand as a value.
    """

    construct: str = "SELECT"
    types: registry.TypeRegistry = field(default_factory=registry.known)
    forms: text_column.TextSettings = text_column.PLAIN
    aggregates: bool = False
    sets: bool = False
    windows: Mapping[str, pb.WindowDef] | None = None
    default: bool = False
    parameters: dict[int, int] | None = None
    infer: bool = False
    subquery: Callable[[ParseNode, Scope, BindContext], Expression] | None = None
    opaque_subquery: bool = False
    refuse_subquery: str | None = None
    fields: Callable[[Expression], Sequence[tuple[str, int]] | None] | None = None

    def within(self, **changes: Any) -> BindContext:
        """The same context with some fields changed; the parameters stay shared."""
        made = object.__new__(BindContext)  # as dataclasses.replace, which takes ten times as long and is felt in every statement
        made.__dict__.update(self.__dict__, **changes)
        return made

    def position(self, location: int) -> int | None:
        """The error position of a location (character offset from 0), None for -1."""
        return location + 1 if location >= 0 else None

    def base_type(self, oid: int) -> int:
        """The type below a domain."""
        found = self.types.find(oid)
        while found is not None and found.kind is registry.TypeKind.DOMAIN and found.base:
            oid = found.base
            found = self.types.find(oid)
        return oid

    def is_composite(self, oid: int) -> bool:
        """Whether the type is a row type."""
        found = self.types.find(oid)
        return oid == registry.RECORD or (found is not None and found.kind is registry.TypeKind.COMPOSITE)

    def show_type(self, oid: int) -> str:
        """format_type_be."""
        return self.types.format_type(oid)

    def collation_of_type(self, oid: int) -> int:
        """The default collation of a type, 0 if it has none."""
        found = self.types.find(oid)
        return found.collation if found is not None else 0

    def inherited_collation(self, oid: int, operands: Iterable[Expression]) -> int:
        """The collation of a result of type `oid` over these operands: an explicit one wins over a column's (manual, 24.2).

        42P21 where two of them have different explicit collations.
        """
        operands = tuple(operands)
        self._refuse_mismatch(operands)
        own = self.collation_of_type(oid)
        if not own:
            return 0
        return collation_of(operands) or own

    def _refuse_mismatch(self, operands: Iterable[Expression]) -> None:
        found: Collate | None = None
        for each in operands:
            mine = _explicit(each)
            if found is not None and mine is not None and mine.type.collation != found.type.collation:
                one, other = (builtin.builtins().collation_names.get(each.type.collation, "") for each in (found, mine))
                raise PostgresError(
                    "42P21",
                    f'collation mismatch between explicit collations "{one}" and "{other}"',
                    position=self.position(mine.location),
                )
            found = found or mine

    def infer_parameter(self, parameter: Param, target: int) -> Param:
        """Fixes the type of a parameter that has none yet; 42P08 if it is already another."""
        known = (self.parameters or {}).get(parameter.number, 0)
        if self.parameters is None or known not in (0, registry.UNKNOWN, target):
            raise PostgresError(
                "42P08",
                f"inconsistent types deduced for parameter ${parameter.number}",
                detail=f"{self.show_type(known)} versus {self.show_type(target)}",
                position=self.position(parameter.location),
            )
        self.parameters[parameter.number] = target
        return Param(type=TypeRef(target, -1, self.collation_of_type(target)), number=parameter.number, location=parameter.location)


Binder = Callable[[ParseNode, Scope, BindContext], Expression]
"""`binder.bind_raw`, handed down to the modules below the binder, which bind operands by it."""


def _explicit(expression: Expression) -> Collate | None:
    """The COLLATE that decides on an expression's collation, handed up by what has one itself."""
    if isinstance(expression, Collate):
        return expression
    if not expression.type.collation:
        return None
    return next((found for each in expression.children() if (found := _explicit(each)) is not None), None)


def collation_of(operands: Iterable[Expression]) -> int:
    """The collation that operands hand up: an explicit COLLATE first, then that of a column, else the default one; 0 if none has any."""
    found = 0
    for each in operands:
        if isinstance(each, Collate):
            return each.type.collation
        if each.type.collation and (found in (0, 100) or isinstance(each, Const)):
            found = found if isinstance(each, Const) and found else each.type.collation
    return found
