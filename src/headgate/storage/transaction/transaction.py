"""A transaction of a node: writes to several tables and to the catalog that become visible together, or not at all.

A session, an apply worker or a table sync begins one with `Engine.begin` and uses it from one thread at a time.

    open       each write is staged (`staged`): files that nothing names; only this transaction reads them
    intended   `commit` has made what will be written durable (`intent`), then each table gets one Delta version
    committed  one DuckDB commit has written the log entry, under its LSN, and the catalog's rows: all is visible at once
    prepared   `hand_over` gave what is staged to `prepared`, which commits it or rolls it back
    aborted    `rollback` has forgotten what was staged and removed its files, and the folders of new tables

Traced: BEGIN; INSERT INTO a (a file); UPDATE b (a file, a change file, a vector); COMMIT stores the intent, commits version 8 of a and
3 of b, takes the node's commit lock, places the entry at 0/1000008…, inserts it with versions (a, 8), (b, 3) in one DuckDB transaction,
and publishes both states at once. After a crash before the intent nothing names the files; after it recovery completes the transaction.
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
from headgate.storage.delta import alteration, array_column, copy_on_write, delta_log, file_action, fsync
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
from headgate.storage.statistics import TableCounts, table_counts
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
"""`Transaction.place` of a transaction that has written nothing."""

_log = logging.getLogger("headgate.storage")


class Transaction(Uncommitted):
    """See the module. All writing methods take the table's write lock until the transaction ends."""

    # reading

    def statement(self, *, replay: bool = False) -> None:
        """Begin a statement: its frames and the catalog show what is committed now, all as of one LSN (READ COMMITTED).

        A transaction that has made many changes of the catalog replays them to see those of others, but not more often than its time
        allows (`RecordedCatalog.may_replay`), or its cost would grow with the square of its changes. Until then `shows_old_catalog`.
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
        """The LSN as of which the statement reads."""
        return self.engine.log.end if self._view_lsn is None else self._view_lsn

    @property
    def place(self) -> tuple[int, int, int]:
        """Changes with each thing that a statement writes; not where rows of an earlier one, that were pending, are written for it."""
        return (0 if self._catalog is None else self._catalog.place, self._noted, self._pending.added)

    def plan_again(self) -> bool:
        """Begins a statement anew that has written nothing; False where the transaction reads as of its begin."""
        if self._fixed:
            return False
        self.statement(replay=True)
        return True

    def look_again(self) -> bool:
        """Goes over to another look at the catalog after one that failed; False where the transaction reads as of its begin."""
        if self._fixed or self._catalog is None:
            return False
        self._catalog.rollback_to(self._catalog.place)
        self.statement(replay=True)
        return True

    def forget_snapshot(self) -> None:
        """The statement that called `isolate` has read and written nothing, and begins anew."""
        self._fixed = self._serializable = False
        self.engine.isolation.ended(self)

    def isolate(self, imported: Lsn | None, *, serializable: bool) -> None:
        """From here on everything is seen as it is now, or at an imported snapshot's LSN: REPEATABLE READ, SERIALIZABLE."""
        if self._fixed:
            return
        if imported is None:
            self.statement()
        else:
            self._view, self._view_lsn = self.engine.view_at(imported), imported
        self._fixed, self._serializable = True, serializable

    @contextlib.contextmanager
    def seeing_newest(self) -> Iterator[None]:
        """Meanwhile tables are read with all that is committed now, and with own writes, whatever the snapshot shows.

        For what must hold for all rows: unique keys, foreign keys, types. The tables' locks are held, or taken inside.
        """
        before, self._seeing_newest = self._seeing_newest, True
        try:
            yield
        finally:
            self._seeing_newest = before

    def state(self, relation: Relation) -> TableState:
        """The table's state as this transaction sees it."""
        self._check_seen(relation)
        key = (relation.database, relation.oid)
        if not self._looking_up and self._pending.has(key):
            self._lock(relation)
        self._read.add(key)
        if self._seeing_newest and (key in self._open.tables or key in self.engine.visible):
            return self._base(key)
        if key in self._open.seen:
            return self._open.seen[key]
        if key in self._open.tables:
            return self._open.tables[key].state
        view = self._view if self._view is not None else self.engine.visible
        shown: Visible | None = view.get(key) or (None if self._fixed else self.engine.visible.get(key))
        if shown is None:
            if self._fixed and key in self.engine.visible:
                return self.engine.empty_state(key)
            raise PostgresError("42P01", f'relation "{relation.name}" does not exist')
        return shown.state

    def newest(self, relation: Relation) -> TableState:
        """The table with all that is committed now, and with own writes: where keys are looked for; the lock or a claim is held."""
        key = (relation.database, relation.oid)
        if not self._looking_up and self._pending.has(key):
            self._lock(relation)
        self._read.add(key)
        return self._base(key)

    def states(self, relation: Relation) -> list[TableState]:
        """The state of a table, of a partitioned one those of its leaves."""
        return [self.state(each) for each in (self.partitioned(relation).leaves if relation.is_partitioned else (relation,))]

    def newest_files(self, relation: Relation) -> list[TableState]:
        """As `states`, of the newest version: for how large a table's rows are, which is no look at them."""
        keys = [(each.database, each.oid) for each in (self.partitioned(relation).leaves if relation.is_partitioned else (relation,))]
        return [self._base(key) for key in keys if key in self._open.tables or key in self.engine.visible]

    def partitioned(self, relation: Relation) -> PartitionedTable:
        """A partitioned table as the catalog of this transaction has it."""
        found: PartitionedTable | None = self._partitioned.get(relation.oid)
        if found is None or found.root != relation:
            found = self._partitioned[relation.oid] = PartitionedTable(self, relation)
        return found

    def lock(self, relation: Relation, *, wait: bool = True) -> None:
        """Takes the write lock of a table, of a partitioned one those of its leaves, until the transaction ends; 55P03 if not `wait`."""
        for each in self.partitioned(relation).leaves if relation.is_partitioned else (relation,):
            super().lock(each, wait=wait)

    def refuse_changed(self, relation: Relation) -> None:
        """40001 where others have changed rows of a table, whichever, since the snapshot of REPEATABLE READ; the lock is held."""
        key = (relation.database, relation.oid)
        shown, base = self._view.get(key) if self._fixed else None, self._staged(key).base
        if shown is None or shown.state is base:
            return
        now = base.files
        for path, file in shown.state.files.items():
            if path not in now or now[path].get("deletionVector") != file.get("deletionVector"):
                raise PostgresError("40001", "could not serialize access due to concurrent update")

    def refuse_unseen(self, relation: Relation, files: pa.ChunkedArray) -> None:
        """40001 where rows in these files (URIs) are not shown by the snapshot of REPEATABLE READ; the lock is held."""
        key = (relation.database, relation.oid)
        write.refuse_unseen(self.engine.table(key), self._seen(key), files)

    def has_added(self, relation: Relation, before: Mapping[str, Action], files: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Which of these files (URIs) have rows that this transaction has written since a table had the files `before`."""
        table, now = self.engine.table((relation.database, relation.oid)), self.newest(relation).files
        names = {uri: table.name(uri) for uri in pc.unique(files).to_pylist()}
        added = [uri for uri, name in names.items() if name not in before and not file_action.is_kept(now[name])]
        return np.asarray(pc.is_in(files, pa.array(added, pa.string())))

    def _seen(self, key: Key) -> TableState | None:
        """What the snapshot shows of a table, with own writes, where others have changed it since; None elsewhere."""
        return self._view[key].state if self._is_behind(key, self._staged(key)) else self._open.seen.get(key)

    def own(self, relation: Relation, hold: Hold = Hold.ALONE) -> None:
        """As `Uncommitted.own`, of a partitioned table with all that is below it; 42501 for the system's own tables."""
        if relation.kind == RelationKind.TABLE and relation.oid < FIRST_USER_OID:
            raise PostgresError("42501", f'permission denied: "{relation.name}" is a system catalog')
        owned = [below.relation for below in self.partitioned(relation).branch.walk()] if relation.is_partitioned else [relation]
        if len(owned) > 1:
            self._lock_together(owned, hold)
        for each in owned:
            super().own(each, hold)

    def frame(self, relation: Relation, *, in_order: bool = False) -> DataFrame:
        """The rows of a relation: live columns in order, storage types; committed at statement start, and own writes.

        `in_order`: those of a small table in the order in which they were written (`DeltaTable.frame`).
        """
        if relation.is_partitioned:
            return self.partitioned(relation).frame()
        held = self.held(relation)
        if held is not None:
            return in_one_piece(self.engine.spark, held, columns(relation))
        pending = self._pending.of((relation.database, relation.oid))
        with self.looking_up():
            frame = self._table(relation).frame(self.state(relation), in_order=in_order)
        frame = frame.select(*[F.col(quoted(c.name)) for c in relation.columns])
        if not pending:
            return frame
        return frame.unionAll(local_frame(self.engine.spark, pa.concat_tables(pending), columns(relation)))

    def held(self, relation: Relation) -> pa.Table | None:
        """The same of a small table with columns, as an Arrow table in the order in which the rows were written; None otherwise."""
        if not relation.columns:
            return None
        with self.looking_up():
            found = self._table(relation).held(self.state(relation))
        if found is None:
            return None
        pending = self._pending.of((relation.database, relation.oid))
        return pa.concat_tables([found.select([c.name for c in relation.columns]), *pending])

    def shown(self, relation: Relation) -> tuple[TableState, list[pa.Table]]:
        """A table as this statement sees it, for who looks up rows there by himself: its files, and its rows that are pending."""
        with self.looking_up():
            return self.state(relation), self._pending.of((relation.database, relation.oid))

    def statement_view(self) -> StatementView:
        """What this statement sees of all tables."""
        opened, visible = self._open, self.engine.visible
        view = visible if self._view is None else self._view
        return StatementView(view, visible, dict(opened.tables), dict(opened.seen), self._pending.saved()[0], len(opened.writes))

    def own_writes(self, relation: Relation, since: int) -> list[tuple[TableWrite, pa.Table | None]]:
        """What this transaction has written to a table from its write `since` on, and the change rows of a write that has no files yet."""
        found = [write for write in self._open.writes[since:] if write.relation == relation.oid]
        return [(write, self._open.held.rows(write.seq)) for write in found]

    def changing(self, relation: Relation, *, keeps_keys: bool = False) -> TableState:
        """As `positions`, for who looks up there the rows that he will `rewrite`: takes the table's write lock."""
        self._lock(relation, beside_claims=keeps_keys)
        return self.state(relation)

    def first_rows(self, relation: Relation, most: int) -> pa.Table:
        """At least `most` rows of a table with columns, or all: those that were written first, as far as the order is kept."""
        state, pending = self.shown(relation)
        found = self._table(relation).first_rows(state, most).select([c.name for c in relation.columns])
        return found if found.num_rows >= most else pa.concat_tables([found, *pending])

    def pieces(self, relation: Relation, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in the order in which they were written, piece by piece; not of a partitioned table."""
        state, pending = self.shown(relation)
        added = [batch for table in pending for batch in table.select(names).to_batches()]
        return itertools.chain(self._table(relation).pieces(state, names), added)

    def positions(self, relation: Relation, *, keeps_keys: bool = False) -> DataFrame:
        """As `frame`, and where each row is: FILE string (URI), ROW bigint. For `rewrite`; takes the table's write lock.

        `keeps_keys`: no row will get another unique key, so that those who are about to add rows need not be waited for.
        """
        if relation.is_partitioned:
            return self.partitioned(relation).positions(keeps_keys=keeps_keys)
        if (held := self.held_positions(relation, keeps_keys=keeps_keys)) is not None:
            return in_one_piece(self.engine.spark, held, StructType([*columns(relation).fields, *PLACE.fields]))
        frame = self._table(relation).frame(self.state(relation), positions=True, in_order=True)
        return frame.select(*[F.col(quoted(c.name)) for c in relation.columns], FILE, ROW)

    def held_positions(self, relation: Relation, *, keeps_keys: bool = False) -> pa.Table | None:
        """The same of a small table as an Arrow table; None otherwise. Takes the table's write lock in either case."""
        self._lock(relation, beside_claims=keeps_keys)
        found = self._table(relation).held(self.state(relation), positions=True)
        return None if found is None else found.select([*[c.name for c in relation.columns], FILE, ROW])

    # writing

    def create_table(self, relation: Relation) -> None:
        """Makes the Delta table of a new relation; 0A000 where a name needs column mapping and that is off."""
        if not self._may_map(relation) and any(delta_log.needs_mapping(column.name) for column in relation.columns):
            raise alteration.mapping_is_off(relation)
        self._locked.add((relation.database, relation.oid))  # nobody else knows it: there is no definition to look at again
        key = self._lock(relation)
        path = self.engine.path(key)
        if delta_log.newest_version(path):
            self.engine.set_aside(key)
        elif data_location.has_any(path):
            self.engine.forget(key)
        self._open.created.add(key)  # also where the folder is only half made
        vectors = relation.is_on("deletion_vectors", self.engine.deletion_vectors)
        delta_log.create(
            path, stored(relation, as_lists=self._as_lists(relation)), description=f"{relation.schema}.{relation.name}", vectors=vectors
        )
        self._open.tables[key] = StagedTable.of(self._table(relation).state(0))

    def drop_table(self, relation: Relation) -> None:
        """Drops the table of a relation when the transaction commits."""
        self._open.dropped.add(self._lock(relation, damaged=True))

    def alter_table(self, old: Relation, new: Relation) -> None:
        """Makes the Delta table of relation `old` that of `new`: columns added (NULL in existing rows), dropped, renamed. No change row."""
        key = self._lock(old)
        self._record_history()
        self._stage(key, self._altered(key, old, new))

    def _altered(self, key: Key, old: Relation, new: Relation, retyped: str | None = None) -> list[Action]:
        may_map, as_lists = self._may_map(old), self._as_lists(old)
        return alteration.actions(self._staged(key), old, new, retyped, may_map=may_map, as_lists=as_lists)

    def _as_lists(self, relation: Relation) -> bool:
        return (relation.option("array_storage") or self.engine.array_storage).lower() == "array"

    def _may_map(self, relation: Relation) -> bool:
        return bool(relation.is_on("column_mapping", self.engine.column_mapping))

    def alter_settings(self, relation: Relation) -> None:
        """Makes a table what its options say now: its rows stay, also where the files that hold deleted ones are written anew.

        0A000 where it has column mapping, which cannot be taken from it, and that is off.
        """
        key = self._lock(relation)
        before, vectors = self._base(key), relation.is_on("deletion_vectors", self.engine.deletion_vectors)
        if not relation.is_on("column_mapping", True) and alteration.is_mapped(before):
            raise alteration.has_mapping(relation)
        if before.has_vectors != vectors:
            self._stage(key, alteration.with_vectors(before, on=vectors))
            if actions := copy_on_write.without_vectors(self.engine.table(key), before):
                self._stage(key, actions)

    def change_type(self, old: Relation, new: Relation, name: str, value: Column) -> None:
        """Gives a column another type: `value` is the new value, over the columns of `old`. The log does not name the rewritten rows."""
        key = self._lock(old)
        self._record_history()
        table, before = self.engine.table(key), self._base(key)
        values = [value.alias(c.name) if c.name == name else F.col(quoted(c.name)) for c in old.columns]
        rows = table.frame(before).select(*values)
        self._stage(key, self._altered(key, old, new, name))
        added = [{"add": {**a["add"], "dataChange": False}} for a in table.write(self._base(key), rows) if "add" in a]
        removed = [file_action.removal(add, data_change=False) for add in before.files.values()]
        if removed or added:
            self._stage(key, removed + added)

    def append(self, relation: Relation, rows: DataFrame | pa.Table) -> int:
        """Adds rows (the relation's columns, in storage types); the number of rows."""
        if relation.is_partitioned:
            return self.partitioned(relation).append(rows)
        key = self._lock(relation)
        written = write.append(self.engine.table(key), relation, self._base(key), rows, kept=self._open.held.room)
        return self._stage_written(key, written)

    def claim(self, relation: Relation, keys: Keys) -> bool:
        """Whether rows with these keys may be added by `add_later`, without the table's lock; waits for others that add one of them."""
        key = (relation.database, relation.oid)
        if (
            key in self._open.tables
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
        """Meanwhile a table's `state` is that without this transaction's pending rows, which are not written for it."""
        before, self._looking_up = self._looking_up, True
        try:
            yield
        finally:
            self._looking_up = before

    def add_later(self, relation: Relation, rows: pa.Table, check: Check) -> None:
        """Adds rows whose keys are claimed when the lock is taken (`pending`); `check` raises if a key is in the table."""
        made = self.engine.log.end, self._subtransaction()
        with self.looking_up():
            state = self.state(relation)
            array_column.to_file(rows, state.lists)  # what files cannot hold is refused by this statement and not by COMMIT
            self._pending.add(PendingInsert(relation, rows, state, check, *made))

    def data_path(self, relation: Relation) -> DataPath:
        """Where the files of a relation go: for those who write them themselves and then call `add_files`."""
        return self.engine.path((relation.database, relation.oid))

    def add_files(self, relation: Relation, actions: Sequence[Action]) -> int:
        """Adds files of new rows that were written into `data_path` (their `add` actions, with statistics); the number of rows."""
        key = self._lock(relation)
        rows = sum(file_action.records(action["add"]) for action in actions)
        return self._stage_written(key, write.Written(list(actions), rows))

    def add_changed(self, relation: Relation, actions: Sequence[Action], gone: write.Positions, changes: int) -> int:
        """Adds the files of changed rows that tasks have written into `data_path`, and deletes the rows whose place they take."""
        key = self._lock(relation)
        return self._stage_written(key, write.with_deletions(self.engine.table(key), self._base(key), actions, gone, changes))

    def replace_rows(self, relation: Relation, changed: DataFrame | pa.Table) -> int:
        """As `rewrite`, but no stream sees it: ALTER TABLE gives the rows of an added column its default."""
        key = self._lock(relation)
        written = write.rewrite(self.engine.table(key), relation, self._base(key), changed)
        if written.changes:
            self._stage(key, written.actions)
        return written.changes

    def replace_files(self, key: Key, actions: Sequence[Action]) -> None:
        """Stages file actions that change no row (`compaction`); the table's lock is held."""
        self._stage(key, actions)

    def rewrite(self, relation: Relation, changed: DataFrame | pa.Table, *, is_kept: bool = False) -> int:
        """Updates, deletes and inserts rows; the number of changes.

        `changed`: `old` struct (NULL: insert), `new` struct (NULL: delete), `file` string and `row` bigint: the position of the old row
        as `positions` gave it, each at most once. Order of the changes: the order of the frame. `is_kept`: as for `write.rewrite`.
        """
        if relation.is_partitioned:
            return self.partitioned(relation).rewrite(changed)
        key = self._lock(relation)
        room = self._open.held.room
        seen = self._seen(key)
        table, base = self.engine.table(key), self._base(key)
        written = write.rewrite(table, relation, base, changed, seen=seen, kept=room, is_kept=is_kept)
        return self._stage_written(key, written)

    def _stage_written(self, key: Key, written: write.Written) -> int:
        if written.changes:
            self._stage_write(key, written.actions, written.changes, rows=written.rows)
        return written.changes

    def has_left_files(self, relation: Relation) -> None:
        """Files that are not staged may lie in the table's folder: cleaning looks for them."""
        self.engine.table((self.database, relation.oid)).has_failed = True

    def truncate(self, relations: Sequence[Relation], restart_identity: bool = False, cascade: bool = False) -> None:
        """Empties tables, of a partitioned one all its leaves; one statement in the log, which names the partitioned table too."""
        statement = len(self._open.writes)
        options = (CASCADE if cascade else 0) | (RESTART_IDENTITY if restart_identity else 0)
        emptied: dict[int, Relation] = {}
        for relation in relations:
            below = [each.relation for each in self.partitioned(relation).branch.walk()] if relation.is_partitioned else [relation]
            emptied |= {each.oid: each for each in below if each.oid not in emptied}
        for relation in emptied.values():
            if relation.is_partitioned:
                self._name_truncated(relation.oid, statement, options)
                continue
            key = self._lock(relation)
            actions = [file_action.removal(add, data_change=True) for add in self._base(key).files.values()]
            self._stage_write(key, actions, 0, kind="truncate", statement=statement, options=options)

    @property
    def has_writes(self) -> bool:
        """Whether rows have been written."""
        return bool(self._open.writes or self._pending)

    # ending

    def commit(self, origin: OriginProgress | None = None) -> Lsn | None:
        """Makes all writes visible at once; the end LSN of the entry, None where there was nothing to log."""
        try:
            self._pending.settle()
            end = self._commit_all(origin)
        except Exception:
            self.rollback()
            raise
        self.engine.statistics.committed(self.database)
        return end

    def _commit_all(self, origin: OriginProgress | None) -> Lsn | None:
        opened, engine = self._open, self.engine
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
        counts = self._table_counts()
        self._make_whole()
        tables = self._kept()
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

    def _table_counts(self) -> dict[Key, TableCounts]:
        """What the transaction does to the rows of each table, for the statistics."""
        writes: dict[int, list[TableWrite]] = {}
        for each in self._open.writes:
            if each.kind == "write":
                writes.setdefault(each.relation, []).append(each)
        return {key: table_counts(staged, writes[key[1]]) for key, staged in self._kept().items() if key[1] in writes}

    @contextlib.contextmanager
    def in_series(self, *, prepares: bool = False) -> Iterator[None]:
        """Serializable transactions that write commit one after the other, as long as nobody has changed what they have read.

        So each has read what it would have read at its commit, and they are equal to running in that order. Tables are what is compared:
        PostgreSQL, which compares rows, refuses less. What one that is prepared has read stays as it is until its end; one that
        `prepares` must not have read what another that is prepared will change.
        """
        if not (self._serializable and self._open.writes):
            yield
            return
        with self.engine.serial_lock:
            for key in self._read:
                shown = self._view.get(key)
                if shown is not None and self.engine.visible.get(key) is not shown:
                    raise _not_in_series()
            written = {*self._kept(), *self._open.dropped}
            for one in self.engine.prepared.all():
                if one.read & written or (prepares and one.read and one.keys & self._read):
                    raise _not_in_series()
            yield

    def _commit_intent(self, intent: Intent, changed: Mapping[Key, StagedTable], states: dict[Key, TableState]) -> Lsn:
        opened, engine = self._open, self.engine
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
                self._named = engine.intents.take_back(intent)
            raise
        if changed:
            engine.intents.finished(intent)
        self._committed(intent)
        return entry.end_lsn

    def _kept(self) -> dict[Key, StagedTable]:
        """What is staged for the tables that stay."""
        return {key: staged for key, staged in self._open.tables.items() if key not in self._open.dropped}

    def _intent(self, changed: Mapping[Key, StagedTable], origin: OriginProgress | None) -> Intent:
        catalog = () if self._catalog is None else tuple(self.cursor.written)
        kept = self._kept()
        return Intent(
            self.xid, self.database, EntryKind.COMMIT, tuple(self.logged_writes()),
            {key[1]: (staged.base.version, staged.actions()) for key, staged in changed.items()},
            {key[1]: staged.state.version for key, staged in kept.items() if key not in changed},
            frozenset(key[1] for key in self._open.dropped - self._open.created), origin, catalog, self._history_recorded,
        )  # fmt: skip

    def _committed(self, intent: Intent) -> None:
        """Behind the commit: nothing that fails here is an error of the transaction."""
        opened, engine = self._open, self.engine
        kept = {key: self._files_kept(key, intent) for key in opened.files}
        self._remove_files(kept)
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

    def _files_kept(self, key: Key, intent: Intent) -> set[DataPath]:
        path = self.engine.path(key)
        _, actions = intent.tables.get(key[1], (0, []))
        return set(file_action.files_of(path, actions)) | {
            path / unquote(file.path) for each in intent.writes if each.relation == key[1] for file in each.files or ()
        }

    def logged_writes(self) -> list[TableWrite]:
        """The writes that the log will name."""
        gone = self._open.created & self._open.dropped
        return [write for write in self._open.writes if (self.database, write.relation) not in gone]

    @step(Step.SYNC)
    def _sync(self, intent: Intent) -> None:
        """What this transaction has staged reaches the disk."""
        for relation, (_, actions) in intent.tables.items():
            fsync.sync_files(self.engine.path((self.database, relation)), actions)
        for key in self._open.created - self._open.dropped:
            fsync.sync_version(self.engine.path(key), 0)

    def rollback(self) -> None:
        """Forgets everything; does nothing after the end."""
        if self._ended:
            return
        try:
            if self._catalog is not None:
                self._catalog.rollback()
        finally:
            try:
                # what a version names, or recovery may need, is left to cleaning
                for key in self._open.created - self._named:
                    self.engine.forget(key)
                self._remove_files({key: self._open.files[key] for key in self._named & self._open.files.keys()})
            finally:
                self._end()

    def emit(self, prefix: str, content: bytes) -> None:
        """A transactional logical decoding message at this place."""
        self._pending.settle()
        self._record_history()
        seq, size, xid = len(self._open.writes), len(content), self._subtransaction()
        said = Emitted(prefix, content)
        self._open.writes.append(TableWrite(seq, 0, "message", 0, 1, seq, bytes=size, seen=self.engine.log.end, xid=xid, emitted=said))

    def hand_over(self) -> Handed:
        """PREPARE TRANSACTION: gives away what is staged, and ends without releasing the locks (`prepared`); 0A000 if `unpreparable`."""
        if self.unpreparable is not None:
            raise PostgresError("0A000", self.unpreparable)
        self._pending.settle()
        self._record_history()
        self._make_whole()
        kept = self._kept()
        if self.engine.durable:
            self._sync(self._intent(kept, None))
        recorded = history.recorded(self.cursor, self.database, self.xid) if self._history_recorded else []
        catalog = [] if self._catalog is None else list(self.cursor.written)
        opened = self._open
        held = dict(self._catalog_keys)
        read = frozenset(self._read if self._serializable else ())
        return Handed(self.xid, self.database, self.logged_writes(), kept, opened.created, opened.dropped, catalog, held, recorded, read)

    def handed_over(self) -> None:
        """What `hand_over` gave is kept elsewhere now."""
        if self._catalog is not None:
            self._catalog.rollback()
        self._ended = True
        self.engine.ended(self)


def _not_in_series() -> PostgresError:
    return PostgresError(
        "40001", "could not serialize access due to read/write dependencies among transactions",
        detail="Reason code: Canceled on identification as a pivot, during commit attempt.",
        hint="The transaction might succeed if retried.",
    )  # fmt: skip
