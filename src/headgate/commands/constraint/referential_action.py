"""Enforce FOREIGN KEYs when rows are written: check the keys of new rows, and act on rows that reference removed keys (manual, 5.4.5).

Called after a statement has written all its rows, like PostgreSQL's triggers at the end of a statement. A deferred constraint is checked
before the commit. Whether a constraint is checked depends on its internal triggers and session_replication_role, which is replica in
workers that apply changes (`ForeignKey.enabled`). `reference_key` looks up keys.

    INSERT, UPDATE of the referencing table     each new key without a NULL must be in the referenced table
    DELETE, UPDATE of the referenced table      NO ACTION, RESTRICT: no row may reference a removed key
                                                CASCADE, SET NULL, SET DEFAULT: a statement of its own changes those rows

Before it writes, a statement must acquire the locks of the tables that its rows reference (`lock`), so that all sessions lock referenced
tables first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, ForeignKey, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import disclosure
from headgate.commands.constraint import reference_key
from headgate.commands.deferral import Deferrable
from headgate.commands.query import rendering
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.storage import row_set
from headgate.storage.row_set import Rows
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers
from headgate.types.storage import arrow_type

NO_ACTION, RESTRICT, CASCADE, SET_NULL, SET_DEFAULT = "a", "r", "c", "n", "d"


def lock(transaction: Transaction, relation: Relation) -> None:
    """Lock the tables that a table's rows reference, before a statement writes rows into it."""
    for key in relation.foreign_keys:
        if key.target != relation.oid:
            transaction.lock(relations.get(transaction.cursor, relation.database, key.target))


def _fired(session: Session, keys: Sequence[ForeignKey], *, updating: bool) -> list[ForeignKey]:
    """Return the foreign keys whose triggers fire, in PostgreSQL's order: that of their creation."""
    role = session.settings.text("session_replication_role")
    fired = [key for key in keys if (key.fires_on_update(role) if updating else key.fires_otherwise(role))]
    return sorted(fired, key=lambda key: key.oid)


# ---- the referencing side --------------------------------------------------------------------------------------------


def inserted(session: Session, transaction: Transaction, relation: Relation, rows: Rows) -> None:
    """Check inserted rows (the relation's columns by name). Raise 23503."""
    for key in _fired(session, relation.foreign_keys, updating=False) if relation.foreign_keys else ():
        _check_new(session, transaction, relation, key, reference_key.of_rows(rows, relation, key.columns))


def updated(session: Session, transaction: Transaction, relation: Relation, changed: Rows) -> None:
    """Check updated rows (`old`, `new` structs) whose key columns have changed. Raise 23503."""
    for key in _fired(session, relation.foreign_keys, updating=True) if relation.foreign_keys else ():
        names = reference_key.column_names(relation, key.columns)
        moved = row_set.differing(changed, names)
        _check_new(session, transaction, relation, key, reference_key.of_struct(moved, "new", names))


def check_table(session: Session, transaction: Transaction, relation: Relation, key: ForeignKey) -> None:
    """Check all rows of a table against a new constraint."""
    if relation.kind == RelationKind.TABLE:
        transaction.lock(relations.get(transaction.cursor, relation.database, key.target))
        transaction.lock(relation)
        if not any(state.files for state in transaction.reader.states(relation)):
            return
        _check_new(
            session, transaction, relation, key, reference_key.of_rows(transaction.reader.frame(relation), relation, key.columns), now=True
        )


def _check_new(session: Session, transaction: Transaction, relation: Relation, key: ForeignKey, values: Rows, *, now: bool = False) -> None:
    """Raise 23503 unless the referenced table has the keys in `values` (v0, v1, …). Keys with a NULL are not checked."""
    if key.match == "f" and len(key.columns) > 1:
        _refuse_mixed(relation, key, values)
    complete = row_set.without_null(values, reference_key.value_names(key.columns))
    if row_set.is_known_empty(complete):
        return
    if not now and deferred(session, key):
        session.deferral.put_off(_deferrable(key), relation.oid, lambda: _check_again(session, transaction, key, complete))
        return
    if not now and session.deferral.postponed is not None:
        session.deferral.postponed.append(lambda: _check_again(session, transaction, key, complete))
        return
    target = relations.get(transaction.cursor, relation.database, key.target)
    missing = reference_key.missing(transaction, relation, key.columns, target, key.target_columns, complete)
    if missing is None:
        return
    is_shown = disclosure.tells_key(session, transaction.cursor, relation, key.columns)
    shown = f"{reference_key.shown(relation, key.columns, row_set.first(missing))} " if is_shown else ""
    raise PostgresError(
        "23503",
        f'insert or update on table "{relation.name}" violates foreign key constraint "{key.name}"',
        detail=f'Key {shown}is not present in table "{target.name}".',
        schema=relation.schema, table=relation.name, constraint=key.name,
    )  # fmt: skip


