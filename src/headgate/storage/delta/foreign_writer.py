"""Versions that other Delta writers commit straight into a node's tables: each becomes a transaction of its own.

`ForeignWriters` is the engine's. Its thread looks at the tables' logs every second (`look`); a writer of the node that finds versions
below its own adopts them first (`adopt`), and recovery adopts what came while the node was down. What must hold: a version is adopted
once, under the table's write lock, before any later version becomes visible; no version is ever taken back but the node's own.

    a version of another writer                           becomes
    add files only                                        a write whose rows are those of the files
    anything else with dataChange                         a write of kind ``foreign``: the rows by which the tables differ
                                                          (`version_difference`), written down as ``_headgate/<version>/``
    no change of rows (OPTIMIZE, RESTORE to the same …)   an entry without a write
    other columns, partitioned                            nothing: the table stands still at the version before, writers get 55000,
                                                          the log says why; goes on when a later version has the columns again

Traced: the node is at version 7 of t. Another job's MERGE commits version 8, an append version 9. `look` sees 9 > 7, takes the lock of t,
writes the differences of 8, commits the entry (t, 8), then the entry (t, 9). A walsender that waits for the log sends both.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headgate.catalog.relation import relation as relations
from headgate.errors import PostgresError
from headgate.storage.delta import delta_log, file_action, fsync, parquet, table_state, version_difference
from headgate.storage.delta.commit_mark import marked_with, undo_mark
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key

if TYPE_CHECKING:
    from headgate.storage.delta.visible_state import Visible
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.storage")

LOOK_SECONDS = 1.0
STORE_LOOK_SECONDS = 10.0
"""The same in an object store, where each table is a request."""


@dataclass(frozen=True)
class Recovered:
    """What recovery found above the logged version: whether own versions were undone, the versions of others, the newest state."""

    undone: bool = False
    others: list[int] = field(default_factory=list)
    base: TableState | None = None
    newest: TableState | None = None


class ForeignWriters:
    """What other writers do to the tables of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._blocked: dict[Key, tuple[int, str]] = {}
        self._looked: dict[Key, int] = {}
        self._logs: dict[Key, str] = {}
        self._next_look = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to look at the tables."""
        self._thread = threading.Thread(target=self._run, name="foreign writers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self._engine.intents.settle()
            self._engine.reserve.fill()
            try:
                self.look()
            except Exception:  # noqa: BLE001 (the next look may go well)
                _log.exception("could not look for versions of other writers")

    # ---- looking ----------------------------------------------------------------------------------------
    def look(self) -> None:
        """Adopts what other writers have committed; tables that the node itself is writing to are left for the next time."""
        tables = self._engine.visible
        if not data_location.is_local(self._engine.base):
            self._look_in_store(tables)
            return
        for gone in [key for key in self._logs if key not in tables]:
            del self._logs[gone]
            self._looked.pop(gone, None)
        for key, shown in tables.items():
            if not self._moved(key):
                continue
            try:
                known = self._known(key, shown)
            except PostgresError as error:  # whoever reads it is told
                _log.debug("no look at relation %d: %s", key[1], error.message)
                continue
            if delta_log.has_version(self._engine.path(key), known + 1):
                self._try(key)

    def _look_in_store(self, tables: Mapping[Key, Visible]) -> None:
        """The same where a folder does not tell that something in it has changed."""
        if time.monotonic() < self._next_look:
            return
        path, blocked = self._engine.path, self._blocked
        nexts = [(path(key), (blocked[key][0] if key in blocked else shown.version) + 1) for key, shown in tables.items()]
        found = data_location.together(self._engine.base, lambda each: delta_log.has_version(*each), nexts)
        for key, there in zip(tables, found, strict=True):
            if there:
                self._try(key)
        self._next_look = time.monotonic() + STORE_LOOK_SECONDS

    def _moved(self, key: Key) -> bool:
        """Whether the table's log has changed since the last look."""
        if not data_location.is_local(self._engine.base):
            return False
        log = self._logs.get(key)
        if log is None:  # a path costs more to make than to look at, for some thousands of tables each second
            log = self._logs[key] = f"{self._engine.path(key)}/_delta_log"
        try:
            at = os.stat(log).st_mtime_ns  # noqa: PTH116 (see above)
        except OSError:
            return False
        if self._looked.get(key) == at:
            return False
        self._looked[key] = at
        return True

    def _known(self, key: Key, shown: Visible) -> int:
        blocked = self._blocked.get(key)
        return blocked[0] if blocked is not None else int(shown.state.version)

    def _try(self, key: Key) -> None:
        transaction = self._engine.begin(key[0])
        try:
            self._engine.locks.acquire(key, transaction.xid, lock_timeout=0, beside_claims=True)
            self.adopt(key)
            self._engine.obstacles.clear("adopting", key)
        except PostgresError as error:
            self._looked.pop(key, None)
            if error.sqlstate not in ("55P03", "55000"):
                _log.warning("could not adopt versions of another writer of relation %d: %s", key[1], error.message)
                self._engine.obstacles.note("adopting", key, error.message)
        except Exception:
            self._looked.pop(key, None)
            raise
        finally:
            transaction.rollback()

    # ---- adopting ---------------------------------------------------------------------------------------
    def adopt(self, key: Key) -> None:
        """Adopts the versions above the visible one. The caller holds the table's lock and has not written to it. 55000."""
        shown = self._engine.visible.get(key)
        if shown is None or not delta_log.has_version(self._engine.path(key), shown.state.version + 1):
            return
        path = self._engine.path(key)
        versions = range(shown.state.version + 1, (delta_log.newest_version(path) or 0) + 1)
        if any(marked_with(delta_log.read_version(path, version)) is not None for version in versions):
            self.take_back(key, shown.state)  # a version of ours that no entry names is nobody's
            return
        self.adopt_range(key, versions)

    def adopt_range(self, key: Key, versions: Sequence[int], visible: TableState | None = None) -> None:
        """Adopts these versions; `visible`: the state that readers shall see with them, each one's own by default."""
        engine = self._engine
        before = engine.visible[key].state
        table, path = engine.table(key), engine.path(key)
        steps = self._steps(before, [(version, delta_log.read_version(path, version)) for version in versions])
        if isinstance(steps, str):
            raise self._block(key, versions[-1], steps)
        self._blocked.pop(key, None)
        engine.obstacles.clear("adopting", key)
        for version, actions in steps:
            if actions is None:
                after = table.state(version)
            else:
                after = table_state.advance(before, version, actions)
                after = replace(after, files=parquet.counted(table.path, after.files))
            self._adopt(key, before, after, actions, visible)
            before = after

    def _adopt(self, key: Key, before: TableState, after: TableState, actions: list[Action] | None, visible: TableState | None) -> None:
        """One entry: of one version (its actions), or of several together (None)."""
        engine = self._engine
        with contextlib.closing(engine.catalog.cursor()) as cursor:
            relation = relations.find(cursor, *key)
        kind, changes, size = "write", 0, 0
        if actions is not None and _appends(actions):
            added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
            changes, size = sum(file_action.records(add) for add in added), sum(add["size"] for add in added)
        elif actions is None or _changes(actions):
            kind = "foreign"
            if relation is None:
                raise PostgresError("XX000", f"could not open relation with OID {key[1]}")
            changes, size = version_difference.write(engine, relation, before, after, single=actions is not None)
        transaction = engine.begin(key[0])
        try:
            transaction.adopt(key, visible or after, after.version, kind if changes else None, changes, size)
            transaction.commit()
        except BaseException:
            transaction.rollback()
            raise
        said = f"{changes} changes" if changes else "no change of rows"
        name = f"relation {key[1]}" if relation is None else f'table "{relation.schema}.{relation.name}"'
        _log.info("adopted version %d of %s from another writer: %s", after.version, name, said)

    def _steps(self, before: TableState, found: Sequence[tuple[int, list[Action]]]) -> list[tuple[int, list[Action] | None]] | str:
        """The versions to adopt one by one, or the last alone for all of them; a text where the columns are other ones."""
        wrong = ""
        passed = False
        for _, actions in found:
            for action in actions:
                if "metaData" in action:
                    wrong = _other_columns(before, action["metaData"])
                    passed = passed or bool(wrong)
        if wrong:
            return wrong
        if passed:
            return [(found[-1][0], None)]
        return [(version, actions) for version, actions in found]

    def _block(self, key: Key, version: int, reason: str) -> PostgresError:
        """Other columns: the table stands still."""
        name = self._engine.path(key)
        message = f'table "{name}" was altered by another writer: {reason}'
        if key not in self._blocked:
            _log.error("%s; the node goes on with the version before", message)
        self._blocked[key] = (version, message)
        self._engine.obstacles.note("adopting", key, message)
        hint = "Restore the table's columns with the tool that changed them, then change them with ALTER TABLE on the node."
        return PostgresError("55000", message, hint=hint)

    # ---- recovery ---------------------------------------------------------------------------------------
    def recover(self, key: Key, logged: int) -> Recovered:
        """Undoes the node's own versions above the logged one; what others committed stays, to be adopted."""
        engine = self._engine
        self._moved(key)
        path = engine.path(key)
        newest = delta_log.newest_version(path)
        if newest is None or newest <= logged:
            return Recovered()
        marks = [(version, marked_with(delta_log.read_version(path, version))) for version in range(logged + 1, newest + 1)]
        others = [version for version, mark in marks if mark is None]
        if not others and marks[-1][1] == undo_mark(logged):
            return Recovered()
        table = engine.table(key)
        base, state = table.state(logged), table.state()
        after = table.undo(state, self._without_own(key, base, others), undo_mark(logged))
        if engine.durable:  # a power failure that tears one of them would take what is committed behind it, too
            for version in range(logged + 1, after.version + 1):
                fsync.sync_version(path, version)
        return Recovered(len(others) < len(marks), others, base, after)

    def _without_own(self, key: Key, base: TableState, others: Sequence[int]) -> TableState:
        """The base with what others have done to it."""
        if not others:
            return base
        files = base.files
        for version in others:
            files = file_action.files_after(files, delta_log.read_version(self._engine.path(key), version))
        return replace(base, files=parquet.counted(self._engine.path(key), files))

    def adopt_recovered(self, key: Key, found: Recovered) -> None:
        """Adopts what `recover` found of others; a table with other columns stays at the logged version."""
        assert found.base is not None
        engine = self._engine
        with engine.commit_lock:
            engine.publish({key: found.base}, set())
        try:
            self.adopt_range(key, found.others, found.newest if found.undone else None)
        except PostgresError as error:
            if error.sqlstate != "55000":
                raise

    def take_back(self, key: Key, base: TableState) -> None:
        """As recovery, in a running node: undoes own versions above `base` among which there are others', and adopts those."""
        found = self.recover(key, base.version)
        with self._engine.commit_lock:
            self._engine.publish({key: base}, set())
        if found.others:
            self.adopt_recovered(key, found)
        elif found.newest is not None:
            with self._engine.commit_lock:
                self._engine.publish({key: found.newest}, set())


