"""FOREIGN KEYs as rows are written: what a new row names must be there, and what happens to rows whose row goes (manual, 5.4.5).

Called after the rows of a statement were written, when all of them are there, as PostgreSQL's triggers at the end of a statement; for a
constraint that is deferred, before the commit. Nothing is looked at where session_replication_role is replica, and nothing by workers
that apply changes. Few rows are looked up in the files (`changes.lookup`), many are joined on Spark.

    INSERT, UPDATE of the referencing table     each new key that has no NULL must be in the referenced table
    DELETE, UPDATE of the referenced table      NO ACTION, RESTRICT: no row may name a key that is gone
                                                CASCADE, SET NULL, SET DEFAULT: those rows are changed, by a statement of its own

What must hold: a statement takes the locks of the tables that its rows name before it writes (`lock`), so that all sessions lock
referenced tables first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog import relation as relations
from headgate.catalog.relation import Column, ForeignKey, Relation
from headgate.changes import lookup
from headgate.commands import binding
from headgate.commands.query.plan import quoted
from headgate.errors import PostgresError
from headgate.expression import compile as compiler
from headgate.expression import operators
from headgate.expression.node import ColumnRef
from headgate.storage.transaction import Transaction
from headgate.types import registry
from headgate.types.storage import arrow_type
from headgate.types.text import write_text

Rows: TypeAlias = pa.Table | DataFrame
NO_ACTION, RESTRICT, CASCADE, SET_NULL, SET_DEFAULT = "a", "r", "c", "n", "d"


def enforced(session: Any) -> bool:
    """Whether the session checks foreign keys at all."""
    return session.settings is not None and session.settings.text("session_replication_role") != "replica"


def lock(transaction: Transaction, relation: Relation) -> None:
    """Locks the tables that a table's rows name, before a statement writes rows into it."""
    for key in relation.foreign_keys:
        if key.target != relation.oid:
            transaction.lock(relations.get(transaction.cursor, relation.database, key.target))


# ---- the referencing side --------------------------------------------------------------------------------------------


def inserted(session: Any, transaction: Transaction, relation: Relation, rows: Rows) -> None:
    """Checks rows that were added (the relation's columns by name); 23503."""
    if not relation.foreign_keys or not enforced(session):
        return
    for key in relation.foreign_keys:
        _check_new(transaction, relation, key, _columns(rows, relation, key.columns))


def updated(session: Any, transaction: Transaction, relation: Relation, changed: Rows) -> None:
    """Checks rows that were changed (`old`, `new` structs) where the key's columns did change."""
    if not relation.foreign_keys or not enforced(session):
        return
    for key in relation.foreign_keys:
        names = _names(relation, key.columns)
        moved = _moved(changed, names)
        _check_new(transaction, relation, key, _fields(moved, "new", names))


def check_table(session: Any, transaction: Transaction, relation: Relation, key: ForeignKey) -> None:
    """Checks all rows of a table against a constraint that is new."""
    if relation.kind == "r":
        _check_new(transaction, relation, key, _columns(transaction.frame(relation), relation, key.columns), now=True)


def _check_new(transaction: Transaction, relation: Relation, key: ForeignKey, values: Rows, *, now: bool = False) -> None:
    """23503 unless the referenced table has the keys in `values` (v0, v1, …), those with a NULL apart."""
    if key.match == "f":
        _refuse_mixed(relation, key, values)
    complete = _complete(values, len(key.columns))
    if isinstance(complete, pa.Table) and not complete.num_rows:
        return
    if not now and deferred(transaction, key):
        transaction.before_commit((key.oid, "new"), lambda: _check_again(transaction, key, complete))
        return
    target = relations.get(transaction.cursor, relation.database, key.target)
    missing = _missing(transaction, relation, key.columns, target, key.target_columns, complete)
    if missing is None:
        return
    raise PostgresError(
        "23503",
        f'insert or update on table "{relation.name}" violates foreign key constraint "{key.name}"',
        detail=f'Key {shown(relation, key.columns, missing)} is not present in table "{target.name}".',
        schema=relation.schema, table=relation.name, constraint=key.name,
    )  # fmt: skip


