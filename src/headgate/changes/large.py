"""Large batches, netted and joined by Spark: those that the driver cannot hold, or cannot replay. Called by `merge`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.changes import net
from headgate.changes.lookup import RowKey
from headgate.changes.merged import KeyConflict, Merged, MergeStrategy
from headgate.lsn import Lsn
from headgate.storage.delta import file_statistics
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row, columns

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation


@dataclass(frozen=True)
class Summary:
    """What one pass over a batch tells: `truncated` is the place of the last TRUNCATE; the key's first column lies between two values."""

    changes: int
    keys: int
    """How many it names, within some hundredths; where rows get other keys, up to twice as many."""
    inserts: int
    moves: int
    unsent: int
    """Changes that lack TOAST values."""
    truncated: Column | None
    least: pa.Scalar
    most: pa.Scalar


def summary_of(frame: DataFrame, relation: Relation, key: RowKey) -> Summary:
    """One pass over the batch: how many changes of which kind, the last TRUNCATE, the range of the key's first column."""
    first = quoted(key.names[0]) if key.names else None
    unsent = F.col("unchanged").isNotNull() if "unchanged" in frame.columns else F.lit(False)
    of_new = F.col(f"new.{first}") if first and key.exact[0] else F.lit(None).cast("string")
    row = frame.agg(
        F.count("*").alias("changes"),
        F.approx_count_distinct(net.named(key)).alias("keys"),
        F.count_if(F.col("op") == "I").alias("inserts"),
        F.count_if(net.moved(key)).alias("moves"),
        F.count_if(unsent).alias("unsent"),
        F.max(F.when(F.col("op") == "T", net.order())).alias("truncated"),
        F.min(of_new).alias("least"),
        F.max(of_new).alias("most"),
    ).toArrow()
    truncated = row["truncated"][0].as_py()
    at = None if truncated is None else _order_literal(truncated)
    counts = {name: row[name][0].as_py() for name in ("changes", "keys", "inserts", "moves", "unsent")}
    return Summary(**counts, truncated=at, least=row["least"][0], most=row["most"][0])


def _order_literal(at: dict[str, int]) -> Column:
    return F.struct(*[F.lit(at[n]).cast("bigint").alias(n) for n in ("commit_lsn", "seq", "position")])


def merge_large(
    transaction: Transaction,
    relation: Relation,
    key: RowKey,
    frame: DataFrame,
    summary: Summary,
    strategy: MergeStrategy | None,
    *,
    by_tasks: bool = False,
) -> Merged:
    """Applies a batch without TRUNCATE whose keys name at most one row each; `merge` says what the arguments are.

    `by_tasks`: the driver reads and writes no rows, however few they are.
    """
    if strategy is None and summary.inserts == summary.changes and _outside(transaction, relation, key, summary):
        distinct = frame.select(key.value("new").alias("k")).distinct().count()
        if distinct == summary.changes:
            return Merged(transaction.append(relation, frame.select("new.*")), strategy=MergeStrategy.APPEND)
    with ExitStack() as behind:
        stored = transaction.positions(relation, by_tasks=by_tasks)
        resolved = behind.enter_context(persisted(_resolved(relation, key, frame, stored, behind, summary)))
        counted = (F.count(name).alias(name) for name in ("file", "absent"))
        totals = resolved.agg(*counted, F.min("conflict").alias("conflict")).toArrow()
        if (conflict := totals["conflict"][0].as_py()) is not None:
            return Merged(0, conflict=_conflict_of(key, frame, conflict))
        missing = 0
        if totals["absent"][0].as_py():
            whole = net.widened(frame, columns(relation))
            missing = net.missing(whole, relation, key, resolved.where("absent IS NOT NULL").select("absent"))
        if not totals["file"][0].as_py() and strategy is not MergeStrategy.POSITIONS:
            added = transaction.append(relation, resolved.where("new IS NOT NULL").select("new.*"))
            return Merged(added, missing, strategy=MergeStrategy.APPEND)
        changed = resolved.where("old IS NOT NULL OR new IS NOT NULL").drop("absent")
        return Merged(transaction.rewrite(relation, changed, by_tasks=by_tasks, is_kept=True), missing, strategy=MergeStrategy.POSITIONS)


