"""Run Python functions over Arrow columns, for functions without an exact Spark expression: in Spark's workers, or at once for constants.

The modules of functions register such a function in their IMPLEMENTATIONS with `scalar`, or call `call` from their own builder. The
function must be a plain module-level one, because workers import it by name. Its arguments and result are *plain* values:

    bool                     bool                   text and all types stored as text  str, PostgreSQL's text form
    int2, int4, int8, oid    int                    numeric ('decimal', 'digits')      str, PostgreSQL's text form
    float4, float8           float                  date                               int, days since 1970-01-01
    bytea                    bytes                  timestamp, timestamptz             int, microseconds since 1970-01-01 (UTC)

It raises `PostgresError` if PostgreSQL raises an error. Strict functions are not called for rows with a NULL. Invariant: Spark runs
such a function for all rows of a batch, including those that CASE, AND or OR skip, so an error must not leave the worker. The error
travels through all further functions as a text that starts with `FAILED`, and becomes the session's error where the value is used.
Results are therefore sent as text. A result text that itself starts with a mark is prefixed with `KEPT`. Nested calls stay in the worker.
A function that cannot raise is registered with ``raises=False`` and returns values in their own Arrow type. Constant arguments are
pickled with the function instead of being sent. A call with only constant arguments runs when the expression is planned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType, DoubleType, FloatType, IntegerType, LongType, ShortType, StringType

from headgate.errors import PostgresError
from headgate.expression.implementation.implementation import SparkForm
from headgate.expression.spark.common_subexpression import bound
from headgate.expression.spark.value import FAILED, SPARK, Env, Make, Rep, Value, arrow_function, as_text, fail, raising, spark_type
from headgate.storage.spark import failure
from headgate.types import buffers, registry
from headgate.types.text import text

Plain: TypeAlias = Any
"""A plain value (see the module)."""
KEPT = "\x02"
_LONG_CALL = 60_000
"""Number of characters from which a call is bound instead of repeated. Spark prints the arguments of a Python function at about twelve
times their length, so this is the size of a guarded call that contains another. Repeated, a chain of n would be 6^n nodes."""
_FIXED = 10_000
"""Maximum length in characters of a constant that is pickled. A result made from a longer one may be slow to compute. That is left to a
worker, which can be terminated and has a memory limit."""
_TEXTS = frozenset({"text", "digits", "decimal"})
_INTEGERS = frozenset({"int2", "int4", "int8", "date", "timestamp", "timestamptz"})
_ARROW = {
    "bool": pa.bool_(), "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(), "float8": pa.float64(),
    "text": pa.string(), "digits": pa.string(), "decimal": pa.string(), "bytes": pa.binary(), "date": pa.int32(),
    "timestamp": pa.int64(), "timestamptz": pa.int64(),
}  # fmt: skip
_RESULTS: dict[str, DataType] = {
    "bool": BooleanType(), "int2": ShortType(), "int4": IntegerType(), "int8": LongType(), "float4": FloatType(), "float8": DoubleType(),
    "text": StringType(), "digits": StringType(), "decimal": StringType(), "bytes": BinaryType(), "date": IntegerType(),
    "timestamp": LongType(), "timestamptz": LongType(),
}  # fmt: skip


def scalar(
    function: Callable[..., Plain],
    result: Rep,
    *,
    prefix: tuple[object, ...] = (),
    flipped: bool = False,
    strict: bool = True,
    raises: bool = True,
) -> SparkForm:
    """Return the builder of a call (see `call`) for an IMPLEMENTATIONS table. `flipped`: with its two arguments in the other order."""
    return lambda node, args: call(function, result, args[::-1] if flipped else args, prefix=prefix, strict=strict, raises=raises)


def call(
    function: Callable[..., Plain],
    result: Rep,
    args: Sequence[Value],
    *,
    prefix: tuple[object, ...] = (),
    strict: bool = True,
    raises: bool = True,
    whole: bool = False,
) -> Value:
    """Call ``function(*prefix, *arguments)`` for each row. `prefix` holds types and modifiers, which the planner knows. It is pickled.

    `whole`: call it on Arrow arrays of equal length (constants repeated) instead. It returns an array of the plain type. If it raises, it
    is called again row by row, to find the rows that fail. It receives NULLs even if it is strict. The result of a strict function is NULL
    for rows with a NULL argument, whatever the function returns.
    """
    sent = tuple(map(_form_to_send, args))
    # If an argument can fail, its error is returned in-band as one of the call.
    invocation = _Call(function, result, sent, prefix, strict, raises or any(argument.marked for argument in sent), whole)
    if all(argument.fixed for argument in invocation.sent):
        return _fold(invocation)
    makes = [(_column_of(argument), argument.calm) for argument, sent in zip(args, invocation.sent, strict=True) if not sent.fixed]
    calm = all(is_calm for _, is_calm in makes)
    run = functools.cache(invocation.column_function)  # one function however often its Column is made, so that Spark runs it once

    def raw(env: Env) -> Column:
        guarded = strict and not calm  # a guarded argument's NULL stops the call: those that cannot fail need no guard
        return run()(*(make(env) if is_calm and guarded else env.needed(make(env), calm=is_calm) for make, is_calm in makes))

    if not invocation.raises:
        return Value(invocation.result, lambda env: _from_plain(raw(env), invocation.result), calm=calm)
    if invocation.result.name == "digits":
        return Value(invocation.result, raw, fallible=True, calm=calm)

    def settled(env: Env) -> Column:
        return bound([raw(env)], lambda sent: _from_marked(sent, invocation.result), long=_LONG_CALL)

    return Value(invocation.result, settled, raw=raw, calm=calm)


def of_lists(function: Callable[..., str | None], *prefix: object) -> Callable[..., Column]:
    """Return a Column function that applies a Python function to one or more lists of texts, a group's values. Errors are in-band."""

    def run(*columns: pa.Array) -> pa.Array:
        return pa.array(
            [_of_list(function, prefix, row) for row in zip(*(column.to_pylist() for column in columns), strict=True)], pa.string()
        )

    run.__name__ = function.__name__
    return arrow_function(run, StringType())


