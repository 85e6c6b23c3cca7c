"""The change rows of a transaction's small writes: kept in memory until the end, then written to one file for many statements.

Only readers of a version's changes need a change file; the transaction itself reads its data files and deletion vectors. So a statement
that changes a few rows writes no change file. Its `cdc` action names a file that does not exist (`parquet.unwritten_changes`). Before the
end, `written` turns consecutive writes into one file and one write of the log. Otherwise 1,000 single-row statements would make 1,000
files, each of which is fsynced, and opened by each stream, on its own. Used by `uncommitted`, for tables that have change files: if rows
were only added, the data files hold the changes.

Invariant: the changes keep the order of the statements. A run ends where a stream would evaluate the next write differently: in
another subtransaction, with the catalog recorded in between (`era`), a definition committed by others in between, or other columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headgate.failpoint import Step, step
from headgate.storage.delta import parquet
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.transaction.log import TableWrite, WrittenFile
from headgate.storage.transaction.staged import StagedTable

MOST_BYTES = 1 << 20
"""Limit in bytes, in Arrow form, of the change rows that are kept for one write."""
ALL_BYTES = 16 << 20
"""Limit in bytes of the change rows that are kept for one transaction."""


@dataclass(frozen=True)
class _Held:
    rows: pa.Table
    era: int
    definitions: int | None


class HeldChanges:
    """The kept change rows of one transaction, by the number of the write."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._bytes = self._era = 0

    @property
    def room(self) -> int:
        """Return how many bytes of rows the next write may keep."""
        return min(MOST_BYTES, ALL_BYTES - self._bytes)

    def add(self, seq: int, rows: pa.Table, definitions: int | None) -> None:
        """Keep the change rows of a write. `definitions`: the engine's when the statement ran, None if that is not known."""
        self._held[seq] = _Held(rows, self._era, definitions)
        self._bytes += rows.nbytes

    def rows(self, seq: int) -> pa.Table | None:
        """Return the change rows of a write if they are kept, otherwise None."""
        held = self._held.get(seq)
        return None if held is None else held.rows

    def catalog_recorded(self) -> None:
        """Start a new era: later writes are evaluated with another catalog."""
        self._era += 1

    def forget_from(self, seq: int) -> None:
        """Discard the change rows of the writes from this number on, which were rolled back."""
        for number in [number for number in self._held if number >= seq]:
            self._bytes -= self._held.pop(number).rows.nbytes

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
                rows = [self._held[write.seq].rows for write in run]
                cdc = parquet.write_changes(table.path, rows[0].schema, rows, run[0].physical or {})
                cdc_actions.append(cdc)
                file = WrittenFile(cdc["cdc"]["path"], cdc["cdc"]["size"], sum(part.num_rows for part in rows), paired=True)
                changes, size = sum(write.changes for write in run), sum(write.bytes for write in run)
                merged.append(replace(run[0], changes=changes, bytes=size, files=(file,)))
        existing = tuple(change for change in staged.changes if not parquet.is_unwritten(change["cdc"]["path"]))
        return replace(staged, changes=existing + tuple(cdc_actions)), merged

    def _runs(self, relation: int, writes: Sequence[TableWrite]) -> Iterator[list[TableWrite]]:
        run: list[TableWrite] = []
        for write in writes:
            if run and not (write.relation == run[-1].relation == relation and self._joins(run[-1], write)):
                yield run
                run = []
            run.append(write)
        if run:
            yield run

    def _joins(self, write: TableWrite, following: TableWrite) -> bool:
        first, second = self._held.get(write.seq), self._held.get(following.seq)
        if first is None or second is None:
            return False
        same_stream = (write.xid, write.physical, first.era) == (following.xid, following.physical, second.era)
        same_definitions = write.seen == following.seen or (first.definitions is not None and first.definitions == second.definitions)
        return same_stream and same_definitions and first.rows.schema.equals(second.rows.schema)
