"""Executors read from files the rows that the driver has."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.storage.spark import exchange
from headgate.storage.spark.local_relation import local_frame

MANY = 120_000
ROW = pa.struct([("a", pa.int32()), ("t", pa.string()), ("n", pa.decimal128(12, 2)), ("m", pa.timestamp("us", "UTC")), ("b", pa.binary())])


def changes(count: int) -> pa.Table:
    """Return a changes frame of `count` rows, every third one without an old row."""
    new = [
        {"a": number, "t": f"Größe {number}", "n": Decimal(number) / 4, "m": number * 1_000_003, "b": number.to_bytes(4, "big")}
        for number in range(count)
    ]
    old = [None if number % 3 == 0 else row for number, row in enumerate(new)]
    return pa.table({"op": ["U"] * count, "old": pa.array(old, ROW), "new": pa.array(new, ROW)})


def test_rows_passed_through_files_equal_rows_in_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    rows = changes(MANY)
    assert rows.nbytes > exchange.FEW_BYTES

    with exchange.handed_over(spark, rows, tmp_path) as frame:
        assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".parquet"] * 3
        assert frame.schema == local_frame(spark, rows.slice(0, 1)).schema
        read_back = frame.orderBy("new.a").toArrow()

    assert read_back.cast(rows.schema) == rows
    assert list(tmp_path.iterdir()) == []


def test_few_rows_are_passed_in_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    with exchange.handed_over(spark, changes(10), tmp_path) as frame:
        assert list(tmp_path.iterdir()) == []
        assert frame.count() == 10


def test_files_are_removed_if_the_work_on_them_fails(spark: SparkSession, tmp_path: Path) -> None:
    try:
        with exchange.handed_over(spark, changes(MANY), tmp_path):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass

    assert list(tmp_path.iterdir()) == []