def _check_again(transaction: Transaction, key: ForeignKey, values: Rows) -> None:
    """A deferred check: the keys that the referencing table still has."""
    relation = relations.find(transaction.cursor, transaction.database, key.relation)
    if relation is None or all(each.oid != key.oid for each in relation.foreign_keys):
        return
    if isinstance(values, pa.Table):
        children = _rows_with(transaction, relation, key.columns, relation, key.columns, values)
        values = _fields(children, "old", _names(relation, key.columns))
    else:
        values = _columns(transaction.frame(relation), relation, key.columns)
    _check_new(transaction, relation, key, values, now=True)


def _refuse_mixed(relation: Relation, key: ForeignKey, values: Rows) -> None:
    names = [f"v{place}" for place in range(len(key.columns))]
    if isinstance(values, pa.Table):
        nulls = [np.asarray(values[name].is_null()) for name in names]
        mixed = bool(len(nulls) > 1 and np.any(np.logical_or.reduce(nulls) & ~np.logical_and.reduce(nulls)))
    else:
        some, every = F.lit(False), F.lit(True)
        for name in names:
            some, every = some | F.col(name).isNull(), every & F.col(name).isNull()
        mixed = len(names) > 1 and not values.where(some & ~every).limit(1).isEmpty()
    if mixed:
        raise PostgresError(
            "23503",
            f'insert or update on table "{relation.name}" violates foreign key constraint "{key.name}"',
            detail="MATCH FULL does not allow mixing of null and nonnull key values.",
            schema=relation.schema, table=relation.name, constraint=key.name,
        )  # fmt: skip


# ---- the referenced side ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing:
    """How rows of another table are changed: DELETE of `changed` rows, and UPDATE of them with the names of the columns that are set."""

    delete: Callable[[Relation, Rows], None]
    update: Callable[[Relation, Rows, set[str]], None]
    default: Callable[[Relation, Column], Any]


def left(session: Any, transaction: Transaction, relation: Relation, changed: Rows, writing: Writing, *, deleting: bool) -> None:
    """What follows from rows that were deleted, or updated (`old`, `new` structs): refused, or the rows that name them change too."""
    if not relation.referenced or not enforced(session):
        return
    for key in relation.referenced:
        names = _names(relation, key.target_columns)
        gone = changed if deleting else _moved(changed, names)
        old = _complete(_fields(gone, "old", names, None if deleting else "new"), len(names))
        if isinstance(old, pa.Table) and not old.num_rows:
            continue
        child = relations.get(transaction.cursor, relation.database, key.relation)
        action = key.on_delete if deleting else key.on_update
        if action in (NO_ACTION, RESTRICT):
            _refuse(transaction, relation, key, child, old, restrict=action == RESTRICT)
            continue
        transaction.lock(child)
        found = _rows_with(transaction, child, key.columns, relation, key.target_columns, old, keep=not deleting)
        if isinstance(found, pa.Table) and not found.num_rows:
            continue
        if action == CASCADE and deleting:
            writing.delete(child, found)
        else:
            _set(key, child, relation, found, action, writing, deleting=deleting)


def _refuse(transaction: Transaction, relation: Relation, key: ForeignKey, child: Relation, old: Rows, *, restrict: bool) -> None:
    if not restrict and deferred(transaction, key):
        transaction.before_commit((key.oid, "old"), lambda: _refuse_again(transaction, key, old))
        return
    if not restrict:
        kept = _missing_rows(transaction, relation, key.target_columns, relation, key.target_columns, old)
        if kept is None:
            return
        old = kept
    found = _rows_with(transaction, child, key.columns, relation, key.target_columns, old)
    first = found.slice(0, 1) if isinstance(found, pa.Table) else found.limit(1).toArrow()
    if not first.num_rows:
        return
    value = _fields(first, "old", _names(child, key.columns))
    assert isinstance(value, pa.Table)
    raise PostgresError(
        "23503",
        f'update or delete on table "{relation.name}" violates foreign key constraint "{key.name}" on table "{child.name}"',
        detail=f'Key {shown(relation, key.target_columns, value, child, key.columns)} is still referenced from table "{child.name}".',
        schema=child.schema, table=child.name, constraint=key.name,
    )  # fmt: skip


