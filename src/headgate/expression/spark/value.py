"""The values that the Spark compiler passes around: their representation in Spark, and a builder of the Column.

Used by `compiler` and the modules of `expression.implementation`. A `Value` is planned without Spark, so that an expression that cannot be
compiled is refused when it is bound. `make` builds the Column for an `Env`, when the columns are known.

numeric has two representations. A *decimal* has a fixed scale, which is PostgreSQL's display scale of all its values, and is never NaN.
*Digits* is PostgreSQL's text, on which exact Python computes in Arrow functions. Such functions run for all rows, including those that a
CASE skips, so they never raise. A failure is a value that starts with `FAILED`, and becomes an error where the value is used (`settle`).
Their arguments are NULL if the guard of an enclosing CASE, COALESCE, AND or OR is not true.
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
from pyspark.sql.types import DataType, DecimalType

from headgate.errors import PostgresError, not_supported
from headgate.expression.builtin import Function
from headgate.expression.node import Expression, TypeRef
from headgate.storage.spark import failure
from headgate.storage.spark.failure import marked
from headgate.storage.spark.internals.arrow_function import of_arrays
from headgate.types import registry, typmod

FAILED = "\x01"


@dataclass(frozen=True)
class Rep:
    """The representation of a value in Spark.

    `name`: 'bool', 'int2', 'int4', 'int8', 'float4', 'float8', 'text', 'bytes', 'date', 'timestamp', 'timestamptz', 'decimal'
    (with precision and scale), 'digits' (numeric as text).
    """

    name: str
    precision: int = 0
    scale: int = 0

    @property
    def whole(self) -> int:
        """The number of integer digits of a decimal."""
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
    """Return the representation of a stored column of the type."""
    oid, modifier = registry.known().base(oid, modifier)
    if oid == registry.NUMERIC:
        parts = typmod.decimal_parts(modifier)
        return Rep("decimal", *parts) if parts else DIGITS
    return _BY_OID.get(oid, TEXT)


def spark_type(rep: Rep) -> DataType | str:
    """Return the Spark type of a representation, in a form that `Column.cast` accepts."""
    return DecimalType(rep.precision, rep.scale) if rep.name == "decimal" else SPARK[rep.name]


def decimal(precision: int, scale: int) -> Rep:
    """Return a decimal representation. The caller must check that it fits."""
    return Rep("decimal", max(precision, scale, 1), scale)


class Guard:
    """The condition under which a value is needed. Guards are nested, and their Columns are built only when a value asks for them.

    Few values ask, while a list of twenty thousand conditions has as many guards.
    """

    def __init__(self, condition: Callable[[], Column], outer: Guard | None = None) -> None:
        self._condition = condition
        self._outer = outer
        self._made: Column | None = None

    @property
    def column(self) -> Column:
        """The conjunction of all conditions. Computed without recursion, because there may be many."""
        pending: list[Guard] = []
        guard: Guard | None = self
        while guard is not None and guard._made is None:
            pending.append(guard)
            guard = guard._outer
        combined = None if guard is None else guard._made
        for inner in reversed(pending):
            condition = inner._condition()
            combined = inner._made = condition if combined is None else combined & condition
        assert combined is not None
        return combined


@dataclass(frozen=True)
class Env:
    """The environment in which a Column is built: the columns by key, the guard, and the window of aggregates.

    If the guard is not true, the value is not needed and must not fail. `first` is the outermost condition of the guard.
    """

    columns: Mapping[str, Column]
    guard: Guard | None = None
    first: Guard | None = None
    window: WindowSpec | None = None

    def over(self, aggregate: Column) -> Column:
        """Return the aggregate, over the window if there is one."""
        return aggregate if self.window is None else aggregate.over(self.window)

    def under(self, condition: Callable[[], Column]) -> Env:
        """Return the environment in which the condition must hold as well."""
        inner = Guard(condition, self.guard)
        return replace(self, guard=inner, first=inner if self.guard is None else self.first)

    def needed(self, column: Column, *, calm: bool = False) -> Column:
        """Return the column, or NULL for rows that do not need it.

        For a `calm` value, only the outermost condition is tested, for speed. The whole guard contains the preceding conditions with
        their own guards, so a chain of n Python functions under whole guards would be an expression of 2^n nodes, which Spark does not
        finish planning.
        """
        guard = self.first if calm else self.guard
        return column if guard is None else F.when(guard.column, column)


Make = Callable[[Env], Column]


class Remembered:
    """A `Make` that builds its Column once for an `Env`, however often nested calls ask for it.

    Building a part of a Column is a round trip to the JVM.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._last: tuple[Env, Column] | None = None

    def __call__(self, env: Env) -> Column:
        if self._last is None or self._last[0] is not env:
            self._last = env, self._make(env)
        return self._last[1]


