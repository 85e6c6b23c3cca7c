"""The tables of a node as one of its transactions sees them: digests and rows in the form of `digest`, computed on Spark.

Called by `verification`. The texts come from the same expressions that the publisher computes, with the rights of the subscription's owner
and in UTC. The driver collects one digest for each range, or the rows of a few ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.replication.subscription import Subscription
from headgate.commands.query.plan import col
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import NodeParts
from headgate.commands.subscription.row_completion import WorkerSession, owners_context, workers_settings
from headgate.sql.parser import parse
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.verify.digest import DIGESTS, DIGITS, ROWS, VALUES, Compared, marks, of_key, of_row, range_of, values_of


class Stored:
    """The reader of the node's tables (see the module)."""

    def __init__(self, node: NodeParts, subscription: Subscription, transaction: Transaction) -> None:
        context = replace(owners_context(node, transaction.cursor, subscription), settings={"TimeZone": "UTC"})
        self._session = WorkerSession(node, context, transaction, workers_settings(node.settings))
        self._transaction = transaction

    def digests(self, table: Compared, without: Sequence[str]) -> pa.Table:
        """Return the ranges of a table (`digest.DIGESTS`), without the rows whose keys have these hashes."""
        key, row = self.hashes(table)
        frame = self.frame(table, [range_of(table, table.ours), row, *([key] if without else ())])
        if without:
            frame = frame.join(self._hashes(without), frame["c2"] == F.col("h"), "left_anti")
        number = F.conv(F.substring("c1", 1, DIGITS), 16, 10).cast("bigint")
        ranges = frame.groupBy(F.col("c0").alias("range")).agg(F.count(F.lit(1)).alias("rows"), F.sum(number).alias("sum"))
        return ranges.toArrow().cast(DIGESTS)

    @staticmethod
    def hashes(table: Compared) -> list[str]:
        """Return the expressions of the hashes of a row's key and of the row."""
        return [f"md5({of_key(table, table.ours)})", of_row(table, table.ours)]

    def rows(self, table: Compared, ranges: Sequence[str]) -> pa.Table:
        """Return the rows of some ranges (`digest.ROWS`)."""
        frame = self.frame(table, [of_key(table, table.ours), marks(table.ours), range_of(table, table.ours)])
        return self._collect(frame.where(F.col("c2").cast("string").isin(list(ranges))).drop("c2"))

    def values(self, table: Compared, hashes: Sequence[str]) -> pa.Table:
        """Return the values of the rows whose keys have these hashes (`digest.VALUES`)."""
        return self._of_keys(table, values_of(table.ours), hashes).toArrow().rename_columns(VALUES.names).cast(VALUES)

    def rows_of(self, table: Compared, hashes: Sequence[str]) -> pa.Table:
        """Return the rows whose keys have these hashes (`digest.ROWS`)."""
        return self._collect(self._of_keys(table, marks(table.ours), hashes))

    def _of_keys(self, table: Compared, content: str, hashes: Sequence[str]) -> DataFrame:
        frame = self.frame(table, [of_key(table, table.ours), content])
        return frame.join(self._hashes(hashes), F.md5("c0") == F.col("h"), "left_semi")

    @staticmethod
    def _collect(frame: DataFrame) -> pa.Table:
        return frame.toArrow().rename_columns(ROWS.names).cast(ROWS)

    def _hashes(self, hashes: Sequence[str]) -> DataFrame:
        spark = self._transaction.storage.spark
        return F.broadcast(local_frame(spark, pa.table({"h": pa.array(hashes, pa.string())})))

    def frame(self, table: Compared, expressions: Sequence[str]) -> DataFrame:
        """Return the expressions over the table's rows: columns c0, c1…."""
        [statement] = parse(f"SELECT {', '.join(expressions)} {table.target}")
        plan = QueryPlanner(self._session, self._transaction).select(statement.node, None)
        return plan.frame.select(*[col(column.key).alias(f"c{index}") for index, column in enumerate(plan.columns)])
