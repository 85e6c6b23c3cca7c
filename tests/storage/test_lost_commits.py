"""A catalog that is older than the tables is reported. Leftovers of a crash are not taken for lost commits."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.storage.tables import DATABASE, change, contents, made, rows
from tests.storage.test_intent import BEFORE, A, B, Killed, failing, two_tables
from tests.storage.test_recovery import again

from headgate.catalog.catalog import Catalog
from headgate.errors import PostgresError
from headgate.storage.delta.delta_log import newest_version
from headgate.storage.engine import Engine
from headgate.storage.lost_commits import of_versions
from headgate.storage.transaction.foreign_writer import ForeignWriters
from headgate.storage.transaction.intent import Intents


class Restored:
    """A node's directory whose catalog is replaced by an older copy."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder

    def keep(self) -> None:
        """Checkpoint the catalog and copy its file."""
        self.engine.catalog.checkpoint(0)
        shutil.copy(self.engine.catalog.path, self.folder / "kept.duckdb")

    def starts(self, **settings: str) -> Engine:
        """Start an engine with the catalog that was copied."""
        catalog = Catalog.open(self.folder / "kept.duckdb")
        return Engine({**self.engine.settings, **settings}, catalog, self.engine.data_dir, session=self.engine.spark)


@pytest.fixture
def restored(engine: Engine, tmp_path: Path) -> Restored:
    return Restored(engine, tmp_path)


def test_start_with_a_catalog_that_lacks_commits_fails_and_keeps_the_rows(engine: Engine, restored: Restored) -> None:
    made(engine, A, (1, "x"))
    restored.keep()
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (2, "committed")))
    writer.commit()
    version = newest_version(engine.tables.path((DATABASE, A.oid)))
    with pytest.raises(PostgresError, match=r"is older than the tables: commits of .* are not in it") as refused:
        restored.starts().recover()
    assert refused.value.sqlstate == "XX001"
    assert f"knows version 1; there is version {version} of transaction {writer.xid}." in refused.value.detail
    assert newest_version(engine.tables.path((DATABASE, A.oid))) == version
    assert contents(engine, A) == [(1, "x"), (2, "committed")]


def test_table_that_is_newer_than_the_catalog_is_reported(engine: Engine, restored: Restored) -> None:
    engine.recover()  # the location bears the node's mark from its first start on
    restored.keep()
    made(engine, A, (1, "x"))
    with pytest.raises(PostgresError, match="is older than the tables") as refused:
        restored.starts().recover()
    assert "knows no such table; there is version 1" in refused.value.detail


def test_ignore_lost_commits_starts_with_the_older_catalog(engine: Engine, restored: Restored) -> None:
    made(engine, A, (1, "x"))
    restored.keep()
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 1", v="'committed'")
    writer.commit()
    started = restored.starts(ignore_lost_commits="on")
    assert started.recover() == [f"undid uncommitted writes of relation {A.oid} in database {DATABASE}"]
    assert contents(started, A) == [(1, "x")]
    assert again(started).recover() == []


def test_commit_that_was_being_undone_at_a_crash_is_not_reported_as_lost(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = two_tables(engine)
    failing(monkeypatch, Intents, "finish", OSError(28, "No space left on device"))
    failing(monkeypatch, ForeignWriters, "undo_own", Killed())
    with pytest.raises(Killed):
        transaction.commit()
    monkeypatch.undo()
    started = again(engine)
    assert started.recover() == [f"undid uncommitted writes of relation {table.oid} in database {DATABASE}" for table in (A, B)]
    assert contents(started, A) == BEFORE
    started = again(engine)
    assert started.recover() == []
    for _ in range(2):  # the second one removes what tells of the first
        writer = started.begin(DATABASE)
        change(writer, A, "id = 1", v="'later'")
        writer.commit()
    started.intents.purge()
    assert engine.catalog.cursor().execute("SELECT count(*) FROM hg.intent").fetchone() == (0,)
    assert again(engine).recover() == []


MARKS: list[tuple[str, list[tuple[int, str | None]], Collection[int], list[tuple[int, int]]]] = [
    ("another writer's", [(8, None)], (), []),
    ("committing", [(8, "headgate 712")], {712}, []),
    ("taken back", [(8, "headgate 712"), (9, "headgate undo to 7")], (), []),
    ("taken back twice", [(8, "headgate 712"), (9, "headgate undo to 7"), (10, "headgate 713"), (11, "headgate undo to 9")], (), []),
    ("committed", [(8, "headgate 712")], (), [(8, 712)]),
    ("committed, the next taken back", [(8, "headgate 712"), (9, "headgate 713"), (10, "headgate undo to 8")], {713}, [(8, 712)]),
]


@pytest.mark.parametrize(("marks", "intended", "lost"), [pytest.param(*mark, id=name) for name, *mark in MARKS])
def test_versions_above_the_log_are_lost_commits_if_nothing_else_explains_them(
    marks: list[tuple[int, str | None]], intended: Collection[int], lost: list[tuple[int, int]]
) -> None:
    assert of_versions(marks, intended) == lost
