"""PostgreSQL 15's built-in operators, functions, casts and collations, with the lookups that its parser needs.

Used by the binder's resolution and by the deparser. The rows are those of the initial catalog (`initial_catalog.rows`), and the node's own
functions. They are read once, at the first request, which takes about 30 ms, and do not change after that.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TypeVar

from headgate.catalog import procedure
from headgate.expression.node import Expression, FuncExpr
from headgate.initial_catalog.rows import InitialRow, rows, schemas


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of pg_operator. `kind` is 'b' (infix) or 'l' (prefix, left = 0). `function` is the oid of its function."""

    oid: int
    name: str
    kind: str
    left: int
    right: int
    result: int
    function: int
    negator: int


@dataclass(frozen=True, slots=True)
class Function:
    """A row of pg_proc.

    `kind`: 'f' function, 'a' aggregate, 'w' window, 'p' procedure. `volatility`: 'i', 's', 'v'. `variadic` is the element
    type of the last argument (0: not variadic; 2276: VARIADIC "any"). `key` identifies the implementation in the compilers' tables: the C
    function's name, or ``name/argument,types`` for a function in SQL. `aggregate_kind`: 'n' normal, 'o' ordered-set, 'h' hypothetical-set.
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
    aggregate_kind: str = ""


@dataclass(frozen=True, slots=True)
class Cast:
    """A row of pg_cast. `context`: 'i' implicit, 'a' assignment, 'e' explicit. `method`: 'f' function, 'b' binary, 'i' through text."""

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


BTREE = 403
"""The oid of the access method, in pg_am."""
_SQL = 14
"""The oid of the language, in pg_language."""
_OPERATOR = ("oid", "oprname", "oprkind", "oprleft", "oprright", "oprresult", "oprcode", "oprnegate")
_FUNCTION = ("oid", "proname", "prokind", "proargtypes", "prorettype", "provolatile", "proisstrict", "provariadic", "proretset",
             "pronargdefaults", "prosrc", "prolang", "pronamespace")  # fmt: skip
_CAST = ("castsource", "casttarget", "castfunc", "castcontext", "castmethod")
_MEMBER = ("amopfamily", "amoplefttype", "amoprighttype", "amopstrategy", "amopopr", "amopmethod")


@functools.cache
def builtins() -> Builtins:
    """Return the built-in objects of PostgreSQL 15."""
    operators = [Operator(*row.values()) for row in rows("pg_operator", *_OPERATOR) if row["oprcode"]]
    kinds = {row["aggfnoid"]: row["aggkind"] for row in rows("pg_aggregate", "aggfnoid", "aggkind")}
    functions = [_function(row, kinds.get(row["oid"], "")) for row in rows("pg_proc", *_FUNCTION)]
    functions += [_own_function(oid, procedure_row) for oid, procedure_row in enumerate(procedure.OWN.values(), procedure.FIRST_OWN_OID)]
    for oid, later in procedure.LATER.items():
        stable = "s" if later.is_set else "v"
        functions.append(
            Function(oid, later.name, "f", later.arguments, later.result, stable, True, later.variadic, later.is_set, 0, later.name)
        )
    members = [member for member in rows("pg_amop", *_MEMBER) if member["amopmethod"] == BTREE]
    collations = {row["oid"]: row["collname"] for row in rows("pg_collation", "oid", "collname")}
    return Builtins(
        operators={entry.oid: entry for entry in operators},
        operators_named=_by_name(operators),
        functions={entry.oid: entry for entry in functions},
        functions_named=_by_name(functions),
        casts={(row["castsource"], row["casttarget"]): Cast(*row.values()) for row in rows("pg_cast", *_CAST)},
        ordering=_ordering(members),
        families=_families(members),
        collations={name: oid for oid, name in collations.items()},
        collation_names=collations,
    )


def _function(row: InitialRow, aggregate_kind: str) -> Function:
    of_sql = row["prolang"] == _SQL and row["prokind"] == "f"
    return Function(
        oid=row["oid"],
        name=row["proname"],
        kind=row["prokind"],
        arguments=tuple(row["proargtypes"]),
        result=row["prorettype"],
        volatility=row["provolatile"],
        strict=row["proisstrict"],
        variadic=row["provariadic"],
        retset=row["proretset"],
        defaults=row["pronargdefaults"],
        key=f"{row['proname']}/{','.join(map(str, row['proargtypes']))}" if of_sql else row["prosrc"],
        schema=schemas()[row["pronamespace"]],
        aggregate_kind=aggregate_kind,
    )


def _ordering(members: list[InitialRow]) -> dict[tuple[int, int], int]:
    """Return the operators of the default btree operator classes, by their type and strategy."""
    by_strategy = {
        (member["amopfamily"], member["amoplefttype"], member["amoprighttype"], member["amopstrategy"]): member["amopopr"]
        for member in members
    }
    return {
        (row["opcintype"], strategy): by_strategy[row["opcfamily"], row["opcintype"], row["opcintype"], strategy]
        for row in rows("pg_opclass", "opcintype", "opcfamily", "opcmethod", "opcdefault")
        if row["opcmethod"] == BTREE and row["opcdefault"]
        for strategy in range(1, 6)
        if (row["opcfamily"], row["opcintype"], row["opcintype"], strategy) in by_strategy
    }


def _families(members: list[InitialRow]) -> dict[int, tuple[tuple[int, int], ...]]:
    families: dict[int, list[tuple[int, int]]] = {}
    for member in sorted(members, key=lambda member: (member["amopopr"], member["amopfamily"])):
        families.setdefault(member["amopopr"], []).append((member["amopfamily"], member["amopstrategy"]))
    return {operator: tuple(places) for operator, places in families.items()}


def operator(oid: int) -> Operator:
    return builtins().operators[oid]


def function(oid: int) -> Function:
    return builtins().functions[oid]


def returns_set(node: Expression) -> bool:
    """Return whether a node calls a function that returns a set of rows."""
    return isinstance(node, FuncExpr) and function(node.function).retset


def _own_function(oid: int, described: procedure.Procedure) -> Function:
    """Return the entry of a function that PostgreSQL does not have."""
    name = described.name.removeprefix(f"{procedure.OWN_SCHEMA}.")
    defaults = len(described.arguments) - described.required
    schema = "pg_catalog" if name == described.name else procedure.OWN_SCHEMA
    return Function(
        oid, name, "f", described.arguments, described.result, "v", False, 0, described.is_set, defaults, described.name, schema
    )


def _by_name(rows: list[Named]) -> dict[str, tuple[Named, ...]]:
    by_name: dict[str, list[Named]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return {name: tuple(entries) for name, entries in by_name.items()}
