"""The files of one write: appended rows, or changed rows with their change files and deletion vectors.

There are two ways with equal results (tests/storage/test_write.py): the driver makes small writes (pyarrow, with no Spark job except the
one that computes the rows), one Spark job makes the others. Called by `transaction` under the table's lock. Nothing here is committed yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.storage.delta import array_column, copy_on_write, deletion_vector, file_action, parquet
from headgate.storage.delta import rows as stored_rows
from headgate.storage.delta.delta_log import PLACEHOLDER
from headgate.storage.delta.delta_table import FILE, ROW, DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_folder import TableFolder
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.internals.query_plan import most_rows
from headgate.storage.spark.persisted import persisted
from headgate.types import buffers
from headgate.types.storage import arrow_type, spark_type

CHANGE = "_change_type"
SMALL_ROWS = 10_000
"""Limit of the rows of a write that the driver makes."""
SMALL_BYTES = 16 << 20
_KINDS = pa.array(["update_preimage", "delete", "update_postimage", "insert"])
CHANGES_BYTES = 16 << 20
"""Limit in bytes of the changed rows that are written to the change file at a time."""
FILE_BYTES = 64 << 20
"""Size in bytes, in Arrow form, of the rows of one file that the driver writes."""

Positions = Mapping[str, deletion_vector.Rows]
"""Row numbers by the path of their file in the Delta log."""


@dataclass(frozen=True)
class Written:
    """Actions to commit and the number of changes in them. `rows`: the change rows, if the caller must keep them."""

    actions: list[Action]
    changes: int
    rows: pa.Table | None = None


def columns(relation: Relation) -> StructType:
    """Return the Spark schema of a relation's live columns."""
    return StructType([StructField(column.name, spark_type(column.type_oid, column.typmod)) for column in relation.columns])


def stored(relation: Relation, *, as_lists: bool) -> StructType:
    """Return the schema of a new relation's Delta table: its columns (`as_lists`: arrays as Delta arrays), or the placeholder for none."""
    fields = [StructField(column.name, array_column.file_type(column, as_lists=as_lists)) for column in relation.columns]
    return StructType(fields or [StructField(PLACEHOLDER, BooleanType())])


def arrow_row(relation: Relation) -> pa.Schema:
    """Return the Arrow schema of a relation's live columns."""
    return pa.schema([(column.name, arrow_type(column.type_oid, column.typmod)) for column in relation.columns])


@step(Step.STAGED)
def append(table: DeltaTable, relation: Relation, state: TableState, rows: DataFrame | pa.Table, *, memory: int) -> Written:
    """Write new rows. `memory`: up to this many bytes, they are also returned as change rows."""
    if isinstance(rows, DataFrame) and not relation.columns:
        rows = pa.table({PLACEHOLDER: np.ones(rows.count(), bool)})  # Arrow does not count rows without columns
    if isinstance(rows, DataFrame):
        most = most_rows(rows)
        if most is not None and most <= SMALL_ROWS:
            rows = rows.toArrow()
    if isinstance(rows, pa.Table):
        return append_rows(table, relation, state, rows, memory=memory)
    frame = rows.select(*[F.col(quoted(column.name)) for column in relation.columns] or [F.col(PLACEHOLDER)])
    actions = table.write(state, frame)
    return Written(actions, sum(file_action.records(action["add"]) for action in actions if "add" in action))


