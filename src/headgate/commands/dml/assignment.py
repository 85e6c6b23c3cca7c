"""Evaluate SET lists, and write changed rows, for UPDATE and ON CONFLICT DO UPDATE."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Column as TableColumn
from headgate.catalog.relation.relation import Relation
from headgate.commands import disclosure, stored_expression
from headgate.commands.constraint import referential_action, row_constraint, uniqueness
from headgate.commands.constraint.reference_key import Rows
from headgate.commands.dml.returning import JOINED
from headgate.commands.dml.rows import many_rows, new_rows, next_value, routed_rows, storage_error
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.publication import replica_identity
from headgate.commands.query.driver import values_list
from headgate.commands.query.plan import Plan, PlanColumn, col
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Violation
from headgate.commands.trigger.firing import Firing, RoutedFiring, of_statement
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.part_assignment import Target
from headgate.expression.binding.scope import Scope, column_of
from headgate.expression.node import Expression, SetToDefault, SubLink
from headgate.sql.parser import ParseNode, position, unwrap, written
from headgate.storage import row_store
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.partitioned import Fence
from headgate.storage.spark import result_spool
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.spark.persisted import computed_once, persisted, places
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row, small_enough
from headgate.storage.write import columns as spark_columns
from headgate.types.storage import own_name, spark_type

_OLD = own_name("_old")
CHANGED = ["old", "new", "file", "row"]


def set_list(targets: Sequence[pb.Node], planner: Planner, relation: Relation, scope: Scope) -> dict[str, Expression | SetToDefault]:
    """Return the new value of each column in the SET list, in the column's type."""
    context = planner.context.within(construct="UPDATE", default=True)
    values: dict[str, Expression | SetToDefault] = {}
    parts: set[str] = set()
    rows: dict[int, Sequence[ParseNode | Expression]] = {}
    for item in targets:
        target = unwrap(item)
        column = relation.column(target.name)
        if column is None:
            raise PostgresError(
                "42703", f'column "{target.name}" of relation "{relation.name}" does not exist', position=position(target.location)
            )
        if target.name in values and not (target.indirection and target.name in parts):
            raise PostgresError("42601", f'multiple assignments to same column "{target.name}"')
        node = unwrap(target.val)
        if node.DESCRIPTOR.name == "MultiAssignRef":
            node = _of_row(node, rows, planner, scope)
        bound = node if isinstance(node, Expression) else binder.bind_raw(node, scope, context)
        if target.indirection:
            parts.add(target.name)
            current = values.get(target.name) or column_of(scope.tables[0], target.name)
            part = Target(column.name, target.indirection, target.location, scope, context, binder.bind_raw)
            bound = part.store(current, bound)
        if not isinstance(bound, SetToDefault):
            with storage_error.entering(relation.name, column.name):
                constant = values_list.folded(bound, stored_expression.type_of(column))
                bound = constant if constant is not None else binder.assign(bound, stored_expression.type_of(column), column.name, context)
        if column.generated is not None and not isinstance(bound, SetToDefault):
            raise PostgresError(
                "428C9", f'column "{column.name}" can only be updated to DEFAULT', detail=f'Column "{column.name}" is a generated column.'
            )
        if column.identity == "a" and not isinstance(bound, SetToDefault):
            raise PostgresError(
                "428C9",
                f'column "{column.name}" can only be updated to DEFAULT',
                detail=f'Column "{column.name}" is an identity column defined as GENERATED ALWAYS.',
            )
        values[target.name] = bound
    return values


def _of_row(
    node: pb.MultiAssignRef, rows: dict[int, Sequence[ParseNode | Expression]], planner: Planner, scope: Scope
) -> ParseNode | Expression:
    """Return one item of ``SET (a, b) = (x, y)`` or ``= (SELECT …)``. libpg_query returns the source only with the first item."""
    source = unwrap(node.source)
    if source is not None:
        if source.DESCRIPTOR.name == "SubLink":
            rows[0] = _subquery(source, planner, scope)
        elif source.DESCRIPTOR.name == "RowExpr":
            rows[0] = [unwrap(arg) for arg in source.args]
        else:
            raise not_supported("source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression")
    items = rows.get(0, ())
    if len(items) != node.ncolumns:
        raise PostgresError("42601", "number of columns does not match number of values")
    return items[node.colno - 1]


