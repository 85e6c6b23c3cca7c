"""Rows that a transaction has added and not yet written, so that many transactions can add rows to one table at the same time.

`Transaction.add_later` stores rows here instead of acquiring the table's write lock; their unique keys are claimed (`lock`). A transaction
writes them when it acquires the lock of any table, so that the log has its writes in the order of its statements. That is at its commit, or
before it changes rows, sends a message or changes the catalog.

    claimed    `claim` returned True: no other transaction adds these keys before this one ends, and they were not in the table
    pending    `add`: kept here, read by this transaction's own SELECTs
    written    `settle`: the lock is held, the rows are a version of the Delta table

Traced: A: BEGIN; INSERT 1 (pending). B: BEGIN; INSERT 2 (pending); COMMIT acquires the lock, writes version 8, logs it. A: COMMIT acquires
the lock, finds that the table has changed since it looked up its keys, looks them up again, writes version 9, logs it.

Invariant: a transaction that adds keys without a claim (an apply worker, UPDATE of a key) first waits for the claims of others.
Otherwise `settle` finds its keys and raises 23505.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from headgate.catalog.relation.relation import Relation
from headgate.lsn import Lsn
from headgate.storage import write
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.tables import Tables
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction.pile import SINGLE_BYTES, Piece, piled, together
from headgate.storage.transaction.staging import Staging
from headgate.storage.write import SMALL_BYTES, SMALL_ROWS

Check = Callable[[pa.Table], None]


@dataclass(frozen=True)
class PendingInsert:
    """The rows of one INSERT. `check` looked up their keys in `state`; `seen`, `xid` as in `TableWrite`."""

    relation: Relation
    piece: Piece
    state: TableState
    check: Check
    seen: Lsn
    xid: int

    @property
    def key(self) -> Key:
        return (self.relation.database, self.relation.oid)

    @property
    def rows(self) -> pa.Table:
        return self.piece.rows


@dataclass(frozen=True)
class Saved:
    """The pending rows at a savepoint: the first `count` inserts of a list, which later savepoints share.

    They have `rows` rows with `size` bytes. The first `piled` of the inserts were in piles.
    """

    inserts: list[PendingInsert]
    count: int
    rows: int
    size: int
    piled: int


class PendingRows:
    """The pending rows of one transaction, in the order of its statements."""

    def __init__(self, tables: Tables, staging: Staging, lock: Callable[[Relation], Key]) -> None:
        """`lock` acquires the write lock of a table (`HeldTables.lock`)."""
        self._tables, self._staging, self._lock = tables, staging, lock
        self._all: list[PendingInsert] = []
        """Rows are added at its end. `settle` begins another list, because savepoints have this one."""
        self._rows = self._bytes = self._added = self._piled = self._single_bytes = 0

    @property
    def added(self) -> int:
        """Return how many rows have been added, including those that were written or rolled back since, and failures to write them."""
        return self._added

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, added: PendingInsert) -> None:
        """Keep rows. Write all pending rows if they exceed `SMALL_ROWS` or `SMALL_BYTES`."""
        self._all.append(added)
        self._added += added.rows.num_rows
        self._rows, self._bytes = self._rows + added.rows.num_rows, self._bytes + added.rows.nbytes
        self._single_bytes += added.piece.size
        if self._rows > SMALL_ROWS or self._bytes > SMALL_BYTES:
            self.settle()
        elif self._single_bytes > SINGLE_BYTES:
            self._pile()

    def _pile(self) -> None:
        single = self._all[self._piled :]
        pieces = piled(insert.piece for insert in single)
        self._all[self._piled :] = [replace(insert, piece=piece) for insert, piece in zip(single, pieces, strict=True)]
        self._piled, self._single_bytes = len(self._all), 0

    def has(self, key: Key) -> bool:
        return any(insert.key == key for insert in self._all)

    def all(self) -> tuple[PendingInsert, ...]:
        """Return the pending rows of all tables as they are now."""
        return tuple(self._all)

    def of(self, key: Key) -> list[pa.Table]:
        return [insert.rows for insert in self._all if insert.key == key]

    def saved(self) -> Saved:
        """Return the current content, for `restore`."""
        return Saved(self._all, len(self._all), self._rows, self._bytes, self._piled)

    def restore(self, saved: Saved) -> None:
        """Restore a saved content: later rows are discarded, rows that were written since are pending again."""
        self._all, self._rows, self._bytes, self._piled = saved.inserts, saved.rows, saved.size, saved.piled
        del self._all[saved.count :]
        self._single_bytes = sum(insert.piece.size for insert in self._all[saved.piled :])

    def settle(self) -> None:
        """Write the rows, each table under its lock. Raise 23505 if a key has been added meanwhile by a writer without a claim.

        After an error the rows are gone. So it counts as a write of the statement, which then cannot run again without them.
        """
        try:
            self._settle()
        except BaseException:
            self._added += 1
            raise

    def _settle(self) -> None:
        """Write the rows.

        The locks are acquired in the order of the tables, so that two concurrent commits do not deadlock. Consecutive inserts are one write
        unless something was logged in between: each is published with the catalog as it was when its statement ran.
        """
        waiting = self._all
        self.restore(Saved([], 0, 0, 0, 0))
        for _, relation in sorted({insert.key: insert.relation for insert in waiting}.items(), key=lambda item: item[0]):
            self._lock(relation)
        for (key, position), inserts in itertools.groupby(waiting, lambda insert: (insert.key, (insert.seen, insert.xid))):
            group = list(inserts)
            visible = self._tables.visible[key].state
            for insert in group:
                if insert.state is not visible:
                    insert.check(insert.rows)
            rows = together(insert.piece for insert in group)
            table, room = self._tables[key], self._staging.held.room
            result = write.append(table, group[-1].relation, self._staging.base(key), rows, memory=room)
            self._staging.stage_written(key, result, position)
