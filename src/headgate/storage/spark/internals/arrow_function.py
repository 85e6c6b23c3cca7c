"""Python functions over Arrow arrays as Spark columns.

`pyspark.sql.functions.arrow_udf` is public since PySpark 4.1. Its type stubs are only in the undocumented module
`pyspark.sql.pandas.functions`, and do not allow Arrow arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyspark.sql import Column
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import DataType


def of_arrays(run: Callable[..., object], result: DataType | str) -> Callable[..., Column]:
    """Return the column function that calls `run` with an Arrow array for each argument. `run` returns an array of as many values."""
    function = arrow_udf(run, result, ArrowUDFType.SCALAR)
    return cast("Callable[..., Column]", function)
