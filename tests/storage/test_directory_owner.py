"""A node removes only its own files, and does not start on a folder that belongs to another node."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, contents, made, relation, rows
from tests.storage.test_recovery import again

from headgate.catalog.catalog import Catalog
from headgate.errors import PostgresError
from headgate.storage.engine import Engine
from headgate.storage.location import data_location, directory_owner

A = relation(20000, "a", id=INT8, v=TEXT)


def test_node_does_not_start_on_a_folder_with_other_files_and_keeps_them(tmp_path: Path) -> None:
    precious = tmp_path / "2024" / "11"
    precious.mkdir(parents=True)
    with pytest.raises(PostgresError, match="is not empty and has no tables of this node") as refused:
        directory_owner.claim(tmp_path, "1", tmp_path / "node", [])
    assert refused.value.hint is not None
    assert precious.exists()


def test_second_node_does_not_start_on_the_folder_of_the_first(tmp_path: Path) -> None:
    node, other_node, place = (tmp_path / name for name in ("node", "other", "place"))
    for folder in (node, other_node):
        folder.mkdir()
    directory_owner.claim(place, "1", node, [])
    directory_owner.claim(place, "1", node, [])
    with pytest.raises(PostgresError, match="belongs to another node"):
        directory_owner.claim(place, "2", other_node, [place / "1" / "2"])


def test_node_with_tables_does_not_start_on_another_location(tmp_path: Path) -> None:
    node, old, new = (tmp_path / name for name in ("node", "old", "new"))
    node.mkdir()
    for location in (node / "base", old):  # a node without tables may still choose
        directory_owner.claim(location, "1", node, [])
    (old / "1" / "2").mkdir(parents=True)
    for wrong in (new, node / "base"):
        shutil.rmtree(node / "base", ignore_errors=True)
        with pytest.raises(PostgresError, match=f'data location "{wrong}" does not hold the tables of this node') as refused:
            directory_owner.claim(wrong, "1", node, [wrong / "1" / "2"])
        assert (refused.value.sqlstate, refused.value.detail) == ("F0001", f'The tables of this node are in "{old}".')
        assert not wrong.exists()
    shutil.move(old, new)
    directory_owner.claim(new, "1", node, [new / "1" / "2"])


def test_tables_unknown_to_a_restored_catalog_are_moved_aside(engine: Engine, catalog_file: Path, tmp_path: Path) -> None:
    made(engine, A, (1, "x"))
    engine.recover()
    folder = engine.tables.path((DATABASE, A.oid))
    files_before = sorted(name for name in data_location.names(folder) if name.endswith(".parquet"))
    restored = tmp_path / "restored.duckdb"
    shutil.copy(catalog_file, restored)
    catalog = Catalog.open(restored)
    started = Engine({**engine.settings, "ignore_lost_commits": "on"}, catalog, engine.data_dir, session=engine.spark)
    (message,) = started.recover()
    aside = engine.base / directory_owner.UNKNOWN / f"{DATABASE}.{A.oid}"
    assert message == f'moved "{folder}", which the log does not name, to "{aside}"'
    assert sorted(name for name in data_location.names(aside) if name.endswith(".parquet")) == files_before
    made(started, A, (2, "new"))
    assert contents(started, A) == [(2, "new")]
    catalog.close()


@pytest.mark.on_disk
def test_numbered_folders_of_others_are_moved_aside(engine: Engine, tmp_path: Path) -> None:
    made(engine, A, (1, "x"))
    engine.recover()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    base = engine.base / str(DATABASE)
    (base / "99998").symlink_to(elsewhere)
    (base / "99999").mkdir()
    (base / "99999" / "notes").write_text("mine")
    log = engine.base / "2024" / "11" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"commitInfo":{"operation":"WRITE"}}\n{"add":{"path":"part-0.parquet"}}\n')
    (log.parent / "part-0.parquet").touch()
    messages = again(engine).recover()
    aside = engine.base / directory_owner.UNKNOWN
    assert sorted(messages) == sorted(f'moved "{engine.base / name}", which the log does not name, to "{aside / name.replace("/", ".")}"' for name in (
        f"{DATABASE}/99998", f"{DATABASE}/99999", "2024/11"))  # fmt: skip
    assert (aside / f"{DATABASE}.99999" / "notes").read_text() == "mine"
    assert (aside / "2024.11" / "part-0.parquet").exists()
    assert (elsewhere / "kept").exists()


@pytest.mark.on_disk
def test_torn_commit_file_is_set_aside_at_startup(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    engine.recover()
    log = engine.tables.path((DATABASE, A.oid)) / "_delta_log"
    torn = log / f"{2:020d}.json"
    torn.write_bytes(b'{"commitInfo":{"timest\0\0\0\0')
    started = again(engine)
    (message,) = started.recover()
    assert message == f'commit file "{torn.with_name(torn.name + ".damaged")}" was torn and is set aside'
    writer = started.begin(DATABASE)
    writer.append(A, rows(A, (2, "y")))
    writer.commit()
    assert contents(started, A) == [(1, "x"), (2, "y")]
