"""How a transaction reads tables: their states, their rows, and the positions of rows that it then changes.

Made by `transaction`. A table's rows are those of its state and the transaction's pending rows. The state is the one that was committed
when the statement began, with the transaction's own writes. Under a lock, it is the newest one.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError, existing
from headgate.storage import write
from headgate.storage.delta import file_action
from headgate.storage.delta.delta_table import FILE, PLACE, ROW, DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.tables import Tables
from headgate.storage.location.table_folders import Key
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import in_one_piece, local_frame
from headgate.storage.transaction.held_tables import HeldTables
from headgate.storage.transaction.log import TableWrite
from headgate.storage.transaction.partitioned_table import PartitionedTable
from headgate.storage.transaction.snapshot import Snapshot
from headgate.storage.transaction.staging import Staging
from headgate.storage.transaction.statement_view import StatementView
from headgate.storage.transaction.transaction_catalog import TransactionCatalog
from headgate.storage.write import columns


class _Unwritten:
    """Rows of tables that a statement has still to write (`TableReader.unwritten`)."""

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


class TableReader:
    """Reads tables for one transaction."""

    def __init__(
        self, spark: SparkSession, delta: Tables, catalog: TransactionCatalog, snapshot: Snapshot, staging: Staging, tables: HeldTables
    ) -> None:  # fmt: skip
        self.spark, self._delta, self._catalog = spark, delta, catalog
        self._snapshot, self._staging, self._tables = snapshot, staging, tables
        self._partitioned: tuple[int, dict[int, PartitionedTable]] = (0, {})
        """Partitioned tables as the catalog defined them in one generation (`TransactionCatalog.generation`)."""
        self._looking_up = False
        self._unwritten: tuple[_Unwritten, ...] = ()
        """The rows that statements have still to write, those of the outermost statement first."""

    @property
    def cursor(self) -> CatalogCursor:
        return self._catalog.cursor

    def table(self, relation: Relation) -> DeltaTable:
        return self._delta[relation.database, relation.oid]

    def partitioned(self, relation: Relation) -> PartitionedTable:
        """Return a partitioned table as this transaction's catalog defines it."""
        if self._partitioned[0] != self._catalog.generation:
            self._partitioned = self._catalog.generation, {}
        known = self._partitioned[1]
        table = known.get(relation.oid)
        if table is None or table.root != relation:
            table = known[relation.oid] = PartitionedTable(self, relation)
        return table

    def leaves(self, relation: Relation) -> Sequence[Relation]:
        """Return a table, or the leaves of a relation that has them."""
        return self.partitioned(relation).leaves if relation.has_leaves else (relation,)

    def state(self, relation: Relation) -> TableState:
        """Return the table's state as this transaction sees it. Raise 42P01 if the table does not exist in its snapshot."""
        key = (relation.database, relation.oid)
        (self._snapshot.checked if self._snapshot.is_ignored else self._snapshot.read).add(key)
        self.write_unwritten(key, reads=True)
        return self.peek(relation)

    def peek(self, relation: Relation) -> TableState:
        """Return the state as `state` does, without noting that the table is read."""
        self._catalog.check_seen(relation)
        key = self._key_without_pending(relation)
        if self._snapshot.is_ignored and (key in self._staging.tables or key in self._delta.visible):
            return self._staging.base(key)
        if key in self._staging.seen:
            return self._staging.seen[key]
        if key in self._staging.tables:
            return self._staging.tables[key].state
        return existing(self._snapshot.shown(key), "42P01", f'relation "{relation.name}"')

    def newest(self, relation: Relation) -> TableState:
        """Return the table with all committed rows and own writes, for key lookups. The caller holds the lock or a claim."""
        key = self._key_without_pending(relation)
        self._snapshot.checked.add(key)
        return self._staging.base(key)

    def _key_without_pending(self, relation: Relation) -> Key:
        """Return the key of a table whose pending rows are written, unless the caller reads them itself (`looking_up`)."""
        assert not relation.with_children, "the rows of a table and its children are read by `leaves`"
        key = (relation.database, relation.oid)
        self.write_unwritten(key)
        if not self._looking_up and self._tables.pending.has(key):
            self._tables.lock(relation)
        return key

    @contextlib.contextmanager
    def unwritten(self, relation: Relation, write: Callable[[], None], *, only_reads: bool = False) -> Iterator[None]:
        """Within the context, call `write` before a table, or a leaf of it, is read or changed, and before a savepoint is defined.

        `only_reads`: only before it is read, by a query or to find the rows to change.
        A statement has rows that it has still to write, and calls functions that must see them. An error of `write` is raised at the end of
        the context too, without the lines that these functions have added to its context: they may have handled it.
        """
        leaves = self.leaves(relation)
        unwritten = _Unwritten(frozenset((leaf.database, leaf.oid) for leaf in leaves), write, only_reads)
        outer, self._unwritten = self._unwritten, (*self._unwritten, unwritten)
        try:
            yield
        finally:
            self._unwritten = outer
            unwritten.raise_failure()

    def write_unwritten(self, key: Key | None = None, *, reads: bool = False) -> None:
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
        return [self.state(leaf) for leaf in self.leaves(relation)]

    def newest_files(self, relation: Relation) -> list[TableState]:
        """Return the newest states, as `states` does, to estimate the size of a table. This does not count as a read of its rows."""
        keys = [(leaf.database, leaf.oid) for leaf in self.leaves(relation)]
        return [self._staging.base(key) for key in keys if key in self._staging.tables or key in self._delta.visible]

    def has_added(self, relation: Relation, before: Mapping[str, Action], files: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Return a mask of the files (URIs) whose rows this transaction has written since the table had the files `before`."""
        table, current = self._delta[relation.database, relation.oid], self.newest(relation).files
        names = {uri: table.name(uri) for uri in pc.unique(files).to_pylist()}
        added = [uri for uri, name in names.items() if name not in before and not file_action.is_kept(current[name])]
        return np.asarray(pc.is_in(files, pa.array(added, pa.string())))

    def own_files(self, relation: Relation) -> frozenset[str]:
        """Return the files (URIs) with the rows that this transaction has written to a table, or to the leaves of a partitioned one."""
        if relation.has_leaves:
            return frozenset[str]().union(*map(self.own_files, self.partitioned(relation).leaves))
        staged, table = self._staging.staged(self._key_without_pending(relation)), self.table(relation)
        files = staged.state.files.items()
        return frozenset(table.uri(name) for name, file in files if name not in staged.base.files and not file_action.is_kept(file))

    def frame(self, relation: Relation, *, in_order: bool = False) -> DataFrame:
        """Return the rows of a relation: live columns in order, in storage types; committed at statement start, and own writes.

        `in_order`: return the rows of a small table in the order in which they were written (`DeltaTable.frame`).
        """
        if relation.has_leaves:
            return self.partitioned(relation).frame()
        held = self.held(relation)
        if held is not None:
            return in_one_piece(self.spark, held, columns(relation))
        pending = self._tables.pending.of((relation.database, relation.oid))
        with self.looking_up():
            frame = self.table(relation).frame(self.state(relation), in_order=in_order)
        frame = frame.select(*[F.col(quoted(column.name)) for column in relation.columns])
        if not pending:
            return frame
        return frame.unionAll(local_frame(self.spark, pa.concat_tables(pending), columns(relation)))

    def held(self, relation: Relation) -> pa.Table | None:
        """Return a small table that has columns as an Arrow table, in the order in which the rows were written, otherwise None."""
        if not relation.columns:
            return None
        with self.looking_up():
            rows = self.table(relation).held(self.state(relation))
        if rows is None:
            return None
        pending = self._tables.pending.of((relation.database, relation.oid))
        return pa.concat_tables([rows.select([column.name for column in relation.columns]), *pending])

    def shown(self, relation: Relation) -> tuple[TableState, list[pa.Table]]:
        """Return the table's state and its pending rows as this statement sees them, for callers that look up rows themselves."""
        with self.looking_up():
            return self.state(relation), self._tables.pending.of((relation.database, relation.oid))

    @contextlib.contextmanager
    def looking_up(self) -> Iterator[None]:
        """Within the context, a table's `state` omits this transaction's pending rows, and does not write them to the table."""
        previous, self._looking_up = self._looking_up, True
        try:
            yield
        finally:
            self._looking_up = previous

    def statement_view(self) -> StatementView:
        staging, visible = self._staging, self._delta.visible
        pending = self._tables.pending.all()
        return StatementView(self._snapshot.states, visible, dict(staging.tables), dict(staging.seen), pending, len(staging.writes))

    def own_writes(self, relation: Relation, since: int) -> list[tuple[TableWrite, pa.Table | None]]:
        """Return the transaction's writes to a table from write `since` on, each with its change rows if it has no files yet."""
        writes = [write for write in self._staging.writes[since:] if write.relation == relation.oid]
        return [(write, self._staging.held.rows(write.seq)) for write in writes]

    def changing(self, relation: Relation, *, keeps_keys: bool = False) -> TableState:
        """Acquire the table's write lock and return its state, for callers that look up the rows that they then `rewrite`."""
        self._tables.lock(relation, beside_claims=keeps_keys)
        return self.state(relation)

    def first_rows(self, relation: Relation, most: int) -> pa.Table:
        """Return at least `most` rows of a table with columns, or all rows if it has fewer: the first written, as far as order is kept."""
        state, pending = self.shown(relation)
        rows = self.table(relation).first_rows(state, most).select([column.name for column in relation.columns])
        return rows if rows.num_rows >= most else pa.concat_tables([rows, *pending])

    def pieces(self, relation: Relation, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns of all rows, in the order in which they were written. Not for a partitioned table."""
        state, pending = self.shown(relation)
        added = [batch for table in pending for batch in table.select(names).to_batches()]
        return itertools.chain(self.table(relation).pieces(state, names), added)

    def positions(self, relation: Relation, *, keeps_keys: bool = False) -> DataFrame:
        """Return the frame with the position of each row for `rewrite`: FILE string (URI), ROW bigint. Acquires the table's write lock.

        `keeps_keys`: no row will get another unique key, so this does not wait for transactions that are about to add rows.
        """
        if relation.has_leaves:
            return self.partitioned(relation).positions(keeps_keys=keeps_keys)
        if (held := self.held_positions(relation, keeps_keys=keeps_keys)) is not None:
            return in_one_piece(self.spark, held, StructType([*columns(relation).fields, *PLACE.fields]))
        frame = self.table(relation).frame(self.state(relation), positions=True, in_order=True)
        return frame.select(*[F.col(quoted(column.name)) for column in relation.columns], FILE, ROW)

    def held_positions(self, relation: Relation, *, keeps_keys: bool = False) -> pa.Table | None:
        """Acquire the table's write lock. Return a small table with its positions as an Arrow table, None if the table is large."""
        self._tables.lock(relation, beside_claims=keeps_keys)
        rows = self.table(relation).held(self.state(relation), positions=True)
        return None if rows is None else rows.select([*[column.name for column in relation.columns], FILE, ROW])

    def refuse_changed(self, relation: Relation) -> None:
        """Raise 40001 if any row of the table has changed since the REPEATABLE READ snapshot. The caller holds the lock."""
        key = (relation.database, relation.oid)
        shown, base = self._snapshot.states.get(key) if self._snapshot.is_fixed else None, self._staging.staged(key).base
        if shown is None or shown.state is base:
            return
        current = base.files
        for path, file in shown.state.files.items():
            if path not in current or current[path].get("deletionVector") != file.get("deletionVector"):
                raise PostgresError("40001", "could not serialize access due to concurrent update")

    def refuse_unseen(self, relation: Relation, files: pa.ChunkedArray) -> None:
        """Raise 40001 if the REPEATABLE READ snapshot does not show rows in these files (URIs). The caller holds the lock."""
        key = (relation.database, relation.oid)
        write.refuse_unseen(self._delta[key], self._staging.seen_state(key), files)
