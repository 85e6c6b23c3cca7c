"""A transaction of a node: writes to several tables and to the catalog that become visible together, or not at all.

A session, an apply worker or a table sync begins one with `Engine.begin` and uses it from one thread at a time.

    open       each write is a Delta commit that no log entry names; only this transaction reads it
    committed  `commit` assigned LSNs and committed the log entry with the catalog's rows: set by the DuckDB commit, nothing else
    prepared   `prepare` wrote an entry that makes nothing visible; `prepared` (the module) commits it or rolls it back
    aborted    `rollback` (or recovery) undid the Delta commits by their inverse and removed the directories of new tables

Traced: BEGIN; INSERT INTO a (version 8 of a, unlogged); UPDATE b (version 3 of b, unlogged); COMMIT takes the node's commit lock,
places the entry at 0/1000008…, inserts it with versions (a, 8), (b, 3) in one DuckDB transaction, and publishes both states at once.
After a crash before the DuckDB commit, recovery finds version 8 above the logged 7 and commits its inverse as version 9.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog import history
from headgate.catalog import origin as origins
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import alteration, compaction, delta_log, durable, file_action, write
from headgate.storage.delta import FILE, ROW
from headgate.storage.file_action import Action
from headgate.storage.local import local_frame
from headgate.storage.lock import Key, Keys
from headgate.storage.log import Emitted, OriginProgress, TableVersion, TableWrite
from headgate.storage.mark import MARK
from headgate.storage.partitioned import PartitionedTable
from headgate.storage.pending import Check, Pending
from headgate.storage.table_state import TableState
from headgate.storage.uncommitted import Handed, Uncommitted
from headgate.storage.visible import Visible
from headgate.storage.write import columns, quoted, stored

CASCADE, RESTART_IDENTITY = 1, 2


class Transaction(Uncommitted):
    """See the module. All writing methods take the table's write lock until the transaction ends."""

    # reading

    def statement(self) -> None:
        """Begins a statement: what is committed now is what its frames show, all tables as of one LSN (READ COMMITTED)."""
        self._view = self.engine.visible

    def state(self, relation: Any) -> TableState:
        """The table's state as this transaction sees it."""
        key = (relation.database, relation.oid)
        if not self._looking_up and self._pending.has(key):
            self._lock(relation)
        if key in self._open.states:
            return self._open.states[key]
        view = self._view if self._view is not None else self.engine.visible
        shown: Visible | None = view.get(key) or self.engine.visible.get(key)
        if shown is None:
            raise PostgresError("42P01", f'relation "{relation.name}" does not exist')
        return shown.state

    def states(self, relation: Any) -> list[TableState]:
        """The state of a table, of a partitioned one those of its leaves."""
        return [self.state(each) for each in (self.partitioned(relation).leaves if relation.kind == "p" else (relation,))]

    def partitioned(self, relation: Any) -> PartitionedTable:
        """A partitioned table as the catalog of this transaction has it."""
        found: PartitionedTable | None = self._partitioned.get(relation.oid)
        if found is None or found.root != relation:
            found = self._partitioned[relation.oid] = PartitionedTable(self, relation)
        return found

    def lock(self, relation: Any, *, wait: bool = True) -> None:
        """Takes the write lock of a table, of a partitioned one those of its leaves, until the transaction ends; 55P03 if not `wait`."""
        for each in self.partitioned(relation).leaves if relation.kind == "p" else (relation,):
            super().lock(each, wait=wait)

    def frame(self, relation: Any, *, in_order: bool = False) -> DataFrame:
        """The rows of a relation: live columns in order, storage types; committed at statement start, and own writes.

        `in_order`: those of a small table in the order in which they were written (`DeltaTable.frame`).
        """
        if relation.kind == "p":
            return self.partitioned(relation).frame()
        pending = self._pending.of((relation.database, relation.oid))
        with self.looking_up():
            frame = self._table(relation).frame(self.state(relation), in_order=in_order)
        frame = frame.select(*[F.col(quoted(c.name)) for c in relation.columns])
        if not pending:
            return frame
        return frame.unionAll(local_frame(self.engine.spark, pa.concat_tables(pending), columns(relation)))

    def positions(self, relation: Any, *, keeps_keys: bool = False) -> DataFrame:
        """As `frame`, and where each row is: `_file` string (URI), `_row` bigint. For `rewrite`; takes the table's write lock.

        `keeps_keys`: no row will get another unique key, so that those who are about to add rows need not be waited for.
        """
        if relation.kind == "p":
            return self.partitioned(relation).positions(keeps_keys=keeps_keys)
        self._lock(relation, beside_claims=keeps_keys)
        frame = self._table(relation).frame(self.state(relation), positions=True, in_order=True)
        return frame.select(*[F.col(quoted(c.name)) for c in relation.columns], FILE, ROW)

    def frame_at(self, relation: Any, lsn: Lsn, *, in_order: bool = False) -> DataFrame:
        """The rows as of an LSN of the node's log."""
        return self.engine.frame_at(relation, lsn, in_order=in_order)

    # writing

    def create_table(self, relation: Any) -> None:
        """Makes the Delta table of a new relation."""
        key = self._lock(relation)
        path = self.engine.path(key)
        if path.exists():
            self.engine.forget(key)
        delta_log.create(path, stored(relation), description=f"{relation.schema}.{relation.name}")
        self._open.states[key] = self._table(relation).state(0)
        self._open.created.add(key)

    def drop_table(self, relation: Any) -> None:
        """Drops the table of a relation when the transaction commits."""
        self._open.dropped.add(self._lock(relation))

    def alter_table(self, old: Any, new: Any) -> None:
        """Makes the Delta table of relation `old` that of `new`: columns added (NULL in existing rows), dropped, renamed. No change row."""
        key = self._lock(new)
        self._alter(key, alteration.actions(self._base(key), old, new))

    def change_type(self, old: Any, new: Any, name: str, value: Column) -> None:
        """Gives a column another type: `value` is the new value, over the columns of `old`. The log does not name the rewritten rows."""
        key = self._lock(old)
        table, before, mark = self.engine.table(key), self._base(key), f"{MARK} {self.xid}"
        values = [value.alias(c.name) if c.name == name else F.col(quoted(c.name)) for c in old.columns]
        rows = table.frame(before).select(*values)
        state = self._alter(key, alteration.actions(before, old, new, retyped=name))
        added = [{"add": {**a["add"], "dataChange": False}} for a in table.write(state, rows) if "add" in a]
        removed = [file_action.removal(add, data_change=False) for add in state.files.values()]
        if removed or added:
            self._open.states[key] = table.commit(state, removed + added, mark)

    def _alter(self, key: Key, actions: list[Action]) -> TableState:
        self._record_history()
        state = self.engine.table(key).write_version(self._base(key), actions, f"{MARK} {self.xid}")
        self._open.states[key] = state
        return state

    def append(self, relation: Any, rows: DataFrame | pa.Table) -> int:
        """Adds rows (the relation's columns, in storage types); the number of rows."""
        if relation.kind == "p":
            return self.partitioned(relation).append(rows)
        key = self._lock(relation)
        written = write.append(self.engine.table(key), relation, self._base(key), rows)
        return self._commit_written(key, written)

    def claim(self, relation: Any, keys: Keys) -> bool:
        """Whether rows with these keys may be added by `add_later`, without the table's lock; waits for others that add one of them."""
        key = (relation.database, relation.oid)
        if (
            key in self._open.states
            or self._history_due
            or self._history_recorded
            or not self.engine.locks.claim(key, self.xid, keys, self.cancelled)
        ):
            return False
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

    def add_later(self, relation: Any, rows: pa.Table, check: Check) -> None:
        """Adds rows whose keys are claimed when the lock is taken (`pending`); `check` raises if a key is in the table."""
        made = self.engine.log.end, self._subtransaction()
        with self.looking_up():
            self._pending.add(Pending(relation, rows, self.state(relation), check, *made))

    def data_path(self, relation: Any) -> Path:
        """Where the files of a relation go: for those who write them themselves and then call `add_files`."""
        return self.engine.path((relation.database, relation.oid))

    def add_files(self, relation: Any, actions: Sequence[Action]) -> int:
        """Adds files of new rows that were written into `data_path` (their `add` actions, with statistics); the number of rows."""
        key = self._lock(relation)
        rows = sum(file_action.records(action["add"]) for action in actions)
        return self._commit_written(key, write.Written(list(actions), rows))

    def replace_rows(self, relation: Any, changed: DataFrame | pa.Table) -> int:
        """As `rewrite`, but no stream sees it: ALTER TABLE gives the rows of an added column its default."""
        key = self._lock(relation)
        written = write.rewrite(self.engine.table(key), relation, self._base(key), changed)
        if written.changes:
            self._open.states[key] = self.engine.table(key).commit(self._base(key), written.actions, f"{MARK} {self.xid}")
        return written.changes

    def replace_files(self, key: Key, actions: Sequence[Action]) -> None:
        """Commits file actions that change no row (`compaction`); the table's lock is held."""
        self._open.states[key] = self.engine.table(key).commit(self._base(key), actions, f"{MARK} {self.xid}")

    def rewrite(self, relation: Any, changed: DataFrame | pa.Table) -> int:
        """Updates, deletes and inserts rows in one commit; the number of changes.

        `changed`: `old` struct (NULL: insert), `new` struct (NULL: delete), `file` string and `row` bigint: the position of the old row
        as `positions` gave it, each at most once. Order of the changes: the order of the frame.
        """
        if relation.kind == "p":
            return self.partitioned(relation).rewrite(changed)
        key = self._lock(relation)
        written = write.rewrite(self.engine.table(key), relation, self._base(key), changed)
        return self._commit_written(key, written)

    def merge_command(self, relation: Any, source: DataFrame, match: Column, values: Mapping[str, Column]) -> int:
        """Delta's MERGE INTO the relation (alias t) USING `source` (alias s); the number of changes.

        Where `s.alive` the row becomes `values`, else it goes. Delta commits by itself, still under no log entry.
        """
        key = self._lock(relation)
        self._record_history()
        before, table = self._base(key), self.engine.table(key)
        target = DeltaTable.forPath(self.engine.spark, str(table.path)).alias("t")
        command = target.merge(source.alias("s"), match).whenMatchedDelete("NOT s.alive").whenMatchedUpdate(set=dict(values))
        command.whenNotMatchedInsert("s.alive", values=dict(values)).execute()
        state = table.state()
        if state.version == before.version:
            return 0
        self._look_between(key, before, state)
        changes = source.count()
        self._written(key, state, changes, "write")
        return changes

    def truncate(self, relations: Sequence[Any], restart_identity: bool = False, cascade: bool = False) -> None:
        """Empties tables, of a partitioned one all its leaves; one statement in the log, which names the partitioned table too."""
        statement = len(self._open.writes)
        options = (CASCADE if cascade else 0) | (RESTART_IDENTITY if restart_identity else 0)
        emptied: dict[int, Any] = {}
        for relation in relations:
            below = [each.relation for each in self.partitioned(relation).branch.walk()] if relation.kind == "p" else [relation]
            emptied |= {each.oid: each for each in below if each.oid not in emptied}
        for relation in emptied.values():
            if relation.kind == "p":
                self._name_truncated(relation.oid, statement, options)
                continue
            key = self._lock(relation)
            actions = [file_action.removal(add, data_change=True) for add in self._base(key).files.values()]
            self._commit(key, actions, 0, kind="truncate", statement=statement, options=options)

    @property
    def has_writes(self) -> bool:
        """Whether rows have been written."""
        return bool(self._open.writes or self._pending)

    # ending

    def before_commit(self, key: object, check: Callable[[], None]) -> None:
        """Runs `check` when the transaction commits, or when `check_now` is called with its key; it raises to refuse the commit."""
        self._before_commit.setdefault(key, []).append(check)

    def waits(self, key: object) -> bool:
        """Whether something with this key waits for the commit."""
        return key in self._before_commit

    def check_now(self, wanted: Callable[[object], bool] = lambda _: True) -> None:
        """Runs the checks that wait for the commit (SET CONSTRAINTS … IMMEDIATE)."""
        for key in [each for each in self._before_commit if wanted(each)]:
            for check in self._before_commit[key]:
                check()
            del self._before_commit[key]

    def commit(self, origin: OriginProgress | None = None) -> Lsn | None:
        """Makes all writes visible at once; the end LSN of the entry, None where there was nothing to log."""
        try:
            self._pending.settle()
            self.check_now()
            end = self._commit_all(origin)
        except Exception:
            self.rollback()
            raise
        self.engine.statistics.committed(self.database)
        return end

    def _commit_all(self, origin: OriginProgress | None) -> Lsn | None:
        opened = self._open
        self._record_history()
        if not (opened.states or opened.writes or opened.dropped or self._history_recorded or origin):
            if self._catalog is not None:
                _commit_catalog(self._catalog)
            self._end()
            return None
        engine = self.engine
        if engine.durable:
            self._sync()
        with engine.commit_lock:
            entry = engine.log.place(self.xid, self.database, self.logged_writes(), origin)
            engine.log.insert(self.cursor, entry, self.versions())
            if origin and origin.lsn:
                origins.advance(self.cursor, origin.origin, origin.lsn, entry.end_lsn)
            if self._history_recorded:
                history.place(self.cursor, self.database, self.xid, int(entry.commit_lsn))
            _commit_catalog(self._catalog)
            engine.publish(opened.states, opened.dropped)
            engine.log.append(entry)
        for key in opened.dropped & opened.created:
            engine.forget(key)
        self._end()
        if opened.dropped - opened.created:
            engine.clean()
        if opened.writes:
            compaction.after_commit(engine, opened.states.keys() - opened.dropped)
        return entry.end_lsn

    def logged_writes(self) -> list[TableWrite]:
        """The writes that the log will name."""
        gone = self._open.created & self._open.dropped
        return [write for write in self._open.writes if (self.database, write.relation) not in gone]

    def versions(self) -> dict[int, TableVersion]:
        """The versions that become visible with this transaction, by relation."""
        opened = self._open
        found = {key[1]: TableVersion(state.version) for key, state in opened.states.items() if key not in opened.dropped}
        return found | {key[1]: TableVersion(0, dropped=True) for key in opened.dropped - opened.created}

    def _sync(self) -> None:
        """What this transaction wrote reaches the disk: every version above the visible one of each table."""
        for key, state in self._open.states.items():
            if key in self._open.dropped:
                continue
            shown = self.engine.visible.get(key)
            for version in range(shown.state.version + 1 if shown else 0, state.version + 1):
                durable.sync(self.engine.path(key), version)

    def rollback(self) -> None:
        """Undoes everything; does nothing after the end."""
        if self._ended:
            return
        opened = self._open
        try:
            if self._catalog is not None:
                self._catalog.rollback()
        finally:
            restored: dict[Key, TableState] = {}
            for key, state in opened.states.items():
                if key in opened.created:
                    self.engine.forget(key)
                elif key in self._overtaken or delta_log.has_version(self.engine.path(key), state.version + 1):
                    self.engine.foreign.take_back(key, self.engine.visible[key].state)
                else:
                    restored[key] = self._undo(key, state, self.engine.visible[key].state)
            with self.engine.commit_lock:
                self.engine.publish(restored, set())
            self._end()

    def emit(self, prefix: str, content: bytes) -> None:
        """A transactional logical decoding message at this place."""
        self._pending.settle()
        self._record_history()
        seq, size, xid = len(self._open.writes), len(content), self._subtransaction()
        said = Emitted(prefix, content)
        self._open.writes.append(TableWrite(seq, 0, "message", 0, 1, seq, bytes=size, seen=self.engine.log.end, xid=xid, emitted=said))

    def hand_over(self) -> Handed:
        """PREPARE TRANSACTION: gives away what was written, and ends without releasing the locks (`prepared`)."""
        self._pending.settle()
        self.check_now()
        self._record_history()
        if self.engine.durable:
            self._sync()
        recorded = history.recorded(self.cursor, self.database, self.xid) if self._history_recorded else []
        catalog = [] if self._catalog is None else list(self.cursor.written)
        opened = self._open
        return Handed(self.xid, self.database, self.logged_writes(), dict(opened.states), opened.created, opened.dropped, catalog, recorded)

    def handed_over(self) -> None:
        """What `hand_over` gave is kept elsewhere now."""
        if self._catalog is not None:
            self._catalog.rollback()
        self._ended = True
        self.engine.ended(self)


def _commit_catalog(catalog: Any) -> None:
    try:
        catalog.commit()
    except duckdb.TransactionException as error:
        raise PostgresError("40001", "could not serialize access due to concurrent update") from error
