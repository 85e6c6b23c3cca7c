"""The rows by which two versions of a table differ, as change rows of the feed: the effect of another writer's version.

`write` computes the net difference: a row that a version removes and adds again (OPTIMIZE without its mark, RESTORE, an overwrite with the
same rows) is not a change. Removed and added rows with the same identity key are one update. Called by `foreign_writer`; `feed` reads the
result like Delta's own change files, a preimage directly before its postimage.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.storage.delta import array_column
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted
from headgate.storage.write import CHANGE, columns
from headgate.types.storage import own_name

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation
    from headgate.storage.engine import Engine

_COUNT = own_name("_count")


def write(engine: Engine, relation: Relation, before: TableState, after: TableState, *, single: bool) -> tuple[int, int]:
    """Write the differences to ``_headgate/<version>/``. Return the number of changes and the size of the files in bytes.

    `single`: `after` is the version that follows `before`, so that Delta's change feed can return the changed rows. Otherwise, or if the
    feed is disabled, both versions are read.
    """
    from headgate.storage.delta.foreign_writer import folder

    key = (relation.database, relation.oid)
    target = folder(engine.path(key), after.version)
    data_location.remove_tree(target)
    changed = _pair_rows(relation, _net(relation, _with_signs(engine, relation, before, after, single=single)))
    with persisted(changed) as rows:
        count = rows.count()
        if count:
            _rows(relation, rows, after).write.parquet(str(target))
    size = 0
    for file in data_location.below(target):
        if not file.name.startswith("part-"):
            continue
        if pq.read_metadata(data_location.local(target / file.name)).num_rows:
            size += file.size
        else:
            data_location.remove(target / file.name)
    return count, size


def _with_signs(engine: Engine, relation: Relation, before: TableState, after: TableState, *, single: bool) -> DataFrame:
    """Return rows with 1 for one that exists now, -1 for one that existed before."""
    names = [F.col(quoted(column.name)) for column in relation.columns]
    key = (relation.database, relation.oid)
    table = engine.table(key)
    if single:
        feed = engine.spark.read.format("delta").option("readChangeFeed", "true")
        try:
            rows = feed.option("startingVersion", after.version).option("endingVersion", after.version).load(str(table.path))
            added = F.col("_change_type").isin("insert", "update_postimage")
            rows = array_column.of_files(rows, after.lists)
            return rows.select(*names, F.when(added, F.lit(1)).otherwise(F.lit(-1)).alias(_COUNT))
        except Exception:  # noqa: BLE001 (the other writer has disabled the change feed: both versions can be read)
            single = False
    then = table.frame(before).select(*names, F.lit(-1).alias(_COUNT))
    return then.unionAll(table.frame(after).select(*names, F.lit(1).alias(_COUNT)))


def _net(relation: Relation, signed: DataFrame) -> DataFrame:
    names = [F.col(quoted(column.name)) for column in relation.columns]
    return signed.groupBy(*names).agg(F.sum(_COUNT).alias(_COUNT)).where(F.col(_COUNT) != 0)


def _pair_rows(relation: Relation, net: DataFrame) -> DataFrame:
    """Return `old` and `new` structs, a key's removed row with its added one. Removals first, then updates, then additions."""
    row: StructType = columns(relation)
    row_struct = F.struct(*[F.col(quoted(name)).alias(name) for name in row.fieldNames()]).alias("row")
    single_rows = net.select(row_struct, F.col(_COUNT), F.explode(F.sequence(F.lit(1), F.abs(F.col(_COUNT)))).alias("n"))
    key = relation.identity_key()
    names = [column.name for column in relation.columns if key is not None and column.attnum in key]
    keys = [F.col("row." + quoted(name)) for name in names]
    if not names:
        is_removed = F.col(_COUNT) < 0
        nothing = F.lit(None).cast(row)
        changes = single_rows.select(
            F.when(is_removed, F.col("row")).otherwise(nothing).alias("old"),
            F.when(is_removed, nothing).otherwise(F.col("row")).alias("new"),
        )
        return changes.orderBy(F.col("old").isNull())
    numbered = single_rows.withColumn("n", F.row_number().over(Window.partitionBy(F.col(_COUNT) < 0, *keys).orderBy("row")))
    old = numbered.where(F.col(_COUNT) < 0).select(F.col("row").alias("old"), F.col("n").alias("n_old"))
    new = numbered.where(F.col(_COUNT) > 0).select(F.col("row").alias("new"), F.col("n").alias("n_new"))
    same_key: list[Column] = [F.col("old." + quoted(name)).eqNullSafe(F.col("new." + quoted(name))) for name in names]
    matched = reduce(lambda left, right: left & right, same_key, F.col("n_old") == F.col("n_new"))
    place = F.when(F.col("new").isNull(), 0).when(F.col("old").isNull(), 2).otherwise(1)
    order = [F.coalesce(F.col("new." + quoted(name)), F.col("old." + quoted(name))) for name in names]
    return old.join(new, matched, "full_outer").select("old", "new").orderBy(place, *order)


def _rows(relation: Relation, changed: DataFrame, state: TableState) -> DataFrame:
    """Return change rows with the column names of the table's files."""

    def side(name: str, change: str) -> Column:
        values = [F.col(f"{name}.{quoted(column.name)}").alias(column.name) for column in relation.columns]
        return F.struct(*values, F.lit(change).alias(CHANGE))

    rows = (
        F.when(F.col("old").isNull(), F.array(side("new", "insert")))
        .when(F.col("new").isNull(), F.array(side("old", "delete")))
        .otherwise(F.array(side("old", "update_preimage"), side("new", "update_postimage")))
    )
    exploded = array_column.to_files(changed.select(F.explode(rows).alias("e")).select("e.*"), state.lists)
    selected = [F.col(quoted(column.name)).alias(state.physical.get(column.name, column.name)) for column in relation.columns]
    return exploded.select(*selected, CHANGE)
