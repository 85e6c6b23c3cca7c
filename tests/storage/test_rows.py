"""The driver reads a small table and Spark a larger one, with the same rows at the same positions after any changes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType
from tests.storage.tables import DATABASE, INT4, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog.relation.relation import Column
from headgate.errors import PostgresError
from headgate.storage.delta import delta_table
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.spark.local_relation import in_one_piece, local_frame

T = relation(25000, "t", a=INT8, b=TEXT)
KEY = (DATABASE, T.oid)


def test_deleted_changed_added_and_renamed_data_is_the_same_for_both_readers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, T, *[(number, f"v{number}") for number in range(40)])
    renamed = replace(T, all_columns=(Column(1, "z a", INT8), Column(2, "b", TEXT), Column(3, "c", INT4)))
    writer = engine.begin(DATABASE)
    change(writer, T, "a % 3 = 0")
    change(writer, T, "a % 5 = 0", b="concat(b, '!')")
    writer.ddl.alter(T, renamed)
    writer.append(renamed, rows(renamed, (100, None, 7)))
    writer.commit()
    table, state = engine.tables[KEY], engine.tables.visible[KEY].state
    by_driver = table.frame(state, positions=True).toArrow()
    monkeypatch.setattr(delta_table, "RESIDENT_ROWS", -1)
    assert table.held(state) is None
    by_spark = table.frame(state, positions=True).toArrow()
    places = [(delta_table.FILE, "ascending"), (delta_table.ROW, "ascending")]
    assert by_driver.sort_by(places).to_pydict() == by_spark.sort_by(places).to_pydict()
    assert by_driver.num_rows == 27


def test_rows_of_a_small_table_are_returned_in_the_order_of_their_insertion(engine: Engine) -> None:
    made(engine, T, *[(number, "x" * (100 - number)) for number in (5, 3, 9)])
    writer = engine.begin(DATABASE)
    writer.append(T, rows(T, (1, "one")))
    writer.append(T, rows(T, *[(number, "y" * 500) for number in (8, 2)]))
    assert [row[0] for row in writer.reader.frame(T).select("a").collect()] == [5, 3, 9, 1, 8, 2]
    writer.rollback()


def test_column_is_not_computed_for_rows_that_are_not_requested(engine: Engine) -> None:
    """Spark's optimizer would compute the columns of a local relation for all rows, so that 1/0 in the second would fail LIMIT 1."""
    made(engine, T, (1, "x"), (0, "y"))
    reader = engine.begin(DATABASE)
    assert [row[0] for row in reader.reader.frame(T).select(F.expr("10 div a")).limit(1).collect()] == [10]
    reader.rollback()


def test_damaged_file_of_a_small_table_is_named(engine: Engine) -> None:
    made(engine, T, (1, "x" * 50))
    [file] = engine.tables.path(KEY).glob("part-*.parquet")
    near = data_location.local(file)  # of an object store the copy, which may be damaged too
    torn = bytearray(near.read_bytes())
    torn[20] ^= 0xFF
    near.write_bytes(torn)
    with pytest.raises(PostgresError, match=file.name) as refused:
        contents(engine, T)
    assert refused.value.sqlstate == "XX001"


def test_rows_after_an_empty_piece_of_a_small_table_are_returned(spark: SparkSession) -> None:
    pieces = [pa.table({"a": pa.array(values, pa.int64())}) for values in ([1], [], [2, 3], [])]
    whole = pa.concat_tables(pieces)
    for frame in (local_frame(spark, whole), in_one_piece(spark, whole, StructType([StructField("a", LongType())]))):
        assert frame.toArrow()["a"].to_pylist() == [1, 2, 3]
        assert frame.count() == 3
