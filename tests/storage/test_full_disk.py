"""With a full disk a statement fails with 53100 and leaves nothing behind. Work continues after space is free again.

The disks are real ones of a few megabytes (tmpfs). If none can be mounted, only writes to `/dev/full` are tested.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.conftest import until
from tests.disk import Disk
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows
from tests.storage.test_recovery import again

from headgate.catalog.catalog import Catalog
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError, disk_full
from headgate.storage.cleaning import Cleaner
from headgate.storage.delta import file_action
from headgate.storage.delta.delta_log import newest_version, read_version
from headgate.storage.engine import Engine
from headgate.storage.spark.failure import from_spark

A = relation(20000, "a", id=INT8, v=TEXT)
B = relation(20001, "b", id=INT8, v=TEXT)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made_disk = Disk(tmp_path / "disk", 64)
    yield made_disk
    made_disk.end()


@pytest.fixture
def small(spark: SparkSession, catalog_file: Path, disk: Disk) -> Iterator[Engine]:
    """The storage of a node on a small disk."""
    shutil.copy(catalog_file, disk.folder / "catalog.duckdb")
    catalog = Catalog.open(disk.folder / "catalog.duckdb")
    engine = Engine({}, catalog, disk.folder, session=spark)
    engine.recover()
    yield engine
    catalog.close()


def raised_by(work: object) -> BaseException:
    with pytest.raises(Exception) as raised:  # noqa: PT011 (each component raises a different exception)
        work()  # type: ignore[operator]
    return raised.value


def test_every_component_reports_a_full_disk(spark: SparkSession) -> None:
    def python() -> None:
        with open("/dev/full", "w") as file:  # noqa: PTH123
            file.write("x")

    def java() -> None:
        jvm = spark._jvm
        assert jvm is not None
        jvm.java.io.FileOutputStream("/dev/full").write(1)

    def arrow() -> None:
        with pa.OSFile("/dev/full", "w") as file:  # not by its path, because a writer that fails removes the file at its path
            pq.write_table(pa.table({"a": range(100_000)}), file)

    def in_a_task() -> None:
        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            python()
            yield from batches

        spark.range(1).mapInArrow(write, "id bigint").collect()  # type: ignore[arg-type]

    for work in (python, java, arrow, in_a_task):
        for error in (disk_full(raised_by(work)), from_spark(raised_by(work))):
            assert error is not None, work
            assert (error.sqlstate, error.hint) == ("53100", "Check free disk space."), work
            assert error.message.startswith("could not write to "), work
            assert error.message.endswith("No space left on device"), work
    named = disk_full(duckdb.IOException('IO Error: Could not write file "/a b/c": No space left on device'))
    assert named is not None
    assert named.message == 'could not write to file "/a b/c": No space left on device'
    assert disk_full(PostgresError("22P02", 'invalid input syntax for type integer: "No space left on device"')) is None
    assert disk_full(ValueError("no space left")) is None


def test_oids_are_not_assigned_twice_after_a_full_disk(catalog_file: Path, disk: Disk, tmp_path: Path) -> None:
    shutil.copy(catalog_file, disk.folder / "catalog.duckdb")
    catalog = Catalog.open(disk.folder / "catalog.duckdb")
    oids = [catalog.next_oid()]
    disk.fill()

    def until_it_is_full() -> None:
        while True:
            oids.append(catalog.next_oid())

    assert disk_full(raised_by(until_it_is_full)) is not None
    assert disk_full(raised_by(catalog.next_oid)) is not None
    last_oid = oids[-1]
    for name in ("catalog.duckdb", "catalog.duckdb.wal"):  # as after a crash
        shutil.copy(disk.folder / name, tmp_path)
    disk.free()
    oids += [catalog.next_oid() for _ in range(3)]
    assert oids == sorted(set(oids))
    catalog.close()
    crashed = Catalog.open(tmp_path / "catalog.duckdb")
    assert crashed.next_oid() > last_oid
    crashed.close()


def committed(engine: Engine, number: int, *, spark: bool = False) -> bool:
    """Run a transaction that adds row `number` to A and changes B's only row to it.

    Return whether it could commit. Otherwise it fails with 53100.
    """
    transaction = engine.begin(DATABASE)
    try:
        if spark:
            transaction.append(A, engine.spark.range(number, number + 1).selectExpr("id", "repeat('x', 3000) AS v"))
        else:
            transaction.append(A, rows(A, (number, "x" * 3000)))
        change(transaction, B, "true", id=str(number))
        transaction.commit()
    except Exception as error:
        transaction.rollback()
        if from_spark(error).sqlstate != "53100":
            raise
        return False
    return True


def numbers(engine: Engine) -> tuple[list[int], list[int]]:
    return sorted(row[0] for row in contents(engine, A)), [row[0] for row in contents(engine, B)]


def orphans(engine: Engine, table: Relation) -> list[Path]:
    """Return the files of a table that no version names."""
    path = engine.tables.path((DATABASE, table.oid))
    named_files = {
        file for version in range((newest_version(path) or 0) + 1) for file in file_action.files_of(path, read_version(path, version))
    }
    return [file for file in [*path.glob("*.parquet"), *path.glob("*.bin"), *path.glob("_change_data/*")] if file not in named_files]


@pytest.mark.slow
@pytest.mark.parametrize("spark_writes", [False, True])
def test_full_disk_at_any_step_of_a_commit_is_an_error_without_leftover_locks(small: Engine, disk: Disk, spark_writes: bool) -> None:
    made(small, A, (0, "x"))
    made(small, B, (0, "x"))
    assert committed(small, 1, spark=spark_writes)
    committed_numbers, last, failed = [0, 1], 1, 0
    for number in range(2, 14, 2):
        small.reserve.fill()
        disk.fill(but=(number - 2) * 4096)
        went_well = committed(small, number, spark=spark_writes)
        assert numbers(small) == (sorted([*committed_numbers, number] if went_well else committed_numbers), [number if went_well else last])
        disk.free()
        failed += not went_well
        for number_to_add in [number] if went_well else [number, 1000 + number]:
            assert (went_well and number_to_add == number) or committed(small, number_to_add, spark=spark_writes)
            committed_numbers, last = [*committed_numbers, number_to_add], number_to_add
        assert numbers(small) == (sorted(committed_numbers), [last])
    assert failed > 3, "too few commits met a full disk"
    assert not [file for table in (A, B) for file in orphans(small, table)]
    started = again(small)
    assert started.recover() == []
    assert numbers(started) == (sorted(committed_numbers), [last])


@pytest.mark.slow
def test_files_of_a_failed_job_are_removed_by_cleaning(small: Engine, disk: Disk) -> None:
    made(small, A, (0, "x"))
    cleaner = Cleaner(small)
    cleaner.clean(small.log.end, 0)
    room_before = disk.room
    writer = small.begin(DATABASE)
    with pytest.raises(Exception) as raised:  # noqa: PT011 (Py4J's)
        writer.append(A, small.spark.range(1, 3_000_000).selectExpr("id", "sha2(string(id), 512) AS v"))
    assert from_spark(raised.value).sqlstate == "53100"
    writer.rollback()
    orphaned_files = orphans(small, A)
    assert orphaned_files
    moment = time.time() - 60
    for file in orphaned_files:
        os.utime(file, (moment, moment))
    running = small.begin(DATABASE)
    cleaner.clean(small.log.end, 0)
    assert not [file for file in orphaned_files if file.exists()]
    until(lambda: disk.room > room_before - (1 << 20), "a cancelled task still holds its file open")
    running.append(A, rows(A, (1, "y")))
    small.tables[DATABASE, A.oid].has_failed = True  # staged files of other transactions are kept
    cleaner.clean(small.log.end, 0)
    running.commit()
    assert contents(small, A) == [(0, "x"), (1, "y")]
