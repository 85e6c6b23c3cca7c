"""The thread that rewrites files of tables in the background: many small ones, and those with many deleted rows (`delta.compaction`).

The node has one `Compactor`. Its thread, or a caller of `look`, examines the tables that have changed. If one needs it, the live rows are
written to new files in one Delta commit of `dataChange` false and one log entry that names the version but no write. No stream sees it:
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
acquired first. A failure is logged and does not affect commits: the table keeps its files for longer. A transaction that reads as of its
begin (REPEATABLE READ) cannot change rows that have moved since, and would get 40001 although no other transaction has changed them. So a
compaction waits until no such transaction is younger than `LONG_SECONDS`.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping

from headgate.errors import PostgresError, disk_full
from headgate.failpoint import Step, step
from headgate.storage.delta import compaction, file_action
from headgate.storage.delta.visible_state import Visible
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.supervision import Periodic

_log = logging.getLogger("headgate.storage")

ATTEMPTS = 3
"""Number of attempts in which writers may be faster before the lock is acquired first."""
LOCK_SECONDS = 1.0
"""Lock timeout in seconds for a table."""
LONG_SECONDS = 60.0
"""Age in seconds from which on a compaction does not wait for a transaction that reads as of its begin."""
LOOK_SECONDS = 0.5
"""Pause in seconds of the thread between two looks."""
RETRY_SECONDS = 10.0
"""Time in seconds after which a table that could not be compacted is retried, whether it has grown since or not."""


class Compactor(Periodic):
    """The compaction of one engine's tables, and its thread (see the module). One thread at a time calls `look`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("compactor", LOOK_SECONDS, patience=30)
        self._engine = engine
        self._seen: Mapping[Key, Visible] = {}
        """The tables at the last look."""
        self._blocked: set[Key] = set()
        """Tables that a transaction has blocked since."""
        self._failed: set[Key] = set()
        self._retry_at = 0.0

    def look(self) -> None:
        """Compact each table that needs it. A table that a transaction blocks is examined again at the next look."""
        for key in self._due():
            if self.stopping.is_set():
                return
            try:
                _compact(self._engine, key)
                self._engine.obstacles.clear("compacting", key)
            except PostgresError as error:
                if error.sqlstate == "55P03":
                    self._blocked.add(key)
                else:
                    _log.warning("could not compact relation %d: %s", key[1], error.message)
                    self._note_failure(key, error.message)
            except Exception as error:  # noqa: BLE001 (a failure must not affect the other tables)
                full = disk_full(error)
                _log.warning("could not compact relation %d: %s", key[1], full or error, exc_info=None if full else error)
                self._note_failure(key, str(full or error))

    def _due(self) -> list[Key]:
        """Return the tables to compact now. Clear the obstacle of failed ones that no longer need it.

        A table that has not been loaded since the start has not changed since.
        """
        seen, self._seen = self._seen, self._engine.tables.visible
        changed = {key for key, shown in self._seen.items() if shown is not seen.get(key)} if self._seen is not seen else set()
        blocked, self._blocked = self._blocked, set()
        failed = set[Key]()
        if time.monotonic() >= self._retry_at:
            failed, self._failed = self._failed, failed
        states = {key: shown.loaded for key in changed | blocked | failed if (shown := self._seen.get(key)) is not None}
        due = [key for key, state in states.items() if state is not None and compaction.may_need(state)]
        for key in failed.difference(due):
            self._engine.obstacles.clear("compacting", key)
        return due

    def _note_failure(self, key: Key, text: str) -> None:
        self._engine.obstacles.note("compacting", key, text)
        if not self._failed:
            self._retry_at = time.monotonic() + RETRY_SECONDS
        self._failed.add(key)


def _compact(engine: Engine, key: Key) -> None:
    """Rewrite files of a table if it is time. Raise 55P03 if another transaction blocks it."""
    shown = engine.tables.visible.get(key)
    if shown is None or not compaction.files_to_rewrite(shown.state):
        return
    for attempt in range(ATTEMPTS + 1):
        if _attempt(engine, key, lock_first=attempt == ATTEMPTS):
            return


def _attempt(engine: Engine, key: Key, *, lock_first: bool) -> bool:
    """Rewrite files of a table if it is time. Return False if a writer was faster."""
    table, new_files = engine.tables[key], set[DataPath]()
    transaction = engine.begin(key[0])  # from now on nothing that it reads is removed
    lock = functools.partial(engine.locks.acquire, key, transaction.xid, lock_timeout=LOCK_SECONDS, beside_claims=True)
    try:
        if lock_first:
            lock()
        shown = engine.tables.visible.get(key)
        if shown is None or not (chosen := compaction.files_to_rewrite(shown.state)):
            return True
        with step(Step.COMPACTION):
            rewritten = compaction.rewrite(table, shown.state, chosen)
            new_files.update(file_action.files_made(table.path, rewritten.actions()))
            lock()
            current = engine.tables.visible.get(key)
            if current is None:
                return True  # it was dropped
            if not compaction.still_there(table, shown.state, current.state, chosen):
                return False
            actions = rewritten.actions(current.state)
            new_files.update(file_action.files_made(table.path, actions))
            transaction.replace_files(key, actions)
            new_files -= set(file_action.files_made(table.path, actions))  # owned by the transaction from now on
            with engine.running.snapshots:
                if engine.running.youngest_snapshot() < LONG_SECONDS:
                    raise PostgresError("55P03", "a transaction reads as of its begin")
                transaction.commit()
        engine.statistics.compacted(len(chosen))
    finally:
        data_location.forsake(new_files)
        transaction.rollback()
    return True
