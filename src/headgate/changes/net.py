"""Computes the net effect of a batch of changes on one table, column by column. The driver and tasks run this same kernel.

    split_moves   an UPDATE that gives its row another key becomes a DELETE (`d`) and an INSERT (`i`), which may go to different partitions
    partitions    the partition of each change, by a hash of its key: all changes of one key are in one partition
    net           the rows that change, from the ordered changes of some keys and the stored rows with these keys

It depends on Arrow only, and on a function that finds stored rows by their keys (`lookup.find`, `lookup.find_in`). `net` returns None for
a batch whose meaning depends on more than one key at a time: an UPDATE that moves a row does nothing if the row does not exist, and a moved
row keeps the values that were not sent. Such a batch is replayed change by change (`replay`), which only the driver does.

`replay_columns` has the exact meaning of `replay`, without a step per change, for changes that give no row another key. Then the result
for one key depends only on the changes of this key. The last INSERT or DELETE before a change says whether the row exists at that point (if
there is none: whether it is stored). The last one of all says whether the row remains, and the last INSERT or UPDATE gives its values. So
the changes are grouped by key with one stable sort, and running maxima give the answers.

Traced: stored {1: a}; U 1→b, D 1, I 1→c, U 2→x: key 1 is stored, deleted, inserted again and ends as c: an UPDATE of the stored row;
key 2 does not exist: skipped.

Called by `merge` (driver) and `tasks` (Spark).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup
from headgate.changes.keyed_batch import has_unsent, whole_rows
from headgate.changes.lookup import RowKey
from headgate.types import buffers

Numbers = npt.NDArray[np.int64]
INSERT, UPDATE, DELETE = ord("I"), ord("U"), ord("D")


@dataclass(frozen=True)
class KeyNumbers:
    """The key of each change as a number, and the distinct keys by number (columns k0, k1…)."""

    codes: Numbers
    distinct: pa.Table


@dataclass(frozen=True)
class Outcome:
    """The changed rows: index of the stored row (-1: new) and of the change with the last state (-1: deleted).

    `skipped`: the changes whose row does not exist. `conflict`: the first INSERT of an existing key. The other fields are then not valid.
    """

    stored: Numbers
    latest: Numbers
    skipped: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    conflict: int | None = None

    @property
    def missing(self) -> int:
        return len(self.skipped)


def keys_of(columns: Sequence[pa.Array]) -> KeyNumbers:
    """Number the keys of canonical key columns in the order in which they first occur. There is at least one column."""
    codes, _ = _numbered(columns[0])
    for column in columns[1:]:
        more, width = _numbered(column)
        codes, _ = _numbered(pa.array(codes * max(width, 1) + more))
    highest = np.maximum.accumulate(np.append(-1, codes))
    at = pa.array(np.flatnonzero(codes > highest[:-1]))
    return KeyNumbers(codes, pa.table([c.take(at) for c in columns], names=[f"k{i}" for i in range(len(columns))]))


def _numbered(column: pa.Array) -> tuple[Numbers, int]:
    """Return the number of each value in the order in which they first occur, and how many distinct values there are."""
    encoded = lookup.bits(column).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def replay_columns(ops: npt.NDArray[np.uint8], codes: Numbers, stored_at: Numbers) -> Outcome:
    """Return the result of changes in order. `stored_at[code]` is the index of the stored row with a key, or -1."""
    count = len(ops)
    order = np.argsort(codes, kind="stable")
    code, op, place = codes[order], ops[order], np.arange(count)
    begins = np.append(True, code[1:] != code[:-1])
    start = np.maximum.accumulate(np.where(begins, place, 0))
    event = np.maximum.accumulate(np.where(op != UPDATE, place, -1))
    before = np.append(-1, event[:-1])
    is_stored = stored_at[code] >= 0
    there = np.where(before >= start, op[before] == INSERT, is_stored)
    wrong = (op == INSERT) & there
    if wrong.any():
        return Outcome(place, place, conflict=int(order[wrong].min()))
    ends = np.flatnonzero(np.append(begins[1:], True))
    last = event[ends]
    alive = np.where(last >= start[ends], op[last] == INSERT, is_stored[ends])
    version = np.maximum.accumulate(np.where(op != DELETE, place, -1))[ends]
    held = stored_at[code[ends]]
    places = np.flatnonzero(alive | (held >= 0))
    places = places[np.argsort(order[ends[places]], kind="stable")]  # as the batch had them
    latest = np.where(alive, order[version], -1)
    return Outcome(held[places], latest[places], np.sort(order[(op != INSERT) & ~there]))


def last_sent(ops: npt.NDArray[np.uint8], codes: Numbers, unsent: npt.NDArray[np.bool_], latest: Numbers) -> Numbers:
    """Return, for each last change (`Outcome.latest`), the change that last sent a column's value. -1: none, the stored value remains.

    An INSERT sends every column, so no change before it is found. If the row does not exist afterwards, the value has no meaning.
    """
    order = np.argsort(codes, kind="stable")
    code, place = codes[order], np.arange(len(ops))
    start = np.maximum.accumulate(np.where(np.append(True, code[1:] != code[:-1]), place, 0))
    sends = (ops != DELETE) & (~unsent | (ops == INSERT))
    senders = np.maximum.accumulate(np.where(sends[order], place, -1))
    sorted_at = np.empty(len(ops), np.int64)
    sorted_at[order] = place
    at = sorted_at[np.maximum(latest, 0)]
    return np.where((latest >= 0) & (senders[at] >= start[at]), order[np.maximum(senders[at], 0)], -1)


Find = Callable[[pa.Table], pa.Table | None]
"""Returns the stored rows with some keys like `lookup.find`, or None if they are too many."""
HALVES = {ord("d"): DELETE, ord("i"): INSERT}
"""The operations of the two halves of an UPDATE that gives its row another key."""
Ops = NDArray[np.uint8]


@dataclass(frozen=True)
class Netted:
    """The rows that change, in the form of `Transaction.rewrite`. `skipped`: the indexes of changes whose row does not exist.

    `conflict`: the index of the first change that makes a row with an existing key. The other fields are then not valid.
    """

    changed: pa.Table
    skipped: Numbers
    conflict: int | None = None


def ops_of(changes: pa.Table) -> Ops:
    distinct = pc.unique(changes["op"])
    codes = np.frombuffer("".join(distinct.to_pylist()).encode(), np.uint8)
    return codes[buffers.whole(pc.index_in(changes["op"], distinct)).to_numpy()] if len(codes) else codes


def split_moves(relation: Relation, key: RowKey, changes: pa.Table) -> pa.Table:
    """Replace each UPDATE that changes its key by its halves, `d` directly before `i`."""
    ops = ops_of(changes)
    at = np.flatnonzero((ops == UPDATE) & np.asarray(changes["old"].is_valid()))
    if not len(at):
        return changes
    updates = changes.take(pa.array(at))
    old, new = _keys(relation, key, updates, "old"), _keys(relation, key, updates, "new")
    same = np.logical_and.reduce([np.asarray(pc.fill_null(pc.equal(o, n), False)) for o, n in zip(old, new, strict=True)])
    if same.all():
        return changes
    moved = np.zeros(len(ops), np.int64)
    moved[at[~same]] = 1
    index = np.repeat(np.arange(len(ops)), 1 + moved)
    is_second = np.append(False, index[1:] == index[:-1])
    is_first = np.append(is_second[1:], False)
    codes = np.where(is_second, ord("i"), np.where(is_first, ord("d"), ops[index])).astype(np.uint8)
    halves = changes.take(pa.array(index))
    return halves.set_column(halves.column_names.index("op"), "op", pc.take(pa.array(["d", "i", "I", "U", "D"]), pa.array(_LETTERS[codes])))


_LETTERS = np.zeros(256, np.int64)
_LETTERS[[ord(letter) for letter in "diIUD"]] = range(5)


def _keys(relation: Relation, key: RowKey, changes: pa.Table, side: str) -> list[pa.Array]:
    return key.arrays(whole_rows(relation, buffers.whole(changes[side])))


def named_keys(relation: Relation, key: RowKey, changes: pa.Table) -> list[pa.Array]:
    """Return the canonical key under which each change finds or leaves its row."""
    deleted = pa.array(np.isin(ops_of(changes), (ord("d"), DELETE)))
    old, new = _keys(relation, key, changes, "old"), _keys(relation, key, changes, "new")
    return [pc.if_else(deleted, o, n) for o, n in zip(old, new, strict=True)]


def partitions(relation: Relation, key: RowKey, changes: pa.Table, count: int) -> Numbers:
    """Return the partition of each change. Moves must be split."""
    if count == 1 or not changes.num_rows:
        return np.zeros(changes.num_rows, np.int64)
    return (lookup.hashes(named_keys(relation, key, changes)) % np.uint64(count)).astype(np.int64)


def net(relation: Relation, key: RowKey, changes: pa.Table, find: Find) -> Netted | None:
    """Net ordered changes, without TRUNCATE, with split moves. Return None if the result depends on several keys at a time."""
    codes = ops_of(changes)
    halves = np.isin(codes, [*HALVES])
    ops = codes.copy()
    for half, op in HALVES.items():
        ops[codes == half] = op
    if not key.names or not set(np.flatnonzero(np.bincount(ops)).tolist()) <= {INSERT, UPDATE, DELETE}:
        return None
    unsent = _unsent(changes["unchanged"]) if has_unsent(changes) else {}
    if any((mask & (codes == ord("i"))).any() for mask in unsent.values()):
        return None  # the values are those of the row under its other key
    named = keys_of(named_keys(relation, key, changes))
    matches = find(named.distinct)
    if matches is None:
        return None
    at = matches["i"].to_numpy()
    stored_at = np.full(named.distinct.num_rows, -1, np.int64)
    stored_at[at] = np.arange(len(at))
    if int((stored_at >= 0).sum()) != len(at):  # several rows with one key
        return None
    done = replay_columns(ops, named.codes, stored_at)
    if halves.any() and (done.conflict is not None or halves[done.skipped].any()):
        return None  # whether a row is there under one key depends on what is there under another
    if done.conflict is not None:
        return Netted(matches.schema.empty_table(), done.skipped, done.conflict)
    new = whole_rows(relation, buffers.whole(changes["new"]))
    held = {name: _at(buffers.whole(matches[name]), done.stored) for name in ("old", "file", "row")}
    last = _at(new, done.latest)
    if unsent:
        last = _with_unsent(last, new, held["old"], unsent, ops, named.codes, done)
    return Netted(pa.table({"old": held["old"], "new": last, "file": held["file"], "row": held["row"]}), done.skipped)


def _at(values: pa.Array, places: Numbers) -> pa.Array:
    """Return the values at these places, NULL at -1. Values that are in order already are not copied."""
    if np.array_equal(places, np.arange(len(values))):
        return values
    return values.take(pa.array(places, mask=places < 0))


def _unsent(lists: pa.ChunkedArray) -> dict[str, NDArray[np.bool_]]:
    """Return, for each column that some change did not send, the changes that did not send it."""
    whole = buffers.whole(lists)
    names, parents = whole.flatten(), pc.list_parent_indices(whole).to_numpy()
    masks = {}
    for name in pc.unique(names).to_pylist():
        mask = np.zeros(len(whole), np.bool_)
        mask[parents[np.asarray(pc.equal(names, name))]] = True
        masks[name] = mask
    return masks


def _with_unsent(
    last: pa.StructArray,
    new: pa.StructArray,
    stored: pa.StructArray,
    unsent: dict[str, NDArray[np.bool_]],
    ops: Ops,
    codes: Numbers,
    done: Outcome,
) -> pa.StructArray:
    """Return the last states with unsent values filled in: from an earlier change of the row, else from the stored row."""
    fields = []
    for column in last.type:
        mask = unsent.get(column.name)
        if mask is None:
            fields.append(last.field(column.name))
            continue
        at, held = last_sent(ops, codes, mask, done.latest), stored.field(column.name).cast(column.type)
        if bool((at < 0).all()):
            fields.append(held)
            continue
        fields.append(pc.if_else(pa.array(at >= 0), _at(new.field(column.name), at), held))
    return pa.StructArray.from_arrays(fields, fields=list(last.type), mask=last.is_null())
