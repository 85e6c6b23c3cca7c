"""VALUES lists: the driver reads constants into Arrow columns, and Spark evaluates other expressions as one row.

Called by `insert`, for defaults, and by the planner for VALUES elsewhere. An INSERT of constants is fast because it starts no Spark job. In
Spark, each constant takes three Java calls: 20,000 rows of VALUES took 54 s.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from headgate import interruption
from headgate.analysis.query import PlanColumn
from headgate.catalog.relation.relation import Column
from headgate.commands.query import row_by_row
from headgate.commands.query.driver import computation
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.expression import builtin, columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression, FuncExpr, SubLink, TypeRef, walk
from headgate.expression.rewriting import rewrite
from headgate.storage.spark.local_relation import local_frame
from headgate.types import buffers, registry
from headgate.types.storage import spark_type
from headgate.types.text.text import read_text

_CHECK_EVERY = 1_000
"""Number of values between two checks for a cancel."""
_FEW = 8
"""More expressions of one shape than this are evaluated over a table of their constants instead of as columns of one row."""
_IN_A_ROW = 50
"""Maximum number of columns of a row that Spark computes. Spark's time grows with the square of this number."""
WHOLE = {registry.INT2: 2**15, registry.INT4: 2**31, registry.INT8: 2**63}
_NUMBERS = (registry.NUMERIC, registry.FLOAT4, registry.FLOAT8)


def folded(expression: Expression, target: TypeRef) -> Const | None:
    """Convert a constant to type `target` if its text form stays the same. Return None if Spark must convert it."""
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
    """Return the values of one column. `cells` are expressions in the column's type, None for NULL."""
    return _values(planner, TypeRef(column.type_oid, column.typmod), cells)


def constants(planner: Planner, columns: Sequence[PlanColumn], values: Sequence[Sequence[Expression]]) -> pa.Table | None:
    """Return the rows of a VALUES list in stored form, by column key. Return None if Arrow does not support a value or one raises.

    `values`: the expressions of each column, in its type.
    """
    if not all(computation.is_read_exactly(column.type.oid) for column in columns):
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
    """Return whether the value is unknown before the query runs."""
    return has_volatile(cell) or any(isinstance(part, ColumnRef | SubLink) for part in walk(cell))


def _values(planner: Planner, kind: TypeRef, cells: Sequence[Expression | None]) -> pa.Array:
    texts: list[str | None] = []
    computed: dict[int, Expression] = {}
    for place, cell in enumerate(cells):
        if place % _CHECK_EVERY == 0:
            interruption.check()
        texts.append(cell.value if isinstance(cell, Const) else None)
        if cell is not None and not isinstance(cell, Const):
            computed[place] = cell
    known = read_text(pa.array(texts, pa.string()), kind.oid, kind.typmod, session=planner.evaluation.context.forms)
    return _merged(known, computed, _in_turn(planner, computed)) if computed else known


def _in_turn(planner: Planner, computed: Mapping[int, Expression]) -> list[pa.Array]:
    """Evaluate the cells of a column. A VOLATILE function may have to see the rows before its own (`Evaluation.after_unwritten_rows`)."""
    if not any(row_by_row.is_volatile(cell) for cell in computed.values()):
        return evaluate(planner, list(computed.values()))
    arrays = []
    for place, cell in computed.items():
        with planner.evaluation.after_unwritten_rows() if place else contextlib.nullcontext():
            arrays += evaluate(planner, [cell])
    return arrays


def _merged(known: pa.Array, computed: Mapping[int, Expression], values: Sequence[pa.Array]) -> pa.Array:
    """Return an array with the computed values inserted at their places."""
    places = list(range(len(known)))
    for number, place in enumerate(computed):
        places[place] = len(known) + number
    return pa.concat_arrays([known, *(array.cast(known.type) for array in values)]).take(pa.array(places))