def _subquery(node: ParseNode, planner: Planner, scope: Scope) -> list[Expression]:
    """Convert a subquery with several columns to a scalar subquery for each column."""
    plan = planner.select(unwrap(node.subselect), scope)
    source = written(node.subselect)
    return [
        SubLink(
            type=plan_column.type,
            kind="EXPR",
            query=Plan(plan.frame, (plan_column,)),
            source=source + plan_column.key.encode(),
            location=node.location,
        )
        for plan_column in plan.columns
    ]


def old_row(relation: Relation, columns: Sequence[PlanColumn]) -> Column:
    """Return the row as it is, as a struct with the relation's columns, over a frame that has it under the keys of `columns`."""
    names = {column.attnum: column.name for column in relation.columns}
    return F.struct(*[col(plan_column.key).alias(names[plan_column.attnum]) for plan_column in columns]).alias("old")


@dataclass(frozen=True)
class NewRow:
    """The new row as a struct with the relation's columns.

    The columns in `counted` receive numbers of a sequence. They are NULL until the changed rows are known (`numbered`).
    """

    row: Column
    counted: tuple[TableColumn, ...] = ()


def new_row(targets: Sequence[pb.Node], planner: Planner, relation: Relation, columns: Sequence[PlanColumn], scope: Scope) -> NewRow:
    """Return the new row over a frame that has the old row under the keys of `columns`."""
    assigned = set_list(targets, planner, relation, scope)
    values, counted = [], []
    for plan_column in columns:
        column = relation.numbered(plan_column.attnum)
        assert column is not None
        value = assigned.get(column.name)
        if value is None:
            values.append(col(plan_column.key).alias(column.name))
        elif isinstance(value, SetToDefault):
            default = None if column.generated is not None else new_rows.bound_default(relation, column)
            if column.identity or (default is not None and next_value.called(default)):
                counted.append(column)
                default = None
            kind = spark_type(column.type_oid, column.typmod)
            values.append((F.lit(None).cast(kind) if default is None else planner.column(default)).alias(column.name))
        else:
            values.append(planner.column(value).alias(column.name))
    return NewRow(F.struct(*values) if values else F.struct(), tuple(counted))


def numbered(planner: Planner, relation: Relation, changed: DataFrame, new: NewRow, until: ExitStack) -> DataFrame:
    """Return changes (`old`, `new`, and others) with sequence numbers in the counted columns. The rows stay persisted `until` then."""
    if not new.counted:
        return changed
    counted_rows = until.enter_context(persisted(changed))
    position_column, rows = places(counted_rows)
    writer, values = NewRows(planner, relation, violations=()), {}
    numbers: list[Column] = []
    for counted_column in new.counted:
        value, number_columns = writer.numbered_column(
            counted_column, new_rows.bound_default(relation, counted_column), position_column, rows, len(numbers)
        )
        values[counted_column.name] = value.cast(spark_type(counted_column.type_oid, counted_column.typmod))
        numbers += number_columns
    fields = [values.get(column.name, F.col("new").getField(column.name)).alias(column.name) for column in relation.columns]
    selected = [F.struct(*fields).alias(name) if name == "new" else F.col(name) for name in changed.columns]
    return counted_rows.select("*", *numbers).select(*selected)


Later: TypeAlias = Callable[[Rows], None]
"""Receives changes (`old`, `new`) whose foreign keys are checked after the statement has written all rows."""


def write(
    planner: Planner, relation: Relation, changed: DataFrame, set_columns: set[str], violations: Sequence[Violation], later: Later
) -> pa.Table:
    """Check and write changed rows (`old`, `new`, `file`, `row`) that fit in the driver. Return the new rows."""
    with ExitStack() as stack:
        _, rows = rewrite(planner, relation, changed, set_columns, violations, stack, later)
        assert rows is not None
        return rows if isinstance(rows, pa.Table) else rows.toArrow()


