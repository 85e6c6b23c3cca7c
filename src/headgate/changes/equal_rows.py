"""Large batches under REPLICA IDENTITY FULL: rows have no key, equal rows may be there several times.

Rows with equal keys are interchangeable, although equal values may be written differently (1.0 and 1.00). A DELETE or UPDATE takes the row
with its key that the batch added last, or else a stored row. The running sum of a key's rows (+1 for a new row, -1 for an old one) tells
what remains. Its lowest value is the number of stored rows that go; a new row stays if the sum never falls below its own afterwards.
Traced: stored 1.0, 1.00; U 1.0 → 1.000, I 1.0, D 1.00: sums -1, 0, 1, 0: one stored row goes, 1.000 stays, the inserted 1.0 does not.

That is exact unless the batch changes a row that is not there; such a batch is for `replay`. Called by `merge`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

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
    frame = net.widened(frame, row)

    def event(side: str, by: int) -> Column:
        return F.struct(key.value(side).alias("key"), F.col(side).alias("value"), F.lit(by).alias("by"))

    ops = F.when(F.col("op") == "I", F.array(event("new", 1))).when(F.col("op") == "D", F.array(event("old", -1)))
    events = frame.select(net.order().alias("o"), F.explode(ops.otherwise(F.array(event("old", -1), event("new", 1)))).alias("e")).select(
        "o", "e.*"
    )
    by_key = Window.partitionBy("key").orderBy("o", "by")
    lowest_after = F.min("running").over(by_key.rowsBetween(Window.currentRow, Window.unboundedFollowing))
    stays = (F.col("by") > 0) & (lowest_after >= F.col("running"))
    events = events.withColumn("running", F.sum("by").over(by_key)).withColumn("stays", stays)
    whole = F.struct(*[F.col(quoted(n)) for n in row.fieldNames()])
    rank = Window.partitionBy("s_key").orderBy(FILE, ROW)
    with ExitStack() as behind:
        events = behind.enter_context(persisted(events))
        taken = behind.enter_context(persisted(events.groupBy("key").agg((-F.min("running")).alias("taken")).where("taken > 0")))
        stored = transaction.positions(relation, by_tasks=by_tasks).select(whole.alias("old"), FILE, ROW)
        wanted = F.broadcast(taken) if taken.count() <= net.BROADCAST_KEYS else taken.hint("merge")
        # a key is a struct, never NULL itself, so that = is right
        ranked = stored.withColumn("s_key", key.value("old")).join(wanted, F.col("s_key") == F.col("key")).drop("key")
        ranked = behind.enter_context(persisted(ranked.withColumn("n", F.row_number().over(rank)).where("n <= taken")))
        counted = ranked.groupBy("s_key").agg(F.max("n").alias("held"))
        lacking = taken.join(counted, F.col("key") == F.col("s_key"), "left").where(F.coalesce("held", F.lit(0)) < F.col("taken"))
        if not lacking.isEmpty():
            return None
        removed = ranked.select(
            F.col("old").cast(row).alias("old"),
            F.lit(None).cast(row).alias("new"),
            F.col(FILE).alias("file"),
            F.col(ROW).alias("row"),
        )
        nothing = F.lit(None).cast(row).alias("old"), F.col("value").cast(row).alias("new"), F.lit(None).cast("string").alias("file")
        added = events.where("stays").select(*nothing, F.lit(None).cast("bigint").alias("row"))
        return transaction.rewrite(relation, removed.unionByName(added), by_tasks=by_tasks)
