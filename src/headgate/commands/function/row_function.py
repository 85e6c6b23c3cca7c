"""Run a PL/pgSQL function that only computes for each of many rows: in Spark's tasks, or in the node.

`row_call` creates it, and it is pickled for tasks. There is no session here. `commands.query.row_evaluator` evaluates its expressions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.function import UserFunction
from headgate.commands.function import call, inlining, variable_type
from headgate.commands.function.function_choice import choose_bound
from headgate.commands.function.host import SessionHost
from headgate.commands.function.prepared_text import Preparation, Prepared, PreparedText
from headgate.commands.function.simple_expression import SimpleExpressions
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.row_evaluator import RowEvaluator
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import user_function
from headgate.expression.binding.context import BindContext
from headgate.expression.node import Expression, TypeRef, UserCall
from headgate.expression.spark.session_time import SessionTime
from headgate.plpgsql.interpreter import Execution
from headgate.plpgsql.scope import Row, Scope, Value, type_of
from headgate.plpgsql.tree import Function, Sql
from headgate.sql import names
from headgate.types import registry
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text, write_text


@dataclass(frozen=True)
class Program:
    """A function with its tree (None for an SQL function), and its name in error contexts."""

    function: UserFunction
    shown: str
    tree: Function | None


@dataclass(frozen=True)
class Library:
    """A function and the functions that it calls, by oid and by name, with the session values that their expressions need."""

    programs: dict[int, Program]
    named: dict[tuple[str, ...], list[UserFunction]]
    time: SessionTime
    context: BindContext


class RowFunction:
    """A PL/pgSQL function for many rows. `depth`: its nesting depth."""

    __name__ = "user_function"
    needs_session = False

    def __init__(self, function: UserFunction, library: Library, depth: int = 1) -> None:
        self._function, self._library, self._depth = function, library, depth
        self._host: _RowHost | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_host": None}

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        """Return the values for rows of arguments; both are in the plain form of `expression.spark.vectorised`."""
        return of_rows(self._function, arrays, self.of_row)

    def of_row(self, row: Sequence[str | None]) -> str | None:
        program, function = self._library.programs[self._function.oid], self._function
        tree = program.tree
        if function.strict and None in row:
            return None
        if self._depth > call.DEEPEST:
            raise PostgresError(
                "54001", "stack depth limit exceeded", hint="The calls of functions exceed the nesting depth that a node allows."
            )
        assert tree is not None
        if self._host is None:
            self._host = _RowHost(self._library, self._depth)
        execution = Execution(self._host, program.shown)
        call.interpret(function, tree, [Value(type_of(oid), text) for oid, text in zip(function.types, row, strict=True)], execution)
        result = execution.result
        if function.result == registry.VOID:
            return ""
        assert not isinstance(result, Row)
        return None if result is None else result.text


def of_rows(function: UserFunction, arrays: Sequence[pa.Array], of_row: Callable[[tuple[str | None, ...]], str | None]) -> pa.Array:
    """Return the values that `of_row` returns for the texts of each row of arguments, in their plain form as the arguments are."""
    columns = [texts_of(array, oid) for array, oid in zip(arrays, function.types, strict=True)]
    rows: Sequence[tuple[str | None, ...]] = list(zip(*columns, strict=True)) if columns else [()]
    return plain_values([of_row(row) for row in rows], function.result)


def texts_of(array: pa.Array, oid: int) -> list[str | None]:
    """Return the texts of arguments in the plain form of `expression.spark.vectorised`."""
    texts: list[str | None] = (array if array.type == pa.string() else write_text(array.cast(arrow_type(oid, -1)), oid)).to_pylist()
    return texts


def plain_values(texts: Sequence[str | None], oid: int) -> pa.Array:
    """Return values in the plain form of `expression.spark.vectorised`."""
    array = pa.array(texts, pa.string())
    if arrow_type(oid, -1) == pa.string():
        return array
    values = read_text(array, oid)
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


class _RowEvaluation(Evaluation):
    """Expression evaluation with the session values that a task has."""

    def __init__(self, time: SessionTime, context: BindContext) -> None:
        self.time, self.context = time, context


class _RowExpressions(SimpleExpressions):
    """The expressions of a function, which are computed without a session."""

    def __init__(self, library: Library) -> None:
        self._evaluation = _RowEvaluation(library.time, library.context.within(types=registry.known()))
        self._rows = RowEvaluator(library.time)

    def _constant_value(self, expression: Expression) -> Value | None:
        return Value(expression.type, self._rows.constant(expression).value)

    def _cast(self, expression: Expression, target: TypeRef) -> Value:
        return Value(target, self._rows.constant(expression).value)


class _RowHost(SessionHost):
    """A host for the expressions of a function without a session."""

    def __init__(self, library: Library, depth: int) -> None:
        self._prepared = Prepared()
        self._callers: list[Callable[[], str]] = []
        self._library, self._depth = library, depth
        self.types, self.expressions = variable_type.WITHOUT_RELATIONS, _RowExpressions(library)
        self._preparation = Preparation(lambda _: (), lambda _: False)

    # ---- expressions --------------------------------------------------------------------------------------

    def evaluate(self, sql: Sql, scope: Scope) -> Value:
        with user_function.resolving(self._resolve):
            return super().evaluate(sql, scope)

    def _resolve(self, node: pb.FuncCall, args: Sequence[Expression], context: BindContext) -> Expression | None:
        candidates = self._library.named.get(tuple(names.strings(node.funcname)))
        if not candidates:
            return None
        function, inputs = choose_bound(node, candidates, args, context)
        user_call = UserCall(
            type=type_of(function.result), function=function.oid, schema="", name=function.name, args=tuple(inputs), strict=function.strict
        )
        if self._library.programs[function.oid].tree is None:
            return replace(user_call, body=inlining.body(function, context, -1))
        return replace(user_call, compute=RowFunction(function, self._library, self._depth + 1))

    # ---- without a session --------------------------------------------------------------------------------

    def _queried(self, prepared: PreparedText, values: Sequence[Value]) -> Value:
        raise not_supported("a query in a function that is called for each row is not supported")

    @contextlib.contextmanager
    def subtransaction(self) -> Iterator[None]:
        """Have no effect: a function that only computes has nothing to undo."""
        yield

    @property
    def callers(self) -> list[Callable[[], str]]:
        return self._callers

    def shown(self, value: Value) -> str | None:
        """Return the value's own text: a task has no settings of a session."""
        return value.text

    def setting(self, name: str) -> str:
        """Return an empty text: a task has no settings of a session."""
        return ""

    def check(self) -> None:
        """Do nothing: Spark terminates the worker of a cancelled task."""

    def say(self, level: str, sqlstate: str, message: str, detail: str | None, hint: str | None) -> None:
        """Discard a message; functions that send messages to clients do not run here."""
