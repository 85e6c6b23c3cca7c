"""A relation's changes as CopyData frames of pgoutput: Spark judges, Arrow renders, NumPy encodes.

`small` takes the writes that the driver can read at once, `large` one write of any size in bounded memory. Both give
`Rendered` pieces whose frames are in log order. Called by `stream`. The stages are those of the one data path: feed →
actions → filter → columns → text → encode. What goes through Spark is no more than the filter needs: its columns in,
the operation as which a change is sent out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.changes import filter as change_filter
from headgate.changes import project
from headgate.pgoutput import encode
from headgate.pgoutput.encode import Frames
from headgate.publisher.published import FILTERED, Action, Published, identity_columns
from headgate.storage import feed, spool
from headgate.storage.local import local_frame
from headgate.storage.log import TableWrite
from headgate.types import binary, buffers, text

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from headgate.catalog.relation import Column
    from headgate.storage.engine import Engine

Numbers = npt.NDArray[np.int64]
LSN_PER_CHANGE = 8


@dataclass(frozen=True)
class Form:
    """How values are written: the settings of the walsender's session, and pgoutput's option `binary`."""

    binary: bool = False
    timezone: str = "UTC"
    extra_float_digits: int = 3
    bytea_output: str = "hex"


@dataclass(frozen=True)
class Rendered:
    """Frames of one relation, ascending in `lsn`."""

    frames: Frames
    lsn: Numbers


def small(engine: Engine, plan: Published, writes: Sequence[TableWrite], form: Form, send_time: int) -> Rendered | None:
    """The published changes of these writes; None if the driver should not read them at once."""
    table = feed.small(engine, plan.relation, writes)
    if table is None:
        return None
    if table.num_rows and not plan.unfiltered:
        frame = _frame(engine, _narrow(table, plan).append_column(_PLACE, pa.array(np.arange(table.num_rows))))
        found = _judged(frame, plan).select(_PLACE, "op").toArrow()
        kept = found[_PLACE].combine_chunks()
        table = table.take(kept).set_column(table.schema.get_field_index("op"), "op", found["op"])
    else:
        table = _published_actions(table, plan)
    return _rendered(table, plan, writes, form, send_time)


def large(engine: Engine, plan: Published, write: TableWrite, form: Form, send_time: int) -> Iterator[Rendered]:
    """The published changes of one write, piece by piece.

    Spark reads the filter's columns alone and gives one byte for each change (`_verdicts`); the rows themselves are read once,
    in order, by the driver. Memory: that byte, and one piece.
    """
    verdicts = None if plan.unfiltered else _verdicts(engine, plan, write)
    for piece in feed.pieces(engine, plan.relation, write):
        if verdicts is None:
            table = _published_actions(piece, plan)
        else:
            found = verdicts[piece["position"].to_numpy()]
            kept = np.flatnonzero(found)
            ops = pa.Array.from_buffers(
                pa.string(), len(kept), [None, pa.py_buffer(np.arange(len(kept) + 1, dtype=np.int32)), pa.py_buffer(found[kept])]
            )
            table = piece.take(pa.array(kept)).set_column(piece.schema.get_field_index("op"), "op", ops)
        if table.num_rows:
            yield _rendered(table, plan, [write], form, send_time)


_PLACE = "_place"


def _frame(engine: Engine, table: pa.Table) -> DataFrame:
    """The table as a frame; a larger one not as a local relation, which Spark's optimizer would evaluate row by row, uncompiled."""
    if table.num_rows <= feed.SMALL_CHANGES:
        return local_frame(engine.spark, table)
    session = engine.spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
    return local_frame(session, table)


def _filter_columns(plan: Published) -> tuple[Column, ...]:
    """The columns of the relation that its filters read; at least one, because a frame needs one."""
    from headgate.rowfilter import filter as row_filter

    numbers = {number for trees in plan.filters.values() for tree in trees for number in row_filter.load(tree).columns}
    names = {column.name for column in plan.target.columns if column.attnum in numbers}
    return tuple(column for column in plan.relation.columns if column.name in names) or plan.relation.columns[:1]


