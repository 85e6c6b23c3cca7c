"""Small Arrow tables as Spark frames: local relations, without a Spark job and without a Python worker."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """A frame that holds the rows of `table` in their order."""
    if table.num_rows == 0 and schema is not None:
        return spark.createDataFrame([], schema)
    # Spark takes an empty chunk for the end: the rows of leaves behind an empty one would be lost
    return spark.createDataFrame(table.combine_chunks(), schema)


def in_one_piece(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """As `local_frame`, in one partition: nothing of it is shuffled, and a column is computed when its row is asked for."""
    return local_frame(spark, table, schema).coalesce(1)