def _refuse_again(transaction: Transaction, key: ForeignKey, old: Rows) -> None:
    child = relations.find(transaction.cursor, transaction.database, key.relation)
    relation = relations.find(transaction.cursor, transaction.database, key.target)
    if child is not None and relation is not None and any(each.oid == key.oid for each in child.foreign_keys):
        _refuse(transaction, relation, key, child, old, restrict=False)


def _set(key: ForeignKey, child: Relation, relation: Relation, found: Rows, action: str, writing: Writing, *, deleting: bool) -> None:
    """UPDATEs the rows that name a row which is gone: to its new key (CASCADE), NULL or the defaults."""
    chosen = key.set_columns if deleting and key.set_columns else key.columns
    values: dict[str, Any] = {}
    for place, attnum in enumerate(key.columns):
        column = child.numbered(attnum)
        assert column is not None
        if action == CASCADE:
            values[column.name] = f"n{place}"
        elif attnum in chosen:
            values[column.name] = pa.scalar(None) if action == SET_NULL else writing.default(child, column)
    writing.update(child, _with_new(child, found, values), set(values))


def _constant(value: pa.Scalar) -> SparkColumn:
    """A stored value as a Column: days and microseconds by their number, which may be beyond what Python's calendar reaches."""
    if not value.is_valid:
        return F.lit(None)
    if pa.types.is_date32(value.type):
        return F.date_from_unix_date(F.lit(value.cast(pa.int32()).as_py()))
    if pa.types.is_timestamp(value.type):
        made = F.timestamp_micros(F.lit(value.cast(pa.int64()).as_py()))
        return made if value.type.tz else made.cast("timestamp_ntz")
    return F.lit(value.as_py())


def _with_new(child: Relation, found: Rows, values: dict[str, Any]) -> Rows:
    """Rows (`old`, `file`, `row`, new keys n0, n1, …) with `new`: the old row with other values."""
    if isinstance(found, DataFrame):
        parts = []
        for each in child.columns:
            value = values.get(each.name)
            kept = F.col(f"old.{quoted(each.name)}")
            part = kept if value is None else F.col(value) if isinstance(value, str) else _constant(value)
            parts.append(part.alias(each.name))
        return found.select("old", F.struct(*parts).alias("new"), "file", "row")
    old = _struct(found["old"])
    arrays = []
    for place, each in enumerate(child.columns):
        value = values.get(each.name)
        kind = arrow_type(each.type_oid, each.typmod)
        if value is None:
            arrays.append(old.field(place))
        elif isinstance(value, str):
            arrays.append(_whole(found[value]).cast(kind))
        else:
            arrays.append(pa.nulls(found.num_rows, kind) if not value.is_valid else pa.repeat(value, found.num_rows).cast(kind))
    new = pa.StructArray.from_arrays(arrays, names=[each.name for each in child.columns])
    return pa.table({"old": old, "new": new, "file": found["file"], "row": found["row"]})


# ---- deferred constraints --------------------------------------------------------------------------------------------


def deferred(transaction: Transaction, key: ForeignKey) -> bool:
    """Whether a constraint is checked at the commit: as it was declared, or as SET CONSTRAINTS says."""
    if not key.deferrable:
        return False
    modes = transaction.constraint_modes
    return bool(modes.get(key.oid, modes.get(0, key.deferred)))


# ---- keys ------------------------------------------------------------------------------------------------------------


def _names(relation: Relation, attnums: Sequence[int]) -> list[str]:
    return [column.name for attnum in attnums if (column := relation.numbered(attnum))]


def _columns(rows: Rows, relation: Relation, attnums: Sequence[int]) -> Rows:
    """The key's values as v0, v1, …, of rows with the relation's columns."""
    names = _names(relation, attnums)
    if isinstance(rows, DataFrame):
        return rows.select(*[F.col(quoted(name)).alias(f"v{place}") for place, name in enumerate(names)])
    return pa.table([rows[name] for name in names], names=[f"v{place}" for place in range(len(names))])


def _fields(rows: Rows, side: str, names: Sequence[str], other: str | None = None) -> Rows:
    """The key's values as v0, v1, … out of the struct `side`, and as n0, n1, … out of the struct `other`."""
    if isinstance(rows, DataFrame):
        selected = [F.col(f"{side}.{quoted(name)}").alias(f"v{place}") for place, name in enumerate(names)]
        if other is not None:
            selected += [F.col(f"{other}.{quoted(name)}").alias(f"n{place}") for place, name in enumerate(names)]
        return rows.select(*selected)
    struct = _struct(rows[side])
    arrays = {f"v{place}": struct.field(name) for place, name in enumerate(names)}
    if other is not None:
        new = _struct(rows[other])
        arrays |= {f"n{place}": new.field(name) for place, name in enumerate(names)}
    return pa.table(arrays)


