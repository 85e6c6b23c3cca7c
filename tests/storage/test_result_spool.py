"""A result is the same whether it is collected or passed through files, by any writer, and no file is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from headgate.storage.spark import failure, result_spool

DOUBLED = pa.schema([("doubled", pa.int64()), ("text", pa.large_binary())])

QUERY = """SELECT id, CAST(id AS STRING) AS t, timestamp_micros(1577846800000000 + id) AS s, CAST(timestamp_micros(id) AS TIMESTAMP_NTZ) AS n,
  date_add(DATE'2000-01-01', CAST(id AS INT)) AS d, CAST(id / 4 AS DECIMAL(10,2)) AS m, CAST(CAST(id AS STRING) AS BINARY) AS b, id % 2 = 0 AS e, NULL AS o
  FROM range(0, 5000, 1, 1)"""


@pytest.mark.parametrize("repeat", [1, 40], ids=["short", "long"])
def test_result_passed_through_files_equals_the_collected_one(spark, tmp_path, monkeypatch, repeat):
    """Compression and timestamps of the files must be those that the driver reads."""
    frame = spark.sql(QUERY.replace("5000", str(5000 * repeat)))
    monkeypatch.setattr(result_spool, "is_small", lambda _frame: True)
    collected = pa.Table.from_batches(result_spool.batches(frame, tmp_path))
    monkeypatch.setattr(result_spool, "is_small", lambda _frame: False)
    through_files = pa.Table.from_batches(result_spool.batches(frame, tmp_path))
    assert through_files.column_names == collected.column_names
    for name in collected.column_names:
        assert through_files[name].cast(collected[name].type).equals(collected[name]), name
    assert not list(tmp_path.iterdir()), "the files are not removed"


def doubled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches of a kernel for some rows. It returns none for rows below 1,000, and fails at row 9,000."""
    for batch in batches:
        numbers = batch.column(0).filter(pc.greater_equal(batch.column(0), 1_000))
        if pc.any(pc.equal(numbers, 9_000)).as_py():
            raise RuntimeError(failure.marked("22012", "division by zero"))
        if len(numbers):
            texts = pc.cast(pc.cast(numbers, pa.string()), pa.large_binary())
            yield pa.RecordBatch.from_arrays([pc.multiply(numbers, 2), texts], schema=DOUBLED)


def test_batches_of_a_kernel_arrive_in_the_order_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    batches = result_spool.encoded(spark.range(0, 5_000, 1, 7), doubled, DOUBLED, tmp_path, "double 5,000 numbers")

    whole = pa.Table.from_batches(batches, DOUBLED)

    assert whole["doubled"].to_pylist() == list(range(2_000, 10_000, 2))
    assert whole["text"].to_pylist() == [str(number).encode() for number in range(1_000, 5_000)]
    assert not list(tmp_path.iterdir())


def test_error_of_a_kernel_keeps_its_sqlstate_and_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    batches = result_spool.encoded(spark.range(0, 10_000, 1, 4), doubled, DOUBLED, tmp_path, "double 10,000 numbers")

    with pytest.raises(PythonException) as raised:
        list(batches)

    assert failure.from_spark(raised.value).sqlstate == "22012"
    assert not list(tmp_path.iterdir())


def test_reader_that_stops_early_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    batches = result_spool.encoded(spark.range(0, 5_000, 1, 5), doubled, DOUBLED, tmp_path, "double 5,000 numbers")

    first = next(batches)
    batches.close()

    assert first.column("doubled")[0].as_py() == 2_000
    assert not list(tmp_path.iterdir())


def test_leftovers_of_a_killed_node_in_pgsql_tmp_are_removed(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "other disk", tmp_path / "pgsql_tmp"
    (elsewhere / "result-1").mkdir(parents=True)
    (elsewhere / "result-1" / "part-00000.parquet").write_text("x")
    (elsewhere / "file").write_text("x")
    directory.symlink_to(elsewhere)

    result_spool.clear(directory)

    assert list(directory.iterdir()) == []
    result_spool.clear(tmp_path / "not there")
