"""The state of all tables that a statement saw, kept for later: for a cursor, when it was opened (`commands.dml.current_row`).

Made by `Transaction.statement_view`. It costs a few references and reads no table. The files that it names stay until its transaction ends
(`cleaning`), including those that the transaction itself has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.visible_state import Visible
from headgate.storage.lock import Key
from headgate.storage.transaction.staged import StagedTable

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.storage.transaction.pending_rows import PendingInsert


@dataclass(frozen=True)
class StatementView:
    """`view`, `visible`: the committed states. `tables`, `seen`, `pending`: the transaction's own writes, of which there were `writes`."""

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
