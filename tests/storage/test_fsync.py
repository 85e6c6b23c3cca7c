"""Files are fsynced before the log names them."""

from __future__ import annotations

import os

import pytest

from headgate.storage.delta import deletion_vector, fsync


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """The files and folders that are fsynced, in order."""
    synced_names: list[str] = []
    monkeypatch.setattr(fsync, "sync", lambda path: synced_names.append(os.path.relpath(path, tmp_path)))
    return synced_names


def test_every_added_file_is_fsynced_with_its_checksum_and_its_folder(tmp_path, seen):
    (tmp_path / "_change_data").mkdir()
    described = deletion_vector.write(
        tmp_path, {"a b.parquet": deletion_vector.deserialise(deletion_vector.serialise(deletion_vector.read(tmp_path, None)))}
    )["a b.parquet"]
    for name in ("a b.parquet", "new.parquet", ".new.parquet.crc", "_change_data/c.parquet"):
        (tmp_path / name).write_bytes(b"")
    fsync.sync_files(
        tmp_path,
        [
            {"add": {"path": "a%20b.parquet", "deletionVector": described}},
            {"add": {"path": "new.parquet"}},
            {"cdc": {"path": "_change_data/c.parquet"}},
            {"remove": {"path": "gone.parquet"}},
        ],
    )
    deleted = deletion_vector.file_of(tmp_path, described)
    assert deleted is not None
    assert set(seen) == {"a b.parquet", "new.parquet", ".new.parquet.crc", "_change_data/c.parquet", deleted.name, ".", "_change_data"}


def test_version_is_fsynced_with_its_checksums_and_a_new_table_with_its_parent_folders(tmp_path, seen):
    log = tmp_path / "5" / "20000" / "_delta_log"
    log.mkdir(parents=True)
    for version in (0, 1):
        for name in (f"{version:020d}.json", f".{version:020d}.json.crc", f"{version:020d}.crc", f".{version:020d}.crc.crc"):
            (log / name).write_bytes(b"")
    fsync.sync_version(log.parent, 1)
    assert set(seen) == {f"5/20000/_delta_log/{file.name}" for file in log.iterdir() if "0001." in file.name} | {"5/20000/_delta_log"}
    seen.clear()
    fsync.sync_version(log.parent, 0)
    assert {"5/20000/_delta_log", "5/20000", "5", "."} <= set(seen)


@pytest.mark.parametrize(
    ("name", "folders"), [("tn/part.parquet", {"tn", "."}), ("x/y/part.parquet", {"x/y", "x", "."}), ("part.parquet", {"."})]
)
def test_new_folders_of_an_added_file_are_fsynced(tmp_path, seen, name, folders):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    fsync.sync_files(tmp_path, [{"add": {"path": name}}])
    assert set(seen) == {name, *folders}
