"""Applies a batch of changes to one table. The result does not depend on how it is written. It is staged like every write of a transaction.

    append     no stored row has one of the keys (according to the files' statistics, or a lookup): the rows are added
    positions  the rows with these keys are looked up and replaced by means of deletion vectors

The meaning of a batch is that of PostgreSQL's apply worker, one change after the other. The batch is netted column by column (`net`), or
replayed change by change if it is very small or cannot be netted (`replay`). A table in the driver and a Spark frame go through the same
kernels, which `merge` calls here or in tasks (`tasks`). The resulting change rows are per key: a stored row whose
key still exists afterwards is an UPDATE, else a DELETE, and a new key is an INSERT. So a subscriber can apply a batch that moves keys
around in any order. Nothing is written if there is a conflict.

Called by the apply worker, inside its transaction: several tables' merges and the origin's progress commit together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import DataFrame

from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup, net, tasks
from headgate.changes.key_order import untangled
from headgate.changes.keyed_batch import KeyedBatch, in_order
from headgate.changes.lookup import RowKey
from headgate.changes.replay import Replayed, Row, keys, listed, replay
from headgate.lsn import Lsn
from headgate.storage.spark import failure
from headgate.storage.spark.exchange import handed_over
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers, registry

CheckRows: TypeAlias = Callable[[pa.Table, pa.Table], None]
"""Raises 23505 if new rows, in the relation's columns, repeat a key of a unique index. The second table has the positions (`file`, `row`)
of the rows that they replace."""
SLICE = 200_000
"""The number of changes that are replayed at a time if their rows cannot all be looked up at once."""
FEW_CHANGES = 500
"""Batches of more changes than this are netted column by column if that is possible."""
STORED_BYTES = 48 << 20
"""The size in bytes, as stored, of the rows that the driver may look up for one batch."""


def merge(
    transaction: Transaction,
    relation: Relation,
    key_attnums: Sequence[int] | None,
    changes: pa.Table | DataFrame,
    *,
    check_rows: CheckRows | None = None,
) -> Merged:
    """Apply a batch to one table.

    `key_attnums`: the columns that identify a row (replica identity index or primary key). None (REPLICA IDENTITY FULL): all but the
    generated columns, and rows may be equal. `changes`: a changes frame; in a table, an op ``T`` is a TRUNCATE. `check_rows`:
    checks the new rows against further unique indexes. If they can, tasks net and write a Spark frame, and any batch if
    `small_batch_rows` is 0. Then `Merged.checked` is False, and the caller checks these indexes. A batch with a conflict writes nothing,
    except a TRUNCATE before it: roll back.
    """
    transaction.lock(relation)  # no other transaction changes the table between the lookups and the write
    storage = transaction.storage
    if isinstance(changes, pa.Table):
        changes = after_truncate(transaction, relation, in_order(changes))
        if not changes.num_rows:
            return Merged(0, checked=True)
    if key_attnums is not None and (isinstance(changes, DataFrame) or not storage.small_batch_rows):
        done = _merge_by_tasks(transaction, relation, key_attnums, changes)
        if done is not None:
            storage.statistics.merged(by_spark=True)
            return done
    storage.statistics.merged(by_spark=False)
    if isinstance(changes, DataFrame):
        changes = in_order(changes.toArrow())
    return _merge_in_driver(transaction, relation, key_attnums, changes, check_rows)


def _merge_by_tasks(
    transaction: Transaction, relation: Relation, key_attnums: Sequence[int], changes: pa.Table | DataFrame
) -> Merged | None:
    """Apply a batch of one table as a Spark job. Return None if it must be replayed change by change."""
    storage = transaction.storage
    if isinstance(changes, pa.Table):
        with handed_over(storage.spark, changes, storage.exchange if storage.on_cluster else None) as frame:
            return _merge_by_tasks_of(transaction, relation, key_attnums, frame)
    return _merge_by_tasks_of(transaction, relation, key_attnums, changes)


def _merge_by_tasks_of(transaction: Transaction, relation: Relation, key_attnums: Sequence[int], frame: DataFrame) -> Merged | None:
    table = tasks.TaskTable.of(transaction, relation, key_attnums)
    count = max(frame.sparkSession.sparkContext.defaultParallelism, 2)
    source, text = tasks.FrameSource(relation), f'merge into "{relation.name}"'
    try:
        parts, _ = tasks.Job(transaction, frame, source, (table,), text, registry.known()).run(count)
    except PythonException as error:
        if failure.from_spark(error).message != tasks.REFUSED:
            raise
        return None
    return merged_by_tasks(transaction, table, parts)


def merged_by_tasks(transaction: Transaction, table: tasks.TaskTable, parts: Sequence[tasks.Part]) -> Merged | None:
    """Stage the result of tasks for one table. Return None, and stage nothing, if the batch must be replayed change by change."""
    clashes = [part.clash for part in parts if part.clash is not None]
    if clashes or not all(part.is_netted for part in parts):
        tasks.note_left_files(transaction, [table])
        if not all(part.is_netted for part in parts):
            return None
        first = min(clashes, key=lambda clash: (clash.commit_lsn, clash.seq))
        return Merged(0, conflict=KeyConflict(Lsn(first.commit_lsn), first.key))
    changes = tasks.stage(transaction, table, parts)
    return Merged(changes, sum(part.missing for part in parts))


def _merge_in_driver(
    transaction: Transaction, relation: Relation, key_attnums: Sequence[int] | None, changes: pa.Table, check_rows: CheckRows | None
) -> Merged:
    """Apply a batch in the driver: at once, or in slices whose rows can be looked up. Each slice is one Delta commit of the transaction."""
    many = key_attnums is None
    key = lookup.identifying(relation, key_attnums)
    if changes.num_rows <= FEW_CHANGES:
        return _merge_small(transaction, relation, key, changes, check_rows, many=many)
    if not many and (done := _merge_columns(transaction, relation, key, changes, check_rows)) is not None:
        return done
    total = Merged(0, checked=True)
    size = min(SLICE, _most_rows(transaction, relation))
    for first in range(0, changes.num_rows, size):
        part = changes.slice(first, size).combine_chunks()
        merged = None if many or size >= changes.num_rows else _merge_columns(transaction, relation, key, part, check_rows)
        done = merged or _merge_small(transaction, relation, key, part, check_rows, many=many)
        if done.conflict is not None:
            return done
        skipped = [table for table in (total.skipped, done.skipped) if table is not None]
        total = Merged(
            total.changes + done.changes,
            total.missing + done.missing,
            checked=True,
            skipped=pa.concat_tables(skipped) if skipped else None,
        )
    return total


def _most_rows(transaction: Transaction, relation: Relation) -> int:
    """Return the number of stored rows that the driver may look up at once."""
    states = transaction.reader.states(relation)
    size = sum(add["size"] for state in states for add in state.files.values())
    return int(max(STORED_BYTES * max(sum(state.rows for state in states), 1) // max(size, 1), 1))


def _merge_columns(
    transaction: Transaction, relation: Relation, key: RowKey, changes: pa.Table, check_rows: CheckRows | None
) -> Merged | None:
    """Net a batch in the driver column by column (`net`). Return None if that is not possible."""
    most = _most_rows(transaction, relation)

    def find(keys: pa.Table) -> pa.Table | None:
        return lookup.find(transaction, relation, key, keys) if keys.num_rows <= most else None

    split = net.split_moves(relation, key, changes)
    done = net.net(relation, key, split, find)
    if done is None:
        return None
    if done.conflict is not None:
        new = buffers.whole(split["new"])
        return Merged(0, conflict=KeyConflict(Lsn(split["commit_lsn"][done.conflict].as_py()), _key_row(key, new, done.conflict)))
    _check_new(check_rows, done.changed)
    count = _write(transaction, relation, done.changed)
    return Merged(count, len(done.skipped), checked=True, skipped=_taken(split, done.skipped.tolist()))


def _merge_small(
    transaction: Transaction, relation: Relation, key: RowKey, changes: pa.Table, check_rows: CheckRows | None, *, many: bool
) -> Merged:
    batch = KeyedBatch.of(relation, key, changes)
    matches = lookup.find(transaction, relation, key, batch.wanted())
    matches = matches.sort_by([("file", "ascending"), ("row", "ascending")])
    stored = _struct(matches, "old")
    done = replay(keys([listed(a) for a in key.arrays(stored)], len(stored)), batch.steps(), many=many)
    if done.conflict is not None:
        at = done.conflict.change
        return Merged(0, conflict=KeyConflict(Lsn(changes["commit_lsn"][at].as_py()), _key_row(key, batch.new, at)))
    changed = _changed(matches, stored, batch, done, many=many)
    _check_new(check_rows, changed)
    count = _write(transaction, relation, changed)
    return Merged(count, done.missing, checked=True, skipped=_taken(changes, done.skipped))


def _taken(changes: pa.Table, places: Sequence[int]) -> pa.Table | None:
    return changes.take(pa.array(places, pa.int64())) if len(places) else None


def after_truncate(transaction: Transaction, relation: Relation, changes: pa.Table) -> pa.Table:
    """Empty the table if the batch has a TRUNCATE, and return the changes after it."""
    truncates = np.flatnonzero(np.asarray(pc.equal(changes["op"], "T")))
    if not len(truncates):
        return changes
    transaction.truncate([relation])
    return changes.slice(int(truncates[-1]) + 1).combine_chunks()


def _struct(table: pa.Table, name: str) -> pa.StructArray:
    return buffers.whole(table[name])


def _key_row(key: RowKey, rows: pa.StructArray, at: int) -> pa.Table:
    return pa.table({name: rows.field(name).slice(at, 1) for name in key.names})


def _changed(matches: pa.Table, stored: pa.StructArray, batch: KeyedBatch, done: Replayed, *, many: bool) -> pa.Table:
    """Return the changed rows in the form of `Transaction.rewrite`."""
    if many:
        pairs: list[tuple[int | None, Row | None]] = [(r.stored, None if r.deleted else r) for r in done.stored]
        pairs += [(None, r) for r in done.inserted]
    else:
        alive = {row.key: row for row in [*done.stored, *done.inserted] if not row.deleted}
        pairs = [(row.stored, alive.pop(row.home, None)) for row in done.stored]
        pairs += [(None, row) for row in alive.values()]
    old_at = pa.array([o for o, _ in pairs], pa.int64())
    new = _latest(batch, stored, [row for _, row in pairs])
    return pa.table(
        {"old": stored.take(old_at), "new": new, "file": _struct(matches, "file").take(old_at), "row": _struct(matches, "row").take(old_at)}
    )


def _latest(batch: KeyedBatch, stored: pa.StructArray, rows: Sequence[Row | None]) -> pa.StructArray:
    """Return the last state of each row, NULL for None. Values that the batch never sent come from the stored row."""
    last = pa.array([row.versions[-1] if row else None for row in rows], pa.int64())
    whole = batch.new.take(last)
    if batch.unchanged is None:
        return whole
    origin = pa.array([row.stored if row else None for row in rows], pa.int64())
    fields = []
    lacking = {name for names in batch.unchanged if names for name in names}
    for column in whole.type:
        if column.name not in lacking:
            fields.append(whole.field(column.name))
            continue
        sent = [_sent(batch.unchanged, row, column.name) for row in rows]
        from_batch = batch.new.field(column.name).take(pa.array(sent, pa.int64()))
        old_values = stored.field(column.name).take(origin).cast(column.type)
        fields.append(pc.if_else(pa.array([s is not None for s in sent], pa.bool_()), from_batch, old_values))
    return pa.StructArray.from_arrays(fields, fields=list(whole.type), mask=pa.array([row is None for row in rows], pa.bool_()))


def _sent(unchanged: list[list[str] | None], row: Row | None, column: str) -> int | None:
    if row is None:
        return None
    return next((at for at in reversed(row.versions) if column not in (unchanged[at] or ())), None)


def _check_new(check_rows: CheckRows | None, changed: pa.Table) -> None:
    """Check the new rows of a batch before they are written."""
    if check_rows is None or not changed.num_rows:
        return
    new = _struct(changed, "new")
    rows = new.filter(new.is_valid())
    check_rows(pa.table(rows.flatten(), names=[f.name for f in rows.type]), changed.filter(pc.is_valid(changed["file"])))


def _write(transaction: Transaction, relation: Relation, changed: pa.Table) -> int:
    if not changed.num_rows:
        return 0
    if changed["old"].null_count == changed.num_rows:
        rows = _struct(changed, "new")
        return transaction.append(relation, pa.table(rows.flatten(), names=[f.name for f in rows.type]))
    transaction.rewrite(relation, untangled(relation, changed))
    return int(changed.num_rows)


@dataclass(frozen=True)
class KeyConflict:
    """A change that makes a row whose key already exists. `key`: one row, the key's columns as stored."""

    commit_lsn: Lsn
    key: pa.Table


@dataclass(frozen=True)
class Merged:
    """The result of a merge: `changes` rows were changed, `missing` changes were skipped because their row does not exist.

    `skipped`: these changes, as they were in the frame (batches of the driver only).
    """

    changes: int
    missing: int = 0
    conflict: KeyConflict | None = None
    checked: bool = False
    skipped: pa.Table | None = None
