"""Deletion vectors can be read back, and malformed ones are rejected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector


@given(st.lists(st.one_of(st.integers(0, 200_000), st.integers(2**32 - 5, 2**32 + 5)), unique=True).map(sorted))
def test_written_rows_are_read_back(rows: list[int]) -> None:
    assert deletion_vector.deserialise(deletion_vector.serialise(np.array(rows, np.int64))).tolist() == rows


def test_dense_and_sparse_containers_are_read_back() -> None:
    rows = np.concatenate([np.arange(0, 70_000, 2), np.arange(131_072, 131_080), np.arange(196_608, 262_144)]).astype(np.int64)
    assert np.array_equal(deletion_vector.deserialise(deletion_vector.serialise(rows)), rows)


@given(st.binary(max_size=64))
def test_malformed_vectors_are_an_error_with_a_sqlstate(data: bytes) -> None:
    with pytest.raises(PostgresError) as raised:
        deletion_vector.deserialise(data)
    assert raised.value.sqlstate == "XX001"


@given(st.binary(max_size=40).filter(lambda data: len(data) % 4 == 0))
def test_z85_is_reversible(data: bytes) -> None:
    assert deletion_vector.unz85(deletion_vector.z85(data)) == data