def rewrite(
    planner: Planner,
    relation: Relation,
    changed: DataFrame,
    set_columns: set[str],
    violations: Sequence[Violation],
    kept: ExitStack | None = None,
    later: Later | None = None,
) -> tuple[int, Rows | None]:
    """Check and write changed rows (`old`, `new`, `file`, `row`, and JOINED). Return their number, and the new rows if `kept` is passed.

    `violations` are conditions for new rows that row security rejects.

    Few rows are collected in the driver, which looks their keys up in the files and writes them. Many rows stay in Spark. The returned rows
    are then valid until `kept` is closed.
    """
    firing = of_statement(planner, relation)
    if firing is not None and firing.has_rows(triggers.UPDATE):
        columns = _columns_of(relation)  # a trigger may change any column
        write_part = functools.partial(_rewrite, planner, relation, set_columns=columns, violations=violations, later=later)
        count, rows = _fired(planner, relation, changed, firing, set_columns, write_part)
        return count, rows if kept is not None else None
    return _rewrite(planner, relation, changed, set_columns=set_columns, violations=violations, kept=kept, later=later)


def _columns_of(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns if column.generated is None}


def _fired(
    planner: Planner, relation: Relation, changed: Rows, firing: Firing | RoutedFiring, set_columns: set[str] | None,
    write_part: Callable[..., tuple[int, Rows | None]],
) -> tuple[int, pa.Table]:  # fmt: skip
    """Write changes of a table with row triggers, part by part in the driver. With `set_columns` None, delete the rows."""
    count, written_parts, spark = 0, [], planner.session_spark
    for part in [changed] if isinstance(changed, pa.Table) else _parts(planner, relation, changed):
        remaining = firing.before_delete(part) if set_columns is None else firing.before_update(part, set_columns)
        if not remaining.num_rows:
            continue
        with ExitStack() as until:
            passed = remaining if isinstance(changed, pa.Table) else local_frame(spark, remaining, changed.schema)
            part_count, rows = write_part(passed, kept=until)
            count += part_count
            written_rows = rows.toArrow() if isinstance(rows, DataFrame) else rows
            assert written_rows is not None
        written_parts.append(written_rows)
        old = _flat(remaining["old"], relation)
        event = triggers.DELETE if set_columns is None else triggers.UPDATE
        planner.fires_later += firing.after(event, old, None if set_columns is None else written_rows, set_columns)
    if written_parts:
        return count, pa.concat_tables(written_parts, promote_options="permissive")
    return 0, arrow_row(relation).empty_table()


def instead(planner: Planner, view: Relation, changed: DataFrame, event: int) -> pa.Table:
    """Call the INSTEAD OF triggers of a view for changes (`old`, `new`, JOINED). Return the rows that they have not left out."""
    firing = of_statement(planner, view)
    assert isinstance(firing, Firing), "a view without triggers is not writable"
    written = []
    for part in _parts(planner, view, changed):
        new = None if event == triggers.DELETE else _flat(part["new"], view)
        rows, kept = firing.instead(event, _flat(part["old"], view), new)
        if JOINED in part.column_names:
            rows = rows.append_column(JOINED, part[JOINED].take(pa.array(kept, pa.int64())))
        written.append(rows)
    return pa.concat_tables(written) if written else arrow_row(view).empty_table()


def _parts(planner: Planner, relation: Relation, changed: DataFrame) -> Iterator[pa.Table]:
    """Yield changes as tables, of which one at a time fits in the driver."""
    batches = result_spool.batches(changed, planner.transaction.engine.exchange)
    most = many_rows.chunk_rows(relation, planner.session, planner.transaction)
    return row_store.tables(batches, most, many_rows.CHUNK_BYTES)


def _rewrite(
    planner: Planner, relation: Relation, changed: DataFrame, *, set_columns: set[str], violations: Sequence[Violation],
    kept: ExitStack | None = None, later: Later | None = None,
) -> tuple[int, Rows | None]:  # fmt: skip
    transaction = planner.transaction
    if relation.is_partitioned:
        return routed_rows.rewrite(planner, relation, changed, set_columns, violations, kept)
    referential_action.lock(transaction, relation)
    fence = _fence(transaction, relation, set_columns)
    checked = checked_changes(planner, relation, changed, violations=violations, fence=fence)
    few = small(planner, relation, checked)
    if few is not None:
        return _rewrite_few(planner, relation, few, set_columns, later), rows_of(few, "new", relation) if kept is not None else None
    keyed, referring = touched_keys(relation, set_columns), bool(relation.foreign_keys or relation.referenced)
    with ExitStack() as stack:
        is_kept = keyed or referring or kept is not None
        persisted_changes = _held(planner, checked, kept or stack, returned=kept is not None) if is_kept else checked
        refuse_clash(planner, relation, persisted_changes, set_columns)
        count = transaction.rewrite(relation, persisted_changes.select(*CHANGED), is_kept=is_kept)
        (later or functools.partial(check_references, planner, relation))(persisted_changes)
        return count, rows_of(persisted_changes, "new", relation) if kept is not None else None


