"""Compute expressions over rows that the driver holds: column by column, or one row after the other if Arrow has no exact form.

Called by the modules of this package. A Spark job takes some 150 ms of CPU for one row, so few rows are computed here whatever the
expression is. `is_known` decides by the tree alone:

    a part of the expression                                computed by
    has columns, and an exact form in Arrow                 Arrow, for all rows at once (`columnwise`)
    has columns, and only a form in the compiler            `RowEvaluator`, one row after the other, if there are at most `MOST` rows
    has no columns, and calls no VOLATILE function          `RowEvaluator`, once (`folded`)
    is a subquery or an aggregate, or needs the session     nothing: `is_known` is false

An expression that cannot be computed here raises NotColumnwise. So does one whose value is an error. The caller then runs the statement on
Spark, which computes the value or raises the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from headgate.commands.query import instant
from headgate.commands.query.row_evaluator import RowEvaluator
from headgate.errors import PostgresError
from headgate.expression import builtin, columnwise, rewriting
from headgate.expression import node as n
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression
from headgate.expression.spark import compiler
from headgate.expression.spark.session_time import SessionTime
from headgate.types import registry, sortkey
from headgate.types.text.text import read_text, write_text

MOST = 16
"""Maximum number of rows that are computed one after the other. A function takes 0.3 to 10 ms of CPU for each."""
FINAL = ("57014", "57P01", "55P03", "40001", "40P01")
"""Errors that are raised at once: the usual execution would wait for the same lock again, or would not notice the cancel."""
_FOLDED = (n.FuncExpr, n.OpExpr, n.NullIf, n.Coalesce, n.Case, n.MinMax, n.CoerceViaIO)
_PLAIN = (n.Const, n.Param, n.SqlValue, n.BoolExpr, n.BooleanTest, n.Coalesce, n.Case, n.CaseTest, n.MinMax, n.CoerceViaIO, n.Relabel)
"""Nodes that call no function, or only the input and output functions of types."""


def is_known(expression: Expression) -> bool:
    """Return whether `value` can compute an expression, at least for few rows. No part of it acts."""
    return is_known_by_column(expression) or (is_read_exactly(expression.type.oid) and all(map(_is_known_by_row, n.walk(expression))))


def is_known_by_column(expression: Expression) -> bool:
    """Return whether Arrow has a form of every part of an expression that is not prepared yet."""
    return columnwise.is_known(expression, instant.FUNCTIONS)


def _is_known_by_row(node: Expression) -> bool:
    match node:
        case ColumnRef():
            return node.attnum > 0 and not node.levels_up and is_read_exactly(node.type.oid)
        case n.FuncExpr(function=oid):
            function = builtin.builtins().functions.get(oid)
            return function is not None and not function.retset and (function.name in instant.FUNCTIONS or compiler.has_form(node))
        case n.OpExpr() | n.ScalarArrayOp() | n.Distinct() | n.NullIf():
            return compiler.has_form(node)
        case n.NullTest(row=row):
            return not row
        case n.ArrayExpr(nested=nested):
            return not nested
        case _:
            return type(node) in _PLAIN


def is_read_exactly(oid: int) -> bool:
    """Return whether the type's input function is known here: not for regclass, ranges, points and money."""
    kind = registry.known().find(oid)
    if kind is not None and kind.is_array:
        return is_read_exactly(kind.element)
    return oid in (registry.JSON, registry.UNKNOWN) or sortkey.comparable(oid, registry.known())


def folded(expression: Expression, time: SessionTime) -> Expression:
    """Return a prepared expression in which each part that has no columns and calls no VOLATILE function is a constant."""

    def fold(node: Expression) -> Expression | None:
        if not isinstance(node, _FOLDED) or not is_read_exactly(node.type.oid) or not all(map(_is_constant, n.walk(node))):
            return None
        return replace(RowEvaluator(time).constant(node), type=node.type)

    with usual_way_says():
        return rewriting.rewrite(expression, fold)


def _is_constant(node: Expression) -> bool:
    if isinstance(node, ColumnRef | n.CaseTest) or not _is_known_by_row(node):
        return False
    return not isinstance(node, n.FuncExpr) or builtin.function(node.function).volatility != "v"


def value(expression: Expression, columns: Mapping[str, pa.Array], rows: int, time: SessionTime) -> pa.Array:
    """Return the values of a prepared expression as `columnwise.value` does."""

    def by_row() -> pa.Array:
        kind = expression.type
        return read_text(pa.array(_texts(expression, columns, rows, time), pa.string()), kind.oid, kind.typmod)

    return _computed(expression, columns, rows, lambda: columnwise.value(expression, columns, rows), by_row)


def condition(expression: Expression, columns: Mapping[str, pa.Array], rows: int, time: SessionTime) -> pa.BooleanArray:
    """Return whether each row passes, as `columnwise.condition` does."""
    return _computed(
        expression,
        columns,
        rows,
        lambda: columnwise.condition(expression, columns, rows),
        lambda: pa.array([text == "t" for text in _texts(expression, columns, rows, time)], pa.bool_()),
    )


def _computed(
    expression: Expression,
    columns: Mapping[str, pa.Array],
    rows: int,
    by_column: Callable[[], pa.Array],
    by_row: Callable[[], pa.Array],
) -> pa.Array:
    try:
        return by_column()
    except NotColumnwise:
        nodes = list(n.walk(expression))
        # a prepared subquery is a column that only Spark has
        if rows > MOST or any(isinstance(node, ColumnRef) and node.key not in columns for node in nodes):
            raise
        if not all(map(_is_known_by_row, nodes)):
            raise
    with usual_way_says():
        return by_row()


def _texts(expression: Expression, columns: Mapping[str, pa.Array], rows: int, time: SessionTime) -> Iterator[str | None]:
    references = {node.key: node.type for node in n.walk(expression) if isinstance(node, ColumnRef)}
    texts = {key: write_text(columns[key], kind.oid).to_pylist() for key, kind in references.items()}
    row: dict[str, Const] = {}
    evaluator = RowEvaluator(time, lambda column: row[column.key])
    for number in range(rows):
        row |= {key: Const(type=kind, value=texts[key][number]) for key, kind in references.items()}
        yield evaluator.constant(expression).value


@contextlib.contextmanager
def usual_way_says() -> Iterator[None]:
    """Replace a PostgresError in the block by NotColumnwise, except for `FINAL`. The usual execution then raises the error."""
    try:
        yield
    except PostgresError as error:
        if error.sqlstate in FINAL:
            raise
        raise NotColumnwise(error.sqlstate) from error
