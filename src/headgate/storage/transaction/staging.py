"""The staged, uncommitted work of a transaction: the state of each table that it has written to, the writes for the log, the files.

Made by `transaction`, whose parts stage file actions here. The caller holds the table's lock.

    stage          file actions that change no rows: ALTER TABLE, compaction
    stage_write    file actions of a write that the log names
    note           a write that the log names and that has no files here
    make_whole     at the end: each write gets the files in which its changes stay

Invariant: a Delta log contains none of it, so discarding it undoes it. The only trace is the folder of a table that the transaction has
created, with its empty version 0.

The change rows of small writes are kept in memory (`HeldChanges`) until the end, then written to one file for many statements. Only readers
of a version's changes need a change file; the transaction itself reads its data files and deletion vectors. So a statement that changes a
few rows writes no change file. Its `cdc` action names a file that does not exist (`parquet.unwritten_changes`). Before the end, `written`
turns consecutive writes into one file and one write of the log. Otherwise 1,000 single-row statements would make 1,000 files, each of which
is fsynced, and opened by each stream, on its own. If rows were only added, there are no change rows: the data files hold the changes.

Invariant: the changes keep the order of the statements. A run ends where a stream would evaluate the next write differently: in
another subtransaction, with the catalog recorded in between (`era`), a definition committed by others in between, or other columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import pyarrow as pa

from headgate.failpoint import Step, step
from headgate.lsn import Lsn
from headgate.storage import write
from headgate.storage.delta import compaction, file_action, parquet
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.tables import Tables
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.statistics import TableCounts
from headgate.storage.transaction.log import Emitted, TableWrite, TransactionLog, WriteKind, WrittenFile
from headgate.storage.transaction.pile import SINGLE_BYTES, Piece, piled, together
from headgate.storage.transaction.running import RunningTransactions
from headgate.storage.transaction.snapshot import Snapshot
from headgate.storage.transaction.staged import StagedTable
from headgate.storage.transaction.transaction_catalog import TransactionCatalog

MOST_BYTES = 1 << 20
"""Limit in bytes, in Arrow form, of the change rows that are kept for one write."""
ALL_BYTES = 16 << 20
"""Limit in bytes of the change rows that are kept for one transaction."""


@dataclass(frozen=True)
class _Held:
    """The change rows of one write, the era in which it was made, and the state of the catalog at its statement."""

    piece: Piece
    era: int
    definitions: int | None


class HeldChanges:
    """The kept change rows of one transaction, by the number of the write. Those of small writes are in piles (`pile`)."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._single: list[int] = []
        """The writes whose rows are in no pile yet."""
        self._bytes = self._single_bytes = self._era = 0

    @property
    def room(self) -> int:
        """Return how many bytes of rows the next write may keep."""
        return min(MOST_BYTES, ALL_BYTES - self._bytes)

    def add(self, seq: int, rows: pa.Table, definitions: int | None) -> None:
        """Keep the change rows of a write. `definitions`: the engine's when the statement ran, None if that is not known."""
        piece = Piece.of(rows)
        self._held[seq] = _Held(piece, self._era, definitions)
        self._single.append(seq)
        self._bytes, self._single_bytes = self._bytes + piece.size, self._single_bytes + piece.size
        if self._single_bytes > SINGLE_BYTES:
            self._pile()

    def _pile(self) -> None:
        pieces = piled(self._held[seq].piece for seq in self._single)
        for seq, piece in zip(self._single, pieces, strict=True):
            held = self._held[seq]
            self._held[seq] = replace(held, piece=piece)
            self._bytes += piece.size - held.piece.size
        self._single, self._single_bytes = [], 0

    def rows(self, seq: int) -> pa.Table | None:
        """Return the change rows of a write if they are kept, otherwise None."""
        held = self._held.get(seq)
        return None if held is None else held.piece.rows

    def catalog_recorded(self) -> None:
        """Start a new era: later writes are evaluated with another catalog."""
        self._era += 1

    def forget_from(self, seq: int) -> None:
        """Discard the change rows of the writes from this number on, which were rolled back."""
        while self._single and self._single[-1] >= seq:
            self._single_bytes -= self._held[self._single.pop()].piece.size
        while self._held and (last := next(reversed(self._held))) >= seq:
            self._bytes -= self._held.pop(last).piece.size

    def written(
        self, table: DeltaTable, relation: int, staged: StagedTable, writes: list[TableWrite]
    ) -> tuple[StagedTable, list[TableWrite]]:
        """Write the change files of a table. Return it with all of them, and the transaction's writes with each run merged into one."""
        if not staged.changes or not any(write.relation == relation and write.seq in self._held for write in writes):
            return staged, writes
        cdc_actions, merged = [], []
        with step(Step.STAGED):
            for run in self._runs(relation, writes):
                if run[0].relation != relation or run[0].seq not in self._held:
                    merged += run
                    continue
                rows = together(self._held[write.seq].piece for write in run)
                cdc = parquet.write_changes(table.path, rows.schema, [rows], run[0].physical or {})
                cdc_actions.append(cdc)
                file = WrittenFile(cdc["cdc"]["path"], cdc["cdc"]["size"], rows.num_rows, paired=True)
                changes, size = sum(write.changes for write in run), sum(write.bytes for write in run)
                merged.append(replace(run[0], changes=changes, bytes=size, files=(file,)))
        existing = tuple(change for change in staged.changes if not parquet.is_unwritten(change["cdc"]["path"]))
        return replace(staged, changes=existing + tuple(cdc_actions)), merged

    def _runs(self, relation: int, writes: Sequence[TableWrite]) -> Iterator[list[TableWrite]]:
        run: list[TableWrite] = []
        for log_write in writes:
            if run and not (log_write.relation == run[-1].relation == relation and self._joins(run[-1], log_write)):
                yield run
                run = []
            run.append(log_write)
        if run:
            yield run

    def _joins(self, write: TableWrite, following: TableWrite) -> bool:
        first, second = self._held.get(write.seq), self._held.get(following.seq)
        if first is None or second is None:
            return False
        same_stream = (write.xid, write.physical, first.era) == (following.xid, following.physical, second.era)
        same_definitions = write.seen == following.seen or (first.definitions is not None and first.definitions == second.definitions)
        return same_stream and same_definitions and first.piece.pile.schema.equals(second.piece.pile.schema)


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

    def __init__(
        self, tables: Tables, log: TransactionLog, running: RunningTransactions, snapshot: Snapshot, catalog: TransactionCatalog,
        subtransaction: Callable[[], int],
    ) -> None:  # fmt: skip
        """Start with nothing. `subtransaction` returns the xid of the innermost savepoint."""
        self._delta, self._log, self._running = tables, log, running
        self._snapshot, self._catalog, self._subtransaction = snapshot, catalog, subtransaction
        self.tables: dict[Key, StagedTable] = {}
        self.writes: list[TableWrite] = []
        self.created: set[Key] = set()
        self.dropped: set[Key] = set()
        self.seen: dict[Key, TableState] = {}
        """Snapshot states with own writes, for tables that others had changed when a REPEATABLE READ transaction wrote to them."""
        self.files: dict[Key, set[DataPath]] = {}
        """All files that were written, including those of statements that were undone."""
        self.held = HeldChanges()
        self.complete: dict[int, int] = {}
        """The tables (oids) whose changes are all in their history, by the oid of the history."""
        self.noted = 0
        """Number of writes noted for the log, without those of pending rows."""

    def staged(self, key: Key) -> StagedTable:
        """Return the state to write on: the transaction's own, or the visible one, as the lock is held."""
        return self.tables.get(key) or StagedTable.of(self._delta.visible[key].state)

    def base(self, key: Key) -> TableState:
        """Return the table with all committed rows and own writes."""
        return self.staged(key).state

    def seen_state(self, key: Key) -> TableState | None:
        """Return the fixed snapshot's state with own writes if other transactions have changed the table since, otherwise None."""
        return self.seen.get(key) or self._snapshot.behind(key, self.staged(key))

    def kept(self) -> dict[Key, StagedTable]:
        return {key: staged for key, staged in self.tables.items() if key not in self.dropped}

    def logged_writes(self) -> list[TableWrite]:
        """Return the writes that the log will name: all but those to tables that were created and dropped here."""
        discarded = {relation for _, relation in self.created & self.dropped}
        writes = [table_write for table_write in self.writes if table_write.relation not in discarded]
        return [
            replace(table_write, options=self.complete[table_write.relation])
            if table_write.kind == "write" and table_write.relation in self.complete
            else table_write
            for table_write in writes
        ]

    def table_counts(self) -> dict[Key, TableCounts]:
        """Count the changes to the rows of each table, for the statistics."""
        writes: dict[int, list[TableWrite]] = {}
        for table_write in self.writes:
            if table_write.kind == "write":
                writes.setdefault(table_write.relation, []).append(table_write)
        return {key: _table_counts(staged, writes[key[1]]) for key, staged in self.kept().items() if key[1] in writes}

    # staging

    def record_catalog(self) -> None:
        """Record the catalog for the log's history if it has changed. A write that follows is published as the catalog defines it now."""
        if self._catalog.record(len(self.writes)):
            self.held.catalog_recorded()

    def stage(self, key: Key, actions: Sequence[Action]) -> None:
        """Stage file actions that change no rows."""
        staged, table, seen = self.staged(key), self._delta[key], self.seen_state(key)
        files = self.files.setdefault(key, set())
        files.update(file for file in file_action.files_made(table.path, actions) if not parquet.is_unwritten(file.name))
        if seen is not None:
            on_snapshot = write.on_other_state(table, staged.state, seen, actions)
            files.update(file_action.vectors_of(table.path, on_snapshot))
            self.seen[key] = table.stage(seen, on_snapshot)
        self.tables[key] = staged.with_actions(table.stage(staged.state, actions), actions)

    def stage_written(self, key: Key, result: write.Written, position: tuple[Lsn, int] | None = None) -> int:
        """Stage the files of a write, and keep its change rows in memory until the end. Return the number of changes.

        `position`: the log's end and the subtransaction at its statement, if that ran earlier.
        """
        if result.changes:
            self.stage_write(key, result.actions, result.changes, position=position, rows=result.rows)
        return result.changes

    def stage_write(
        self, key: Key, actions: Sequence[Action], changes: int, *, kind: WriteKind = "write", statement: int | None = None,
        options: int = 0, position: tuple[Lsn, int] | None = None, rows: pa.Table | None = None,
    ) -> None:  # fmt: skip
        """Stage a write and note it for the log (see `stage_written`)."""
        self.record_catalog()
        self.stage(key, actions)
        staged = self.tables[key]
        named = [action[name] for action in actions for name in ("add", "cdc") if name in action and kind == "write"]
        size = sum(file["size"] for file in named if not file_action.is_kept(file))
        physical = {name: stored for name, stored in staged.state.physical.items() if stored != name} or None
        files = _files_of(self._delta.path(key), actions, rows) if kind == "write" else ()
        if rows is not None:
            self.held.add(len(self.writes), rows, self._running.definitions if position is None else None)
        self.note(key[1], kind, staged.base.version + 1, changes, statement, options, size, position, files, physical)

    def note(
        self, relation: int, kind: WriteKind, version: int, changes: int, statement: int | None = None, options: int = 0, size: int = 0,
        position: tuple[Lsn, int] | None = None, files: tuple[WrittenFile, ...] | None = None, physical: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Note a write for the log. `statement`: the number of the first write of its statement, if that is another."""
        seq = len(self.writes)
        self.noted += position is None
        seen, xid = position or (self._log.end, self._subtransaction())
        place = seq if statement is None else statement
        self.writes.append(
            TableWrite(
                seq, relation, kind, version, changes, place, options, bytes=size, seen=seen, xid=xid, files=files, physical=physical
            )
        )

    def note_message(self, prefix: str, content: bytes) -> None:
        """Note a transactional logical decoding message."""
        self.record_catalog()
        seq, size, xid = len(self.writes), len(content), self._subtransaction()
        message = Emitted(prefix, content)
        self.writes.append(TableWrite(seq, 0, "message", 0, 1, seq, bytes=size, seen=self._log.end, xid=xid, emitted=message))

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
            files_by_write = {table_write.seq: table_write.files for table_write in self.writes if table_write.relation == key[1]}
            with_files = {seq: files for seq, files in files_by_write.items() if files is not None}
            table = self._delta[key]
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
        """Write kept change rows to files and merge the table's own small files into one (`HeldChanges`, `compaction`)."""
        table = self._delta[key]
        staged, self.writes = self.held.written(table, key[1], before, self.writes)
        if staged is before:
            return before
        own_files = [add for path, add in staged.state.files.items() if path not in staged.base.files]
        actions = compaction.together(table, staged.state, own_files)
        staged = replace(staged, state=table.stage(staged.state, actions)) if actions else staged
        self.files[key] |= {*file_action.files_made(table.path, [*staged.changes, *actions])}
        self.tables[key] = staged
        return staged

    def remove_files(self, files_to_keep: Mapping[Key, set[DataPath]]) -> None:
        """Remove the files that were written and are not in `files_to_keep`. Cleaning removes those that cannot be removed now."""
        for key, files in self.files.items():
            data_location.forsake(files - files_to_keep.get(key, set()))


def _table_counts(staged: StagedTable, writes: Sequence[TableWrite]) -> TableCounts:
    """Return the counts of a transaction's changes to a table, from its log of writes.

    Files of added rows are inserts. Change files have two rows for an update and one for an insert or a delete. The growth of the table
    tells inserts from deletes.
    """
    changes = sum(write.changes for write in writes)
    files = [file for write in writes for file in write.files or ()]
    added = sum(file.rows for file in files if not file.paired)
    updated = max(sum(file.rows for file in files if file.paired) - (changes - added), 0)
    inserted = added
    if (changed := changes - added - updated) and not staged.emptied:
        grown = staged.growth
        inserted = min(max((changes - updated + grown) // 2, added), added + changed)
    return TableCounts(inserted, updated, changes - updated - inserted)


def _files_of(table: DataPath, actions: Sequence[Action], rows: pa.Table | None) -> tuple[WrittenFile, ...]:
    """Return the files that hold a write's changes, in the order of the changes: its change files if there are any.

    `rows`: the change rows of a change file that is not written yet.
    """
    change_files = sorted((action["cdc"] for action in actions if "cdc" in action), key=file_action.order)
    if change_files:
        counts = [rows.num_rows if rows is not None else parquet.rows_of(table / unquote(file["path"])) for file in change_files]
        return tuple(WrittenFile(file["path"], file["size"], count, paired=True) for file, count in zip(change_files, counts, strict=True))
    added = sorted(
        (action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)), key=file_action.order
    )
    return tuple(WrittenFile(file["path"], file["size"], file_action.records(file), paired=False) for file in added)
