"""Keys are looked up in an object store as on local disk. Small files are fetched, and large files are read in parts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.place import bare
from tests.storage.tables import DATABASE, INT8, TEXT, made, relation

from headgate.catalog.catalog import Catalog
from headgate.changes import lookup
from headgate.storage.engine import Engine
from headgate.storage.location import file_cache

A = relation(21900, "a", id=INT8, v=TEXT)


@pytest.fixture(params=["object_store", *(pytest.param(name, marks=pytest.mark.slow) for name in ("google_storage", "azure_storage"))])
def remote(spark: Any, catalog_file: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The storage of a node whose tables are in an object store."""
    shutil.copy(catalog_file, tmp_path / "catalog.duckdb")
    catalog = Catalog.open(tmp_path / "catalog.duckdb")
    yield Engine(bare(request.getfixturevalue(request.param).settings()), catalog, tmp_path, session=spark)
    catalog.close()


def found(engine: Engine, *keys: int) -> list[tuple[int, str]]:
    transaction = engine.begin(DATABASE)
    try:
        keys_table = pa.table({"k0": pa.array(keys, pa.int64())})
        rows = lookup.find(transaction, A, lookup.key_of(A, [1]), keys_table)
        return sorted((row["id"], row["v"]) for row in rows["old"].to_pylist())
    finally:
        transaction.rollback()


def test_keys_are_found_in_parts_of_a_large_file_as_in_a_fetched_file(remote: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(remote, A, *((number, f"v{number}") for number in range(2000)))
    writer = remote.begin(DATABASE)
    deleted = lookup.find(writer, A, lookup.key_of(A, [1]), pa.table({"k0": pa.array([8], pa.int64())}))
    nothing = pa.nulls(1, deleted["old"].type)
    assert writer.rewrite(A, pa.table({"old": deleted["old"], "new": nothing, "file": deleted["file"], "row": deleted["row"]})) == 1
    writer.commit()
    expected = [(6, "v6"), (7, "v7")]
    assert found(remote, 6, 7, 8, 5000) == expected
    assert found(remote, 7) == [(7, "v7")]
    monkeypatch.setattr(lookup, "FAR_BYTES", 0)
    file_cache.open_cache(remote.base.fs, remote.data_dir / "other", 1 << 20)  # an empty cache, as after a start
    assert found(remote, 6, 7, 8, 5000) == expected
    assert found(remote, 7) == [(7, "v7")]
    fetched = [path.name for path in (remote.data_dir / "other").iterdir() if path.suffix == ".parquet"]
    assert fetched == []
