"""What the compiler passes around: a value's representation in Spark, and the Column to be, made when the columns are known.

Used by `compiler` and the modules of `expression.implementation`. A `Value` is planned without Spark, so that
what cannot be compiled is refused when an expression is bound; `make` builds the Column for an `Env`.

Numeric has two representations. A *decimal* has a fixed scale, which is PostgreSQL's display scale of every one of its values,
and never NaN. *Digits* is PostgreSQL's text, computed on by exact Python in Arrow functions. Such functions run for all rows,
also those that a CASE leaves out: so they never raise. A failure is a value that starts with `FAILED`, becomes an error where
the value is used (`settle`), and arguments are NULL where the guard of an enclosing CASE, COALESCE, AND or OR is not true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType, DecimalType

from headgate.errors import PostgresError, not_supported
from headgate.expression.builtin import Function
from headgate.expression.node import Expression, TypeRef
from headgate.storage.spark import failure
from headgate.storage.spark.failure import marked
from headgate.types import registry, typmod

FAILED = "\x01"
MAX_PRECISION = typmod.MAX_PRECISION


@dataclass(frozen=True)
class Rep:
    """How a value is held.

    `name`: 'bool', 'int2', 'int4', 'int8', 'float4', 'float8', 'text', 'bytes', 'date', 'timestamp', 'timestamptz', 'decimal'
    (with precision and scale), 'digits' (numeric as text).
    """

    name: str
    precision: int = 0
    scale: int = 0

    @property
    def whole(self) -> int:
        """The digits before the point of a decimal."""
        return self.precision - self.scale


BOOL, TEXT, DIGITS, BYTES = Rep("bool"), Rep("text"), Rep("digits"), Rep("bytes")
INT2, INT4, INT8 = Rep("int2"), Rep("int4"), Rep("int8")
FLOAT4, FLOAT8 = Rep("float4"), Rep("float8")
DATE, TIMESTAMP, TIMESTAMPTZ = Rep("date"), Rep("timestamp"), Rep("timestamptz")

_BY_OID = {
    registry.BOOL: BOOL,
    registry.INT2: INT2,
    registry.INT4: INT4,
    registry.INT8: INT8,
    registry.OID: INT8,
    registry.XID: INT8,
    registry.CID: INT8,
    registry.FLOAT4: FLOAT4,
    registry.FLOAT8: FLOAT8,
    registry.BYTEA: BYTES,
    registry.DATE: DATE,
    registry.TIMESTAMP: TIMESTAMP,
    registry.TIMESTAMPTZ: TIMESTAMPTZ,
}
SPARK = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "text": "string",
    "digits": "string",
    "bytes": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}


def rep_of(oid: int, modifier: int = -1) -> Rep:
    """The representation of a stored column of the type."""
    oid, modifier = registry.known().base(oid, modifier)
    if oid == registry.NUMERIC:
        parts = typmod.decimal_parts(modifier)
        return Rep("decimal", *parts) if parts else DIGITS
    return _BY_OID.get(oid, TEXT)


def spark_type(rep: Rep) -> DataType | str:
    """The Spark type of a representation, as `Column.cast` takes it."""
    return DecimalType(rep.precision, rep.scale) if rep.name == "decimal" else SPARK[rep.name]


def decimal(precision: int, scale: int) -> Rep:
    """A decimal representation; the caller knows that it fits."""
    return Rep("decimal", max(precision, scale, 1), scale)


class Guard:
    """Where a value is needed: a condition inside of others, whose Columns are made when a value asks for them.

    Few values do, and a list of twenty thousand conditions has as many guards.
    """

    def __init__(self, condition: Callable[[], Column], outer: Guard | None = None) -> None:
        self._condition = condition
        self._outer = outer
        self._made: Column | None = None

    @property
    def column(self) -> Column:
        """All of the conditions; not by recursion, as there may be many."""
        waiting: list[Guard] = []
        at: Guard | None = self
        while at is not None and at._made is None:
            waiting.append(at)
            at = at._outer
        made = None if at is None else at._made
        for each in reversed(waiting):
            condition = each._condition()
            made = each._made = condition if made is None else made & condition
        assert made is not None
        return made


@dataclass(frozen=True)
class Env:
    """The columns by key; the guard: where it is not true, the value is not needed and must not fail; the window of aggregates.

    `first`: the outermost condition of the guard.
    """

    columns: Mapping[str, Column]
    guard: Guard | None = None
    first: Guard | None = None
    window: WindowSpec | None = None

    def over(self, aggregate: Column) -> Column:
        """An aggregate of the group, or of the window if there is one."""
        return aggregate if self.window is None else aggregate.over(self.window)

    def under(self, condition: Callable[[], Column]) -> Env:
        """The same, where the condition holds too."""
        inner = Guard(condition, self.guard)
        return replace(self, guard=inner, first=inner if self.guard is None else self.first)

    def needed(self, column: Column, *, calm: bool = False) -> Column:
        """The column where it is needed, NULL elsewhere.

        Of a `calm` one only the outermost condition is looked at, for speed. The whole guard contains what came before, and that its own
        guards: a chain of n Python functions under whole guards is an expression of 2^n nodes, which Spark does not finish planning.
        """
        guard = self.first if calm else self.guard
        return column if guard is None else F.when(guard.column, column)


Make = Callable[[Env], Column]


class Remembered:
    """A `Make` that builds its Column once for an `Env`, however often a call of calls asks for it.

    Each part of a Column is a question to Java.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._last: tuple[Env, Column] | None = None

    def __call__(self, env: Env) -> Column:
        """The Column."""
        if self._last is None or self._last[0] is not env:
            self._last = env, self._make(env)
        return self._last[1]


