"""The Arrow types as which Spark stores its types: those of the batches that it sends to Python and of the Parquet files that it writes.

`pyspark.sql.pandas.types` is not documented. `to_arrow_type` and `to_arrow_schema` exist since PySpark 3.0. Up to 4.1 a timestamp gets the
time zone UTC by default; from 4.2 on the caller has to name it.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}


def of_type(spark_type: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type. A timestamp is in microseconds in UTC."""
    return cast("pa.DataType", to_arrow_type(spark_type, **_UTC))


def of_row(row: StructType) -> pa.Schema:
    return cast("pa.Schema", to_arrow_schema(row, **_UTC))
