"""Netting a batch column by column, in any number of partitions, has the effect of applying its changes one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.storage.tables import INT8, TEXT, relation

from headgate.changes import lookup, net
from headgate.changes.keyed_batch import KeyedBatch, in_order
from headgate.changes.replay import keys, listed, replay
from headgate.storage.write import arrow_row
from headgate.types import registry

T = relation(22000, "t", id=INT8, v=TEXT)
KEY = lookup.key_of(T, [1])
ROW = pa.struct(list(arrow_row(T)))
CHANGES = st.lists(st.tuples(st.sampled_from("IUDM"), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=20)


def frame(changes: list[tuple[str, int, int]]) -> pa.Table:
    """Return a changes frame. M is an UPDATE that changes the key of its row."""
    rows: list[tuple[str, Any, Any]] = []
    for number, (op, key, to) in enumerate(changes):
        old, new = {"id": key, "v": None}, {"id": to if op == "M" else key, "v": f"v{number}"}
        rows.append(("U" if op == "M" else op, old if op in "MD" else None, None if op == "D" else new))
    count = range(len(rows))
    return pa.table({
        "commit_lsn": pa.array([0] * len(rows), pa.int64()), "seq": pa.array(count, pa.int64()), "position": pa.array([0] * len(rows), pa.int64()),
        "op": pa.array([op for op, _, _ in rows], pa.string()), "old": pa.array([old for _, old, _ in rows], ROW),
        "new": pa.array([new for _, _, new in rows], ROW), "unchanged": pa.nulls(len(rows), pa.list_(pa.string())),
    })  # fmt: skip


def finder(stored: list[int]) -> net.Find:
    """Return a finder of stored rows that are in one file, row n with the n-th key."""

    def find(wanted_keys: pa.Table) -> pa.Table:
        at = [(index, stored.index(key)) for index, key in enumerate(wanted_keys["k0"].to_pylist()) if key in stored]
        return pa.table({
            "i": pa.array([index for index, _ in at], pa.int64()), "old": pa.array([{"id": stored[row], "v": "stored"} for _, row in at], ROW),
            "file": pa.array(["f"] * len(at), pa.string()), "row": pa.array([row for _, row in at], pa.int64()),
        })  # fmt: skip

    return find


@given(stored=st.sets(st.integers(0, 4)), changes=CHANGES, count=st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_partitions_together_change_what_the_whole_batch_changes(stored: set[int], changes: list[tuple[str, int, int]], count: int) -> None:
    stored_keys, batch = sorted(stored), frame(changes)
    steps = KeyedBatch.of(T, KEY, batch)
    replayed = replay(keys([listed(pa.array(stored_keys, pa.int64()))], len(stored_keys)), steps.steps())
    split = net.split_moves(T, KEY, batch)
    at = net.partitions(T, KEY, split, count)
    parts = [net.net(T, KEY, in_order(split.filter(pa.array(at == number))), finder(stored_keys)) for number in np.unique(at)]
    if any(part is None for part in parts):
        assert any(op == "M" for op, _, _ in changes)
        return
    netted = [part for part in parts if part is not None]
    conflicts = [part.conflict for part in netted if part.conflict is not None]
    assert bool(conflicts) == (replayed.conflict is not None)
    assume(not conflicts)
    alive = {row.key: row.versions[-1] for row in [*replayed.stored, *replayed.inserted] if not row.deleted}
    changed = pa.concat_tables([part.changed for part in netted]).to_pylist()
    assert {row["new"]["id"]: row["new"]["v"] for row in changed if row["new"]} == {key: f"v{change}" for key, change in alive.items()}
    assert sorted(row["row"] for row in changed if row["old"]) == sorted(row.stored for row in replayed.stored)  # type: ignore[type-var]
    assert all(row["old"]["id"] == row["new"]["id"] for row in changed if row["old"] and row["new"])
    assert sum(len(part.skipped) for part in netted) == replayed.missing


def test_move_of_a_missing_row_is_applied_by_the_driver() -> None:
    split = net.split_moves(T, KEY, frame([("M", 1, 2)]))
    assert split["op"].to_pylist() == ["d", "i"]
    assert net.net(T, KEY, split, finder([])) is None
    assert net.net(T, KEY, split, finder([1])) is not None


def test_moved_row_with_unsent_values_is_applied_by_the_driver() -> None:
    batch = frame([("M", 1, 2)])
    batch = batch.set_column(6, "unchanged", pa.array([["v"]], pa.list_(pa.string())))
    assert net.net(T, KEY, net.split_moves(T, KEY, batch), finder([1])) is None


def test_equal_keys_of_different_forms_are_in_one_partition() -> None:
    numbers = relation(22001, "n", k=registry.NUMERIC, f=registry.FLOAT8)
    row = pa.struct(list(arrow_row(numbers)))
    values = [{"k": "1.5", "f": 0.0}, {"k": "1.50", "f": -0.0}, {"k": "2", "f": float("nan")}, {"k": "2.0", "f": -float("nan")}]
    batch = frame([("I", 0, 0)] * 4).set_column(5, "new", pa.array(values, row)).set_column(4, "old", pa.nulls(4, row))
    at = net.partitions(numbers, lookup.key_of(numbers, [1, 2]), batch, 1 << 20)
    assert at[0] == at[1]
    assert at[2] == at[3]
    assert pc.count_distinct(pa.array(at)).as_py() == 2
