"""Computes the complete new row of each UPDATE of a batch, including the values that the publisher did not send.

A value that was not sent (an unchanged TOAST value, a column that only the subscriber has) is the one that the last change of the same
row sent, or else the stored row's. `merge` needs this for the last state of each row only, and resolves it by itself. Constraints and
generated columns depend on every state: `subscriber.rows.row_completion` requests the columns that they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup, net
from headgate.changes.keyed_batch import KeyedBatch
from headgate.changes.replay import keys, listed, replay
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowHistory:
    """The rows that the changes of a batch make. `row` is the number of each change's row: a stored one if below `len(stored)`.

    -1: none. `missing`: the UPDATEs and DELETEs whose row does not exist.
    """

    changes: pa.Table
    stored: pa.StructArray
    row: Numbers
    missing: Numbers

    @classmethod
    def of(cls, transaction: Transaction, relation: Relation, attnums: tuple[int, ...] | None, changes: pa.Table) -> RowHistory:
        """Return the history of an ordered batch of a locked table. `attnums` are the columns of the key, as for `merge`."""
        key = lookup.identifying(relation, attnums)
        truncates = np.flatnonzero(np.asarray(pc.equal(changes["op"], "T")))
        before = changes.slice(0, int(truncates[0]) if len(truncates) else changes.num_rows)
        matches = lookup.find(transaction, relation, key, KeyedBatch.of(relation, key, before).wanted())
        stored = buffers.whole(matches["old"])
        named = keys([listed(column) for column in key.arrays(stored)], len(stored))
        done = replay(named, KeyedBatch.of(relation, key, changes).steps(), many=attnums is None)
        row = np.full(changes.num_rows, -1, np.int64)
        row[: len(done.rows)] = done.rows
        return cls(changes, stored, row, np.array(done.skipped, np.int64))

    def values(self, name: str, places: Numbers) -> pa.Array:
        sent_at, new = self._sent_at(name)[places], buffers.field(buffers.whole(self.changes["new"]), name)
        row = self.row[places]
        stored_at = pa.array(row, mask=(row < 0) | (row >= len(self.stored)))
        stored = buffers.field(self.stored, name).take(stored_at).cast(new.type)
        return pc.if_else(pa.array(sent_at >= 0), new.take(pa.array(sent_at, mask=sent_at < 0)), stored)

    def slices(self, places: Numbers, names: Iterable[str], size: int) -> Iterator[Numbers]:
        """Split changes into slices whose values of some columns have about the same number of bytes."""
        bytes_of = np.full(len(places), 8, np.int64)
        for name in names:
            bytes_of += self._lengths(name)[places]
        ends = np.cumsum(bytes_of)
        return iter(np.split(places, np.flatnonzero(np.diff(ends // size)) + 1)) if len(places) else iter(())

    def _lengths(self, name: str) -> Numbers:
        """Return the number of bytes of a column's value in the row of each change."""
        stored = buffers.field(self.stored, name)
        if not (pa.types.is_string(stored.type) or pa.types.is_binary(stored.type)):
            return np.zeros(len(self.row), np.int64)
        lengths = np.append(pc.fill_null(pc.binary_length(stored), 0).to_numpy().astype(np.int64), 0)
        return lengths[np.where((self.row >= 0) & (self.row < len(self.stored)), self.row, -1)]

    def _sent_at(self, name: str) -> Numbers:
        """Return, for each change, the change that last sent a column's value. -1: none, the stored value remains."""
        lists = self.changes["unchanged"]
        unsent = np.zeros(self.changes.num_rows, np.bool_)
        whole = buffers.whole(lists)
        parents = pc.list_parent_indices(whole).to_numpy()
        unsent[parents[np.asarray(pc.equal(whole.flatten(), name))]] = True
        return net.last_sent(self._ops, self.row, unsent, np.arange(len(unsent)))

    @cached_property
    def _ops(self) -> npt.NDArray[np.uint8]:
        """Return the operations of the changes, as bytes. A change without a row counts as one that sends nothing."""
        ops = np.frombuffer("".join(self.changes["op"].to_pylist()).encode(), np.uint8)
        return np.where(self.row < 0, net.DELETE, ops)