@dataclass(frozen=True)
class Value:
    """A planned value.

    `fallible`: digits that may be a failure. `constant`: the Python text of a constant, or None. `raw`: the value as a text that may be
    a failure, for functions of `vectorised` that accept one (`make` raises instead). `fields`: the fields of a row; the row itself is the
    text that record_out prints. `calm`: passed to a Python function, the value raises for no row.
    """

    rep: Rep
    make: Make
    fallible: bool = False
    constant: str | None = None
    is_null: bool = False
    raw: Make | None = None
    fields: tuple[Field, ...] = ()
    calm: bool = False
    error: PostgresError | None = None
    """The error in which a call of constants has ended, which `make` raises."""


Plan = Callable[[Expression], Value]
"""`compiler.plan`, passed to the modules that plan operands of their own."""


@dataclass(frozen=True)
class Field:
    """A field of a row."""

    name: str
    type: TypeRef
    value: Value


def in_rep(rep: Rep, values: Sequence[Value], env: Env) -> list[Column]:
    """Return the Columns of values, cast to one representation if they have another."""
    return [value.make(env) if value.rep == rep else value.make(env).cast(SPARK[rep.name]) for value in values]


def of_columns(rep: Rep, build: Callable[..., Column], *values: Value) -> Value:
    """Return the value that `build` makes of the Columns of other values."""
    return Value(rep, lambda env: build(*(value.make(env) for value in values)))


def raising(sqlstate: str, message: str) -> Column:
    """Return an expression that raises PostgreSQL's error when it is evaluated."""
    return F.raise_error(F.lit(marked(sqlstate, message)))


def settle(value: Value) -> Make:
    """Return a builder of the value's Column, in which a failure raises its error."""
    if not value.fallible:
        return value.make

    def make(env: Env) -> Column:
        column = value.make(env)
        return F.when(column.startswith(FAILED), F.raise_error(F.substring(column, 2, 10_000))).otherwise(column)

    return make


def missing(watched: Sequence[Make], env: Env) -> Column:
    """Return a count of the values that are NULL. Evaluating it raises their errors, in their order."""
    count = F.lit(0)
    for make in watched:
        count = count + F.isnull(make(env)).cast("int")
    return count


def after(watched: Sequence[Make], value: Value) -> Value:
    """Return the value, evaluated after the others. PostgreSQL would raise their errors even if they do not affect the result."""

    def make(env: Env) -> Column:
        never = F.negative(missing(watched, env)) > 0  # always false, but Spark's optimizer cannot infer it
        return F.when(never, F.raise_error(F.lit("fewer than none"))).otherwise(value.make(env))

    return Value(value.rep, make, value.fallible)


def fail(error: PostgresError) -> str:
    """Return the in-band form of an error."""
    return FAILED + failure.marked(error.sqlstate, failure.told(error))


def as_text(value: Value) -> Make:
    """Return a numeric as a string column (a decimal prints with its scale)."""
    if value.rep.name == "decimal":
        return lambda env: value.make(env).cast("string")
    return value.make


def arrow_function(run: Callable[..., pa.Array], result: DataType) -> Callable[..., Column]:
    """Return an Arrow function (pa.Array → pa.Array) as a Spark function over Columns."""
    if _in_lambda.get():
        raise PythonInside
    return of_arrays(failure.marking(run), result)


class PythonInside(Exception):
    """Raised if a Python function would be needed inside `without_python`."""


_in_lambda: ContextVar[bool] = ContextVar("in_lambda", default=False)


@contextmanager
def without_python() -> Iterator[None]:
    """Build Columns for use inside a lambda. Raise `PythonInside` if one needs a Python function."""
    token = _in_lambda.set(True)
    try:
        yield
    finally:
        _in_lambda.reset(token)


def refuse(construct: str, reason: str = "it has no exact counterpart in Spark") -> PostgresError:
    """Return 0A000 for an operator or function, with its name and the reason."""
    return not_supported(f"{construct} is not supported: {reason}")


_NOT_OF_A_NODE = (
    (r"lo_|loread$|lowrite$", "a node has no large objects"),
    (r"pg_(read|stat|ls)_.*(file|dir)|pg_current_logfile|pg_rotate_logfile", "clients do not read the files of a node's machine"),
    (r"pg_(backup|start_backup|stop_backup|create_restore_point|promote|wal_replay)", "a node has no physical replication"),
    (r"binary_upgrade", "it is for pg_upgrade alone"),
    (r"pg_(try_)?advisory_|pg_(cancel|terminate)_backend$|pg_notify$|pg_sleep", "it is only called in a SELECT without tables"),
)
"""Patterns of names of functions that do more than compute, with the reason why a node does not have them."""


def refuse_function(function: Function, construct: str) -> PostgresError:
    """Return 0A000 for a function that has no implementation, with the reason."""
    for pattern, reason in _NOT_OF_A_NODE:
        if re.match(pattern, function.name):
            return refuse(construct, reason)
    return refuse(construct) if function.volatility == "i" else refuse(construct, "a node does not have it")
