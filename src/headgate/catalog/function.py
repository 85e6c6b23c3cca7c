"""Functions and procedures that users made: rows of pg_proc (manual, 38).

Written by `commands.function`, read by whoever calls one. A function's body is text; what it names is looked for when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, delete, insert, one, rows
from headgate.types import registry

SQL, PLPGSQL = 14, 13563
"""Oids of languages; that of PL/pgSQL is the one that PostgreSQL 15's initdb gives it."""
LANGUAGES = {"sql": SQL, "plpgsql": PLPGSQL}


ANYCOMPATIBLE, ANYCOMPATIBLEARRAY = 5077, 5078
POLYMORPHIC_ELEMENTS = {registry.ANYARRAY: registry.ANYELEMENT, ANYCOMPATIBLEARRAY: ANYCOMPATIBLE}
"""The types of the elements of polymorphic arrays, of which pg_type tells nothing."""


@dataclass(frozen=True)
class Argument:
    """An argument. `mode`: ``i`` in, ``o`` out, ``b`` both, ``v`` variadic, ``t`` column of RETURNS TABLE. `default`: its text."""

    mode: str
    name: str
    type_oid: int
    default: str | None = None

    @property
    def is_input(self) -> bool:
        """Whether a call passes a value for it."""
        return self.mode in "ibv"

    @property
    def is_output(self) -> bool:
        return self.mode in "obt"


@dataclass(frozen=True)
class UserFunction:
    """A function (`kind` ``f``) or procedure (``p``). `volatility`: ``i``, ``s``, ``v``; `config`: its SETs, as ``name=value``."""

    oid: int
    schema: str
    namespace: int
    name: str
    owner: int
    language: int
    kind: str
    arguments: tuple[Argument, ...]
    result: int
    is_set: bool
    body: str
    strict: bool = False
    security_definer: bool = False
    volatility: str = "v"
    leakproof: bool = False
    parallel: str = "u"
    cost: float = 100
    rows: float = 0
    config: tuple[str, ...] = ()
    declared_types: tuple[int, ...] = ()
    """The types of the inputs as declared, if a call has put real types in the place of polymorphic ones."""

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """Return the arguments for which a call passes values."""
        return tuple(argument for argument in self.arguments if argument.is_input)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """Return the OUT and INOUT arguments and the columns of RETURNS TABLE."""
        return tuple(argument for argument in self.arguments if argument.is_output)

    @property
    def types(self) -> tuple[int, ...]:
        """Return the types of the inputs, which tell functions of one name apart (proargtypes)."""
        return tuple(argument.type_oid for argument in self.inputs)


SUPPRESS_REDUNDANT = UserFunction(
    1291, "pg_catalog", 11, "suppress_redundant_updates_trigger", 10, PLPGSQL, "f", (), registry.TRIGGER, is_set=False, strict=True,
    body="""BEGIN
  IF TG_OP <> 'UPDATE' OR TG_WHEN <> 'BEFORE' OR TG_LEVEL <> 'ROW' THEN
    RAISE EXCEPTION USING ERRCODE = '39P01', MESSAGE = 'suppress_redundant_updates_trigger: must be called '
      || CASE WHEN TG_OP <> 'UPDATE' THEN 'on update' WHEN TG_WHEN <> 'BEFORE' THEN 'before update' ELSE 'for each row' END;
  END IF;
  IF NEW::text IS NOT DISTINCT FROM OLD::text THEN RETURN NULL; END IF;
  RETURN NEW;
END""",
)  # fmt: skip
"""The trigger function that PostgreSQL has. It compares the rows as stored, so that a numeric 1.0 differs from 1.00; their texts do too."""

_COLUMNS = (
    "p.oid, n.nspname, p.pronamespace, p.proname, p.proowner, p.prolang, p.prokind, p.proargtypes, p.proallargtypes, p.proargmodes,"
    " p.proargnames, p.proargdefaults, p.prorettype, p.proretset, p.prosrc, p.proisstrict, p.prosecdef, p.provolatile, p.proleakproof,"
    " p.proparallel, p.procost, p.prorows, p.proconfig"
)
_FROM = "FROM hg.pg_proc p JOIN hg.pg_namespace n ON n.oid = p.pronamespace AND n.dbid IN (0, p.dbid)"


def named(cursor: Cursor, database: int, name: str) -> list[UserFunction]:
    return [
        _read(row) for row in rows(cursor, f"SELECT {_COLUMNS} {_FROM} WHERE p.dbid = ? AND p.proname = ? ORDER BY p.oid", [database, name])
    ]


def distinct_names(cursor: Cursor, database: int) -> set[str]:
    return {name for (name,) in rows(cursor, "SELECT DISTINCT proname FROM hg.pg_proc WHERE dbid = ?", [database])}


def exist(cursor: Cursor, database: int) -> bool:
    return one(cursor, "SELECT 1 FROM hg.pg_proc WHERE dbid = ? LIMIT 1", [database]) is not None