def _outside(transaction: Transaction, relation: Relation, key: RowKey, summary: Summary) -> bool:
    """Whether no file of the table can hold a key of the batch."""
    states = [state for state in transaction.states(relation) if state.files]
    if not states:
        return True
    if not key.names or not key.exact[0] or not summary.least.is_valid:
        return False
    kind = arrow_row(relation).field(key.names[0]).type
    return not any(file_statistics.can_hold(state, key.names[0], summary.least, summary.most, kind) for state in states)


def _resolved(relation: Relation, key: RowKey, frame: DataFrame, stored: DataFrame, behind: ExitStack, summary: Summary) -> DataFrame:
    """What becomes of each key: old, new, file, row as for `rewrite`, and `conflict` (order of the change, NULL: none).

    `absent`: the key, where the batch changes a row that should be stored under it and is not.

    A few keys go to the stored rows, and the rows that have them come to the batch; with many, the batch and all stored rows meet by their
    keys. Keys are structs, never NULL themselves and equal where they hold the same NULLs, so that ``=`` is right; by ``<=>`` Spark
    would distribute anew what is by the key already. It may not guess from the size of files that the stored rows are few, and have the
    driver gather them.
    """
    row, moves, few = columns(relation), bool(summary.moves), summary.keys <= net.BROADCAST_KEYS
    state = net.net(net.widened(frame, row), relation, key, behind, moves=moves, unsent=bool(summary.unsent))
    stored = stored.select(F.struct(*[F.col(quoted(n)) for n in row.fieldNames()]).alias("old"), FILE, ROW)
    stored = stored.select(key.value("old").alias("s_key"), "old", F.col(FILE).alias("file"), F.col(ROW).alias("row"))
    if few or moves:
        state = behind.enter_context(persisted(state))
    if few:
        named = state.select("key")
        if moves:
            named = named.union(state.where("origin IS NOT NULL AND NOT (origin <=> key)").select("origin"))
        stored = stored.join(F.broadcast(named), F.col("s_key") == F.col("key"), "left_semi")
    else:
        stored = stored.hint("merge")
    joined = state.join(stored, F.col("key") == F.col("s_key"), "left").drop("s_key")
    if moves:
        source = stored.select(F.col("s_key").alias("o_key"), F.col("old").alias("origin_row"))
        joined = joined.join(source, F.col("origin") == F.col("o_key"), "left")
    else:
        joined = joined.withColumn("origin_row", F.when(F.col("origin").isNotNull(), F.col("old")))
    known = F.col("origin").isNull() | F.col("origin_row").isNotNull()
    new = F.when(F.col("alive") & known, _completed(row))
    conflict = F.coalesce(F.col("clash"), F.when(F.col("fresh") & F.col("old").isNotNull() & known, F.col("first")))
    # a row that never came (its origin is not there) leaves a key that the batch did not touch otherwise as it is stored
    untouched = F.col("alive") & ~known & F.col("fresh")
    absent = F.when(~F.col("fresh") & F.col("old").isNull(), F.col("key"))
    return joined.where(~untouched).select(
        new.cast(row).alias("new"),
        F.col("old").cast(row).alias("old"),
        "file",
        "row",
        conflict.alias("conflict"),
        absent.alias("absent"),
    )


def _completed(row: StructType) -> Column:
    """The new row, values that were never sent from the row's origin."""
    values = []
    for name in row.fieldNames():
        unsent = F.coalesce(F.array_contains("unknown", name), F.lit(False))
        values.append(F.when(unsent, F.col(f"origin_row.{quoted(name)}")).otherwise(F.col(f"new.{quoted(name)}")).alias(name))
    return F.struct(*values)


def _conflict_of(key: RowKey, frame: DataFrame, at: dict[str, int]) -> KeyConflict:
    """The key of the change at a place of the stream."""
    found = frame.where(net.order() == _order_literal(at)).select(*[F.col(f"new.{quoted(n)}").alias(n) for n in key.names]).toArrow()
    return KeyConflict(Lsn(at["commit_lsn"]), found)
