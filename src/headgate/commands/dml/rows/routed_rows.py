"""Route rows of statements on a partitioned table to their leaves, and check them there.

Called by `new_rows` (INSERT, COPY), `insert` (ON CONFLICT) and `assignment` (UPDATE) if the table is partitioned. Messages name the
leaf and show the row in the columns of the table that the statement names, as PostgreSQL's do.

An UPDATE first removes the rows that leave a leaf, together with the changes inside the leaf, and then adds the rows that arrive in each
leaf. So a row does not conflict with one that leaves its new leaf. All leaves that receive rows are locked before any is written. If a leaf
was dropped or changed while the statement waited for its lock, the statement starts again, which is not possible after it has written.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.commands import disclosure
from headgate.commands.constraint.reference_key import Rows
from headgate.commands.dml.returning import JOINED
from headgate.commands.dml.rows import first_error
from headgate.commands.publication import replica_identity
from headgate.errors import not_supported
from headgate.storage.partitioned import FROM, TO, PartitionedTable, of_leaf, of_root, ordered
from headgate.storage.routing import NOWHERE
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted
from headgate.storage.write import arrow_row
from headgate.types import buffers

if TYPE_CHECKING:
    from headgate.commands.dml import on_conflict
    from headgate.commands.dml.rows.new_rows import NewRows
    from headgate.commands.query.planner import Planner
    from headgate.commands.query.row_security import Violation


def append(writer: NewRows, rows: pa.Table) -> pa.Table:
    """Check and add complete rows. Return them as stored, in their order."""
    parts = first_error.checked(
        rows, lambda candidate_rows: [(leaf, leaf.accepted(part), at) for leaf, part, at in _spread(writer, candidate_rows)]
    )
    stored = _together(writer, rows, [(leaf, leaf.store(part), at) for leaf, part, at in parts])
    writer.fire_after(stored)
    return stored


def insert(command: on_conflict.Command, writer: NewRows, rows: pa.Table) -> pa.Table:
    """Execute INSERT … ON CONFLICT: `on_conflict.settle` for each leaf.

    A leaf that receives a row must be able to publish an UPDATE, whether or not the row conflicts (ExecInitPartitionInfo).
    """
    from headgate.commands.dml import on_conflict

    if writer.firing is not None and (writer.firing.collects(triggers.INSERT) or writer.firing.collects(triggers.UPDATE)):
        raise not_supported("INSERT with ON CONFLICT into a partitioned table with transition tables is not supported")

    def check(candidate_rows: pa.Table) -> list[tuple[NewRows, pa.Table, NDArray[np.int64]]]:
        parts = []
        for leaf, part, at in _spread(writer, candidate_rows, fires=True):
            if command.updates:
                replica_identity.check(writer.transaction.cursor, leaf.relation, "update")
            parts.append((leaf, leaf.checked(part), at))
        return parts

    parts = first_error.checked(writer.arriving(rows), check)
    return _together(writer, rows, [(leaf, on_conflict.settle(command, leaf, part), at) for leaf, part, at in parts])


def _spread(writer: NewRows, rows: pa.Table, *, fires: bool = False) -> list[tuple[NewRows, pa.Table, NDArray[np.int64]]]:
    """Return the writer of each leaf that receives rows, with these and their positions. Raise 23514 for the first row without a leaf."""
    root = writer.relation
    table = writer.transaction.partitioned(root)
    writer.refuse_outside(rows)
    key_columns = {name: buffers.whole(rows[name]) for name in table.router.key_names()}
    leaf_numbers, unroutable_row = table.router.route(key_columns, rows.num_rows)
    with disclosure.routing(writer.planner, root, table.router.key_names()):
        if unroutable_row is not None:
            raise table.router.refused(unroutable_row, key_columns)
    return [(writer.of_leaf(leaf, fires=fires), of_leaf(leaf, rows.take(at)), np.asarray(at)) for leaf, at in table.parts(leaf_numbers)]


def _together(writer: NewRows, rows: pa.Table, stored: list[tuple[NewRows, pa.Table, NDArray[np.int64]]]) -> pa.Table:
    """Return the rows that the leaves have stored, in the order of the original rows."""
    if not stored:
        return rows
    whole = pa.concat_tables([of_root(writer.relation, part) for _, part, _ in stored])
    order = np.concatenate([at[: part.num_rows] for _, part, at in stored])
    return whole.take(pa.array(np.argsort(order, kind="stable")))


def append_frame(writer: NewRows, rows: DataFrame) -> int:
    """Check and add the rows of a frame. Return their number."""
    root = writer.relation
    table = writer.transaction.partitioned(root)
    checked = rows if writer.fence is None else writer.checked_frame(rows)
    with persisted(checked.withColumn(TO, table.place_column())) as persisted_rows:
        numbers = sorted(persisted_rows.select(TO).distinct().toArrow()[TO].to_pylist())
        if NOWHERE in numbers:
            with disclosure.routing(writer.planner, root, table.router.key_names()):
                table.refuse_homeless(persisted_rows, TO)
        count = 0
        for number in numbers:
            writer.transaction.lock(table.leaves[number])
        for number in numbers:
            leaf = table.leaves[number]
            part = persisted_rows.where(F.col(TO) == number).select(*[F.col(quoted(column.name)) for column in leaf.columns])
            count += writer.of_leaf(leaf).append_frame(part)
        return count


# ---- UPDATE -----------------------------------------------------------------------------------------------------------


def rewrite(
    planner: Planner, root: Relation, changed: DataFrame, set_columns: set[str], violations: Sequence[Violation], kept: ExitStack | None
) -> tuple[int, Rows | None]:
    """Execute `assignment.rewrite` for a partitioned table."""
    from headgate.commands.dml import assignment
    from headgate.commands.dml.rows.new_rows import NewRows

    table = planner.transaction.partitioned(root)
    writer = NewRows(planner, root, violations=violations)
    fires = writer.firing is not None and writer.firing.has_rows(triggers.UPDATE)  # a trigger may change the columns of the key
    moves = fires or bool(set_columns & set(table.router.key_names()))
    few = assignment.small(planner, root, changed)
    if few is not None:
        return _rewrite_few(writer, table, few, set_columns, moves=moves, keep=kept is not None)
    return _rewrite_many(writer, table, changed, set_columns, kept, moves=moves)


def _rewrite_few(
    writer: NewRows, table: PartitionedTable, few: pa.Table, set_columns: set[str], *, moves: bool, keep: bool
) -> tuple[int, pa.Table | None]:
    from headgate.commands.dml import assignment

    planner, root, transaction = writer.planner, table.root, writer.transaction
    if not few.num_rows:
        return 0, assignment.rows_of(few, "new", root) if keep else None
    new = ordered(root, buffers.whole(few["new"]))
    old_leaves = table.sources(few["file"])
    new_leaves = old_leaves
    if moves:
        rows = _rows(new)
        writer.refuse_outside(rows)
        with disclosure.routing(planner, root, table.router.key_names()):
            new_leaves = table.places(rows)
    arriving = np.where(new_leaves == old_leaves, NOWHERE, new_leaves)
    for leaf, _ in table.parts(arriving):
        transaction.lock(leaf)
    stored, order = [], []

    def kept(part: pa.Table, at: NDArray[np.int64]) -> None:
        stored.append(of_root(root, part))
        order.append(at)

    for leaf, at in table.parts(old_leaves):
        positions = np.asarray(at)
        stays = new_leaves[positions] == table.number(leaf)
        checked_rows = writer.of_leaf(leaf).checked(_rows(ordered(leaf, new.take(pa.array(positions[stays])))))
        kept(checked_rows, positions[stays])
        leaf_changes = few.take(at)
        checked_indexes = np.full(len(positions), -1, np.int64)
        checked_indexes[stays] = np.arange(int(stays.sum()))
        structs = pa.StructArray.from_arrays([buffers.whole(column) for column in checked_rows.columns], fields=list(arrow_row(leaf)))
        part = pa.table(
            {
                "old": ordered(leaf, buffers.whole(leaf_changes["old"])),
                "new": structs.take(pa.array(checked_indexes, mask=checked_indexes < 0)),
                "file": leaf_changes["file"],
                "row": leaf_changes["row"],
            }
        )
        assignment.refuse_clash(planner, leaf, part, set_columns)
        transaction.rewrite(leaf, part)
    for leaf, at in table.parts(arriving):
        kept(writer.of_leaf(leaf).append(_rows(ordered(leaf, new.take(at)))), at)
    if not keep:
        return few.num_rows, None
    whole = pa.concat_tables(stored).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))
    return few.num_rows, whole.append_column(JOINED, few[JOINED]) if JOINED in few.column_names else whole


def _rewrite_many(
    writer: NewRows, table: PartitionedTable, changed: DataFrame, set_columns: set[str], kept: ExitStack | None, *, moves: bool
) -> tuple[int, Rows | None]:
    from headgate.commands.dml import assignment

    planner, root, transaction, stored = writer.planner, table.root, writer.transaction, []
    with ExitStack() as stack:
        persisted_changes = (kept or stack).enter_context(persisted(table.tagged(changed, moves=moves)))
        flows = persisted_changes.groupBy(FROM, TO).agg(F.count("*").alias("n")).toArrow().to_pylist()
        if any(flow[TO] == NOWHERE for flow in flows):
            with disclosure.routing(planner, root, table.router.key_names()):
                table.refuse_homeless(persisted_changes, TO, "new.")
        if moves and writer.fence is not None:
            _refuse_outside(writer, persisted_changes)
        arriving = sorted({flow[TO] for flow in flows if flow[FROM] != flow[TO]})
        for number in arriving:
            transaction.lock(table.leaves[number])
        for number in sorted({flow[FROM] for flow in flows}):
            leaf = table.leaves[number]
            part = table.leaving(persisted_changes, number)
            stays = assignment.checked_changes(planner, leaf, part.where("new IS NOT NULL"), violations=writer.violations, shown=root)
            with ExitStack() as leaf_stack:
                whole = (kept or leaf_stack).enter_context(persisted(stays.unionByName(part.where("new IS NULL"))))
                assignment.refuse_clash(planner, leaf, whole, set_columns)
                transaction.rewrite(leaf, whole.select(*assignment.CHANGED), is_kept=True)
            stored.append(assignment.rows_of(whole.where("new IS NOT NULL"), "new", leaf))
        for number in arriving:
            leaf_writer, rows = writer.of_leaf(table.leaves[number]), table.arriving(persisted_changes, number)
            if kept is None:
                leaf_writer.append_frame(rows)
            else:
                stored.append(leaf_writer.append_kept(rows, kept)[1])
        return sum(flow["n"] for flow in flows), _in_root(root, stored) if kept is not None else None


def _in_root(root: Relation, parts: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of leaves with the root's columns, and the columns of joined tables."""
    more = [name for name in parts[0].columns if name == JOINED]
    names = [F.col(quoted(column.name)) for column in root.columns]
    return functools.reduce(DataFrame.unionAll, [part.select(*names, *more) for part in parts])


def _refuse_outside(writer: NewRows, changed: DataFrame) -> None:
    """Raise 23514 for new rows that leave the partition that the statement names."""
    root = writer.relation
    assert writer.fence is not None
    names = [F.col(f"new.{quoted(column.name)}").alias(column.name) for column in root.columns]
    outside = changed.select(*names).where(writer.fence.column()).limit(1).toArrow()
    if outside.num_rows:
        writer.refuse_outside(of_root(root, outside))


def _rows(structs: pa.StructArray) -> pa.Table:
    return pa.table(structs.flatten(), names=[field.name for field in structs.type])
