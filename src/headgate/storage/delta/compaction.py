"""The rewriting of a table's files: many small ones into one, and those with many deleted rows without them.

The functions read and write files, and commit nothing. Called by `compactor` for the files of a visible version, by `staging` for those
that a transaction has written, and by `log_table`. A table needs it if it has `MOST` small files, or a larger file in which more than
`DEAD_SHARE` of the rows are deleted. Rows are read and written in pieces, so memory does not grow with the files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from headgate.storage.delta import deletion_vector, file_action, parquet
from headgate.storage.delta.deletion_vector import DeletionVector
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location

MOST = 32
"""Number of small files from which on they are rewritten."""
SMALL_BYTES = 2 << 20
SMALL_ROWS = 50_000
"""A file of fewer bytes and rows is small."""
TOTAL_ROWS = 400_000
TOTAL_BYTES = 16 << 20
"""Limits of the rows and bytes of the small files that are rewritten together."""
DEAD_SHARE = 0.2
"""A larger file is rewritten if more than this share of its rows is deleted."""
REWRITTEN_BYTES = 256 << 20
"""After this many bytes of larger files, the rest of a table waits for the next turn."""


def may_need(state: TableState) -> bool:
    """Return whether a table may need it, without a look at the size of its files."""
    return len(state.files) >= MOST or any(map(file_action.dead, state.files.values()))


def still_there(table: DeltaTable, before: TableState, now: TableState, chosen: list[Action]) -> bool:
    """Return whether the table still has the files and the same columns. More of their rows may be deleted, but none restored."""
    if now.schema != before.schema or now.physical != before.physical:
        return False
    return all((current := now.files.get(add["path"])) is not None and _has_deleted(table, current, add) for add in chosen)


def _has_deleted(table: DeltaTable, now: Action, before: Action) -> bool:
    """Return whether all rows that were deleted before are still deleted. A RESTORE of another writer brings rows back."""
    then, current = before.get("deletionVector"), now.get("deletionVector")
    if then is None or then == current:
        return True
    return bool(np.isin(deletion_vector.read(table.path, then), deletion_vector.read(table.path, current)).all())


def files_to_rewrite(state: TableState) -> list[Action]:
    """Return the `add` actions of the files to rewrite now: enough small ones, otherwise larger ones with many deleted rows."""
    small = small_files(state)
    return small if len(small) >= MOST else _sparse_files(state)


def _sparse_files(state: TableState) -> list[Action]:
    """Return the `add` actions of the larger files with many deleted rows, oldest first, as many as are rewritten at once."""
    marked = [add for add in state.files.values() if file_action.dead(add)]
    sparse = [add for add in marked if file_action.dead(add) > DEAD_SHARE * file_action.records(add) and not _is_small(add)]
    before = itertools.accumulate((add["size"] for add in sparse), initial=0)
    return [add for add, size in zip(sparse, before, strict=False) if size < REWRITTEN_BYTES]


def small_files(state: TableState) -> list[Action]:
    """Return the `add` actions of the small files, oldest first, as many as are merged at once."""
    return _small_among(state.files.values())


def _is_small(add: Action) -> bool:
    return add["size"] < SMALL_BYTES and file_action.records(add) < SMALL_ROWS


def _small_among(files: Iterable[Action]) -> list[Action]:
    chosen = [(add, rows) for add in files if _is_small(add) and (rows := file_action.records(add)) > 0]
    totals = itertools.accumulate(((rows, add["size"]) for add, rows in chosen), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    return [add for (add, _), (rows, size) in zip(chosen, totals, strict=True) if rows <= TOTAL_ROWS and size <= TOTAL_BYTES]


def together(table: DeltaTable, state: TableState, own: Iterable[Action]) -> list[Action]:
    """Return the actions that merge a transaction's own small files into one before a version names them, none for a few files.

    Their rows must be in change files: a reader of the changes does not look for rows in a file that is added here.
    """
    chosen = _small_among(own)
    if len(chosen) < MOST:
        return []
    rewritten = rewrite(table, state, chosen).actions()
    return [{"add": {**action["add"], "dataChange": True}} if "add" in action else action for action in rewritten]


@dataclass(frozen=True)
class Rewritten:
    """The live rows of some files, in new files that no version names yet."""

    table: DeltaTable
    sources: tuple[Action, ...]
    """The `add` actions of the files whose rows were read."""
    added: tuple[Action | None, ...]
    """The `add` action of the new file with the rows of each source; None if the source had no live row. Sources can share a file."""
    starts: tuple[int, ...]
    """The row of the new file with which the rows of each source begin."""

    def actions(self, now: TableState | None = None) -> list[Action]:
        """Return the actions that put the new files in the place of the sources.

        `now`: a later state with all sources, of which more rows may be deleted. These are marked as deleted in the new files.
        """
        sources = self.sources if now is None else [now.files[add["path"]] for add in self.sources]
        deleted = self._deleted_since(sources)
        vectors = deletion_vector.write(self.table.path, deleted)
        added = {add["path"]: add for add in self.added if add is not None}
        emptied = {path for path, rows in deleted.items() if len(rows) == file_action.records(added[path])}
        return [
            *(file_action.removal(add, data_change=False) for add in sources),
            *({"add": _with_vector(add, vectors.get(path))} for path, add in added.items() if path not in emptied),
        ]

    def _deleted_since(self, sources: Iterable[Action]) -> dict[str, deletion_vector.Rows]:
        """Return the rows of each new file, ascending, that were deleted from the sources after their live rows were read."""
        deleted: dict[str, list[deletion_vector.Rows]] = {}
        for before, source, added, start in zip(self.sources, sources, self.added, self.starts, strict=True):
            if added is None or source.get("deletionVector") == before.get("deletionVector"):
                continue
            dead = deletion_vector.read(self.table.path, before.get("deletionVector"))
            more = np.setdiff1d(deletion_vector.read(self.table.path, source.get("deletionVector")), dead, assume_unique=True)
            deleted.setdefault(added["path"], []).append(more - np.searchsorted(dead, more) + start)
        return {path: np.concatenate(rows) for path, rows in deleted.items() if sum(map(len, rows))}


def _with_vector(add: Action, vector: DeletionVector | None) -> Action:
    add = add if vector is None else file_action.marked(add, vector)["add"]
    return {**add, "dataChange": False}


def rewrite(table: DeltaTable, state: TableState, chosen: Sequence[Action]) -> Rewritten:
    """Write the live rows of these files: of small ones to one new file, of a larger one to a file of its own."""
    data_location.fetch(file_action.files_of(table.path, ({"add": add} for add in chosen)))
    added, starts = list[Action | None](), list[int]()
    try:
        for is_small, run in itertools.groupby(chosen, _is_small):
            for group in [list(run)] if is_small else [[add] for add in run]:
                new_file = _write_live(table, state, group)
                added += [new_file if file_action.rows(add) else None for add in group]
                starts += itertools.accumulate((file_action.rows(add) for add in group[:-1]), initial=0)
    except BaseException:
        data_location.forsake(table.path / add["path"] for add in added if add is not None)
        raise
    return Rewritten(table, tuple(chosen), tuple(added), tuple(starts))


def _write_live(table: DeltaTable, state: TableState, group: Sequence[Action]) -> Action | None:
    """Write the live rows of some files to one new file. Return its `add` action, or None if there are no live rows."""
    if not any(map(file_action.rows, group)):
        return None
    names = [state.physical.get(name, name) for name in state.schema.fieldNames()]
    schemas = []
    for add in group:
        with parquet.opened(table.path / unquote(add["path"])) as file:
            schemas.append(file.schema_arrow.remove_metadata())
    unified = pa.unify_schemas(schemas)
    schema = pa.schema([unified.field(name) for name in names if name in unified.names])
    added: Action = parquet.write_pieces(table.path, schema, _pieces(table, schema, group), {})["add"]
    return added


def _pieces(table: DeltaTable, schema: pa.Schema, group: Sequence[Action]) -> Iterator[pa.Table]:
    """Yield the live rows of files, a row group at a time. A column that a file does not have is NULL."""
    waiting, count = list[pa.Table](), 0
    for add in group:
        deleted = deletion_vector.read(table.path, add.get("deletionVector"))
        for batch in parquet.live_rows(table.path / unquote(add["path"]), schema.names, deleted):
            waiting.append(_fill_columns(batch, schema))
            count += batch.num_rows
            while count >= parquet.ROW_GROUP_ROWS:
                rows = pa.concat_tables(waiting)
                yield rows.slice(0, parquet.ROW_GROUP_ROWS)
                waiting, count = [rows.slice(parquet.ROW_GROUP_ROWS)], count - parquet.ROW_GROUP_ROWS
    if count:
        yield pa.concat_tables(waiting)


def _fill_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    held = set(batch.schema.names)
    columns = [batch.column(field.name) if field.name in held else pa.nulls(batch.num_rows, field.type) for field in schema]
    return pa.table(columns, schema=schema)
