"""Adoption of versions that other Delta writers commit directly to a node's tables: each becomes a transaction of its own.

The engine has one `ForeignWriters`, whose `look` checks the tables' logs every second. A writer of the node that finds versions
below its own adopts them first (`adopt`), and recovery adopts those that were committed while the node was down. Invariant: a version
is adopted once, under the table's write lock, before any later version becomes visible. Only the node's own versions are ever undone.
Versions next to an own one that is undone become one transaction together, which shows the state after the undo.

    a version of another writer                           becomes
    add files only                                        a write whose rows are those of the files
    anything else with dataChange                         a write of kind ``foreign``: the rows by which the tables differ
                                                          (`write_difference`), stored as ``_headgate/<version>/``
    no change of rows (OPTIMIZE, RESTORE to the same …)   an entry without a write
    other columns, a rule that the node's writes would    nothing: the table stays at the version before, writers get 55000, the log
    not respect (a feature, a constraint), files outside  has the reason; resumes when a later version is as before again

Traced: the node is at version 7 of t. Another job's MERGE commits version 8, an append version 9. `look` finds 9 > 7, acquires the lock of
t, writes the differences of 8, commits the entry (t, 8), then the entry (t, 9). A walsender that waits for the log sends both.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.storage.delta import array_column, delta_log, external_table, file_action, fsync, parquet, table_state
from headgate.storage.delta.commit_mark import marked_with, undo_mark
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.visible_state import Visible
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.persisted import persisted
from headgate.storage.statistics import TableCounts
from headgate.storage.transaction.log import TableVersion, TableWrite, WriteKind
from headgate.storage.transaction.storage import Storage
from headgate.storage.write import CHANGE, columns
from headgate.types.storage import own_name

_log = logging.getLogger("headgate.storage")

LOOK_SECONDS = 1.0
"""Interval in seconds at which the tables' logs are checked."""
STORE_LOOK_SECONDS = 10.0
"""The interval in an object store, where each table costs a request."""


_COUNT = own_name("_count")


@dataclass(frozen=True)
class Recovered:
    """The versions above the logged one: whether own versions were undone, the versions of other writers, the newest state."""

    undone: bool = False
    others: list[int] = field(default_factory=list)
    base: TableState | None = None
    newest: TableState | None = None


@dataclass(frozen=True)
class Difference:
    """The changes of one version of another writer: kind and number, and the size of the files that have them, in bytes.

    The kind ``write`` only adds rows.
    """

    version: int
    kind: WriteKind
    changes: int
    size: int


