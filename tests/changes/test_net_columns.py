"""Replaying a batch column by column gives the result of replaying its changes one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.changes import net
from headgate.changes.replay import replay

CHANGES = st.lists(st.tuples(st.sampled_from("IUD"), st.integers(0, 3)), min_size=1, max_size=20)


@given(stored=st.sets(st.integers(0, 3)), changes=CHANGES)
def test_batch_without_moves_ends_as_it_does_change_by_change(stored: set[int], changes: list[tuple[str, int]]) -> None:
    stored_keys = sorted(stored)
    steps = [(op, key if op == "D" else None, key) for op, key in changes]
    replayed = replay(stored_keys, steps)
    named = net.keys_of([pa.array([key for _, key in changes])])
    positions = {key: index for index, key in enumerate(stored_keys)}
    stored_at = np.array([positions.get(key, -1) for key in named.distinct["k0"].to_pylist()])
    done = net.replay_columns(np.array([ord(op) for op, _ in changes], np.uint8), named.codes, stored_at)
    if replayed.conflict is not None:
        assert done.conflict == replayed.conflict.change
        return
    expected = {(row.home if row.deleted else row.key, None if row.deleted else row.versions[-1]) for row in replayed.stored}
    expected = {(key, None if latest is None else latest) for key, latest in expected}
    alive = {row.key: row.versions[-1] for row in [*replayed.stored, *replayed.inserted] if not row.deleted}
    expected = {(key, alive.get(key)) for key, _ in expected} | {(row.key, row.versions[-1]) for row in replayed.inserted}
    keys = [
        stored_keys[stored_index] if stored_index >= 0 else changes[latest_index][1]
        for stored_index, latest_index in zip(done.stored, done.latest, strict=True)
    ]
    actual = {(key, None if latest < 0 else int(latest)) for key, latest in zip(keys, done.latest, strict=True)}
    assert done.conflict is None
    assert actual == expected
    assert len(keys) == len(set(keys))
    assert done.missing == replayed.missing


def test_keys_of_several_columns_are_equal_only_if_all_columns_are() -> None:
    keys = net.keys_of([pa.array([1, 1, 2, 1]), pa.array(["a", "b", "a", "a"])])
    assert keys.codes[0] == keys.codes[3]
    assert len(set(keys.codes.tolist())) == keys.distinct.num_rows == 3
    assert keys.distinct.slice(int(keys.codes[2]), 1).to_pylist() == [{"k0": 2, "k1": "a"}]


@given(stored=st.sets(st.integers(0, 3)), changes=CHANGES, unsent=st.lists(st.booleans(), min_size=20, max_size=20))
def test_unsent_value_is_the_last_value_sent_for_the_row(stored: set[int], changes: list[tuple[str, int]], unsent: list[bool]) -> None:
    stored_keys = sorted(stored)
    replayed = replay(stored_keys, [(op, key if op == "D" else None, key) for op, key in changes])
    if replayed.conflict is not None:
        return
    keys = net.keys_of([pa.array([key for _, key in changes])])
    positions = {key: index for index, key in enumerate(stored_keys)}
    ops = np.array([ord(op) for op, _ in changes], np.uint8)
    done = net.replay_columns(ops, keys.codes, np.array([positions.get(key, -1) for key in keys.distinct["k0"].to_pylist()]))
    lacking = np.array(unsent[: len(changes)])
    last_sent = net.last_sent(ops, keys.codes, lacking, done.latest)
    alive = [row for row in [*replayed.stored, *replayed.inserted] if not row.deleted]
    expected = {}
    for row in alive:
        sending = [change for change in row.versions if changes[change][0] == "I" or not lacking[change]]
        expected[row.versions[-1]] = sending[-1] if sending else -1
    assert {int(latest): int(position) for latest, position in zip(done.latest, last_sent, strict=True) if latest >= 0} == expected
