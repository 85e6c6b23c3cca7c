"""Puts a table's small files together, so that a table that grows by small commits does not become slow without bound.

`Compactor` is the engine's. A commit tells it which tables have grown (`committed`); its thread, or a caller of `run_due`, looks at them.
Where a table has `MOST` small files, their rows are read and written as one file, in one Delta commit of `dataChange` false and one log
entry that names the version but no write. No stream sees it: what changed is in the files of the versions before, which stay on disk.

    chosen      the small files of the visible version; a transaction keeps cleaning from removing them
    replaced    their rows are in one new file that no version names; writers go on
    locked      the table's lock is held; if a file has changed meanwhile, the new file is removed, and it begins anew
    committed   the next version names the new file

What must hold: no commit waits while rows are read and written, except after `ATTEMPTS` in which writers were faster: then the lock is
taken first. A failure is logged and harms no commit: the table has its small files for longer. A transaction that reads as of its begin
(REPEATABLE READ) cannot change rows that have moved since, and would get 40001 although nobody has changed them: so a compaction waits
for the end of those that are younger than `LONG_SECONDS`.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
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
from headgate.supervision import Supervised

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
ATTEMPTS = 3
"""How often writers may be faster before the lock is taken first."""
LOCK_SECONDS = 1.0
"""How long it waits for the lock of a table."""
LONG_SECONDS = 60.0
"""From which age on a transaction that reads as of its begin is not waited for."""
REST_SECONDS = 0.5
"""How long the thread rests between two looks."""
RETRY_SECONDS = 10.0
"""After which a table that could not be compacted is tried again, whether it has grown since or not."""


class Compactor:
    """See the module."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._due: dict[Key, None] = {}
        self._failed: set[Key] = set()
        self._retry_at = 0.0
        self._is_due = threading.Condition()
        self.thread = Supervised("compactor", self._run)

    def start(self) -> None:
        """Begins to look at tables that have grown."""
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread behind the table that it looks at."""
        self.thread.stopping.set()
        with self._is_due:
            self._is_due.notify_all()
        self.thread.stop(30)

    def committed(self, keys: Iterable[Key]) -> None:
        """Notes those of the tables that may need it."""
        visible = self._engine.visible
        grown = [key for key in keys if (shown := visible.get(key)) is not None and len(shown.state.files) >= MOST]
        if grown:
            with self._is_due:
                self._due |= dict.fromkeys(grown)
                self._is_due.notify_all()

    def run_due(self) -> None:
        """Looks at each noted table once; notes those again that a transaction is in the way of."""
        self._retry()
        with self._is_due:
            due, self._due = list(self._due), {}
        for key in due:
            if self.thread.stopping.is_set():
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
            except Exception as error:  # noqa: BLE001 (the other tables are looked at, whatever happens here)
                full = disk_full(error)
                _log.warning("could not compact relation %d: %s", key[1], full or error, exc_info=None if full else error)
                self._note_failure(key, str(full or error))

    def _note_failure(self, key: Key, text: str) -> None:
        self._engine.obstacles.note("compacting", key, text)
        if not self._failed:
            self._retry_at = time.monotonic() + RETRY_SECONDS
        self._failed.add(key)

    def _retry(self) -> None:
        """Note tables that could not be compacted again, if it is time; those that have no need any more have no obstacle either."""
        if not self._failed or time.monotonic() < self._retry_at:
            return
        failed, self._failed = self._failed, set()
        self.committed(failed)
        for key in failed - self._due.keys():
            self._engine.obstacles.clear("compacting", key)

    def _run(self) -> None:
        while not self.thread.stopping.wait(REST_SECONDS):
            with self._is_due:
                self._is_due.wait_for(lambda: self._due or self.thread.stopping.is_set(), REST_SECONDS if self._failed else None)
            self.run_due()


def _compact(engine: Engine, key: Key) -> None:
    """Compact a table if it has enough small files; raise 55P03 if another transaction is in the way."""
    for attempt in range(ATTEMPTS + 1):
        if _attempt(engine, key, lock_first=attempt == ATTEMPTS):
            return


def _attempt(engine: Engine, key: Key, *, lock_first: bool) -> bool:
    """Compact a table if it has enough small files; return False if a writer was faster."""
    table, actions = engine.table(key), list[Action]()
    transaction = engine.begin(key[0])  # from now on nothing that it reads is removed
    lock = functools.partial(engine.locks.acquire, key, transaction.xid, lock_timeout=LOCK_SECONDS, beside_claims=True)
    try:
        if lock_first:
            lock()
        shown = engine.visible.get(key)
        if shown is None or len(chosen := small_files(shown.state)) < MOST:
            return True
        with step(Step.COMPACTION):
            actions = replaced(table, shown.state, chosen)
            lock()
            now = engine.visible.get(key)
            if now is None:
                return True  # it was dropped
            if not _still_there(shown.state, now.state, chosen):
                return False
            transaction.replace_files(key, actions)
            actions = []  # the transaction's from now on
            with engine.isolation.lock:
                if engine.isolation.youngest() < LONG_SECONDS:
                    raise PostgresError("55P03", "a transaction reads as of its begin")
                transaction.commit()
        engine.statistics.compacted(len(chosen))
    finally:
        data_location.forsake(file_action.files_made(table.path, actions))
        transaction.rollback()
    return True


def _still_there(before: TableState, now: TableState, chosen: list[Action]) -> bool:
    """Whether the files are what they were: none removed, no row deleted, no column changed."""
    return now.schema == before.schema and now.physical == before.physical and all(now.files.get(add["path"]) == add for add in chosen)


def small_files(state: TableState) -> list[Action]:
    """The `add` actions of the small files, oldest first, as many as are put together at once."""
    return _small_among(state.files.values())


def _small_among(files: Iterable[Action]) -> list[Action]:
    small = [(add, file_action.records(add)) for add in files if add["size"] < SMALL_BYTES]
    chosen = [(add, rows) for add, rows in small if 0 < rows < SMALL_ROWS]
    totals = itertools.accumulate(((rows, add["size"]) for add, rows in chosen), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    return [add for (add, _), (rows, size) in zip(chosen, totals, strict=True) if rows <= TOTAL_ROWS and size <= TOTAL_BYTES]


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
