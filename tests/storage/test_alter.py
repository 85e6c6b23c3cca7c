"""Columns can be added, dropped, renamed and given another type, and a rollback restores the old columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import functions as F
from tests.storage.tables import DATABASE, INT4, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.storage import feed
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.engine import Engine

T = relation(24000, "t", a=INT8, b=TEXT)


def with_columns(table: Relation, *columns: tuple[int, str, int]) -> Relation:
    """Return a relation with these columns (attnum, name, type)."""
    return replace(table, all_columns=tuple(Column(*column) for column in columns))


def test_dropped_column_does_not_return_with_its_name(engine: Engine) -> None:
    made(engine, T, (1, "old"))
    dropped = with_columns(T, (1, "a", INT8))
    renamed = with_columns(T, (1, "a2", INT8), (3, "b", INT4), (4, "a", TEXT))
    writer = engine.begin(DATABASE)
    writer.ddl.alter(T, dropped)
    assert contents(writer, dropped) == [(1,)]
    writer.ddl.alter(dropped, renamed)
    assert contents(writer, renamed) == [(1, None, None)]
    writer.append(renamed, rows(renamed, (2, 7, "new")))
    change(writer, renamed, "a2 = 1", b="5")
    assert contents(engine, T) == [(1, "old")]
    lsn_before = engine.log.end
    writer.commit()
    assert contents(engine, renamed) == [(1, 5, None), (2, 7, "new")]
    plain = engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, T.oid))))
    assert plain.columns == ["a2", "b", "a"]
    entry = engine.log.entries(lsn_before, DATABASE, 1)[0]
    changes = feed.changes(engine, renamed, entry.writes).orderBy("seq").select("op", "new").toArrow().to_pylist()
    assert [(row["op"], row["new"]) for row in changes] == [("I", {"a2": 2, "b": 7, "a": "new"}), ("U", {"a2": 1, "b": 5, "a": None})]
    first = engine.log.entries(0, DATABASE, 1)[0]
    changes = feed.changes(engine, T, first.writes).select("new").toArrow().to_pylist()
    assert changes == [{"new": {"a": 1, "b": "old"}}]


def test_altered_columns_are_restored_by_a_rollback(engine: Engine) -> None:
    made(engine, T, (1, "x"))
    wider = with_columns(T, (1, "a", INT8), (2, "b", TEXT), (3, "c", INT4))
    renamed = with_columns(T, (1, "z", INT8))
    for altered in (wider, renamed):
        writer = engine.begin(DATABASE)
        writer.ddl.alter(T, altered)
        twos = [F.col("id").cast(field.dataType).alias(field.name) for field in writer.reader.frame(altered).schema]
        writer.append(altered, engine.spark.range(2, 3).select(*twos))
        assert len(contents(writer, altered)) == 2
        writer.rollback()
        assert contents(engine, T) == [(1, "x")]
    writer = engine.begin(DATABASE)
    writer.append(T, rows(T, (2, "y")))
    writer.commit()
    assert contents(engine, T) == [(1, "x"), (2, "y")]


def test_column_can_get_another_type(engine: Engine) -> None:
    made(engine, T, (1, "10"), (2, "20"))
    retyped = with_columns(T, (1, "a", INT8), (2, "b", INT4))
    writer = engine.begin(DATABASE)
    writer.ddl.change_type(T, retyped, "b", F.col("b").cast("int") + 1)
    assert contents(writer, retyped) == [(1, 11), (2, 21)]
    writer.rollback()
    assert contents(engine, T) == [(1, "10"), (2, "20")]
    writer = engine.begin(DATABASE)
    writer.ddl.change_type(T, retyped, "b", F.col("b").cast("int") + 1)
    writer.append(retyped, rows(retyped, (3, 3)))
    writer.commit()
    assert contents(engine, retyped) == [(1, 11), (2, 21), (3, 3)]


def test_rows_that_get_a_default_are_not_in_the_log(engine: Engine) -> None:
    made(engine, T, (1, "x"))
    wider = with_columns(T, (1, "a", INT8), (2, "b", TEXT), (3, "c", INT4))
    writer = engine.begin(DATABASE)
    writer.ddl.alter(T, wider)
    changed_rows = writer.reader.positions(wider)
    old, new = F.struct("a", "b", "c"), F.struct("a", "b", F.lit(5).alias("c"))
    places = F.col(FILE).alias("file"), F.col(ROW).alias("row")
    assert writer.ddl.fill(wider, changed_rows.select(old.alias("old"), new.alias("new"), *places)) == 1
    lsn_before = engine.log.end
    writer.commit()
    assert contents(engine, wider) == [(1, "x", 5)]
    assert engine.log.entries(lsn_before, DATABASE, 1)[0].writes == ()


def test_added_column_needs_no_column_mapping_until_a_column_is_dropped(engine: Engine) -> None:
    made(engine, T, (1, "x"))
    wider = with_columns(T, (1, "a", INT8), (2, "b", TEXT), (3, "c", INT4))
    renamed = with_columns(wider, (1, "a", INT8), (2, "b", TEXT), (3, "c", INT4), (4, "d e", INT4))
    narrow = with_columns(T, (1, "a", INT8), (3, "c", INT4))
    again = with_columns(T, (1, "a", INT8), (3, "c", INT4), (4, "b", INT4))
    key = (DATABASE, T.oid)

    def mapped() -> bool:
        return "columnMapping" in engine.tables.visible[key].state.protocol["readerFeatures"]

    writer = engine.begin(DATABASE)
    writer.ddl.alter(T, wider)
    change(writer, wider, "a = 1", c="5")
    writer.append(wider, rows(wider, (2, "y", 6)))
    writer.commit()
    assert contents(engine, wider) == [(1, "x", 5), (2, "y", 6)]
    assert not mapped()
    plain = engine.spark.read.format("delta").load(str(engine.tables.path(key)))
    assert sorted(tuple(row) for row in plain.collect()) == [(1, "x", 5), (2, "y", 6)]
    writer = engine.begin(DATABASE)
    writer.ddl.alter(wider, renamed)
    assert contents(writer, renamed) == [(1, "x", 5, None), (2, "y", 6, None)]
    writer.rollback()
    writer = engine.begin(DATABASE)
    writer.ddl.alter(wider, narrow)
    writer.ddl.alter(narrow, again)
    writer.commit()
    assert mapped()
    assert contents(engine, again) == [(1, 5, None), (2, 6, None)]


def test_alteration_that_needs_column_mapping_is_rejected_while_it_is_off(engine: Engine) -> None:
    made(engine, T, (1, "x"))
    wider = with_columns(T, (1, "a", INT8), (2, "b", TEXT), (3, "c", INT4))
    engine.column_mapping = False
    refused = [(1, "a", INT8)], [(1, "a", INT8), (2, "other", TEXT)], [(1, "a", INT8), (2, "b", TEXT), (3, "d e", INT4)]
    for columns in refused:
        writer = engine.begin(DATABASE)
        with pytest.raises(PostgresError, match='table "t" would need column mapping, which is off'):
            writer.ddl.alter(T, with_columns(T, *columns))
        writer.rollback()
    writer = engine.begin(DATABASE)
    with pytest.raises(PostgresError, match='table "spaced" would need column mapping'):
        writer.ddl.create(replace(with_columns(T, (1, "a b", INT8)), oid=T.oid + 7, name="spaced"))
    writer.rollback()
    writer = engine.begin(DATABASE)
    writer.ddl.alter(T, wider)
    writer.commit()
    assert contents(engine, wider) == [(1, "x", None)]
    assert "columnMapping" not in engine.tables.visible[DATABASE, T.oid].state.protocol["readerFeatures"]


def test_column_can_be_added_to_a_table_without_columns(engine: Engine) -> None:
    bare = relation(24001, "bare")
    made(engine, bare)
    wider = with_columns(bare, (1, "a", INT8))
    writer = engine.begin(DATABASE)
    writer.ddl.alter(bare, wider)
    writer.append(wider, rows(wider, (1,)))
    writer.commit()
    assert contents(engine, wider) == [(1,)]