class ForeignWriters:
    """The state of other writers' versions in the tables of a node, and their adoption."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._blocked: dict[Key, tuple[int, str]] = {}
        self._looked: dict[Key, tuple[int, bool]] = {}
        """The modification time of each table's log, and whether the table was looked at again since."""
        self._logs: dict[Key, str] = {}
        self._next_look = 0.0

    # ---- looking ----------------------------------------------------------------------------------------
    def look(self) -> None:
        """Adopt the versions that other writers have committed. Skip tables that the node itself is writing to until the next call."""
        tables = self._storage.tables.visible
        if not data_location.is_local(self._storage.base):
            self._look_in_store(tables)
            return
        for dropped in [key for key in self._logs if key not in tables]:
            del self._logs[dropped]
            self._looked.pop(dropped, None)
        for key, shown in tables.items():
            if not self._look_for_change(key):
                continue
            if delta_log.has_version(self._storage.tables.path(key), self._known_version(key, shown) + 1):
                self._try(key)

    def _look_in_store(self, tables: Mapping[Key, Visible]) -> None:
        """Adopt new versions in an object store, whose folders do not show that they have changed."""
        if time.monotonic() < self._next_look:
            return
        path = self._storage.tables.path
        nexts = [(path(key), self._known_version(key, shown) + 1) for key, shown in tables.items()]
        exist = data_location.together(self._storage.base, lambda place: delta_log.has_version(*place), nexts)
        for key, exists in zip(tables, exist, strict=True):
            if exists:
                self._try(key)
        self._next_look = time.monotonic() + STORE_LOOK_SECONDS

    def _look_for_change(self, key: Key) -> bool:
        """Return whether the table's log has changed since the last look.

        It is looked at once more in the next look, because a file system's clock has ticks, of up to a second: a version that is written
        directly after a look does not change the folder's time.
        """
        if not data_location.is_local(self._storage.base):
            return False
        log = self._logs.get(key)
        if log is None:  # making a path costs more than the stat, which runs for thousands of tables each second
            log = self._logs[key] = f"{self._storage.tables.path(key)}/_delta_log"
        try:
            modified = os.stat(log).st_mtime_ns  # noqa: PTH116 (see above)
        except OSError:
            return False
        seen, is_settled = self._looked.get(key, (0, False))
        if seen == modified and is_settled:
            return False
        self._looked[key] = modified, seen == modified
        return True

    def _known_version(self, key: Key, shown: Visible) -> int:
        blocked = self._blocked.get(key)
        return blocked[0] if blocked is not None else shown.version

    def _try(self, key: Key) -> None:
        try:
            with self._storage.locked(key, 0):
                self.adopt(key)
            self._storage.obstacles.clear("adopting", key)
        except PostgresError as error:
            self._looked.pop(key, None)
            if error.sqlstate not in ("55P03", "55000"):
                _log.warning("could not adopt versions of another writer of relation %d: %s", key[1], error.message)
                self._storage.obstacles.note("adopting", key, error.message)
        except Exception:
            self._looked.pop(key, None)
            raise

    # ---- adopting ---------------------------------------------------------------------------------------
    def adopt(self, key: Key) -> None:
        """Adopt the versions above the visible one. The caller holds the table's lock and has not written to it. Raise 55000."""
        shown = self._storage.tables.visible.get(key)
        if shown is None or not delta_log.has_version(self._storage.tables.path(key), shown.state.version + 1):
            return
        path = self._storage.tables.path(key)
        versions = range(shown.state.version + 1, (delta_log.newest_version(path) or 0) + 1)
        if any(marked_with(delta_log.read_version(path, version)) is not None for version in versions):
            self.undo_own(key, shown.state)  # an own version that no entry names was never committed
            return
        self.adopt_range(key, versions)

    def adopt_range(self, key: Key, versions: Sequence[int], visible: TableState | None = None) -> None:
        """Adopt these versions, each as a transaction. Raise 55000.

        `visible`: the state that readers see with them, if it is not that of the last version. All are then one transaction, because a
        start adopts only versions above that state.
        """
        storage = self._storage
        before = storage.tables.visible[key].state
        table, path = storage.tables[key], storage.tables.path(key)
        steps = self._steps(before, [(version, delta_log.read_version(path, version)) for version in versions])
        if isinstance(steps, str):
            raise self._block(key, versions[-1], steps)
        self._blocked.pop(key, None)
        storage.obstacles.clear("adopting", key)
        differences: list[Difference] = []
        for version, actions in steps:
            if actions is None:
                after = table.state(version)
            else:
                after = table_state.advance(before, version, actions)
                after = replace(after, files=parquet.counted(table.path, after.files))
            differences.append(self._difference(key, before, after, actions))
            if visible is None:
                self._commit(key, after, differences)
                differences = []
            before = after
        if visible is not None:
            self._commit(key, visible, differences)

    def _difference(self, key: Key, before: TableState, after: TableState, actions: list[Action] | None) -> Difference:
        """Return the changes of one version (its actions), or of several together (None)."""
        if actions is not None and _appends(actions):
            added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
            return Difference(after.version, "write", sum(file_action.records(add) for add in added), sum(add["size"] for add in added))
        if actions is not None and not _changes(actions):
            return Difference(after.version, "write", 0, 0)
        with contextlib.closing(self._storage.catalog.cursor()) as cursor:
            relation = relations.find(cursor, *key)
        if relation is None:
            raise PostgresError("XX000", f"could not open relation with OID {key[1]}")
        changes, size = write_difference(self._storage, relation, before, after, single=actions is not None)
        return Difference(after.version, "foreign", changes, size)

    def _commit(self, key: Key, state: TableState, differences: Sequence[Difference]) -> None:
        """Commit an entry for one version, or for several together. `state`: the table as readers see it with the entry."""
        storage, (database, oid) = self._storage, key
        with storage.commit_lock:
            seen, changed = storage.log.end, [difference for difference in differences if difference.changes]
            writes = [
                TableWrite(seq, oid, change.kind, change.version, change.changes, seq, bytes=change.size, seen=seen)
                for seq, change in enumerate(changed)
            ]
            entry = storage.log.place(storage.log.next_xid(), database, writes, None)
            versions = {oid: TableVersion(state.version)}
            storage.catalog.change(lambda cursor: storage.log.insert(cursor, entry, versions), Step.ENTRY)
            storage.tables.publish({key: state}, set())
            storage.log.append(entry)
        storage.statistics.committed(database)
        storage.statistics.wrote({key: TableCounts(inserted=sum(change.changes for change in changed if change.kind == "write"))})
        name = storage.tables.title(key)
        for difference in differences:
            outcome = f"{difference.changes} changes" if difference.changes else "no change of rows"
            _log.info("adopted version %d of %s from another writer: %s", difference.version, name, outcome)

    def _steps(self, before: TableState, committed: Sequence[tuple[int, list[Action]]]) -> list[tuple[int, list[Action] | None]] | str:
        """Return the versions to adopt one by one, or the last for all of them. Return the reason if the table cannot be continued."""
        metadata, protocol = before.metadata, before.protocol
        outside, difference, had_difference = set[str](), "", False
        for _, actions in committed:
            outside -= {action["remove"]["path"] for action in actions if "remove" in action}
            outside |= {action["add"]["path"] for action in actions if "add" in action and external_table.is_outside(action["add"]["path"])}
            metadata = next((action["metaData"] for action in actions if "metaData" in action), metadata)
            protocol = next((action["protocol"] for action in actions if "protocol" in action), protocol)
            difference = _other_definition(before, metadata, protocol) or (f'file "{min(outside)}" is not in its folder' if outside else "")
            had_difference = had_difference or bool(difference)
        if difference:
            return difference
        if had_difference:
            return [(committed[-1][0], None)]
        return [(version, actions) for version, actions in committed]

    def _block(self, key: Key, version: int, reason: str) -> PostgresError:
        """Stop the adoption for a table whose columns were changed. Return the error."""
        name = self._storage.tables.path(key)
        message = f'table "{name}" was altered by another writer: {reason}'
        if key not in self._blocked:
            _log.error("%s; the node goes on with the version before", message)
        self._blocked[key] = (version, message)
        self._storage.obstacles.note("adopting", key, message)
        hint = "Restore the table's definition with the tool that changed it, then change columns with ALTER TABLE on the node."
        return PostgresError("55000", message, hint=hint)

    # ---- recovery ---------------------------------------------------------------------------------------
    def recover(self, key: Key, logged: int) -> Recovered:
        """Undo the node's own versions above the logged one. Keep the versions of others, to be adopted."""
        storage = self._storage
        self._look_for_change(key)
        path = storage.tables.path(key)
        newest = delta_log.newest_version(path)
        if newest is None or newest <= logged:
            return Recovered()
        marks = [(version, marked_with(delta_log.read_version(path, version))) for version in range(logged + 1, newest + 1)]
        others = [version for version, mark in marks if mark is None]
        if not others and marks[-1][1] == undo_mark(logged):
            return Recovered()
        table = storage.tables[key]
        base, state = table.state(logged), table.state()
        after = table.undo(state, self._without_own(key, base, others), undo_mark(logged))
        if storage.durable:  # a torn file after a power failure would invalidate the versions committed after it, too
            for version in range(logged + 1, after.version + 1):
                fsync.sync_version(path, version)
        return Recovered(len(others) < len(marks), others, base, after)

    def _without_own(self, key: Key, base: TableState, others: Sequence[int]) -> TableState:
        if not others:
            return base
        files = base.files
        for version in others:
            files = file_action.files_after(files, delta_log.read_version(self._storage.tables.path(key), version))
        return replace(base, files=parquet.counted(self._storage.tables.path(key), files))

    def adopt_recovered(self, key: Key, recovered: Recovered) -> None:
        """Adopt the versions of others that `recover` found. A table with other columns stays at the logged version."""
        assert recovered.base is not None
        storage = self._storage
        with storage.commit_lock:
            storage.tables.publish({key: recovered.base}, set())
        try:
            self.adopt_range(key, recovered.others, recovered.newest if recovered.undone else None)
        except PostgresError as error:
            if error.sqlstate != "55000":
                raise

    def forget_created(self, key: Key) -> None:
        """Forget a table whose transaction did not commit, although a version of it may exist. Undo that version of an external table."""
        opened_at = self._storage.folders.opened_at(key)
        if opened_at is not None:
            self.recover(key, opened_at)
        self._storage.tables.forget(key)

    def undo_own(self, key: Key, base: TableState) -> None:
        """Undo own versions above `base` in a running node, as recovery does, and adopt those of other writers among them."""
        recovered = self.recover(key, base.version)
        with self._storage.commit_lock:
            self._storage.tables.publish({key: base}, set())
        if recovered.others:
            self.adopt_recovered(key, recovered)
        elif recovered.newest is not None:
            with self._storage.commit_lock:
                self._storage.tables.publish({key: recovered.newest}, set())


