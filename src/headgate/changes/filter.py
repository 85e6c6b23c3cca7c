"""The row filter on a changes frame, and the UPDATE transformation (manual, 31.3.3 UPDATE Transformations).

    change  old row matches  new row matches  becomes
    INSERT        -                no         nothing
    INSERT        -               yes         INSERT
    DELETE       no                 -         nothing
    DELETE      yes                 -         DELETE
    UPDATE       no                no         nothing
    UPDATE       no               yes         INSERT
    UPDATE      yes                no         DELETE
    UPDATE      yes               yes         UPDATE

A filter that is NULL does not match. Actions that are not published are dropped before (`actions`), by the change's
own operation: a publication of updates alone sends the INSERT that an UPDATE became.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def apply(frame: DataFrame, predicate: Callable[[str], Column]) -> DataFrame:
    """Return the changes that pass the filter. `predicate` returns the filter on the struct column named ``old`` or ``new``."""
    before = F.coalesce(predicate("old"), F.lit(False)) & (F.col("op") != "I")
    after = F.coalesce(predicate("new"), F.lit(False)) & (F.col("op") != "D")
    judged = frame.withColumns({"_before": before, "_after": after}).where("_before OR _after")
    op = F.when(F.col("_before") & F.col("_after"), "U").when(F.col("_before"), "D").otherwise("I")
    return judged.withColumns(
        {
            "op": F.when(F.col("op") == "U", op).otherwise(F.col("op")),
            "old": F.when(F.col("_before"), F.col("old")),
            "new": F.when(F.col("_after"), F.col("new")),
        }
    ).drop("_before", "_after")


def actions(frame: DataFrame, *, insert: bool, update: bool, delete: bool) -> DataFrame:
    """Return the changes whose operation is published. This comes before the row filter, as in PostgreSQL."""
    published = [op for op, is_published in (("I", insert), ("U", update), ("D", delete)) if is_published]
    return frame if len(published) == 3 else frame.where(F.col("op").isin(published))
