"""Parts of a batch of new rows are recognized as disjoint if no key is in two of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.changes import insertion

KEYS = st.sets(st.integers(-60, 60), min_size=1, max_size=30)


def intervals(*keys: int) -> list[list[int]]:
    return insertion.intervals(pa.chunked_array([pa.array(keys, pa.int64())])).tolist()


def test_runs_of_neighbours_are_intervals() -> None:
    assert intervals(3, 1, 2, 7, 9, 8, 20) == [[1, 3], [7, 9], [20, 20]]


def test_one_key_is_an_interval() -> None:
    assert intervals(5) == [[5, 5]]


def test_interval_reaches_the_limits_of_int8() -> None:
    assert intervals(-(2**63), 2**63 - 1) == [[-(2**63), -(2**63)], [2**63 - 1, 2**63 - 1]]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.int16(), pa.int32()])
def test_dates_times_and_numbers_have_intervals(kind: pa.DataType) -> None:
    keys = pa.chunked_array([pa.array([1, 2, 5], pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)])
    assert insertion.intervals(keys).tolist() == [[1, 2], [5, 5]]


def test_infinite_timestamp_has_an_interval() -> None:
    keys = pa.chunked_array([pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us"))])
    assert insertion.intervals(keys).tolist() == [[2**63 - 1, 2**63 - 1]]


def test_many_runs_become_few_intervals_that_contain_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insertion, "MOST_INTERVALS", 3)
    assert intervals(1, 3, 100, 102, 200, 205, 206) == [[1, 3], [100, 102], [200, 206]]


@given(parts=st.lists(KEYS, max_size=5), most=st.sampled_from([2, 5, 4096]))
def test_parts_are_disjoint_only_if_no_key_is_in_two_of_them(parts: list[set[int]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(insertion, "MOST_INTERVALS", most)
        intervals_by_part = [insertion.intervals(pa.chunked_array([pa.array(sorted(keys), pa.int64())])) for keys in parts]
    apart = insertion.are_apart(intervals_by_part)
    disjoint = sum(map(len, parts)) == len(set[int]().union(*parts))
    assert max(map(len, intervals_by_part), default=0) <= most
    assert disjoint or not apart
    assert apart or not disjoint or most < 4096


def test_zero_parts_and_one_part_are_disjoint() -> None:
    assert insertion.are_apart([])
    assert insertion.are_apart([np.array([[1, 2]])])
