"""Write changed rows: fire row triggers, compute generated columns, check constraints, route to partitions, rewrite.

Called by UPDATE, DELETE, MERGE and ON CONFLICT DO UPDATE, and for the rows that a foreign key's action changes. Changes are `Rows` with the
columns `old`, `new`, `file` and `row` (`Transaction.rewrite`), and JOINED.

Few rows are collected in the driver, which looks their keys up in the files and writes them. Many rows stay in Spark.

An UPDATE of a partitioned table first removes the rows that leave a leaf, together with the changes inside the leaf, and then adds the rows
that arrive in each leaf. So a row does not conflict with one that leaves its new leaf.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Column as TableColumn
from headgate.catalog.relation.relation import Relation
from headgate.changes.key_order import untangled
from headgate.commands import disclosure
from headgate.commands.constraint import index_key, referential_action, row_constraint, uniqueness
from headgate.commands.dml.returning import JOINED
from headgate.commands.dml.rows import many_rows
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.publication import replica_identity
from headgate.commands.query.plan import LEAF
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Violation
from headgate.commands.trigger.firing import Firing, emptied
from headgate.commands.trigger.routed_firing import RoutedFiring
from headgate.commands.trigger.statement import change_by_action, of_statement
from headgate.errors import PostgresError
from headgate.storage import row_set, row_store
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.partitioned import CHANGED, Fence
from headgate.storage.row_set import Rows
from headgate.storage.spark import result_spool
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.spark.persisted import computed_once, persisted
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row, small_enough
from headgate.storage.write import columns as spark_columns
from headgate.types.storage import own_name

_OLD = own_name("_old")

Later: TypeAlias = Callable[[Rows], None]
"""Receives changes (`old`, `new`) whose foreign keys are checked after the statement has written all rows."""


def rewrite(
    planner: Planner, relation: Relation, changed: Rows, set_columns: set[str], violations: Sequence[Violation],
    outer: ExitStack | None = None, later: Later | None = None, named: Relation | None = None,
) -> tuple[int, Rows | None]:  # fmt: skip
    """Check and write changed rows. Return their number, and the new rows, which are valid until `outer` is closed, if it is passed.

    `violations` are conditions for new rows that row security rejects. `named`: the table that the statement names if this one inherits
    from it. Messages show rows in its columns.
    """
    if relation.with_children:
        write_table = functools.partial(rewrite, planner, set_columns=set_columns, violations=violations, named=relation.alone)
        return _write_with_children(planner, relation, changed, triggers.UPDATE, write_table, outer)
    firing = of_statement(planner, relation)
    if firing is not None and firing.has_rows(triggers.UPDATE):
        columns = {column.name for column in relation.columns if column.generated is None}  # a trigger may change any column
        write_part = functools.partial(_rewrite, planner, relation, set_columns=columns, violations=violations, later=later, named=named)
        count, rows = _write_with_triggers(planner, relation, changed, firing, set_columns, write_part)
        return count, rows if outer is not None else None
    return _rewrite(planner, relation, changed, set_columns=set_columns, violations=violations, outer=outer, later=later, named=named)


def remove(planner: Planner, relation: Relation, changed: Rows, outer: ExitStack | None = None) -> tuple[int, Rows | None]:
    """Delete rows (`new` is NULL). Return their number, and the rows if `outer` is passed (see `rewrite`)."""
    if relation.with_children:
        return _write_with_children(planner, relation, changed, triggers.DELETE, functools.partial(remove, planner), outer)
    firing = of_statement(planner, relation)
    if firing is not None and firing.has_rows(triggers.DELETE):
        count, rows = _write_with_triggers(planner, relation, changed, firing, None, functools.partial(_remove, planner, relation))
        return count, rows if outer is not None else None
    return _remove(planner, relation, changed, outer)


def written(
    planner: Planner, relation: Relation, changed: Rows, set_columns: set[str], violations: Sequence[Violation], later: Later
) -> pa.Table:
    """Check and write changed rows that fit in the driver. Return the new rows."""
    with ExitStack() as stack:
        _, rows = rewrite(planner, relation, changed, set_columns, violations, stack, later)
        assert rows is not None
        return rows if isinstance(rows, pa.Table) else rows.toArrow()


# ---- tables that inherit -----------------------------------------------------------------------------------------------


def _write_with_children(
    planner: Planner, root: Relation, changed: Rows, event: int, write: Callable[..., tuple[int, Rows | None]], outer: ExitStack | None
) -> tuple[int, Rows | None]:
    """Write the changes of a table and its children, table by table as PostgreSQL does. Return the rows in the columns of the table.

    The rows have the additional last column `plan.LEAF`. The transition tables of the table get the rows of its children too.
    """
    firing, count, written_parts = of_statement(planner, root), 0, list[tuple[Relation, Rows]]()
    with ExitStack() as stack:
        changed = _hold(planner, root, changed, outer or stack, None, is_read_again=True)
        for table, changes in planner.transaction.partitioned(root).changes_of_leaves(changed, outer or stack):
            collecting = firing if isinstance(firing, Firing) and firing.collects(event) and table.oid != root.oid else None
            for part in [changes] if collecting is None else _tables(planner, table, changes):
                part_count, rows = write(table, part, outer=outer if collecting is None else outer or stack)
                count += part_count
                if collecting is not None:
                    new = rows.toArrow() if isinstance(rows, DataFrame) else rows
                    old = row_set.project(part, _columns_of("old", root))
                    collecting.collect(event, old, new if event == triggers.UPDATE else None)
                if rows is not None:
                    written_parts.append((table, rows))
    return count, _in_root(planner, root, written_parts) if outer is not None else None


def _in_root(planner: Planner, root: Relation, parts: Sequence[tuple[Relation, Rows]]) -> Rows:
    """Return the rows of several tables with the columns of their parent, JOINED if they have it, and LEAF."""
    chosen = [column.name for column in root.columns]
    rows_by_table = [
        (table, row_set.select(rows, [*chosen, *([JOINED] if JOINED in row_set.names(rows) else [])])) for table, rows in parts
    ]
    schema = next((rows.schema for _, rows in rows_by_table if isinstance(rows, DataFrame)), None)
    if schema is None:
        empty = arrow_row(root).append(pa.field(LEAF, pa.int64())).empty_table()
        tables = [
            rows.append_column(LEAF, pa.repeat(pa.scalar(table.oid, pa.int64()), rows.num_rows))
            for table, rows in rows_by_table if isinstance(rows, pa.Table)
        ]  # fmt: skip
        return pa.concat_tables(tables or [empty], promote_options="permissive")
    frames = [
        (rows if isinstance(rows, DataFrame) else local_frame(planner.session_spark, rows, schema), table.oid)
        for table, rows in rows_by_table
    ]
    return functools.reduce(DataFrame.unionAll, [frame.withColumn(LEAF, F.lit(oid).cast("bigint")) for frame, oid in frames])


# ---- row triggers ------------------------------------------------------------------------------------------------------


def _write_with_triggers(
    planner: Planner, relation: Relation, changed: Rows, firing: Firing | RoutedFiring, set_columns: set[str] | None,
    write_part: Callable[..., tuple[int, Rows | None]],
) -> tuple[int, pa.Table]:  # fmt: skip
    """Write changes of a table with row triggers, part by part in the driver. With `set_columns` None, delete the rows."""
    counts, written_parts, spark = list[int](), list[pa.Table](), planner.session_spark

    def write(remaining: pa.Table) -> None:
        if not remaining.num_rows:
            return
        later = planner.triggers.later
        begin = len(later)  # AFTER triggers of rows that ON DELETE and ON UPDATE change fire later
        with ExitStack() as until:
            passed = remaining if isinstance(changed, pa.Table) else local_frame(spark, remaining, changed.schema)
            part_count, rows = write_part(passed, outer=until)
            counts.append(part_count)
            written_rows = rows.toArrow() if isinstance(rows, DataFrame) else rows
            assert written_rows is not None
        written_parts.append(written_rows)
        old = row_set.project(remaining, _columns_of("old", relation))
        event = triggers.DELETE if set_columns is None else triggers.UPDATE
        later[begin:begin] = firing.after(event, old, None if set_columns is None else written_rows, set_columns)

    for part in _tables(planner, relation, changed):
        write(firing.before_delete(part, write) if set_columns is None else firing.before_update(part, set_columns, write))
        for lost in emptied(firing.lost) if isinstance(firing, RoutedFiring) else ():
            _remove(planner, relation, lost)
            planner.triggers.later += firing.after(triggers.UPDATE, row_set.project(lost, _columns_of("old", relation)), None, set_columns)
    if written_parts:
        return sum(counts), pa.concat_tables(written_parts, promote_options="permissive")
    return 0, arrow_row(relation).empty_table()


def instead(planner: Planner, view: Relation, changed: DataFrame, event: int) -> pa.Table:
    """Call the INSTEAD OF triggers of a view for changes (`old`, `new`, JOINED). Return the rows that they have not left out."""
    firing = of_statement(planner, view)
    assert isinstance(firing, Firing), "a view without triggers is not writable"
    tables = []
    for part in _parts(planner, view, changed):
        new = None if event == triggers.DELETE else row_set.project(part, _columns_of("new", view))
        rows, places = firing.instead(event, row_set.project(part, _columns_of("old", view)), new)
        if JOINED in part.column_names:
            rows = rows.append_column(JOINED, part[JOINED].take(pa.array(places, pa.int64())))
        tables.append(rows)
    return pa.concat_tables(tables) if tables else arrow_row(view).empty_table()


def _tables(planner: Planner, relation: Relation, changed: Rows) -> Iterable[pa.Table]:
    return [changed] if isinstance(changed, pa.Table) else _parts(planner, relation, changed)


def _parts(planner: Planner, relation: Relation, changed: DataFrame) -> Iterator[pa.Table]:
    """Yield changes as tables, of which one at a time fits in the driver."""
    batches = result_spool.batches(changed, planner.transaction.storage.exchange)
    most = many_rows.chunk_rows(relation, planner.session, planner.transaction)
    return row_store.tables(batches, most, many_rows.CHUNK_BYTES)


# ---- writing -----------------------------------------------------------------------------------------------------------


def _rewrite(
    planner: Planner, relation: Relation, changed: Rows, *, set_columns: set[str], violations: Sequence[Violation],
    outer: ExitStack | None = None, later: Later | None = None, named: Relation | None = None,
) -> tuple[int, Rows | None]:  # fmt: skip
    if relation.is_partitioned:
        return _rewrite_leaves(planner, relation, changed, set_columns, violations, outer)
    transaction = planner.transaction
    referential_action.lock(transaction, relation)
    with ExitStack() as stack, closing(NewRows(planner, relation, violations=violations, routed_from=named)) as writer:
        fence = writer.fence if writer.fence is not None and set_columns & set(writer.fence.names) else None
        is_read_again = touched_keys(relation, set_columns) or bool(relation.foreign_keys or relation.referenced)
        checked = _hold(planner, relation, _check(writer, changed, fence), stack, outer, is_read_again=is_read_again)
        refuse_clash(planner, relation, checked, set_columns)
        count = _write(transaction, relation, checked, set_columns, is_kept=is_read_again or outer is not None)
        (later or functools.partial(check_references, planner, relation))(checked)
        return count, rows_of(checked, "new", relation) if outer is not None else None


def _remove(planner: Planner, relation: Relation, changed: Rows, outer: ExitStack | None = None) -> tuple[int, Rows | None]:
    leaves = planner.transaction.partitioned(relation).leaves if relation.is_partitioned else ()
    with ExitStack() as stack:
        is_read_again = any(table.referenced for table in (relation, *leaves))
        settled = _hold(planner, relation, changed, stack, outer, is_read_again=is_read_again)
        count = planner.transaction.rewrite(relation, row_set.select(settled, CHANGED), is_kept=is_read_again or outer is not None)
        if not leaves:
            check_references(planner, relation, settled, deleting=True)
        elif is_read_again:
            for part in planner.transaction.partitioned(relation).flows(settled, stack, moves=False).changes:
                check_references(planner, leaves[part.number], part.rows, deleting=True)
        return count, rows_of(settled, "old", relation) if outer is not None else None


def _hold(planner: Planner, relation: Relation, changed: Rows, until: ExitStack, outer: ExitStack | None, *, is_read_again: bool) -> Rows:
    """Return the changes in the driver if they are few, and persisted if they are read more than once.

    If they are returned (`outer`), they must be what was written, even if an executor is lost meanwhile.
    """
    if isinstance(changed, pa.Table):
        return changed
    most = min(many_rows.most(planner.session), small_enough(planner.transaction.reader.newest_files(relation)))
    few = changed.limit(most + 1).toArrow()
    if few.num_rows <= most:
        return few
    if outer is not None and planner.transaction.storage.on_cluster:
        return outer.enter_context(computed_once(changed))
    return (outer or until).enter_context(persisted(changed)) if is_read_again or outer is not None else changed


def _rewrite_leaves(
    planner: Planner, root: Relation, changed: Rows, set_columns: set[str], violations: Sequence[Violation], outer: ExitStack | None
) -> tuple[int, Rows | None]:
    table, transaction, stored = planner.transaction.partitioned(root), planner.transaction, []
    checks: list[Callable[[], None]] = []
    with ExitStack() as stack:
        changed = _hold(planner, root, changed, stack, None, is_read_again=False)
        writer = (outer or stack).enter_context(closing(NewRows(planner, root, violations=violations)))
        fires = writer.firing is not None and writer.firing.has_rows(triggers.UPDATE)  # a trigger may change the columns of the key
        moves = fires or bool(set_columns & set(table.router.key_names()))
        if moves and writer.fence is not None:
            changed = changed if isinstance(changed, pa.Table) else stack.enter_context(persisted(changed))
            writer.inside(rows_of(changed, "new", root))
        with disclosure.routing(planner, root, table.router.key_names()):
            flows = table.flows(changed, outer or stack, moves=moves)
        for part in (*flows.changes, *flows.arriving):
            referential_action.lock(transaction, table.leaves[part.number])
        for part in flows.arriving:
            transaction.lock(table.leaves[part.number])
        for part in flows.changes:
            leaf = table.leaves[part.number]
            with ExitStack() as leaf_stack:
                until = outer or (stack if leaf.foreign_keys or leaf.referenced else leaf_stack)
                staying = _change_leaf(writer.of_leaf(leaf), part.rows, set_columns, until)
            if leaf.foreign_keys or leaf.referenced:
                checks.append(functools.partial(check_references, planner, leaf, staying))
            at = part.at
            if at is not None and isinstance(part.rows, pa.Table):
                at = at[np.asarray(part.rows["new"].is_valid())]
            stored.append(replace(part, rows=rows_of(staying, "new", leaf), at=at))
        stored += [replace(part, rows=writer.of_leaf(table.leaves[part.number]).append(part.rows)) for part in flows.arriving]
        for check in checks:
            check()
        for part in flows.moved:
            _leave_leaf(planner, root, table.leaves[part.number], part.rows)
        writer.check_references()
        for part in flows.moved if root.referenced else ():
            moved = _check(writer, part.rows, None)  # with the values of generated columns
            referential_action.left(planner.session, transaction, root, moved, _writing(planner), deleting=False)
        if outer is None:
            return flows.count, None
        rows = table.in_order(stored)
        if isinstance(rows, pa.Table) and JOINED in row_set.names(changed):
            rows = rows.append_column(JOINED, changed[JOINED])
        return flows.count, rows


def _leave_leaf(planner: Planner, root: Relation, leaf: Relation, moved: Rows) -> None:
    """Enforce the foreign keys that reference a leaf itself, for rows that have moved to another one: they are deleted from this one.

    Those that reference the root see an UPDATE. Raise 0A000 for one that references a table between the leaf and the root, as PostgreSQL
    does (ExecCrossPartitionUpdateForeignKey).
    """
    cursor = planner.transaction.cursor
    above = relations.ancestors(cursor, leaf.database, leaf.oid)
    for oid in above[: above.index(root.oid)]:
        ancestor = relations.get(cursor, leaf.database, oid)
        if any(not key.parent for key in ancestor.referenced):
            raise PostgresError(
                "0A000",
                "cannot move tuple across partitions when a non-root ancestor of the source partition is directly referenced"
                " in a foreign key",
                detail=f'A foreign key points to ancestor "{ancestor.name}" but not the root ancestor "{root.name}".',
                hint=f'Consider defining the foreign key on table "{root.name}".',
            )
    referential_action.left(planner.session, planner.transaction, leaf, moved, _writing(planner), deleting=True, only_own=True)


def _write(transaction: Transaction, relation: Relation, checked: Rows, set_columns: set[str], *, is_kept: bool) -> int:
    """Write changes that are checked, so that a subscriber can apply them one by one (`changes.key_order`). Return their number."""
    rows = row_set.select(checked, CHANGED)
    changes_keys = touched_keys(relation, set_columns)
    if isinstance(rows, pa.Table):
        transaction.rewrite(relation, untangled(relation, rows) if changes_keys else rows, is_kept=is_kept)
        return int(rows.num_rows)
    if not changes_keys or not _exchange_keys(relation, rows):
        return transaction.rewrite(relation, rows, is_kept=is_kept)
    count = transaction.rewrite(relation, rows.withColumn("new", F.lit(None).cast(spark_columns(relation))), is_kept=is_kept)
    transaction.append(relation, rows.where("new IS NOT NULL").select("new.*"))
    return count


def _exchange_keys(relation: Relation, changed: DataFrame) -> bool:
    """Return whether a row gets a unique key that another one of the rows has had."""
    place = (F.col("file").alias(FILE), F.col("row").alias(ROW))
    for index in relation.unique_indexes:
        old, new = (
            index_key.keyed(relation, index, changed.where(F.col(side).isNotNull()).select(f"{side}.*", *place), F.col(FILE), F.col(ROW))
            for side in ("old", "new")
        )
        new = new.select(*[F.col(quoted(name)).alias(f"n_{name}") for name in new.columns])
        keys = [f"k{number}" for number in range(len(index.attnums))]
        same_key = index_key.is_same(index, [F.col(key) for key in keys], [F.col(f"n_{key}") for key in keys])
        same_row = (F.col(quoted(FILE)) == F.col(quoted(f"n_{FILE}"))) & (F.col(quoted(ROW)) == F.col(quoted(f"n_{ROW}")))
        if not old.join(new, same_key & ~same_row, "left_semi").limit(1).isEmpty():
            return True
    return False


def _change_leaf(writer: NewRows, changed: Rows, set_columns: set[str], until: ExitStack) -> Rows:
    """Check and write the changes of one leaf, of which those with `new` NULL leave it. Return the changes of rows that stay."""
    gone, staying = row_set.split_by_new(changed)
    whole = row_set.together(gone, _check(writer, staying, None))
    if isinstance(whole, DataFrame):
        whole = until.enter_context(persisted(whole))
    refuse_clash(writer.planner, writer.relation, whole, set_columns)
    _write(writer.transaction, writer.relation, whole, set_columns, is_kept=True)
    return row_set.split_by_new(whole)[1]


# ---- checks ------------------------------------------------------------------------------------------------------------


def _check(writer: NewRows, changed: Rows, fence: Fence | None) -> Rows:
    """Return the changes (`new` is not NULL) with generated columns computed, and with policies and constraints checked on the new rows.

    PostgreSQL evaluates the bounds of a partition (`fence`) before the others here, and after them in INSERT.
    """
    relation, evaluation = writer.relation, writer.planner.evaluation
    if not relation.columns:
        return changed
    if isinstance(changed, pa.Table):
        rows = row_set.project(changed, _columns_of("new", relation))
        if fence is not None:
            writer.inside(rows)
        checked_rows = many_rows.of(relation, writer.checked(rows))
        return changed.set_column(changed.column_names.index("new"), "new", checked_rows.to_struct_array())
    names = [column.name for column in relation.columns]
    more = [name for name in changed.columns if name == JOINED]
    flat = changed.select(
        *[F.col(f"new.{quoted(name)}").alias(name) for name in names],
        F.col("old").alias(_OLD), F.col("file").alias(FILE), F.col("row").alias(ROW), *more,
    )  # fmt: skip
    disclosed = disclosure.of_row(writer.planner, writer.shown)
    first = [*row_constraint.outside(evaluation, relation, fence, disclosed), *writer.violations]
    generated = row_constraint.with_generated(evaluation, relation, flat)
    checked = row_constraint.checked(evaluation, relation, generated, shown=disclosed, first=first)
    new = F.struct(*[F.col(quoted(name)) for name in names])
    return checked.select(F.col(_OLD).alias("old"), new.alias("new"), F.col(FILE).alias("file"), F.col(ROW).alias("row"), *more)


def touched_keys(relation: Relation, set_columns: set[str]) -> bool:
    """Return whether an UPDATE of these columns can change a unique key."""
    for index in relation.unique_indexes:
        used = relation.columns_at(index_key.used_columns(relation, index))
        if any(column.name in set_columns or column.generated is not None for column in used):
            return True
    return False


def refuse_clash(planner: Planner, relation: Relation, changed: Rows, set_columns: set[str]) -> None:
    """Raise 23505 if two rows of the table would have the same key after the change (`new` NULL: deleted)."""
    if not touched_keys(relation, set_columns):
        return
    rows = rows_of(row_set.split_by_new(row_set.select(changed, CHANGED))[1], "new", relation)
    uniqueness.refuse_clash(planner.session, planner.transaction, relation, rows, leaving=changed)
    uniqueness.put_off(planner.session, planner.transaction, relation, rows)


def check_references(planner: Planner, relation: Relation, changed: Rows, *, deleting: bool = False) -> None:
    """Check the foreign keys of the changed rows, and the foreign keys that reference them."""
    if not relation.foreign_keys and not relation.referenced:
        return
    session, transaction = planner.session, planner.transaction
    if not deleting:
        referential_action.updated(session, transaction, relation, changed)
    referential_action.left(session, transaction, relation, changed, _writing(planner), deleting=deleting)


def _writing(planner: Planner) -> referential_action.Writing:
    """Return the functions with which ON DELETE and ON UPDATE change rows of other tables."""

    def begin(relation: Relation, columns: set[str] | None) -> None:
        change_by_action(planner, relation, triggers.DELETE if columns is None else triggers.UPDATE, columns)

    def delete(relation: Relation, rows: Rows) -> None:
        replica_identity.check(planner.transaction.cursor, relation, "delete")
        if isinstance(rows, pa.Table):
            rows = rows.append_column("new", pa.nulls(rows.num_rows, pa.struct(list(arrow_row(relation)))))
        else:
            rows = rows.withColumn("new", F.lit(None).cast(spark_columns(relation)))
        remove(planner, relation, row_set.select(rows, CHANGED))

    def update(relation: Relation, rows: Rows, columns: set[str]) -> None:
        replica_identity.check(planner.transaction.cursor, relation, "update")
        rewrite(planner, relation, rows, columns, violations=())

    def default(relation: Relation, column: TableColumn) -> pa.Scalar:
        return NewRows(planner, relation, violations=()).default(column, 1)[0]

    return referential_action.Writing(begin, delete, update, default)


# ---- the sides of a change ---------------------------------------------------------------------------------------------


def rows_of(changed: Rows, side: str, relation: Relation) -> Rows:
    """Return the old or the new rows of changes, with the columns of joined tables."""
    joined: dict[str, row_set.Path] = {JOINED: JOINED} if JOINED in row_set.names(changed) else {}
    return row_set.project(changed, _columns_of(side, relation) | joined)


def _columns_of(side: str, relation: Relation) -> dict[str, row_set.Path]:
    return {column.name: (side, column.name) for column in relation.columns}
