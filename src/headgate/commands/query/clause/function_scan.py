"""Functions in FROM and set-returning functions in a SELECT list.

generate_series of integer constants is Spark's own range. Other set-returning functions return arrays
(`headgate.expression.spark.set_returning`), which are exploded beside the row of their arguments (all functions in FROM are LATERAL). The
catalog evaluates other functions if their arguments are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.analysis.query import FunctionItem, PlanColumn, SelectItem, reference
from headgate.commands.query.clause import system_relation
from headgate.commands.query.plan import Plan, Source, col
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.node import Const, Expression, FuncExpr, OpExpr, walk
from headgate.expression.spark import set_returning
from headgate.storage.spark import job_group
from headgate.types import registry
from headgate.types.storage import spark_type

_PIECE, _MOST_PIECES = 500_000, 20_000
"""Maximum number of rows of generate_series per task, and of tasks."""
_WHOLE = (registry.INT4, registry.INT8)


def scan(planner: Planner, item: FunctionItem, left: Source | None) -> Source:
    """Return the rows of functions in FROM, joined with those of `left`."""
    if item.keep_left and item.condition is not None:
        raise not_supported("LEFT JOIN of a function of the columns before it is only supported with the condition true")
    plan = _series(planner, item) if left is None and not item.ordinality and len(item.calls) == 1 else None
    if plan is None and all(map(set_returning.has_form, item.calls)):
        frame = _explode(planner, item, left)
    else:
        frame = (plan or _by_catalog(planner, item)).frame
        frame = frame if left is None else left.frame.crossJoin(frame)
    row = F.lit(True).alias(item.tables[-1].row_key)
    return Source(frame.select("*", row), item.tables, item.star, item.merged)


def _explode(planner: Planner, item: FunctionItem, left: Source | None) -> DataFrame:
    planned = [planner.evaluation.set_of(bound_call) for bound_call in item.calls if isinstance(bound_call, FuncExpr)]
    rows, place = planner.key("rows"), planner.key("place")
    base = planner.one_row() if left is None else left.frame
    exploder = F.posexplode_outer if item.keep_left else F.posexplode
    frame = base.select("*", exploder(planner.evaluation.sets_together(planned)).alias(place, rows))
    fields = [(number, field) for number, planned_set in enumerate(planned) for field in range(len(planned_set.columns))]
    values = [
        set_returning.value_of(col(rows)[f"s{number}"][f"v{field}"], column.type).alias(column.key)
        for (number, field), column in zip(fields, item.columns, strict=False)
    ]
    if item.ordinality:
        values.append((col(place) + 1).cast("bigint").alias(item.columns[-1].key))
    left_columns = [] if left is None else [col(name) for name in left.frame.columns]
    return frame.select(*left_columns, *values)


def _series(planner: Planner, item: FunctionItem) -> Plan | None:
    """Return a frame for generate_series over int4 or int8 constants, or None for any other call."""
    bounds = constant_series(planner.prepare(item.calls[0]))
    if bounds is None:
        return None
    [column] = item.columns
    rows = _count(*bounds)
    # Spark's range does not notice that its task was cancelled, so tasks are short, or rows check for it
    pieces = min(rows // _PIECE, _MOST_PIECES) if rows > 8 * _PIECE else None
    frame = planner.session_spark.range(*bounds, pieces).select(F.col("id").cast(spark_type(column.type.oid)).alias(column.key))
    return Plan(frame if rows <= _PIECE * _MOST_PIECES else frame.where(job_group.noticing()), (column,))


def _count(start: int, stop: int, step: int) -> int:
    """Return the number of rows; `len` of a range has a limit."""
    return max(0, -((start - stop) // step) if step > 0 else -((stop - start) // -step))


def constant_series(expression: Expression) -> tuple[int, int, int] | None:
    """Return (start, end, step) of a generate_series of integer constants, with the end excluded, or None.

    A NULL argument gives no rows.
    """
    if not isinstance(expression, FuncExpr) or builtin.function(expression.function).name != "generate_series":
        return None
    if expression.type.oid not in _WHOLE:
        return None
    values: list[int | None] = []
    for argument in expression.args:
        value = _integer(argument)
        if value is None and not (isinstance(argument, Const) and argument.value is None):
            return None
        values.append(value)
    if None in values:
        return (0, 0, 1)
    numbers = [value for value in values if value is not None]
    start, stop, step = numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 1
    if step == 0:
        raise PostgresError("22023", "step size cannot equal zero")
    return (start, stop + (1 if step > 0 else -1), step)


def _integer(expression: Expression) -> int | None:
    """Return the value of an integer constant, also under casts between integer types and a minus, or None."""
    if isinstance(expression, Const) and expression.value is not None and expression.type.oid in (registry.INT2, *_WHOLE):
        return int(expression.value)
    if isinstance(expression, FuncExpr) and len(expression.args) == 1 and expression.type.oid in _WHOLE:
        return _integer(next(iter(expression.args)))
    if isinstance(expression, OpExpr) and len(expression.args) == 1 and builtin.operator(expression.operator).name == "-":
        operand = _integer(next(iter(expression.args)))
        return None if operand is None else -operand
    return None


def _by_catalog(planner: Planner, item: FunctionItem) -> Plan:
    if item.lateral is not None:
        raise not_supported("this function of the columns before it is not supported in FROM")
    alone = replace(item, left=None, condition=None, tables=item.tables[-1:], star=item.columns, merged=(), hidden=())
    return Plan(system_relation.read(planner, alone, item.columns).frame, item.columns)


def expand(planner: Planner, frame: DataFrame, targets: Sequence[SelectItem]) -> tuple[DataFrame, dict[Expression, Expression]]:
    """Explode the frame for the set-returning functions of the SELECT list. Return it and the columns that replace their calls.

    Several functions advance together, and the shorter ones end in NULLs (manual, 38.5.9). Nested set-returning functions raise 0A000.
    """
    calls = {node: None for target in targets for node in walk(target.expression) if builtin.returns_set(node)}
    if not calls:
        return frame, {}
    if any(builtin.returns_set(inner) for call in calls for child in call.children() for inner in walk(child)):
        raise not_supported("a set-returning function in the arguments of another one is not supported")
    planned = [planner.evaluation.set_of(call) for call in calls if isinstance(call, FuncExpr)]
    if any(len(planned_set.columns) > 1 for planned_set in planned):
        raise not_supported("a function that returns rows of several columns is not supported in a SELECT list")
    rows = planner.key("rows")
    exploded = frame.select("*", F.explode(planner.evaluation.sets_together(planned)).alias(rows))
    places: dict[Expression, Expression] = {}
    values = []
    for number, (call, planned_set) in enumerate(zip(calls, planned, strict=True)):
        column = PlanColumn("set", planned_set.columns[0].type, planner.key("set"))
        values.append(set_returning.value_of(col(rows)[f"s{number}"]["v0"], column.type).alias(column.key))
        places[call] = reference(column)
    return exploded.select("*", *values), places


def has_sets(targets: Sequence[SelectItem]) -> bool:
    return any(builtin.returns_set(node) for target in targets for node in walk(target.expression))
