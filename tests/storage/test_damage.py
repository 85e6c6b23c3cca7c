"""Damage on the disk is an error that names the file, never other rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, made, relation

from headgate.changes import lookup
from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector, parquet
from headgate.storage.engine import Engine


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_bit_of_a_deletion_vector_was_not_missed(tmp_path: Path) -> None:
    described = deletion_vector.write(tmp_path, {"a": np.array([1, 5, 70_000], np.int64)})["a"]
    path = deletion_vector.file_of(tmp_path, described)
    assert path is not None
    assert deletion_vector.read(tmp_path, described).tolist() == [1, 5, 70_000]
    for at in range(described["offset"], path.stat().st_size):
        damage(path, at)
        with pytest.raises(PostgresError, match=f'deletion vector in file "{path}" is damaged') as raised:
            deletion_vector.read(tmp_path, described)
        assert raised.value.sqlstate == "XX001"
        damage(path, at)


def test_a_bit_of_a_data_file_gave_another_value(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "v": [f"value {n}" for n in range(1000)]})
    path = tmp_path / parquet.write(tmp_path, rows, {})["add"]["path"]
    with parquet.opened(path) as file:
        assert file.read().equals(rows)
    for at in (50, 500, 2000):
        damage(path, at)
        with pytest.raises(PostgresError, match=f'file "{path}" is damaged') as raised, parquet.opened(path) as file:
            file.read()
        assert raised.value.sqlstate == "XX001"
        damage(path, at)


def test_a_bit_of_a_data_file_made_a_key_another(engine: Engine) -> None:
    stored = relation(20000, "a", id=INT8, v=TEXT)
    ids = np.random.default_rng(18).integers(0, 1 << 62, 1000)
    made(engine, stored, *[(int(n), f"value {n}") for n in ids])
    [path] = engine.path((DATABASE, stored.oid)).glob("*.parquet")
    key, wanted = lookup.key_of(stored, [1]), pa.table({"k0": pa.array([int(ids[7]), int(ids[500])], pa.int64())})
    column = pq.read_metadata(path).row_group(0).column(0)
    first = min(each for each in (column.dictionary_page_offset, column.data_page_offset) if each is not None)

    def found() -> list[int]:
        reader = engine.begin(DATABASE)
        try:
            return sorted(lookup.find(reader, stored, key, wanted)["row"].to_pylist())
        finally:
            reader.rollback()

    for at in range(first + 100, first + column.total_compressed_size - 100, 1000):
        damage(path, at)
        with pytest.raises(PostgresError, match=f'file "{path}" is damaged') as raised:
            found()
        assert raised.value.sqlstate == "XX001"
        damage(path, at)
    assert found() == [7, 500]
