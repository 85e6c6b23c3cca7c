"""The variables of a running function, by name: blocks and loops open a scope, inner names hide outer ones (manual, 43.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.expression.node import TypeRef
from headgate.plpgsql.tree import Cursor, Names
from headgate.types import registry


def type_of(oid: int, typmod: int = -1) -> TypeRef:
    known = registry.known().find(oid)
    return TypeRef(oid, typmod, 0 if known is None else known.collation)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of any type, in PostgreSQL's text form; None is NULL. Dates are in ISO, intervals in style postgres."""

    type: TypeRef
    text: str | None


@dataclass
class Row:
    """The fields of a record, by name, in order. `type` is RECORD's oid, or a row type's. `is_null`: it is NULL, and not a row of NULLs."""

    fields: dict[str, Value]
    type: int = registry.RECORD
    is_null: bool = False


@dataclass
class Variable:
    """A variable. `row`: it is a record, whose `value` is a Row. None: a record of no known type."""

    name: str
    type: TypeRef
    value: Value | Row | None
    row: bool = False
    constant: bool = False
    not_null: bool = False
    cursor: Cursor | None = None


@dataclass
class Scope:
    """The names that a block, a loop or the function itself defines."""

    label: str | None = None
    outer: Scope | None = None
    names: dict[str, Variable] = field(default_factory=dict)

    def levels(self) -> Iterator[Scope]:
        level: Scope | None = self
        while level is not None:
            yield level
            level = level.outer

    def find(self, names: Names) -> tuple[Variable, str | None] | None:
        """Return the variable and the field that a name refers to: ``x``, ``record.field``, ``label.x``, ``label.record.field``."""
        for level in self.levels():
            variable = level.names.get(names[0])
            if variable is not None and len(names) == 1:
                return variable, None
            if variable is not None and len(names) == 2 and variable.row:
                return variable, names[1]
            if level.label is not None and level.label == names[0] and len(names) > 1:
                variable = level.names.get(names[1])
                if variable is not None and len(names) == 2:
                    return variable, None
                if variable is not None and len(names) == 3 and variable.row:
                    return variable, names[2]
        return None
