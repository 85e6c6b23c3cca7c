"""Cleaning keeps the files that a reader needs and removes the rest."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows
from tests.storage.test_recovery import again

from headgate.lsn import Lsn
from headgate.storage import feed
from headgate.storage.cleaning import Cleaner, forget_versions
from headgate.storage.compactor import Compactor
from headgate.storage.delta import delta_log
from headgate.storage.delta.delta_checkpoint import DeltaCheckpoints
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.transaction.transaction import Transaction

A = relation(20000, "a", id=INT8, v=TEXT)


def files(engine: Engine) -> int:
    """Return the data files, change files and deletion vectors of the table."""
    names = [file.name for file in data_location.below(engine.tables.path((DATABASE, A.oid)))]
    return sum(name.endswith((".parquet", ".bin")) and not name.startswith("_delta_log/") for name in names)


def commit(engine: Engine, condition: str, **values: str) -> Lsn:
    """Run an UPDATE, or without values a DELETE, in a separate transaction."""
    writer = engine.begin(DATABASE)
    change(writer, A, condition, **values)
    end = writer.commit()
    assert end is not None
    return end


def test_files_that_a_slot_needs_are_kept_until_it_advances(engine: Engine) -> None:
    made(engine, A, *[(number, "x") for number in range(20)])
    start = engine.log.end
    for key in range(4):
        last = commit(engine, f"id = {key}", v=f"'v{key}'")
    files_before = files(engine)
    cleaner = Cleaner(engine)
    cleaner.clean(start, 0)
    assert files(engine) == files_before
    entries = engine.log.entries(start, DATABASE, 10)
    changed = feed.changes(engine, A, [write for entry in entries for write in entry.writes])
    assert sorted(row[0] for row in changed.select("new.v").collect()) == ["v0", "v1", "v2", "v3"]
    commit(engine, "id = 9", v="'last'")
    cleaner.clean(last, 3600)
    assert files(engine) >= files_before
    cleaner.clean(last, 0)
    assert files(engine) < files_before
    assert [row[1] for row in contents(engine, A)].count("x") == 15
    [rest] = engine.log.entries(start, DATABASE, 10)
    assert feed.changes(engine, A, rest.writes).count() == 1


def test_table_is_complete_after_cleaning_and_further_writes(engine: Engine) -> None:
    made(engine, A, *[(number, "x") for number in range(5)])
    cleaner = Cleaner(engine)
    for highest in range(3):
        commit(engine, f"id <= {highest}", v=f"'v{highest}'")
        cleaner.clean(engine.log.end, 0)
    commit(engine, "id = 4")
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (7, "new")))
    writer.rollback()
    cleaner.clean(engine.log.end, 0)
    assert contents(engine, A) == [(0, "v2"), (1, "v2"), (2, "v2"), (3, "x")]
    assert engine.tables[DATABASE, A.oid].state().rows == 4


def test_orphaned_files_of_a_killed_process_are_removed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, A, (1, "x"), (2, "y"))
    path = engine.tables.path((DATABASE, A.oid))
    orphan = path / "part-00000-killed-c000.snappy.parquet"
    with data_location.written(orphan) as draft:
        draft.write_bytes(b"PAR1")
    below = data_location.below
    aged = lambda folder: (replace(file, modified=0.0) if file.name == orphan.name else file for file in below(folder))  # noqa: E731
    monkeypatch.setattr(data_location, "below", aged)
    cleaner = Cleaner(engine)
    open_transaction = engine.begin(DATABASE)
    open_transaction.append(A, rows(A, (3, "open")))
    cleaner.clean(engine.log.end, 0)
    assert not data_location.has_file(orphan)
    open_transaction.commit()
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "open")]


KEY = (DATABASE, A.oid)


def test_orphaned_files_are_removed_after_they_reach_the_retention_age(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, A, (1, "x"))
    orphans = [engine.tables.path(KEY) / f"part-0000{number}-killed-c000.snappy.parquet" for number in range(2)]
    for orphan in orphans:
        with data_location.written(orphan) as draft:
            draft.write_bytes(b"PAR1")
    below, now = data_location.below, time.time()
    ages = dict(zip([orphan.name for orphan in orphans], (300, 200), strict=True))
    aged = lambda folder: (replace(file, modified=now - ages.get(file.name, 0)) for file in below(folder))  # noqa: E731
    monkeypatch.setattr(data_location, "below", aged)
    cleaner = Cleaner(engine)
    cleaner.clean(engine.log.end, 250)
    assert [data_location.has_file(orphan) for orphan in orphans] == [False, True]
    cleaner.clean(engine.log.end, 250)
    assert data_location.has_file(orphans[1])
    cleaner.clean(engine.log.end, 150)  # as if the retention had passed
    assert not data_location.has_file(orphans[1])
    assert contents(engine, A) == [(1, "x")]


def versions(engine: Engine) -> list[int]:
    """Return the versions that still have commit files."""
    return sorted(delta_log.versions(engine.tables.path(KEY)))


def add(engine: Engine, numbers: range) -> None:
    """Insert each number in a separate commit, followed by a compaction."""
    for number in numbers:
        writer = engine.begin(DATABASE)
        writer.append(A, rows(A, (number, "x")))
        writer.commit()
        Compactor(engine).look()


def checkpointed(engine: Engine) -> int:
    """Write a checkpoint of Delta's log. Return its version."""
    DeltaCheckpoints(engine.tables, durable=True, every=1).write_due()
    return engine.tables.visible[KEY].state.version


