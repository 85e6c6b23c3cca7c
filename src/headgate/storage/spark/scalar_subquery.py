"""A scalar subquery as a Column, even if its plan computes values in Python.

Called by the planner for subqueries in expressions. If a Python function has two operands, an executor compares them, including the plans
of their subqueries. Spark 4 cannot compare a plan that itself has a Python function: it copies that node of the plan outside the driver,
and fails (a NullPointerException in `PythonSQLMetrics`, from `EvalPythonEvaluatorFactory`). Rows of an RDD have no such plan. What must
hold: a correlated subquery is left to Spark, which turns it into a join.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame


def scalar(frame: DataFrame) -> Column:
    """Return the only value of a frame: NULL for no row, Spark's error for several."""
    return _without_plan(frame).scalar() if _computes_in_python(frame) else frame.scalar()


def _computes_in_python(frame: DataFrame) -> bool:
    jvm: Any = frame.sparkSession._jvm
    execution = frame._jdf.queryExecution()
    if execution.isLazyAnalysis():  # a correlated subquery
        return False
    return bool(execution.analyzed().containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()))


def _without_plan(frame: DataFrame) -> DataFrame:
    execution = frame._jdf.queryExecution()
    session: Any = frame.sparkSession
    rows = session._jsparkSession.internalCreateDataFrame(execution.toRdd(), frame._jdf.schema(), False)
    return DataFrame(rows, session)
