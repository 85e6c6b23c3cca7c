"""A transaction of a node: writes to several tables and to the catalog that become visible together, or not at all.

A session, an apply worker or a table sync begins a transaction with `Engine.begin` and uses it from one thread at a time.

It wires these parts, each of which knows only those above it:

    own_locks            the xid, the locks and catalog keys that it holds
    transaction_catalog  the catalog as it shows it, and what the log's history records of its changes
    snapshot             the committed states of tables that it reads
    savepoint            the savepoints, and the xids of subtransactions
    staging              the files and log entries of its writes
    held_tables          the tables that it has locked, and its rows that are still pending
    table_ddl            the changes to definitions of tables
    ending               COMMIT, ROLLBACK, PREPARE TRANSACTION

Its states:

    open       each write is staged (`staged`): its files are in no Delta version, and only this transaction reads them
    intended   `commit` has made the intent durable (`intent`), then each table gets one Delta version
    committed  one DuckDB commit has written the log entry, with its LSN, and the catalog rows: everything is visible at once
    prepared   `hand_over` gave the staged writes to `prepared`, which commits them or rolls them back
    aborted    `rollback` has discarded the staged writes and removed their files, and the folders of new tables

Traced: BEGIN; INSERT INTO a (a file); UPDATE b (a file, a change file, a deletion vector). COMMIT stores the intent, commits version 8
of a and 3 of b, and acquires the node's commit lock. It assigns the LSN 0/1000008… to the entry, inserts it with versions (a, 8), (b, 3)
in one DuckDB transaction, and publishes both states at once. After a crash before the intent was stored, no version names the files.
After a crash later on, recovery completes the transaction.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.hold import Hold
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.errors import PostgresError, existing
from headgate.lsn import Lsn
from headgate.storage import write
from headgate.storage.delta import array_column, file_action
from headgate.storage.delta.delta_table import FILE, PLACE, ROW, DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.engine import Engine
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key, Keys
from headgate.storage.partitioned import PartitionedTable
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import in_one_piece, local_frame
from headgate.storage.transaction.ending import Ending, Handed
from headgate.storage.transaction.held_tables import HeldTables
from headgate.storage.transaction.log import OriginProgress, TableWrite, WriteKind
from headgate.storage.transaction.own_locks import OwnLocks
from headgate.storage.transaction.pending_rows import Check, PendingInsert
from headgate.storage.transaction.savepoint import SavedWork, Savepoints
from headgate.storage.transaction.snapshot import Snapshot, StatementView
from headgate.storage.transaction.staged import StagedTable
from headgate.storage.transaction.staging import Staging
from headgate.storage.transaction.table_ddl import TableDdl
from headgate.storage.transaction.transaction_catalog import TransactionCatalog
from headgate.storage.write import columns
from headgate.types.registry import FIRST_USER_OID

CASCADE, RESTART_IDENTITY = 1, 2
NOTHING = (0, 0, 0)
"""`Transaction.place` of a transaction that has not written anything."""


class _Unwritten:
    """Rows of tables that a statement has still to write (`Transaction.unwritten`)."""

    def __init__(self, keys: frozenset[Key], write: Callable[[], None], only_reads: bool) -> None:
        self.keys, self.only_reads, self._write = keys, only_reads, write
        self._failure: tuple[PostgresError, str | None] | None = None

    def write(self) -> None:
        self.raise_failure()
        try:
            self._write()
        except PostgresError as error:
            self._failure = error, error.context
            raise

    def raise_failure(self) -> None:
        """Raise the error of `write` again, with its own context."""
        if self._failure is not None:
            error, context = self._failure
            error.context = context
            raise error


class Transaction:
    """A transaction in progress (see the module). All writing methods acquire the table's write lock until the transaction ends."""

    def __init__(self, engine: Engine, database: int) -> None:
        self.engine = engine
        self.locks = OwnLocks(engine.locks, engine.log.next_xid)
        self.catalog = TransactionCatalog(engine, database, self.locks)
        self.snapshot = Snapshot(engine)
        self._savepoints = Savepoints(self.locks)
        self.staging = Staging(engine, self.snapshot, self.catalog, self._savepoints.subtransaction)
        self._tables = HeldTables(engine, self.locks, self.catalog, self.snapshot, self.staging)
        self._pending = self._tables.pending
        self.ddl = TableDdl(engine, self._tables, self.staging)
        self.until_end = contextlib.ExitStack()
        """Closed when the transaction has ended. It removes the files of rows that its frames read."""
        self.until_end.callback(engine.ended, self)
        self._ending = Ending(engine, self.locks, self.catalog, self.snapshot, self.staging, self._pending, self.until_end.close)
        self.unpreparable: str | None = None
        """The reason why the transaction cannot be prepared."""
        self._looking_up = False
        self._unwritten: tuple[_Unwritten, ...] = ()
        """The rows that statements have still to write, those of the outermost statement first."""
        self._partitioned: tuple[int, dict[int, PartitionedTable]] = (0, {})
        """Partitioned tables as the catalog defined them in one generation (`TransactionCatalog.generation`)."""

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
        with self.engine.commit_lock:
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
        self.engine.isolation.ended(self)

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
        self._write_unwritten()
        self._savepoints.define(name, SavedWork(self.staging.saved(), self.catalog.saved(), self._pending.saved()))

    def rollback_to(self, name: str) -> None:
        """Undo the writes after a savepoint, which stays defined. Raise 3B001 if it does not exist."""
        saved = self._savepoints.saved(name)
        for key in self.staging.created - saved.staging.created:
            self.engine.forget(key)
        self.staging.restore(saved.staging)
        self._pending.restore(saved.pending)
        self.catalog.restore(saved.catalog)
        self._savepoints.rolled_back_to(name)

    def release(self, name: str) -> None:
        """Release a savepoint and those after it. Raise 3B001 if it does not exist."""
        self._savepoints.release(name)

    # locks

    def lock(self, relation: Relation, *, wait: bool = True) -> None:
        """Acquire the write lock of a table, or of each leaf of a partitioned table, until the end. Raise 55P03 if held and not `wait`.

        Called before the table is read and written, so that the read stays current.
        """
        for leaf in self.partitioned(relation).leaves if relation.is_partitioned else (relation,):
            self._tables.lock(leaf, wait=wait)

    def own(self, relation: Relation, hold: Hold = Hold.ALONE) -> None:
        """Keep others from writing to, using or changing a relation until the end. ALTER and DROP call it first.

        A partitioned table is owned with all its partitions. Raise 42501 for a system catalog, otherwise as `HeldTables.own`.
        """
        if relation.kind == RelationKind.TABLE and relation.oid < FIRST_USER_OID:
            raise PostgresError("42501", f'permission denied: "{relation.name}" is a system catalog')
        owned = [below.relation for below in self.partitioned(relation).branch.walk()] if relation.is_partitioned else [relation]
        if len(owned) > 1:
            self._tables.wait_for(owned, hold)
        for member in owned:
            self._tables.own(member, hold)

    def refuse_changed(self, relation: Relation) -> None:
        """Raise 40001 if any row of the table has changed since the REPEATABLE READ snapshot. The caller holds the lock."""
        key = (relation.database, relation.oid)
        shown, base = self.snapshot.states.get(key) if self.snapshot.is_fixed else None, self.staging.staged(key).base
        if shown is None or shown.state is base:
            return
        current = base.files
        for path, file in shown.state.files.items():
            if path not in current or current[path].get("deletionVector") != file.get("deletionVector"):
                raise PostgresError("40001", "could not serialize access due to concurrent update")

    def refuse_unseen(self, relation: Relation, files: pa.ChunkedArray) -> None:
        """Raise 40001 if the REPEATABLE READ snapshot does not show rows in these files (URIs). The caller holds the lock."""
        key = (relation.database, relation.oid)
        write.refuse_unseen(self.engine.table(key), self.staging.seen_state(key), files)

    # reading

    def state(self, relation: Relation) -> TableState:
        """Return the table's state as this transaction sees it. Raise 42P01 if the table does not exist in its snapshot."""
        key = (relation.database, relation.oid)
        (self.snapshot.checked if self.snapshot.is_ignored else self.snapshot.read).add(key)
        self._write_unwritten(key, reads=True)
        return self._state(relation)

    def _state(self, relation: Relation) -> TableState:
        self.catalog.check_seen(relation)
        key = self._key_without_pending(relation)
        if self.snapshot.is_ignored and (key in self.staging.tables or key in self.engine.visible):
            return self.staging.base(key)
        if key in self.staging.seen:
            return self.staging.seen[key]
        if key in self.staging.tables:
            return self.staging.tables[key].state
        return existing(self.snapshot.shown(key), "42P01", f'relation "{relation.name}"')

    def newest(self, relation: Relation) -> TableState:
        """Return the table with all committed rows and own writes, for key lookups. The caller holds the lock or a claim."""
        key = self._key_without_pending(relation)
        self.snapshot.checked.add(key)
        return self.staging.base(key)

    def _key_without_pending(self, relation: Relation) -> Key:
        """Return the key of a table whose pending rows are written, unless the caller reads them itself (`looking_up`)."""
        key = (relation.database, relation.oid)
        self._write_unwritten(key)
        if not self._looking_up and self._pending.has(key):
            self._tables.lock(relation)
        return key

    @contextlib.contextmanager
    def unwritten(self, relation: Relation, write: Callable[[], None], *, only_reads: bool = False) -> Iterator[None]:
        """Within the context, call `write` before a table, or a leaf of it, is read or changed, and before a savepoint is defined.

        `only_reads`: only before it is read, by a query or to find the rows to change.
        A statement has rows that it has still to write, and calls functions that must see them. An error of `write` is raised at the end of
        the context too, without the lines that these functions have added to its context: they may have handled it.
        """
        leaves = self.partitioned(relation).leaves if relation.is_partitioned else (relation,)
        unwritten = _Unwritten(frozenset((leaf.database, leaf.oid) for leaf in leaves), write, only_reads)
        outer, self._unwritten = self._unwritten, (*self._unwritten, unwritten)
        try:
            yield
        finally:
            self._unwritten = outer
            unwritten.raise_failure()

    def _write_unwritten(self, key: Key | None = None, *, reads: bool = False) -> None:
        """Write the rows of one table, or before a savepoint those of all tables, that statements have still to write."""
        waiting = [rows for rows in self._unwritten if (key is None or key in rows.keys) and (reads or not rows.only_reads)]
        if not waiting:
            return
        unwritten, self._unwritten = self._unwritten, ()
        looking_up, self._looking_up = self._looking_up, False
        try:
            for rows in waiting:
                rows.write()
        finally:
            self._unwritten, self._looking_up = unwritten, looking_up

    def states(self, relation: Relation) -> list[TableState]:
        """Return the state of a table, or the states of a partitioned table's leaves."""
        return [self.state(leaf) for leaf in (self.partitioned(relation).leaves if relation.is_partitioned else (relation,))]

    def newest_files(self, relation: Relation) -> list[TableState]:
        """Return the newest states, as `states` does, to estimate the size of a table. This does not count as a read of its rows."""
        keys = [(leaf.database, leaf.oid) for leaf in (self.partitioned(relation).leaves if relation.is_partitioned else (relation,))]
        return [self.staging.base(key) for key in keys if key in self.staging.tables or key in self.engine.visible]

    def partitioned(self, relation: Relation) -> PartitionedTable:
        """Return a partitioned table as this transaction's catalog defines it."""
        if self._partitioned[0] != self.catalog.generation:
            self._partitioned = self.catalog.generation, {}
        known = self._partitioned[1]
        table = known.get(relation.oid)
        if table is None or table.root != relation:
            table = known[relation.oid] = PartitionedTable(self, relation)
        return table

    def has_added(self, relation: Relation, before: Mapping[str, Action], files: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Return a mask of the files (URIs) whose rows this transaction has written since the table had the files `before`."""
        table, current = self.engine.table((relation.database, relation.oid)), self.newest(relation).files
        names = {uri: table.name(uri) for uri in pc.unique(files).to_pylist()}
        added = [uri for uri, name in names.items() if name not in before and not file_action.is_kept(current[name])]
        return np.asarray(pc.is_in(files, pa.array(added, pa.string())))

    def own_files(self, relation: Relation) -> frozenset[str]:
        """Return the files (URIs) with the rows that this transaction has written to a table, or to the leaves of a partitioned one."""
        if relation.is_partitioned:
            return frozenset[str]().union(*map(self.own_files, self.partitioned(relation).leaves))
        staged, table = self.staging.staged(self._key_without_pending(relation)), self._table(relation)
        files = staged.state.files.items()
        return frozenset(table.uri(name) for name, file in files if name not in staged.base.files and not file_action.is_kept(file))

    def frame(self, relation: Relation, *, in_order: bool = False) -> DataFrame:
        """Return the rows of a relation: live columns in order, in storage types; committed at statement start, and own writes.

        `in_order`: return the rows of a small table in the order in which they were written (`DeltaTable.frame`).
        """
        if relation.is_partitioned:
            return self.partitioned(relation).frame()
        held = self.held(relation)
        if held is not None:
            return in_one_piece(self.engine.spark, held, columns(relation))
        pending = self._pending.of((relation.database, relation.oid))
        with self.looking_up():
            frame = self._table(relation).frame(self.state(relation), in_order=in_order)
        frame = frame.select(*[F.col(quoted(column.name)) for column in relation.columns])
        if not pending:
            return frame
        return frame.unionAll(local_frame(self.engine.spark, pa.concat_tables(pending), columns(relation)))

    def held(self, relation: Relation) -> pa.Table | None:
        """Return a small table that has columns as an Arrow table, in the order in which the rows were written, otherwise None."""
        if not relation.columns:
            return None
        with self.looking_up():
            rows = self._table(relation).held(self.state(relation))
        if rows is None:
            return None
        pending = self._pending.of((relation.database, relation.oid))
        return pa.concat_tables([rows.select([column.name for column in relation.columns]), *pending])

    def shown(self, relation: Relation) -> tuple[TableState, list[pa.Table]]:
        """Return the table's state and its pending rows as this statement sees them, for callers that look up rows themselves."""
        with self.looking_up():
            return self.state(relation), self._pending.of((relation.database, relation.oid))

    @contextlib.contextmanager
    def looking_up(self) -> Iterator[None]:
        """Within the context, a table's `state` omits this transaction's pending rows, and does not write them to the table."""
        previous, self._looking_up = self._looking_up, True
        try:
            yield
        finally:
            self._looking_up = previous

    def statement_view(self) -> StatementView:
        staging, visible = self.staging, self.engine.visible
        pending = self._pending.saved()[0]
        return StatementView(self.snapshot.states, visible, dict(staging.tables), dict(staging.seen), pending, len(staging.writes))

    def own_writes(self, relation: Relation, since: int) -> list[tuple[TableWrite, pa.Table | None]]:
        """Return the transaction's writes to a table from write `since` on, each with its change rows if it has no files yet."""
        writes = [write for write in self.staging.writes[since:] if write.relation == relation.oid]
        return [(write, self.staging.held.rows(write.seq)) for write in writes]

    def changing(self, relation: Relation, *, keeps_keys: bool = False) -> TableState:
        """Acquire the table's write lock and return its state, for callers that look up the rows that they then `rewrite`."""
        self._tables.lock(relation, beside_claims=keeps_keys)
        return self.state(relation)

    def first_rows(self, relation: Relation, most: int) -> pa.Table:
        """Return at least `most` rows of a table with columns, or all rows if it has fewer: the first written, as far as order is kept."""
        state, pending = self.shown(relation)
        rows = self._table(relation).first_rows(state, most).select([column.name for column in relation.columns])
        return rows if rows.num_rows >= most else pa.concat_tables([rows, *pending])

    def pieces(self, relation: Relation, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns of all rows, in the order in which they were written. Not for a partitioned table."""
        state, pending = self.shown(relation)
        added = [batch for table in pending for batch in table.select(names).to_batches()]
        return itertools.chain(self._table(relation).pieces(state, names), added)

    def positions(self, relation: Relation, *, keeps_keys: bool = False) -> DataFrame:
        """Return the frame with the position of each row for `rewrite`: FILE string (URI), ROW bigint. Acquires the table's write lock.

        `keeps_keys`: no row will get another unique key, so this does not wait for transactions that are about to add rows.
        """
        if relation.is_partitioned:
            return self.partitioned(relation).positions(keeps_keys=keeps_keys)
        if (held := self.held_positions(relation, keeps_keys=keeps_keys)) is not None:
            return in_one_piece(self.engine.spark, held, StructType([*columns(relation).fields, *PLACE.fields]))
        frame = self._table(relation).frame(self.state(relation), positions=True, in_order=True)
        return frame.select(*[F.col(quoted(column.name)) for column in relation.columns], FILE, ROW)

    def held_positions(self, relation: Relation, *, keeps_keys: bool = False) -> pa.Table | None:
        """Acquire the table's write lock. Return a small table with its positions as an Arrow table, None if the table is large."""
        self._tables.lock(relation, beside_claims=keeps_keys)
        rows = self._table(relation).held(self.state(relation), positions=True)
        return None if rows is None else rows.select([*[column.name for column in relation.columns], FILE, ROW])

    def _table(self, relation: Relation) -> DeltaTable:
        return self.engine.table((relation.database, relation.oid))

    # writing

    def append(self, relation: Relation, rows: DataFrame | pa.Table) -> int:
        """Append rows (the relation's columns, in storage types). Return the number of rows."""
        if relation.is_partitioned:
            return self.partitioned(relation).append(rows)
        key = self._tables.lock(relation)
        result = write.append(self.engine.table(key), relation, self.staging.base(key), rows, memory=self.staging.held.room)
        return self.staging.stage_written(key, result)

    def claim(self, relation: Relation, keys: Keys) -> bool:
        """Claim the keys of rows for `add_later` (`HeldTables.claim`). Return False if they cannot be added without the table's lock."""
        return self._tables.claim(relation, keys)

    def add_later(self, relation: Relation, rows: pa.Table, check: Check) -> None:
        """Add rows whose keys are claimed. They are written when the lock is acquired (`pending`); `check` raises if a key exists."""
        origin = self.engine.log.end, self._savepoints.subtransaction()
        self.snapshot.checked.add((relation.database, relation.oid))
        with self.looking_up():
            state = self._state(relation)
            array_column.to_file(rows, state.lists)  # this statement, not COMMIT, rejects values that files cannot hold
            self._pending.add(PendingInsert(relation, rows, state, check, *origin))

    def data_path(self, relation: Relation) -> DataPath:
        """Return the folder of a relation's files, for callers that write them themselves and then call `add_files`."""
        return self.engine.path((relation.database, relation.oid))

    def add_files(self, relation: Relation, actions: Sequence[Action]) -> int:
        """Add files of new rows that were written into `data_path` (`add` actions with statistics). Return the number of rows."""
        key = self._tables.lock(relation)
        rows = sum(file_action.records(action["add"]) for action in actions)
        return self.staging.stage_written(key, write.Written(list(actions), rows))

    def add_changed(self, relation: Relation, actions: Sequence[Action], gone: write.Positions, changes: int) -> int:
        """Add files of changed rows that tasks wrote into `data_path`, delete the rows that they replace. Return the number of changes."""
        key = self._tables.lock(relation)
        return self.staging.stage_written(key, write.with_deletions(self.engine.table(key), self.staging.base(key), actions, gone, changes))

    def record_completely(self, relation: Relation, history: Relation) -> None:
        """Note that this transaction's writes to a history hold all its changes of a table (`TableWrite.recorded`)."""
        self.staging.complete[history.oid] = relation.oid

    def replace_files(self, key: Key, actions: Sequence[Action]) -> None:
        """Stage file actions that change no rows (`compaction`). The caller holds the table's lock."""
        self.staging.stage(key, actions)

    def rewrite(self, relation: Relation, changed: DataFrame | pa.Table, *, is_kept: bool = False) -> int:
        """Update, delete and insert rows. Return the number of changes.

        `changed`: `old` struct (NULL: insert), `new` struct (NULL: delete), `file` string and `row` bigint. The last two are the position
        of the old row from `positions`, each at most once. The changes have the order of the frame. `is_kept`: as for `write.rewrite`.
        """
        if relation.is_partitioned:
            return self.partitioned(relation).rewrite(changed)
        key = self._tables.lock(relation)
        room = self.staging.held.room
        seen = self.staging.seen_state(key)
        table, base = self.engine.table(key), self.staging.base(key)
        result = write.rewrite(table, relation, base, changed, seen=seen, memory=room, is_kept=is_kept)
        return self.staging.stage_written(key, result)

    def has_left_files(self, relation: Relation) -> None:
        """Record that files that are not staged may be in the table's folder, so that cleaning looks for them."""
        self.engine.table((self.database, relation.oid)).has_failed = True

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
        return bool(self.staging.writes or self._pending)

    def adopt(self, key: Key, state: TableState, version: int, kind: WriteKind | None, changes: int, size: int) -> None:
        """Adopt a commit of a foreign writer (`foreign_writer`, which holds the lock). `kind` None: it changed no rows."""
        self.staging.tables[key] = StagedTable.of(state)
        if kind is not None:
            self.staging.note(key[1], kind, version, changes, size=size)

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

    def in_series(self, *, prepares: bool = False) -> contextlib.AbstractContextManager[None]:
        """Commit serializable transactions one after another (`Ending.in_series`)."""
        return self._ending.in_series(prepares=prepares)

    def hand_over(self) -> Handed:
        """Return what is staged, for PREPARE TRANSACTION (`prepared`). Raise 0A000 if the transaction cannot be prepared."""
        if self.ddl.has_opened_external:
            raise PostgresError("0A000", "cannot PREPARE a transaction that has opened an external table")
        if self.unpreparable is not None:
            raise PostgresError("0A000", self.unpreparable)
        return self._ending.hand_over()

    def handed_over(self) -> None:
        """End the transaction after the caller has stored what `hand_over` returned."""
        self._ending.handed_over()
