"""VALUES lists: constants are read into Arrow columns by the driver, other expressions by one Spark row.

Called by `insert`, for defaults, and by the planner for VALUES elsewhere. An INSERT of constants starts no Spark job: that is what keeps it
fast. In Spark's hands each constant is three calls of Java: 20,000 rows of VALUES took 54 s.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from headgate.catalog.relation.relation import Column
from headgate.errors import PostgresError
from headgate.expression import builtin, columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression, FuncExpr, SubLink, TypeRef, walk
from headgate.expression.rewriting import rewrite
from headgate.interruption import look
from headgate.storage.spark.local_relation import local_frame
from headgate.types import buffers, registry, sortkey
from headgate.types.storage import spark_type
from headgate.types.text.text import read_text

if TYPE_CHECKING:
    from headgate.commands.query.plan import PlanColumn
    from headgate.commands.query.planner import Planner

_LOOK = 1_000
"""Values between two looks for a cancel."""
_FEW = 8
"""So many expressions that are alike are quicker as columns of one row."""
_IN_A_ROW = 50
"""Columns of a row that Spark computes: what it takes grows with their square."""
WHOLE = {registry.INT2: 2**15, registry.INT4: 2**31, registry.INT8: 2**63}
_NUMBERS = (registry.NUMERIC, registry.FLOAT4, registry.FLOAT8)


def folded(expression: Expression, target: TypeRef) -> Const | None:
    """The constant that a constant is in a column of type `target`, where its text form says so; None: let Spark compute it."""
    if not isinstance(expression, Const):
        return None
    source, text = expression.type.oid, expression.value
    if text is None:
        return Const(type=target, value=None)
    if source in WHOLE and target.oid in WHOLE:
        limit = WHOLE[target.oid]
        return Const(type=target, value=text) if -limit <= int(text) < limit else None
    if source in WHOLE and (target.oid in _NUMBERS or target.oid in (registry.TEXT, registry.VARCHAR)):
        return Const(type=target, value=text)
    if source == registry.NUMERIC and target.oid in (registry.NUMERIC, registry.TEXT, registry.VARCHAR):
        return Const(type=target, value=text)
    if source == registry.NUMERIC and target.oid == registry.FLOAT8 and text not in ("NaN", "Infinity", "-Infinity"):
        return Const(type=target, value=text)
    if source in (registry.TEXT, registry.VARCHAR) and target.oid in (registry.TEXT, registry.VARCHAR, registry.BPCHAR):
        return Const(type=target, value=text)
    return Const(type=target, value=text) if source == target.oid and target.typmod < 0 else None


def column_of(planner: Planner, column: Column, cells: Sequence[Expression | None]) -> pa.Array:
    """The values of one column: `cells` are expressions in the column's type, None for NULL."""
    return _values(planner, TypeRef(column.type_oid, column.typmod), cells)


def constants(planner: Planner, columns: Sequence[PlanColumn], values: Sequence[Sequence[Expression]]) -> pa.Table | None:
    """Return the rows of a VALUES list in stored form, by the columns' keys; None if Arrow has not got all of them, or one is an error.

    `values`: for each column its expressions, in its type.
    """
    if not all(is_read_exactly(column.type.oid) for column in columns):
        return None
    if any(not isinstance(cell, Const) and _depends_on_query(cell) for cells in values for cell in cells):
        return None
    try:
        arrays = [_values(planner, column.type, cells) for column, cells in zip(columns, values, strict=True)]
    except PostgresError as error:
        if error.sqlstate[:2] not in ("22", "0A"):  # a cancel, for example
            raise
        return None
    return pa.table(arrays, names=[column.key for column in columns])


def _depends_on_query(cell: Expression) -> bool:
    """Return whether a value is not known before the query runs."""
    return has_volatile(cell) or any(isinstance(part, ColumnRef | SubLink) for part in walk(cell))


def _values(planner: Planner, kind: TypeRef, cells: Sequence[Expression | None]) -> pa.Array:
    texts: list[str | None] = []
    computed: dict[int, Expression] = {}
    for place, cell in enumerate(cells):
        if place % _LOOK == 0:
            look()
        texts.append(cell.value if isinstance(cell, Const) else None)
        if cell is not None and not isinstance(cell, Const):
            computed[place] = cell
    known = read_text(pa.array(texts, pa.string()), kind.oid, kind.typmod, session=planner.evaluation.context.forms)
    return _merged(known, computed, evaluate(planner, list(computed.values()))) if computed else known


def _merged(known: pa.Array, computed: Mapping[int, Expression], values: Sequence[pa.Array]) -> pa.Array:
    """Return an array with the values of the computed places put in."""
    places = list(range(len(known)))
    for number, place in enumerate(computed):
        places[place] = len(known) + number
    return pa.concat_arrays([known, *(each.cast(known.type) for each in values)]).take(pa.array(places))