def rewrite_few(
    planner: Planner, relation: Relation, changed: pa.Table, set_columns: set[str], later: Later | None = None
) -> tuple[int, pa.Table]:
    """Rewrite rows as `rewrite` does. The driver has computed them, and the table is plain and has no row security."""
    firing, written_columns = of_statement(planner, relation), set_columns
    if firing is not None and firing.has_rows(triggers.UPDATE):
        changed, written_columns = firing.before_update(changed, set_columns), _columns_of(relation)
    referential_action.lock(planner.transaction, relation)
    new = NewRows(planner, relation, violations=()).checked(_flat(changed["new"], relation))
    few = changed.set_column(changed.column_names.index("new"), "new", new.to_struct_array())
    count = _rewrite_few(planner, relation, few, written_columns, later)
    if firing is not None:
        planner.fires_later += firing.after(triggers.UPDATE, _flat(changed["old"], relation), new, set_columns)
    return count, new


def _rewrite_few(planner: Planner, relation: Relation, few: pa.Table, set_columns: set[str], later: Later | None = None) -> int:
    refuse_clash(planner, relation, few, set_columns)
    if not few.num_rows:
        return 0
    count = planner.transaction.rewrite(relation, few.select(CHANGED))
    (later or functools.partial(check_references, planner, relation))(few)
    return count


def remove(planner: Planner, relation: Relation, changed: Rows, kept: ExitStack | None = None) -> tuple[int, Rows | None]:
    """Delete rows (`old`, `new` NULL, `file`, `row`, and JOINED). Return their number, and the rows if `kept` is passed (see `rewrite`)."""
    firing = of_statement(planner, relation)
    if firing is not None and firing.has_rows(triggers.DELETE):
        count, rows = _fired(planner, relation, changed, firing, None, functools.partial(_remove, planner, relation))
        return count, rows if kept is not None else None
    return _remove(planner, relation, changed, kept)


def _remove(planner: Planner, relation: Relation, changed: Rows, kept: ExitStack | None = None) -> tuple[int, Rows | None]:
    transaction = planner.transaction
    few = changed if isinstance(changed, pa.Table) else small(planner, relation, changed)
    if few is not None:
        count = transaction.rewrite(relation, few.select(CHANGED)) if few.num_rows else 0
        if few.num_rows:
            check_references(planner, relation, few, deleting=True)
        return count, rows_of(few, "old", relation) if kept is not None else None
    assert isinstance(changed, DataFrame)
    with ExitStack() as stack:
        is_kept = kept is not None or bool(relation.referenced)
        persisted_changes = _held(planner, changed, kept or stack, returned=kept is not None) if is_kept else changed
        count = transaction.rewrite(relation, persisted_changes.select(*CHANGED), is_kept=is_kept)
        check_references(planner, relation, persisted_changes, deleting=True)
        return count, rows_of(persisted_changes, "old", relation) if kept is not None else None


def _held(planner: Planner, changed: DataFrame, until: ExitStack, *, returned: bool) -> DataFrame:
    """Persist the changes in Spark. If they are `returned`, they must be what was written, even if an executor is lost meanwhile."""
    if returned and planner.transaction.engine.on_cluster:
        return until.enter_context(computed_once(changed))
    return until.enter_context(persisted(changed))


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

    def delete(relation: Relation, rows: DataFrame | pa.Table) -> None:
        replica_identity.check(planner.transaction.cursor, relation, "delete")
        row = spark_columns(relation)
        if isinstance(rows, DataFrame):
            remove(planner, relation, rows.select("old", F.lit(None).cast(row).alias("new"), "file", "row"))
            return
        empty = pa.nulls(rows.num_rows, pa.struct(list(arrow_row(relation))))
        remove(planner, relation, rows.append_column("new", empty).select(CHANGED))

    def update(relation: Relation, rows: DataFrame | pa.Table, columns: set[str]) -> None:
        replica_identity.check(planner.transaction.cursor, relation, "update")
        frame = local_frame(planner.session_spark, rows) if isinstance(rows, pa.Table) else rows
        rewrite(planner, relation, frame, columns, violations=())

    def default(relation: Relation, column: TableColumn) -> pa.Scalar:
        return NewRows(planner, relation, violations=()).default(column, 1)[0]

    return referential_action.Writing(delete, update, default)