def _of_list(function: Callable[..., str | None], prefix: tuple[object, ...], row: tuple[object, ...]) -> str | None:
    try:
        return None if row[0] is None else function(*prefix, *row)
    except PostgresError as error:
        return fail(error)


@dataclass(frozen=True)
class _Sent:
    """How one argument reaches the worker: as a constant (`fixed`), or as a column that is in-band (`marked`) or plain."""

    rep: Rep
    fixed: bool
    plain: Plain
    marked: bool


def _form_to_send(value: Value) -> _Sent:
    if value.is_null:
        return _Sent(value.rep, True, None, False)
    if value.constant is not None and len(value.constant) <= _FIXED:
        return _Sent(value.rep, True, plain_constant(value), False)
    return _Sent(value.rep, False, None, value.raw is not None or value.fallible)


def plain_constant(value: Value) -> Plain:
    name, constant = value.rep.name, value.constant
    assert constant is not None
    if name in _TEXTS:
        return constant
    if name == "bool":
        return constant == "t"
    if name in ("int2", "int4", "int8"):
        return int(constant)
    if name == "float4":
        return pa.scalar(constant).cast(pa.float32()).as_py()  # NumPy would round twice
    if name == "float8":
        return float(constant)
    if name == "bytes":
        return bytes.fromhex(constant.removeprefix("\\x"))
    if name == "date":
        return text.read_scalar(constant, registry.DATE).cast(pa.int32()).as_py()
    return text.read_scalar(constant, registry.TIMESTAMPTZ if name == "timestamptz" else registry.TIMESTAMP).cast(pa.int64()).as_py()


def _column_of(value: Value) -> Make:
    """Return the builder of the Column that is sent for an argument."""
    if value.raw is not None:
        return value.raw
    name = value.rep.name
    if name in ("decimal", "digits"):
        return as_text(value)
    if name == "date":
        return lambda env: F.unix_date(value.make(env))
    if name in ("timestamp", "timestamptz"):
        return lambda env: F.unix_micros(value.make(env).cast("timestamp"))
    return value.make