def _narrow(table: pa.Table, plan: Published) -> pa.Table:
    """The changes with the filter's columns alone."""
    names = [column.name for column in _filter_columns(plan)]
    for side in ("old", "new"):
        row = _struct(table[side])
        mask = None if not row.null_count else row.is_null()
        narrow = pa.StructArray.from_arrays([pc.struct_field(row, name) for name in names], names, mask=mask)
        table = table.set_column(table.schema.get_field_index(side), side, narrow)
    return table


def _verdicts(engine: Engine, plan: Published, write: TableWrite) -> npt.NDArray[np.uint8]:
    """By position the operation as which a change is sent, 0 for one that is not."""
    narrow = replace(plan.relation, all_columns=_filter_columns(plan))
    frame = _judged(feed.changes(engine, narrow, [write]), plan).select("position", "op")
    verdicts = np.zeros(2 * max(write.changes, 1) + 1, np.uint8)
    for batch in spool.batches(frame, Path(engine.data_dir) / "pgsql_tmp"):
        verdicts[batch.column(0).to_numpy()] = _letters(batch.column(1))
    return verdicts


def _judged(frame: DataFrame, plan: Published) -> DataFrame:
    """The changes that are published, by their action and by the filter."""
    wanted = {action: action in plan.actions for action in FILTERED}
    frame = project.actions(frame, insert=wanted[Action.INSERT], update=wanted[Action.UPDATE], delete=wanted[Action.DELETE])
    return change_filter.apply(frame, predicate(plan))


def _published_actions(table: pa.Table, plan: Published) -> pa.Table:
    wanted = [action.value for action in FILTERED if action in plan.actions]
    if len(wanted) == len(FILTERED) or not table.num_rows:
        return table
    return table.filter(pc.is_in(table["op"], pa.array(wanted, pa.string())))


def predicate(plan: Published) -> Callable[[str], SparkColumn]:
    """The filter on ``old`` or ``new``: that of the change's own operation."""
    from pyspark.sql import functions as F

    def match(action: Action, side: str) -> SparkColumn:
        from headgate.rowfilter import filter as row_filter

        trees = plan.filters.get(action)
        if not trees:
            return F.lit(True)
        found = [row_filter.match(row_filter.load(tree), F.col(side)) for tree in trees]
        return reduce(lambda one, other: one | other, found)

    def decide(side: str) -> SparkColumn:
        first = Action.DELETE if side == "old" else Action.INSERT
        if plan.filters.get(first) == plan.filters.get(Action.UPDATE):
            return match(first, side)
        return F.when(F.col("op") == first.value, match(first, side)).otherwise(match(Action.UPDATE, side))

    return decide


def _rendered(table: pa.Table, plan: Published, writes: Sequence[TableWrite], form: Form, send_time: int) -> Rendered:
    lsn = _lsns(table, writes)
    if len(lsn) > 1 and not (np.diff(lsn) > 0).all():
        order = np.argsort(lsn, kind="stable")
        table, lsn = table.take(pa.array(order)), lsn[order]
    op = _letters(table["op"])
    old_row, new_row = _struct(table["old"]), _struct(table["new"])
    columns = plan.sent_columns
    before = identity_columns(plan.relation)
    old, changed = _old_values(plan, columns, before, old_row, new_row, op, form)
    keep = op != encode.DELETE if before is not None and not before else None
    new = [_values(new_row, plan, column, form) for column in columns]
    if keep is not None and not keep.all():
        kept = pa.array(np.flatnonzero(keep))
        op, lsn, changed = op[keep], lsn[keep], changed[keep]
        new, old = [values.take(kept) for values in new], [values.take(kept) for values in old]
    frames = encode.encode(plan.target.oid, op, lsn, new, old=old, old_kind=changed, send_time=send_time)
    return Rendered(frames, lsn)