def evaluate(planner: Planner, expressions: Sequence[Expression]) -> list[pa.Array]:
    """Evaluate expressions without columns. Return an array of one value, in stored form, for each. Spark evaluates what Arrow cannot.

    Expressions that differ only in constants become one expression over columns of these constants. Otherwise, an INSERT of 2,000 rows with
    function calls made Spark run out of memory with a row of 2,000 columns.
    """
    prepared = [planner.prepare(expression) for expression in expressions]
    alike: dict[Expression, list[int]] = {}
    constants: list[list[Const]] = []
    for place, expression in enumerate(prepared):
        if place % _CHECK_EVERY == 0:
            interruption.check()
        shape, values = _taken_apart(expression)
        constants.append(values)
        alike.setdefault(shape, []).append(place)
    arrays_by_place: dict[int, pa.Array] = {}
    alone: list[int] = []
    for shape, places in alike.items():
        array = None
        if len(places) > _FEW and not any(
            isinstance(node, SubLink) for node in walk(shape)
        ):  # SubLink nodes compare equal whatever their query is
            array = _at_once(planner, shape, [constants[place] for place in places])
        if array is None:
            alone += places
        else:
            arrays_by_place |= {place: array.slice(number, 1) for number, place in enumerate(places)}
    for start in range(0, len(alone), _IN_A_ROW):
        interruption.check()
        part = sorted(alone)[start : start + _IN_A_ROW]
        arrays_by_place |= dict(zip(part, _in_a_row(planner, [prepared[place] for place in part]), strict=True))
    return [arrays_by_place[place] for place in range(len(expressions))]


def _taken_apart(expression: Expression) -> tuple[Expression, list[Const]]:
    """Return an expression without the values of its constants, and the constants in the order in which `rewrite` visits them."""
    constants: list[Const] = []

    def take(node: Expression) -> Expression | None:
        if not isinstance(node, Const):
            return None
        constants.append(node)
        return replace(node, value=None)

    return rewrite(expression, take), constants


def _at_once(planner: Planner, shape: Expression, constants: Sequence[Sequence[Const]]) -> pa.Array | None:
    """Evaluate expressions of one shape as one expression over columns of their differing constants.

    Return None if that is not possible.
    """
    columns: dict[int, tuple[ColumnRef, pa.Array]] = {}
    for number, values in enumerate(zip(*constants, strict=True)):
        kind = values[0].type
        if len({constant.value for constant in values}) > 1:
            if not computation.is_read_exactly(kind.oid) or kind.oid == registry.UNKNOWN:
                return None
            texts = pa.array([constant.value for constant in values], pa.string())
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
    frame, [one] = row_by_row.settled(planner.evaluation, frame, [one])
    try:
        value = planner.column(one)
    except PostgresError as error:
        if error.sqlstate != "0A000":  # the argument must be a constant
            raise
        return None
    return buffers.whole(frame.select(value.alias("value")).toArrow().column(0))


def has_volatile(expression: Expression) -> bool:
    """Return whether an expression calls a volatile function, whose value may differ in each row."""
    functions = builtin.builtins().functions
    calls = [functions.get(node.function) for node in walk(expression) if isinstance(node, FuncExpr)]
    return any(function is None or function.volatility == "v" for function in calls)


def _in_a_row(planner: Planner, expressions: Sequence[Expression]) -> list[pa.Array]:
    """Evaluate expressions as the columns of one row, with Spark if one of them is not known here or raises an error."""
    with contextlib.suppress(NotColumnwise):
        return [_value(planner, expression) for expression in expressions]
    frame, settled = row_by_row.settled(planner.evaluation, planner.one_row(), expressions)
    table = frame.select(*[planner.column(expression).alias(f"v{place}") for place, expression in enumerate(settled)]).toArrow()
    return [pa.concat_arrays(table.column(place).chunks) for place in range(len(expressions))]


def _value(planner: Planner, expression: Expression) -> pa.Array:
    if not computation.is_known(expression):
        raise NotColumnwise("a function")
    return computation.value(expression, {}, 1, planner.evaluation.time)
