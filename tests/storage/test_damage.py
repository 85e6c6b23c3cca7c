"""Damage on the disk is an error that names the file. It never yields wrong rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, made, relation

from headgate.changes import lookup
from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector, parquet
from headgate.storage.engine import Engine
from headgate.storage.spark.failure import from_spark


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_flipped_bit_of_a_deletion_vector_is_detected(tmp_path: Path) -> None:
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


def test_flipped_bit_of_a_data_file_is_detected(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "v": [f"value {number}" for number in range(1000)]})
    path = tmp_path / parquet.write(tmp_path, rows, {})["add"]["path"]
    with parquet.opened(path) as file:
        assert file.read().equals(rows)
    for at in (50, 500, 2000):
        damage(path, at)
        with pytest.raises(PostgresError, match=f'file "{path}" is damaged') as raised, parquet.opened(path) as file:
            file.read()
        assert raised.value.sqlstate == "XX001"
        damage(path, at)


@pytest.mark.on_disk
@pytest.mark.parametrize("large_share", [1, 1000])
def test_flipped_bit_of_a_data_file_is_detected_by_a_key_lookup(engine: Engine, monkeypatch: pytest.MonkeyPatch, large_share: int) -> None:
    """In a file that is read as a whole, and in one that is not."""
    monkeypatch.setattr(lookup, "LARGE_SHARE", large_share)
    stored = relation(20000, "a", id=INT8, v=TEXT)
    ids = np.random.default_rng(18).integers(0, 1 << 62, 1000)
    made(engine, stored, *[(int(key_value), f"value {key_value}") for key_value in ids])
    [path] = engine.tables.path((DATABASE, stored.oid)).glob("*.parquet")
    key, wanted_keys = lookup.key_of(stored, [1]), pa.table({"k0": pa.array([int(ids[7]), int(ids[500])], pa.int64())})
    column = pq.read_metadata(path).row_group(0).column(0)
    first = min(offset for offset in (column.dictionary_page_offset, column.data_page_offset) if offset is not None)

    def found() -> list[int]:
        reader = engine.begin(DATABASE)
        try:
            return sorted(lookup.find(reader, stored, key, wanted_keys)["row"].to_pylist())
        finally:
            reader.rollback()

    for at in range(first + 100, first + column.total_compressed_size - 100, 1000):
        damage(path, at)
        with pytest.raises(PostgresError, match=f'file "{path}" is damaged') as raised:
            found()
        assert raised.value.sqlstate == "XX001"
        damage(path, at)
    assert found() == [7, 500]


@pytest.mark.on_disk
def test_flipped_bit_of_a_data_file_is_detected_by_a_scan_of_columns(engine: Engine) -> None:
    stored = relation(20002, "c", id=INT8, v=TEXT)
    made(engine, stored, *[(number, f"value {number}") for number in range(1000)])
    [path] = engine.tables.path((DATABASE, stored.oid)).glob("*.parquet")
    damage(path, 500)
    reader = engine.begin(DATABASE)
    state, _ = reader.reader.shown(stored)
    [group] = engine.tables[DATABASE, stored.oid].groups(state)
    with pytest.raises(PostgresError, match=f'file "{path}" is damaged') as raised:
        list(group.pieces(["id"]))
    reader.rollback()
    assert raised.value.sqlstate == "XX001"


@pytest.mark.slow
@pytest.mark.on_disk
def test_damaged_file_that_spark_reads_is_reported_with_its_name(engine: Engine) -> None:
    stored = relation(20001, "b", id=INT8, v=TEXT)
    made(engine, stored)
    writer = engine.begin(DATABASE)
    writer.append(stored, engine.spark.range(60_000).repartition(1).selectExpr("id", "sha2(string(id), 256) AS v"))
    writer.commit()
    writer = engine.begin(DATABASE)
    change(writer, stored, "id % 3 = 0")
    writer.commit()
    folder = engine.tables.path((DATABASE, stored.oid))
    [data], [deleted] = folder.glob("part-*.parquet"), folder.glob("*.bin")

    def error() -> PostgresError:
        reader = engine.begin(DATABASE)
        with pytest.raises(Exception) as raised:  # noqa: PT011 (Py4J's)
            reader.reader.frame(stored).selectExpr("sum(id)", "sum(length(v))").collect()
        reader.rollback()
        return from_spark(raised.value)

    of_data = f'file "{data}" is damaged or cannot be read'
    for has_checksums, of_vector in (
        (True, f'file "{deleted}" is damaged or cannot be read'),
        (False, f'deletion vector of file "{data}" is damaged'),
    ):
        for path, at, message in ((data, -3000, of_data), (deleted, 500, of_vector)):
            if not has_checksums:  # Hadoop's checksums, which tables have that Spark has written
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            damage(path, at)
            raised_error = error()
            assert (raised_error.sqlstate, raised_error.message) == ("XX001", message)
            damage(path, at)
    data.rename(folder / "elsewhere")
    raised_error = error()
    assert (raised_error.sqlstate, raised_error.message) == ("58P01", f'could not open file "{data}": No such file or directory')
