"""A scalar subquery as a Column, even if its plan computes values in Python.

Called by the planner for subqueries in expressions. If a Python function has two operands, an executor compares them, including the plans
of their subqueries. Spark 4 cannot compare a plan that itself has a Python function: it copies that node of the plan outside the driver,
and fails (a NullPointerException in `PythonSQLMetrics`, from `EvalPythonEvaluatorFactory`). Rows of an RDD have no such plan. What must
hold: a correlated subquery is left to Spark, which turns it into a join.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame

from headgate.storage.spark.internals import query_plan


def scalar(frame: DataFrame) -> Column:
    """Return the only value of a frame: NULL for no row, Spark's error for several."""
    return (query_plan.detached(frame) if query_plan.computes_in_python(frame) else frame).scalar()
