"""Applies changes to a partitioned table: selects the key that finds rows, and splits a batch by leaf (execReplication.c, worker.c).

PostgreSQL first finds the leaf of each change, by the old row if one was sent, else by the new one. There it finds the row by the leaf's
own replica identity or primary key. If all leaves have the same key and it contains the partition columns, looking the key up in the
table as a whole gives the same result. Then rows may move between leaves (`storage.partitioned`). Otherwise each leaf gets its own part
of the batch, and an UPDATE that would move a row is rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.catalog.relation.relation import Relation
from headgate.changes.keyed_batch import in_order, whole_rows
from headgate.changes.merge import Merged, after_truncate, merge
from headgate.errors import PostgresError, not_supported
from headgate.storage.partitioned import Fence, of_root, ordered
from headgate.storage.routing import NOWHERE, cut
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted
from headgate.storage.transaction.partitioned_table import PartitionedTable
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows import conflict
from headgate.subscriber.rows.relation_map import key_names, key_of, no_key
from headgate.types import buffers
from headgate.types.storage import own_name
from headgate.types.text.text import write_text

_log = logging.getLogger("headgate.subscriber")

LEAF, _PLACED = own_name("_leaf"), own_name("_placed")


class Complete(Protocol):
    """Completes and checks the new rows of a batch for one relation, in parts (`updated_rows.completed`)."""

    def __call__(
        self, frame: pa.Table | DataFrame, local: Relation, key: tuple[int, ...] | None, *, routed_from: Relation | None = None
    ) -> Iterator[pa.Table | DataFrame]: ...


def apply(
    transaction: Transaction, root: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, complete: Complete
) -> Iterator[Merged]:
    """Merge a batch into a partitioned table, in parts. `key` is that of `with_identity_of_leaves`."""
    table = transaction.partitioned(root)
    if has_one_key(table, key):
        for part in complete(frame, root, key):
            yield merge(transaction, root, key, part)
        return
    if isinstance(frame, pa.Table):
        frame = after_truncate(transaction, root, in_order(frame))
    for leaf, of_leaf in _by_leaf(table, frame):
        for part in complete(of_leaf, leaf, key_of(leaf), routed_from=root):
            done = merge(transaction, leaf, key_of(leaf), part)
            if done.conflict is not None:
                raise duplicate_key(transaction, leaf, done.conflict.key)
            if done.skipped is not None and _log.isEnabledFor(logging.DEBUG):
                _log_changes(done.skipped, [leaf.name] * done.skipped.num_rows, of_partition=True)
            yield replace(done, skipped=None)


def has_one_key(table: PartitionedTable, key: tuple[int, ...] | None) -> bool:
    """Return whether rows are found in the table as a whole: all leaves have this key, and it contains the partition columns."""
    named = None if key is None else frozenset(column.name for column in table.root.columns if column.attnum in key)
    one_key = all(key_names(leaf) == named for leaf in table.leaves)
    return one_key and (named is None or set(table.router.key_names()) <= named)


def _by_leaf(table: PartitionedTable, frame: pa.Table | DataFrame) -> Iterator[tuple[Relation, pa.Table | DataFrame]]:
    """Yield the part of a batch without TRUNCATE for each leaf, in the leaf's columns."""
    if isinstance(frame, DataFrame):
        yield from _by_leaf_on_spark(table, frame)
        return
    old, new = whole_rows(table.root, buffers.whole(frame["old"])), ordered(table.root, buffers.whole(frame["new"]))
    ops = buffers.whole(frame["op"])
    by_old = pc.and_(old.is_valid(), pc.not_equal(ops, "I"))
    here = _leaves_of(table, pc.if_else(by_old, old, new))
    there = _leaves_of(table, new)
    if ((here != there) & np.asarray(pc.equal(ops, "U")) & ~_lacks_route(table, frame)).any():
        raise _no_move(table.root)
    for number, leaf in enumerate(table.leaves):
        at = pa.array(np.flatnonzero(here == number))
        if not len(at):
            continue
        part = frame.take(at)
        touched = part.filter(pc.is_in(part["op"], pa.array(["U", "D"])))
        if touched.num_rows and key_of(leaf) is None and not _is_full(table.root, frame):
            raise no_key(table.root)
        names = [column.name for column in leaf.columns if (key := key_of(leaf)) is None or column.attnum in key]
        narrow = _narrow(old.take(at), names)
        part = part.set_column(part.column_names.index("old"), "old", narrow)
        yield leaf, part.set_column(part.column_names.index("new"), "new", ordered(leaf, new.take(at)))


def _lacks_route(table: PartitionedTable, frame: pa.Table) -> np.ndarray:
    """Return a mask of the changes that did not send a partition column. Their rows stay in their leaf."""
    lists = buffers.whole(frame["unchanged"])
    lacks = np.zeros(frame.num_rows, np.bool_)
    named = pc.is_in(lists.flatten(), pa.array(table.router.key_names(), pa.string()))
    lacks[pc.list_parent_indices(lists).to_numpy()[np.asarray(named)]] = True
    return lacks


