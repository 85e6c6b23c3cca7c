"""Functions in FROM: generate_series of whole numbers by Spark itself, others by the catalog where their arguments are constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.commands.query import system_relation
from headgate.commands.query.plan import Plan, PlanColumn, Source, renamed, scope_table
from headgate.errors import PostgresError, not_supported
from headgate.expression import binder, builtin
from headgate.expression.node import Const, Expression, FuncExpr, OpExpr
from headgate.expression.scope import Scope
from headgate.sql import names
from headgate.sql.parser import unwrap
from headgate.types import registry
from headgate.types.storage import spark_type

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

_WHOLE = (registry.INT4, registry.INT8)


def scan(planner: Planner, node: Any, outer: Scope | None) -> Source:
    """``FROM f(…) [WITH ORDINALITY] AS a (x, …)``."""
    if node.lateral or node.is_rowsfrom or node.coldeflist:
        raise not_supported("this form of function in FROM is not supported")
    call = unwrap(unwrap(node.functions[0]).items[0])
    name = names.strings(call.funcname)[-1] if call.DESCRIPTOR.name == "FuncCall" else "function"
    alias = node.alias.aliasname or name
    context = planner.context.within(construct="functions in FROM", sets=True, aggregates=False)
    expression = planner.prepare(binder.bind(call, Scope((), outer), context=context))
    plan = series(planner, expression, name)
    if plan is None:
        plan = _by_catalog(planner, call)
    columns = list(plan.columns)
    if len(columns) == 1 and node.HasField("alias") and not node.alias.colnames:
        columns = renamed(columns, [alias])
    columns = renamed(columns, names.strings(node.alias.colnames))
    if node.ordinality:
        raise not_supported("WITH ORDINALITY is not supported")
    return Source(plan.frame, (scope_table(alias, columns),), tuple(columns))


def series(planner: Planner, expression: Expression, name: str) -> Plan | None:
    """generate_series over int4 or int8 constants as a frame; None for any other expression."""
    bounds = constant_series(expression)
    if bounds is None:
        return None
    assert isinstance(expression, FuncExpr)
    column = PlanColumn(name, expression.type, planner.key(name))
    frame = planner.session_spark.range(*bounds).select(F.col("id").cast(spark_type(expression.type.oid)).alias(column.key))
    return Plan(frame, (column,))


def constant_series(expression: Expression) -> tuple[int, int, int] | None:
    """(start, end, step) of a generate_series of whole constants, the end excluded; None for anything else. A NULL makes no rows."""
    if not isinstance(expression, FuncExpr) or builtin.function(expression.function).name != "generate_series":
        return None
    if expression.type.oid not in _WHOLE:
        return None
    values: list[int | None] = []
    for each in expression.args:
        value = _integer(each)
        if value is None and not (isinstance(each, Const) and each.value is None):
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
    """The value of a whole constant, also behind casts between whole types and a minus."""
    if isinstance(expression, Const) and expression.value is not None and expression.type.oid in (registry.INT2, *_WHOLE):
        return int(expression.value)
    if isinstance(expression, FuncExpr) and len(expression.args) == 1 and expression.type.oid in _WHOLE:
        return _integer(next(iter(expression.args)))
    if isinstance(expression, OpExpr) and len(expression.args) == 1 and builtin.operator(expression.operator).name == "-":
        found = _integer(next(iter(expression.args)))
        return None if found is None else -found
    return None


def _by_catalog(planner: Planner, call: Any) -> Plan:
    import postgast
    from postgast import pg_query_pb2 as pb

    tree = pb.ParseResult()
    statement = postgast.parse("SELECT * FROM f()")
    tree.CopyFrom(statement)
    function = tree.stmts[0].stmt.select_stmt.from_clause[0].range_function.functions[0].list.items[0]
    function.func_call.CopyFrom(call)
    return system_relation.answer(planner, postgast.deparse(tree))


def explode(planner: Planner, expression: Expression) -> Column | None:
    """A set-returning function of the SELECT list as a generator column: generate_series and unnest; None if it is neither."""
    if not isinstance(expression, FuncExpr):
        return None
    name = builtin.function(expression.function).name
    if name == "generate_series" and expression.type.oid in _WHOLE:
        bounds = [planner.column(each) for each in expression.args]
        step = bounds[2] if len(bounds) > 2 else F.lit(1).cast(spark_type(expression.type.oid))
        empty = F.array().cast(f"array<{spark_type(expression.type.oid).simpleString()}>")
        wrong = ((step > 0) & (bounds[0] > bounds[1])) | ((step < 0) & (bounds[0] < bounds[1])) | bounds[0].isNull() | bounds[1].isNull()
        return F.explode(F.when(wrong, empty).otherwise(F.sequence(bounds[0], bounds[1], step)))
    return None
