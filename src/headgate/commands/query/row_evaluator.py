"""Evaluate a typed expression for one row, node by node: only the operands that CASE, COALESCE, AND and OR need are evaluated.

`commands.function.row_function` evaluates the expressions of functions in Spark's tasks with it, and `row_by_row` those expressions of a
query that call a function of the session. Each node is evaluated with constant operands, by the first evaluator that supports its function:
the Python functions of `expression.spark.vectorised`, Arrow, DuckDB in memory.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from headgate.catalog.layout import macros
from headgate.commands.query.catalog.query import translated
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin, columnwise, rewriting, scalar
from headgate.expression import node as n
from headgate.expression.binding import indirection
from headgate.expression.binding.coercion import is_length_coercion
from headgate.expression.binding.context import BindContext
from headgate.expression.duckdb import cast as duckdb_cast
from headgate.expression.duckdb import compiler as duckdb_compiler
from headgate.expression.duckdb.value import Facts, RowColumn
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression, FuncExpr, UserCall
from headgate.expression.spark import compiler, literal
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.session_time import SessionTime, planning
from headgate.types import registry
from headgate.types.text import record
from headgate.types.text.text import depends_on, normal_form, read_text, write_text
from headgate.types.text_column import TextSettings

_TEXTUAL = frozenset({"anytextcat", "textanycat", "concat", "concat_ws", "format"})
"""Functions that write values of any type as text."""
_READ_BY_STYLE = frozenset({registry.DATE, registry.TIMESTAMP, registry.TIMESTAMPTZ, registry.INTERVAL})


class RowEvaluator:
    """Evaluates expressions whose parameters have been replaced by constants."""

    def __init__(
        self,
        time: SessionTime,
        value_of: Callable[[ColumnRef], Const] | None = None,
        called: Callable[[FuncExpr], Const | None] | None = None,
    ) -> None:
        """Create the evaluator.

        `time`: the session's values of time and TimeZone. `value_of`: returns the value of a column. `called`: calls a function of the
        session with constant arguments, and returns None for any other function.
        """
        self._time, self._value_of, self._called = time, value_of, called

    def constant(self, node: Expression) -> Const:
        match node:
            case Const():
                return node
            case ColumnRef() if self._value_of is not None:
                return self._value_of(node)
            case n.Case():
                return self._case(node)
            case n.Coalesce(args=args):
                values = (self.constant(argument) for argument in args)
                return next((value for value in values if value.value is not None), Const(type=node.type, value=None))
            case n.BoolExpr(kind=kind, args=args) if kind is not n.BoolKind.NOT:
                return self._connect(kind, args)
            case UserCall() if node.body is not None:
                return self.constant(rewriting.inlined(node))
            case UserCall():
                return Const(type=node.type, value=node.compute.of_row([self._plain(argument) for argument in node.args]))
            case n.RowCoerce():
                return Const(type=node.type, value=self._plain(node.arg))
            case n.FieldSelect():
                return self._field(node)
            case n.Relabel() if type(node) is n.Relabel and registry.BPCHAR not in (node.type.oid, node.arg.type.oid):
                return replace(self.constant(node.arg), type=node.type)
            case _:
                return self._leaf(rewriting.rewrite(node, lambda operand: None if operand is node else self._operand(operand)))

    def _operand(self, node: Expression) -> Expression:
        """Return an operand replaced by its value. A row keeps its fields."""
        if isinstance(node, n.RowExpr):
            return replace(node, args=tuple(self._operand(argument) for argument in node.args))
        return self.constant(node)

    def _plain(self, node: Expression) -> str | None:
        """Return the text of a value as it is stored. The text of a record would have the session's DateStyle."""
        if not isinstance(node, n.RowExpr):
            return self.constant(node).value
        if node.present is not None and self.constant(node.present).value is None:
            return None
        return record.print_record([self._plain(argument) for argument in node.args])

    def _field(self, node: n.FieldSelect) -> Const:
        row = self.constant(node.arg).value
        fields = [name for name, _ in indirection.fields(node.arg, BindContext()) or ()]
        return Const(type=node.type, value=None if row is None else record.parse(row, len(fields))[fields.index(node.name)])

    def _case(self, node: n.Case) -> Const:
        tested = None if node.arg is None else self.constant(node.arg)
        for condition, result in zip(node.conditions, node.results, strict=True):
            test = rewriting.rewrite(condition, lambda tested_node: tested if isinstance(tested_node, n.CaseTest) else None)
            if self.constant(test).value == "t":
                return self.constant(result)
        return self.constant(node.default)

    def _connect(self, kind: n.BoolKind, args: Sequence[Expression]) -> Const:
        deciding = "t" if kind is n.BoolKind.OR else "f"
        result: str | None = "f" if kind is n.BoolKind.OR else "t"
        for argument in args:
            value = self.constant(argument).value
            if value == deciding:
                return Const(type=n.BOOLEAN, value=deciding)
            result = None if value is None else result
        return Const(type=n.BOOLEAN, value=result)

    def _leaf(self, node: Expression) -> Const:
        """Return the value of a node whose operands are constants."""
        if self._called is not None and isinstance(node, FuncExpr) and (value := self._called(node)) is not None:
            return value
        kind = node.type
        compute = scalar.compiled(node)
        if compute is not None:
            return Const(type=kind, value=scalar.printed(compute([])))
        function = _function(node)
        missing = any(isinstance(child, Const) and child.value is None for child in node.children())
        if function is not None and missing and builtin.function(function).strict:
            return Const(type=kind, value=None)
        modifier = _assigned_modifier(node)
        if modifier is not None:
            [operand, *_] = node.children()
            assert isinstance(operand, Const)
            assert operand.value is not None
            return Const(type=kind, value=normal_form(operand.value, kind.oid, modifier))
        if self._time.forms != self._time.forms.held:
            styled = _styled(node, self._time.forms)
            if isinstance(styled, Const):
                return styled
            node = styled
        with planning(self._time), literal.numerics_as_text():
            planned = compiler.plan(node)
            if planned.error is not None:
                raise planned.error
            if not planned.fields and (planned.constant is not None or planned.is_null):
                return Const(type=kind, value=None if planned.is_null else as_item(planned, kind).constant)
        try:
            return Const(type=kind, value=write_text(columnwise.value(node, {}, 1), kind.oid)[0].as_py())
        except NotColumnwise:
            return Const(type=kind, value=_by_duckdb(node, self._time.forms.timezone))


