"""The transaction log is a Delta table next to the tables, in which any reader finds versions that belong together."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import Any

import pytest
from tests.conftest import until
from tests.storage.tables import DATABASE, INT8, TEXT, made, relation, rows

from headgate.lsn import Lsn
from headgate.storage import cleaning, inventory
from headgate.storage.delta import delta_log, parquet
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.log_table import LogTable

A = relation(20900, "a", id=INT8, v=TEXT)
B = relation(20901, "b", id=INT8, v=TEXT)


def versions(engine: Engine, at: Lsn | None = None) -> dict[str, int | None]:
    """Return the versions that a reader finds, by path, as of a position."""
    log_rows = engine.spark.read.format("delta").load(str(inventory.log_table(engine.base))).toArrow().to_pylist()
    read: dict[str, int | None] = {}
    for row in sorted(log_rows, key=lambda row: row["position"]):
        if at is None or row["position"] <= int(at):
            read[row["path"]] = row["version"]
    return read


def path(table: Any) -> str:
    return f"{DATABASE}/{table.oid}"


def commit(engine: Engine, *tables: Any) -> Lsn:
    """Add a row to each table in one transaction. Return the position after it."""
    writer = engine.begin(DATABASE)
    for table in tables:
        writer.append(table, rows(table, (len(tables), "x")))
    end = writer.commit()
    assert end is not None
    return end


@pytest.mark.slow
def test_reader_finds_the_versions_of_all_tables_that_belong_together(engine: Engine) -> None:
    log = LogTable(engine)
    made(engine, A)
    made(engine, B)
    both = commit(engine, A, B)
    log.catch_up()
    only = commit(engine, A)
    log.catch_up()
    assert log.written == engine.log.end
    assert versions(engine, both) == {path(A): 1, path(B): 1}
    assert versions(engine, only) == {path(A): 2, path(B): 1}
    dropper = engine.begin(DATABASE)
    dropper.ddl.drop(B)
    dropper.commit()
    log.catch_up()
    assert versions(engine) == {path(A): 2, path(B): None}


def test_cleaning_keeps_the_entries_that_the_log_table_does_not_have_yet(engine: Engine) -> None:
    log = LogTable(engine)
    engine.listed = lambda: log.written
    made(engine, A)
    made(engine, B)
    log.catch_up()
    both = commit(engine, A, B)
    only = commit(engine, A)
    commit(engine, B)  # the last entry is never removed
    cleaning.Cleaner(engine).clean(engine.claim_removal(), 0)
    log.catch_up()
    assert versions(engine, both) == {path(A): 1, path(B): 1}
    assert versions(engine, only) == {path(A): 2, path(B): 1}


def test_log_table_continues_after_a_start_and_repeats_no_row(engine: Engine) -> None:
    made(engine, A)
    LogTable(engine).catch_up()
    commit(engine, A)
    again = LogTable(engine)
    again.catch_up()
    log_rows = engine.spark.read.format("delta").load(str(inventory.log_table(engine.base))).toArrow()
    assert sorted(log_rows["version"].to_pylist()) == [0, 1]
    newest = delta_log.newest_version(inventory.log_table(engine.base))
    again.catch_up()
    assert delta_log.newest_version(inventory.log_table(engine.base)) == newest


@pytest.mark.slow
def test_torn_or_too_new_log_table_is_created_again(engine: Engine) -> None:
    made(engine, A)
    LogTable(engine).catch_up()
    location = inventory.log_table(engine.base)
    newest = delta_log.newest_version(location)
    data_location.local(location / "_delta_log" / f"{newest:020d}.json").write_text('{"commitInfo"')
    LogTable(engine).catch_up()
    engine.delta.forget(location)
    assert versions(engine) == {path(A): 0}


@pytest.mark.slow
def test_files_of_a_killed_process_or_a_failed_attempt_are_removed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    location, log = inventory.log_table(engine.base), LogTable(engine)

    def unnamed() -> list[str]:
        return [unnamed_file.name for unnamed_file in cleaning.unnamed_files(location, cleaning.named_files(location, -1))]

    def fail(error: BaseException) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "commit_version", lambda *_: (_ for _ in ()).throw(error))
            with contextlib.suppress(KeyboardInterrupt):
                log._attempt()
        assert len(unnamed()) == 1

    made(engine, A)
    fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    log.catch_up()
    assert unnamed() == []
    commit(engine, A)
    fail(KeyboardInterrupt())  # as if the process ended here
    LogTable(engine).catch_up()
    assert unnamed() == []
    assert versions(engine) == {path(A): 1}


@pytest.mark.slow
@pytest.mark.parametrize("missing", [errno.EMFILE, errno.ENOSPC])
def test_write_without_descriptors_or_disk_space_is_retried_and_the_thread_keeps_running(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: int
) -> None:
    log, write = LogTable(engine), parquet.write
    free = threading.Event()

    def refused(*arguments: Any) -> Any:
        if not free.is_set():
            raise OSError(missing, os.strerror(missing))
        return write(*arguments)

    monkeypatch.setattr(parquet, "write", refused)
    log.start()
    try:
        made(engine, A)
        until(lambda: "it is tried again" in caplog.text, "the retry is not logged")
        assert log.health().running
        free.set()
        until(lambda: log.written == engine.log.end, "the write is not retried")
    finally:
        log.stop()
    assert "Traceback" not in caplog.text
    assert versions(engine) == {path(A): 0}


def test_log_table_is_not_created_again_after_a_lack_of_descriptors(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made(engine, A)
    LogTable(engine).catch_up()
    location = inventory.log_table(engine.base)
    version_before = delta_log.newest_version(location)

    def refused(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(delta_log, "newest_version", refused)
        with pytest.raises(OSError, match="Too many open files"):
            LogTable(engine).catch_up()
    made(engine, B)
    LogTable(engine).catch_up()
    assert delta_log.newest_version(location) == version_before + 1
    assert "made again" not in caplog.text
