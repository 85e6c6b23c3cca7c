"""Selects the changes whose actions a publication publishes (`publish`)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def actions(frame: DataFrame, *, insert: bool, update: bool, delete: bool) -> DataFrame:
    """Return the changes whose operation is published. This comes before the row filter, as in PostgreSQL."""
    published = [op for op, is_published in (("I", insert), ("U", update), ("D", delete)) if is_published]
    return frame if len(published) == 3 else frame.where(F.col("op").isin(published))
