"""Shared definitions of the DuckDB compiler: how values of PostgreSQL's types are represented, and an expression's environment (`Env`).

oid and similar types are UINTEGER, pg_lsn is UBIGINT, timestamptz is TIMESTAMP in UTC, and numeric is DECIMAL(38, s), whose display scale
the tree determines (`scale`). A record is a struct, a one-dimensional array a list. Types without a DuckDB counterpart are PostgreSQL's
text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.catalog.physical import duckdb_type as stored_type
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.types import registry as t

STRINGS = frozenset({t.TEXT, t.VARCHAR, t.BPCHAR, t.NAME, t.CHAR, t.PG_NODE_TREE, t.CSTRING, t.UNKNOWN})
"""Types whose values are represented by their text."""
FLOATS = (t.FLOAT4, t.FLOAT8)
NUMBERS = (*t.INTEGERS, t.NUMERIC, *FLOATS)
REGISTERED = {
    t.REGCLASS: "regclass", t.REGPROC: "regproc", t.REGTYPE: "regtype", t.REGROLE: "regrole", t.REGNAMESPACE: "regnamespace",
    2202: "regprocedure", 2203: "regoper", 2204: "regoperator", 3734: "regconfig", 3769: "regdictionary", 4191: "regcollation",
}  # fmt: skip
"""The reg… types: oids that print as names."""
OIDS = frozenset({t.OID, *REGISTERED})
MAX_DIGITS = 38


@dataclass(frozen=True)
class Facts:
    """Properties of a column besides its type: whether its arrays count from 0, and the scale of its numeric."""

    zero_based: bool = False
    scale: int | None = None


NOTHING_KNOWN = Facts()


class RowColumn(Protocol):
    """A column of a whole row."""

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def type(self) -> n.TypeRef:
        """The column's type."""

    @property
    def key(self) -> str:
        """The column's key."""


class Env(Protocol):
    """The environment of an expression. `database` and `path` are SQL: the database's oid and the namespaces of the search path."""

    database: str
    path: str
    announced: int
    """The major release of PostgreSQL that the node announces."""
    in_utc: bool
    """Whether the session's TimeZone is UTC."""
    time_zone: str
    facts: dict[str, Facts]
    """Properties of columns, by their keys."""
    rows: dict[str, Sequence[RowColumn]]
    """The columns of whole rows, by the rows' keys."""

    def column(self, key: str) -> str:
        """Return the SQL of a column. A key that no FROM item has is SQL."""

    def resolve(self, text: str, kind: int, where: int | None) -> int:
        """Return the oid of the object that the text of a reg… literal names."""

    def sizes(self) -> str:
        """Return a table of relation sizes on disk: c1 database, c2 relation, c3 bytes of data, c4 total bytes."""

    def blockers(self) -> str:
        """Return a table of waiting backends: c1 process id, c2 process ids of the backends that hold the locks."""

    def session_value(self, node: n.SqlValue) -> str:
        """Return the SQL of CURRENT_USER and similar."""

    def moment(self, node: n.Expression) -> int | None:
        """Return the time of now() and similar as microseconds since 1970 (a timestamptz), or None for any other expression."""

    def session_call(self, node: n.FuncExpr) -> str | None:
        """Return the SQL of a call that the session answers, or None for any other call."""

    def parameter(self, node: n.Param) -> n.Const:
        """Return the value of a parameter."""

    def subquery(self, node: n.SubLink) -> str:
        """Return the SQL of a subquery."""


DuckdbForm = Callable[[n.Expression, Sequence[n.Expression], Sequence[str], Env], str]
"""(the call, its operands, their SQL, the environment) → the call's SQL."""


def quote(text: str) -> str:
    if "\0" in text:
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    return "'" + text.replace("'", "''") + "'"


def duckdb_type(oid: int) -> str:
    built_in = t.builtin().find(oid)
    if built_in is not None and (built_in.is_array or built_in.is_vector):
        return duckdb_type(built_in.element) + "[]"
    return stored_type(oid)


