"""Each private class of Delta Lake that a node uses behaves as its façade documents. Run these tests first with a new version of Delta."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from headgate.storage.delta import delta_log
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.internals import log_cache
from headgate.storage.delta.internals.log_cache import Delta
from headgate.storage.delta.internals.optimistic_transaction import OptimisticTransaction, is_conflict
from headgate.storage.delta.internals.table_log import Scala, TableLog

ROW = StructType().add("id", LongType())


@pytest.fixture(scope="module")
def delta(spark: SparkSession) -> Delta:
    return Delta(spark)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """An empty table."""
    path = tmp_path / "table"
    delta_log.create(path, ROW)
    return path


def commit(delta: Delta, path: Path, actions: Sequence[Action] = (), version: int | None = None) -> int:
    log = delta.log(path)
    return OptimisticTransaction(delta.handles, log, log.snapshot(version)).commit(actions, "headgate test")


def written(delta: Delta, path: Path, first: int, count: int) -> list[Action]:
    log = delta.log(path)
    frame = delta.spark.range(first, first + count, 1, 1)
    return OptimisticTransaction(delta.handles, log, log.snapshot()).write_files(frame)


def ids(frame: DataFrame) -> list[int]:
    return sorted(frame.toArrow()["id"].to_pylist())


def test_scalas_sequences_are_lists(spark: SparkSession) -> None:
    scala = Scala(spark)
    assert scala.list(scala.seq(["a", "b"])) == ["a", "b"]
    assert scala.none.isEmpty()
    assert scala.some("a").get() == "a"


def test_files_are_written_before_the_commit_that_names_them(delta: Delta, table: Path) -> None:
    [action] = written(delta, table, 0, 3)
    assert (table / action["add"]["path"]).exists()
    assert delta_log.newest_version(table) == 0
    assert commit(delta, table, [action]) == 1
    info = json.loads((table / "_delta_log" / f"{1:020}.json").read_text().splitlines()[0])["commitInfo"]
    assert info["userMetadata"] == "headgate test"
    assert ids(delta.log(table).rows_at(delta.log(table).snapshot(1))) == [0, 1, 2]


def test_rows_of_a_change_file_are_those_with_a_change_type(delta: Delta, table: Path) -> None:
    log = delta.log(table)
    changed = delta.spark.range(0, 2, 1, 1).withColumn("_change_type", F.when(F.col("id") == 1, "insert"))
    actions = OptimisticTransaction(delta.handles, log, log.snapshot()).write_files(changed)
    assert sorted(next(iter(action)) for action in actions) == ["add", "cdc"]


def test_a_snapshot_has_the_metadata_the_protocol_and_the_files_of_its_version(delta: Delta, table: Path) -> None:
    commit(delta, table, written(delta, table, 0, 3))
    commit(delta, table, written(delta, table, 3, 2))
    newest, earlier = delta.log(table).snapshot(), delta.log(table).snapshot(1)
    assert (newest.version, earlier.version) == (2, 1)
    metadata, protocol, files = newest.metadata(), newest.protocol(), newest.adds()
    metadata_in_log, protocol_in_log, files_in_log = delta_log.read_state(table, 2)
    assert metadata["schemaString"] == metadata_in_log["schemaString"]
    assert protocol["minWriterVersion"] == protocol_in_log["minWriterVersion"]
    assert {add["path"] for add in files} == set(files_in_log)
    assert len(earlier.adds()) == 1
    assert ids(delta.log(table).rows_at(earlier)) == [0, 1, 2]


def test_rows_of_files_that_no_version_names_are_read_by_a_likeness(delta: Delta, table: Path) -> None:
    [action] = written(delta, table, 5, 2)
    metadata, protocol, _ = delta_log.read_state(table, 0)
    log = delta.log(table)
    assert ids(log.rows_of(log.likeness(metadata, protocol), [action["add"]])) == [5, 6]


def test_a_deletion_vector_has_the_given_rows_and_those_deleted_before(delta: Delta, table: Path) -> None:
    [action] = written(delta, table, 0, 10)
    commit(delta, table, [action])
    log, uri = delta.log(table), (table / action["add"]["path"]).as_uri().replace("file:///", "file:/")
    add = action["add"]
    for row, cardinality in ((3, 1), (4, 2)):
        positions = delta.spark.createDataFrame([(uri, row)], "file string, row bigint")
        transaction = OptimisticTransaction(delta.handles, log, log.snapshot())
        [deleted] = transaction.deleted_rows(positions, F.col("file"), F.col("row"), [add], have_vectors="deletionVector" in add)
        assert (deleted.file.rpartition("/")[2], deleted.matched, deleted.vector["cardinality"]) == (add["path"], 1, cardinality)
        add = {**add, "deletionVector": deleted.vector}
    assert ids(log.rows_of(log.snapshot(), [add])) == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_commit_follows_that_of_another_writer_unless_it_removes_the_same_file(delta: Delta, table: Path) -> None:
    [action] = written(delta, table, 0, 1)
    commit(delta, table, [action])
    add = action["add"]
    removal = {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": False}}
    assert commit(delta, table, written(delta, table, 1, 1), version=1) == 2
    assert commit(delta, table, [removal]) == 3
    with pytest.raises(Exception, match=r"(?i)concurrent") as raised:
        commit(delta, table, [removal], version=1)
    assert is_conflict(raised.value)
    assert not is_conflict(ValueError("another"))


def test_a_checkpoint_is_announced_in_a_step_of_its_own(delta: Delta, table: Path) -> None:
    commit(delta, table, written(delta, table, 0, 1))
    log, pointer = delta.log(table), table / "_delta_log" / "_last_checkpoint"
    checkpoint = log.write_checkpoint(log.snapshot(1))
    assert delta_log.checkpoints(table) == {1}
    assert not pointer.exists()
    log.announce_checkpoint(checkpoint)
    assert json.loads(pointer.read_text())["version"] == 1


def test_few_logs_stay_open_and_a_forgotten_one_is_of_the_table_that_is_there_now(
    delta: Delta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cache, "KEPT_LOGS", 2)
    paths = [tmp_path / str(number) for number in range(3)]
    for path in paths:
        delta_log.create(path, ROW)
    logs = [delta.log(path) for path in paths]
    assert delta.log(paths[2]) is logs[2]
    assert delta.log(paths[0]) is not logs[0]
    delta.forget(paths[2])
    assert delta.log(paths[2]) is not logs[2]


def test_a_folder_has_the_name_that_it_has_in_sparks_uris(delta: Delta, tmp_path: Path) -> None:
    folder = tmp_path / "ä b"
    assert delta.raw_path(folder) == f"{tmp_path}/ä%20b"
    assert delta.raw_path(tmp_path / "plain") == f"{tmp_path}/plain"


def test_opening_the_log_of_a_folder_without_a_table_finds_no_version(delta: Delta, tmp_path: Path) -> None:
    log = TableLog.open(delta.handles, str(tmp_path / "nothing"))
    assert log.snapshot().version == -1
    delta.forget(tmp_path / "nothing")
