"""The change rows of a transaction's small writes: in memory until it ends, then those of many statements are in one file.

A change file is for who reads what a version changed; the transaction itself reads its data files and vectors. So a statement that changes
a few rows makes no change file, its `cdc` action names one that is not there (`parquet.unwritten_changes`). Before the end `written` makes
one file, and one write of the log, of the writes that follow each other: 1,000 single-row statements otherwise make 1,000 files, which are
synchronized one by one, and which whoever streams them opens one by one. Used by `uncommitted`, for a table that has change files at all:
where rows were only added their data files tell.

What must hold: the changes stay in the order of the statements, and a run ends where a stream would judge the next write otherwise: another
subtransaction, the catalog recorded in between (`era`), a definition that another has committed in between, other columns.
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
"""The change rows of a write that are kept, as Arrow has them."""
ALL_BYTES = 16 << 20
"""The same of a transaction."""


@dataclass(frozen=True)
class _Held:
    rows: pa.Table
    era: int
    definitions: int | None


class HeldChanges:
    """Those of one transaction, by the number of the write."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._bytes = self._era = 0

    @property
    def room(self) -> int:
        """How many bytes of rows the next write may keep."""
        return min(MOST_BYTES, ALL_BYTES - self._bytes)

    def add(self, seq: int, rows: pa.Table, definitions: int | None) -> None:
        """Keeps the change rows of a write; `definitions` (of the engine) when it was made, None where that is not known."""
        self._held[seq] = _Held(rows, self._era, definitions)
        self._bytes += rows.nbytes

    def rows(self, seq: int) -> pa.Table | None:
        """The change rows of a write, where they are kept."""
        held = self._held.get(seq)
        return None if held is None else held.rows

    def catalog_recorded(self) -> None:
        """What is written from here on is judged by another catalog."""
        self._era += 1

    def forget_from(self, seq: int) -> None:
        """The writes from this number on were taken back."""
        for each in [number for number in self._held if number >= seq]:
            self._bytes -= self._held.pop(each).rows.nbytes

    def written(
        self, table: DeltaTable, relation: int, staged: StagedTable, writes: list[TableWrite]
    ) -> tuple[StagedTable, list[TableWrite]]:
        """The table with all its change files, and the writes of the transaction, those of a run as one."""
        if not staged.changes or not any(each.relation == relation and each.seq in self._held for each in writes):
            return staged, writes
        made, found = [], []
        with step(Step.STAGED):
            for run in self._runs(relation, writes):
                if run[0].relation != relation or run[0].seq not in self._held:
                    found += run
                    continue
                rows = [self._held[each.seq].rows for each in run]
                cdc = parquet.write_changes(table.path, rows[0].schema, rows, run[0].physical or {})
                made.append(cdc)
                file = WrittenFile(cdc["cdc"]["path"], cdc["cdc"]["size"], sum(each.num_rows for each in rows), paired=True)
                changes, size = sum(each.changes for each in run), sum(each.bytes for each in run)
                found.append(replace(run[0], changes=changes, bytes=size, files=(file,)))
        there = tuple(each for each in staged.changes if not parquet.is_unwritten(each["cdc"]["path"]))
        return replace(staged, changes=there + tuple(made)), found

    def _runs(self, relation: int, writes: Sequence[TableWrite]) -> Iterator[list[TableWrite]]:
        """The writes, cut where the next does not go into the file of the one before."""
        run: list[TableWrite] = []
        for each in writes:
            if run and not (each.relation == run[-1].relation == relation and self._joins(run[-1], each)):
                yield run
                run = []
            run.append(each)
        if run:
            yield run

    def _joins(self, one: TableWrite, other: TableWrite) -> bool:
        first, second = self._held.get(one.seq), self._held.get(other.seq)
        if first is None or second is None:
            return False
        same = (one.xid, one.physical, first.era) == (other.xid, other.physical, second.era)
        judged = one.seen == other.seen or (first.definitions is not None and first.definitions == second.definitions)
        return same and judged and first.rows.schema.equals(second.rows.schema)
