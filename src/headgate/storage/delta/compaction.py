"""Background rewriting of a table's files: many small ones into one, and those with many deleted rows without them.

The engine has one `Compactor`. A commit passes the changed tables to it (`committed`). Its thread, or a caller of `run_due`, examines
them. If a table has `MOST` small files, or a larger file in which more than `DEAD_SHARE` of the rows are deleted, the live rows are written
to new files in one Delta commit of `dataChange` false and one log entry that names the version but no write. No stream sees it:
the changes are in the files of the versions before, which stay on disk.

    chosen      the files of the visible version; a transaction keeps cleaning from removing them
    rewritten   their live rows are in new files that no version names; writers continue
    locked      the table's lock is held; rows that were deleted meanwhile are marked as deleted in the new files (`Rewritten.actions`).
                If a file was removed, rows were restored or a column changed meanwhile, the new files are removed, and it starts
                again
    committed   the next version names the new files

Example: file A has the rows 0 to 9, of which 2 and 5 are deleted. The new file B has A's rows 0 1 3 4 6 7 8 9. If a writer deletes A's
row 6 before the lock is acquired, B is committed with a deletion vector of row 4.

Invariant: no commit waits while rows are read and written, except after `ATTEMPTS` in which writers were faster: then the lock is
acquired first. Rows are read and written in pieces, so memory does not grow with the files. A failure is logged and does not affect
commits: the table keeps its files for longer. A transaction that reads as of its begin (REPEATABLE READ) cannot change rows that have moved
since, and would get 40001 although no other transaction has changed them. So a compaction waits until no such transaction is younger than
`LONG_SECONDS`.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from headgate.errors import PostgresError, disk_full
from headgate.failpoint import Step, step
from headgate.storage.delta import deletion_vector, file_action, parquet
from headgate.storage.delta.deletion_vector import DeletionVector
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.storage")

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
ATTEMPTS = 3
"""Number of attempts in which writers may be faster before the lock is acquired first."""
LOCK_SECONDS = 1.0
"""Lock timeout in seconds for a table."""
LONG_SECONDS = 60.0
"""Age in seconds from which on a compaction does not wait for a transaction that reads as of its begin."""
REST_SECONDS = 0.5
"""Pause in seconds of the thread between two checks."""
RETRY_SECONDS = 10.0
"""Time in seconds after which a table that could not be compacted is retried, whether it has grown since or not."""


class Compactor(Supervised):
    """The compaction of one engine's tables, and its thread (see the module)."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("compactor", self._compact_due, patience=30)
        self._engine = engine
        self._due: dict[Key, None] = {}
        self._failed: set[Key] = set()
        self._retry_at = 0.0
        self._is_due = threading.Condition()

    def stop(self) -> None:
        """End the thread after the table that it is processing."""
        self.stopping.set()
        with self._is_due:
            self._is_due.notify_all()
        super().stop()

    def committed(self, keys: Iterable[Key]) -> None:
        """Note those of the tables that may need it. The thread examines tables with many files, so that commits cost the same."""
        visible = self._engine.visible
        changed = [key for key in keys if (visible_state := visible.get(key)) is not None and _may_need(visible_state.state)]
        if changed:
            with self._is_due:
                self._due |= dict.fromkeys(changed)
                self._is_due.notify_all()

    def run_due(self) -> None:
        """Process each noted table once. Note a table again if a transaction blocks it."""
        self._retry()
        with self._is_due:
            due, self._due = list(self._due), {}
        for key in due:
            if self.stopping.is_set():
                return
            try:
                _compact(self._engine, key)
                self._engine.obstacles.clear("compacting", key)
            except PostgresError as error:
                if error.sqlstate == "55P03":
                    self.committed([key])
                else:
                    _log.warning("could not compact relation %d: %s", key[1], error.message)
                    self._note_failure(key, error.message)
            except Exception as error:  # noqa: BLE001 (a failure must not affect the other tables)
                full = disk_full(error)
                _log.warning("could not compact relation %d: %s", key[1], full or error, exc_info=None if full else error)
                self._note_failure(key, str(full or error))

    def _note_failure(self, key: Key, text: str) -> None:
        self._engine.obstacles.note("compacting", key, text)
        if not self._failed:
            self._retry_at = time.monotonic() + RETRY_SECONDS
        self._failed.add(key)

    def _retry(self) -> None:
        """Note failed tables again, if it is time. Clear the obstacle of those that no longer need compaction."""
        if not self._failed or time.monotonic() < self._retry_at:
            return
        failed, self._failed = self._failed, set()
        self.committed(failed)
        for key in failed - self._due.keys():
            self._engine.obstacles.clear("compacting", key)

    def _compact_due(self) -> None:
        while not self.stopping.wait(REST_SECONDS):
            with self._is_due:
                self._is_due.wait_for(lambda: self._due or self.stopping.is_set(), REST_SECONDS if self._failed else None)
            self.run_due()


def _may_need(state: TableState) -> bool:
    return len(state.files) >= MOST or any(map(file_action.dead, state.files.values()))


def _compact(engine: Engine, key: Key) -> None:
    """Rewrite files of a table if it is time. Raise 55P03 if another transaction blocks it."""
    shown = engine.visible.get(key)
    if shown is None or not _files_to_rewrite(shown.state):
        return
    for attempt in range(ATTEMPTS + 1):
        if _attempt(engine, key, lock_first=attempt == ATTEMPTS):
            return


def _attempt(engine: Engine, key: Key, *, lock_first: bool) -> bool:
    """Rewrite files of a table if it is time. Return False if a writer was faster."""
    table, new_files = engine.table(key), set[DataPath]()
    transaction = engine.begin(key[0])  # from now on nothing that it reads is removed
    lock = functools.partial(engine.locks.acquire, key, transaction.xid, lock_timeout=LOCK_SECONDS, beside_claims=True)
    try:
        if lock_first:
            lock()
        shown = engine.visible.get(key)
        if shown is None or not (chosen := _files_to_rewrite(shown.state)):
            return True
        with step(Step.COMPACTION):
            rewritten = rewrite(table, shown.state, chosen)
            new_files.update(file_action.files_made(table.path, rewritten.actions()))
            lock()
            current = engine.visible.get(key)
            if current is None:
                return True  # it was dropped
            if not _still_there(table, shown.state, current.state, chosen):
                return False
            actions = rewritten.actions(current.state)
            new_files.update(file_action.files_made(table.path, actions))
            transaction.replace_files(key, actions)
            new_files -= set(file_action.files_made(table.path, actions))  # owned by the transaction from now on
            with engine.isolation.lock:
                if engine.isolation.youngest() < LONG_SECONDS:
                    raise PostgresError("55P03", "a transaction reads as of its begin")
                transaction.commit()
        engine.statistics.compacted(len(chosen))
    finally:
        data_location.forsake(new_files)
        transaction.rollback()
    return True


def _still_there(table: DeltaTable, before: TableState, now: TableState, chosen: list[Action]) -> bool:
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


def _files_to_rewrite(state: TableState) -> list[Action]:
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
