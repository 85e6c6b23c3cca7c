"""Functions in FROM and set-returning functions in a SELECT list.

generate_series of integer constants is Spark's own range. Other set-returning functions return arrays
(`headgate.expression.spark.set_returning`), which are exploded beside the row of their arguments (all functions in FROM are LATERAL). The
catalog evaluates other functions if their arguments are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog import procedure
from headgate.commands.query import change_scan
from headgate.commands.query.clause import system_relation
from headgate.commands.query.clause.select_list import SelectItem
from headgate.commands.query.plan import Plan, PlanColumn, Source, col, reference, renamed, scope_table
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import binder
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Const, Expression, FuncExpr, OpExpr, TypeRef, walk
from headgate.expression.spark import set_returning
from headgate.sql import grammar, names
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.spark import job_group
from headgate.types import registry
from headgate.types.storage import spark_type

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

_PIECE, _MOST_PIECES = 500_000, 20_000
"""Maximum number of rows of generate_series per task, and of tasks."""
_WHOLE = (registry.INT4, registry.INT8)


def scan(planner: Planner, node: pb.RangeFunction, outer: Scope | None, left: Source | None = None, *, keep_left: bool = False) -> Source:
    """Plan ``FROM f(…) [WITH ORDINALITY] AS a (x, …)``. With `left`, join it with those rows; the result also has their columns.

    `keep_left`: keep a row of `left` for which the function returns no rows (LEFT JOIN … ON true).
    """
    if change_scan.is_call(unwrap(unwrap(node.functions[0]).items[0])):
        if left is not None:
            raise not_supported("headgate.changes is only supported as the first item of FROM or in a subquery")
        return change_scan.scan(planner, node)
    if node.is_rowsfrom or node.coldeflist:
        raise not_supported("this form of function in FROM is not supported")
    call = unwrap(unwrap(node.functions[0]).items[0])
    name = names.strings(call.funcname)[-1] if call.DESCRIPTOR.name == "FuncCall" else "function"
    alias = node.alias.aliasname or name
    own = call.DESCRIPTOR.name == "FuncCall" and procedure.called(names.strings(call.funcname)) in procedure.OWN
    calls = [] if own else _calls(planner, call, name, left.scope(outer) if left is not None else Scope((), outer))
    plan = None if own or left is not None or node.ordinality or len(calls) > 1 else series(planner, planner.prepare(calls[0]), name)
    if (
        plan is None
        and not own
        and all(isinstance(bound_call, FuncExpr) and set_returning.known(builtin.function(bound_call.function).key) for bound_call in calls)
    ):
        plan = _exploded(planner, calls, name, left, ordinality=node.ordinality, keep_left=keep_left)
    elif plan is None:
        if node.ordinality:
            raise not_supported("WITH ORDINALITY of this function is not supported")
        plan = _by_catalog(planner, call)
        if left is not None:
            plan = Plan(left.frame.join(plan.frame, how="left" if keep_left else "cross"), plan.columns)
    columns = list(plan.columns)
    if node.HasField("alias") and not node.alias.colnames and len(columns) - node.ordinality == 1:
        columns = renamed(columns, [alias])
    columns = renamed(columns, names.strings(node.alias.colnames))
    row = planner.row_key(alias)
    planner.evaluation.rows[row] = tuple(columns)
    frame = plan.frame.select("*", F.lit(True).alias(row))
    own = Source(frame, (scope_table(alias, columns, row_key=row),), tuple(columns))
    if left is None:
        return own
    return Source(frame, left.tables + own.tables, left.star + own.star, left.merged)


def _calls(planner: Planner, call: pb.FuncCall, name: str, scope: Scope) -> list[Expression]:
    """Bind the call; ``unnest(a, b)`` becomes one unnest for each array."""
    context = planner.context.within(construct="functions in FROM", sets=True, aggregates=False)
    if name != "unnest" or len(call.args) < 2:
        return [binder.bind(call, scope, context=context)]
    bound_calls = []
    for argument in call.args:
        single = type(call)()
        single.CopyFrom(call)
        del single.args[:]
        single.args.append(argument)
        bound_calls.append(binder.bind(single, scope, context=context))
    return bound_calls


def _exploded(planner: Planner, calls: Sequence[Expression], name: str, left: Source | None, *, ordinality: bool, keep_left: bool) -> Plan:
    planned = [planner.evaluation.set_of(bound_call) for bound_call in calls if isinstance(bound_call, FuncExpr)]
    rows, place = planner.key("rows"), planner.key("place")
    base = planner.one_row() if left is None else left.frame
    exploder = F.posexplode_outer if keep_left else F.posexplode
    frame = base.select("*", exploder(planner.evaluation.sets_together(planned)).alias(place, rows))
    columns, values = [], []
    for number, planned_set in enumerate(planned):
        for field, column in enumerate(planned_set.columns):
            plan_column = PlanColumn(column.name or name, column.type, planner.key(column.name or name))
            columns.append(plan_column)
            values.append(set_returning.value_of(col(rows)[f"s{number}"][f"v{field}"], column.type).alias(plan_column.key))
    if ordinality:
        plan_column = PlanColumn("ordinality", TypeRef(registry.INT8), planner.key("ordinality"))
        columns.append(plan_column)
        values.append((col(place) + 1).cast("bigint").alias(plan_column.key))
    left_columns = [] if left is None else [col(name) for name in left.frame.columns]
    return Plan(frame.select(*left_columns, *values), tuple(columns))


def series(planner: Planner, expression: Expression, name: str) -> Plan | None:
    """Return a frame for generate_series over int4 or int8 constants, or None for any other expression."""
    bounds = constant_series(expression)
    if bounds is None:
        return None
    assert isinstance(expression, FuncExpr)
    column = PlanColumn(name, expression.type, planner.key(name))
    rows = _count(*bounds)
    # Spark's range does not notice that its task was cancelled, so tasks are short, or rows check for it
    pieces = min(rows // _PIECE, _MOST_PIECES) if rows > 8 * _PIECE else None
    frame = planner.session_spark.range(*bounds, pieces).select(F.col("id").cast(spark_type(expression.type.oid)).alias(column.key))
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


def _by_catalog(planner: Planner, call: ParseNode) -> Plan:

    statement = pb.ParseResult()
    statement.CopyFrom(grammar.parse("SELECT * FROM f()"))
    function = statement.stmts[0].stmt.select_stmt.from_clause[0].range_function.functions[0].list.items[0]
    function.func_call.CopyFrom(call)
    return system_relation.answer(planner, grammar.deparse(statement))


def expand(planner: Planner, frame: DataFrame, targets: Sequence[SelectItem]) -> tuple[DataFrame, dict[Expression, Expression]]:
    """Explode the frame for the set-returning functions of the SELECT list. Return it and the columns that replace their calls.

    Several functions advance together, and the shorter ones end in NULLs (manual, 38.5.9). Nested set-returning functions raise 0A000.
    """
    calls = {node: None for target in targets for node in walk(target.expression) if _is_set(node)}
    if not calls:
        return frame, {}
    if any(_is_set(inner) for call in calls for child in call.children() for inner in walk(child)):
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


def _is_set(expression: Expression) -> bool:
    return isinstance(expression, FuncExpr) and builtin.function(expression.function).retset