def small(planner: Planner, relation: Relation, changed: DataFrame) -> pa.Table | None:
    """Return the changed rows as an Arrow table if they are few, otherwise None."""
    most = min(many_rows.most(planner.session), small_enough(planner.transaction.newest_files(relation)))
    rows = changed.limit(most + 1).toArrow()
    return rows if rows.num_rows <= most else None


def rows_of(changed: Rows, side: str, relation: Relation) -> Rows:
    """Return the old or the new rows of changes, with the columns of joined tables."""
    if isinstance(changed, DataFrame):
        return changed.select(f"{side}.*", *[name for name in changed.columns if name == JOINED])
    rows = _flat(changed[side], relation)
    return rows.append_column(JOINED, changed[JOINED]) if JOINED in changed.column_names else rows


def _flat(rows: pa.ChunkedArray, relation: Relation) -> pa.Table:
    whole = rows.combine_chunks()
    struct = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) and whole.num_chunks else whole
    if isinstance(struct, pa.ChunkedArray):
        return arrow_row(relation).empty_table()
    return pa.table(struct.flatten(), names=[field.name for field in struct.type])


def _fence(transaction: Transaction, relation: Relation, set_columns: set[str]) -> Fence | None:
    """Return the partition bounds that an UPDATE of a partition itself may violate, or None."""
    fence = Fence(transaction.cursor, relation) if relation.parent else None
    return fence if fence is not None and set_columns & set(fence.names) else None


def checked_changes(
    planner: Planner,
    relation: Relation,
    changed: DataFrame,
    *,
    violations: Sequence[Violation],
    shown: Relation | None = None,
    fence: Fence | None = None,
) -> DataFrame:
    """Return the changes with generated columns computed, and with policies and constraints checked on the new rows."""
    if not relation.columns:
        return changed
    names = [column.name for column in relation.columns]
    more = [name for name in changed.columns if name == JOINED]
    flat = changed.select(
        *[F.col(f"new.{quoted(name)}").alias(name) for name in names],
        F.col("old").alias(_OLD),
        F.col("file").alias(FILE),
        F.col("row").alias(ROW),
        *more,
    )
    generated = row_constraint.with_generated(planner.evaluation, relation, flat)
    disclosed = disclosure.of_row(planner, shown or relation)
    first = [*row_constraint.outside(planner.evaluation, relation, fence, disclosed), *violations]
    checked = row_constraint.checked(planner.evaluation, relation, generated, shown=disclosed, first=first)
    new = F.struct(*[F.col(quoted(name)) for name in names])
    return checked.select(F.col(_OLD).alias("old"), new.alias("new"), F.col(FILE).alias("file"), F.col(ROW).alias("row"), *more)


def touched_keys(relation: Relation, set_columns: set[str]) -> bool:
    """Return whether an UPDATE of these columns can change a unique key."""
    for index in relation.unique_indexes:
        for attnum in uniqueness.used_columns(relation, index):
            column = relation.numbered(attnum)
            if column is not None and (column.name in set_columns or column.generated is not None):
                return True
    return False


def refuse_clash(planner: Planner, relation: Relation, changed: Rows, set_columns: set[str]) -> None:
    """Raise 23505 if two rows of the table would have the same key after the change (`new` NULL: deleted)."""
    if not touched_keys(relation, set_columns):
        return
    if isinstance(changed, pa.Table):
        rows: Rows = _flat(changed["new"].filter(changed["new"].is_valid()), relation)
    else:
        rows = changed.where("new IS NOT NULL").select("new.*")
    uniqueness.refuse_clash(planner.session, planner.transaction, relation, rows, leaving=changed)
    uniqueness.put_off(planner.session, planner.transaction, relation, rows)
