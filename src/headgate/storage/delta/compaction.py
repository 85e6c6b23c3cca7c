"""Puts a table's small files together, so that a table that grows by small commits does not become slow without bound.

Called by `transaction` after a commit: when a table has MOST small files, their rows are read and written as one file, in one Delta
commit of `dataChange` false and one log entry that names the version but no write. No stream sees it: what changed is in the
files of the versions before, which stay on disk. What must hold: it goes through the table's write lock like every writer, and does
not wait for it; it never makes the commit that it follows fail.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from headgate.errors import PostgresError, disk_full
from headgate.failpoint import Step, step
from headgate.storage.delta import deletion_vector, file_action, parquet
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.lock import Key

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.storage")

MOST = 32
"""Small files that a table may have."""
SMALL_BYTES = 2 << 20
SMALL_ROWS = 50_000
"""A file of fewer bytes and rows is small."""
TOTAL_ROWS = 400_000
TOTAL_BYTES = 16 << 20
"""As much is put together at once."""


def after_commit(engine: Engine, keys: Iterable[Key]) -> None:
    """Compacts those of the tables that need it."""
    for key in keys:
        shown = engine.visible.get(key)
        if shown is None or len(shown.state.files) < MOST or len(small_files(shown.state)) < MOST:
            continue
        try:
            _compact(engine, key)
        except PostgresError as error:
            if error.sqlstate != "55P03":
                _log.warning("could not compact relation %d: %s", key[1], error.message)
        except Exception as error:  # noqa: BLE001 (the commit before it is done, whatever happens here)
            full = disk_full(error)
            _log.warning("could not compact relation %d: %s", key[1], full or error, exc_info=None if full else error)


def small_files(state: TableState) -> list[Action]:
    """The `add` actions of the small files, oldest first, as many as are put together at once."""
    return _small_among(state.files.values())


def _small_among(files: Iterable[Action]) -> list[Action]:
    small = [(add, file_action.records(add)) for add in files if add["size"] < SMALL_BYTES]
    chosen = [(add, rows) for add, rows in small if 0 < rows < SMALL_ROWS]
    totals = itertools.accumulate(((rows, add["size"]) for add, rows in chosen), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    return [add for (add, _), (rows, size) in zip(chosen, totals, strict=True) if rows <= TOTAL_ROWS and size <= TOTAL_BYTES]


@step(Step.COMPACTION)
def _compact(engine: Engine, key: Key) -> None:
    transaction = engine.begin(key[0])
    try:
        engine.locks.acquire(key, transaction.xid, lock_timeout=0, beside_claims=True)
        state = engine.visible[key].state
        chosen = small_files(state)
        if len(chosen) >= MOST:
            transaction.replace_files(key, replaced(engine.table(key), state, chosen))
        transaction.commit()
        if len(chosen) >= MOST:
            engine.statistics.compacted(len(chosen))
    except BaseException:
        transaction.rollback()
        raise


def together(table: DeltaTable, state: TableState, own: Iterable[Action]) -> list[Action]:
    """The actions that put the small ones of a transaction's own files together, before a version has named them; none for a few.

    Their rows must be in change files: a reader of the changes looks for no row in what is added here.
    """
    chosen = _small_among(own)
    if len(chosen) < MOST:
        return []
    return [{"add": {**action["add"], "dataChange": True}} if "add" in action else action for action in replaced(table, state, chosen)]


def replaced(table: DeltaTable, state: TableState, chosen: list[Action]) -> list[Action]:
    """Writes the rows of these files as one; the actions that put it in their place."""
    names = [state.physical.get(name, name) for name in state.schema.fieldNames()]
    data_location.fetch(file_action.files_of(table.path, ({"add": add} for add in chosen)))
    rows = pa.concat_tables([_live(table, add, names) for add in chosen], promote_options="default")
    actions = [file_action.removal(add, data_change=False) for add in chosen]
    if rows.num_rows:
        added = parquet.write(table.path, rows.select([name for name in names if name in rows.column_names]), {})
        actions.append({"add": {**added["add"], "dataChange": False}})
    return actions


def _live(table: DeltaTable, add: Action, names: list[str]) -> pa.Table:
    """The rows of a file that are not deleted; a column that was added to the table later is left out (it is NULL)."""
    path = table.path / unquote(add["path"])
    with parquet.opened(path) as file:
        held = set(file.schema_arrow.names)
        rows = file.read(columns=[name for name in names if name in held])
    deleted = deletion_vector.read(table.path, add.get("deletionVector"))
    if not len(deleted):
        return rows
    keep = np.ones(rows.num_rows, bool)
    keep[deleted] = False
    return rows.filter(pa.array(keep))
