"""A checkpoint that the node writes has the valid actions. Delta reads the same table from it as from the versions before it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType
from tests.storage.test_delta_internals import commit, ids, written

from headgate.storage.delta import checkpoint_file, delta_log, file_action
from headgate.storage.delta.deletion_vector import DeletionVector
from headgate.storage.delta.delta_log import ForeignFeature
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.internals.log_cache import Delta

ROW = StructType().add("id", LongType())
PATHS = ("a", "b", "c%20d")


def vector(number: int) -> DeletionVector:
    return {"storageType": "u", "pathOrInlineDv": "ab", "offset": number, "sizeInBytes": 34, "cardinality": number + 1}


def add(path: str, number: int | None = None) -> Action:
    file = {"path": path, "partitionValues": {}, "size": 7, "modificationTime": 1, "dataChange": True, "stats": '{"numRecords":9}'}
    return {"add": file if number is None else {**file, "deletionVector": vector(number)}}


def key(file: Action) -> tuple[str, int | None]:
    return file["path"], (file.get("deletionVector") or {}).get("offset")


def actions_by_kind(path: Path, version: int) -> dict[str, list[Action]]:
    """Return the actions of a checkpoint by kind."""
    rows = pq.read_table(path / "_delta_log" / f"{version:020d}.checkpoint.parquet")
    return {kind: rows[kind].drop_null().to_pylist(maps_as_pydicts="strict") for kind in rows.column_names}


def without_versions(path: Path, version: int) -> None:
    """Remove the commit files up to a version, so that readers need its checkpoint."""
    for number in delta_log.versions(path):
        if number <= version:
            (path / "_delta_log" / f"{number:020d}.json").unlink()


steps = st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(["add", "delete rows", "remove", "checkpoint"])), max_size=12)


@given(steps)
def test_checkpoint_has_the_last_action_of_each_file(tmp_path_factory: pytest.TempPathFactory, chosen: Sequence[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("table")
    delta_log.create(path, ROW)
    (path / "a").touch()
    (path / "b").touch()
    files: dict[str, Action] = {}
    removed: set[tuple[str, int | None]] = set()
    version = deletions = 0
    for name, does in chosen:
        if does == "checkpoint":
            checkpoint_file.write(path, version).announce()
            continue
        if does == "add" and name not in files:
            actions = [add(name)]
        elif does == "delete rows" and name in files:
            deletions += 1
            actions = [file_action.removal(files[name], data_change=True), add(name, deletions)]
        elif does == "remove" and name in files:
            actions = [file_action.removal(files[name], data_change=True)]
        else:
            continue
        version += 1
        delta_log.write_version(path, version, actions, "test")
        removed |= {key(action["remove"]) for action in actions if "remove" in action}
        removed -= {key(action["add"]) for action in actions if "add" in action}
        files = file_action.files_after(files, actions)
    described, protocol, _ = delta_log.read_state(path, version)
    checkpoint_file.write(path, version).announce()
    actions_held = actions_by_kind(path, version)
    assert {key(file) for file in actions_held["add"]} == set(map(key, files.values()))
    assert {key(file) for file in actions_held["remove"]} == removed
    without_versions(path, version)
    read = delta_log.read_state(path, version)
    assert read[:2] == ({name: value for name, value in described.items() if value is not None}, protocol)
    assert {name: {**file, "dataChange": True} for name, file in read[2].items()} == files


def test_checkpoint_omits_removals_of_files_that_no_longer_exist(tmp_path: Path) -> None:
    delta_log.create(tmp_path, ROW)
    delta_log.write_version(tmp_path, 1, [add("a"), add("b")], "test")
    delta_log.write_version(tmp_path, 2, [file_action.removal(add(name)["add"], data_change=True) for name in "ab"], "test")
    (tmp_path / "a").touch()
    checkpoint_file.write(tmp_path, 2)
    assert [file["path"] for file in actions_by_kind(tmp_path, 2)["remove"]] == ["a"]


def test_checkpoint_has_the_last_version_of_each_application_and_the_domains_that_exist(tmp_path: Path) -> None:
    delta_log.create(tmp_path, ROW)
    domains: list[Action] = [{"domainMetadata": {"domain": name, "configuration": "{}", "removed": False}} for name in ("x", "y")]
    delta_log.write_version(tmp_path, 1, [{"txn": {"appId": "p", "version": 1}}, {"txn": {"appId": "q", "version": 4}}, *domains], "test")
    checkpoint_file.write(tmp_path, 1)
    removed = {"domainMetadata": {"domain": "x", "configuration": "", "removed": True}}
    delta_log.write_version(tmp_path, 2, [{"txn": {"appId": "p", "version": 2}}, removed], "test")
    checkpoint_file.write(tmp_path, 2)
    actions = actions_by_kind(tmp_path, 2)
    assert sorted((txn["appId"], txn["version"]) for txn in actions["txn"]) == [("p", 2), ("q", 4)]
    assert [domain["domain"] for domain in actions["domainMetadata"]] == ["y"]


@pytest.mark.parametrize("action", [{"sidecar": {"path": "a"}}, {"add": {"path": "a", "unknown": 1}}])
def test_log_with_unknown_actions_or_fields_is_left_to_delta(tmp_path: Path, action: Action) -> None:
    delta_log.create(tmp_path, ROW)
    delta_log.write_version(tmp_path, 1, [action], "test")
    with pytest.raises(ForeignFeature):
        checkpoint_file.write(tmp_path, 1)
    assert delta_log.checkpoints(tmp_path) == set()


def test_delta_reads_the_same_table_from_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    delta = Delta(spark)
    path = tmp_path / "table"
    delta_log.create(path, ROW)
    for first in (0, 3, 6):
        commit(delta, path, written(delta, path, first, 3))
    delta_checkpoint = delta.log(path)
    delta_checkpoint.announce_checkpoint(delta_checkpoint.write_checkpoint(delta_checkpoint.snapshot(2)))
    [removed, *_] = delta_log.read_state(path, 3)[2].values()
    commit(delta, path, [file_action.removal(removed, data_change=True)])
    before = delta.log(path).snapshot(4)
    checkpoint_file.write(path, 4).announce()
    assert json.loads((path / "_delta_log" / "_last_checkpoint").read_text()) == {"version": 4, "size": 5, "numOfAddFiles": 2}
    without_versions(path, 3)
    delta.forget(path)
    log = delta.log(path)
    snapshot = log.snapshot(4)
    assert ids(log.rows_at(snapshot)) == [3, 4, 5, 6, 7, 8]
    assert (snapshot.metadata(), snapshot.protocol()) == (before.metadata(), before.protocol())
    assert snapshot.java.numOfFiles() == 2