def _letters(ops: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint8]:
    """The letters of the operations as bytes."""
    joined = ops.combine_chunks() if isinstance(ops, pa.ChunkedArray) else ops
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.chunk(0) if joined.num_chunks else pa.array([], pa.string())
    return buffers.packed(joined)[0]


def _struct(column: pa.ChunkedArray) -> pa.StructArray:
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return joined.chunk(0) if joined.num_chunks else pa.array([], joined.type)
    return joined


def _lsns(table: pa.Table, writes: Sequence[TableWrite]) -> Numbers:
    """The LSN of each change: that of its write, and 8 for each change before it."""
    position = table["position"].to_numpy()
    if len(writes) == 1:
        return np.asarray(int(writes[0].lsn) + LSN_PER_CHANGE * position, np.int64)
    commits = np.unique(np.array([int(write.commit_lsn) for write in writes], np.int64))
    most = max(write.seq for write in writes) + 1
    keys = np.searchsorted(commits, [int(write.commit_lsn) for write in writes]) * most + np.array([write.seq for write in writes])
    order = np.argsort(keys)
    begins = np.array([int(write.lsn) for write in writes], np.int64)[order]
    wanted = np.searchsorted(commits, table["commit_lsn"].to_numpy()) * most + table["seq"].to_numpy()
    return np.asarray(begins[np.searchsorted(keys[order], wanted)] + LSN_PER_CHANGE * position, np.int64)


def _old_values(
    plan: Published,
    columns: Sequence[Column],
    before: frozenset[int] | None,
    old_row: pa.StructArray,
    new_row: pa.StructArray,
    op: npt.NDArray[np.uint8],
    form: Form,
) -> tuple[list[pa.Array], npt.NDArray[np.uint8]]:
    """The old tuples' values, and per row what precedes them: K, O, or nothing (an update that leaves the key as it was)."""
    tag = encode.ROW if plan.target.replica_identity == "f" else encode.KEY
    updated = op == encode.UPDATE
    with_old = op == encode.DELETE
    names = {column.attnum: column.name for column in plan.relation.columns}
    values: list[pa.Array] = []
    if before is None:
        with_old = with_old | updated
    elif updated.any():
        with_old = with_old | (updated & _changed(plan, before, names, old_row, new_row, form))
    for column in columns:
        mine = plan.relation.column(column.name)
        sent = mine is not None and (before is None or mine.attnum in before)
        values.append(_values(old_row, plan, column, form) if sent and with_old.any() else pa.nulls(len(op), pa.string()))
    return values, np.where(with_old, tag, encode.NO_OLD).astype(np.uint8)


def _changed(
    plan: Published, before: frozenset[int], names: dict[int, str], old_row: pa.StructArray, new_row: pa.StructArray, form: Form
) -> npt.NDArray[np.bool_]:
    """Whether an identity column has another value (byte by byte: 2.50 is not 2.5) than before."""
    found = np.zeros(len(old_row), np.bool_)
    for attnum in before:
        column = plan.relation.numbered(attnum)
        if column is None:
            continue
        one, other = (_text(pc.struct_field(row, names[attnum]), column, form) for row in (old_row, new_row))
        differs = pc.fill_null(pc.not_equal(one, other), pc.xor(pc.is_null(one), pc.is_null(other)))
        found |= np.asarray(differs)
    return found


def _values(row: pa.StructArray, plan: Published, column: Column, form: Form) -> pa.Array:
    """A column of old or new rows in the form in which it is sent; columns are matched by name."""
    mine = plan.relation.column(column.name)
    if mine is None:
        return pa.nulls(len(row), pa.string())
    values = pc.struct_field(row, mine.name)
    if form.binary:
        return binary.write_binary(values, mine.type_oid, mine.typmod)
    return _text(values, mine, form)


def _text(values: Any, column: Column, form: Form) -> pa.Array:
    return text.write_text(
        values,
        column.type_oid,
        column.typmod,
        timezone=form.timezone,
        extra_float_digits=form.extra_float_digits,
        bytea_output=form.bytea_output,
    )