def _appends(actions: Sequence[Action]) -> bool:
    """Return whether a version only adds rows, and has their number in its statistics."""
    if any("remove" in action or "cdc" in action for action in actions):
        return False
    added = [action["add"] for action in actions if "add" in action]
    if any(add.get("deletionVector") for add in added):
        return False
    counted = [add for add in added if add.get("dataChange", True)]
    return bool(counted) and all(map(file_action.is_counted, counted))


def _changes(actions: Sequence[Action]) -> bool:
    """Return whether a version may change rows."""
    files = [action[name] for action in actions for name in ("add", "remove", "cdc") if name in action]
    return any("cdc" in action for action in actions) or any(file.get("dataChange", True) for file in files)


def _other_definition(state: TableState, metadata: Action, protocol: Action) -> str:
    """Return how a later definition of a table prevents the node from writing to it, or an empty string if it does not."""
    if metadata is state.metadata and protocol is state.protocol:
        return ""
    rule = external_table.unsupported_rule(metadata, protocol, external_table.ADOPTED)
    return f"it has {rule}" if rule else _other_columns(state, metadata)


def _other_columns(state: TableState, metadata: Action) -> str:
    """Return how the columns differ, or an empty string if they do not."""
    current = StructType.fromJson(json.loads(metadata["schemaString"]))
    before = StructType.fromJson(json.loads(state.metadata["schemaString"]))
    expected = {field.name: (field.dataType, state.physical.get(field.name, field.name)) for field in before.fields}
    physical = table_state.physical_names(current)
    for column in current.fields:
        old_column = expected.pop(column.name, None)
        if old_column is None:
            return f'column "{column.name}" was added'
        if old_column[0] != column.dataType:
            return f'column "{column.name}" has the type {column.dataType.simpleString()}'
        if old_column[1] != physical[column.name]:
            return f'column "{column.name}" was replaced'
        if not column.nullable:
            return f'column "{column.name}" was set NOT NULL'
    return f'column "{next(iter(expected))}" was dropped' if expected else ""


