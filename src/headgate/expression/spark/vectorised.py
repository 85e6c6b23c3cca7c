"""Functions that Spark has no exact expression for: Python run over Arrow columns, in Spark's workers or, for constants, at once.

The families register such a function in their IMPLEMENTATIONS with `scalar` (one value at a time) or `batch` (Arrow array to Arrow array),
or call `call` and `call_batch` from a builder of their own. The function is a plain module-level one (workers import it by name);
it gets and gives *plain* values:

    bool                     bool                   text and all types held as text    str, PostgreSQL's text form
    int2, int4, int8, oid    int                    numeric ('decimal', 'digits')      str, PostgreSQL's text form
    float4, float8           float                  date                               int, days since 1970-01-01
    bytea                    bytes                  timestamp, timestamptz             int, microseconds since 1970-01-01 (UTC)

It raises `PostgresError` where PostgreSQL raises. Strict functions are not called for rows with a NULL. What must hold: Spark runs
such a function for all rows of a batch, also for those that a CASE, AND or OR leaves out, so an error must not leave the worker: it
travels as a text that starts with `FAILED` through all further functions, and becomes the session's error where the value is used.
Results are therefore sent as text (a true text that starts with a mark is sent behind `KEPT`); calls of calls stay in the worker.
A function that cannot raise is registered with ``raises=False`` and gives its values in their own Arrow type. Constant arguments
are not sent but pickled with the function; a call of constants only is made when the expression is planned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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

KEPT = "\x02"
_LONG_CALL = 60_000
"""Characters of a call from which on it is not repeated. Spark prints what a Python function is called with at some twelve times its
length, so this is a call under a guard that contains another call: repeated, a chain of n would be an expression of 6^n nodes."""
_FIXED = 10_000
"""Characters of a constant up to which it is pickled. What is made of longer ones may be long to make, which is a worker's to do: it can be
ended, and its memory has a limit."""
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


def scalar(function: Callable[..., Any], result: Rep, *, strict: bool = True, raises: bool = True) -> SparkForm:
    """The builder of a call of `function` for each row, for a IMPLEMENTATIONS table."""
    return lambda node, args: call(function, result, args, strict=strict, raises=raises)


def call(
    function: Callable[..., Any],
    result: Rep,
    args: Sequence[Value],
    *,
    given: tuple[Any, ...] = (),
    strict: bool = True,
    raises: bool = True,
) -> Value:
    """``function(*given, *arguments)`` for each row; `given` is what the planner knows (types, modifiers), and is pickled."""
    return _planned(function, result, args, given, strict=strict, raises=raises, whole=False)


def call_batch(
    function: Callable[..., pa.Array],
    result: Rep,
    args: Sequence[Value],
    *,
    given: tuple[Any, ...] = (),
    strict: bool = True,
    raises: bool = True,
) -> Value:
    """``function(*given, *arrays)`` on Arrow arrays of equal length (constants repeated), giving an array in the result's plain type.

    Where it raises, it is called again row by row, to find the rows that fail. Of a strict function, rows with a NULL are NULL
    whatever it gives; of any, it sees NULLs.
    """
    return _planned(function, result, args, given, strict=strict, raises=raises, whole=True)


def of_lists(function: Callable[..., str | None], *given: Any) -> Callable[..., Column]:
    """A Python function over lists of texts, a list (or more) of a group's values each time; errors in-band."""

    def run(*columns: pa.Array) -> pa.Array:
        return pa.array([_of_list(function, given, row) for row in zip(*(each.to_pylist() for each in columns), strict=True)], pa.string())

    run.__name__ = function.__name__
    return arrow_function(run, StringType())


def _of_list(function: Callable[..., str | None], given: tuple[Any, ...], row: tuple[Any, ...]) -> str | None:
    try:
        return None if row[0] is None else function(*given, *row)
    except PostgresError as error:
        return fail(error)


@dataclass(frozen=True)
class _Sent:
    """How one argument reaches the worker: `fixed` with its plain value, or as a column, in-band (`marked`) or plain."""

    rep: Rep
    fixed: bool
    plain: Any
    marked: bool


def _sent(value: Value) -> _Sent:
    if value.is_null:
        return _Sent(value.rep, True, None, False)
    if value.constant is not None and len(value.constant) <= _FIXED:
        return _Sent(value.rep, True, plain_constant(value), False)
    return _Sent(value.rep, False, None, value.raw is not None or value.fallible)