def _moved(changed: Rows, names: Sequence[str]) -> Rows:
    """The changed rows in which the key is not what it was."""
    if isinstance(changed, DataFrame):
        same = F.lit(True)
        for name in names:
            same = same & F.col(f"old.{quoted(name)}").eqNullSafe(F.col(f"new.{quoted(name)}"))
        return changed.where(~same)
    old, new = _struct(changed["old"]), _struct(changed["new"])
    differs = np.zeros(changed.num_rows, bool)
    for name in names:
        one, other = old.field(name), new.field(name)
        equal = pc.fill_null(pc.equal(one, other), False)
        both = pc.and_(one.is_null(), other.is_null())
        differs |= ~np.asarray(pc.or_(equal, both))
    return changed.filter(pa.array(differs))


def _complete(values: Rows, width: int) -> Rows:
    """The keys that have no NULL."""
    if isinstance(values, DataFrame):
        for place in range(width):
            values = values.where(F.col(f"v{place}").isNotNull())
        return values
    keep = np.ones(values.num_rows, bool)
    for place in range(width):
        keep &= np.asarray(values[f"v{place}"].is_valid())
    return values.filter(pa.array(keep))


def shown(relation: Relation, attnums: Sequence[int], values: pa.Table, typed: Relation | None = None, typed_by: Sequence[int] = ()) -> str:
    """The first key as messages show it: ``(a, b)=(1, 2)``. `typed`, `typed_by`: the columns that the values come from, if others."""
    parts = []
    for place, attnum in enumerate(typed_by or attnums):
        column = (typed or relation).numbered(attnum)
        assert column is not None
        parts.append(str(write_text(_whole(values[f"v{place}"].slice(0, 1)), column.type_oid, column.typmod)[0].as_py()))
    return f"({', '.join(_names(relation, attnums))})=({', '.join(parts)})"


def _missing(
    transaction: Transaction, relation: Relation, columns: Sequence[int], target: Relation, target_columns: Sequence[int], values: Rows
) -> pa.Table | None:
    """The first key of `values` (in the columns of `relation`) that no row of `target` has, or None."""
    found = _missing_rows(transaction, relation, columns, target, target_columns, values)
    if found is None or isinstance(found, pa.Table):
        return found
    first = found.limit(1).toArrow()
    return first if first.num_rows else None


def _missing_rows(
    transaction: Transaction, relation: Relation, columns: Sequence[int], target: Relation, target_columns: Sequence[int], values: Rows
) -> Rows | None:
    """All keys of `values` that no row of `target` has; None where there are none (of a frame only what it will compute)."""
    if isinstance(values, pa.Table):
        wanted = _wanted(relation, columns, target, target_columns, values)
        if wanted is not None:
            keys, places = wanted
            found = lookup.find(transaction, target, lookup.key_of(target, target_columns), keys)
            there = np.isin(places, found["i"].to_numpy())
            missing = values.filter(pa.array(~there))
            return missing if missing.num_rows else None
        values = transaction.engine.spark.createDataFrame(values)
    rows = _columns(transaction.frame(target), target, target_columns)
    rows = rows.select(*[F.col(f"v{place}").alias(f"t{place}") for place in range(len(columns))])
    missing_frame = values.join(rows, _equal(relation, columns, "v", target, target_columns, "t"), "left_anti")
    return None if missing_frame.limit(1).isEmpty() else missing_frame


