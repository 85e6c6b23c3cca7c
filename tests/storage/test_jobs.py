"""Work on a small table runs no Spark job, and Delta does not replay the table's log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog.relation.relation import Column
from headgate.storage.delta import delta_table
from headgate.storage.engine import Engine
from headgate.storage.spark import job_group
from headgate.storage.write import stored
from headgate.types import registry

T = relation(25000, "t", id=INT8, v=TEXT)


@pytest.fixture
def jobs(spark: SparkSession) -> Callable[[], list[str]]:
    """Return the descriptions of Spark's jobs since the last call."""
    context = spark._jsparkSession.sparkContext()
    known_jobs: set[int] = set()

    def new() -> list[str]:
        context.listenerBus().waitUntilEmpty()
        listed = context.statusStore().jobsList(None)
        job_list = [listed.apply(index) for index in range(listed.size())]
        fresh = [job for job in job_list if job.jobId() not in known_jobs]
        known_jobs.update(job.jobId() for job in job_list)
        return [str(job.description()) for job in fresh]

    new()
    return new


def test_log_of_a_small_table_is_not_replayed(engine: Engine, jobs: Callable[[], list[str]]) -> None:
    made(engine, T, (1, "x"))
    for number in (2, 3):
        writer = engine.begin(DATABASE)
        writer.append(T, rows(T, (number, "y")))
        writer.commit()
        assert len(contents(engine, T)) == number
    writer = engine.begin(DATABASE)
    change(writer, T, "id = 2", v="'z'")
    change(writer, T, "id = 1")
    writer.commit()
    assert contents(engine, T) == [(2, "z"), (3, "y")]
    done = jobs()
    assert done  # the reads
    assert not [job for job in done if "Compute snapshot" in job]


def test_checksum_of_an_empty_table_equals_deltas(spark: SparkSession, engine: Engine) -> None:
    made(engine, T)
    row = stored(T, as_lists=False)
    node_path, delta_path = engine.tables.path((DATABASE, T.oid)), engine.data_dir / "made_by_delta"
    spark.createDataFrame([], row).write.format("delta").option("delta.enableDeletionVectors", "true").save(str(delta_path))
    own_checksum, delta_checksum = (json.loads((path / "_delta_log" / f"{0:020d}.crc").read_text()) for path in (node_path, delta_path))
    checksum = {name: value for name, value in own_checksum.items() if name not in ("metadata", "protocol")}
    assert checksum == {name: delta_checksum[name] for name in checksum}
    first, *_ = (
        json.loads(line)["metaData"]
        for line in (node_path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        if "metaData" in line
    )
    assert own_checksum["metadata"] == first


def test_small_and_large_tables_are_read_alike(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, T, (1, "x"), (2, "y"), (3, "z"))
    writer = engine.begin(DATABASE)
    writer.append(T, rows(T, (4, "more")))
    change(writer, T, "id = 2", v="'changed'")
    change(writer, T, "id = 3")
    writer.commit()
    wider = replace(T, all_columns=(*T.columns, Column(3, "n", registry.INT4)))
    writer = engine.begin(DATABASE)
    writer.ddl.alter(T, wider)
    writer.append(wider, rows(wider, (5, "late", 7)))
    writer.commit()
    table = engine.tables[DATABASE, T.oid]
    state = engine.tables.visible[DATABASE, T.oid].state

    def seen() -> list[list[dict[str, object]]]:
        frames = table.frame(state), table.frame(state, positions=True), table.frame(state, in_order=True)
        return [sorted(frame.toArrow().to_pylist(), key=repr) for frame in frames]

    small = seen()
    monkeypatch.setattr(delta_table, "LISTED_FILES", -1)
    assert seen() == small
    assert [tuple(row.values()) for row in small[0]] == [(1, "x", None), (2, "changed", None), (4, "more", None), (5, "late", 7)]


def test_cancellation_checks_lose_no_row(spark: SparkSession) -> None:
    for is_each in (True, False):
        assert spark.range(0, 20_000, 1, 3).where(job_group.noticing(each_row=is_each)).count() == 20_000
