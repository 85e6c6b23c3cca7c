"""A result is the same whether it is collected or passed through files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.storage.spark import result_spool

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


def test_leftovers_of_a_killed_node_in_pgsql_tmp_are_removed(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "other disk", tmp_path / "pgsql_tmp"
    (elsewhere / "result-1").mkdir(parents=True)
    (elsewhere / "result-1" / "part-00000.parquet").write_text("x")
    (elsewhere / "file").write_text("x")
    directory.symlink_to(elsewhere)

    result_spool.clear(directory)

    assert list(directory.iterdir()) == []
    result_spool.clear(tmp_path / "not there")