def _by_leaf_on_spark(table: PartitionedTable, frame: DataFrame) -> Iterator[tuple[Relation, DataFrame]]:
    old_row, new_row = (frame.schema[side].dataType for side in ("old", "new"))
    assert isinstance(old_row, StructType)
    assert isinstance(new_row, StructType)
    held = set(old_row.fieldNames())
    padded = [(F.col(f"old.{quoted(f.name)}") if f.name in held else F.lit(None).cast(f.dataType)).alias(f.name) for f in new_row.fields]
    by_old = F.col("old").isNotNull() & (F.col("op") != "I")
    placed = frame.withColumn(_PLACED, F.when(by_old, F.struct(*padded)).otherwise(F.col("new")))
    with persisted(placed.withColumn(LEAF, table.place_column(f"{_PLACED}.")).drop(_PLACED)) as placed:
        routed = F.array(*[F.lit(name) for name in table.router.key_names()])
        sent = placed.where("op = 'U'").where(~F.coalesce(F.arrays_overlap("unchanged", routed), F.lit(False)))
        moved = sent.where(table.place_column("new.") != F.col(LEAF))
        if not moved.limit(1).isEmpty():
            raise _no_move(table.root)
        for number, leaf in enumerate(table.leaves):
            part = placed.where(F.col(LEAF) == number).drop(LEAF)
            names = [column.name for column in leaf.columns if (key := key_of(leaf)) is None or column.attnum in key]
            old = F.when(F.col("old").isNotNull(), F.struct(*[F.col(f"old.{quoted(name)}").alias(name) for name in names]))
            new = F.when(F.col("new").isNotNull(), F.struct(*[F.col(f"new.{quoted(c.name)}").alias(c.name) for c in leaf.columns]))
            yield leaf, part.withColumns({"old": old, "new": new})


def _leaves_of(table: PartitionedTable, rows: pa.StructArray) -> np.ndarray:
    """Return the leaf of each row, NOWHERE for NULL rows. Raise 23514 for a row that has no leaf."""
    places = np.full(len(rows), NOWHERE, np.int32)
    at = np.flatnonzero(np.asarray(rows.is_valid()))
    if len(at):
        alive = rows.take(pa.array(at))
        places[at] = table.places(pa.table(alive.flatten(), names=[field.name for field in alive.type]))
    return places


def _narrow(old: pa.StructArray, names: list[str]) -> pa.StructArray:
    return pa.StructArray.from_arrays([old.field(name) for name in names], names=names, mask=old.is_null())


def _is_full(root: Relation, frame: pa.Table) -> bool:
    return bool(frame.schema.field("old").type.num_fields == len(root.columns))


def _no_move(root: Relation) -> PostgresError:
    return not_supported(
        f'moving a row between partitions of logical replication target relation "{root.schema}.{root.name}" is not supported',
        hint="Create a primary key on all partitions that includes the partition columns.",
    )


# ---- rows of one leaf -------------------------------------------------------------------------------------------------


def duplicate_key(transaction: Transaction, relation: Relation, key: pa.Table) -> PostgresError:
    """Return the 23505 error for a row whose key (columns by name, one row) exists. In a partitioned table it names the leaf."""
    if relation.is_partitioned:
        table = transaction.partitioned(relation)
        if set(table.router.key_names()) <= set(key.column_names):
            relation = table.leaves[int(table.places(key)[0])]
    return conflict.duplicate_key(relation, tuple(c.attnum for c in relation.columns if c.name in key.column_names), key)


def log_skipped(transaction: Transaction, relation: Relation, skipped: pa.Table) -> None:
    """Log, at DEBUG1, the changes whose row does not exist, with the leaf in which it was searched."""
    names = [relation.name] * skipped.num_rows
    if relation.is_partitioned:
        table = transaction.partitioned(relation)
        old, new = whole_rows(relation, buffers.whole(skipped["old"])), ordered(relation, buffers.whole(skipped["new"]))
        places = _leaves_of(table, pc.if_else(old.is_valid(), old, new))
        names = [table.leaves[place].name for place in places.tolist()]
    _log_changes(skipped, names, of_partition=relation.is_partitioned)


def _log_changes(skipped: pa.Table, names: list[str], *, of_partition: bool) -> None:
    for op, name in zip(skipped["op"].to_pylist(), names, strict=True):
        missing = "logical replication did not find row to be"
        if op == "D":
            _log.debug('%s deleted in replication target relation "%s"', missing, name)
        else:
            _log.debug('%s updated in replication target relation%s "%s"', missing, "'s partition" if of_partition else "", name)


def refuse_outside(transaction: Transaction, leaf: Relation, frame: pa.Table | DataFrame) -> None:
    """Raise 23514 if a row of a batch for a partition is outside its bounds.

    Rows without a value of a partition column are not checked here: in a Spark frame they stay in place, others are left to `updated_rows`.
    """
    fence = Fence(transaction.cursor, leaf)
    if not fence.above:
        return
    if isinstance(frame, DataFrame):
        names = F.array(*[F.lit(name) for name in fence.names])
        alive = frame.where("new IS NOT NULL").where(~F.coalesce(F.arrays_overlap("unchanged", names), F.lit(False))).select("new.*")
        rows = of_root(leaf, alive.where(fence.column()).limit(1).toArrow())
    else:
        structs = buffers.whole(frame["new"].filter(pc.equal(frame["op"], "I")))
        rows = pa.table(structs.flatten(), names=[field.name for field in structs.type])
    refuse_rows_outside(fence, rows)


def refuse_rows_outside(fence: Fence, rows: pa.Table) -> None:
    """Raise 23514 for the first row outside the bounds of a partition."""
    row = fence.first_outside(rows) if rows.num_rows else None
    if row is None:
        return
    leaf = fence.relation
    texts = [write_text(rows[c.name].slice(row, 1), c.type_oid)[0].as_py() for c in leaf.columns]
    shown = ", ".join("null" if value is None else cut(value) for value in texts)
    raise PostgresError(
        "23514", f'new row for relation "{leaf.name}" violates partition constraint', detail=f"Failing row contains ({shown}).",
        schema=leaf.schema, table=leaf.name,
    )  # fmt: skip
