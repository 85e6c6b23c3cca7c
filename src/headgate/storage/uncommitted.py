"""What a transaction has written and not committed: states of tables, writes of the log, savepoints, and who else wrote between.

The base of `transaction.Transaction`, used by nothing else. What must hold: the state of a table in `_open.states` is the newest version of
its Delta log, unless another writer has committed behind it (`_overtaken`, `foreign`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headgate.catalog import history
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import delta, write
from headgate.storage.engine import Engine
from headgate.storage.file_action import Action
from headgate.storage.lock import Key
from headgate.storage.log import TableWrite
from headgate.storage.mark import MARK, undo_mark
from headgate.storage.pending import Pending, PendingRows
from headgate.storage.recorded import RecordedCatalog
from headgate.storage.table_state import TableState


@dataclass
class _Savepoint:
    name: str
    states: dict[Key, TableState]
    writes: int
    created: set[Key]
    dropped: set[Key]
    catalog: int
    history: tuple[bool, bool]
    pending: tuple[Pending, ...]
    xid: int = 0


@dataclass
class _Open:
    """What a transaction has written so far."""

    states: dict[Key, TableState] = field(default_factory=dict)
    writes: list[TableWrite] = field(default_factory=list)
    created: set[Key] = field(default_factory=set)
    dropped: set[Key] = field(default_factory=set)


@dataclass(frozen=True)
class Handed:
    """What a prepared transaction has written: to tables, to the catalog (the statements), to its history (the rows)."""

    xid: int
    database: int
    writes: list[TableWrite]
    states: dict[Key, TableState]
    created: set[Key]
    dropped: set[Key]
    catalog: list[tuple[str, str, Any]]
    history: list[tuple[Any, ...]]


class Uncommitted:
    """See the module."""

    def __init__(self, engine: Engine, database: int) -> None:
        self.engine = engine
        self.database = database
        self.cancelled: Callable[[], None] | None = None
        """Called while waiting for a lock; raises to end the wait."""
        self._catalog: Any = None
        self._open = _Open()
        self._pending = PendingRows(self)
        self._looking_up = False
        self._view: Any = None
        self._savepoints: list[_Savepoint] = []
        self._history_due = False
        self._history_recorded = False
        self._partitioned: dict[int, Any] = {}
        """Partitioned tables as the catalog of this transaction has them."""
        self._overtaken: set[Key] = set()
        """Tables in which another Delta writer's version lies between ours."""
        self._ended = False
        self.constraint_modes: dict[int, bool] = {}
        """What SET CONSTRAINTS said: whether a constraint (oid; 0: all others) is deferred."""
        self._before_commit: dict[object, list[Callable[[], None]]] = {}

    @functools.cached_property
    def xid(self) -> int:
        """The transaction id, given when first asked for (a transaction that only reads needs none)."""
        return self.engine.log.next_xid()

    @property
    def catalog(self) -> Any:
        """The catalog transaction that commits with this one; begun when first asked for."""
        if self._catalog is None:
            self._catalog = RecordedCatalog(self.engine.catalog)
        return self._catalog

    @property
    def cursor(self) -> Any:
        """The DuckDB cursor of the catalog transaction."""
        return self.catalog.cursor

    # savepoints

    def savepoint(self, name: str) -> None:
        """Marks a place to return to; a name may be used again and then hides the earlier one."""
        opened = self._open
        place = self._catalog.place if self._catalog is not None else 0
        recorded = (self._history_due, self._history_recorded)
        made, gone = set(opened.created), set(opened.dropped)
        saved = _Savepoint(name, dict(opened.states), len(opened.writes), made, gone, place, recorded, self._pending.saved())
        self._savepoints.append(saved)

    def rollback_to(self, name: str) -> None:
        """Undoes what was written after the savepoint; the savepoint stays."""
        at = self._find(name)
        saved = self._savepoints[at]
        opened = self._open
        for key, state in list(opened.states.items()):
            if key in opened.created - saved.created:
                self.engine.forget(key)
                del opened.states[key]
            else:
                before = saved.states.get(key) or self.engine.visible[key].state
                opened.states[key] = self._undo(key, state, before)
                if opened.states[key].version > state.version + 1:
                    self._overtaken.add(key)
                    raise PostgresError("40001", "could not serialize access due to concurrent update")
        self._partitioned.clear()
        self._pending.restore(saved.pending)
        if self._catalog is not None:
            self._catalog.rollback_to(saved.catalog)
        self._history_due, self._history_recorded = saved.history
        del opened.writes[saved.writes :]
        opened.created, opened.dropped = set(saved.created), set(saved.dropped)
        del self._savepoints[at + 1 :]
        saved.states, saved.xid = dict(opened.states), 0

    def release(self, name: str) -> None:
        """Forgets a savepoint and those after it."""
        del self._savepoints[self._find(name) :]

    def _find(self, name: str) -> int:
        for at in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[at].name == name:
                return at
        raise PostgresError("3B001", f'savepoint "{name}" does not exist')

    def lock(self, relation: Any, *, wait: bool = True) -> None:
        """Takes the relation's write lock until the transaction ends, before it writes: what it then reads stays the newest."""
        self._lock(relation, wait=wait)

    def has_written(self, relation: Any) -> bool:
        """Whether this transaction has written to the relation."""
        key = (relation.database, relation.oid)
        return key in self._open.states or self._pending.has(key)

    def catalog_changed(self) -> None:
        """The catalog changed in a way that streams must know: its state is recorded at this place, before the next write."""
        self._pending.settle()
        self._history_due = True
        self._partitioned.clear()

    def _record_history(self) -> None:
        """Records the catalog's state under a provisional LSN above all others; `commit` puts the entry's in its place."""
        if self._history_due:
            history.record(self.cursor, self.database, history.PROVISIONAL + self.xid, len(self._open.writes))
            self._history_due, self._history_recorded = False, True

    # inside

    def _table(self, relation: Any) -> delta.DeltaTable:
        return self.engine.table((relation.database, relation.oid))

    def _lock(self, relation: Any, *, beside_claims: bool = False, wait: bool = True) -> Key:
        self._pending.settle()
        key = (relation.database, relation.oid)
        self.engine.locks.acquire(key, self.xid, self.cancelled, None if wait else 0, beside_claims=beside_claims)
        if key not in self._open.states:
            self.engine.foreign.adopt(key)
        self._see_newest(key)
        return key

    def _see_newest(self, key: Key) -> None:
        shown = self.engine.visible.get(key)
        if self._view is not None and shown is not None and self._view.get(key) is not shown:
            self._view = {**self._view, key: shown}  # what was committed while this waited is what the statement changes

    def append_pending(self, relation: Any, rows: pa.Table, made: tuple[Lsn, int]) -> None:
        """Writes rows that were pending (for `PendingRows`); `made`: `seen` and `xid` of the write."""
        key = self._lock(relation)
        written = write.append(self.engine.table(key), relation, self._base(key), rows)
        self._commit(key, written.actions, written.changes, made=made)

    def _base(self, key: Key) -> TableState:
        """The newest state, on which a write goes: the lock is held, so it is ours or the visible one."""
        return self._open.states.get(key) or self.engine.visible[key].state

    def _commit_written(self, key: Key, written: write.Written) -> int:
        if written.changes:
            self._commit(key, written.actions, written.changes)
        return written.changes

    def _commit(
        self, key: Key, actions: list[Action], changes: int, *, kind: Any = "write", statement: int | None = None, options: int = 0,
        made: tuple[Lsn, int] | None = None,
    ) -> None:  # fmt: skip
        self._record_history()
        base = self._base(key)
        state = self.engine.table(key).commit(base, actions, f"{MARK} {self.xid}")
        self._look_between(key, base, state)
        size = sum(action[name]["size"] for action in actions for name in ("add", "cdc") if name in action and kind == "write")
        self._written(key, state, changes, kind, statement, options, size, made=made)

    def _written(
        self,
        key: Key,
        state: TableState,
        changes: int,
        kind: Any,
        statement: int | None = None,
        options: int = 0,
        size: int = 0,
        version: int | None = None,
        made: tuple[Lsn, int] | None = None,
    ) -> None:
        """`made`: the end of the log and the subtransaction when the statement ran, if that was earlier."""
        self._open.states[key] = state
        seq, at = len(self._open.writes), state.version if version is None else version
        seen, xid = made or (self.engine.log.end, self._subtransaction())
        place = seq if statement is None else statement
        self._open.writes.append(TableWrite(seq, key[1], kind, at, changes, place, options, bytes=size, seen=seen, xid=xid))

    def _name_truncated(self, relation: int, statement: int, options: int) -> None:
        """Notes that a partitioned table was truncated: it has no rows of its own, but may be what is published."""
        self._record_history()
        seen, xid = self.engine.log.end, self._subtransaction()
        self._open.writes.append(TableWrite(len(self._open.writes), relation, "truncate", 0, 0, statement, options, seen=seen, xid=xid))

    def _look_between(self, key: Key, base: TableState, state: TableState) -> None:
        """Adopts versions that another writer has put between ours; 40001 where we have written to the table before."""
        if state.version == base.version + 1:
            return
        written_before = key in self._open.states
        self._open.states[key] = state
        if written_before:
            self._overtaken.add(key)
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        self.engine.foreign.adopt_range(key, range(base.version + 1, state.version))

    def adopt(self, key: Key, state: TableState, version: int, kind: Any, changes: int, size: int) -> None:
        """Takes over what another writer has committed (`foreign`, which holds the lock): `kind` None changes no row."""
        self._open.states[key] = state
        if kind is not None:
            self._written(key, state, changes, kind, size=size, version=version)

    def _subtransaction(self) -> int:
        """The xid of the innermost savepoint, 0 outside of savepoints."""
        if not self._savepoints:
            return 0
        innermost = self._savepoints[-1]
        if not innermost.xid:
            _ = self.xid  # the transaction's own is the smaller one
            innermost.xid = self.engine.log.next_xid()
        return innermost.xid

    def _undo(self, key: Key, state: TableState, to: TableState) -> TableState:
        if state is to:
            return to
        return self.engine.table(key).undo(state, to, undo_mark(to.version))

    def _end(self) -> None:
        self._ended = True
        if "xid" in self.__dict__:
            self.engine.locks.release(self.xid)
        self.engine.ended(self)
