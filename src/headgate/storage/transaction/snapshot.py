"""The committed states of tables that a transaction reads: those at the begin of its statement, or at its own begin.

Made by `transaction`. Under READ COMMITTED each statement takes a new snapshot. Under REPEATABLE READ and SERIALIZABLE it is fixed once.
A snapshot is the mapping of visible states (`Tables`) at one LSN. It costs a reference and reads no table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.tables import Tables
from headgate.storage.delta.visible_state import Visible
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction.log import TransactionLog
from headgate.storage.transaction.staged import StagedTable


class Snapshot:
    """The snapshot of one transaction (see the module)."""

    def __init__(self, tables: Tables, log: TransactionLog) -> None:
        self._tables, self._log = tables, log
        self._states: Mapping[Key, Visible] | None = None
        self._lsn: Lsn | None = None
        self._described: Mapping[Key, Visible] = {}
        """The tables as of an import of an older snapshot: as the catalog of the transaction describes them."""
        self.is_fixed = False
        """Whether it belongs to the whole transaction and not to one statement."""
        self.is_serializable = False
        self.read: set[Key] = set()
        """The tables that statements of the transaction have read."""
        self.checked: set[Key] = set()
        """The tables in which its constraints have looked up rows, or to which it has added rows."""
        self.is_ignored = False
        """Whether tables are read with all committed rows (`seeing_newest`)."""

    @property
    def lsn(self) -> Lsn:
        """Return the LSN as of which the statement reads."""
        return self._log.end if self._lsn is None else self._lsn

    @property
    def states(self) -> Mapping[Key, Visible]:
        return self._tables.visible if self._states is None else self._states

    def take(self) -> None:
        """Take a new snapshot. The caller holds the commit lock."""
        self._states, self._lsn, self._described = self._tables.visible, self._log.end, {}

    def take_at(self, lsn: Lsn) -> None:
        """Take the snapshot that was exported at an LSN."""
        with self._log.commit_lock:
            then, now, visible = self._log.versions(lsn), self._log.versions(), self._tables.visible
            self._states = {
                key: visible[key] if key in visible and now.get(key) == logged else self._tables.at(key, logged.version)
                for key, logged in then.items()
            }
        self._lsn, self._described = lsn, visible

    def fix(self, *, is_serializable: bool) -> None:
        """Keep the snapshot until the transaction ends."""
        self.is_fixed, self.is_serializable = True, is_serializable

    def release(self) -> None:
        """Undo `fix`: nothing has been read or written."""
        self.is_fixed = self.is_serializable = False

    @contextlib.contextmanager
    def seeing_newest(self) -> Iterator[None]:
        """Within the context, tables are read with all committed rows and the transaction's own writes.

        For rules that must hold for all rows: unique keys, foreign keys, types. The caller holds the tables' locks or acquires them inside.
        """
        before, self.is_ignored = self.is_ignored, True
        try:
            yield
        finally:
            self.is_ignored = before

    def shown(self, key: Key) -> TableState | None:
        """Return a table's state, None if the table is not in the snapshot and could not have been.

        Raise 40001 if its columns have changed after an imported snapshot: the transaction would read the old rows by the new columns.
        """
        shown = self.states.get(key) or (None if self.is_fixed else self._tables.visible.get(key))
        if shown is not None:
            described = self._described.get(key, shown)
            if described is not shown and described.state.altered > shown.state.version:
                raise PostgresError("40001", "could not serialize access due to concurrent update")
            return shown.state
        # a table that was created after the snapshot has no rows in it
        return self._tables.empty_state(key) if self.is_fixed and key in self._tables.visible else None

    def move(self, key: Key) -> None:
        """Show a table as it is now, unless the snapshot is fixed: a statement changes rows as they were committed while it waited."""
        newest = self._tables.visible.get(key)
        if self.is_fixed or self._states is None or newest is None or self._states.get(key) is newest:
            return
        self._states = {**self._states, key: newest}

    def behind(self, key: Key, staged: StagedTable) -> TableState | None:
        """Return the fixed snapshot's state of a table that others have changed since, and this transaction has not. None otherwise."""
        shown = self.states.get(key) if self.is_fixed else None
        return shown.state if shown is not None and not staged.is_changed and shown.state is not staged.base else None

    @property
    def used(self) -> AbstractSet[Key]:
        """Return the tables on whose rows the transaction depends."""
        return self.read | self.checked

    def is_current(self, key: Key) -> bool:
        """Return whether the snapshot shows the newest committed state of a table that it has."""
        shown = self.states.get(key)
        return shown is None or self._tables.visible.get(key) is shown

    def not_in_series(self, key: Key) -> PostgresError | None:
        """Return the error 40001 of a serializable transaction that has read a table which others have changed since. None otherwise.

        It is raised instead of the error of a constraint, which the transaction could not have expected from the rows that it has read.
        """
        if not self.is_serializable or key not in self.read or self.is_current(key):
            return None
        return not_in_series("conflict in checking")


def not_in_series(during: str) -> PostgresError:
    """Return the error 40001 of a serializable transaction that has read what another one has changed."""
    return PostgresError(
        "40001", "could not serialize access due to read/write dependencies among transactions",
        detail=f"Reason code: Canceled on identification as a pivot, during {during}.",
        hint="The transaction might succeed if retried.",
    )  # fmt: skip
