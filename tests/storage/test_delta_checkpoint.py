"""Delta's checkpoints are written in the background, are complete before they are announced, and a torn one is recovered from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.storage.tables import made
from tests.storage.test_cleaning import KEY, A, add, by_path, ids
from tests.storage.test_recovery import again

from headgate.errors import PostgresError
from headgate.storage.delta import delta_checkpoint, fsync
from headgate.storage.delta.delta_checkpoint import DeltaCheckpoints
from headgate.storage.engine import Engine
from headgate.storage.location import data_location


def written(engine: Engine) -> list[int]:
    """Return the versions that have a checkpoint."""
    return sorted(int(name[:20]) for name in data_location.names(engine.tables.path(KEY) / "_delta_log") if _CHECKPOINT.fullmatch(name))


_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\..*parquet")


@pytest.mark.slow
def test_checkpoint_of_the_delta_log_is_written_without_delaying_a_commit(engine: Engine) -> None:
    made(engine, A, (0, "x"))
    checkpoints = DeltaCheckpoints(engine.tables, durable=True, every=10)
    add(engine, range(1, 14))
    assert written(engine) == [], "a commit wrote a checkpoint"
    checkpoints.write_due()
    [first] = written(engine)
    assert first >= 10
    add(engine, range(14, 20))
    checkpoints.write_due()
    assert written(engine) == [first], "a second checkpoint is written too soon"
    add(engine, range(20, 35))
    checkpoints.write_due()
    assert len(written(engine)) == 2
    assert ids(engine) == by_path(engine) == list(range(35))
    DeltaCheckpoints(again(engine).tables, durable=True, every=10).write_due()
    assert len(written(engine)) == 2, "another process writes the checkpoint again"


@pytest.mark.on_disk
def test_checkpoint_is_fsynced_before_it_is_announced(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, A, (0, "x"))
    announced = engine.tables.path(KEY) / "_delta_log" / "_last_checkpoint"
    synced: list[tuple[str, bool]] = []
    monkeypatch.setattr(fsync, "sync", lambda path: synced.append((Path(path).name, announced.exists())))
    DeltaCheckpoints(engine.tables, durable=True, every=1).write_due()
    assert announced.exists()
    [version] = written(engine)
    assert (f"{version:020d}.checkpoint.parquet", False) in synced
    assert ("_delta_log", False) in synced
    assert all(not already for _, already in synced)


@pytest.mark.slow
@pytest.mark.on_disk
@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PAR1 torn", id="no Parquet"),
        pytest.param(None, id="a page of zeros"),
    ],
)
def test_torn_checkpoint_is_set_aside_at_startup(engine: Engine, torn: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_checkpoint, "EVERY", 1)
    made(engine, A, (0, "x"))
    add(engine, range(1, 4))
    DeltaCheckpoints(engine.tables, durable=True, every=1).write_due()
    add(engine, range(4, 6))
    [version] = written(engine)
    file: Path = engine.tables.path(KEY) / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    whole = file.read_bytes()
    file.write_bytes(torn if torn is not None else whole[:8] + bytes(len(whole) // 2) + whole[8 + len(whole) // 2 :])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    engine.tables[KEY].forget()
    started = again(engine)
    assert started.recover() == [f'checkpoint "{file}.damaged" was torn and is set aside']
    assert ids(started) == by_path(started) == list(range(6))
    DeltaCheckpoints(started.tables, durable=True, every=1).write_due()
    assert len(written(started)) == 1
    assert by_path(started) == list(range(6))


@pytest.mark.slow
def test_failing_checkpoint_is_logged_and_fails_nothing_else(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made(engine, A, (0, "x"))
    add(engine, range(1, 3))

    def fail(version: int) -> None:
        raise PostgresError("XX000", "failed")

    with monkeypatch.context() as patched:
        patched.setattr(engine.tables[KEY], "write_checkpoint", fail)
        DeltaCheckpoints(engine.tables, durable=True, every=1).write_due()
    assert "could not write a Delta checkpoint of relation 20000" in caplog.text
    assert written(engine) == []
    add(engine, range(3, 5))
    DeltaCheckpoints(engine.tables, durable=True, every=1).write_due()
    assert len(written(engine)) == 1
    assert ids(engine) == by_path(engine) == list(range(5))