def _rows_with(
    transaction: Transaction, child: Relation, columns: Sequence[int], relation: Relation, key: Sequence[int], values: Rows,
    *, keep: bool = False,
) -> Rows:  # fmt: skip
    """The rows of `child` that name one of the keys `values`: `old`, `file`, `row`, and with `keep` the new keys n0, n1, …."""
    if isinstance(values, pa.Table):
        wanted = _wanted(relation, key, child, columns, values)
        if wanted is not None:
            keys, places = wanted
            found = lookup.find(transaction, child, lookup.key_of(child, columns), keys)
            if keep:
                first = np.full(keys.num_rows, -1, np.int64)
                known = places >= 0
                first[places[known]] = np.flatnonzero(known)
                source = pa.array(first[found["i"].to_numpy()])
                for place in range(len(columns)):
                    found = found.append_column(f"n{place}", values[f"n{place}"].take(source))
            return found.drop_columns(["i"])
        values = transaction.engine.spark.createDataFrame(values)
    positions = transaction.positions(child)
    rows = positions.select(
        F.struct(*[F.col(quoted(each.name)) for each in child.columns]).alias("old"),
        F.col("_file").alias("file"),
        F.col("_row").alias("row"),
        *[F.col(quoted(name)).alias(f"t{place}") for place, name in enumerate(_names(child, columns))],
    )
    equal = _equal(relation, key, "v", child, columns, "t")
    kept = [f"n{place}" for place in range(len(columns))] if keep else []
    if not keep:
        return rows.join(values, equal, "left_semi").select("old", "file", "row")
    return rows.join(values, equal).select("old", "file", "row", *kept).dropDuplicates(["file", "row"])


def _wanted(
    relation: Relation, columns: Sequence[int], target: Relation, target_columns: Sequence[int], values: pa.Table
) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]]] | None:
    """Keys as `lookup.find` takes them: (the distinct ones k0, k1, …; for each of `values` its place among them, -1: cannot be there).

    None where the types differ in more than the width of an integer: then Spark compares.
    """
    key = lookup.key_of(target, target_columns)
    arrays = []
    fits = np.ones(values.num_rows, bool)
    for place, (one, other) in enumerate(zip(columns, target_columns, strict=True)):
        mine, theirs = relation.numbered(one), target.numbered(other)
        assert mine is not None
        assert theirs is not None
        array, wide = _whole(values[f"v{place}"]), arrow_type(theirs.type_oid, theirs.typmod)
        if array.type != wide:
            if not (pa.types.is_integer(array.type) and pa.types.is_integer(wide)):
                return None
            limit = 2 ** (wide.bit_width - 1)
            inside = pc.and_(pc.greater_equal(array, -limit), pc.less(array.cast(pa.int64()), limit) if wide.bit_width < 64 else True)
            fits &= np.asarray(inside)
            array = pc.if_else(inside, array, 0).cast(wide)
        elif mine.type_oid != theirs.type_oid and registry.BPCHAR in (mine.type_oid, theirs.type_oid):
            return None
        arrays.append(lookup.canonical_array(array, key.kinds[place]))
    names = [f"k{place}" for place in range(len(arrays))]
    table = pa.table([*arrays, pa.array(np.arange(values.num_rows))], names=[*names, "at"]).filter(pa.array(fits))
    distinct = table.group_by(names, use_threads=False).aggregate([("at", "list")])
    places = np.full(values.num_rows, -1, np.int64)
    lists = _whole(distinct["at_list"])
    if len(lists):
        places[lists.flatten().to_numpy()] = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))
    return distinct.select(names), places


def _equal(
    relation: Relation, columns: Sequence[int], mine: str, target: Relation, target_columns: Sequence[int], theirs: str
) -> SparkColumn:
    """The condition that two keys are equal, by the operators of their types."""
    met: SparkColumn | None = None
    for place, (one, other) in enumerate(zip(columns, target_columns, strict=True)):
        left_column, right_column = relation.numbered(one), target.numbered(other)
        assert left_column is not None
        assert right_column is not None
        left_key, right_key = f"{mine}{place}", f"{theirs}{place}"
        test = operators.make(
            ["="],
            ColumnRef(type=binding.type_of(right_column), name=right_column.name, attnum=other, key=right_key),
            ColumnRef(type=binding.type_of(left_column), name=left_column.name, attnum=one, key=left_key),
            binding.context(),
            -1,
        )
        part = compiler.condition(test, {left_key: F.col(left_key), right_key: F.col(right_key)})
        met = part if met is None else met & part
    assert met is not None
    return met


def _whole(column: Any) -> pa.Array:
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(combined, pa.ChunkedArray):
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined


def _struct(column: Any) -> pa.StructArray:
    found: pa.StructArray = _whole(column)
    return found
