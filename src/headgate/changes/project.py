"""What of a change is published: the actions (`publish`) and the column list (manual, 31.4 Column Lists)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.storage.spark.column_name import quoted


def actions(frame: DataFrame, *, insert: bool, update: bool, delete: bool) -> DataFrame:
    """The changes whose operation is published. Comes before the row filter, as in PostgreSQL."""
    published = [op for op, wanted in (("I", insert), ("U", update), ("D", delete)) if wanted]
    return frame if len(published) == 3 else frame.where(F.col("op").isin(published))


def columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The changes with these columns of `old` and `new`, in this order."""

    def chosen(side: str) -> Column:
        return F.when(F.col(side).isNotNull(), F.struct(*[F.col(f"{side}.{quoted(n)}").alias(n) for n in names])).alias(side)

    return frame.withColumns({"old": chosen("old"), "new": chosen("new")})