def append_rows(table: TableFolder, relation: Relation, state: TableState, rows: pa.Table, *, memory: int = 0, number: int = 0) -> Written:
    """Write new rows. Runs in the driver and in tasks. `number`, `memory`: as for `write_changed`."""
    if not rows.num_rows:
        return Written([], 0)
    size = -(-rows.num_rows // (rows.nbytes // FILE_BYTES + 1))
    stored = _as_in_file(relation, state, rows)
    actions: list[Action] = []
    with _whole(table, actions):
        for file, start in enumerate(range(0, rows.num_rows, size), number):
            actions.append(parquet.write(table.path, stored.slice(start, size), state.physical, file))
    if rows.nbytes > memory:
        return Written(actions, rows.num_rows)
    return Written(actions, rows.num_rows, stored.append_column(CHANGE, pa.array(["insert"] * rows.num_rows, pa.string())))


@contextlib.contextmanager
def _whole(table: TableFolder, actions: Sequence[Action]) -> Iterator[None]:
    """Remove the files of a write if it fails: nothing names them, and a full disk needs the space."""
    try:
        yield
    except BaseException:
        data_location.forsake(file_action.files_made(table.path, actions))
        raise


def _as_in_file(relation: Relation, state: TableState, rows: pa.Table) -> pa.Table:
    """Return the rows in the form of the Parquet file: the relation's columns in order, or the placeholder."""
    if not relation.columns:
        return pa.table({PLACEHOLDER: pa.array(np.ones(rows.num_rows, bool))})
    schema = arrow_row(relation)
    return array_column.to_file(rows.select(schema.names).cast(schema), state.lists)


@step(Step.STAGED)
def rewrite(
    table: DeltaTable,
    relation: Relation,
    state: TableState,
    changed: DataFrame | pa.Table,
    *,
    seen: TableState | None = None,
    memory: int = 0,
    is_kept: bool = False,
) -> Written:
    """Write changed rows: `old`, `new`, `file`, `row` (see `Transaction.rewrite`).

    `memory`: up to this many bytes, change rows are returned for the caller to write, instead of a change file. `is_kept`: the
    frame is persisted, or computed from persisted rows. Otherwise it is persisted here, since it is read three times. `seen`: the table
    as seen by a transaction that reads as of its begin, if others have changed it since. Raise 40001 for a row that they have changed or
    that it does not see (ON CONFLICT, a cascade). Only the driver can tell that row by row, so for many rows 40001 is raised in any case.
    """
    if isinstance(changed, pa.Table):
        return _rewrite_small(table, relation, state, changed, seen, memory)
    row = columns(relation)  # all nullable: Arrow rejects a NULL struct with fields that are not nullable
    changed = changed.select(F.col("old").cast(row), F.col("new").cast(row), "file", "row")
    with contextlib.nullcontext(changed) if is_kept else persisted(changed) as persisted_rows:
        counts = persisted_rows.agg(F.count("*").alias("changes"), F.collect_set("file").alias("files")).toArrow()
        count, files = counts["changes"][0].as_py(), counts["files"][0].as_py()
        if not count:
            return Written([], 0)
        if count <= small_enough([state]):
            return _rewrite_small(table, relation, state, persisted_rows.toArrow(), seen, memory)
        if seen is not None:
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        actions = table.write(state, _change_rows(relation, persisted_rows))
        places = persisted_rows.where("file IS NOT NULL").select(F.col("file").alias(FILE), F.col("row").alias(ROW))
        with _whole(table, actions):
            if state.has_vectors:
                return Written(table.deletions(state, places, files) + actions, count)
            return Written(copy_on_write.left_by_spark(table, state, places, files) + actions, count)


def small_enough(states: Sequence[TableState], most: int | None = None) -> int:
    """Return how many changed rows of tables the driver may hold: `most` or SMALL_ROWS, or fewer if rows are wide."""
    size = sum(add["size"] for state in states for add in state.files.values())
    rows = max(sum(state.rows for state in states), 1)
    return int(min(SMALL_ROWS if most is None else most, SMALL_BYTES * rows // max(size, 1) // 2 + 1))


def _change_rows(relation: Relation, changed: DataFrame) -> DataFrame:
    """Return rows for `DeltaTable.write`: for each change its change rows (preimage directly before postimage), then the new data row."""
    names = [column.name for column in relation.columns]

    def row(side: str, change: str | None) -> Column:
        values = [F.col(f"{side}.{quoted(name)}").alias(name) for name in names] or [F.lit(True).alias(PLACEHOLDER)]
        return F.struct(*values, F.lit(change).cast("string").alias(CHANGE))

    rows = (
        F.when(F.col("old").isNull(), F.array(row("new", "insert"), row("new", None)))
        .when(F.col("new").isNull(), F.array(row("old", "delete")))
        .otherwise(F.array(row("old", "update_preimage"), row("new", "update_postimage"), row("new", None)))
    )
    exploded = changed.select(F.explode(rows).alias("e"))
    selected = [F.col("e." + quoted(name)).alias(name) for name in names or [PLACEHOLDER]]
    return exploded.select(*selected, F.col(f"e.{CHANGE}").alias(CHANGE))


def refuse_unseen(table: DeltaTable, seen: TableState | None, files: pa.ChunkedArray | pa.Array) -> None:
    """Raise 40001 for rows in files (URIs; NULL: none) that a transaction reading as of its begin does not see (`seen`: see `rewrite`)."""
    if seen is not None and not {table.name(uri) for uri in pc.unique(files).to_pylist() if uri is not None} <= seen.files.keys():
        raise PostgresError("40001", "could not serialize access due to concurrent update")


def _rewrite_small(
    table: DeltaTable, relation: Relation, state: TableState, changed: pa.Table, seen: TableState | None, memory: int
) -> Written:
    if not changed.num_rows:
        return Written([], 0)
    refuse_unseen(table, seen, changed["file"])
    result = write_changed(table, relation, state, changed, memory=memory)
    deleted = positions(table, changed.select(["file", "row"]).filter(pc.is_valid(changed["old"])))
    return with_deletions(table, state, result.actions, deleted, result.changes, result.rows)


def with_deletions(
    table: DeltaTable, state: TableState, actions: Sequence[Action], gone: Positions, changes: int, rows: pa.Table | None = None
) -> Written:
    """Return the files of changed rows (`actions`) with the deletion of the rows that they replace."""
    with _whole(table, actions):
        deletions = mark_deleted(table, state, gone) if gone else []
    return Written([*deletions, *actions], changes, rows)  # the remaining rows of old files come before the new ones


def write_changed(
    table: TableFolder, relation: Relation, state: TableState, changed: pa.Table, *, memory: int = 0, number: int = 0
) -> Written:
    """Write the new rows and the change rows of changed rows (as for `rewrite`, at least one). Their old rows are not deleted by it.

    Runs in the driver and in tasks. `number`: the position of the files among those of one write. `memory`: as for `rewrite`.
    """
    old, new = buffers.whole(changed["old"]), buffers.whole(changed["new"])
    has_old, has_new = np.asarray(old.is_valid()), np.asarray(new.is_valid())
    schema = _flat(relation, state, new.slice(0, 0)).append_column(CHANGE, pa.array([], pa.string())).schema
    pieces = _change_pieces(relation, state, old, new, has_old, has_new)
    rows = pa.concat_tables(pieces).combine_chunks() if old.nbytes + new.nbytes <= memory else None
    actions: list[Action] = [
        parquet.write_changes(table.path, schema, pieces, state.physical, number)
        if rows is None
        else parquet.unwritten_changes(rows.nbytes)
    ]
    with _whole(table, actions):
        if has_new.any():
            added = _flat(relation, state, new if has_new.all() else new.filter(pa.array(has_new)))
            written = parquet.write(table.path, added, state.physical, number)
            actions.insert(0, written)
            if rows is not None:
                stored_rows.keep(table.path / written["add"]["path"], _named_as_in_file(added, state))
    return Written(actions, changed.num_rows, rows)


def _named_as_in_file(rows: pa.Table, state: TableState) -> pa.Table:
    return rows.rename_columns([state.physical.get(name, name) for name in rows.column_names])


def _flat(relation: Relation, state: TableState, rows: pa.StructArray) -> pa.Table:
    if not relation.columns:
        return pa.table({PLACEHOLDER: pa.array(np.ones(len(rows), bool))})
    fields = rows.flatten() if rows.null_count else [rows.field(index) for index in range(rows.type.num_fields)]
    return _as_in_file(relation, state, pa.table(fields, names=[field.name for field in rows.type]))


def _change_pieces(
    relation: Relation,
    state: TableState,
    old: pa.StructArray,
    new: pa.StructArray,
    has_old: npt.NDArray[np.bool_],
    has_new: npt.NDArray[np.bool_],
) -> Iterator[pa.Table]:
    """Yield the rows of the change file, some changes at a time: in one piece, wide rows would be copied repeatedly."""
    count = max(len(old) * CHANGES_BYTES // max(old.nbytes + new.nbytes, 1), 1)
    for first in range(0, len(old), count):
        part = slice(first, first + count)
        yield _change_table(relation, state, old[part], new[part], has_old[part], has_new[part])


def _change_table(
    relation: Relation,
    state: TableState,
    old: pa.StructArray,
    new: pa.StructArray,
    has_old: npt.NDArray[np.bool_],
    has_new: npt.NDArray[np.bool_],
) -> pa.Table:
    """Return the rows of the change file: preimage and postimage of a change one after the other."""
    count = len(old)
    both = has_old & has_new
    numbers = np.arange(count)
    index = np.concatenate([numbers[has_old], numbers[has_new] + count])
    order = np.concatenate([2 * numbers[has_old], 2 * numbers[has_new] + 1])
    kinds = np.concatenate([np.where(both, 0, 1)[has_old], np.where(both, 2, 3)[has_new]])
    sort = np.argsort(order, kind="stable")
    rows = _flat(relation, state, _concat(old, new).take(pa.array(index[sort])))
    return rows.append_column(CHANGE, _KINDS.take(pa.array(kinds[sort])))


def _concat(old: pa.StructArray, new: pa.StructArray) -> pa.StructArray:
    return pa.concat_arrays([old, new.cast(old.type)])


def copy_changes(table: DeltaTable, add: Action, kind: str) -> Action:
    """Write the rows of a data file as a change file of one kind, piece by piece. Return its `cdc` action.

    'delete': the rows that its vector does not delete; 'insert': all rows, as they were added.
    """
    deleted = deletion_vector.read(table.path, add.get("deletionVector")) if kind == "delete" else np.empty(0, np.int64)
    with parquet.opened(table.path / unquote(add["path"])) as file:
        schema = file.schema_arrow.append(pa.field(CHANGE, pa.string()))

        def pieces() -> Iterator[pa.Table]:
            for batch in deletion_vector.without(file.iter_batches(), deleted):
                rows = pa.Table.from_batches([batch], file.schema_arrow)
                yield rows.append_column(schema.field(CHANGE), pa.array([kind] * rows.num_rows, pa.string()))

        return parquet.write_changes(table.path, schema, pieces(), {})


def on_other_state(table: DeltaTable, state: TableState, target: TableState, actions: Sequence[Action]) -> list[Action]:
    """Convert actions for one state of a table to another state that has fewer deleted rows or lacks files."""
    by_rows = any("cdc" in action for action in actions)  # otherwise whole files are removed: TRUNCATE
    added = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    converted = [action for action in actions if "add" in action and action["add"]["path"] not in state.files]
    vectors: dict[str, deletion_vector.Rows] = {}
    for path in (action["remove"]["path"] for action in actions if "remove" in action):
        if path not in target.files:
            continue
        converted.append(file_action.removal(target.files[path], data_change=True))
        if not by_rows:
            continue
        before = deletion_vector.read(table.path, state.files[path].get("deletionVector"))
        after = (
            deletion_vector.read(table.path, added[path].get("deletionVector"))
            if path in added
            else np.arange(file_action.records(state.files[path]))
        )
        deleted = np.union1d(deletion_vector.read(table.path, target.files[path].get("deletionVector")), np.setdiff1d(after, before))
        if not file_action.is_emptied(target.files[path], len(deleted)):
            vectors[path] = deleted
    described = deletion_vector.write(table.path, vectors)
    return converted + [file_action.marked(target.files[path], described[path]) for path in vectors]


def positions(table: TableFolder, places: pa.Table) -> Positions:
    """Return the positions of rows (columns file: URI, row)."""
    files, rows = buffers.whole(places["file"]).dictionary_encode(), places["row"].to_numpy()
    codes = files.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    by_file = np.split(rows[order], np.flatnonzero(np.diff(codes[order])) + 1)
    return {table.name(uri): part for uri, part in zip(files.dictionary.to_pylist(), by_file, strict=False)}  # no row: one empty part


def mark_deleted(table: DeltaTable, state: TableState, gone: Positions) -> list[Action]:
    """Delete rows without Spark. Return the actions: `remove` of each file, `add` with its new vector unless no row remains.

    If the table has no deletion vectors, the remaining rows are in new files (`copy_on_write`).
    """
    vectors: dict[str, deletion_vector.Rows] = {}
    actions: list[Action] = []
    for path, rows_found in gone.items():
        # a transaction that reads as of its begin may name rows that another has changed since
        if path not in state.files:
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        before = deletion_vector.read(table.path, state.files[path].get("deletionVector"))
        is_deleted = np.zeros(1 + max(before.max(initial=-1), rows_found.max(initial=-1)), np.bool_)
        is_deleted[before] = True
        if is_deleted[rows_found].any():
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        is_deleted[rows_found] = True
        deleted = np.flatnonzero(is_deleted)
        actions.append(file_action.removal(state.files[path], data_change=True))
        if not file_action.is_emptied(state.files[path], len(deleted)):
            vectors[path] = deleted
    if not state.has_vectors:
        return actions + copy_on_write.left(table, state, vectors)
    described = deletion_vector.write(table.path, vectors)
    return actions + [file_action.marked(state.files[path], described[path]) for path in vectors]