def _check_again(session: Session, transaction: Transaction, key: ForeignKey, values: Rows) -> None:
    """Run a deferred check for the keys that the referencing table still has."""
    relation = relations.find(transaction.cursor, transaction.database, key.relation)
    if relation is None or all(foreign_key.oid != key.oid for foreign_key in relation.foreign_keys):
        return
    with rendering.running(session, transaction):
        if isinstance(values, pa.Table):
            children = reference_key.rows_with(transaction, relation, key.columns, relation, key.columns, values)
            values = reference_key.of_struct(children, "old", reference_key.column_names(relation, key.columns))
        else:
            with transaction.snapshot.seeing_newest():
                values = reference_key.of_rows(transaction.reader.frame(relation), relation, key.columns)
        _check_new(session, transaction, relation, key, values, now=True)


def _refuse_mixed(relation: Relation, key: ForeignKey, values: Rows) -> None:
    if row_set.first(row_set.with_some_null(values, reference_key.value_names(key.columns))).num_rows:
        raise PostgresError(
            "23503",
            f'insert or update on table "{relation.name}" violates foreign key constraint "{key.name}"',
            detail="MATCH FULL does not allow mixing of null and nonnull key values.",
            schema=relation.schema, table=relation.name, constraint=key.name,
        )  # fmt: skip


# ---- the referenced side ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing:
    """The functions that change rows of another table: DELETE of `changed` rows, and UPDATE with the names of the set columns."""

    begin: Callable[[Relation, set[str] | None], None]
    """Fire the BEFORE STATEMENT triggers of a DELETE (None), or of an UPDATE of columns, also if it finds no rows."""
    delete: Callable[[Relation, Rows], None]
    update: Callable[[Relation, Rows, set[str]], None]
    default: Callable[[Relation, Column], pa.Scalar]


def left(
    session: Session, transaction: Transaction, relation: Relation, changed: Rows, writing: Writing, *, deleting: bool,
    only_own: bool = False,
) -> None:  # fmt: skip
    """Enforce constraints after rows were deleted or updated (`old`, `new` structs).

    The change is rejected, or the referencing rows are changed too. `only_own`: leave out the clones of constraints of tables above.
    """
    referenced = [key for key in relation.referenced if not (only_own and key.parent)]
    for key in _fired(session, referenced, updating=not deleting) if referenced else ():
        names = reference_key.column_names(relation, key.target_columns)
        gone = changed if deleting else row_set.differing(changed, names)
        values = reference_key.of_struct(gone, "old", names, None if deleting else "new")
        old = row_set.without_null(values, reference_key.value_names(key.target_columns))
        if row_set.is_known_empty(old):
            continue
        child = relations.get(transaction.cursor, relation.database, key.relation)
        action = key.on_delete if deleting else key.on_update
        if action in (NO_ACTION, RESTRICT):
            _refuse(session, transaction, relation, key, child, old, restrict=action == RESTRICT)
            continue
        act = functools.partial(_act, session, transaction, relation, key, child, old, writing, deleting=deleting)
        if session.deferral.postponed is not None:
            session.deferral.postponed.append(act)
        else:
            act()


def _act(
    session: Session, transaction: Transaction, relation: Relation, key: ForeignKey, child: Relation, old: Rows, writing: Writing, *,
    deleting: bool,
) -> None:  # fmt: skip
    """Change the rows that reference removed keys, as ON DELETE or ON UPDATE says."""
    action = key.on_delete if deleting else key.on_update
    transaction.lock(child)
    with session.context.acting_on_rows():
        writing.begin(child, None if action == CASCADE and deleting else set(reference_key.column_names(child, key.columns)))
        referencing = reference_key.rows_with(transaction, child, key.columns, relation, key.target_columns, old, keep=not deleting)
        if row_set.is_known_empty(referencing):
            return
        if action == CASCADE and deleting:
            writing.delete(child, referencing)
        else:
            _set(key, child, referencing, action, writing, deleting=deleting)
    if action == SET_DEFAULT:  # if the default is the removed key, the UPDATE changes nothing and does not check it
        _refuse(session, transaction, relation, key, child, old, now=True)


def _refuse(
    session: Session, transaction: Transaction, relation: Relation, key: ForeignKey, child: Relation, old: Rows, *,
    restrict: bool = False, now: bool = False,
) -> None:  # fmt: skip
    if not restrict and not now and deferred(session, key):
        session.deferral.put_off(_deferrable(key), relation.oid, lambda: _refuse_again(session, transaction, key, old))
        return
    if not now and session.deferral.postponed is not None:
        session.deferral.postponed.append(
            functools.partial(_refuse, session, transaction, relation, key, child, old, restrict=True, now=True)
            if restrict else lambda: _refuse_again(session, transaction, key, old)
        )  # fmt: skip
        return
    if not restrict:
        remaining = reference_key.missing(transaction, relation, key.target_columns, relation, key.target_columns, old)
        if remaining is None:
            return
        old = remaining
    value = reference_key.referenced(transaction, relation, key.target_columns, child, key.columns, old)
    if not value.num_rows:
        return
    is_shown = disclosure.tells_key(session, transaction.cursor, relation, key.target_columns)
    shown = f"{reference_key.shown(relation, key.target_columns, value)} " if is_shown else ""
    message = f'update or delete on table "{relation.name}" violates foreign key constraint "{key.name}" on table "{child.name}"'
    raise _still_referenced(message, key, child, shown)


