"""Column-wise replay against the replay that takes one change after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.changes import columnar
from headgate.changes.replay import replay

CHANGES = st.lists(st.tuples(st.sampled_from("IUD"), st.integers(0, 3)), min_size=1, max_size=20)


@given(stored=st.sets(st.integers(0, 3)), changes=CHANGES)
def test_any_batch_without_moves_ends_as_it_does_change_by_change(stored: set[int], changes: list[tuple[str, int]]) -> None:
    held = sorted(stored)
    steps = [(op, key if op == "D" else None, key) for op, key in changes]
    wanted = replay(held, steps)
    named = columnar.keys_of([pa.array([key for _, key in changes])])
    at = {key: place for place, key in enumerate(held)}
    stored_at = np.array([at.get(key, -1) for key in named.distinct["k0"].to_pylist()])
    done = columnar.replay(np.array([ord(op) for op, _ in changes], np.uint8), named.codes, stored_at)
    if wanted.conflict is not None:
        assert done.conflict == wanted.conflict.change
        return
    expected = {(row.home if row.deleted else row.key, None if row.deleted else row.versions[-1]) for row in wanted.stored}
    expected = {(key, None if latest is None else latest) for key, latest in expected}
    alive = {row.key: row.versions[-1] for row in [*wanted.stored, *wanted.inserted] if not row.deleted}
    expected = {(key, alive.get(key)) for key, _ in expected} | {(row.key, row.versions[-1]) for row in wanted.inserted}
    keys = [held[s] if s >= 0 else changes[v][1] for s, v in zip(done.stored, done.latest, strict=True)]
    found = {(key, None if latest < 0 else int(latest)) for key, latest in zip(keys, done.latest, strict=True)}
    assert done.conflict is None
    assert found == expected
    assert len(keys) == len(set(keys))
    assert done.missing == wanted.missing


def test_keys_of_several_columns_are_equal_only_in_all_of_them() -> None:
    named = columnar.keys_of([pa.array([1, 1, 2, 1]), pa.array(["a", "b", "a", "a"])])
    assert named.codes[0] == named.codes[3]
    assert len(set(named.codes.tolist())) == named.distinct.num_rows == 3
    assert named.distinct.slice(int(named.codes[2]), 1).to_pylist() == [{"k0": 2, "k1": "a"}]


@given(stored=st.sets(st.integers(0, 3)), changes=CHANGES, unsent=st.lists(st.booleans(), min_size=20, max_size=20))
def test_a_value_that_was_not_sent_is_the_one_that_the_row_was_sent_last(
    stored: set[int], changes: list[tuple[str, int]], unsent: list[bool]
) -> None:
    held = sorted(stored)
    wanted = replay(held, [(op, key if op == "D" else None, key) for op, key in changes])
    if wanted.conflict is not None:
        return
    named = columnar.keys_of([pa.array([key for _, key in changes])])
    at = {key: place for place, key in enumerate(held)}
    ops = np.array([ord(op) for op, _ in changes], np.uint8)
    done = columnar.replay(ops, named.codes, np.array([at.get(key, -1) for key in named.distinct["k0"].to_pylist()]))
    lacking = np.array(unsent[: len(changes)])
    found = columnar.last_sent(ops, named.codes, lacking, done.latest)
    alive = [row for row in [*wanted.stored, *wanted.inserted] if not row.deleted]
    expected = {}
    for row in alive:
        sent = [change for change in row.versions if changes[change][0] == "I" or not lacking[change]]
        expected[row.versions[-1]] = sent[-1] if sent else -1
    assert {int(latest): int(place) for latest, place in zip(done.latest, found, strict=True) if latest >= 0} == expected
