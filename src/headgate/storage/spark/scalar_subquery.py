"""A subquery of one value as a Column, whatever its plan computes in Python.

Called by the planner for subqueries in expressions. Where a Python function takes two operands, an executor compares them, and compares
plans of subqueries in them too, which Spark 4 cannot where such a plan itself has a Python function: it makes that step of the plan anew
outside of the driver (a NullPointerException in `PythonSQLMetrics`, from `EvalPythonEvaluatorFactory`). Rows of an RDD have no plan that
could be looked into. What must hold: a subquery that names columns of the query around it is left to Spark, which makes a join of it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame


def scalar(frame: DataFrame) -> Column:
    """The only value of a frame; NULL for no row, Spark's error for several."""
    return _without_plan(frame).scalar() if _computes_in_python(frame) else frame.scalar()


def _computes_in_python(frame: DataFrame) -> bool:
    jvm: Any = frame.sparkSession._jvm
    execution = frame._jdf.queryExecution()
    if execution.isLazyAnalysis():  # names columns of the query around it
        return False
    return bool(execution.analyzed().containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()))


def _without_plan(frame: DataFrame) -> DataFrame:
    execution = frame._jdf.queryExecution()
    session: Any = frame.sparkSession
    made = session._jsparkSession.internalCreateDataFrame(execution.toRdd(), frame._jdf.schema(), False)
    return DataFrame(made, session)
