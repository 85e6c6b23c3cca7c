"""Files that are read repeatedly are held in memory. Lookups there find the same rows as DuckDB, and the memory is limited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.tables import DATABASE, INT8, TEXT, made, relation, rows

from headgate.changes import lookup
from headgate.changes.lookup import AFTER, HeldFiles
from headgate.errors import PostgresError
from headgate.storage.engine import Engine

A = relation(21901, "a", id=INT8, v=TEXT)


def written(path: Path, keys: pa.Array, name: str = "k") -> str:
    pq.write_table(pa.table({name: keys, "row": pa.array(range(len(keys)))}), path, write_page_checksum=True)
    return str(path)


def looked(files: HeldFiles, place: str, times: int = AFTER) -> lookup.HeldFile | None:
    file = None
    for _ in range(times):
        file = files.get(place, "k", Path(place).stat().st_size)
    return file


def pairs(file: lookup.HeldFile, keys: pa.Array) -> list[tuple[int, int]]:
    key_numbers, at = file.find(keys)
    return sorted(zip(key_numbers.tolist(), at.tolist(), strict=True))


@given(st.lists(st.integers(-5, 5), max_size=30), st.lists(st.integers(-6, 6), max_size=8, unique=True))
def test_numbers_are_found_at_every_position(tmp_path_factory: pytest.TempPathFactory, stored: list[int], sought: list[int]) -> None:
    place = written(tmp_path_factory.mktemp("held") / "f.parquet", pa.array(stored, pa.int16()))
    file = looked(HeldFiles(), place)
    assert file is not None
    expected = [(number, row) for number, key in enumerate(sought) for row, stored_key in enumerate(stored) if stored_key == key]
    assert pairs(file, pa.array(sought, pa.int16())) == expected


@given(st.data())
def test_texts_of_one_length_are_found_among_texts_of_any_length(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    of_one = st.text("abé", min_size=3, max_size=3).filter(lambda text: len(text.encode()) == 4)
    stored = data.draw(st.lists(of_one, min_size=1, max_size=20))
    keys = data.draw(st.lists(of_one | st.text("abé", max_size=5), max_size=8, unique=True))
    file = looked(HeldFiles(), written(tmp_path_factory.mktemp("held") / "f.parquet", pa.array(stored)))
    assert file is not None
    expected = [(number, row) for number, key in enumerate(keys) for row, stored_key in enumerate(stored) if stored_key == key]
    assert pairs(file, pa.array(keys, pa.string())) == expected


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1, None]),
        pa.array(["a", "bb"]),
        pa.array(["x" * 100]),
        pa.array([1.5]),
        pa.array(["", ""]),
        pa.array([], pa.string()),
    ],
)
def test_file_with_an_unsupported_key_is_not_held_and_not_read_again(
    tmp_path: Path, keys: pa.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = written(tmp_path / "f.parquet", keys)
    files = HeldFiles()
    assert looked(files, place) is None
    monkeypatch.setattr(lookup, "_read_held", lambda *_: pytest.fail("the file is read again"))
    assert looked(files, place, 3 * AFTER) is None


def test_file_without_the_column_is_not_held(tmp_path: Path) -> None:
    assert looked(HeldFiles(), written(tmp_path / "f.parquet", pa.array([1]), "other")) is None


def test_held_bytes_are_limited_and_the_last_used_file_stays(tmp_path: Path) -> None:
    places = [written(tmp_path / f"{number}.parquet", pa.array(np.arange(1_000))) for number in range(4)]
    files = HeldFiles(50_000)  # of 24,000 each
    for place in places:
        assert looked(files, place) is not None
        assert files.nbytes <= 50_000
    assert looked(files, places[-1], 1) is not None
    assert looked(files, places[0], AFTER - 1) is None, "an evicted file is held again only after as many lookups"
    assert looked(files, places[0], 1) is not None
    assert files.nbytes <= 50_000


def test_file_that_is_too_large_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = written(tmp_path / "f.parquet", pa.array(np.zeros(100_000, np.int64)))
    monkeypatch.setattr(lookup, "FILE_BYTES", 700_000)
    assert Path(small).stat().st_size < 700_000, "the compressed file is small"
    assert looked(HeldFiles(), small) is None


def test_damaged_file_is_reported_by_each_lookup(tmp_path: Path) -> None:
    place = Path(written(tmp_path / "f.parquet", pa.array(np.arange(1_000))))
    content = bytearray(place.read_bytes())
    content[200] ^= 1
    place.write_bytes(content)
    files = HeldFiles()
    for _ in range(2):
        with pytest.raises(PostgresError, match="is damaged"):
            looked(files, str(place))


def test_a_file_is_read_as_a_whole_for_a_large_share_of_its_rows_and_the_same_rows_are_found(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = relation(21902, "b", id=INT8, v=TEXT)
    made(engine, stored, *((number * 7 % 200, f"value {number}") for number in range(200)))
    key, wanted = lookup.key_of(stored, [1]), [7, 500, *range(100, 40, -1), 199]
    reads: list[str] = []
    read_groups = lookup._in_groups
    monkeypatch.setattr(lookup, "_in_groups", lambda *arguments: reads.append(arguments[3]) or read_groups(*arguments))

    def found() -> list[dict[str, object]]:
        transaction = engine.begin(DATABASE)
        try:
            return sorted(lookup.find(transaction, stored, key, pa.table({"k0": wanted})).to_pylist(), key=lambda row: row["i"])
        finally:
            transaction.rollback()

    for decoded_bytes in (lookup.DECODED_BYTES, 500):  # in one piece and in several
        monkeypatch.setattr(lookup, "DECODED_BYTES", decoded_bytes)
        rows_read = found()
        assert len(reads) == 1
        with monkeypatch.context() as patch:
            patch.setattr(lookup, "LARGE_SHARE", 0)
            assert found() == rows_read
        assert len(reads) == 1
        assert len(rows_read) == 62
        reads.clear()


def test_lookups_find_the_same_rows_before_and_after_a_file_is_held(engine: Engine) -> None:
    """Rows are deleted and added in between."""
    made(engine, A, *((number, str(number)) for number in range(200)))

    def found(*keys: int) -> list[tuple[int, str, int]]:
        transaction = engine.begin(DATABASE)
        try:
            rows = lookup.find(transaction, A, lookup.key_of(A, [1]), pa.table({"k0": pa.array(keys, pa.int64())}))
            return sorted((row["old"]["id"], row["old"]["v"], row["row"]) for row in rows.to_pylist())
        finally:
            transaction.rollback()

    first_result = found(7, 500, 8)
    assert [row[:2] for row in first_result] == [(7, "7"), (8, "8")]
    for _ in range(AFTER):
        assert found(7, 500, 8) == first_result
    writer = engine.begin(DATABASE)
    deleted = lookup.find(writer, A, lookup.key_of(A, [1]), pa.table({"k0": pa.array([8], pa.int64())}))
    nothing = pa.nulls(1, deleted["old"].type)
    assert writer.rewrite(A, pa.table({"old": deleted["old"], "new": nothing, "file": deleted["file"], "row": deleted["row"]})) == 1
    writer.append(A, rows(A, (8, "again")))
    writer.commit()
    assert [row[:2] for row in found(7, 8)] == [(7, "7"), (8, "again")]