def check_removal(transaction: Transaction, partition: Relation, key: ForeignKey) -> None:
    """Raise 23503 if a row references a row of a partition that is detached (RI_PartitionRemove_Check). `key`: the partition's clone."""
    child = relations.get(transaction.cursor, partition.database, key.relation)
    transaction.lock(child)
    with transaction.snapshot.seeing_newest():
        values = reference_key.of_rows(transaction.reader.frame(partition), partition, key.target_columns)
    first = row_set.first(reference_key.rows_with(transaction, child, key.columns, partition, key.target_columns, values))
    if first.num_rows:
        value = reference_key.of_struct(first, "old", reference_key.column_names(child, key.columns))
        assert isinstance(value, pa.Table)
        message = f'removing partition "{partition.name}" violates foreign key constraint "{key.name}"'
        raise _still_referenced(message, key, child, f"{reference_key.shown(child, key.columns, value)} ")


def _still_referenced(message: str, key: ForeignKey, child: Relation, shown: str) -> PostgresError:
    return PostgresError(
        "23503", message, detail=f'Key {shown}is still referenced from table "{child.name}".',
        schema=child.schema, table=child.name, constraint=key.name,
    )  # fmt: skip


def _refuse_again(session: Session, transaction: Transaction, key: ForeignKey, old: Rows) -> None:
    child = relations.find(transaction.cursor, transaction.database, key.relation)
    relation = relations.find(transaction.cursor, transaction.database, key.target)
    if child is not None and relation is not None and any(foreign_key.oid == key.oid for foreign_key in relation.referenced):
        with rendering.running(session, transaction):
            _refuse(session, transaction, relation, key, child, old, now=True)


def _set(key: ForeignKey, child: Relation, rows: Rows, action: str, writing: Writing, *, deleting: bool) -> None:
    """UPDATE the rows that reference a removed key: to its new value (CASCADE), NULL or the defaults."""
    chosen = key.set_columns if deleting and key.set_columns else key.columns
    values: dict[str, str | pa.Scalar] = {}
    for place, column in enumerate(child.columns_at(key.columns)):
        if action == CASCADE:
            values[column.name] = f"n{place}"
        elif column.attnum in chosen:
            values[column.name] = pa.scalar(None) if action == SET_NULL else writing.default(child, column)
    writing.update(child, _with_new(child, rows, values), set(values))


def _literal(value: pa.Scalar) -> SparkColumn:
    """Return a stored value as a Column. Dates and timestamps are built from days and microseconds, which may exceed Python's range."""
    if not value.is_valid:
        return F.lit(None)
    if pa.types.is_date32(value.type):
        return F.date_from_unix_date(F.lit(value.cast(pa.int32()).as_py()))
    if pa.types.is_timestamp(value.type):
        timestamp = F.timestamp_micros(F.lit(value.cast(pa.int64()).as_py()))
        return timestamp if value.type.tz else timestamp.cast("timestamp_ntz")
    return F.lit(value.as_py())


def _with_new(child: Relation, rows: Rows, values: dict[str, str | pa.Scalar]) -> Rows:
    """Return rows (`old`, `file`, `row`, new keys n0, n1, …) with a column `new`: the old row with some values replaced."""
    if isinstance(rows, DataFrame):
        parts = []
        for column in child.columns:
            value = values.get(column.name)
            old_value = F.col(f"old.{quoted(column.name)}")
            part = old_value if value is None else F.col(value) if isinstance(value, str) else _literal(value)
            parts.append(part.alias(column.name))
        return rows.select("old", F.struct(*parts).alias("new"), "file", "row")
    old = buffers.whole(rows["old"])
    arrays = []
    for place, column in enumerate(child.columns):
        value = values.get(column.name)
        kind = arrow_type(column.type_oid, column.typmod)
        if value is None:
            arrays.append(old.field(place))
        elif isinstance(value, str):
            arrays.append(buffers.whole(rows[value]).cast(kind))
        else:
            arrays.append(pa.nulls(rows.num_rows, kind) if not value.is_valid else pa.repeat(value, rows.num_rows).cast(kind))
    new = pa.StructArray.from_arrays(arrays, names=[column.name for column in child.columns])
    return pa.table({"old": old, "new": new, "file": rows["file"], "row": rows["row"]})


# ---- deferred constraints --------------------------------------------------------------------------------------------


def deferred(session: Session, key: ForeignKey) -> bool:
    """Return whether a constraint is checked at the commit, according to SET CONSTRAINTS or its declaration."""
    return key.deferrable and bool(session.deferral.deferred(_deferrable(key)))


def _deferrable(key: ForeignKey) -> Deferrable:
    return Deferrable(key.oid, key.deferred)
