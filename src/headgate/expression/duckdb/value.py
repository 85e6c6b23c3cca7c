"""What the compiler's modules share: how values of PostgreSQL's types lie in DuckDB, and what an expression finds around it (`Env`).

oid and its kin lie as UINTEGER, pg_lsn as UBIGINT, timestamptz as TIMESTAMP in UTC, numeric as DECIMAL(38, s) with a scale `s` that
the tree says (`scale`), a record as a struct, arrays of one dimension as lists, what DuckDB has no type for as PostgreSQL's text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.catalog import procedure
from headgate.catalog.physical import duckdb_type as stored_type
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.types import registry as t

STRINGS = frozenset({t.TEXT, t.VARCHAR, t.BPCHAR, t.NAME, t.CHAR, t.PG_NODE_TREE, t.CSTRING, t.UNKNOWN})
"""Types whose values are their text."""
INTEGERS = (t.INT2, t.INT4, t.INT8)
FLOATS = (t.FLOAT4, t.FLOAT8)
NUMBERS = (*INTEGERS, t.NUMERIC, *FLOATS)
REGISTERED = {
    t.REGCLASS: "regclass", t.REGPROC: "regproc", t.REGTYPE: "regtype", t.REGROLE: "regrole", t.REGNAMESPACE: "regnamespace",
    2202: "regprocedure", 2203: "regoper", 2204: "regoperator", 3734: "regconfig", 3769: "regdictionary", 4191: "regcollation",
}  # fmt: skip
"""The reg… types: oids that print as names."""
OIDS = frozenset({t.OID, *REGISTERED})
MAX_DIGITS = 38


@dataclass(frozen=True)
class Facts:
    """What is known of a column beside its type: whether its arrays count from 0, the scale of its numeric, the columns of its record."""

    zero_based: bool = False
    scale: int | None = None
    fields: tuple[tuple[str, int], ...] = ()


NOTHING_KNOWN = Facts()


class RowColumn(Protocol):
    """A column of a whole row; `key` is its SQL."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type(self) -> n.TypeRef:
        """Its type."""

    @property
    def key(self) -> str:
        """Its SQL."""


class Env(Protocol):
    """What an expression finds around it. `database` and `path` are SQL: the database's oid, the namespaces of the search path."""

    database: str
    path: str
    announced: int
    """The major release of PostgreSQL that the node announces."""
    in_utc: bool
    """Whether the session's TimeZone is UTC."""
    time_zone: str
    facts: dict[str, Facts]
    """By the keys of columns, which are their SQL."""
    rows: dict[str, Sequence[RowColumn]]
    """The columns of whole rows, by the rows' keys."""

    def resolve(self, text: str, kind: int, where: int | None) -> int:
        """The oid that the text of a reg… literal names."""

    def sizes(self) -> str:
        """A table of what relations take on disk: c1 database, c2 relation, c3 bytes of data, c4 bytes in all."""

    def blockers(self) -> str:
        """A table of the backends that wait: c1 process id, c2 those of the backends for whose locks it waits."""

    def session_value(self, node: n.SqlValue) -> str:
        """CURRENT_USER and its like."""

    def moment(self, node: n.Expression) -> int | None:
        """Of now() and its like, as a timestamptz: the microseconds since 1970; None for anything else."""

    def session_call(self, node: n.FuncExpr) -> str | None:
        """A call that the session answers, None for any other."""

    def parameter(self, node: n.Param) -> n.Const:
        """The value of a parameter."""

    def subquery(self, node: n.SubLink) -> str:
        """The SQL of a subquery."""


DuckdbForm = Callable[[n.Expression, Sequence[n.Expression], Sequence[str], Env], str]
"""(the call, its operands, their SQL, what is around the query) → the call's SQL."""


def quote(text: str) -> str:
    """A string literal."""
    if "\0" in text:
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    return "'" + text.replace("'", "''") + "'"


def duckdb_type(oid: int) -> str:
    """The DuckDB type of values in expressions."""
    known = t.builtin().find(oid)
    if known is not None and (known.is_array or known.is_vector):
        return duckdb_type(known.element) + "[]"
    return stored_type(oid)


def element_of(oid: int) -> int | None:
    """The element type of an array or vector type, None for others."""
    known = t.builtin().find(base_of(oid))
    return known.element if known is not None and (known.is_array or known.is_vector) else None


def base_of(oid: int) -> int:
    """The type below a built-in domain."""
    known = t.builtin().find(oid)
    return base_of(known.base) if known is not None and known.kind is t.TypeKind.DOMAIN else oid


