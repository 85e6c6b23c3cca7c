"""The staged, uncommitted work of a transaction: the state of each table that it has written to, the writes for the log, the files.

Used by `uncommitted` and `transaction`. Invariant: a Delta log contains none of it, so discarding it undoes it. The only trace is the
folder of a table that the transaction has created, with its empty version 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headgate.storage import write
from headgate.storage.delta import compaction, file_action
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key
from headgate.storage.statistics import TableCounts, table_counts
from headgate.storage.transaction.change_file import HeldChanges
from headgate.storage.transaction.log import TableWrite
from headgate.storage.transaction.staged import StagedTable


@dataclass(frozen=True)
class SavedStaging:
    """A copy of the staging at a savepoint. `writes` is the number of writes."""

    tables: dict[Key, StagedTable]
    seen: dict[Key, TableState]
    writes: int
    created: frozenset[Key]
    dropped: frozenset[Key]


class Staging:
    """The staged writes of one transaction."""

    def __init__(self, table: Callable[[Key], DeltaTable], committed: Callable[[Key], TableState]) -> None:
        """Start with nothing. `committed` returns the visible state of a table, whose lock the transaction holds."""
        self._table, self._committed = table, committed
        self.tables: dict[Key, StagedTable] = {}
        self.writes: list[TableWrite] = []
        self.created: set[Key] = set()
        self.dropped: set[Key] = set()
        self.seen: dict[Key, TableState] = {}
        """Snapshot states with own writes, for tables that others had changed when a REPEATABLE READ transaction wrote to them."""
        self.files: dict[Key, set[DataPath]] = {}
        """All files that were written, including those of statements that were undone."""
        self.held = HeldChanges()

    def staged(self, key: Key) -> StagedTable:
        """Return the state to write on: the transaction's own, or the visible one, as the lock is held."""
        return self.tables.get(key) or StagedTable.of(self._committed(key))

    def base(self, key: Key) -> TableState:
        """Return the table with all committed rows and own writes."""
        return self.staged(key).state

    def kept(self) -> dict[Key, StagedTable]:
        """Return the staged tables that this transaction does not drop."""
        return {key: staged for key, staged in self.tables.items() if key not in self.dropped}

    def logged_writes(self) -> list[TableWrite]:
        """Return the writes that the log will name: all but those to tables that were created and dropped here."""
        discarded = {relation for _, relation in self.created & self.dropped}
        return [table_write for table_write in self.writes if table_write.relation not in discarded]

    def table_counts(self) -> dict[Key, TableCounts]:
        """Count the changes to the rows of each table, for the statistics."""
        writes: dict[int, list[TableWrite]] = {}
        for table_write in self.writes:
            if table_write.kind == "write":
                writes.setdefault(table_write.relation, []).append(table_write)
        return {key: table_counts(staged, writes[key[1]]) for key, staged in self.kept().items() if key[1] in writes}

    # savepoints

    def saved(self) -> SavedStaging:
        """Return what is staged now, for `restore`."""
        return SavedStaging(dict(self.tables), dict(self.seen), len(self.writes), frozenset(self.created), frozenset(self.dropped))

    def restore(self, saved: SavedStaging) -> None:
        """Restore a saved content: later writes are discarded."""
        self.tables, self.seen = dict(saved.tables), dict(saved.seen)
        del self.writes[saved.writes :]
        self.held.forget_from(saved.writes)
        self.created, self.dropped = set(saved.created), set(saved.dropped)

    # the end

    def make_whole(self) -> None:
        """Before the end, write the files in which the changes of each write stay (`StagedTable.whole`)."""
        for key, before in list(self.tables.items()):
            staged = self._write_held(key, before)
            written = {table_write.seq: table_write.files for table_write in self.writes if table_write.relation == key[1]}
            with_files = {seq: files for seq, files in written.items() if files is not None}
            table = self._table(key)
            whole, files = staged.whole(with_files, functools.partial(write.copy_changes, table))
            if whole is staged:
                continue
            self.tables[key] = whole
            self.files[key] |= set(file_action.files_made(table.path, whole.changes))
            self.writes = [
                replace(table_write, files=files[table_write.seq]) if table_write.seq in files else table_write
                for table_write in self.writes
            ]

    def _write_held(self, key: Key, before: StagedTable) -> StagedTable:
        """Write kept change rows to files and merge the table's own small files into one (`change_file`, `compaction`)."""
        table = self._table(key)
        staged, self.writes = self.held.written(table, key[1], before, self.writes)
        if staged is before:
            return before
        own_files = [add for path, add in staged.state.files.items() if path not in staged.base.files]
        actions = compaction.together(table, staged.state, own_files)
        staged = replace(staged, state=table.stage(staged.state, actions)) if actions else staged
        self.files[key] |= {*file_action.files_made(table.path, [*staged.changes, *actions])}
        self.tables[key] = staged
        return staged

    def remove_files(self, kept: Mapping[Key, set[DataPath]]) -> None:
        """Remove the files that were written and are not in `kept`. Cleaning removes those that cannot be removed now."""
        for key, files in self.files.items():
            data_location.forsake(files - kept.get(key, set()))