def folder(table: DataPath, version: int) -> DataPath:
    """Return the folder with the differences of an adopted version."""
    return table / "_headgate" / str(version)


def write_difference(storage: Storage, relation: Relation, before: TableState, after: TableState, *, single: bool) -> tuple[int, int]:
    """Write the differences to ``_headgate/<version>/``. Return the number of changes and the size of the files in bytes.

    `single`: `after` is the version that follows `before`, so that Delta's change feed can return the changed rows. Otherwise, or if the
    feed is disabled, both versions are read.
    """
    key = (relation.database, relation.oid)
    target = folder(storage.tables.path(key), after.version)
    data_location.remove_tree(target)
    changed = _pair_rows(relation, _net(relation, _with_signs(storage, relation, before, after, single=single)))
    with persisted(changed) as rows:
        count = rows.count()
        if count:
            _rows(relation, rows, after).write.parquet(str(target))
    size = 0
    for file in data_location.below(target):
        if not file.name.startswith("part-"):
            continue
        if pq.read_metadata(data_location.local(target / file.name)).num_rows:
            size += file.size
        else:
            data_location.remove(target / file.name)
    if count and storage.durable:  # of several files, a stream would not miss one that a power failure has lost
        with step(Step.SYNC):
            fsync.sync_new_folder(storage.tables.path(key), target)
    return count, size