def plain_constant(value: Value) -> Any:
    """The plain value of a constant."""
    name, shown = value.rep.name, value.constant
    assert shown is not None
    if name in _TEXTS:
        return shown
    if name == "bool":
        return shown == "t"
    if name in ("int2", "int4", "int8"):
        return int(shown)
    if name == "float4":
        return pa.scalar(shown).cast(pa.float32()).as_py()  # NumPy would round twice
    if name == "float8":
        return float(shown)
    if name == "bytes":
        return bytes.fromhex(shown.removeprefix("\\x"))
    if name == "date":
        return text.read_scalar(shown, registry.DATE).cast(pa.int32()).as_py()
    return text.read_scalar(shown, registry.TIMESTAMPTZ if name == "timestamptz" else registry.TIMESTAMP).cast(pa.int64()).as_py()


def _planned(
    function: Callable[..., Any], result: Rep, args: Sequence[Value], given: tuple[Any, ...], *, strict: bool, raises: bool, whole: bool
) -> Value:
    sent = tuple(map(_sent, args))
    # a failure of an argument comes through as one of the call
    made = _Call(function, result, sent, given, strict, raises or any(each.marked for each in sent), whole)
    if all(each.fixed for each in made.sent):
        return _folded(made)
    makes = [(_column_of(each), each.calm) for each, sent in zip(args, made.sent, strict=True) if not sent.fixed]
    calm = all(each for _, each in makes)
    run = functools.cache(made.column_function)  # one function however often its Column is made, so that Spark runs it once

    def raw(env: Env) -> Column:
        guarded = strict and not calm  # a guarded argument's NULL stops the call: those that cannot fail need no guard
        return run()(*(make(env) if fine and guarded else env.needed(make(env), calm=fine) for make, fine in makes))

    if not made.raises:
        return Value(made.result, lambda env: _from_plain(raw(env), made.result), calm=calm)
    if made.result.name == "digits":
        return Value(made.result, raw, fallible=True, calm=calm)

    def settled(env: Env) -> Column:
        return bound([raw(env)], lambda sent: _from_marked(sent, made.result), long=_LONG_CALL)

    return Value(made.result, settled, raw=raw, calm=calm)


def _column_of(value: Value) -> Make:
    """The argument's Column as it is sent."""
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


def _folded(made: _Call) -> Value:
    """A call of constants only."""
    rep = made.result
    if made.strict and any(each.plain is None for each in made.sent):
        return Value(rep, lambda env: F.lit(None).cast(spark_type(rep)), is_null=True)
    try:
        result = made.once()
    except PostgresError as error:
        state, shown = error.sqlstate, failure.told(error)
        return Value(rep, lambda env: raising(state, shown).cast(spark_type(rep)))
    if result is None:
        return Value(rep, lambda env: F.lit(None).cast(spark_type(rep)), is_null=True)
    shown = _shown(result, rep)
    constant = None if rep.name in ("date", "timestamp", "timestamptz") else "\\x" + shown if rep.name == "bytes" else shown
    return Value(rep, lambda env: _from_shown(F.lit(shown), rep), constant=constant)