def element_of(oid: int) -> int | None:
    """Return the element type of an array or vector type, or None for other types."""
    built_in = t.builtin().find(base_of(oid))
    return built_in.element if built_in is not None and (built_in.is_array or built_in.is_vector) else None


def base_of(oid: int) -> int:
    """Return the type itself, or the base type of a domain."""
    base, _ = t.known().base(oid)
    return base


def null(oid: int) -> str:
    return f"CAST(NULL AS {duckdb_type(oid)})"


def raised(sqlstate: str, message: str, oid: int, tail: str = "") -> str:
    """Return an expression of a type that raises PostgreSQL's error when evaluated. `tail` is SQL of text to append to the message."""
    text = quote(f"headgate:{sqlstate}:{message}")
    return f"CAST(error({text}{f' || {tail}' if tail else ''}) AS {duckdb_type(oid)})"


def refuse(construct: str, node: n.Expression | None = None) -> PostgresError:
    """Return 0A000 for a construct without an exact form in DuckDB."""
    location = -1 if node is None else node.location
    return not_supported(f"{construct} is not supported in a query on system catalogs", location=location)


def zero_based(node: n.Expression, env: Env) -> bool:
    """Return whether an array counts from 0. That holds for a vector and for a cast of one."""
    built_in = t.builtin().find(node.type.oid)
    if built_in is not None and built_in.is_vector:
        return True
    match node:
        case n.ColumnRef():
            return node.key in env.facts and env.facts[node.key].zero_based
        case n.Relabel() | n.ArrayCoerce():
            return zero_based(node.arg, env)
        case n.Case():
            return any(zero_based(result, env) for result in node.results)
        case _:
            return False


def scale(node: n.Expression, env: Env) -> int | None:
    """Return the number of fraction digits of all values of a numeric expression, or None if it varies or is not known."""
    match node:
        case n.Const():
            return 0 if node.value is None else len(node.value.partition(".")[2])
        case n.ColumnRef():
            return env.facts[node.key].scale if node.key in env.facts else None
        case n.Param():
            return scale(env.parameter(node), env)
        case n.Relabel() | n.Collate():
            return scale(node.arg, env)
        case n.Case():
            return _common_scale([*node.results, node.default], env)
        case n.Coalesce() | n.MinMax():
            return _common_scale(node.args, env)
        case n.NullIf():
            return scale(node.args[0], env)
        case n.OpExpr() | n.FuncExpr() | n.Aggregate():
            return _scale_of_call(node, env)
        case _:
            return None


def _common_scale(nodes: Sequence[n.Expression], env: Env) -> int | None:
    scales = {scale(node, env) for node in nodes if not (isinstance(node, n.Const) and node.value is None)}
    return scales.pop() if len(scales) == 1 else None


_WHOLE_RESULTS = frozenset({"int2_numeric", "int4_numeric", "int8_numeric", "pg_lsn_mi", "pg_wal_lsn_diff", "sum"})
_SCALES: dict[str, Callable[[int, int], int]] = {
    "numeric_add": max, "numeric_sub": max, "numeric_mod": max, "numeric_mul": lambda a, b: a + b,
    "numeric_uminus": lambda a, _: a, "numeric_uplus": lambda a, _: a, "numeric_abs": lambda a, _: a,
}  # fmt: skip


def _scale_of_call(node: n.OpExpr | n.FuncExpr | n.Aggregate, env: Env) -> int | None:
    function = builtin.operator(node.operator).function if isinstance(node, n.OpExpr) else node.function
    called = builtin.function(function)
    if called.key.startswith("extract_"):
        return 6  # extract is compiled only for epoch
    if called.key in _WHOLE_RESULTS or called.name == "sum":
        return 0 if node.args[0].type.oid != t.NUMERIC else scale(node.args[0], env)
    if called.key == "numeric" and node.type.typmod >= 0:
        return (node.type.typmod - 4) & 0x7FF
    if called.name in ("min", "max"):
        return scale(node.args[0], env)
    combined = _SCALES.get(called.key)
    scales = [scale(arg, env) for arg in node.args]
    if combined is None or None in scales:
        return None
    known_scales = [digits for digits in scales if digits is not None]
    return combined(known_scales[0], known_scales[-1])