def ids(reader: Engine | Transaction) -> list[int]:
    return sorted(row[0] for row in contents(reader, A))


def by_path(engine: Engine) -> list[int]:
    """Return the rows that another Spark job reads."""
    frame = engine.spark.newSession().read.format("delta").load(str(engine.tables.path(KEY)))
    return sorted(row[0] for row in frame.select("id").collect())


@pytest.mark.slow
def test_number_of_versions_and_files_is_bounded_with_a_commit_every_few_seconds(engine: Engine) -> None:
    made(engine, A, (0, "x"))
    cleaner = Cleaner(engine, kept_versions=20)
    add(engine, range(1, 41))
    checkpoint_version = checkpointed(engine)
    add(engine, range(41, 60))
    end = engine.log.end
    add(engine, range(60, 80))
    two = checkpointed(engine)
    add(engine, range(80, 105))
    cleaner.clean(end, 3600)  # a slot needs the later entries
    assert versions(engine)[0] == checkpoint_version
    assert ids(engine) == list(range(105))
    writes = [write for entry in engine.log.entries(end, DATABASE, 200) for write in entry.writes]
    assert sorted(row[0] for row in feed.changes(engine, A, writes).select("new.id").collect()) == list(range(60, 105))
    assert engine.frame_at(A, end).count() == 60
    transaction = engine.begin(DATABASE)
    transaction.isolate(None, serializable=False)
    assert transaction.reader.frame(A).count() == 105
    commit(engine, "id = 7", v="'seven'")
    cleaner.clean(engine.log.end, 3600)
    assert versions(engine)[0] == checkpoint_version, "the transaction may still need them"
    assert ids(transaction) == list(range(105))
    transaction.rollback()
    cleaner.clean(engine.log.end, 3600)
    first, last = versions(engine)[0], versions(engine)[-1]
    assert first == two
    assert versions(engine) == list(range(first, last + 1))
    assert len(data_location.names(engine.tables.path(KEY) / "_delta_log")) <= 4 * (last - first + 1) + 8

    def check(checkpoint_version: Engine, count: int) -> None:
        assert ids(checkpoint_version) == list(range(count))
        assert by_path(checkpoint_version) == list(range(count))

    check(engine, 105)
    add(engine, range(105, 110))
    assert [row for row in contents(engine, A) if row[1] != "x"] == [(7, "seven")]
    check(engine, 110)
    job = engine.spark.newSession()
    job.createDataFrame([(110, "theirs")], "id bigint, v string").write.format("delta").mode("append").save(str(engine.tables.path(KEY)))
    engine.foreign.look()
    check(engine, 111)
    engine.tables[KEY].forget()
    started = again(engine)
    assert started.recover() == []
    check(started, 111)
    add(started, range(111, 125))
    three = checkpointed(started)
    add(started, range(125, 150))
    cleaner = Cleaner(started, kept_versions=20)
    cleaner.clean(started.log.end, 3600)
    assert versions(started)[0] == three
    commit(started, "id >= 125")
    check(started, 125)


@pytest.mark.slow
def test_leftovers_of_a_killed_checkpoint_in_a_log_are_removed(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    number = "00000000000000000007"
    old = [f"{number}.json", f".{number}.json.crc", f".{number}.checkpoint.parquet.e3-5.tmp", f"..{number}.checkpoint.parquet.e3-5.tmp.crc"]
    young = [f"{number[:-1]}8.checkpoint.parquet", f"..{number[:-1]}9.checkpoint.parquet.e3-6.tmp.crc", "_last_checkpoint"]
    for name in (*old, *young):
        (log / name).touch()
    forget_versions(tmp_path, 8)
    assert sorted(file.name for file in log.iterdir()) == sorted(young)


@pytest.mark.slow
def test_files_removed_by_trimmed_versions_are_deleted_after_the_retention(engine: Engine) -> None:
    made(engine, A, (0, "x"))
    add(engine, range(1, 100))  # every 32 files are compacted
    checkpoint_version = checkpointed(engine)
    add(engine, range(100, 130))
    commit(engine, "id = 1", v="'v'")
    files_before = files(engine)
    Cleaner(engine, kept_versions=10).clean(engine.log.end, 3600)
    assert versions(engine)[0] == checkpoint_version
    assert files(engine) == files_before, "a reader outside of the node may still read them"
    Cleaner(engine, kept_versions=10).clean(engine.log.end, 0)
    assert files(engine) < files_before - 64
    assert data_location.names_if_any(engine.tables.path(KEY) / "_headgate" / "removed") == []
    assert ids(engine) == by_path(engine) == list(range(130))
