"""A transaction of a node: writes to several tables and to the catalog that become visible together, or not at all.

A session, an apply worker or a table sync begins a transaction with `Engine.begin` and uses it from one thread at a time.

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
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.catalog import history
from headgate.catalog.hold import Hold
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.lsn import Lsn
from headgate.storage import write
from headgate.storage.delta import alteration, array_column, copy_on_write, delta_log, external_table, file_action, fsync
from headgate.storage.delta.delta_table import FILE, PLACE, ROW
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.visible_state import Visible
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key, Keys
from headgate.storage.partitioned import PartitionedTable
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import in_one_piece, local_frame
from headgate.storage.transaction.intent import Intent
from headgate.storage.transaction.log import Emitted, EntryKind, OriginProgress, TableWrite
from headgate.storage.transaction.pending_rows import Check, PendingInsert
from headgate.storage.transaction.staged import StagedTable
from headgate.storage.transaction.statement_view import StatementView
from headgate.storage.transaction.uncommitted import Handed, Uncommitted
from headgate.storage.write import columns, stored
from headgate.types.registry import FIRST_USER_OID

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation

CASCADE, RESTART_IDENTITY = 1, 2
NOTHING = (0, 0, 0)
"""`Transaction.place` of a transaction that has not written anything."""

_log = logging.getLogger("headgate.storage")


class Transaction(Uncommitted):
    """A transaction in progress (see the module). All writing methods acquire the table's write lock until the transaction ends."""

    # reading

    def statement(self, *, replay: bool = False) -> None:
        """Begin a statement: its frames and the catalog show what is committed now, all as of one LSN (READ COMMITTED).

        A transaction that has made many catalog changes replays them to see those of other transactions. It does so no more often than
        `RecordedCatalog.may_replay` allows, or the cost would grow with the square of its changes. Until then `shows_old_catalog` is set.
        """
        if self._fixed:
            return
        engine, catalog = self.engine, self._catalog
        with engine.commit_lock:
            self._view, self._view_lsn = engine.visible, engine.log.end
            moved = engine.definitions != self._definitions
            if moved:
                self._partitioned.clear()
            self.shows_old_catalog = bool(moved and catalog is not None and not (replay or catalog.failed or catalog.may_replay))
            if self.shows_old_catalog:
                return
            self._definitions = self._renewed = engine.definitions
            if catalog is not None and (moved or not catalog.place or catalog.failed):
                catalog.renew(catalog.place)
                self.shows_types = engine.catalog.type_changes

    @property
    def seen(self) -> Lsn:
        """Return the LSN as of which the statement reads."""
        return self.engine.log.end if self._view_lsn is None else self._view_lsn

    @property
    def place(self) -> tuple[int, int, int]:
        """Return counters that change with each write of a statement, but not when pending rows of an earlier statement are written."""
        return (0 if self._catalog is None else self._catalog.place, self._noted, self._pending.added)

    def plan_again(self) -> bool:
        """Begin the statement again after it has written nothing. Return False if the transaction reads as of its begin."""
        if self._fixed:
            return False
        self.statement(replay=True)
        return True

    def look_again(self) -> bool:
        """Replace the catalog transaction after a query of it failed. Return False if the transaction reads as of its begin."""
        if self._fixed or self._catalog is None:
            return False
        self._catalog.rollback_to(self._catalog.place)
        self.statement(replay=True)
        return True

    def forget_snapshot(self) -> None:
        """Discard the snapshot: the statement that called `isolate` has read and written nothing, and begins again."""
        self._fixed = self._serializable = False
        self.engine.isolation.ended(self)

    def isolate(self, imported: Lsn | None, *, serializable: bool) -> None:
        """Read as of now, or as of an imported snapshot's LSN, until the transaction ends (REPEATABLE READ, SERIALIZABLE)."""
        if self._fixed:
            return
        if imported is None:
            self.statement()
        else:
            self._view, self._view_lsn = self.engine.view_at(imported), imported
        self._fixed, self._serializable = True, serializable

    @contextlib.contextmanager
    def seeing_newest(self) -> Iterator[None]:
        """Within the context, read tables with all committed rows and the transaction's own writes, ignoring the snapshot.

        For rules that must hold for all rows: unique keys, foreign keys, types. The caller holds the tables' locks or acquires them inside.
        """
        before, self._seeing_newest = self._seeing_newest, True
        try:
            yield
        finally:
            self._seeing_newest = before

    def state(self, relation: Relation) -> TableState:
        """Return the table's state as this transaction sees it. Raise 42P01 if the table does not exist in its snapshot."""
        self._check_seen(relation)
        key = (relation.database, relation.oid)
        if not self._looking_up and self._pending.has(key):
            self._lock(relation)
        self._read.add(key)
        if self._seeing_newest and (key in self.staging.tables or key in self.engine.visible):
            return self.staging.base(key)
        if key in self.staging.seen:
            return self.staging.seen[key]
        if key in self.staging.tables:
            return self.staging.tables[key].state
        view = self._view if self._view is not None else self.engine.visible
        shown: Visible | None = view.get(key) or (None if self._fixed else self.engine.visible.get(key))
        if shown is None:
            if self._fixed and key in self.engine.visible:
                return self.engine.empty_state(key)
            raise PostgresError("42P01", f'relation "{relation.name}" does not exist')
        return shown.state

    def newest(self, relation: Relation) -> TableState:
        """Return the table with all committed rows and own writes, for key lookups. The caller holds the lock or a claim."""
        key = (relation.database, relation.oid)
        if not self._looking_up and self._pending.has(key):
            self._lock(relation)
        self._read.add(key)
        return self.staging.base(key)

    def states(self, relation: Relation) -> list[TableState]:
        """Return the state of a table, or the states of a partitioned table's leaves."""
        return [self.state(leaf) for leaf in (self.partitioned(relation).leaves if relation.is_partitioned else (relation,))]

    def newest_files(self, relation: Relation) -> list[TableState]:
        """Return the newest states, as `states` does, to estimate the size of a table. This does not count as a read of its rows."""
        keys = [(leaf.database, leaf.oid) for leaf in (self.partitioned(relation).leaves if relation.is_partitioned else (relation,))]
        return [self.staging.base(key) for key in keys if key in self.staging.tables or key in self.engine.visible]

    def partitioned(self, relation: Relation) -> PartitionedTable:
        """Return a partitioned table as this transaction's catalog defines it."""
        table: PartitionedTable | None = self._partitioned.get(relation.oid)
        if table is None or table.root != relation:
            table = self._partitioned[relation.oid] = PartitionedTable(self, relation)
        return table

    def lock(self, relation: Relation, *, wait: bool = True) -> None:
        """Acquire the write lock of a table, or of each leaf of a partitioned table, until the end. Raise 55P03 if held and not `wait`."""
        for leaf in self.partitioned(relation).leaves if relation.is_partitioned else (relation,):
            super().lock(leaf, wait=wait)

    def refuse_changed(self, relation: Relation) -> None:
        """Raise 40001 if any row of the table has changed since the REPEATABLE READ snapshot. The caller holds the lock."""
        key = (relation.database, relation.oid)
        shown, base = self._view.get(key) if self._fixed else None, self.staging.staged(key).base
        if shown is None or shown.state is base:
            return
        current = base.files
        for path, file in shown.state.files.items():
            if path not in current or current[path].get("deletionVector") != file.get("deletionVector"):
                raise PostgresError("40001", "could not serialize access due to concurrent update")

    def refuse_unseen(self, relation: Relation, files: pa.ChunkedArray) -> None:
        """Raise 40001 if the REPEATABLE READ snapshot does not show rows in these files (URIs). The caller holds the lock."""
        key = (relation.database, relation.oid)
        write.refuse_unseen(self.engine.table(key), self._seen(key), files)

    def has_added(self, relation: Relation, before: Mapping[str, Action], files: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Return a mask of the files (URIs) whose rows this transaction has written since the table had the files `before`."""
        table, current = self.engine.table((relation.database, relation.oid)), self.newest(relation).files
        names = {uri: table.name(uri) for uri in pc.unique(files).to_pylist()}
        added = [uri for uri, name in names.items() if name not in before and not file_action.is_kept(current[name])]
        return np.asarray(pc.is_in(files, pa.array(added, pa.string())))

    def _seen(self, key: Key) -> TableState | None:
        """Return the snapshot's state with own writes if other transactions have changed the table since, otherwise None."""
        return self._view[key].state if self._is_behind(key, self.staging.staged(key)) else self.staging.seen.get(key)

    def own(self, relation: Relation, hold: Hold = Hold.ALONE) -> None:
        """Own a table as `Uncommitted.own` does, with all partitions of a partitioned table. Raise 42501 for a system catalog."""
        if relation.kind == RelationKind.TABLE and relation.oid < FIRST_USER_OID:
            raise PostgresError("42501", f'permission denied: "{relation.name}" is a system catalog')
        owned = [below.relation for below in self.partitioned(relation).branch.walk()] if relation.is_partitioned else [relation]
        if len(owned) > 1:
            self._lock_together(owned, hold)
        for member in owned:
            super().own(member, hold)

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

    def statement_view(self) -> StatementView:
        """Return what this statement sees of all tables."""
        opened, visible = self.staging, self.engine.visible
        view = visible if self._view is None else self._view
        return StatementView(view, visible, dict(opened.tables), dict(opened.seen), self._pending.saved()[0], len(opened.writes))

    def own_writes(self, relation: Relation, since: int) -> list[tuple[TableWrite, pa.Table | None]]:
        """Return the transaction's writes to a table from write `since` on, each with its change rows if it has no files yet."""
        writes = [write for write in self.staging.writes[since:] if write.relation == relation.oid]
        return [(write, self.staging.held.rows(write.seq)) for write in writes]

    def changing(self, relation: Relation, *, keeps_keys: bool = False) -> TableState:
        """Acquire the table's write lock and return its state, for callers that look up the rows that they then `rewrite`."""
        self._lock(relation, beside_claims=keeps_keys)
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
        self._lock(relation, beside_claims=keeps_keys)
        rows = self._table(relation).held(self.state(relation), positions=True)
        return None if rows is None else rows.select([*[column.name for column in relation.columns], FILE, ROW])

    # writing

    def create_table(self, relation: Relation) -> None:
        """Create the Delta table of a new relation. Raise 0A000 if a name needs column mapping and that is disabled."""
        if not self._may_map(relation) and any(delta_log.needs_mapping(column.name) for column in relation.columns):
            raise alteration.mapping_is_off(relation)
        self._locked.add((relation.database, relation.oid))  # no other transaction sees it: its definition cannot have changed
        key = self._lock(relation)
        if (location := relation.option("location")) is not None:
            self._open_external(key, relation, location)
            return
        path = self.engine.path(key)
        if self.engine.is_location_gone:
            raise PostgresError("58P01", f'data location "{self.engine.base}" does not hold the tables of this node')
        if delta_log.newest_version(path):
            self.engine.set_aside(key)
        elif data_location.has_any(path):
            self.engine.forget(key)
        self.staging.created.add(key)  # before the folder is made, so that a half-made one is removed too
        vectors = relation.is_on("deletion_vectors", self.engine.deletion_vectors)
        delta_log.create(
            path, stored(relation, as_lists=self._as_lists(relation)), description=f"{relation.schema}.{relation.name}", vectors=vectors
        )
        self.staging.tables[key] = StagedTable.of(self._table(relation).state(0))

    def _open_external(self, key: Key, relation: Relation, location: str) -> None:
        """Make an existing Delta table that of a new relation. Only COMMIT writes a version into it. Raises as `external_table.read`."""
        folders = self.engine.folders
        path = folders.located(location)
        state = external_table.read(self.engine.delta, path, relation, as_lists=self._as_lists(relation))
        self.unpreparable = "cannot PREPARE a transaction that has opened an external table"
        self.staging.created.add(key)
        with step(Step.STAGED):
            folders.claim(key, path, state.version, self.engine.catalog.system_identifier())
        self.staging.tables[key] = StagedTable.of(state)
        vectors = relation.is_on("deletion_vectors", self.engine.deletion_vectors)
        self._stage(key, external_table.taken_over(state, vectors=vectors))
        if not vectors and (actions := copy_on_write.without_vectors(self.engine.table(key), state)):
            self._stage(key, actions)

    def drop_table(self, relation: Relation) -> None:
        """Drop the table of a relation when the transaction commits."""
        self.staging.dropped.add(self._lock(relation, damaged=True))

    def alter_table(self, old: Relation, new: Relation) -> None:
        """Alter the Delta table of `old` to match `new`: columns added (NULL in existing rows), dropped, renamed. Logs no change rows."""
        key = self._lock(old)
        self._record_history()
        self._stage(key, self._altered(key, old, new))

    def _altered(self, key: Key, old: Relation, new: Relation, retyped: str | None = None) -> list[Action]:
        may_map, as_lists = self._may_map(old), self._as_lists(old)
        return alteration.actions(self.staging.staged(key), old, new, retyped, may_map=may_map, as_lists=as_lists)

    def _as_lists(self, relation: Relation) -> bool:
        return (relation.option("array_storage") or self.engine.array_storage).lower() == "array"

    def _may_map(self, relation: Relation) -> bool:
        return bool(relation.is_on("column_mapping", self.engine.column_mapping))

    def alter_settings(self, relation: Relation) -> None:
        """Apply a table's current options. Its rows stay the same, although files with deleted rows may be rewritten.

        Raise 0A000 if the table has column mapping, which cannot be removed, and its option is off.
        """
        key = self._lock(relation)
        before, vectors = self.staging.base(key), relation.is_on("deletion_vectors", self.engine.deletion_vectors)
        if not relation.is_on("column_mapping", True) and alteration.is_mapped(before):
            raise alteration.has_mapping(relation)
        if before.has_vectors != vectors:
            self._stage(key, alteration.with_vectors(before, on=vectors))
            if actions := copy_on_write.without_vectors(self.engine.table(key), before):
                self._stage(key, actions)

    def change_type(self, old: Relation, new: Relation, name: str, value: Column) -> None:
        """Change a column's type: `value` computes the new value from the columns of `old`. The log does not name the rewritten rows."""
        key = self._lock(old)
        self._record_history()
        table, before = self.engine.table(key), self.staging.base(key)
        values = [value.alias(column.name) if column.name == name else F.col(quoted(column.name)) for column in old.columns]
        rows = table.frame(before).select(*values)
        self._stage(key, self._altered(key, old, new, name))
        added = [{"add": {**action["add"], "dataChange": False}} for action in table.write(self.staging.base(key), rows) if "add" in action]
        removed = [file_action.removal(add, data_change=False) for add in before.files.values()]
        if removed or added:
            self._stage(key, removed + added)

    def append(self, relation: Relation, rows: DataFrame | pa.Table) -> int:
        """Append rows (the relation's columns, in storage types). Return the number of rows."""
        if relation.is_partitioned:
            return self.partitioned(relation).append(rows)
        key = self._lock(relation)
        written = write.append(self.engine.table(key), relation, self.staging.base(key), rows, kept=self.staging.held.room)
        return self._stage_written(key, written)

    def claim(self, relation: Relation, keys: Keys) -> bool:
        """Claim the keys of rows for `add_later`, waiting for other transactions that add one of them.

        Return False if the rows cannot be added without the table's lock.
        """
        key = (relation.database, relation.oid)
        if (
            key in self.staging.tables
            or self._history_due
            or self._history_recorded
            or not self.engine.locks.claim(key, self.xid, keys, self.cancelled)
        ):
            return False
        self._check_definition(relation)
        self._see_newest(key)
        return True

    @contextlib.contextmanager
    def looking_up(self) -> Iterator[None]:
        """Within the context, a table's `state` omits this transaction's pending rows, and does not write them to the table."""
        previous, self._looking_up = self._looking_up, True
        try:
            yield
        finally:
            self._looking_up = previous

    def add_later(self, relation: Relation, rows: pa.Table, check: Check) -> None:
        """Add rows whose keys are claimed. They are written when the lock is acquired (`pending`); `check` raises if a key exists."""
        origin = self.engine.log.end, self._subtransaction()
        with self.looking_up():
            state = self.state(relation)
            array_column.to_file(rows, state.lists)  # this statement, not COMMIT, rejects values that files cannot hold
            self._pending.add(PendingInsert(relation, rows, state, check, *origin))

    def data_path(self, relation: Relation) -> DataPath:
        """Return the folder of a relation's files, for callers that write them themselves and then call `add_files`."""
        return self.engine.path((relation.database, relation.oid))

    def add_files(self, relation: Relation, actions: Sequence[Action]) -> int:
        """Add files of new rows that were written into `data_path` (`add` actions with statistics). Return the number of rows."""
        key = self._lock(relation)
        rows = sum(file_action.records(action["add"]) for action in actions)
        return self._stage_written(key, write.Written(list(actions), rows))

    def add_changed(self, relation: Relation, actions: Sequence[Action], gone: write.Positions, changes: int) -> int:
        """Add files of changed rows that tasks wrote into `data_path`, delete the rows that they replace. Return the number of changes."""
        key = self._lock(relation)
        return self._stage_written(key, write.with_deletions(self.engine.table(key), self.staging.base(key), actions, gone, changes))

    def replace_rows(self, relation: Relation, changed: DataFrame | pa.Table) -> int:
        """Rewrite rows as `rewrite` does, but without change rows: ALTER TABLE fills an added column with its default."""
        key = self._lock(relation)
        written = write.rewrite(self.engine.table(key), relation, self.staging.base(key), changed)
        if written.changes:
            self._stage(key, written.actions)
        return written.changes

    def replace_files(self, key: Key, actions: Sequence[Action]) -> None:
        """Stage file actions that change no rows (`compaction`). The caller holds the table's lock."""
        self._stage(key, actions)

    def rewrite(self, relation: Relation, changed: DataFrame | pa.Table, *, is_kept: bool = False) -> int:
        """Update, delete and insert rows. Return the number of changes.

        `changed`: `old` struct (NULL: insert), `new` struct (NULL: delete), `file` string and `row` bigint. The last two are the position
        of the old row from `positions`, each at most once. The changes have the order of the frame. `is_kept`: as for `write.rewrite`.
        """
        if relation.is_partitioned:
            return self.partitioned(relation).rewrite(changed)
        key = self._lock(relation)
        room = self.staging.held.room
        seen = self._seen(key)
        table, base = self.engine.table(key), self.staging.base(key)
        written = write.rewrite(table, relation, base, changed, seen=seen, kept=room, is_kept=is_kept)
        return self._stage_written(key, written)

    def _stage_written(self, key: Key, written: write.Written) -> int:
        if written.changes:
            self._stage_write(key, written.actions, written.changes, rows=written.rows)
        return written.changes

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
            if relation.is_partitioned:
                self._name_truncated(relation.oid, statement, options)
                continue
            key = self._lock(relation)
            actions = [file_action.removal(add, data_change=True) for add in self.staging.base(key).files.values()]
            self._stage_write(key, actions, 0, kind="truncate", statement=statement, options=options)

    @property
    def has_writes(self) -> bool:
        """Whether the transaction has written rows."""
        return bool(self.staging.writes or self._pending)

    # ending

    def commit(self, origin: OriginProgress | None = None) -> Lsn | None:
        """Make all writes visible at once. Return the end LSN of the log entry, None if there was nothing to log."""
        try:
            self._pending.settle()
            end = self._commit_all(origin)
        except Exception:
            self.rollback()
            raise
        self.engine.statistics.committed(self.database)
        return end

    def _commit_all(self, origin: OriginProgress | None) -> Lsn | None:
        opened, engine = self.staging, self.engine
        self._record_history()
        if not (opened.tables or opened.writes or opened.dropped or self._history_recorded or origin):
            if self._catalog is not None:
                with engine.commit_lock:
                    if self.cursor.written:
                        with step(Step.DEFINITION):
                            self._catalog.commit()
                        engine.redefined(self._catalog_keys)
                    else:
                        self._catalog.commit()
            self._end()
            return None
        counts = self.staging.table_counts()
        self.staging.make_whole()
        tables = self.staging.kept()
        changed = {key: staged for key, staged in tables.items() if staged.is_changed}
        intent = self._intent(changed, origin)
        if engine.durable:
            self._sync(intent)
        states = {key: staged.state for key, staged in tables.items()}
        with self.in_series():
            end = self._commit_intent(intent, changed, states)
        engine.statistics.wrote(counts)
        engine.statistics.dropped(opened.dropped)
        return end

    @contextlib.contextmanager
    def in_series(self, *, prepares: bool = False) -> Iterator[None]:
        """Commit serializable transactions that write one after another. Raise 40001 if a table that this one has read has changed.

        So each has read what it would have read at its commit, and the result equals running them in that order. Whole tables are
        compared: PostgreSQL compares rows, and rejects fewer transactions. Tables that a prepared transaction has read stay unchanged until
        it ends. A transaction that `prepares` must not have read a table that another prepared transaction will change.
        """
        if not (self._serializable and self.staging.writes):
            yield
            return
        with self.engine.serial_lock:
            for key in self._read:
                shown = self._view.get(key)
                if shown is not None and self.engine.visible.get(key) is not shown:
                    raise _not_in_series()
            written = {*self.staging.kept(), *self.staging.dropped}
            for prepared in self.engine.prepared.all():
                if prepared.read & written or (prepares and prepared.read and prepared.keys & self._read):
                    raise _not_in_series()
            yield

    def _commit_intent(self, intent: Intent, changed: Mapping[Key, StagedTable], states: dict[Key, TableState]) -> Lsn:
        opened, engine = self.staging, self.engine
        try:
            if changed:
                self._named = set(changed)
                states |= engine.intents.carry_out(intent, changed)
            with engine.commit_lock:
                entry = engine.intents.finish(self.cursor, intent, states)
                with step(Step.ENTRY):
                    self._catalog.commit()
                engine.publish(states, opened.dropped)
                if intent.catalog:
                    engine.redefined(self._catalog_keys)
                engine.log.append(entry)
        except BaseException:
            if changed:
                if self._catalog is not None:
                    self._catalog.rollback()
                self._named = engine.intents.undo(intent)
            raise
        if changed:
            engine.intents.finished(intent)
        self._committed(intent)
        return entry.end_lsn

    def _intent(self, changed: Mapping[Key, StagedTable], origin: OriginProgress | None) -> Intent:
        catalog = () if self._catalog is None else tuple(self.cursor.written)
        kept = self.staging.kept()
        return Intent(
            self.xid, self.database, EntryKind.COMMIT, tuple(self.staging.logged_writes()),
            {key[1]: (staged.base.version, staged.actions()) for key, staged in changed.items()},
            {key[1]: staged.state.version for key, staged in kept.items() if key not in changed},
            frozenset(key[1] for key in self.staging.dropped - self.staging.created), origin, catalog, self._history_recorded,
        )  # fmt: skip

    def _committed(self, intent: Intent) -> None:
        """Clean up after the commit. A failure here is logged and is not an error of the transaction."""
        opened, engine = self.staging, self.engine
        kept = {key: _named_files(self.engine.path(key), key[1], intent) for key in opened.files}
        self.staging.remove_files(kept)
        self._end()
        try:
            for key in opened.dropped & opened.created:
                engine.forget(key)
            if opened.dropped - opened.created:
                engine.clean()
            if opened.writes:
                engine.compactor.committed(opened.tables.keys() - opened.dropped)
        except Exception:  # noqa: BLE001 (see above)
            _log.exception("could not clean up behind a transaction that has committed")

    @step(Step.SYNC)
    def _sync(self, intent: Intent) -> None:
        """Fsync the staged files and the first version of new tables."""
        for relation, (_, actions) in intent.tables.items():
            fsync.sync_files(self.engine.path((self.database, relation)), actions)
        for key in self.staging.created - self.staging.dropped:
            fsync.sync_version(self.engine.path(key), self.staging.tables[key].base.version)

    def rollback(self) -> None:
        """Discard all writes. Do nothing after the transaction has ended."""
        if self._ended:
            return
        try:
            if self._catalog is not None:
                self._catalog.rollback()
        finally:
            try:
                # cleaning removes files that a version names or that recovery may need
                for key in self.staging.created - self._named:
                    self.engine.forget(key)
                self.staging.remove_files({key: self.staging.files[key] for key in self._named & self.staging.files.keys()})
            finally:
                self._end()

    def emit(self, prefix: str, content: bytes) -> None:
        """Write a transactional logical decoding message at this place in the log."""
        self._pending.settle()
        self._record_history()
        seq, size, xid = len(self.staging.writes), len(content), self._subtransaction()
        message = Emitted(prefix, content)
        self.staging.writes.append(TableWrite(seq, 0, "message", 0, 1, seq, bytes=size, seen=self.engine.log.end, xid=xid, emitted=message))

    def hand_over(self) -> Handed:
        """Hand over what is staged for PREPARE TRANSACTION, without releasing the locks (`prepared`). Raise 0A000 if `unpreparable`."""
        if self.unpreparable is not None:
            raise PostgresError("0A000", self.unpreparable)
        self._pending.settle()
        self._record_history()
        self.staging.make_whole()
        kept = self.staging.kept()
        if self.engine.durable:
            self._sync(self._intent(kept, None))
        recorded = history.recorded(self.cursor, self.database, self.xid) if self._history_recorded else []
        catalog = [] if self._catalog is None else list(self.cursor.written)
        opened = self.staging
        held = dict(self._catalog_keys)
        read = frozenset(self._read if self._serializable else ())
        return Handed(
            self.xid, self.database, self.staging.logged_writes(), kept, opened.created, opened.dropped, catalog, held, recorded, read
        )

    def handed_over(self) -> None:
        """End the transaction after the caller has stored what `hand_over` returned."""
        if self._catalog is not None:
            self._catalog.rollback()
        self._ended = True
        self.engine.ended(self)


def _named_files(path: DataPath, relation: int, intent: Intent) -> set[DataPath]:
    """Return the files of a table that an intent names."""
    _, actions = intent.tables.get(relation, (0, []))
    of_writes = {path / unquote(file.path) for write in intent.writes if write.relation == relation for file in write.files or ()}
    return set(file_action.files_of(path, actions)) | of_writes


def _not_in_series() -> PostgresError:
    return PostgresError(
        "40001", "could not serialize access due to read/write dependencies among transactions",
        detail="Reason code: Canceled on identification as a pivot, during commit attempt.",
        hint="The transaction might succeed if retried.",
    )  # fmt: skip