def _fold(invocation: _Call) -> Value:
    """Compute a call whose arguments are all constants."""
    rep = invocation.result
    if invocation.strict and any(argument.plain is None for argument in invocation.sent):
        return Value(rep, lambda env: F.lit(None).cast(spark_type(rep)), is_null=True)
    try:
        result = invocation.once()
    except PostgresError as error:
        state, shown = error.sqlstate, failure.told(error)
        return Value(rep, lambda env: raising(state, shown).cast(spark_type(rep)), error=error)
    if result is None:
        return Value(rep, lambda env: F.lit(None).cast(spark_type(rep)), is_null=True)
    result_text = _show(result, rep)
    constant = None if rep.name in ("date", "timestamp", "timestamptz") else "\\x" + result_text if rep.name == "bytes" else result_text
    return Value(rep, lambda env: _from_shown(F.lit(result_text), rep), constant=constant)


@dataclass(frozen=True)
class _Call:
    """A function with everything that a worker needs to call it. Pickled."""

    function: Callable[..., Plain]
    result: Rep
    sent: tuple[_Sent, ...]
    prefix: tuple[object, ...]
    strict: bool
    raises: bool
    whole: bool
    types: registry.TypeRegistry = field(default_factory=registry.known)
    """The user-defined types, for the worker."""

    def column_function(self) -> Callable[..., Column]:
        """Return the call as a Spark function over the Columns of the arguments that are sent."""
        runner = self

        def run(*arrays: pa.Array) -> pa.Array:
            return runner.over(arrays)

        run.__name__ = getattr(self.function, "__name__", "function")
        return arrow_function(run, StringType() if self.raises else _RESULTS[self.result.name])

    def once(self) -> Plain:
        """Return the plain result for constant arguments, or raise its error."""
        values = [argument.plain for argument in self.sent]
        if not self.whole:
            return self.function(*self.prefix, *values)
        arrays = [pa.array([value], _ARROW[argument.rep.name]) for value, argument in zip(values, self.sent, strict=True)]
        return self.function(*self.prefix, *arrays)[0].as_py()

    def over(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """Return the results for a batch of rows."""
        registry.use(self.types)
        columns, failures = self._columns(arrays)
        return self._whole(columns, failures) if self.whole else self._one_by_one(columns, failures)

    def _columns(self, arrays: Sequence[pa.Array]) -> tuple[list[pa.Array | None], list[str | None] | None]:
        """Return the sent arguments as plain arrays (None for constants), and the first failure of each row, if any."""
        sent_arrays = iter(arrays)
        columns: list[pa.Array | None] = []
        failures: list[str | None] | None = None
        for argument in self.sent:
            if argument.fixed:
                columns.append(None)
                continue
            array = next(sent_arrays)
            if argument.marked:
                array, failed = _split_failures(array, argument.rep)
                if failed is not None:
                    failures = failed if failures is None else [a or b for a, b in zip(failures, failed, strict=True)]
            columns.append(array)
        return columns, failures

    def _one_by_one(self, columns: Sequence[pa.Array | None], failures: list[str | None] | None) -> pa.Array:
        size = next(len(column) for column in columns if column is not None)
        lists = [[sent.plain] * size if column is None else column.to_pylist() for sent, column in zip(self.sent, columns, strict=True)]
        function, prefix, strict = self.function, self.prefix, self.strict
        results: list[Plain] = []
        for index, row in enumerate(zip(*lists, strict=True)):
            if failures is not None and failures[index] is not None:
                results.append(failures[index])
            elif strict and None in row:
                results.append(None)
            elif not self.raises:
                results.append(function(*prefix, *row))
            else:
                try:
                    results.append(_in_band(function(*prefix, *row), self.result))
                except PostgresError as error:
                    results.append(fail(error))
        return pa.array(results, pa.string() if self.raises else _ARROW[self.result.name])

    def _whole(self, columns: Sequence[pa.Array | None], failures: list[str | None] | None) -> pa.Array:
        size = next(len(column) for column in columns if column is not None)
        arrays = [
            pa.array([sent.plain] * size, _ARROW[sent.rep.name]) if column is None else column
            for sent, column in zip(self.sent, columns, strict=True)
        ]
        if failures is None or not any(failures):
            try:
                result = self.function(*self.prefix, *arrays)
            except PostgresError:
                pass
            else:
                return self._finish(result, arrays)
        return pa.array([self._row(arrays, failures, index) for index in range(size)], pa.string())

    def _row(self, arrays: Sequence[pa.Array], failures: list[str | None] | None, place: int) -> str | None:
        if failures is not None and failures[place] is not None:
            return failures[place]
        row = [array.slice(place, 1) for array in arrays]
        if self.strict and any(array.null_count for array in row):
            return None
        try:
            return _in_band(self.function(*self.prefix, *row)[0].as_py(), self.result)
        except PostgresError as error:
            return fail(error)

    def _finish(self, done: pa.Array, arrays: Sequence[pa.Array]) -> pa.Array:
        done = buffers.whole(done)
        if self.strict:
            missing = np.zeros(len(done), dtype=bool)
            for array in arrays:
                if array.null_count:
                    missing |= np.asarray(array.is_null())
            if missing.any():
                done = pc.if_else(pa.array(missing), pa.scalar(None, done.type), done)
        if not self.raises:
            return done
        if self.result.name in ("text", "digits", "decimal"):
            odd = pc.or_(pc.starts_with(done, FAILED), pc.starts_with(done, KEPT))
            return pc.if_else(odd, pc.binary_join_element_wise(KEPT, done, ""), done)
        if self.result.name in _INTEGERS:
            return pc.cast(done, pa.string())
        return pa.array([_in_band(item, self.result) for item in done.to_pylist()], pa.string())


def _show(value: Plain, rep: Rep) -> str:
    if rep.name in _TEXTS:
        text_value: str = value
        return text_value
    if rep.name == "bool":
        return "t" if value else "f"
    if rep.name == "bytes":
        return bytes(value).hex()
    return repr(float(value)) if rep.name in ("float4", "float8") else str(value)


def _in_band(value: Plain, rep: Rep) -> str | None:
    if value is None:
        return None
    result_text = _show(value, rep)
    return KEPT + result_text if result_text[:1] in (FAILED, KEPT) else result_text


def _split_failures(array: pa.Array, rep: Rep) -> tuple[pa.Array, list[str | None] | None]:
    """Return the plain values of an in-band column, and the failures by row, or None if no row failed."""
    texts = array.to_pylist()
    failures = None
    if any(item is not None and item[:1] == FAILED for item in texts):
        failures = [item if item is not None and item[:1] == FAILED else None for item in texts]
        texts = [None if item is not None and item[:1] == FAILED else item for item in texts]
    texts = [item[1:] if item is not None and item[:1] == KEPT else item for item in texts]
    name = rep.name
    if name in _TEXTS:
        values: list[Plain] = texts
    elif name == "bool":
        values = [None if item is None else item == "t" for item in texts]
    elif name == "bytes":
        values = [None if item is None else bytes.fromhex(item) for item in texts]
    else:
        read: Callable[[str], Plain] = int if name in _INTEGERS else float
        values = [None if item is None else read(item) for item in texts]
    return pa.array(values, _ARROW[name]), failures


def _from_marked(column: Column, rep: Rep) -> Column:
    """Return the value of an in-band column. A failure raises its error."""
    failed = F.raise_error(F.substring(column, 2, 10_000))
    plain_text = (
        F.when(column.startswith(FAILED), failed).when(column.startswith(KEPT), F.substring(column, 2, 2**31 - 1)).otherwise(column)
    )
    return _from_shown(plain_text, rep)


def _from_shown(shown: Column, rep: Rep) -> Column:
    if rep.name == "bytes":
        return F.unhex(shown)
    if rep.name in ("date", "timestamp", "timestamptz"):
        return _from_plain(shown.cast("int" if rep.name == "date" else "bigint"), rep)
    if rep.name == "float4":
        return shown.cast("double").cast("float")
    return _from_plain(shown, rep) if rep.name in _TEXTS else shown.cast(SPARK[rep.name])


def _from_plain(column: Column, rep: Rep) -> Column:
    if rep.name == "date":
        return F.date_from_unix_date(column)
    if rep.name == "timestamptz":
        return F.timestamp_micros(column)
    if rep.name == "timestamp":
        return F.timestamp_micros(column).cast("timestamp_ntz")
    return column.cast(spark_type(rep)) if rep.name == "decimal" else column
