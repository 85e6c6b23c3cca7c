"""The net effect of a batch of changes on one table: the last state of each key, for batches of any size, on Spark.

Out of a changes frame comes one row per key that the batch names:

    key      struct       the key, canonical (`lookup.RowKey`)
    alive    boolean      whether a row has this key after the batch
    origin   struct       key of the stored row that it comes from; NULL: an INSERT of the batch made it
    new      struct       the row, where alive
    unknown  array        columns of `new` whose TOAST value the batch never sent: the origin's stored value stays
    fresh    boolean      the key's first change makes a row: a stored row with this key is a conflict
    first    struct       (commit_lsn, seq, position) of the key's first change
    clash    struct       the same of a change that makes a second row with this key inside the batch; NULL: none

Without key-changing UPDATEs one aggregation does it. With them, each key's changes are cut into segments, a segment being the time
that one row spends under one key, and a segment that begins with an UPDATE continues the one that the same UPDATE ended:

    stored 1, 2; U 1→9, U 2→1, U 9→2 (a swap)
    key 1: [stored 1] ends at c1, [from 2] begins at c2      key 2: [stored 2] ends at c2, [from 9] begins at c3
    key 9: [from 1] begins at c1, ends at c3                 so: 1 alive from 2, 2 alive from 9 from 1, 9 not alive
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.changes.lookup import RowKey
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted
from headgate.storage.write import columns

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation

BROADCAST_KEYS = 200_000
"""Up to so many keys go to all tasks that read the stored rows; they pass through the driver."""
_MOST_STEPS = 64


def order() -> Column:
    """The place of a change in the stream, as a struct that orders."""
    return F.struct("commit_lsn", "seq", "position")


def moved(key: RowKey) -> Column:
    """Whether a change is an UPDATE that changes the key."""
    return (F.col("op") == "U") & F.col("old").isNotNull() & ~key.value("old").eqNullSafe(key.value("new"))


def named(key: RowKey) -> Column:
    """The key under which a change leaves its row, or finds the one that it deletes."""
    return F.when(F.col("op") == "D", key.value("old")).otherwise(key.value("new"))


def net(frame: DataFrame, relation: Relation, key: RowKey, behind: ExitStack, *, moves: bool, unsent: bool) -> DataFrame:
    """The net effect of a changes frame without TRUNCATE. Good until `behind` ends.

    `moves`: whether it has key-changing UPDATEs; `unsent`: whether it lacks TOAST values, which costs two aggregates for each column.
    """
    frame, row = _with_unchanged(frame), columns(relation)
    return _with_moves(frame, row, key, behind) if moves else _by_key(frame, row, key, unsent=unsent)


def _with_unchanged(frame: DataFrame) -> DataFrame:
    return frame if "unchanged" in frame.columns else frame.withColumn("unchanged", F.lit(None).cast("array<string>"))


def missing(frame: DataFrame, relation: Relation, key: RowKey, absent: DataFrame) -> int:
    """How many changes are of rows that are not there, under whatever key; `absent`: the keys under which they should be stored."""
    row = columns(relation)
    with persisted(_segments(_with_unchanged(frame), row, key)) as segments:
        lost = _resolve(segments, row).join(absent.toDF("absent"), F.col("root") == F.col("absent"), "left_semi")
        return int(lost.agg(F.coalesce(F.sum("changes"), F.lit(0)).alias("n")).toArrow()["n"][0].as_py())


def _last_values(row: StructType, of: Column) -> list[Column]:
    """Aggregates: of each column the last value that was sent (v0, v1…) and whether one was (s0, s1…)."""
    found = []
    for i, name in enumerate(row.fieldNames()):
        sent = of & ~F.coalesce(F.array_contains("unchanged", name), F.lit(False))
        found.append(F.max_by(F.col(f"new.{quoted(name)}"), F.when(sent, F.col("o"))).alias(f"v{i}"))
        found.append(F.max(sent).alias(f"s{i}"))
    return found


def _assembled(row: StructType) -> tuple[Column, Column]:
    """`new` and `unknown` of these aggregates."""
    new = F.struct(*[F.col(f"v{i}").alias(n) for i, n in enumerate(row.fieldNames())])
    unknown = F.array_compact(F.array(*[F.when(~F.col(f"s{i}"), F.lit(n)) for i, n in enumerate(row.fieldNames())]))
    return new, unknown


def _by_key(frame: DataFrame, row: StructType, key: RowKey, *, unsent: bool) -> DataFrame:
    keyed = frame.withColumns({"o": order(), "key": named(key)})
    inserts, deletes = F.count_if(F.col("op") == "I"), F.count_if(F.col("op") == "D")
    state = keyed.groupBy("key").agg(
        F.max_by(F.struct("op", "new"), "o").alias("last"),
        F.min_by(F.struct("op", "o"), "o").alias("first"),
        inserts.alias("inserts"),
        deletes.alias("deletes"),
        F.max(F.when(F.col("op") == "I", F.col("o"))).alias("last_insert"),
        *(_last_values(row, F.col("op") != "D") if unsent else ()),
    )
    new, unknown = _assembled(row) if unsent else (F.col("last.new"), F.lit(None).cast("array<string>"))
    alive, fresh = F.col("last.op") != "D", F.col("first.op") == "I"
    there = F.when(fresh, 0).otherwise(1)
    return state.select(
        "key",
        alive.alias("alive"),
        F.when(alive & (F.col("inserts") == 0), F.col("key")).alias("origin"),
        F.when(alive, new).alias("new"),
        F.when(alive, unknown).alias("unknown"),
        fresh.alias("fresh"),
        F.col("first.o").alias("first"),
        F.when(there + F.col("inserts") - F.col("deletes") > 1, F.col("last_insert")).alias("clash"),
    )


def _with_moves(frame: DataFrame, row: StructType, key: RowKey, behind: ExitStack) -> DataFrame:
    segments = behind.enter_context(persisted(_segments(frame, row, key)))
    resolved = _resolve(segments, row)
    last = Window.partitionBy("key").orderBy(F.col("segment").desc())
    newest = resolved.withColumn("_n", F.row_number().over(last)).where("_n = 1").drop("clash", "begin", "start")
    heads = segments.groupBy("key").agg(
        F.min("begin").alias("first"), F.min_by("start", "begin").alias("first_start"), F.min("clash").alias("clash")
    )
    new, unknown = _assembled(row)
    return newest.join(heads, "key").select(
        "key",
        "alive",
        F.when(F.col("alive"), F.col("root")).alias("origin"),
        F.when(F.col("alive"), new).alias("new"),
        F.when(F.col("alive"), unknown).alias("unknown"),
        (F.col("first_start") != "stored").alias("fresh"),
        "first",
        "clash",
    )


def _segments(frame: DataFrame, row: StructType, key: RowKey) -> DataFrame:
    """One row per segment: key, segment, start (stored, insert, move), begin, finish (order of its end, NULL: alive), changes, values.

    A change of the key is one of the changes of the segment that it ends.
    """
    old, new, is_move = key.value("old"), key.value("new"), moved(key)

    def event(at: Column, leaves: bool, start: Column) -> Column:
        return F.struct(at.alias("key"), F.lit(leaves).alias("leaves"), start.alias("start"))

    nothing = F.lit(None).cast("string")
    events = (
        F.when(F.col("op") == "I", F.array(event(new, False, F.lit("insert"))))
        .when(F.col("op") == "D", F.array(event(old, True, nothing)))
        .when(is_move, F.array(event(old, True, nothing), event(new, False, F.lit("move"))))
        .otherwise(F.array(event(new, False, nothing)))
    )
    exploded = frame.select(order().alias("o"), "new", "unchanged", F.explode(events).alias("e")).select("o", "new", "unchanged", "e.*")
    by_key = Window.partitionBy("key").orderBy("o", F.col("leaves").desc())
    marked = exploded.withColumns(
        {
            "segment": F.sum(F.when(F.col("start").isNotNull(), 1).otherwise(0)).over(by_key),
            "before": F.lag("leaves").over(by_key),
        }
    )
    return marked.groupBy("key", "segment").agg(
        F.coalesce(F.max("start"), F.lit("stored")).alias("start"),
        F.min("o").alias("begin"),
        F.max(F.when(F.col("leaves"), F.col("o"))).alias("finish"),
        F.count_if(F.col("start").isNull() | (F.col("start") != "move")).alias("changes"),
        F.min(F.when(F.col("start").isNotNull() & ~F.col("before"), F.col("o"))).alias("clash"),
        *_last_values(row, ~F.col("leaves")),
    )


def _resolve(segments: DataFrame, row: StructType) -> DataFrame:
    """Follows the segments that began with a move to the row's origin: columns `root` (key of the stored row, NULL: inserted), `alive`."""
    count = len(row.fields)
    values = [name for i in range(count) for name in (f"v{i}", f"s{i}")]
    parents = segments.where("finish IS NOT NULL").select(
        F.col("finish").alias("p_finish"),
        F.col("start").alias("p_start"),
        F.col("begin").alias("p_begin"),
        F.col("key").alias("p_key"),
        *[F.col(v).alias(f"p_{v}") for v in values],
    )
    current = segments.withColumns(
        {"link": F.when(F.col("start") == "move", F.col("begin")), "root": F.when(F.col("start") == "stored", F.col("key"))}
    )
    for _ in range(_MOST_STEPS):
        if current.where("link IS NOT NULL").isEmpty():
            break
        stepped = current.join(parents, F.col("link") == F.col("p_finish"), "left")
        taken = {}
        for i in range(count):
            taken[f"v{i}"] = F.when(F.col(f"s{i}"), F.col(f"v{i}")).otherwise(F.col(f"p_v{i}"))
            taken[f"s{i}"] = F.col(f"s{i}") | F.coalesce(F.col(f"p_s{i}"), F.lit(False))
        taken["root"] = F.when(F.col("p_start") == "stored", F.col("p_key")).otherwise(F.col("root"))
        taken["link"] = F.when(F.col("p_start") == "move", F.col("p_begin"))
        current = stepped.withColumns(taken).select(*segments.columns, "link", "root").localCheckpoint()
    return current.withColumn("alive", F.col("finish").isNull())


def widened(frame: DataFrame, row: StructType) -> DataFrame:
    """The frame with `old` and `new` as structs of all columns of the relation."""

    def whole(side: str) -> Column:
        held = set(frame.schema[side].dataType.fieldNames())  # type: ignore[attr-defined]
        values = [(F.col(f"{side}.{quoted(f.name)}") if f.name in held else F.lit(None)).cast(f.dataType).alias(f.name) for f in row.fields]
        return F.when(F.col(side).isNotNull(), F.struct(*values)).cast(row)

    return frame.withColumns({"old": whole("old"), "new": whole("new")})
