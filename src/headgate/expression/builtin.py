"""PostgreSQL 15's built-in operators, functions, casts and collations, looked up as its parser does.

Used by the binder's resolution and by the deparser. The rows stand in ``builtin.json``, which tools/dump_operators.py writes
from a real server; they are read once, when first asked for (some 30 ms). Nothing here changes after that.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import TypeVar

from headgate.catalog import procedure


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of pg_operator. `kind` is 'b' (infix) or 'l' (prefix, left = 0); `function` is the oid of its function."""

    oid: int
    name: str
    kind: str
    left: int
    right: int
    result: int
    function: int
    commutator: int
    negator: int


@dataclass(frozen=True, slots=True)
class Function:
    """A row of pg_proc.

    `kind`: 'f' function, 'a' aggregate, 'w' window, 'p' procedure. `volatility`: 'i', 's', 'v'. `variadic` is the element
    type of the last argument (0: not variadic; 2276: VARIADIC "any"). `key` names the implementation: the C function's name,
    or ``name/argument,types`` for a function in SQL; the compiler's tables are made of such keys.
    """

    oid: int
    name: str
    kind: str
    arguments: tuple[int, ...]
    result: int
    volatility: str
    strict: bool
    variadic: int
    retset: bool
    defaults: int
    key: str
    schema: str = "pg_catalog"


@dataclass(frozen=True, slots=True)
class Cast:
    """A row of pg_cast. `context`: 'i' implicit, 'a' assignment, 'e' explicit. `method`: 'f' function, 'b' binary, 'i' by text."""

    source: int
    target: int
    function: int
    context: str
    method: str


@dataclass(frozen=True)
class Builtins:
    """All built-in objects, indexed."""

    operators: dict[int, Operator]
    operators_named: dict[str, tuple[Operator, ...]]
    functions: dict[int, Function]
    functions_named: dict[str, tuple[Function, ...]]
    casts: dict[tuple[int, int], Cast]
    ordering: dict[tuple[int, int], int]
    """(type, btree strategy 1 < 2 <= 3 = 4 >= 5 >) → operator of the type's default operator class."""
    families: dict[int, tuple[tuple[int, int], ...]]
    """operator → its (btree operator family, strategy)."""
    collations: dict[str, int]
    collation_names: dict[int, str]


Named = TypeVar("Named", Operator, Function)


@functools.cache
def builtins() -> Builtins:
    """The built-in objects of PostgreSQL 15."""
    data = json.loads(resources.files("headgate.expression").joinpath("builtin.json").read_text(encoding="utf-8"))
    operators = [Operator(*row) for row in data["operators"]]
    functions = [Function(row[0], row[1], row[2], tuple(row[3]), *row[4:]) for row in data["functions"]]
    functions += [_own(oid, each) for oid, each in enumerate(procedure.OWN.values(), procedure.FIRST_OWN_OID)]
    families: dict[int, list[tuple[int, int]]] = {}
    for operator, family, strategy in data["families"]:
        families.setdefault(operator, []).append((family, strategy))
    return Builtins(
        operators={each.oid: each for each in operators},
        operators_named=_by_name(operators),
        functions={each.oid: each for each in functions},
        functions_named=_by_name(functions),
        casts={(row[0], row[1]): Cast(*row) for row in data["casts"]},
        ordering={(row[0], row[2]): row[3] for row in data["ordering"]},
        families={operator: tuple(rows) for operator, rows in families.items()},
        collations={name: oid for oid, name in reversed(data["collations"])},
        collation_names=dict(data["collations"]),
    )


def operator(oid: int) -> Operator:
    """The operator with this oid."""
    return builtins().operators[oid]


def function(oid: int) -> Function:
    """The function with this oid."""
    return builtins().functions[oid]


def _own(oid: int, found: procedure.Procedure) -> Function:
    """A function that only a node has."""
    name = found.name.removeprefix(f"{procedure.OWN_SCHEMA}.")
    defaults = len(found.arguments) - found.required
    return Function(oid, name, "f", found.arguments, found.result, "v", False, 0, found.is_set, defaults, found.name, procedure.OWN_SCHEMA)


def _by_name(rows: list[Named]) -> dict[str, tuple[Named, ...]]:
    named: dict[str, list[Named]] = {}
    for row in rows:
        named.setdefault(row.name, []).append(row)
    return {name: tuple(each) for name, each in named.items()}
