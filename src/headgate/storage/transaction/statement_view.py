"""The tables as one statement has seen them, for later statements. Made by `table_reader`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.visible_state import Visible
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction.pending_rows import PendingInsert
from headgate.storage.transaction.staged import StagedTable


@dataclass(frozen=True)
class StatementView:
    """The state of all tables that a statement saw: for a cursor, when it was opened (`commands.dml.current_row`).

    The files that it names stay until its transaction ends (`cleaning`), including those that the transaction itself has written.
    `view`, `visible`: the committed states. `tables`, `seen`, `pending`: the transaction's own writes, of which there were `writes`.
    """

    view: Mapping[Key, Visible]
    visible: Mapping[Key, Visible]
    tables: Mapping[Key, StagedTable]
    seen: Mapping[Key, TableState]
    pending: tuple[PendingInsert, ...]
    writes: int

    def state(self, key: Key) -> TableState | None:
        """Return a table without its pending rows, None if it did not exist."""
        if key in self.seen:
            return self.seen[key]
        if key in self.tables:
            return self.tables[key].state
        shown = self.view.get(key) or self.visible.get(key)
        return None if shown is None else shown.state

    def pending_rows(self, key: Key) -> list[pa.Table]:
        return [insert.rows for insert in self.pending if insert.key == key]