def _appends(actions: Sequence[Action]) -> bool:
    """Whether a version only adds rows, and says how many."""
    if any("remove" in action or "cdc" in action for action in actions):
        return False
    added = [action["add"] for action in actions if "add" in action]
    if any(add.get("deletionVector") for add in added):
        return False
    counted = [add for add in added if add.get("dataChange", True)]
    return bool(counted) and all(map(file_action.is_counted, counted))


def _changes(actions: Sequence[Action]) -> bool:
    """Whether a version may change rows."""
    files = [action[name] for action in actions for name in ("add", "remove", "cdc") if name in action]
    return any("cdc" in action for action in actions) or any(file.get("dataChange", True) for file in files)


def _other_columns(state: TableState, metadata: dict[str, Any]) -> str:
    """What is different about the columns; empty where nothing is."""
    if metadata.get("partitionColumns"):
        return f"it is partitioned by {', '.join(metadata['partitionColumns'])}"
    now = StructType.fromJson(json.loads(metadata["schemaString"]))
    before = StructType.fromJson(json.loads(state.metadata["schemaString"]))
    was = {field.name: (field.dataType, state.physical.get(field.name, field.name)) for field in before.fields}
    physical = table_state.physical_names(now)
    for column in now.fields:
        known = was.pop(column.name, None)
        if known is None:
            return f'column "{column.name}" was added'
        if known[0] != column.dataType:
            return f'column "{column.name}" has the type {column.dataType.simpleString()}'
        if known[1] != physical[column.name]:
            return f'column "{column.name}" was replaced'
    return f'column "{next(iter(was))}" was dropped' if was else ""


def folder(table: DataPath, version: int) -> DataPath:
    """Where the differences of an adopted version are."""
    return table / "_headgate" / str(version)