def in_schema(cursor: Cursor, database: int, namespace: int) -> list[UserFunction]:
    sql = f"SELECT {_COLUMNS} {_FROM} WHERE p.dbid = ? AND p.pronamespace = ? ORDER BY p.oid"
    return [_read(row) for row in rows(cursor, sql, [database, namespace])]


def of_types(cursor: Cursor, database: int, types: Sequence[int]) -> list[UserFunction]:
    """Return the functions whose arguments or result have one of these types."""
    sql = (
        f"SELECT {_COLUMNS} {_FROM} WHERE p.dbid = ?"
        " AND list_has_any(list_append(coalesce(p.proallargtypes, p.proargtypes), p.prorettype), ?) ORDER BY p.oid"
    )
    return [_read(row) for row in rows(cursor, sql, [database, list(types)])]


def find(cursor: Cursor, database: int, oid: int) -> UserFunction | None:
    if oid == SUPPRESS_REDUNDANT.oid:
        return SUPPRESS_REDUNDANT
    function_rows = rows(cursor, f"SELECT {_COLUMNS} {_FROM} WHERE p.dbid = ? AND p.oid = ?", [database, oid])
    return _read(function_rows[0]) if function_rows else None


def _read(row: Row) -> UserFunction:
    (oid, schema, namespace, name, owner, language, kind, types, every, modes, argument_names, defaults, result, is_set, body, strict,
     definer, volatility, leakproof, parallel, cost, most, config) = row  # fmt: skip
    kinds = list(every or types or ())
    ways = list(modes or "i" * len(kinds))
    names = list(argument_names or [""] * len(kinds))
    texts = _defaults(defaults) if defaults else []
    inputs = [place for place, way in enumerate(ways) if way in "ibv"]
    by_place = dict(zip(inputs[len(inputs) - len(texts) :], texts, strict=True)) if texts else {}
    described = enumerate(zip(ways, names, kinds, strict=True))
    arguments = tuple(Argument(way, argument, oid_of, by_place.get(place)) for place, (way, argument, oid_of) in described)
    return UserFunction(
        oid, schema, namespace, name, owner, language, kind, arguments, result, is_set, body, strict, definer, volatility, leakproof,
        parallel, cost, most, tuple(config or ()),
    )  # fmt: skip


SEPARATOR = "\x1f, "
"""Between two defaults in the catalog: no text of an expression has the first character of it."""


def _defaults(text: str) -> list[str]:
    return text.split(SEPARATOR)


@dataclass(frozen=True)
class Texts:
    """A function as pg_get_functiondef, pg_get_function_arguments, …identity_arguments and …result print it."""

    definition: str
    arguments: str
    identity: str
    result: str | None


def write(cursor: Cursor, database: int, function: UserFunction, texts: Texts) -> None:
    """Create a function, or replace the one with its oid and keep its ACL."""
    before = one(cursor, "SELECT proacl FROM hg.pg_proc WHERE dbid = ? AND oid = ?", [database, function.oid])
    delete(cursor, "pg_proc", dbid=database, oid=function.oid)
    plain = all(argument.mode == "i" for argument in function.arguments)
    defaults = [argument.default for argument in function.inputs if argument.default is not None]
    variadic = next((argument.type_oid for argument in function.arguments if argument.mode == "v"), 0)
    insert(
        cursor, "pg_proc", dbid=database, oid=function.oid, proname=function.name, pronamespace=function.namespace, proowner=function.owner,
        prolang=function.language, procost=function.cost, prorows=function.rows, provariadic=_element(variadic), prosupport=0,
        prokind=function.kind, prosecdef=function.security_definer, proleakproof=function.leakproof, proisstrict=function.strict,
        proretset=function.is_set, provolatile=function.volatility, proparallel=function.parallel, pronargs=len(function.inputs),
        pronargdefaults=len(defaults), prorettype=function.result, proargtypes=list(function.types),
        proallargtypes=None if plain else [argument.type_oid for argument in function.arguments],
        proargmodes=None if plain else [argument.mode for argument in function.arguments],
        proargnames=[argument.name for argument in function.arguments] if any(argument.name for argument in function.arguments) else None,
        proargdefaults=SEPARATOR.join(defaults) if defaults else None, prosrc=function.body, proconfig=list(function.config) or None,
        proacl=None if before is None else before[0], prodef=texts.definition, proargumentstext=texts.arguments,
        proidentitytext=texts.identity, proresulttext=texts.result,
    )  # fmt: skip


def _element(array: int) -> int:
    array_type = registry.known().find(array)
    return POLYMORPHIC_ELEMENTS.get(array, 0 if array_type is None else array_type.element)


def drop(cursor: Cursor, database: int, oid: int) -> None:
    delete(cursor, "pg_proc", dbid=database, oid=oid)
    delete(cursor, "pg_description", dbid=database, objoid=oid, classoid=1255)