def is_read_exactly(oid: int) -> bool:
    """Return whether the type's input function is known here: not those of regclass, ranges, points, money."""
    kind = registry.known().find(oid)
    if kind is not None and kind.is_array:
        return is_read_exactly(kind.element)
    return oid in (registry.JSON, registry.UNKNOWN) or sortkey.comparable(oid, registry.known())


def evaluate(planner: Planner, expressions: Sequence[Expression]) -> list[pa.Array]:
    """Return the values (in stored form) of expressions without columns, an array of one each: by Arrow if it has them, else by Spark.

    Those that differ in nothing but constants are one expression over columns of these constants: of 2,000 rows in which an INSERT calls
    functions Spark made one row of 2,000 columns, for which it had not enough memory.
    """
    prepared = [planner.prepare(each) for each in expressions]
    alike: dict[Expression, list[int]] = {}
    constants: list[list[Const]] = []
    for place, each in enumerate(prepared):
        if place % _LOOK == 0:
            look()
        shape, values = _taken_apart(each)
        constants.append(values)
        alike.setdefault(shape, []).append(place)
    found: dict[int, pa.Array] = {}
    alone: list[int] = []
    for shape, places in alike.items():
        array = None
        if len(places) > _FEW and not any(isinstance(each, SubLink) for each in walk(shape)):  # they are equal whatever their query is
            array = _at_once(planner, shape, [constants[place] for place in places])
        if array is None:
            alone += places
        else:
            found |= {place: array.slice(number, 1) for number, place in enumerate(places)}
    for start in range(0, len(alone), _IN_A_ROW):
        look()
        part = sorted(alone)[start : start + _IN_A_ROW]
        found |= dict(zip(part, _in_a_row(planner, [prepared[place] for place in part]), strict=True))
    return [found[place] for place in range(len(expressions))]


def _taken_apart(expression: Expression) -> tuple[Expression, list[Const]]:
    """Return an expression without the values of its constants, and the constants in the order in which `rewrite` meets them."""
    constants: list[Const] = []

    def take(node: Expression) -> Expression | None:
        if not isinstance(node, Const):
            return None
        constants.append(node)
        return replace(node, value=None)

    return rewrite(expression, take), constants


def _at_once(planner: Planner, shape: Expression, constants: Sequence[Sequence[Const]]) -> pa.Array | None:
    """Evaluate expressions of one shape as one, over columns of the constants in which they differ; return None if that cannot be done."""
    columns: dict[int, tuple[ColumnRef, pa.Array]] = {}
    for number, values in enumerate(zip(*constants, strict=True)):
        kind = values[0].type
        if len({each.value for each in values}) > 1:
            if not is_read_exactly(kind.oid) or kind.oid == registry.UNKNOWN:
                return None
            texts = pa.array([each.value for each in values], pa.string())
            column = ColumnRef(type=kind, name="", attnum=number + 1, key=planner.key("constant"))
            columns[number] = column, read_text(texts, kind.oid, kind.typmod, session=planner.evaluation.context.forms)
    numbers = itertools.count()

    def column_of_constant(node: Expression) -> Expression | None:
        if not isinstance(node, Const):
            return None
        number = next(numbers)
        return columns[number][0] if number in columns else constants[0][number]

    one = rewrite(shape, column_of_constant)
    arrays = {column.key: array for column, array in columns.values()}
    if not has_volatile(one):
        with contextlib.suppress(NotColumnwise):
            return columnwise.value(one, arrays, len(constants))
    row = planner.key("row")
    schema = [StructField(column.key, spark_type(column.type.oid, column.type.typmod)) for column, _ in columns.values()]
    table = pa.table({**arrays, row: pa.array(range(len(constants)), pa.int64())})
    frame = local_frame(planner.session_spark, table, StructType([*schema, StructField(row, LongType())]))
    try:
        value = planner.column(one)
    except PostgresError as error:
        if error.sqlstate != "0A000":  # of an argument that has to be a constant
            raise
        return None
    return buffers.whole(frame.select(value.alias("value")).toArrow().column(0))


def has_volatile(expression: Expression) -> bool:
    """Return whether an expression calls a function that may give each row another value."""
    functions = builtin.builtins().functions
    calls = [functions.get(each.function) for each in walk(expression) if isinstance(each, FuncExpr)]
    return any(function is None or function.volatility == "v" for function in calls)


def _in_a_row(planner: Planner, expressions: Sequence[Expression]) -> list[pa.Array]:
    """Evaluate expressions as the columns of one row."""
    with contextlib.suppress(NotColumnwise):
        return [columnwise.value(each, {}, 1) for each in expressions]
    columns = [planner.column(each).alias(f"v{place}") for place, each in enumerate(expressions)]
    table = planner.one_row().select(*columns).toArrow()
    return [pa.concat_arrays(table.column(place).chunks) for place in range(len(expressions))]
