"""Applies changes of a table with triggers that are enabled as REPLICA or ALWAYS (manual, 31.9): each change fires its triggers, in order.

Called by the applier. The triggers of a change must see the earlier changes, so such a batch is not netted. A part of it holds one
change, or several changes of one kind to different rows if the triggers cannot see the effects of these changes. The caller must merge a
part, and call the functions in `behind`, before it requests the next part. A change whose row does not exist fires no trigger. Of statement
triggers, only those of TRUNCATE fire.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup
from headgate.changes.keyed_batch import KeyedBatch, in_order
from headgate.changes.lookup import RowKey
from headgate.storage.partitioned import rows_of
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows.row_completion import Factory
from headgate.types import buffers

MOST_TOGETHER = 10_000
"""The maximum number of changes in a part."""
_EVENTS = {"I": triggers.INSERT, "U": triggers.UPDATE, "D": triggers.DELETE}
Calls = Sequence[Callable[[], None]]
Group = TypeVar("Group", bound=Hashable)


class FiringTriggers(Protocol):
    """The triggers of a table that fire for a worker. The layer above makes it."""

    def before_insert(self, rows: pa.Table, write: Callable[[pa.Table], None] | None = None) -> tuple[pa.Table, list[int]]:
        """Fire BEFORE INSERT. Return the rows as the triggers change them, and their indexes among the given rows.

        With `write`, a trigger that reads the table sees the rows before its own: they are written then, and not returned.
        """

    def before_update(self, changed: pa.Table, columns: set[str] | None) -> pa.Table:
        """Fire BEFORE UPDATE.

        Return the changes (`old`, `new`, and other columns) as the triggers change them, without those they suppress.
        """

    def before_delete(self, changed: pa.Table) -> pa.Table:
        """Fire BEFORE DELETE. Return the changes without those that the triggers suppress."""

    def after(self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None) -> list[Callable[[], None]]:
        """Return the functions to call after the rows are written."""

    def statement(self, event: int, *, before: bool, columns: set[str] | None = None) -> None: ...

    def is_independent(self, event: int) -> bool:
        """Return whether the row triggers of an event would do the same if the event's earlier rows were not yet written."""

    def used(self) -> set[int] | None:
        """Return the tables that the row triggers read or change, or None if they may be any tables."""

    def collects(self, event: int) -> bool:
        """Return whether the rows of an event are kept in transition tables."""

    def close(self) -> None:
        """Remove the stored rows of transition tables."""

    def settle(self) -> None:
        """Call the functions of all triggers that the transaction has deferred."""

    def committed(self) -> None:
        """Deliver the notifications of trigger functions to sessions. Called after the transaction has committed."""


class TriggerFactory(Protocol):
    """Returns the triggers of a table that fire, or None if none do."""

    def __call__(self, transaction: Transaction, relation: Relation, *, collects: bool = False) -> FiringTriggers | None:
        """See the class. `collects`: the object serves one statement, and keeps the rows of transition tables."""


@dataclass(frozen=True)
class Part:
    """Changes to merge. Call the functions in `behind` after the merge."""

    frame: pa.Table
    behind: Calls


