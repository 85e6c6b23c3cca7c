"""Large batches under REPLICA IDENTITY FULL: rows have no key, equal rows may be there several times.

As many rows of each value are added or removed as the batch says in sum. That is exact unless the batch changes a row that is not
there (each value's lowest running sum says how many must be); such a batch is for `replay`. Called by `merge`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.changes import net
from headgate.changes.lookup import RowKey
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import columns

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation


def rewrite(transaction: Transaction, relation: Relation, key: RowKey, frame: DataFrame, *, by_tasks: bool = False) -> int | None:
    """Applies a batch without TRUNCATE; the number of changes, None (nothing written) if a row that it changes is not there.

    `by_tasks`: the driver reads and writes no rows, however few they are.
    """
    row = columns(relation)
    frame = _resent(net.widened(frame, row), row)

    def event(side: str, by: int) -> Column:
        return F.struct(key.value(side).alias("key"), F.col(side).alias("value"), F.lit(by).alias("by"))

    ops = F.when(F.col("op") == "I", F.array(event("new", 1))).when(F.col("op") == "D", F.array(event("old", -1)))
    events = frame.select(net.order().alias("o"), F.explode(ops.otherwise(F.array(event("old", -1), event("new", 1)))).alias("e")).select(
        "o", "e.*"
    )
    running = F.sum("by").over(Window.partitionBy("key").orderBy("o", "by"))
    sums = (
        events.withColumn("running", running)
        .groupBy("key")
        .agg(
            F.sum("by").alias("sum"),
            F.min("running").alias("lowest"),
            F.any_value(F.when(F.col("by") > 0, F.col("value")), F.lit(True)).alias("value"),
        )
    )
    whole = F.struct(*[F.col(quoted(n)) for n in row.fieldNames()])
    rank = Window.partitionBy("s_key").orderBy(FILE, ROW)
    with ExitStack() as behind:
        sums = behind.enter_context(persisted(sums))
        stored = transaction.positions(relation, by_tasks=by_tasks).select(whole.alias("old"), FILE, ROW)
        wanted = sums.where("lowest < 0").select("key")
        wanted = F.broadcast(wanted) if wanted.count() <= net.BROADCAST_KEYS else wanted.hint("merge")
        # a key is a struct, never NULL itself, so that = is right
        ranked = stored.withColumn("s_key", key.value("old")).join(wanted, F.col("s_key") == F.col("key"), "left_semi")
        ranked = behind.enter_context(persisted(ranked.withColumn("n", F.row_number().over(rank))))
        counted = ranked.groupBy("s_key").agg(F.max("n").alias("held"))
        needed = sums.where("lowest < 0").join(counted, F.col("key") == F.col("s_key"), "left")
        if not needed.where(F.coalesce("held", F.lit(0)) + F.col("lowest") < 0).isEmpty():
            return None
        fewer = ranked.join(sums.where("sum < 0"), F.col("s_key") == F.col("key")).where("n <= -sum")
        removed = fewer.select(
            F.col("old").cast(row).alias("old"),
            F.lit(None).cast(row).alias("new"),
            F.col(FILE).alias("file"),
            F.col(ROW).alias("row"),
        )
        copies = sums.where("sum > 0").select("value", F.explode(F.sequence(F.lit(1), F.col("sum"))))
        nothing = F.lit(None).cast(row).alias("old"), F.col("value").cast(row).alias("new"), F.lit(None).cast("string").alias("file")
        added = copies.select(*nothing, F.lit(None).cast("bigint").alias("row"))
        return transaction.rewrite(relation, removed.unionByName(added), by_tasks=by_tasks)


def _resent(frame: DataFrame, row: StructType) -> DataFrame:
    """The changes with unchanged TOAST values taken from the old row, which REPLICA IDENTITY FULL sends whole."""
    if "unchanged" not in frame.columns:
        return frame
    values = []
    for name in row.fieldNames():
        unsent = F.coalesce(F.array_contains("unchanged", name), F.lit(False))
        values.append(F.when(unsent, F.col(f"old.{quoted(name)}")).otherwise(F.col(f"new.{quoted(name)}")).alias(name))
    return frame.withColumn("new", F.when(F.col("new").isNotNull(), F.struct(*values)).cast(row)).withColumn(
        "unchanged", F.lit(None).cast("array<string>")
    )
