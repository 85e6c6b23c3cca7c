"""What a statement has seen of all tables, for who asks later: what a cursor was opened on (`commands.dml.current_row`).

Taken by `Transaction.statement_view`; it costs a few references, no table is looked at. The files that it names stay as long as its
transaction runs (`cleaning`), those that the transaction itself has made too.
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
    """`view`, `visible`: what was committed; `tables`, `seen`, `pending`: what the transaction had written, in `writes` writes."""

    view: Mapping[Key, Visible]
    visible: Mapping[Key, Visible]
    tables: Mapping[Key, StagedTable]
    seen: Mapping[Key, TableState]
    pending: tuple[PendingInsert, ...]
    writes: int

    def state(self, key: Key) -> TableState | None:
        """A table without the rows that were pending; None where there was none."""
        if key in self.seen:
            return self.seen[key]
        if key in self.tables:
            return self.tables[key].state
        shown = self.view.get(key) or self.visible.get(key)
        return None if shown is None else shown.state

    def pending_rows(self, key: Key) -> list[pa.Table]:
        """The rows of a table that were pending."""
        return [each.rows for each in self.pending if each.key == key]