@dataclass(frozen=True)
class _Call:
    """A function with all that a worker must know to call it; pickled."""

    function: Callable[..., Any]
    result: Rep
    sent: tuple[_Sent, ...]
    given: tuple[Any, ...]
    strict: bool
    raises: bool
    whole: bool
    types: registry.TypeRegistry = field(default_factory=registry.known)
    """The types that users made, for the worker."""

    def column_function(self) -> Callable[..., Column]:
        """The call as Spark runs it over the Columns of the arguments that are sent."""
        runner = self

        def run(*arrays: pa.Array) -> pa.Array:
            return runner.over(arrays)

        run.__name__ = getattr(self.function, "__name__", "function")
        return arrow_function(run, StringType() if self.raises else _RESULTS[self.result.name])

    def once(self) -> Any:
        """The plain result for constant arguments; raises."""
        values = [each.plain for each in self.sent]
        if not self.whole:
            return self.function(*self.given, *values)
        arrays = [pa.array([value], _ARROW[each.rep.name]) for value, each in zip(values, self.sent, strict=True)]
        return self.function(*self.given, *arrays)[0].as_py()

    def over(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """The results for a batch of rows."""
        registry.use(self.types)
        columns, failures = self._columns(arrays)
        return self._whole(columns, failures) if self.whole else self._one_by_one(columns, failures)

    def _columns(self, arrays: Sequence[pa.Array]) -> tuple[list[pa.Array | None], list[str | None] | None]:
        """The sent arguments as plain arrays (None where fixed), and the first failure of each row among them."""
        given = iter(arrays)
        columns: list[pa.Array | None] = []
        failures: list[str | None] | None = None
        for each in self.sent:
            if each.fixed:
                columns.append(None)
                continue
            array = next(given)
            if each.marked:
                array, failed = _unmarked(array, each.rep)
                if failed is not None:
                    failures = failed if failures is None else [a or b for a, b in zip(failures, failed, strict=True)]
            columns.append(array)
        return columns, failures

    def _one_by_one(self, columns: Sequence[pa.Array | None], failures: list[str | None] | None) -> pa.Array:
        size = next(len(each) for each in columns if each is not None)
        lists = [[sent.plain] * size if each is None else each.to_pylist() for sent, each in zip(self.sent, columns, strict=True)]
        function, given, strict = self.function, self.given, self.strict
        results: list[Any] = []
        for place, row in enumerate(zip(*lists, strict=True)):
            if failures is not None and failures[place] is not None:
                results.append(failures[place])
            elif strict and None in row:
                results.append(None)
            elif not self.raises:
                results.append(function(*given, *row))
            else:
                try:
                    results.append(_marked(function(*given, *row), self.result))
                except PostgresError as error:
                    results.append(fail(error))
        return pa.array(results, pa.string() if self.raises else _ARROW[self.result.name])

    def _whole(self, columns: Sequence[pa.Array | None], failures: list[str | None] | None) -> pa.Array:
        size = next(len(each) for each in columns if each is not None)
        arrays = [
            pa.array([sent.plain] * size, _ARROW[sent.rep.name]) if each is None else each
            for sent, each in zip(self.sent, columns, strict=True)
        ]
        if failures is None or not any(failures):
            try:
                done = self.function(*self.given, *arrays)
            except PostgresError:
                pass
            else:
                return self._finished(done, arrays)
        return pa.array([self._row(arrays, failures, place) for place in range(size)], pa.string())

    def _row(self, arrays: Sequence[pa.Array], failures: list[str | None] | None, place: int) -> str | None:
        if failures is not None and failures[place] is not None:
            return failures[place]
        row = [each.slice(place, 1) for each in arrays]
        if self.strict and any(each.null_count for each in row):
            return None
        try:
            return _marked(self.function(*self.given, *row)[0].as_py(), self.result)
        except PostgresError as error:
            return fail(error)

    def _finished(self, done: pa.Array, arrays: Sequence[pa.Array]) -> pa.Array:
        done = buffers.whole(done)
        if self.strict:
            missing = np.zeros(len(done), dtype=bool)
            for each in arrays:
                if each.null_count:
                    missing |= np.asarray(each.is_null())
            if missing.any():
                done = pc.if_else(pa.array(missing), pa.scalar(None, done.type), done)
        if not self.raises:
            return done
        if self.result.name in ("text", "digits", "decimal"):
            odd = pc.or_(pc.starts_with(done, FAILED), pc.starts_with(done, KEPT))
            return pc.if_else(odd, pc.binary_join_element_wise(KEPT, done, ""), done)
        if self.result.name in _INTEGERS:
            return pc.cast(done, pa.string())
        return pa.array([_marked(each, self.result) for each in done.to_pylist()], pa.string())


def _shown(value: Any, rep: Rep) -> str:
    """A plain value as the text in which it is sent."""
    if rep.name in _TEXTS:
        shown: str = value
        return shown
    if rep.name == "bool":
        return "t" if value else "f"
    if rep.name == "bytes":
        return bytes(value).hex()
    return repr(float(value)) if rep.name in ("float4", "float8") else str(value)


def _marked(value: Any, rep: Rep) -> str | None:
    """The in-band form of a result."""
    if value is None:
        return None
    shown = _shown(value, rep)
    return KEPT + shown if shown[:1] in (FAILED, KEPT) else shown


def _unmarked(array: pa.Array, rep: Rep) -> tuple[pa.Array, list[str | None] | None]:
    """The plain values of an in-band column, and the failures by row (None if there are none)."""
    texts = array.to_pylist()
    failures = None
    if any(each is not None and each[:1] == FAILED for each in texts):
        failures = [each if each is not None and each[:1] == FAILED else None for each in texts]
        texts = [None if each is not None and each[:1] == FAILED else each for each in texts]
    texts = [each[1:] if each is not None and each[:1] == KEPT else each for each in texts]
    name = rep.name
    if name in _TEXTS:
        values: list[Any] = texts
    elif name == "bool":
        values = [None if each is None else each == "t" for each in texts]
    elif name == "bytes":
        values = [None if each is None else bytes.fromhex(each) for each in texts]
    else:
        read: Callable[[str], Any] = int if name in _INTEGERS else float
        values = [None if each is None else read(each) for each in texts]
    return pa.array(values, _ARROW[name]), failures


def _from_marked(column: Column, rep: Rep) -> Column:
    """The value of an in-band column; a failure raises."""
    failed = F.raise_error(F.substring(column, 2, 10_000))
    shown = F.when(column.startswith(FAILED), failed).when(column.startswith(KEPT), F.substring(column, 2, 2**31 - 1)).otherwise(column)
    return _from_shown(shown, rep)


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
