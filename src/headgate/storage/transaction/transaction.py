"""A transaction of a node: writes to several tables and to the catalog that become visible together, or not at all.

A session, an apply worker or a table sync begins a transaction with `Engine.begin` and uses it from one thread at a time.

It wires these parts, each of which knows only those above it:

    own_locks            the xid, the locks and catalog keys that it holds
    transaction_catalog  the catalog as it shows it, and what the log's history records of its changes
    snapshot             the committed states of tables that it reads
    savepoint            the savepoints, and the xids of subtransactions
    staging              the files and log entries of its writes
    held_tables          the tables that it has locked, and its rows that are still pending
    table_reader         the states and rows of tables as it sees them
    table_ddl            the changes to definitions of tables
    ending               COMMIT, ROLLBACK, PREPARE TRANSACTION

Its states:

    open       each write is staged (`staged`): its files are in no Delta version, and only this transaction reads them
    intended   `commit` has made the intent durable (`intent`), then each table gets one Delta version
    committed  one DuckDB commit has written the log entry, with its LSN, and the catalog rows: everything is visible at once
    prepared   `prepare` gave the staged writes to `prepared`, which commits them or rolls them back
    aborted    `rollback` has discarded the staged writes and removed their files, and the folders of new tables

Traced: BEGIN; INSERT INTO a (a file); UPDATE b (a file, a change file, a deletion vector). COMMIT stores the intent, commits version 8
of a and 3 of b, and acquires the node's commit lock. It assigns the LSN 0/1000008… to the entry, inserts it with versions (a, 8), (b, 3)
in one DuckDB transaction, and publishes both states at once. After a crash before the intent was stored, no version names the files.
After a crash later on, recovery completes the transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
from pyspark.sql import DataFrame

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.hold import Hold
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import write
from headgate.storage.delta import array_column, file_action
from headgate.storage.delta.file_action import Action
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.lock import Keys
from headgate.storage.transaction.ending import Ending
from headgate.storage.transaction.foreign_writer import ForeignWriters
from headgate.storage.transaction.held_tables import HeldTables
from headgate.storage.transaction.intent import Intents
from headgate.storage.transaction.log import OriginProgress
from headgate.storage.transaction.own_locks import OwnLocks
from headgate.storage.transaction.partitioned_table import PartitionedTable
from headgate.storage.transaction.pending_rows import Check, PendingInsert
from headgate.storage.transaction.pile import Piece
from headgate.storage.transaction.prepared import PreparedTransactions
from headgate.storage.transaction.savepoint import SavedWork, Savepoints
from headgate.storage.transaction.snapshot import Snapshot
from headgate.storage.transaction.staging import Staging
from headgate.storage.transaction.storage import Storage
from headgate.storage.transaction.table_ddl import TableDdl
from headgate.storage.transaction.table_reader import TableReader
from headgate.storage.transaction.transaction_catalog import TransactionCatalog
from headgate.types.registry import FIRST_USER_OID

CASCADE, RESTART_IDENTITY = 1, 2
NOTHING = (0, 0, 0)
"""`Transaction.place` of a transaction that has not written anything."""


class Transaction:
    """A transaction in progress (see the module). All writing methods acquire the table's write lock until the transaction ends."""

    def __init__(
        self, storage: Storage, foreign: ForeignWriters, intents: Intents, prepared: PreparedTransactions, database: int
    ) -> None:  # fmt: skip
        self.storage = storage
        catalog, log, running, tables = storage.catalog, storage.log, storage.running, storage.tables
        self.locks = OwnLocks(storage.locks, log.next_xid)
        self.catalog = TransactionCatalog(catalog, log, running, database, self.locks)
        self.snapshot = Snapshot(tables, log)
        self._savepoints = Savepoints(self.locks)
        self.staging = Staging(tables, log, running, self.snapshot, self.catalog, self._savepoints.subtransaction)
        self._tables = HeldTables(tables, foreign, self.locks, self.catalog, self.snapshot, self.staging)
        self._pending = self._tables.pending
        self.reader = TableReader(storage.spark, tables, self.catalog, self.snapshot, self.staging, self._tables)
        self.ddl = TableDdl(storage, self._tables, self.staging)
        self.until_end = contextlib.ExitStack()
        """Closed when the transaction has ended. It removes the files of rows that its frames read."""
        self.until_end.callback(running.ended, self)
        self._ending = Ending(
            storage, intents, prepared, self.locks, self.catalog, self.snapshot, self.staging, self._pending, self.until_end.close
        )
        self.unpreparable: str | None = None
        """The reason why the transaction cannot be prepared."""

    @property
    def database(self) -> int:
        """Return the database to which the log entry belongs."""
        return self.catalog.database

    @property
    def xid(self) -> int:
        """Return the transaction id, assigned at the first call."""
        return self.locks.xid

    @property
    def cursor(self) -> CatalogCursor:
        return self.catalog.cursor

    def catalog_changed(self, among: AbstractSet[int] | None = None) -> None:
        """Note a catalog change that streams must know (`TransactionCatalog.changed`). Pending rows belong before it."""
        self._pending.settle()
        self.catalog.changed(among)

    # the snapshot

    def statement(self, *, replay: bool = False) -> None:
        """Begin a statement: its frames and the catalog show what is committed now, all as of one LSN (READ COMMITTED).

        `replay`: the catalog too, even if the transaction has made many changes of it (`TransactionCatalog.renew`).
        """
        if self.snapshot.is_fixed:
            return
        with self.storage.commit_lock:
            self.snapshot.take()
            self.catalog.renew(replay=replay)

    @property
    def place(self) -> tuple[int, int, int]:
        """Return counters that change with each write of a statement, but not when pending rows of an earlier statement are written."""
        return self.catalog.place, self.staging.noted, self._pending.added

    def plan_again(self) -> bool:
        """Begin the statement again after it has written nothing. Return False if the transaction reads as of its begin."""
        if self.snapshot.is_fixed:
            return False
        self.statement(replay=True)
        return True

    def look_again(self) -> bool:
        """Replace the catalog's transaction after a query of it failed. Return False if the transaction reads as of its begin."""
        return not self.snapshot.is_fixed and self.catalog.restart() and self.plan_again()

    def forget_snapshot(self) -> None:
        """Discard the snapshot: the statement that called `isolate` has read and written nothing, and begins again."""
        self.snapshot.release()
        self.storage.running.forget_snapshot(self)

    def isolate(self, imported: Lsn | None, *, serializable: bool) -> None:
        """Read as of now, or as of an imported snapshot's LSN, until the transaction ends (REPEATABLE READ, SERIALIZABLE)."""
        if self.snapshot.is_fixed:
            return
        if imported is None:
            self.statement()
        else:
            self.snapshot.take_at(imported)
        self.snapshot.fix(is_serializable=serializable)

    # savepoints

    def savepoint(self, name: str) -> None:
        """Define a savepoint. A name may be used again and then hides the earlier savepoint."""
        self.reader.write_unwritten()
        self._savepoints.define(name, SavedWork(self.staging.saved(), self.catalog.saved(), self._pending.saved()))

    def rollback_to(self, name: str) -> None:
        """Undo the writes after a savepoint, which stays defined. Raise 3B001 if it does not exist."""
        saved = self._savepoints.saved(name)
        for key in self.staging.created - saved.staging.created:
            self.storage.tables.forget(key)
        self.staging.restore(saved.staging)
        self._pending.restore(saved.pending)
        self.catalog.restore(saved.catalog)
        self._savepoints.rolled_back_to(name)

    def release(self, name: str) -> None:
        """Release a savepoint and those after it. Raise 3B001 if it does not exist."""
        self._savepoints.release(name)

    # locks

    def lock(self, relation: Relation, *, wait: bool = True, alone: bool = False, keys: Callable[[], Keys] | None = None) -> None:
        """Acquire the write lock of a table, or of each leaf of a partitioned table, until the end. Raise 55P03 if held and not `wait`.

        Called before the table is read and written, so that the read stays current. `alone`: wait also for others that have rows to add,
        because a rule for all rows is about to be checked. `keys`: as for `HeldTables.lock`.
        """
        for leaf in self.reader.leaves(relation):
            self._tables.lock(leaf, wait=wait, alone=alone, keys=keys)

    def own(self, relation: Relation, hold: Hold = Hold.ALONE) -> None:
        """Keep others from writing to, using or changing a relation until the end. ALTER and DROP call it first.

        A relation with leaves is owned with all tables below it. Raise 42501 for a system catalog, otherwise as `HeldTables.own`.
        """
        if relation.kind == RelationKind.TABLE and relation.oid < FIRST_USER_OID:
            raise PostgresError("42501", f'permission denied: "{relation.name}" is a system catalog')
        owned = [below.relation for below in self.partitioned(relation).branch.walk()] if relation.has_leaves else [relation]
        if len(owned) > 1:
            self._tables.wait_for(owned, hold)
        for member in owned:
            self._tables.own(member, hold)

    def partitioned(self, relation: Relation) -> PartitionedTable:
        """Return a partitioned table as this transaction's catalog defines it."""
        return self.reader.partitioned(relation)

    # writing

    def append(self, relation: Relation, rows: DataFrame | pa.Table) -> int:
        """Append rows (the relation's columns, in storage types). Return the number of rows."""
        if relation.is_partitioned:
            table = self.partitioned(relation)
            with contextlib.ExitStack() as until:
                return sum(self.append(table.leaves[part.number], part.rows) for part in table.split(rows, until))
        key = self._tables.lock(relation)
        result = write.append(self.storage.tables[key], relation, self.staging.base(key), rows, memory=self.staging.held.room)
        return self.staging.stage_written(key, result)

    def claim(self, relation: Relation, keys: Keys) -> bool:
        """Claim the keys of rows for `add_later` (`HeldTables.claim`). Return False if they cannot be added without the table's lock."""
        return self._tables.claim(relation, keys)

    def add_later(self, relation: Relation, rows: pa.Table, check: Check) -> None:
        """Add rows whose keys are claimed. They are written when the lock is acquired (`pending`); `check` raises if a key exists."""
        origin = self.storage.log.end, self._savepoints.subtransaction()
        self.snapshot.checked.add((relation.database, relation.oid))
        with self.reader.looking_up():
            state = self.reader.peek(relation)
            array_column.to_file(rows, state.lists)  # this statement, not COMMIT, rejects values that files cannot hold
            self._pending.add(PendingInsert(relation, Piece.of(rows), state, check, *origin))

    def data_path(self, relation: Relation) -> DataPath:
        """Return the folder of a relation's files, for callers that write them themselves and then call `add_files`."""
        return self.storage.tables.path((relation.database, relation.oid))

    def add_files(self, relation: Relation, actions: Sequence[Action]) -> int:
        """Add files of new rows that were written into `data_path` (`add` actions with statistics). Return the number of rows."""
        key = self._tables.lock(relation)
        rows = sum(file_action.records(action["add"]) for action in actions)
        return self.staging.stage_written(key, write.Written(list(actions), rows))

    def add_changed(self, relation: Relation, actions: Sequence[Action], gone: write.Positions, changes: int) -> int:
        """Add files of changed rows that tasks wrote into `data_path`, delete the rows that they replace. Return the number of changes."""
        key = self._tables.lock(relation)
        return self.staging.stage_written(
            key, write.with_deletions(self.storage.tables[key], self.staging.base(key), actions, gone, changes)
        )

    def record_completely(self, relation: Relation, history: Relation) -> None:
        """Note that this transaction's writes to a history hold all its changes of a table (`TableWrite.recorded`)."""
        self.staging.complete[history.oid] = relation.oid

    def replace_files(self, key: Key, actions: Sequence[Action]) -> None:
        """Stage file actions that change no rows (`compactor`). The caller holds the table's lock."""
        self.staging.stage(key, actions)

    def rewrite(self, relation: Relation, changed: DataFrame | pa.Table, *, is_kept: bool = False) -> int:
        """Update, delete and insert rows. Return the number of changes.

        `changed`: `old` struct (NULL: insert), `new` struct (NULL: delete), `file` string and `row` bigint. The last two are the position
        of the old row from `positions`, each at most once. The changes have the order of the frame. `is_kept`: as for `write.rewrite`.
        """
        if relation.is_partitioned:
            return self._rewrite_leaves(self.partitioned(relation), changed)
        key = self._tables.lock(relation)
        room = self.staging.held.room
        seen = self.staging.seen_state(key)
        table, base = self.storage.tables[key], self.staging.base(key)
        result = write.rewrite(table, relation, base, changed, seen=seen, memory=room, is_kept=is_kept)
        return self.staging.stage_written(key, result)

    def _rewrite_leaves(self, table: PartitionedTable, changed: DataFrame | pa.Table) -> int:
        with contextlib.ExitStack() as until:
            flows = table.flows(changed, until)
            for part in flows.changes:
                self.rewrite(table.leaves[part.number], part.rows, is_kept=True)
            for part in flows.arriving:
                self.append(table.leaves[part.number], part.rows)
            return flows.count

    def has_left_files(self, relation: Relation) -> None:
        """Record that files that are not staged may be in the table's folder, so that cleaning looks for them."""
        self.storage.tables[self.database, relation.oid].has_failed = True

    def truncate(self, relations: Sequence[Relation], restart_identity: bool = False, cascade: bool = False) -> None:
        """Truncate tables, and all leaves of partitioned ones, as one statement in the log. The entry names the partitioned table too."""
        statement = len(self.staging.writes)
        options = (CASCADE if cascade else 0) | (RESTART_IDENTITY if restart_identity else 0)
        emptied: dict[int, Relation] = {}
        for relation in relations:
            below = [member.relation for member in self.partitioned(relation).branch.walk()] if relation.is_partitioned else [relation]
            emptied |= {member.oid: member for member in below if member.oid not in emptied}
        for relation in emptied.values():
            if relation.is_partitioned:  # it has no rows of its own, but the publication may name it
                self.staging.record_catalog()
                self.staging.note(relation.oid, "truncate", 0, 0, statement, options)
                continue
            key = self._tables.lock(relation)
            actions = [file_action.removal(add, data_change=True) for add in self.staging.base(key).files.values()]
            self.staging.stage_write(key, actions, 0, kind="truncate", statement=statement, options=options)

    @property
    def has_writes(self) -> bool:
        """Whether it has written rows or the catalog, so that PostgreSQL would have assigned an xid."""
        return bool(self.staging.writes or self._pending or self.catalog.place)

    def emit(self, prefix: str, content: bytes) -> None:
        """Write a transactional logical decoding message at this place in the log."""
        self._pending.settle()
        self.staging.note_message(prefix, content)

    # ending

    def commit(self, origin: OriginProgress | None = None) -> Lsn | None:
        """Make all writes visible at once. Return the end LSN of the log entry, None if there was nothing to log."""
        return self._ending.commit(origin)

    def rollback(self) -> None:
        """Discard all writes. Do nothing after the transaction has ended."""
        self._ending.rollback()

    def prepare(self, gid: str, owner: str, origin: OriginProgress | None = None) -> Lsn:
        """End as a prepared transaction (`prepared`). Return the end LSN of its log entry. Any error rolls the transaction back.

        Raise 42710 if the gid is in use, 0A000 if the transaction cannot be prepared.
        """
        reason = "cannot PREPARE a transaction that has opened an external table" if self.ddl.has_opened_external else self.unpreparable
        if reason is not None:
            self.rollback()
            raise PostgresError("0A000", reason)
        return self._ending.prepare(gid, owner, origin)