def null(oid: int) -> str:
    """NULL of a type."""
    return f"CAST(NULL AS {duckdb_type(oid)})"


def raised(sqlstate: str, message: str, oid: int, tail: str = "") -> str:
    """An expression of a type that raises PostgreSQL's error if it is evaluated; `tail`: SQL of text behind the message."""
    text = quote(f"headgate:{sqlstate}:{message}")
    return f"CAST(error({text}{f' || {tail}' if tail else ''}) AS {duckdb_type(oid)})"


def refuse(what: str, node: n.Expression | None = None) -> PostgresError:
    """0A000 for what has no exact form in DuckDB."""
    where = node.location + 1 if node is not None and node.location >= 0 else None
    return not_supported(f"{what} is not supported in a query on system catalogs", position=where)


def fields(node: n.Expression, env: Env) -> tuple[tuple[str, int], ...] | None:
    """The columns of a record's value; None where they are not known."""
    match node:
        case n.RowExpr():
            named = node.names or tuple(f"f{place}" for place, _ in enumerate(node.args, 1))
            return tuple((name, each.type.oid) for name, each in zip(named, node.args, strict=True))
        case n.RowCoerce() | n.Relabel():
            return fields(node.arg, env)
        case n.ColumnRef() if node.attnum == 0 and node.key in env.rows:
            return tuple((each.name, each.type.oid) for each in env.rows[node.key])
        case n.ColumnRef():
            return (env.facts[node.key].fields or None) if node.key in env.facts else None
        case n.FuncExpr():
            outputs = procedure.outputs(builtin.function(node.function).oid)
            found = tuple((name, (element_of(node.args[0].type.oid) or kind) if kind == t.ANYELEMENT else kind) for name, kind in outputs)
            return found or None
        case _:
            return None


def zero_based(node: n.Expression, env: Env) -> bool:
    """Whether an array counts from 0: a vector, and what a cast of it gives."""
    known = t.builtin().find(node.type.oid)
    if known is not None and known.is_vector:
        return True
    match node:
        case n.ColumnRef():
            return node.key in env.facts and env.facts[node.key].zero_based
        case n.Relabel() | n.ArrayCoerce():
            return zero_based(node.arg, env)
        case n.Case():
            return any(zero_based(each, env) for each in node.results)
        case _:
            return False


def scale(node: n.Expression, env: Env) -> int | None:
    """The digits behind the point of all values of a numeric expression; None where they may differ, or are not known."""
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
            return _agreed([*node.results, node.default], env)
        case n.Coalesce() | n.MinMax():
            return _agreed(node.args, env)
        case n.NullIf():
            return scale(node.args[0], env)
        case n.OpExpr() | n.FuncExpr() | n.Aggregate():
            return _scale_of_call(node, env)
        case _:
            return None


def _agreed(nodes: Sequence[n.Expression], env: Env) -> int | None:
    found = {scale(each, env) for each in nodes if not (isinstance(each, n.Const) and each.value is None)}
    return found.pop() if len(found) == 1 else None


_WHOLE_RESULTS = frozenset({"int2_numeric", "int4_numeric", "int8_numeric", "pg_lsn_mi", "pg_wal_lsn_diff", "sum"})
_SCALES: dict[str, Callable[[int, int], int]] = {
    "numeric_add": max, "numeric_sub": max, "numeric_mod": max, "numeric_mul": lambda a, b: a + b,
    "numeric_uminus": lambda a, _: a, "numeric_uplus": lambda a, _: a, "numeric_abs": lambda a, _: a,
}  # fmt: skip


def _scale_of_call(node: n.OpExpr | n.FuncExpr | n.Aggregate, env: Env) -> int | None:
    function = builtin.operator(node.operator).function if isinstance(node, n.OpExpr) else node.function
    found = builtin.function(function)
    if found.key.startswith("extract_"):
        return 6  # of the epoch, which is all that there is
    if found.key in _WHOLE_RESULTS or found.name == "sum":
        return 0 if node.args[0].type.oid != t.NUMERIC else scale(node.args[0], env)
    if found.key == "numeric" and node.type.typmod >= 0:
        return (node.type.typmod - 4) & 0x7FF
    if found.name in ("min", "max"):
        return scale(node.args[0], env)
    combined = _SCALES.get(found.key)
    given = [scale(each, env) for each in node.args]
    if combined is None or None in given:
        return None
    known = [each for each in given if each is not None]
    return combined(known[0], known[-1])