@dataclass(frozen=True)
class TriggeredTable:
    """A table with triggers, inside a transaction of its applier."""

    transaction: Transaction
    relation: Relation
    attnums: tuple[int, ...] | None
    """The attnums of the key. None if all columns identify a row."""
    firing: FiringTriggers
    rows: Factory | None

    def parts(self, frame: pa.Table) -> Iterator[Part]:
        """Yield the changes in order, after firing their BEFORE triggers."""
        self.transaction.lock(self.relation)
        frame = in_order(frame)
        key = lookup.identifying(self.relation, self.attnums)
        for first, end in self._runs(frame, key):
            part = frame.slice(first, end - first).combine_chunks()
            op = part["op"][0].as_py()
            if op == "T":
                self.firing.statement(triggers.TRUNCATE, before=True)
                yield Part(part, [lambda: self.firing.statement(triggers.TRUNCATE, before=False)])
            elif op == "I":
                yield self._insert(part)
            else:
                yield from self._change(part, op, key)

    def _runs(self, frame: pa.Table, key: RowKey) -> Iterator[tuple[int, int]]:
        """Yield the first index and the end index of each part."""
        ops = frame["op"].to_pylist()
        batch = KeyedBatch.of(self.relation, key, frame)
        steps = [{row_key for row_key in (old, new) if row_key is not None} for _, old, new in batch.steps()]
        together = {op: self.attnums is not None and self.firing.is_independent(event) for op, event in _EVENTS.items()}
        first, seen = 0, set[Hashable]()
        for index, op in enumerate(ops):
            alone = not together.get(op, False)
            if index > first and (alone or op != ops[first] or index - first >= MOST_TOGETHER or seen & steps[index]):
                yield first, index
                first, seen = index, set[Hashable]()
            seen |= steps[index]
        if ops:
            yield first, len(ops)

    def _insert(self, part: pa.Table) -> Part:
        rows, places = self.firing.before_insert(rows_of(buffers.whole(part["new"])))
        if self.rows is not None and rows.num_rows:
            rows = self.rows(self.transaction, self.relation).checked(rows)
        return Part(_with_new(part.take(pa.array(places, pa.int64())), rows), self.firing.after(triggers.INSERT, None, rows))

    def _change(self, part: pa.Table, op: str, key: RowKey) -> Iterator[Part]:
        """Yield UPDATEs or DELETEs, first those whose row does not exist."""
        batch = KeyedBatch.of(self.relation, key, part)
        places, stored = self._stored_rows(batch, key)
        lacking = np.setdiff1d(np.arange(part.num_rows), places)
        if len(lacking):
            yield Part(part.take(pa.array(lacking)), [])
        if not len(places):
            return
        frame = part.take(pa.array(places)).combine_chunks()
        changed = pa.table({"old": stored["old"], "place": pa.array(range(len(places)))})
        if op == "D":
            left = self.firing.before_delete(changed)
            behind = self.firing.after(triggers.DELETE, rows_of(buffers.whole(left["old"])), None) if left.num_rows else []
            yield Part(frame.take(left["place"]), behind)
            return
        new, unsent = self._whole(frame, buffers.whole(stored["old"]))
        sent = {column.name for column in self.relation.columns} - unsent
        left = self.firing.before_update(changed.append_column("new", new), sent)
        rows = rows_of(buffers.whole(left["new"])) if left.num_rows else None
        if rows is None:
            return
        behind = self.firing.after(triggers.UPDATE, rows_of(buffers.whole(left["old"])), rows, sent)
        yield Part(_with_new(frame.take(left["place"]), rows), behind)

    def _stored_rows(self, batch: KeyedBatch, key: RowKey) -> tuple[NDArray[np.int64], pa.Table]:
        """Return the indexes of the changes that have a stored row, in order, and these rows."""
        names = [f"k{place}" for place in range(len(key.names))]
        had = batch.old.is_valid()
        columns = [pc.if_else(had, old, new) for old, new in zip(batch.old_keys, batch.new_keys, strict=True)]
        rows = lookup.find(self.transaction, self.relation, key, pa.table(columns, names=names))
        # no two changes have the same key; of several equal rows that REPLICA IDENTITY FULL finds, any may be used
        places, firsts = np.unique(rows["i"].to_numpy(), return_index=True)
        return places, rows.take(pa.array(firsts))

    def _whole(self, frame: pa.Table, stored: pa.StructArray) -> tuple[pa.StructArray, set[str]]:
        """Return the new rows with stored values in the columns that were not sent, and the names of the columns that no change sent."""
        new = buffers.whole(frame["new"])
        if "unchanged" not in frame.column_names or not pc.sum(pc.list_value_length(frame["unchanged"])).as_py():
            if new.type == stored.type:
                return new, set()
            lists: list[list[str] | None] = [None] * frame.num_rows
        else:
            lists = frame["unchanged"].to_pylist()
        sent_names, fields, schema = {field.name for field in new.type}, [], stored.type
        for field in schema:
            if field.name not in sent_names:
                fields.append(stored.field(field.name))
                continue
            unsent = pa.array([field.name in (names or ()) for names in lists], pa.bool_())
            value = new.field(field.name).cast(field.type)
            fields.append(pc.if_else(unsent, stored.field(field.name), value) if pc.any(unsent).as_py() else value)
        never_sent = set.intersection(*[set(names or ()) for names in lists]) if lists else set()
        return pa.StructArray.from_arrays(fields, fields=list(schema)), never_sent


def runs(frames: Mapping[Group, pa.Table]) -> Iterator[tuple[Group, pa.Table]]:
    """Yield the changes in several frames in the order of the stream, as runs of changes from one frame."""
    if not frames:
        return
    ordered = [(group, in_order(frame)) for group, frame in frames.items()]
    numbers = np.concatenate([np.full(frame.num_rows, number, np.int64) for number, (_, frame) in enumerate(ordered)])
    lsn, seq = (np.concatenate([frame[name].to_numpy() for _, frame in ordered]) for name in ("commit_lsn", "seq"))
    numbers = numbers[np.lexsort((seq, lsn))]
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    yielded = [0] * len(ordered)
    for first, end in itertools.pairwise(starts):
        number, count = int(numbers[first]), end - first
        group, frame = ordered[number]
        yield group, frame.slice(yielded[number], count)
        yielded[number] += count


def _with_new(frame: pa.Table, rows: pa.Table) -> pa.Table:
    """Return the changes frame with other new rows, which are complete."""
    kind = frame.schema.field("new").type
    columns = {name: buffers.whole(rows[name]) for name in rows.column_names}
    structs = pa.StructArray.from_arrays([columns[field.name].cast(field.type) for field in kind], fields=list(kind))
    frame = frame.set_column(frame.column_names.index("new"), "new", structs)
    if "unchanged" not in frame.column_names:
        return frame
    position = frame.column_names.index("unchanged")
    return frame.set_column(position, "unchanged", pa.nulls(frame.num_rows, frame.schema.field(position).type))
