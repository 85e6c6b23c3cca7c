"""The gate: decides whether, and as which operation, each change of a relation is sent: by action, row filter and logged columns.

`verdicts` returns one letter for each change, 0 for one that is not sent. A filter is evaluated column by column in the driver if that
gives PostgreSQL's exact result (`expression.columnwise`), which is nearly free. All others, and filters that might raise, are evaluated by
Spark, which gets only the filter's columns. Spark evaluates every filter if `small_batch_rows` is 0. Called by `change_reader` (driver),
`tasks` (Spark) and `alteration`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from headgate.catalog.relation.relation import Column
from headgate.changes import filter as change_filter
from headgate.expression import columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, walk
from headgate.pgoutput.encode import DELETE, INSERT, UPDATE
from headgate.publisher.decoded import DecodedChanges, letters
from headgate.publisher.published import FILTERED, Published, PublishedAction, identity_columns
from headgate.rowfilter import filter as row_filter
from headgate.rowfilter.filter import RowFilter
from headgate.storage import feed
from headgate.storage.spark import result_spool
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.log import TableWrite
from headgate.storage.transaction.storage import Storage
from headgate.types import buffers

Letters = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
_CODES = {PublishedAction.INSERT: INSERT, PublishedAction.UPDATE: UPDATE, PublishedAction.DELETE: DELETE}
_PLACE = "_place"


def verdicts(storage: Storage, decoded: DecodedChanges, plan: Published) -> Letters:
    """Return the letter under which each change is sent, 0 for none."""
    exact = exact_verdicts(decoded, plan) if storage.small_batch_rows or plan.unfiltered else None
    return _logged(_by_spark(storage, decoded, plan), plan) if exact is None else exact


def exact_verdicts(decoded: DecodedChanges, plan: Published) -> Letters | None:
    """Return the verdicts, computed column by column without Spark, or None if that is not exact for these changes. Tasks call it, too."""
    published_ops = np.isin(decoded.op, [_CODES[action] for action in FILTERED if action in plan.actions])
    if plan.unfiltered or not published_ops.any():
        return _logged(np.where(published_ops, decoded.op, 0).astype(np.uint8), plan)
    computed = _columnwise(decoded, plan, published_ops)
    return None if computed is None else _logged(computed, plan)


def of_write(storage: Storage, plan: Published, write: TableWrite) -> Letters:
    """Return the verdicts of one write of any size, by position. Spark reads only the filter's columns."""
    narrow = replace(plan.relation, all_columns=filter_columns(plan))
    frame = _judged(feed.changes(storage, narrow, [write]), plan).select("position", "op")
    result = np.zeros(2 * max(write.changes, 1) + 1, np.uint8)
    for batch in result_spool.batches(frame, storage.exchange):
        result[batch.column(0).to_numpy()] = letters(batch.column(1))
    return _logged(result, plan)


def needs_spark(storage: Storage, decoded: DecodedChanges, plan: Published) -> bool:
    return not plan.unfiltered and (not storage.small_batch_rows or not is_exact(decoded, plan))


def is_exact(decoded: DecodedChanges, plan: Published) -> bool:
    """Return whether the filter can be evaluated column by column on these changes, whatever their operations are."""
    return plan.unfiltered or _columnwise(decoded, plan, np.ones(len(decoded), np.bool_)) is not None


def _logged(verdict_letters: Letters, plan: Published) -> Letters:
    """Drop DELETEs whose old row is not in the log (REPLICA IDENTITY NOTHING)."""
    identity = identity_columns(plan.relation)
    if identity is not None and not identity:
        verdict_letters[verdict_letters == DELETE] = 0
    return verdict_letters


# ---- column by column ---------------------------------------------------------------------------------------
def _columnwise(decoded: DecodedChanges, plan: Published, published_ops: Mask) -> Letters | None:
    """Return the verdicts of the filter, or None if they are not exact."""
    op = decoded.op
    before, after = published_ops & (op != INSERT), published_ops & (op != DELETE)
    try:
        if before.any():
            before &= _matches(decoded, plan, "old", PublishedAction.DELETE)
        if after.any():
            after &= _matches(decoded, plan, "new", PublishedAction.INSERT)
    except NotColumnwise:
        return None
    changed = np.where(before, np.where(after, UPDATE, DELETE), np.where(after, INSERT, 0))
    return np.where(op == UPDATE, changed, np.where(before | after, op, 0)).astype(np.uint8)