def array_of(expression: Expression, time: SessionTime) -> pa.Array:
    """Return the value of an expression without columns as an array of one value, in stored form.

    Raise NotColumnwise if neither Spark's compiler, as a constant, nor Arrow can compute it.
    """
    with planning(time):
        planned = compiler.plan(expression)
    if planned.fields or (planned.constant is None and not planned.is_null):
        return columnwise.value(expression, {}, 1)
    kind = expression.type
    return read_text(pa.array([as_item(planned, kind).constant], pa.string()), kind.oid, kind.typmod)


def _assigned_modifier(node: Expression) -> int | None:
    """Return the modifier of a cast to the same type, or to an array, in an assignment. It does what the type's input function does.

    An explicit cast differs from it for types whose cast has a third argument: it cuts the value.
    """
    modifier = is_length_coercion(node)
    if modifier < 0:
        return None
    if isinstance(node, n.ArrayCoerce):
        return modifier if node.form is n.Form.IMPLICIT else None
    if isinstance(node, n.FuncExpr) and node.args[0].type.oid == node.type.oid:
        explicit = node.args[2] if len(node.args) == 3 else None
        return modifier if explicit is None or (isinstance(explicit, Const) and explicit.value == "f") else None
    return None


def _styled(node: Expression, forms: TextSettings) -> Expression:
    """Return a node for which DuckDB, which has only the default settings, computes the value that it has under the session's settings.

    A cast of text to a date, a timestamp or an interval becomes its value. Operands that a function writes as text become texts.
    """

    def text(value: Const) -> Const:
        oid, typmod = value.type.oid, value.type.typmod
        return Const(type=n.TEXT, value=write_text(read_text(pa.array([value.value]), oid, typmod), oid, session=forms)[0].as_py())

    if isinstance(node, n.CoerceViaIO) and isinstance(node.arg, Const) and node.arg.value is not None and _is_read_by_style(node.type.oid):
        return Const(type=node.type, value=normal_form(text(node.arg).value or "", node.type.oid, session=forms))
    function = _function(node)
    if function is None or builtin.function(function).name not in _TEXTUAL or (isinstance(node, FuncExpr) and node.variadic):
        return node

    def as_text(operand: Expression) -> Expression | None:
        if operand is node:
            return None
        if isinstance(operand, Const) and operand.value is not None and depends_on(operand.type.oid, forms):
            return text(operand)
        return operand

    return rewriting.rewrite(node, as_text)


def _is_read_by_style(oid: int) -> bool:
    kind = registry.known().find(oid)
    return (kind.element if kind is not None and kind.is_array else oid) in _READ_BY_STYLE


def _function(node: Expression) -> int | None:
    if isinstance(node, n.OpExpr):
        return builtin.operator(node.operator).function
    return node.function if isinstance(node, n.FuncExpr) else None


# ---- DuckDB -----------------------------------------------------------------------------------------------------


class _Env:
    """The environment of DuckDB's compiler for an expression of constants."""

    database, path, announced = "0", "[]", 15

    def __init__(self, zone: str) -> None:
        self.time_zone, self.in_utc = zone, zone in ("UTC", "Etc/UTC", "GMT")
        self.facts: dict[str, Facts] = {}
        self.rows: dict[str, Sequence[RowColumn]] = {}

    def column(self, key: str) -> str:
        return key

    def moment(self, node: Expression) -> int | None:
        return None

    def session_call(self, node: n.FuncExpr) -> str | None:
        return None

    def resolve(self, text: str, kind: int, where: int | None) -> int:
        raise _needs_session()

    def sizes(self) -> str:
        raise _needs_session()

    def blockers(self) -> str:
        raise _needs_session()

    def session_value(self, node: n.SqlValue) -> str:
        raise _needs_session()

    def parameter(self, node: n.Param) -> Const:
        raise _needs_session()

    def subquery(self, node: n.SubLink) -> str:
        raise _needs_session()


def _needs_session() -> PostgresError:
    return not_supported("an expression of a function that is called for each row needs the session")


_lock = threading.Lock()


def _by_duckdb(node: Expression, zone: str) -> str | None:
    """Return the text of an expression of constants, computed by DuckDB."""
    env = _Env(zone)
    sql = duckdb_cast.text(node, duckdb_compiler.compile(node, env), env)
    with _lock:
        try:
            [(value_text,)] = _database().execute(f"SELECT {sql}").fetchall()
        except duckdb.Error as error:
            raise translated(error) from error
    return None if value_text is None else str(value_text)


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return an in-memory database with the catalog's macros that need no tables."""
    connection = duckdb.connect(config={"threads": 1, "memory_limit": "128MB"})
    connection.execute("CREATE SCHEMA hg")
    for statement in macros.statements():
        with contextlib.suppress(duckdb.CatalogException):
            connection.execute(statement)
    return connection
