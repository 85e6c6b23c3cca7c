"""The changes that make a table equal to the publisher's: compared by ranges, and returned as a changes frame on Spark.

Made for the table sync of a table that is reconciled (`subscriber.synchronization.reconciliation`), inside its transaction. The reader is a
session at the publisher under the snapshot of the sync's slot. In order:

    ranges     digests of both sides, at the same time; the ranges that differ
    command    the publisher's rows of these ranges, each with the hashes of its key and of the row, for the caller to stage as Parquet
    changes    staged and local rows, joined by the hash of the key: only staged → INSERT, only local → DELETE, hashes differ → UPDATE

The key is the one by which rows are looked up here (the local replica identity or primary key). A table without one is compared by whole
rows, which are counted: there are only INSERTs and DELETEs. Invariant: the memory holds one digest for each range (16^4 at most),
Spark does the rest; both sides write a value as the same text, as in `digest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from headgate.catalog.relation.relation import Column
from headgate.catalog.replication.subscription import Subscription
from headgate.commands.session import NodeParts
from headgate.sql.names import quote_ident
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows.conversion import old_columns
from headgate.subscriber.rows.relation_map import Mapping
from headgate.types.storage import spark_type
from headgate.verify.description import described
from headgate.verify.digest import DIGESTS, copy_query, differing, digests_query, range_of
from headgate.verify.publisher import taken
from headgate.verify.stored import Stored
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.remote import RemoteRelation

_ORDER = {"D": 0, "U": 1, "I": 2}
"""A key whose text differs at the publisher (1.0, 1.00) is deleted and inserted, in this order."""


class Difference:
    """The difference of one table (see the module)."""

    def __init__(
        self,
        node: NodeParts,
        subscription: Subscription,
        transaction: Transaction,
        mapping: Mapping,
        remote: RemoteRelation,
        reader: PublisherConnection,
    ) -> None:
        self._transaction, self._mapping, self._reader = transaction, mapping, reader
        self._stored = Stored(node, subscription, transaction)
        table = described(reader, transaction, remote, mapping.local)
        names = [column.name for column in mapping.local.columns if column.attnum in (mapping.key or ())]
        self._table = replace(table, key=tuple(table.columns.index(name) for name in names))
        self._ranges: Sequence[str] = ()

    def ranges(self) -> Sequence[str]:
        """Compare the digests of both sides. Return the ranges that differ."""
        with ThreadPoolExecutor(1, "reconcile") as pool:
            future = pool.submit(self._reader.query, digests_query(self._table, ()), len(DIGESTS))
            ours = self._stored.digests(self._table, ())
            self._ranges = differing(taken(future.result(), DIGESTS), ours)
        return self._ranges

    @property
    def command(self) -> str:
        """Return the COPY command for the publisher's rows: hash of the key, hash of the row, published columns."""
        return f"COPY ({copy_query(self._table, self._ranges)}) TO STDOUT"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the published columns that `command` sends."""
        return self._table.columns

    def changes(self, staged: DataPath, unchanged: Sequence[str]) -> DataFrame:
        """Return the changes frame (`_frame_type`). `staged`: Parquet files of k, r (the hashes) and new (the whole local row).

        `unchanged`: local columns that an UPDATE does not change.
        """
        frame = _frame_type(self._mapping)
        new = frame["new"].dataType
        schema = StructType([StructField("k", StringType()), StructField("r", StringType()), StructField("new", new)])
        theirs = self._number_rows(self._transaction.storage.spark.read.schema(schema).parquet(data_location.uri(staged)))
        both = theirs.alias("t").join(self._number_rows(self._here()).alias("o"), ["k", "n"], "full_outer")
        is_there, is_here = F.col("t.r").isNotNull(), F.col("o.r").isNotNull()
        op = F.when(~is_here, "I").when(~is_there, "D").when(F.col("t.r") != F.col("o.r"), "U")
        both = both.withColumn("op", op).where("op IS NOT NULL")
        unchanged_names = F.array(*[F.lit(name) for name in unchanged]) if unchanged else F.lit(None)
        seq = F.when(F.col("op") == "D", _ORDER["D"]).when(F.col("op") == "U", _ORDER["U"]).otherwise(_ORDER["I"])
        values = {
            "commit_lsn": F.lit(0), "seq": seq, "position": F.lit(0), "op": F.col("op"),
            "old": F.when(F.col("op") == "D", F.col("old")), "new": F.when(F.col("op") != "D", F.col("new")),
            "unchanged": F.when(F.col("op") == "U", unchanged_names),
        }  # fmt: skip
        return both.select(*[values[field.name].cast(field.dataType).alias(field.name) for field in frame.fields])

    def _here(self) -> DataFrame:
        """Return the local rows of the ranges that differ: k, r, old."""
        old_fields: list[Column] = old_columns(self._mapping)
        words = [
            range_of(self._table, self._table.ours),
            *self._stored.hashes(self._table),
            *(quote_ident(column.name) for column in old_fields),
        ]
        frame = self._stored.frame(self._table, words)
        if len(self._ranges) < self._table.ranges:
            ranges = local_frame(self._transaction.storage.spark, pa.table({"h": pa.array(self._ranges, pa.string())}))
            frame = frame.join(F.broadcast(ranges), F.col("c0").cast("string") == F.col("h"), "left_semi")
        old = F.struct(*[F.col(f"c{index + 3}").alias(column.name) for index, column in enumerate(old_fields)])
        return frame.select(F.col("c1").alias("k"), F.col("c2").alias("r"), old.alias("old"))

    def _number_rows(self, rows: DataFrame) -> DataFrame:
        """Add n, which numbers equal rows of a table without a key."""
        if self._table.key:
            return rows.withColumn("n", F.lit(1))
        return rows.withColumn("n", F.row_number().over(Window.partitionBy("k").orderBy("r")))


def _frame_type(mapping: Mapping) -> StructType:
    """Return the Spark schema of a changes frame."""
    positions = [StructField(name, LongType()) for name in ("commit_lsn", "seq", "position")]
    rows = [StructField("old", _struct_type(old_columns(mapping))), StructField("new", _struct_type(mapping.local.columns))]
    return StructType([*positions, StructField("op", StringType()), *rows, StructField("unchanged", ArrayType(StringType()))])


def _struct_type(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(column.name, spark_type(column.type_oid, column.typmod)) for column in columns])
