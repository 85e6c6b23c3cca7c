"""The transaction log as a Delta table beside the tables: any reader takes versions that belong together."""

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
    """What a reader finds: by path the version as of a position."""
    found = engine.spark.read.format("delta").load(str(inventory.log_table(engine.base))).toArrow().to_pylist()
    read: dict[str, int | None] = {}
    for row in sorted(found, key=lambda row: row["position"]):
        if at is None or row["position"] <= int(at):
            read[row["path"]] = row["version"]
    return read


def path(table: Any) -> str:
    return f"{DATABASE}/{table.oid}"


def commit(engine: Engine, *tables: Any) -> Lsn:
    """Adds a row to each table in one transaction; the position behind it."""
    writer = engine.begin(DATABASE)
    for table in tables:
        writer.append(table, rows(table, (len(tables), "x")))
    end = writer.commit()
    assert end is not None
    return end


def test_a_reader_finds_the_versions_of_all_tables_that_belong_together(engine: Engine) -> None:
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
    dropper.drop_table(B)
    dropper.commit()
    log.catch_up()
    assert versions(engine) == {path(A): 2, path(B): None}


def test_the_table_goes_on_where_it_was_and_repeats_nothing_after_a_start(engine: Engine) -> None:
    made(engine, A)
    LogTable(engine).catch_up()
    commit(engine, A)
    again = LogTable(engine)
    again.catch_up()
    found = engine.spark.read.format("delta").load(str(inventory.log_table(engine.base))).toArrow()
    assert sorted(found["version"].to_pylist()) == [0, 1]
    newest = delta_log.newest_version(inventory.log_table(engine.base))
    again.catch_up()
    assert delta_log.newest_version(inventory.log_table(engine.base)) == newest


def test_a_table_that_is_torn_or_ahead_of_the_log_is_made_again(engine: Engine) -> None:
    made(engine, A)
    LogTable(engine).catch_up()
    place = inventory.log_table(engine.base)
    newest = delta_log.newest_version(place)
    data_location.local(place / "_delta_log" / f"{newest:020d}.json").write_text('{"commitInfo"')
    LogTable(engine).catch_up()
    engine.delta.forget(place)
    assert versions(engine) == {path(A): 0}


def test_what_a_killed_process_or_a_failed_attempt_had_written_stayed_beside_the_table(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, log = inventory.log_table(engine.base), LogTable(engine)

    def unnamed() -> list[str]:
        return [each.name for each in cleaning.unnamed_files(place, cleaning.named_files(place, -1))]

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
    fail(KeyboardInterrupt())  # the process ends here
    LogTable(engine).catch_up()
    assert unnamed() == []
    assert versions(engine) == {path(A): 1}


@pytest.mark.parametrize("missing", [errno.EMFILE, errno.ENOSPC])
def test_a_node_without_descriptors_said_that_the_thread_had_failed(
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
        until(lambda: "it is tried again" in caplog.text, "nothing is said")
        assert log.health().running
        free.set()
        until(lambda: log.written == engine.log.end, "it is not tried again")
    finally:
        log.stop()
    assert "Traceback" not in caplog.text
    assert versions(engine) == {path(A): 0}


def test_a_table_that_could_not_be_opened_for_want_of_descriptors_was_made_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made(engine, A)
    LogTable(engine).catch_up()
    place = inventory.log_table(engine.base)
    before = delta_log.newest_version(place)

    def refused(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(delta_log, "newest_version", refused)
        with pytest.raises(OSError, match="Too many open files"):
            LogTable(engine).catch_up()
    made(engine, B)
    LogTable(engine).catch_up()
    assert delta_log.newest_version(place) == before + 1
    assert "made again" not in caplog.text
