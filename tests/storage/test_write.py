"""Small writes and reads by the driver and large ones by Spark give the same table, change feed and statistics."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, StructField, StructType
from tests.storage.tables import DATABASE, change, contents, made, relation, rows

from headgate.catalog.relation.relation import Relation
from headgate.storage import feed, write
from headgate.storage.delta import deletion_vector, file_statistics, parquet
from headgate.storage.delta import rows as stored_rows
from headgate.storage.delta.kept_files import KeptFiles
from headgate.storage.delta.table_state import TableState
from headgate.storage.engine import Engine
from headgate.storage.spark.local_relation import local_frame
from headgate.types import registry as r
from headgate.types import typmod

ALL = relation(
    23000, "everything", i2=r.INT2, i4=r.INT4, i8=r.INT8, b=r.BOOL, f4=r.FLOAT4, f8=r.FLOAT8, n=(r.NUMERIC, typmod.numeric(20, 4)),
    un=r.NUMERIC, t=r.TEXT, d=r.DATE, ts=r.TIMESTAMP, tz=r.TIMESTAMPTZ, by=r.BYTEA,
)  # fmt: skip
UTC = datetime.UTC
MOMENTS = [
    datetime.datetime(2024, 2, 29, 23, 59, 59, 123456, UTC),
    datetime.datetime(1, 1, 1, tzinfo=UTC),
    datetime.datetime(9999, 12, 31, tzinfo=UTC),
]
DAYS = [(moment.date(), moment.replace(tzinfo=None), moment) for moment in MOMENTS]
VALUES: list[tuple[Any, ...]] = [
    (1, 2, 3, True, 1.5, 2.5, decimal.Decimal("12345678901234.5678"), "1.50", "plain", *DAYS[0], b"\0\xff"),
    (-32768, -(2**31), -(2**63), False, -0.0, 1e300, decimal.Decimal("-0.0001"), "NaN", "é" * 40, *DAYS[1], b""),
    (None,) * 13,
    (7, 8, 9, True, 3.25, -2.5, decimal.Decimal(1), "0", "", *DAYS[2], b"x"),
]


SEEN: dict[str, Any] = {}


def test_all_types_are_written_and_changed_alike(engine: Engine, way: str) -> None:
    made(engine, ALL, *VALUES)
    writer = engine.begin(DATABASE)
    assert change(writer, ALL, "i2 < 5", t="concat(t, '!')") == 2
    assert change(writer, ALL, "i2 IS NULL") == 1
    table = contents(writer, ALL)
    writer.staging.make_whole()
    changed = feed.changes(engine, ALL, writer.staging.writes).select("op", "old", "new").toArrow().to_pylist()
    state = writer.reader.state(ALL)
    stats = [json.loads(add["stats"]) for add in state.files.values()]
    lows, highs = [stat["minValues"].get("i8", 0) for stat in stats], [stat["maxValues"].get("i8", 0) for stat in stats]
    bounds = (min(lows), max(highs), sum(stat["nullCount"]["un"] for stat in stats))
    result = {"table": table, "feed": sorted(map(repr, changed)), "bounds": bounds, "rows": state.rows}
    writer.commit()
    assert engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, ALL.oid)))).count() == 3
    assert SEEN.setdefault("all", result) == result


LISTS = replace(relation(23003, "lists", id=r.INT8, t=(r.TEXT_ARRAY, -1)), options=("array_storage=array",))


@pytest.mark.parametrize(("table", "held"), [(ALL, VALUES), (LISTS, [(1, "{a,NULL}"), (2, None)])], ids=["all types", "lists"])
def test_rows_kept_from_a_write_are_those_that_its_file_has(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, table: Relation, held: list[tuple[Any, ...]]
) -> None:
    table = replace(table, oid=table.oid + 100)
    made(engine, table, *held)
    writer = engine.begin(DATABASE)
    change(writer, table, "true", **{table.columns[0].name: f"{table.columns[0].name} + 1"})
    [name] = writer.reader.state(table).files
    path = writer.reader.table(table).path / name
    read = KeptFiles().rows(path)
    monkeypatch.setattr(parquet, "opened", lambda path: pytest.fail(f"{path} was read"))
    kept = stored_rows.content(path)
    assert kept.schema == read.schema
    assert repr(kept.to_pylist()) == repr(read.to_pylist())
    monkeypatch.undo()
    writer.rollback()


@pytest.mark.slow
def test_changes_are_in_the_order_of_the_statement(engine: Engine, way: str) -> None:
    table = relation(23001, "o", id=r.INT8, v=r.TEXT)
    made(engine, table)
    writer = engine.begin(DATABASE)
    numbers = [(number * 7919 % 1000, "x") for number in range(1000)]
    rows_to_append = rows(table, *numbers)
    writer.append(table, rows_to_append if way == "driver" else local_frame(engine.spark, rows_to_append))
    inserted = feed.changes(engine, table, writer.staging.writes[-1:]).orderBy("seq", "position").toArrow().to_pylist()
    assert [change_row["new"]["id"] for change_row in inserted] == [number for number, _ in numbers]
    change(writer, table, "id % 2 = 0", v="concat('y', id)")
    writer.staging.make_whole()
    changed = feed.changes(engine, table, writer.staging.writes[-1:]).orderBy("seq", "position").toArrow().to_pylist()
    updated = changed[-500:]  # the changes of small statements are in one file
    assert len(updated) == 500
    assert all(
        change_row["op"] == "U"
        and change_row["old"]["id"] == change_row["new"]["id"]
        and change_row["new"]["v"] == f"y{change_row['old']['id']}"
        for change_row in updated
    )
    writer.rollback()


@pytest.mark.slow
def test_rows_of_one_file_can_be_deleted_repeatedly_by_either_writer(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = relation(23002, "d", id=r.INT8)
    made(engine, table, *[(number,) for number in range(5000)])
    writer = engine.begin(DATABASE)
    for remainder, small in enumerate((10_000, -1, 10_000, -1)):
        monkeypatch.setattr(write, "SMALL_ROWS", small)
        change(writer, table, f"id % 5 = {remainder}")
        assert writer.reader.frame(table).count() == 5000 - 1000 * (remainder + 1)
    state = writer.reader.state(table)
    deleted = sum(
        len(deletion_vector.read(engine.tables.path((DATABASE, table.oid)), add.get("deletionVector"))) for add in state.files.values()
    )
    assert deleted == 4000
    monkeypatch.setattr(write, "SMALL_ROWS", 10_000)
    change(writer, table, "id >= 0")
    assert writer.reader.state(table).files == {}
    writer.rollback()
    assert len(contents(engine, table)) == 5000


def test_readers_that_skip_by_statistics_find_nan_and_negative_zero(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3]), "f": pa.array([1.0, math.nan, -0.0]), "g": pa.array([1, math.nan, -0.0], pa.float32())})
    parquet.write(tmp_path, rows, {})
    frame = spark.read.parquet(str(tmp_path))
    for condition, expected in (("f > 5", [2]), ("g = 'NaN'", [2]), ("f = 0", [3]), ("g <= 0", [3]), ("f = 1 AND id = 1", [1])):
        assert [row.id for row in frame.where(condition).collect()] == expected, condition


@pytest.mark.parametrize("writer", ["driver", "Spark"])
def test_data_file_has_row_groups_of_limited_size_and_a_page_index(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    count = 2 * parquet.ROW_GROUP_ROWS + 1
    if writer == "driver":
        parquet.write(tmp_path, pa.table({"id": np.arange(count), "v": ["x"] * count}), {})
    else:
        spark.range(0, count, 1, 1).selectExpr("id", "'x' AS v").write.mode("append").parquet(str(tmp_path))
    [path] = tmp_path.glob("*.parquet")
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        assert [group.num_rows for group in groups] == [parquet.ROW_GROUP_ROWS, parquet.ROW_GROUP_ROWS, 1]
        assert all(
            group.column(column_index).has_column_index and group.column(column_index).has_offset_index
            for group in groups
            for column_index in range(2)
        )


@pytest.mark.parametrize(
    ("values", "is_sorted"),
    [([1, 2, 2, 3], True), ([1], True), ([2, 1], False), ([1, None], False), ([1.0, 2.0], False), ([[1], [2]], False), (["a", "b"], True)],
)
def test_file_whose_first_column_ascends_is_marked_as_sorted(tmp_path: Path, values: list[object], is_sorted: bool) -> None:
    added = parquet.write(tmp_path, pa.table({"k": values, "v": values[::-1]}), {})["add"]
    with pq.ParquetFile(tmp_path / added["path"]) as file:
        sorting = file.metadata.row_group(0).sorting_columns
    assert sorting == ((pq.SortingColumn(0),) if is_sorted else ())


def test_key_is_looked_up_in_a_file_whose_decimal_bounds_are_rounded() -> None:
    """delta-rs writes the bounds of decimals as doubles."""
    row = StructType([StructField("n", DecimalType(20, 4))])
    stats = '{"minValues":{"n":1234567890123456.8},"maxValues":{"n":1234567890123456.8}}'
    state = TableState.of(1, {"schemaString": row.json()}, {}, {"file": {"path": "file", "stats": stats}})
    for text, files in (("1234567890123456.7899", ["file"]), ("1234567890123466.8", [])):
        assert file_statistics.candidates(state, "n", pa.chunked_array([[decimal.Decimal(text)]], pa.decimal128(20, 4))) == files


@given(st.data())
def test_statistics_of_a_file_do_not_depend_on_how_it_is_divided(data: st.DataObject) -> None:
    texts = st.one_of(st.none(), st.text(max_size=40), st.text("a\U0010ffff", min_size=32, max_size=40))
    moments = st.one_of(st.none(), st.datetimes())
    floats = st.one_of(st.none(), st.floats(width=32))
    values = data.draw(st.lists(st.tuples(texts, moments, floats), min_size=1, max_size=12))
    columns = [list(column) for column in zip(*values, strict=True)]
    kinds = [pa.string(), pa.timestamp("us"), pa.float32()]
    rows = pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], ["s", "t", "f"])
    cut = data.draw(st.integers(0, len(values)))
    pieces = [piece for piece in (rows.slice(0, cut), rows.slice(cut)) if piece.num_rows]
    merged = parquet.merge_statistics([parquet.statistics(piece, {}) for piece in pieces])
    assert merged == parquet.statistics(rows, {})
    for text in rows["s"].drop_null().to_pylist():
        assert merged.least["s"] <= text <= merged.most["s"]
