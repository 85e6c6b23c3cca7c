"""Reading and writing one Delta table, partly through Delta's own transaction class.

This is the only module that uses Delta's classes in Java (`internals`: the jar is pinned). A write is one Spark job that writes files
(`OptimisticTransaction.write_files`) and one commit, a file that the driver writes (`delta_log`). If another
writer was first, Delta commits after it. Each commit has ``headgate <xid>`` as its user metadata, so that recovery can tell the node's
commits from those of other writers. The state of a table is read from the log's files: Java's heap has nothing of a table that Spark does
not read, and little of those that it reads (`internals.log_cache`).

Used by `engine` and `transaction`, and by code that reads a table's rows at a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate.errors import PostgresError
from headgate.storage.delta import alteration, array_column, checkpoint_file, delta_log, file_action, parquet, rows
from headgate.storage.delta.commit_mark import marked_with, transaction_of
from headgate.storage.delta.file_action import Action, records
from headgate.storage.delta.internals.log_cache import Delta
from headgate.storage.delta.internals.optimistic_transaction import OptimisticTransaction, is_conflict
from headgate.storage.delta.internals.table_log import Snapshot, TableLog
from headgate.storage.delta.table_folder import TableFolder
from headgate.storage.delta.table_state import TableState, advance, after, difference
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark.local_relation import in_one_piece
from headgate.types.storage import own_name

FILE, ROW = own_name("_file"), own_name("_row")
PLACE = StructType([StructField(FILE, StringType()), StructField(ROW, LongType())])
"""The position of a row: the URI of its file, and its index in the file."""
IN_ORDER_BYTES, IN_ORDER_ROWS = 4 << 20, 20_000
"""Limits of a table that is returned in order. Spark reads such a table in one task anyway, and sorts it in a few milliseconds."""

RESIDENT_ROWS, RESIDENT_FILES, RESIDENT_BYTES = 2_000, 64, 1 << 20
"""Limits of a table that the driver reads. Deleted rows count, too."""

LISTED_FILES = 100
"""Above this number of files, Delta uses their statistics to find those that may have matching rows."""


class DeltaTable(TableFolder):
    """The Delta table of one relation. It does not support concurrent writers: the engine's table lock excludes them."""

    def __init__(self, delta: Delta, path: DataPath) -> None:
        super().__init__(path, delta.raw_path(path))
        self.delta = delta
        self.has_failed = False
        """Whether a Spark job failed while it wrote, so that the folder may have files that nothing names."""

    @property
    def _log(self) -> TableLog:
        """Return Delta's object for the table, cached or new."""
        return self.delta.log(self.path)

    # reading

    def state(self, version: int | None = None) -> TableState:
        """Return the table at a version (the newest by default), read from the Delta log. Uses Spark only for features of other writers."""
        try:
            if version is None:
                version = delta_log.newest_version(self.path) or 0
            return TableState.of(version, *delta_log.read_state(self.path, version))
        except (delta_log.ForeignFeature, FileNotFoundError):
            return self._state_by_delta(version)

    def _state_by_delta(self, version: int | None) -> TableState:
        snapshot = self._log.snapshot(version)
        added = sorted(snapshot.adds(), key=lambda add: add["modificationTime"])
        files = parquet.counted(self.path, {add["path"]: add for add in added})
        return TableState.of(snapshot.version, snapshot.metadata(), snapshot.protocol(), files)

    def write_checkpoint(self, version: int) -> Callable[[], None]:
        """Write the checkpoint of a version. Return a function that writes the pointer to it, from which readers of the log start.

        Delta writes it, by a Spark job, only for a log with features of other writers.
        """
        try:
            return checkpoint_file.write(self.path, version).announce
        except delta_log.ForeignFeature:
            log = self._log
            return partial(log.announce_checkpoint, log.write_checkpoint(log.snapshot(version)))

    def frame(self, state: TableState, *, positions: bool = False, in_order: bool = False) -> DataFrame:
        """Return the rows at a version; with `positions` also FILE (URI) and ROW (index in the file).

        `in_order`: return the rows of a small table in the order in which they were written, as a heap has them. Otherwise Spark reads the
        largest file first. An UPDATE writes changed rows again, so they come last.
        """
        held = self.held(state, positions=positions)
        if held is not None:
            row = StructType([*state.schema.fields, *(PLACE.fields if positions else ())])
            return in_one_piece(self.delta.spark, held, row)
        in_order = in_order and _orderable(state)
        frame = self._rows(state, placed=positions or in_order)
        if not (positions or in_order):
            return array_column.of_files(frame, state.lists)
        place = frame.metadataColumn("_metadata")  # not by its name, which a column may have
        placed = frame.select("*", place.getField("file_path").alias(FILE), place.getField("row_index").alias(ROW))
        placed = array_column.of_files(placed, state.lists)
        if not in_order:
            return placed
        file = F.call_function("instr", F.lit(" ".join(self.uri(name) for name in state.files)), F.col(FILE))
        rows = placed.coalesce(1).sortWithinPartitions(file, ROW)
        return rows if positions else rows.drop(FILE, ROW)

    def held(self, state: TableState, *, positions: bool = False) -> pa.Table | None:
        """Return the rows of a small table in the order in which they were written, as `frame` does, or None for a larger one."""
        if not _is_resident(state):
            return None
        parts = []
        for name, part, places in rows.read(self.path, state):
            file = pa.array([self.uri(name)] * len(places), pa.string())
            parts.append(part.append_column(FILE, file).append_column(ROW, places) if positions else part)
        row = rows.schema(state)
        if positions:
            row = row.append(pa.field(FILE, pa.string())).append(pa.field(ROW, pa.int64()))
        return pa.concat_tables(parts) if parts else row.empty_table()

    def first_rows(self, state: TableState, most: int) -> pa.Table:
        """Return at least `most` rows of a table, or all if it has fewer, without reading all of its files."""
        parts, count = [], 0
        for _, part, _ in rows.read(self.path, state, most):
            parts.append(part)
            count += part.num_rows
            if count >= most:
                break
        return pa.concat_tables(parts) if parts else rows.schema(state).empty_table()

    def pieces(self, state: TableState, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns of all rows, in the order of the files. For tables of any size."""
        return rows.pieces(self.path, state, names)

    def groups(self, state: TableState) -> Iterator[rows.RowGroup]:
        """Yield all rows by the row groups of the files. Each is valid until the next. For tables of any size."""
        return rows.groups(self.path, state)

    def _rows(self, state: TableState, *, placed: bool) -> DataFrame:
        """Return the rows at a version, or with the writes staged on it.

        A table of few files is read by its known files, so that Delta need not replay the log in a Spark job. So is a `placed` table
        without deletion vectors, because Delta numbers rows only in tables that have deletion vectors.
        """
        log = self._log
        if state.staged or len(state.files) <= LISTED_FILES or (placed and not state.has_vectors):
            metadata, protocol = state.metadata, state.protocol
            if not state.has_vectors:
                altered = alteration.with_vectors(state, on=True)
                metadata, protocol = altered[0]["metaData"], altered[1]["protocol"]
            return log.rows_of(log.likeness(metadata, protocol), state.files.values())
        return log.rows_at(log.snapshot(state.version))

    # writing

    def write(self, state: TableState, frame: DataFrame) -> list[Action]:
        """Write the rows of a frame as files of the table, without committing them. Return the actions in JSON form.

        If the frame has a column `_change_type`, rows with a value go to change files and those with NULL to data files. Each file keeps
        the order of the rows of a partition; the number in ``part-nnnnn`` is the partition's.
        """
        transaction = self._start(state)
        try:
            return transaction.write_files(array_column.to_files(frame, state.lists))
        except BaseException:
            self.has_failed = True
            raise

    def deletions(self, state: TableState, positions: DataFrame, files: Iterable[str]) -> list[Action]:
        """Delete rows (columns FILE, ROW) of these files (URIs) by deletion vectors in one Spark job. Return the actions."""
        adds = self.touched(state, files)
        if not adds:
            return []
        has_vectors = any("deletionVector" in add for add in adds.values())
        transaction = self._start(state)
        deleted = transaction.deleted_rows(positions, F.col(FILE), F.col(ROW), adds.values(), have_vectors=has_vectors)
        removed, remaining = [], []
        for rows_of_file in deleted:
            add, vector = adds[self.name(rows_of_file.file)], rows_of_file.vector
            if file_action.dead(add) + rows_of_file.matched != vector["cardinality"]:
                raise PostgresError("40001", "could not serialize access due to concurrent update")
            removed.append(file_action.removal(add, data_change=True))
            if not file_action.is_emptied(add, vector["cardinality"]):
                remaining.append(file_action.marked(add, vector))
        return removed + remaining

    def stage(self, state: TableState, actions: Sequence[Action]) -> TableState:
        """Return the state with `actions` that are not committed, on which the transaction that staged them reads and writes."""
        return replace(after(state, actions), staged=state.staged + 1)

    def commit_version(self, state: TableState, actions: Sequence[Action], mark: str) -> TableState:
        """Commit actions on top of `state`. Return the state afterwards.

        If another writer was first, Delta commits after it if the two do not touch the same files. Then the version is not the one after
        `state`. Otherwise raise 40001, as always for changed columns, and after a version of the node's own. The object store has committed
        such a version after its transaction had failed without an answer; the next transaction that locks the table undoes it.
        """
        try:
            delta_log.write_version(self.path, state.version + 1, actions, mark)
        except FileExistsError as error:
            if any("metaData" in action for action in actions) or self._has_own_above(state.version):
                raise PostgresError("40001", "could not serialize access due to concurrent update") from error
            return self.state(self._commit_behind(state, actions, mark))
        return advance(state, state.version + 1, actions)

    def _has_own_above(self, version: int) -> bool:
        above = range(version + 1, (delta_log.newest_version(self.path) or version) + 1)
        marks = (marked_with(delta_log.read_version(self.path, number)) for number in above)
        return any(mark is not None and transaction_of(mark) is not None for mark in marks)

    def _commit_behind(self, state: TableState, actions: Sequence[Action], mark: str) -> int:
        """Let Delta commit after the existing versions. Return the version."""
        try:
            return self._start(state).commit(actions, mark)
        except Exception as error:
            if not is_conflict(error):
                raise
            raise PostgresError("40001", "could not serialize access due to concurrent update") from error

    def undo(self, state: TableState, to: TableState, mark: str) -> TableState:
        """Make the newest version (`state`) equal to an earlier one by inverse file actions, without change rows."""
        actions = difference(state, to)
        if state.metadata != to.metadata or state.protocol != to.protocol:
            actions = [*alteration.restored(to), *actions]
        return self.commit_version(state, actions, mark) if actions else state

    def _start(self, state: TableState) -> OptimisticTransaction:
        log = self._log
        # no version has staged columns; otherwise the snapshot is the version that the writes are staged on
        is_staged = state.altered > state.version
        snapshot: Snapshot = log.likeness(state.metadata, state.protocol) if is_staged else log.snapshot(state.version)
        return OptimisticTransaction(self.delta.handles, log, snapshot)

    def forget(self) -> None:
        """Drop Delta's cached state, because the directory may contain another table from now on."""
        self.delta.forget(self.path)

    def remove(self) -> bool:
        """Delete the table's directory, its log last: by it a start identifies a table that did not commit. Return whether it is gone."""
        self.forget()
        return data_location.remove_tree(self.path, last="_delta_log")


def _is_resident(state: TableState) -> bool:
    """Return whether the driver reads a table: it is small, counting deleted rows."""
    adds = state.files.values()
    return len(adds) <= RESIDENT_FILES and sum(add["size"] for add in adds) <= RESIDENT_BYTES and sum(map(records, adds)) <= RESIDENT_ROWS


def _orderable(state: TableState) -> bool:
    """Return whether the table has an order to keep and is small enough for that."""
    return len(state.files) >= 2 and sum(add["size"] for add in state.files.values()) <= IN_ORDER_BYTES and state.rows <= IN_ORDER_ROWS
