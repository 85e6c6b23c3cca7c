"""The rows by which two versions of a table differ, as change rows of the feed: what another writer's version did.

`write` nets them: a row that a version removes and adds again (OPTIMIZE without its mark, RESTORE, an overwrite with the same rows) is no
change. Removed and added rows with the same identity key are one update. Called by `foreign_writer`; read by `feed` as it reads Delta's own
change files, a preimage directly before its postimage.
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
    """Writes the differences to ``_headgate/<version>/``; the number of changes and the size of the files.

    `single`: `after` is the version that follows `before`, so that Delta's change feed knows the changed rows; otherwise, and
    where it does not, both versions are read.
    """
    from headgate.storage.delta.foreign_writer import folder

    key = (relation.database, relation.oid)
    target = folder(engine.path(key), after.version)
    data_location.remove_tree(target)
    changed = _paired(relation, _net(relation, _signed(engine, relation, before, after, single=single)))
    with persisted(changed) as held:
        count = held.count()
        if count:
            _rows(relation, held, after).write.parquet(str(target))
    size = 0
    for file in data_location.below(target):
        if not file.name.startswith("part-"):
            continue
        if pq.read_metadata(data_location.local(target / file.name)).num_rows:
            size += file.size
        else:
            data_location.remove(target / file.name)
    return count, size


def _signed(engine: Engine, relation: Relation, before: TableState, after: TableState, *, single: bool) -> DataFrame:
    """Rows with 1 for one that is there now, -1 for one that was."""
    names = [F.col(quoted(c.name)) for c in relation.columns]
    key = (relation.database, relation.oid)
    table = engine.table(key)
    if single:
        feed = engine.spark.read.format("delta").option("readChangeFeed", "true")
        try:
            rows = feed.option("startingVersion", after.version).option("endingVersion", after.version).load(str(table.path))
            added = F.col("_change_type").isin("insert", "update_postimage")
            rows = array_column.of_files(rows, after.lists)
            return rows.select(*names, F.when(added, F.lit(1)).otherwise(F.lit(-1)).alias(_COUNT))
        except Exception:  # noqa: BLE001 (the other writer has switched the change feed off: both versions are there)
            single = False
    then = table.frame(before).select(*names, F.lit(-1).alias(_COUNT))
    return then.unionAll(table.frame(after).select(*names, F.lit(1).alias(_COUNT)))


def _net(relation: Relation, signed: DataFrame) -> DataFrame:
    names = [F.col(quoted(c.name)) for c in relation.columns]
    return signed.groupBy(*names).agg(F.sum(_COUNT).alias(_COUNT)).where(F.col(_COUNT) != 0)


def _paired(relation: Relation, net: DataFrame) -> DataFrame:
    """`old` and `new` structs, a key's removed row beside its added one; removals first, then updates, then additions."""
    row: StructType = columns(relation)
    whole = F.struct(*[F.col(quoted(name)).alias(name) for name in row.fieldNames()]).alias("row")
    each = net.select(whole, F.col(_COUNT), F.explode(F.sequence(F.lit(1), F.abs(F.col(_COUNT)))).alias("n"))
    key = relation.identity_key()
    names = [c.name for c in relation.columns if key is not None and c.attnum in key]
    keys = [F.col("row." + quoted(name)) for name in names]
    if not names:
        gone = F.col(_COUNT) < 0
        nothing = F.lit(None).cast(row)
        made = each.select(
            F.when(gone, F.col("row")).otherwise(nothing).alias("old"), F.when(gone, nothing).otherwise(F.col("row")).alias("new")
        )
        return made.orderBy(F.col("old").isNull())
    numbered = each.withColumn("n", F.row_number().over(Window.partitionBy(F.col(_COUNT) < 0, *keys).orderBy("row")))
    old = numbered.where(F.col(_COUNT) < 0).select(F.col("row").alias("old"), F.col("n").alias("n_old"))
    new = numbered.where(F.col(_COUNT) > 0).select(F.col("row").alias("new"), F.col("n").alias("n_new"))
    same: list[Column] = [F.col("old." + quoted(name)).eqNullSafe(F.col("new." + quoted(name))) for name in names]
    matched = reduce(lambda one, other: one & other, same, F.col("n_old") == F.col("n_new"))
    place = F.when(F.col("new").isNull(), 0).when(F.col("old").isNull(), 2).otherwise(1)
    order = [F.coalesce(F.col("new." + quoted(name)), F.col("old." + quoted(name))) for name in names]
    return old.join(new, matched, "full_outer").select("old", "new").orderBy(place, *order)


def _rows(relation: Relation, changed: DataFrame, state: TableState) -> DataFrame:
    """Change rows under the names that the table's files have."""

    def side(name: str, change: str) -> Column:
        values = [F.col(f"{name}.{quoted(c.name)}").alias(c.name) for c in relation.columns]
        return F.struct(*values, F.lit(change).alias(CHANGE))

    rows = (
        F.when(F.col("old").isNull(), F.array(side("new", "insert")))
        .when(F.col("new").isNull(), F.array(side("old", "delete")))
        .otherwise(F.array(side("old", "update_preimage"), side("new", "update_postimage")))
    )
    exploded = array_column.to_files(changed.select(F.explode(rows).alias("e")).select("e.*"), state.lists)
    kept = [F.col(quoted(c.name)).alias(state.physical.get(c.name, c.name)) for c in relation.columns]
    return exploded.select(*kept, CHANGE)