@dataclass(frozen=True)
class Value:
    """A planned value.

    `fallible`: digits that may be a failure. `constant`: the Python text of a constant, else None. `raw`: the value as a text
    that may be a failure, for functions of `vectorised` that take it (`make` raises instead). `fields`: of a row, which itself
    is the text that record_out prints. `calm`: as a Python function gets it, it raises for no row.
    """

    rep: Rep
    make: Make
    fallible: bool = False
    constant: str | None = None
    is_null: bool = False
    raw: Make | None = None
    fields: tuple[Field, ...] = ()
    calm: bool = False


Plan = Callable[[Expression], Value]
"""`compiler.plan`, handed down to families that plan operands of their own."""


@dataclass(frozen=True)
class Field:
    """A field of a row."""

    name: str
    type: TypeRef
    value: Value


def in_rep(rep: Rep, values: Sequence[Value], env: Env) -> list[Column]:
    """The Columns of values, cast to one representation where they have another."""
    return [each.make(env) if each.rep == rep else each.make(env).cast(SPARK[rep.name]) for each in values]


def raising(sqlstate: str, message: str) -> Column:
    """An expression that raises PostgreSQL's error when it is evaluated."""
    return F.raise_error(F.lit(marked(sqlstate, message)))


def settle(value: Value) -> Make:
    """The value's Column, in which a failure has become an error."""
    if not value.fallible:
        return value.make

    def make(env: Env) -> Column:
        made = value.make(env)
        return F.when(made.startswith(FAILED), F.raise_error(F.substring(made, 2, 10_000))).otherwise(made)

    return make


def missing(watched: Sequence[Make], env: Env) -> Column:
    """How many of the values are NULL; whatever they raise is raised here, in their order."""
    count = F.lit(0)
    for each in watched:
        count = count + F.isnull(each(env)).cast("int")
    return count


def after(watched: Sequence[Make], value: Value) -> Value:
    """The value, before which the others are computed: PostgreSQL would raise what they raise even where they do not matter."""

    def make(env: Env) -> Column:
        never = F.negative(missing(watched, env)) > 0  # which Spark cannot tell, as it can of a cast boolean
        return F.when(never, F.raise_error(F.lit("fewer than none"))).otherwise(value.make(env))

    return Value(value.rep, make, value.fallible)


def fail(error: PostgresError) -> str:
    """The in-band form of an error."""
    return FAILED + failure.marked(error.sqlstate, failure.told(error))


def as_text(value: Value) -> Make:
    """A numeric's digits as a string column (a decimal prints with its scale)."""
    if value.rep.name == "decimal":
        return lambda env: value.make(env).cast("string")
    return value.make


def arrow_function(run: Callable[..., pa.Array], result: DataType) -> Callable[..., Column]:
    """An Arrow function (pa.Array → pa.Array) as Spark runs it, over Columns."""
    if _in_lambda.get():
        raise PythonInside
    made: Callable[..., Column] = arrow_udf(failure.marking(run), result)  # type: ignore[call-overload]  # the stub knows no Arrow arrays
    return made


class PythonInside(Exception):
    """A Python function was about to be made `without_python`."""


_in_lambda: ContextVar[bool] = ContextVar("in_lambda", default=False)


@contextmanager
def without_python() -> Iterator[None]:
    """Columns that stand inside a lambda are made here; `PythonInside` for one that needs a Python function."""
    token = _in_lambda.set(True)
    try:
        yield
    finally:
        _in_lambda.reset(token)


def refuse(what: str, reason: str = "it has no exact counterpart in Spark") -> PostgresError:
    """The refusal of an operator or function: 0A000 with its name and the reason."""
    return not_supported(f"{what} is not supported: {reason}")


_NOT_OF_A_NODE = (
    (r"lo_|loread$|lowrite$", "a node has no large objects"),
    (r"pg_(read|stat|ls)_.*(file|dir)|pg_current_logfile|pg_rotate_logfile", "clients do not read the files of a node's machine"),
    (r"pg_(backup|start_backup|stop_backup|create_restore_point|promote|wal_replay)", "a node has no physical replication"),
    (r"binary_upgrade", "it is for pg_upgrade alone"),
)
"""Names of functions that do not only compute, and the reason why a node does not have them."""


def refuse_function(function: Function, what: str) -> PostgresError:
    """Return 0A000 for a function that has no implementation, with the reason."""
    for pattern, reason in _NOT_OF_A_NODE:
        if re.match(pattern, function.name):
            return refuse(what, reason)
    return refuse(what) if function.volatility == "i" else refuse(what, "a node does not have it")
