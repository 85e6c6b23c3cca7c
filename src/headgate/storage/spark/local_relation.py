"""Small Arrow tables as Spark frames: local relations, without a Spark job and without a Python worker."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return a frame with the rows of `table` in their order."""
    if table.num_rows == 0 and schema is not None:
        return spark.createDataFrame([], schema)
    # Spark stops at an empty chunk: the rows of leaves after an empty one would be lost
    return spark.createDataFrame(table.combine_chunks(), schema)


def in_one_piece(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return the frame of `local_frame` with one partition: no rows are shuffled, and columns are computed only for rows that are read."""
    return local_frame(spark, table, schema).coalesce(1)