def _matches(decoded: DecodedChanges, plan: Published, side: str, own: PublishedAction) -> Mask:
    """Evaluate the filter on the old or new rows: that of the change's own operation (`own`, or UPDATE)."""
    results: dict[tuple[str, ...] | None, Mask] = {}
    for action in (own, PublishedAction.UPDATE):
        trees = plan.filters.get(action)
        if trees not in results:
            results[trees] = np.ones(len(decoded), np.bool_) if trees is None else _any(decoded, side, trees)
    own_result, update_result = results[plan.filters.get(own)], results[plan.filters.get(PublishedAction.UPDATE)]
    return own_result if own_result is update_result else np.where(decoded.op == _CODES[own], own_result, update_result)


def _any(decoded: DecodedChanges, side: str, trees: Sequence[str]) -> Mask:
    passed = np.zeros(len(decoded), np.bool_)
    for tree in trees:
        expression = _loaded(tree).expression
        columns = {node.key: decoded.column(side, node.name) for node in walk(expression) if isinstance(node, ColumnRef)}
        passed |= np.asarray(columnwise.condition(expression, columns, len(decoded)))
    return passed


@functools.lru_cache(maxsize=256)
def _loaded(tree: str) -> RowFilter:
    return row_filter.load(tree)


# ---- by Spark -----------------------------------------------------------------------------------------------
def _by_spark(storage: Storage, decoded: DecodedChanges, plan: Published) -> Letters:
    table = _narrow(decoded, plan).append_column(_PLACE, pa.array(np.arange(len(decoded))))
    published_rows = _judged(_frame(storage, table), plan).select(_PLACE, "op").toArrow()
    result = np.zeros(len(decoded), np.uint8)
    if published_rows.num_rows:
        result[published_rows[_PLACE].to_numpy()] = letters(published_rows["op"])
    return result


def _frame(storage: Storage, table: pa.Table) -> DataFrame:
    """Return the table as a frame. If it is large, it is not a local relation: Spark's optimizer would evaluate that row by row."""
    if table.num_rows <= min(feed.SMALL_CHANGES, storage.small_batch_rows):
        return local_frame(storage.spark, table)
    session = storage.spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
    return local_frame(session, table)


def filter_columns(plan: Published) -> tuple[Column, ...]:
    """Return the columns of the relation that its filters read, at least one, because a frame needs one."""
    numbers = {number for trees in plan.filters.values() for tree in trees for number in _loaded(tree).columns}
    names = {column.name for column in plan.target.columns if column.attnum in numbers}
    return tuple(column for column in plan.relation.columns if column.name in names) or plan.relation.columns[:1]


def _narrow(decoded: DecodedChanges, plan: Published) -> pa.Table:
    """Return the changes with only the filter's columns."""
    names = [column.name for column in filter_columns(plan)]
    table = decoded.table
    for side, row in (("old", decoded.old), ("new", decoded.new)):
        mask = None if not row.null_count else row.is_null()
        narrow = pa.StructArray.from_arrays([buffers.field(row, name) for name in names], names, mask=mask)
        table = table.set_column(table.schema.get_field_index(side), side, narrow)
    return table


def _judged(frame: DataFrame, plan: Published) -> DataFrame:
    """Return the changes that are published, by their action and by the filter."""
    published_actions = {action: action in plan.actions for action in FILTERED}
    frame = change_filter.actions(
        frame,
        insert=published_actions[PublishedAction.INSERT],
        update=published_actions[PublishedAction.UPDATE],
        delete=published_actions[PublishedAction.DELETE],
    )
    return change_filter.apply(frame, predicate(plan))


def predicate(plan: Published) -> Callable[[str], SparkColumn]:
    """Return the filter on ``old`` or ``new``: that of the change's own operation."""
    from pyspark.sql import functions as F

    def match(action: PublishedAction, side: str) -> SparkColumn:
        trees = plan.filters.get(action)
        if not trees:
            return F.lit(True)
        conditions = [row_filter.match(_loaded(tree), F.col(side)) for tree in trees]
        return functools.reduce(lambda left, right: left | right, conditions)

    def decide(side: str) -> SparkColumn:
        first = PublishedAction.DELETE if side == "old" else PublishedAction.INSERT
        if plan.filters.get(first) == plan.filters.get(PublishedAction.UPDATE):
            return match(first, side)
        return F.when(F.col("op") == first.value, match(first, side)).otherwise(match(PublishedAction.UPDATE, side))

    return decide
