"""Checks constraints and computes generated columns for the new rows of UPDATEs, on the complete row of each change.

If an UPDATE sent some of the columns that an expression reads and did not send others (an unchanged TOAST value, a column that only the
subscriber has), the row is looked up (`changes.row_history`). If it sent none of them, the constraint is not checked again and a
generated column keeps its stored value, as in PostgreSQL. Changes whose row does not exist are not checked if rows are looked up.

Called by the applier before it merges a batch, with the relation whose key finds the rows: the table, or a leaf of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.catalog.relation.relation import Relation
from headgate.changes.keyed_batch import has_unsent, in_order
from headgate.changes.row_history import RowHistory
from headgate.expression.spark import domain
from headgate.storage.partitioned import Fence, rows_of
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows import leaf_constraints
from headgate.subscriber.rows.conflict import MESSAGES, ApplyPlace
from headgate.subscriber.rows.row_completion import Columns, Factory, columns_of, judged
from headgate.types import buffers

Key = tuple[int, ...] | None
Skip = Callable[[Relation, pa.Table], None]
"""Receives the changes of a table whose row does not exist."""
HISTORY_CHANGES = 20_000
"""The number of changes whose rows are looked up at a time. The changes before them are then already in the table."""
UNSENT_BYTES = 64 << 20
"""The maximum number of bytes of unsent values in memory at a time."""


@dataclass(frozen=True)
class Lacking:
    """The UPDATEs of a batch that did not send these columns."""

    columns: Columns
    places: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reads:
    """The columns that the generated columns, CHECK constraints and partition bounds of a table and its leaves read."""

    expressions: tuple[Columns, ...]
    bounds: Columns
    route: Columns
    """The partition columns, if leaves have constraints of their own."""
    domains: bool
    """Whether a column's type is a domain with constraints."""

    @classmethod
    def of(cls, transaction: Transaction, local: Relation) -> Reads:
        """Return the columns for a relation that is written to by name."""
        leaves = leaf_constraints.further(transaction, local)
        generated = [columns_of(column.generated, local) for column in local.columns if column.generated is not None]
        checks = [columns_of(check.expression, table) for table in (local, *leaves) for check in table.checks]
        bounds = frozenset(Fence(transaction.cursor, local).names) if local.parent else frozenset[str]()
        route = frozenset(transaction.partitioned(local).router.key_names()) if leaves else frozenset[str]()
        domains = any(domain.constrained(column.type_oid) for column in local.columns)
        return cls((*generated, *checks, bounds), bounds, route, domains)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is checked or computed."""
        return not any(self.expressions) and not self.route and not self.domains

    def needed(self, unsent: Columns) -> Columns:
        """Return the unsent columns that an expression needs, because it also reads columns that were sent or are needed."""
        columns = unsent & self.route
        while True:
            more = columns.union(*(read & unsent for read in self.expressions if read & unsent and not read <= unsent - columns))
            if more == columns:
                return columns
            columns = more


def completed(
    frame: pa.Table | DataFrame, local: Relation, key: Key, *, transaction: Transaction, factory: Factory | None, place: ApplyPlace,
    routed_from: Relation | None = None, skip: Skip | None = None,
) -> Iterator[pa.Table | DataFrame]:  # fmt: skip
    """Yield the changes frame with the new rows of its UPDATEs completed and checked, in parts.

    Each part must be merged before the next one is requested. Spark frames are of tables without such constraints, or are already
    complete (`reconciliation`). With `skip`, all constraints of the UPDATEs are checked here. It receives those whose row does not exist,
    which are neither checked nor yielded.
    """
    if factory is None or isinstance(frame, DataFrame):
        yield frame
        return
    reads = Reads.of(transaction, local)
    groups = _lacking(frame) if skip is not None or not reads.is_empty else []
    if not groups:
        yield frame
        return
    place.message = MESSAGES["U"]
    if skip is None and not any(_columns_to_read(reads, group, key) for group in groups):
        yield _complete_rows(frame, groups, reads, local, key, transaction, factory, routed_from)
        return
    transaction.lock(local)
    frame = in_order(frame)
    for first in range(0, frame.num_rows, HISTORY_CHANGES):
        part = frame.slice(first, HISTORY_CHANGES).combine_chunks()
        if skip is not None:
            part = _found(part, local, key, transaction, skip)
        yield _complete_rows(part, _lacking(part), reads, local, key, transaction, factory, routed_from)


def _found(frame: pa.Table, local: Relation, key: Key, transaction: Transaction, skip: Skip) -> pa.Table:
    """Return an ordered changes frame without the UPDATEs whose row does not exist."""
    missing = RowHistory.of(transaction, local, key, frame).missing
    missing = missing[np.asarray(pc.equal(frame["op"].take(pa.array(missing)), "U"))]
    if len(missing):
        skip(local, frame.take(pa.array(missing)))
    return frame.take(pa.array(np.setdiff1d(np.arange(frame.num_rows), missing))).combine_chunks()


def _lacking(frame: pa.Table) -> list[Lacking]:
    """Return the UPDATEs of a changes frame, by the columns that they did not send."""
    updates = np.flatnonzero(np.asarray(pc.equal(frame["op"], "U")))
    if not len(updates):
        return []
    if not has_unsent(frame):
        return [Lacking(frozenset(), updates)]
    joined = pc.fill_null(pc.binary_join(frame["unchanged"].take(pa.array(updates)), "\0"), "")
    texts = buffers.whole(joined).dictionary_encode()
    codes = texts.indices.to_numpy()
    names = [frozenset(text.split("\0")) - {""} for text in texts.dictionary.to_pylist()]
    return [Lacking(columns, updates[codes == code]) for code, columns in enumerate(names)]


def _columns_to_read(reads: Reads, group: Lacking, key: Key) -> Columns:
    """Return the columns that must be looked up.

    Without a key there are none: the old row has all values (NULL in the subscriber's own columns).
    """
    return frozenset() if key is None else reads.needed(group.columns)


def _complete_rows(
    frame: pa.Table, groups: list[Lacking], reads: Reads, local: Relation, key: Key, transaction: Transaction, factory: Factory,
    routed_from: Relation | None,
) -> pa.Table:  # fmt: skip
    done: list[tuple[npt.NDArray[np.int64], pa.Table]] = []
    unchanged: list[tuple[npt.NDArray[np.int64], Columns]] = []
    history: RowHistory | None = None
    for group in groups:
        needed = _columns_to_read(reads, group, key)
        unsent = frozenset[str]() if key is None else group.columns - needed
        relation, stored = judged(local, unsent, group.columns)
        if reads.bounds and reads.bounds <= unsent:
            relation = replace(relation, parent=0)  # the row stays where it is
        unchanged.append((group.places, (frozenset() if key is None else group.columns) | stored))
        slices: Iterator[npt.NDArray[np.int64]] = iter([group.places])
        if needed and key is not None:
            history = history or RowHistory.of(transaction, local, key, frame)
            slices = history.slices(group.places[history.row[group.places] >= 0], needed, UNSENT_BYTES)
        for places in slices:
            rows = _rows(frame, places, needed, history)
            rows = factory(transaction, relation, routed_from).checked(rows)
            leaf_constraints.check_rows(rows, local, transaction, factory, unsent, group.columns)
            done.append((places, rows.select([column.name for column in relation.columns if column.generated is not None])))
    return _with_columns(frame, done, unchanged)


def _rows(frame: pa.Table, places: npt.NDArray[np.int64], needed: Columns, history: RowHistory | None) -> pa.Table:
    rows = rows_of(buffers.whole(frame["new"]).take(pa.array(places)))
    if history is not None:
        for name in needed:
            at = rows.column_names.index(name)
            rows = rows.set_column(at, rows.schema.field(at), history.values(name, places))
    return rows


def _with_columns(
    frame: pa.Table, done: list[tuple[npt.NDArray[np.int64], pa.Table]], unchanged: list[tuple[npt.NDArray[np.int64], Columns]]
) -> pa.Table:
    """Return the frame with generated columns, and with the columns that each UPDATE leaves unchanged."""
    new = buffers.whole(frame["new"])
    fields = []
    for field in new.type:
        values = buffers.field(new, field.name)
        parts = [(places, rows[field.name]) for places, rows in done if field.name in rows.column_names]
        if parts:
            at = np.full(frame.num_rows, -1, np.int64)
            at[np.concatenate([places for places, _ in parts])] = np.arange(sum(len(places) for places, _ in parts))
            computed = pa.chunked_array([chunk for _, column in parts for chunk in column.cast(field.type).chunks], field.type)
            values = pc.if_else(pa.array(at >= 0), buffers.whole(computed.take(pa.array(at, mask=at < 0))), values)
        fields.append(values)
    structs = pa.StructArray.from_arrays(fields, fields=list(new.type), mask=new.is_null()) if fields else new
    frame = frame.set_column(frame.column_names.index("new"), "new", structs)
    codes = np.full(frame.num_rows, -1, np.int64)
    for code, (places, _) in enumerate(unchanged):
        codes[places] = code
    lists = pa.array([sorted(columns) or None for _, columns in unchanged], pa.list_(pa.string()))
    return frame.set_column(frame.column_names.index("unchanged"), "unchanged", lists.take(pa.array(codes, mask=codes < 0)))