def _with_signs(storage: Storage, relation: Relation, before: TableState, after: TableState, *, single: bool) -> DataFrame:
    """Return rows with 1 for one that exists now, -1 for one that existed before."""
    names = [F.col(quoted(column.name)) for column in relation.columns]
    key = (relation.database, relation.oid)
    table = storage.tables[key]
    if single:
        feed = storage.spark.read.format("delta").option("readChangeFeed", "true")
        try:
            rows = feed.option("startingVersion", after.version).option("endingVersion", after.version).load(str(table.path))
            added = F.col("_change_type").isin("insert", "update_postimage")
            rows = array_column.of_files(rows, after.lists)
            return rows.select(*names, F.when(added, F.lit(1)).otherwise(F.lit(-1)).alias(_COUNT))
        except Exception:  # noqa: BLE001 (the other writer has disabled the change feed: both versions can be read)
            single = False
    then = table.frame(before).select(*names, F.lit(-1).alias(_COUNT))
    return then.unionAll(table.frame(after).select(*names, F.lit(1).alias(_COUNT)))


def _net(relation: Relation, signed: DataFrame) -> DataFrame:
    names = [F.col(quoted(column.name)) for column in relation.columns]
    return signed.groupBy(*names).agg(F.sum(_COUNT).alias(_COUNT)).where(F.col(_COUNT) != 0)


def _pair_rows(relation: Relation, net: DataFrame) -> DataFrame:
    """Return `old` and `new` structs, a key's removed row with its added one. Removals first, then updates, then additions."""
    row: StructType = columns(relation)
    row_struct = F.struct(*[F.col(quoted(name)).alias(name) for name in row.fieldNames()]).alias("row")
    single_rows = net.select(row_struct, F.col(_COUNT), F.explode(F.sequence(F.lit(1), F.abs(F.col(_COUNT)))).alias("n"))
    key = relation.identity_key()
    names = [column.name for column in relation.columns if key is not None and column.attnum in key]
    keys = [F.col("row." + quoted(name)) for name in names]
    if not names:
        is_removed = F.col(_COUNT) < 0
        nothing = F.lit(None).cast(row)
        changes = single_rows.select(
            F.when(is_removed, F.col("row")).otherwise(nothing).alias("old"),
            F.when(is_removed, nothing).otherwise(F.col("row")).alias("new"),
        )
        return changes.orderBy(F.col("old").isNull())
    numbered = single_rows.withColumn("n", F.row_number().over(Window.partitionBy(F.col(_COUNT) < 0, *keys).orderBy("row")))
    old = numbered.where(F.col(_COUNT) < 0).select(F.col("row").alias("old"), F.col("n").alias("n_old"))
    new = numbered.where(F.col(_COUNT) > 0).select(F.col("row").alias("new"), F.col("n").alias("n_new"))
    same_key: list[Column] = [F.col("old." + quoted(name)).eqNullSafe(F.col("new." + quoted(name))) for name in names]
    matched = reduce(lambda left, right: left & right, same_key, F.col("n_old") == F.col("n_new"))
    place = F.when(F.col("new").isNull(), 0).when(F.col("old").isNull(), 2).otherwise(1)
    order = [F.coalesce(F.col("new." + quoted(name)), F.col("old." + quoted(name))) for name in names]
    return old.join(new, matched, "full_outer").select("old", "new").orderBy(place, *order)


def _rows(relation: Relation, changed: DataFrame, state: TableState) -> DataFrame:
    """Return change rows with the column names of the table's files."""

    def side(name: str, change: str) -> Column:
        values = [F.col(f"{name}.{quoted(column.name)}").alias(column.name) for column in relation.columns]
        return F.struct(*values, F.lit(change).alias(CHANGE))

    rows = (
        F.when(F.col("old").isNull(), F.array(side("new", "insert")))
        .when(F.col("new").isNull(), F.array(side("old", "delete")))
        .otherwise(F.array(side("old", "update_preimage"), side("new", "update_postimage")))
    )
    exploded = array_column.to_files(changed.select(F.explode(rows).alias("e")).select("e.*"), state.lists)
    selected = [F.col(quoted(column.name)).alias(state.physical.get(column.name, column.name)) for column in relation.columns]
    return exploded.select(*selected, CHANGE)
