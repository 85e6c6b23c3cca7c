"""Spark's plan of a frame: its estimates, and frames that are detached from it.

PySpark shows a plan only as text that it prints (`DataFrame.explain`). The plan itself is `Dataset.queryExecution` (Spark 1.3, by its own
words unstable), of classes in `org.apache.spark.sql.catalyst`. `QueryExecution.isLazyAnalysis` exists since Spark 4.0.
"""

from __future__ import annotations

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from headgate.storage.spark.internals import gateway


def most_rows(frame: DataFrame) -> int | None:
    """Return the maximum number of rows of a frame if its plan has one, otherwise None. Relies on `LogicalPlan.maxRows` (2.2)."""
    most = _execution(frame).optimizedPlan().maxRows()
    return int(most.get()) if most.isDefined() else None


def estimated_bytes(frame: DataFrame) -> int:
    """Return Spark's estimate of the size of a frame's rows. Relies on `LogicalPlan.stats`, since Spark 2.3."""
    return int(str(_execution(frame).optimizedPlan().stats().sizeInBytes()))  # a Scala BigInt


def computes_in_python(frame: DataFrame) -> bool:
    """Return whether a frame calls a Python function. False for a correlated subquery, which has no plan of its own.

    Relies on `TreePattern.PYTHON_UDF`, since Spark 3.2.
    """
    execution = _execution(frame)
    if execution.isLazyAnalysis():
        return False
    patterns = gateway.jvm(frame.sparkSession.sparkContext).org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(execution.analyzed().containsPattern(patterns.PYTHON_UDF()))


def detached(frame: DataFrame) -> DataFrame:
    """Return a frame of the same rows whose plan is an RDD. The rows are computed when the result is used, as before.

    Relies on `SparkSession.internalCreateDataFrame`, since Spark 2.0, which takes Spark's internal rows without converting them.
    """
    session = frame.sparkSession
    return DataFrame(session._jsparkSession.internalCreateDataFrame(_execution(frame).toRdd(), frame._jdf.schema(), False), session)


def unpersist_checkpoint(checkpointed: DataFrame) -> None:
    """Unpersist the rows of `DataFrame.localCheckpoint`, which belong to an RDD in its plan. `DataFrame.unpersist` does not find them."""
    _execution(checkpointed).analyzed().rdd().unpersist(False)


def _execution(frame: DataFrame) -> JavaObject:
    return frame._jdf.queryExecution()
