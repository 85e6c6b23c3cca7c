"""What a table must be changed by to be the publisher's: compared by ranges, and made a changes frame on Spark.

Made for the table sync of a table that is to be reconciled (`subscriber.synchronization.reconciliation`), inside its transaction; the
reader is a session of the publisher's under the snapshot of the sync's slot. In order:

    ranges     digests of both sides, at once; the ranges that differ
    command    the publisher's rows of these ranges, each behind the hash of its key and its own, for the caller to stage as Parquet
    changes    staged rows and those here, joined by the hash of the key: none here → INSERT, none there → DELETE, another hash → UPDATE

The key is the one by which rows are looked for here (the local replica identity or primary key). A table without one is compared by whole
rows, which are counted: there are INSERTs and DELETEs alone. What must hold: what is held is a digest a range (16^4 at most), the rest is
Spark's; both sides write a value as the same text, as in `digest`.
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
from headgate.subscriber.apply.conversion import old_columns
from headgate.subscriber.apply.relation_map import Mapping
from headgate.types.storage import spark_type
from headgate.verify.description import described
from headgate.verify.digest import DIGESTS, copy_query, differing, digests_query, range_of
from headgate.verify.publisher import taken
from headgate.verify.stored import Stored
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.remote import RemoteRelation

_ORDER = {"D": 0, "U": 1, "I": 2}
"""A key that is written otherwise there (1.0, 1.00) is deleted and inserted, in this order."""


class Difference:
    """That of one table; see the module."""

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
        """The ranges that differ."""
        with ThreadPoolExecutor(1, "reconcile") as pool:
            asked = pool.submit(self._reader.query, digests_query(self._table, ()), len(DIGESTS))
            ours = self._stored.digests(self._table, ())
            self._ranges = differing(taken(asked.result(), DIGESTS), ours)
        return self._ranges

    @property
    def command(self) -> str:
        """The COPY of the publisher's rows: hash of the key, hash of the row, published columns."""
        return f"COPY ({copy_query(self._table, self._ranges)}) TO STDOUT"

    @property
    def columns(self) -> tuple[str, ...]:
        """The published columns that `command` brings."""
        return self._table.columns

    def changes(self, staged: DataPath, unchanged: Sequence[str]) -> DataFrame:
        """The changes frame (`_frame_type`): `staged` has Parquet files of k, r (the hashes) and new (the whole local row).

        `unchanged`: local columns that an UPDATE leaves as they are.
        """
        frame = _frame_type(self._mapping)
        new = frame["new"].dataType
        schema = StructType([StructField("k", StringType()), StructField("r", StringType()), StructField("new", new)])
        theirs = self._numbered(self._transaction.engine.spark.read.schema(schema).parquet(data_location.uri(staged)))
        both = theirs.alias("t").join(self._numbered(self._here()).alias("o"), ["k", "n"], "full_outer")
        there, here = F.col("t.r").isNotNull(), F.col("o.r").isNotNull()
        op = F.when(~here, "I").when(~there, "D").when(F.col("t.r") != F.col("o.r"), "U")
        both = both.withColumn("op", op).where("op IS NOT NULL")
        kept = F.array(*[F.lit(name) for name in unchanged]) if unchanged else F.lit(None)
        seq = F.when(F.col("op") == "D", _ORDER["D"]).when(F.col("op") == "U", _ORDER["U"]).otherwise(_ORDER["I"])
        values = {
            "commit_lsn": F.lit(0), "seq": seq, "position": F.lit(0), "op": F.col("op"),
            "old": F.when(F.col("op") == "D", F.col("old")), "new": F.when(F.col("op") != "D", F.col("new")),
            "unchanged": F.when(F.col("op") == "U", kept),
        }  # fmt: skip
        return both.select(*[values[field.name].cast(field.dataType).alias(field.name) for field in frame.fields])

    def _here(self) -> DataFrame:
        """The rows here of the ranges that differ: k, r, old."""
        named: list[Column] = old_columns(self._mapping)
        words = [
            range_of(self._table, self._table.ours),
            *self._stored.hashes(self._table),
            *(quote_ident(column.name) for column in named),
        ]
        frame = self._stored.frame(self._table, words)
        if len(self._ranges) < self._table.ranges:
            wanted = local_frame(self._transaction.engine.spark, pa.table({"h": pa.array(self._ranges, pa.string())}))
            frame = frame.join(F.broadcast(wanted), F.col("c0").cast("string") == F.col("h"), "left_semi")
        old = F.struct(*[F.col(f"c{place + 3}").alias(column.name) for place, column in enumerate(named)])
        return frame.select(F.col("c1").alias("k"), F.col("c2").alias("r"), old.alias("old"))

    def _numbered(self, rows: DataFrame) -> DataFrame:
        """With n, by which equal rows of a table without a key are told apart."""
        if self._table.key:
            return rows.withColumn("n", F.lit(1))
        return rows.withColumn("n", F.row_number().over(Window.partitionBy("k").orderBy("r")))


def _frame_type(found: Mapping) -> StructType:
    """The schema of a changes frame for Spark."""
    places = [StructField(name, LongType()) for name in ("commit_lsn", "seq", "position")]
    rows = [StructField("old", _struct_type(old_columns(found))), StructField("new", _struct_type(found.local.columns))]
    return StructType([*places, StructField("op", StringType()), *rows, StructField("unchanged", ArrayType(StringType()))])


def _struct_type(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(c.name, spark_type(c.type_oid, c.typmod)) for c in columns])
