"""Applies a batch of changes to one table, equal in result whichever way it is written; staged like every write of a transaction.

    append     no stored row has one of the keys (the files' statistics say so, or a look-up found none): the rows are added
    positions  the rows with these keys are looked up and rewritten by deletion vectors

The batch's meaning is that of PostgreSQL's apply worker, one change after the other (see `replay`). Small batches are replayed
exactly by the driver; others are netted on Spark (`net`). The change rows that come of a batch are per key: a stored row whose
key is there afterwards is an UPDATE, else a DELETE, a new key an INSERT; so a batch that moves keys around can be applied by a
subscriber in any order. Nothing is written when there is a conflict.

Called by the apply worker, inside its transaction: several tables' merges and the origin's progress commit together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.changes import columnar, equal_rows, lookup, net, unique
from headgate.changes.keyed_batch import KeyedBatch, has_unsent, in_order, whole_rows
from headgate.changes.large import merge_large, summary_of
from headgate.changes.lookup import RowKey
from headgate.changes.merged import KeyConflict, Merged, MergeStrategy
from headgate.changes.replay import Replayed, Row, keys, listed, replay
from headgate.lsn import Lsn
from headgate.storage.spark.exchange import handed_over
from headgate.storage.spark.persisted import persisted
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Index, Relation

SMALL_CHANGES = 20_000
"""Frames of Spark with at most this many changes are brought to the driver and replayed there."""
SLICE = 200_000
"""Changes that are replayed one by one at a time: a larger batch of the driver is several of these, one after the other."""
FEW_CHANGES = 500
"""Batches of more changes are replayed column by column if that is possible."""
STORED_BYTES = 48 << 20
"""Size, as stored, of the rows that the driver may look up for one batch."""


def merge(
    transaction: Transaction,
    relation: Relation,
    key_attnums: Sequence[int] | None,
    changes: pa.Table | DataFrame,
    *,
    strategy: MergeStrategy | None = None,
    small: int | None = None,
    others: Sequence[Index] = (),
) -> Merged:
    """Applies a batch.

    `key_attnums`: the columns that name a row (replica identity index or primary key of this relation), None: all but generated
    columns do, rows may be equal (REPLICA IDENTITY FULL). `changes`: a changes frame, an op ``T`` standing for TRUNCATE; `small`: up to
    how many changes the driver does by itself, where not the setting's (`Engine.small_batch_rows`); 0 leaves all to tasks. `strategy`
    other than the one that fits is for tests. A batch with a conflict writes nothing (but a TRUNCATE before it: roll back). `others`:
    further unique indexes (plain ones) that the new rows must not violate: 23505; where Spark does the batch, `Merged.checked` is False and
    the caller looks at the table.
    """
    transaction.lock(relation)  # what is looked up from here on is what the changes are written on
    many = key_attnums is None
    whole = [c.attnum for c in relation.columns if c.generated is None]  # the publisher does not send ours
    key = lookup.key_of(relation, whole if key_attnums is None else key_attnums)
    statistics = transaction.engine.statistics
    small = transaction.engine.small_batch_rows if small is None else small
    on_driver = isinstance(changes, pa.Table) and changes.num_rows <= small
    if on_driver and strategy is None and changes.num_rows > FEW_CHANGES:
        changes = _after_truncate(transaction, relation, in_order(changes))
        by_column = None if many else _merge_columns(transaction, relation, key, changes, others)
        if by_column is not None:
            statistics.merged(by_spark=False)
            return by_column
        if _fits_driver(transaction, relation, changes.num_rows):
            statistics.merged(by_spark=False)
            return _merge_slices(transaction, relation, key, changes, others, many=many)
    if on_driver and changes.num_rows <= SMALL_CHANGES:
        statistics.merged(by_spark=False)
        return _merge_small(transaction, relation, key, changes, strategy, others, many=many)
    statistics.merged(by_spark=True)
    if isinstance(changes, DataFrame):
        return _merge_frame(transaction, relation, key, changes, strategy, small, others, many=many)
    engine = transaction.engine
    with handed_over(engine.spark, changes, engine.exchange if engine.on_cluster else None) as frame:
        return _merge_frame(transaction, relation, key, frame, strategy, small, others, many=many)


def _merge_frame(
    transaction: Transaction,
    relation: Relation,
    key: RowKey,
    frame: DataFrame,
    strategy: MergeStrategy | None,
    small: int,
    others: Sequence[Index],
    *,
    many: bool,
) -> Merged:
    with contextlib.nullcontext(frame) if frame.is_cached else persisted(frame) as held:
        summary = summary_of(held, relation, key)
        if summary.changes <= min(small, SMALL_CHANGES):
            return _merge_small(transaction, relation, key, held.toArrow(), strategy, others, many=many)
        if summary.truncated is not None:
            transaction.truncate([relation])
            held_after = held.where(net.order() > F.lit(summary.truncated)).where("op <> 'T'")
        else:
            held_after = held
        if many:
            done = equal_rows.rewrite(transaction, relation, key, held_after, by_tasks=not small)
            if done is None:  # a changed row is not there: change by change
                return _merge_small(transaction, relation, key, held_after.toArrow(), None, others, many=True)
            return Merged(done, strategy=MergeStrategy.POSITIONS)
        return merge_large(transaction, relation, key, held_after, summary, strategy, by_tasks=not small)


def _merge_small(
    transaction: Transaction,
    relation: Relation,
    key: RowKey,
    changes: pa.Table,
    strategy: MergeStrategy | None,
    others: Sequence[Index],
    *,
    many: bool,
) -> Merged:
    changes = _after_truncate(transaction, relation, in_order(changes))
    if not changes.num_rows:
        return Merged(0, checked=True)
    batch = KeyedBatch.of(relation, key, changes)
    transaction.lock(relation)
    found = lookup.find(transaction, relation, key, batch.wanted())
    found = found.sort_by([("file", "ascending"), ("row", "ascending")])
    stored = _struct(found, "old")
    done = replay(keys([listed(a) for a in key.arrays(stored)], len(stored)), batch.steps(), many=many)
    if done.conflict is not None:
        at = done.conflict.change
        return Merged(0, conflict=KeyConflict(Lsn(changes["commit_lsn"][at].as_py()), _key_row(key, batch.new, at)))
    changed = _changed(found, stored, batch, done, many=many)
    _check_others(transaction, relation, others, changed)
    count, used = _write(transaction, relation, key, changed, strategy)
    return Merged(count, done.missing, strategy=used, checked=True, skipped=_taken(changes, done.skipped))


def _taken(changes: pa.Table, places: Sequence[int]) -> pa.Table | None:
    return changes.take(pa.array(places, pa.int64())) if len(places) else None


def _merge_slices(
    transaction: Transaction, relation: Relation, key: RowKey, changes: pa.Table, others: Sequence[Index], *, many: bool
) -> Merged:
    """A large batch change by change, in slices: each is one Delta commit of the transaction."""
    total = Merged(0, checked=True)
    for first in range(0, changes.num_rows, SLICE):
        part = changes.slice(first, SLICE).combine_chunks()
        done = _merge_small(transaction, relation, key, part, None, others, many=many)
        if done.conflict is not None:
            return done
        skipped = [each for each in (total.skipped, done.skipped) if each is not None]
        total = Merged(
            total.changes + done.changes, total.missing + done.missing, strategy=done.strategy or total.strategy, checked=True,
            skipped=pa.concat_tables(skipped) if skipped else None,
        )  # fmt: skip
    return total


def _fits_driver(transaction: Transaction, relation: Relation, rows: int) -> bool:
    """Whether the driver may look up the stored rows of so many keys (of a slice at a time)."""
    states = transaction.states(relation)
    size = sum(int(add["size"]) for state in states for add in state.files.values())
    return bool(min(rows, SLICE) * size <= STORED_BYTES * max(sum(state.rows for state in states), 1))


def _merge_columns(transaction: Transaction, relation: Relation, key: RowKey, changes: pa.Table, others: Sequence[Index]) -> Merged | None:
    """A batch of any size that the driver holds (in order, without TRUNCATE), by column (`columnar`); None where that cannot be done."""
    if not changes.num_rows:
        return Merged(0, checked=True)
    ops = np.frombuffer("".join(pc.unique(changes["op"]).to_pylist()).encode(), np.uint8)
    if not key.names or not set(ops.tolist()) <= {columnar.INSERT, columnar.UPDATE, columnar.DELETE}:
        return None
    ops = ops[pc.index_in(changes["op"], pc.unique(changes["op"])).combine_chunks().to_numpy()]
    old, new = whole_rows(relation, _struct(changes, "old")), whole_rows(relation, _struct(changes, "new"))
    old_keys, new_keys = key.arrays(old), key.arrays(new)
    comparable = all(columnar.is_comparable(column.type) for column in new_keys)
    if not comparable or columnar.has_moves(ops, np.asarray(old.is_valid()), old_keys, new_keys):
        return None
    deleted = pa.array(ops == columnar.DELETE)
    named = columnar.keys_of([pc.if_else(deleted, o, n) for o, n in zip(old_keys, new_keys, strict=True)])
    states = transaction.states(relation)
    size = sum(add["size"] for state in states for add in state.files.values())
    if named.distinct.num_rows * size > STORED_BYTES * max(sum(state.rows for state in states), 1):
        return None
    transaction.lock(relation)
    found = lookup.find(transaction, relation, key, named.distinct)
    at = found["i"].to_numpy()
    stored_at = np.full(named.distinct.num_rows, -1, np.int64)
    stored_at[at] = np.arange(len(at))
    if int((stored_at >= 0).sum()) != len(at):  # several rows with one key
        return None
    done = columnar.replay(ops, named.codes, stored_at)
    if done.conflict is not None:
        lsn = Lsn(changes["commit_lsn"][done.conflict].as_py())
        return Merged(0, conflict=KeyConflict(lsn, _key_row(key, new, done.conflict)))
    old_at, new_at = pa.array(done.stored, mask=done.stored < 0), pa.array(done.latest, mask=done.latest < 0)
    held = {name: _struct(found, name).take(old_at) for name in ("old", "file", "row")}
    last = new.take(new_at)
    if has_unsent(changes):
        last = _with_unsent(last, new, held["old"], _unsent(changes["unchanged"]), ops, named.codes, done)
    changed = pa.table({"old": held["old"], "new": last, "file": held["file"], "row": held["row"]})
    _check_others(transaction, relation, others, changed)
    count, used = _write(transaction, relation, key, changed, None)
    return Merged(count, done.missing, strategy=used, checked=True, skipped=_taken(changes, done.skipped.tolist()))


def _unsent(lists: pa.ChunkedArray) -> dict[str, NDArray[np.bool_]]:
    """For each column that some change did not send, which changes did not."""
    whole = buffers.whole(lists)
    names, parents = whole.flatten(), pc.list_parent_indices(whole).to_numpy()
    found = {}
    for name in pc.unique(names).to_pylist():
        mask = np.zeros(len(whole), np.bool_)
        mask[parents[np.asarray(pc.equal(names, name))]] = True
        found[name] = mask
    return found


def _with_unsent(
    last: pa.StructArray,
    new: pa.StructArray,
    stored: pa.StructArray,
    unsent: dict[str, NDArray[np.bool_]],
    ops: NDArray[np.uint8],
    codes: NDArray[np.int64],
    done: columnar.Outcome,
) -> pa.StructArray:
    """The last states with the values that their change did not send: those that the row was sent before, else the stored ones."""
    fields = []
    for column in last.type:
        mask = unsent.get(column.name)
        if mask is None:
            fields.append(last.field(column.name))
            continue
        at = columnar.last_sent(ops, codes, mask, done.latest)
        sent = new.field(column.name).take(pa.array(at, mask=at < 0))
        fields.append(pc.if_else(pa.array(at >= 0), sent, stored.field(column.name).cast(column.type)))
    return pa.StructArray.from_arrays(fields, fields=list(last.type), mask=last.is_null())


def _after_truncate(transaction: Transaction, relation: Relation, changes: pa.Table) -> pa.Table:
    """Empties the table if the batch does, and gives the changes after that."""
    truncates = np.flatnonzero(np.asarray(pc.equal(changes["op"], "T")))
    if not len(truncates):
        return changes
    transaction.truncate([relation])
    return changes.slice(int(truncates[-1]) + 1).combine_chunks()


def _struct(table: pa.Table, name: str) -> pa.StructArray:
    return buffers.whole(table[name])


def _key_row(key: RowKey, rows: pa.StructArray, at: int) -> pa.Table:
    return pa.table({name: rows.field(name).slice(at, 1) for name in key.names})


def _changed(found: pa.Table, stored: pa.StructArray, batch: KeyedBatch, done: Replayed, *, many: bool) -> pa.Table:
    """The changed rows in the form of `Transaction.rewrite`."""
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
        {"old": stored.take(old_at), "new": new, "file": _struct(found, "file").take(old_at), "row": _struct(found, "row").take(old_at)}
    )


def _latest(batch: KeyedBatch, stored: pa.StructArray, rows: Sequence[Row | None]) -> pa.StructArray:
    """The last state of each row; NULL for None. Values that the batch never sent come from the stored row."""
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
        kept = stored.field(column.name).take(origin).cast(column.type)
        fields.append(pc.if_else(pa.array([s is not None for s in sent], pa.bool_()), from_batch, kept))
    return pa.StructArray.from_arrays(fields, fields=list(whole.type), mask=pa.array([row is None for row in rows], pa.bool_()))


def _sent(unchanged: list[list[str] | None], row: Row | None, column: str) -> int | None:
    """The last change of a row that sent the column's value."""
    if row is None:
        return None
    return next((at for at in reversed(row.versions) if column not in (unchanged[at] or ())), None)


def _check_others(transaction: Transaction, relation: Relation, others: Sequence[Index], changed: pa.Table) -> None:
    """23505 if a new row repeats a key of another unique index."""
    if not others or not changed.num_rows:
        return
    new = _struct(changed, "new")
    rows = new.filter(new.is_valid())
    replaced = changed.filter(pc.is_valid(changed["file"]))
    for index in others:
        table = pa.table(rows.flatten(), names=[f.name for f in rows.type])
        unique.check_unique(transaction, relation, index.attnums, index.name, table, replaced)


def _write(
    transaction: Transaction, relation: Relation, key: RowKey, changed: pa.Table, strategy: MergeStrategy | None
) -> tuple[int, MergeStrategy | None]:
    if not changed.num_rows:
        return 0, None
    if changed["old"].null_count == changed.num_rows and strategy is not MergeStrategy.POSITIONS:
        rows = _struct(changed, "new")
        return transaction.append(relation, pa.table(rows.flatten(), names=[f.name for f in rows.type])), MergeStrategy.APPEND
    return transaction.rewrite(relation, changed), MergeStrategy.POSITIONS
