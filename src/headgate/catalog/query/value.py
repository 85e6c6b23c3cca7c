"""A typed piece of DuckDB SQL, and what PostgreSQL's types mean to each other: the currency of the rewriter.

Every expression of a query becomes a `TypedSql`: SQL text that DuckDB evaluates, with the PostgreSQL type that the result has.
A literal in quotes and NULL are of type `unknown` until something decides on a type, as in PostgreSQL (manual, 10.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.types import registry as t
from headgate.types.registry import format_type

STRINGS = frozenset(
    {t.TEXT, t.VARCHAR, t.BPCHAR, t.NAME, t.CHAR, t.PG_NODE_TREE, t.CSTRING, t.JSON, t.JSONB, t.UUID, t.INET, t.CIDR, t.XML, 1033}
)
"""Types that DuckDB holds as VARCHAR."""
TEXTUAL = frozenset({t.TEXT, t.VARCHAR, t.BPCHAR, t.NAME, t.CHAR})
"""Category S: comparable with each other, cast to each other without a function."""
NUMBERS = (t.INT2, t.INT4, t.INT8, t.NUMERIC, t.FLOAT4, t.FLOAT8)
"""Numbers, each implicitly castable to those behind it."""
REGISTERED = {
    t.REGCLASS: "regclass", t.REGPROC: "regproc", t.REGTYPE: "regtype", t.REGROLE: "regrole", t.REGNAMESPACE: "regnamespace",
    2202: "regprocedure", 2203: "regoper", 2204: "regoperator", 3734: "regconfig", 3769: "regdictionary", 4191: "regcollation",
}  # fmt: skip
"""The reg… types: oids that print as names."""
OIDS = frozenset({t.OID, *REGISTERED})
VECTORS = {t.INT2VECTOR: t.INT2, t.OIDVECTOR: t.OID}
"""Array-like types with subscripts from 0, and their element types."""


@dataclass(frozen=True)
class TypedSql:
    """An expression.

    `literal`: for type unknown, the text of the literal (None: NULL) unless it is a parameter, `parameter` its number.
    `zero_based`: an array whose first subscript is 0. `fields`: the columns of a row value, as (name, Value), where the row is
    that of a FROM item, or (name, type) pairs of a struct in `struct`. `relation`, `attnum`: set for a table's own column.
    """

    sql: str
    type: int
    typmod: int = -1
    literal: str | None = None
    location: int = -1
    zero_based: bool = False
    fields: tuple[tuple[str, TypedSql], ...] = ()
    struct: tuple[tuple[str, int], ...] = ()
    relation: int = 0
    attnum: int = 0
    parameter: int = 0
    is_set: bool = False

    @property
    def unknown(self) -> bool:
        """Whether the type is still to be decided."""
        return self.type == t.UNKNOWN


def null(type_oid: int = t.UNKNOWN) -> TypedSql:
    """NULL."""
    return TypedSql("NULL", type_oid)


def array_of(type_oid: int) -> int:
    """The array type over a type; text[] for one that has none."""
    known = t.builtin().find(type_oid)
    return known.array if known is not None and known.array else t.TEXT_ARRAY


def element_of(type_oid: int) -> int | None:
    """The element type of an array or vector type, None for others."""
    if type_oid in VECTORS:
        return VECTORS[type_oid]
    known = t.builtin().find(type_oid)
    return known.element if known is not None and known.is_array else None


def position(location: int) -> int | None:
    """PostgresError.position of a parse tree's location."""
    return location + 1 if location >= 0 else None


def no_operator(name: str, left: TypedSql | None, right: TypedSql, location: int) -> PostgresError:
    """42883 for an operator."""
    shown = f"{name} {format_type(right.type)}" if left is None else f"{format_type(left.type)} {name} {format_type(right.type)}"
    return PostgresError(
        "42883",
        f"operator does not exist: {shown}",
        hint="No operator matches the given name and argument types. You might need to add explicit type casts.",
        position=position(location),
    )


def no_function(name: str, arguments: list[TypedSql], location: int) -> PostgresError:
    """42883 for a function."""
    shown = ", ".join(format_type(argument.type) for argument in arguments)
    return PostgresError(
        "42883",
        f"function {name}({shown}) does not exist",
        hint="No function matches the given name and argument types. You might need to add explicit type casts.",
        position=position(location),
    )


def quote(text: str) -> str:
    """A DuckDB string literal."""
    return "'" + text.replace("'", "''") + "'"
