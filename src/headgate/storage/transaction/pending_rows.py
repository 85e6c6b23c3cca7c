"""Rows that a transaction has added and not yet written, so that many transactions can add rows to one table at the same time.

`Transaction.add_later` puts them here instead of taking the table's write lock; unique keys are claimed for them (`lock`). A transaction
writes them when it takes the lock of any table, so that the log has its writes in the order of its statements: at its commit, or before
where it changes rows, sends a message or the catalog changes.

    claimed    `claim` said yes: nobody else adds these keys before this transaction ends, and their absence has been looked up
    pending    `add`: kept here, read by this transaction's own SELECTs
    written    `settle`: the lock is held, the rows are a version of the Delta table

Traced: A: BEGIN; INSERT 1 (pending). B: BEGIN; INSERT 2 (pending); COMMIT takes the lock, writes version 8, logs it. A: COMMIT takes the
lock, sees that the table has changed since its keys were looked up, looks them up again, writes version 9, logs it.

What must hold: who adds keys without a claim (an apply worker, UPDATE of a key) waits for the claims of others first, or is found at
`settle`, which then raises 23505.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.lsn import Lsn
from headgate.storage.delta.table_state import TableState
from headgate.storage.lock import Key
from headgate.storage.write import SMALL_BYTES, SMALL_ROWS

if TYPE_CHECKING:
    from headgate.storage.transaction.uncommitted import Uncommitted

Check = Callable[[pa.Table], None]


@dataclass(frozen=True)
class PendingInsert:
    """Rows of one INSERT: `state` is the one in which their keys were looked up by `check`; `seen`, `xid` as in `TableWrite`."""

    relation: Any
    rows: pa.Table
    state: TableState
    check: Check
    seen: Lsn
    xid: int

    @property
    def key(self) -> Key:
        """The table."""
        return (self.relation.database, self.relation.oid)


Saved = tuple[tuple[PendingInsert, ...], int, int]
"""Pending rows, how many there are, and their bytes."""


class PendingRows:
    """The pending rows of one transaction, in the order of its statements."""

    def __init__(self, transaction: Uncommitted) -> None:
        self._transaction = transaction
        self._all: tuple[PendingInsert, ...] = ()
        self._rows = self._bytes = self._added = 0

    @property
    def added(self) -> int:
        """How many rows have been added, those that are written or taken back by now too."""
        return self._added

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, added: PendingInsert) -> None:
        """Keeps rows; writes all of them where they are many."""
        self._all += (added,)
        self._added += added.rows.num_rows
        self._rows, self._bytes = self._rows + added.rows.num_rows, self._bytes + added.rows.nbytes
        if self._rows > SMALL_ROWS or self._bytes > SMALL_BYTES:
            self.settle()

    def has(self, key: Key) -> bool:
        """Whether a table has some."""
        return any(each.key == key for each in self._all)

    def of(self, key: Key) -> list[pa.Table]:
        """The rows of a table."""
        return [each.rows for each in self._all if each.key == key]

    def saved(self) -> Saved:
        """What there is now, for `restore`."""
        return self._all, self._rows, self._bytes

    def restore(self, saved: Saved) -> None:
        """Makes it what it was: later rows are forgotten, rows that were written since are pending again."""
        self._all, self._rows, self._bytes = saved

    def settle(self) -> None:
        """Writes the rows, each table under its lock. 23505 where a key has been added meanwhile by somebody who did not ask.

        The locks are taken in the order of the tables, so that two that commit at the same time are no deadlock. Rows that were added in
        a row are one write, unless something was logged in between: each is published as the catalog was when its statement ran.
        """
        waiting = self._all
        self.restore(((), 0, 0))
        for _, relation in sorted({one.key: one.relation for one in waiting}.items(), key=lambda item: item[0]):
            self._transaction.lock(relation)
        for (key, made), each in itertools.groupby(waiting, lambda one: (one.key, (one.seen, one.xid))):
            group = list(each)
            visible = self._transaction.engine.visible[key].state
            for one in group:
                if one.state is not visible:
                    one.check(one.rows)
            rows = pa.concat_tables([one.rows for one in group])
            self._transaction.append_pending(group[-1].relation, rows, made)
