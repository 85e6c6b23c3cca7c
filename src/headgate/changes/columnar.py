"""Replays changes that give no row another key, column by column: the exact meaning of `replay`, without a step per change.

If no UPDATE changes a key, the result for one key depends only on the changes of this key. The last INSERT or DELETE before a change
says whether the row exists at that point (if there is none: whether it is stored). The last one of all says whether the row remains, and
the last INSERT or UPDATE gives its values. So the changes are grouped by key with one stable sort, and running maxima give the answers.
Called by `net`.

Traced: stored {1: a}; U 1→b, D 1, I 1→c, U 2→x: key 1 is stored, deleted, inserted again and ends as c: an UPDATE of the stored row;
key 2 does not exist: skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    encoded = bits(column).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def bits(column: pa.Array) -> pa.Array:
    """Return a canonical key column in a form in which Arrow finds equal values equal: all NaNs are the same."""
    if not pa.types.is_floating(column.type):
        return column
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(np.nan, column.type), column)
    return one_nan.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


def replay(ops: npt.NDArray[np.uint8], codes: Numbers, stored_at: Numbers) -> Outcome:
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
