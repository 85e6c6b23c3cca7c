"""Tables WITH (array_storage = array) have lists in their files, and the node reads PostgreSQL's arrays from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog.relation.relation import Column, Relation
from headgate.changes import lookup
from headgate.storage import feed
from headgate.storage.compactor import Compactor
from headgate.storage.delta import compaction
from headgate.storage.engine import Engine
from headgate.storage.spark.failure import from_spark
from headgate.types import registry, typmod

INTS, TEXTS = registry.builtin().by_oid(registry.INT4).array, registry.builtin().by_oid(TEXT).array
PRICES, SINCE = registry.builtin().by_oid(registry.NUMERIC).array, registry.builtin().by_oid(registry.TIMESTAMPTZ).array
ARRAYS = replace(
    relation(27000, "arrays", id=INT8, n=INTS, t=TEXTS, p=(PRICES, typmod.numeric(8, 2)), s=SINCE), options=("array_storage=array",)
)
FIRST = (1, "{1,NULL,3}", '{"a b",NULL,"NULL",""}', "{1.50}", '{"2024-01-01 00:00:00+00",infinity}')
NULLS = (2, None, "{}", None, "{}")
LISTS = {
    1: {"n": [1, None, 3], "t": ["a b", None, "NULL", ""]},
    2: {"n": None, "t": []},
}


def lists(engine: Engine, table: Relation) -> dict[int, dict[str, Any]]:
    """Return the columns n and t as a reader of Delta tables finds them."""
    frame = engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, table.oid))))
    return {row["id"]: {"n": row["n"], "t": row["t"]} for row in frame.select("id", "n", "t").toArrow().to_pylist()}


def written(engine: Engine, table: Relation, *values: tuple[Any, ...]) -> None:
    transaction = engine.begin(DATABASE)
    try:
        transaction.append(table, engine.spark.createDataFrame(rows(table, *values)))
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise


def test_readers_find_lists_and_the_node_reads_arrays(engine: Engine, way: str) -> None:
    made(engine, ARRAYS)
    written(engine, ARRAYS, FIRST, NULLS)

    assert contents(engine, ARRAYS) == [FIRST, NULLS]
    assert lists(engine, ARRAYS) == LISTS
    files = engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, ARRAYS.oid)))).schema
    assert files["p"].dataType.simpleString() == "array<decimal(8,2)>"
    assert files["s"].dataType.simpleString() == "array<timestamp>"


@pytest.mark.slow
def test_changes_of_arrays_are_streamed_unchanged(engine: Engine, way: str) -> None:
    made(engine, ARRAYS)
    lsn_before = engine.log.end
    written(engine, ARRAYS, FIRST, NULLS)
    transaction = engine.begin(DATABASE)
    change(transaction, ARRAYS, "id = 1", n="'{4}'")
    change(transaction, ARRAYS, "id = 2")
    transaction.commit()

    writes = [write for entry in engine.log.entries(lsn_before, DATABASE, 10) for write in entry.writes]
    changed = feed.changes(engine, ARRAYS, writes).orderBy("commit_lsn", "seq", "position").toArrow().to_pylist()
    pieces = [row for write in writes for piece in feed.pieces(engine.tables, ARRAYS, write) for row in piece.to_pylist()]

    later = (1, "{4}", *FIRST[2:])
    expected = [("I", None, FIRST), ("I", None, NULLS), ("U", FIRST, later), ("D", NULLS, None)]
    assert [(row["op"], _values(row["old"]), _values(row["new"])) for row in changed] == expected
    assert [(row["op"], _values(row["old"]), _values(row["new"])) for row in pieces] == expected
    assert lists(engine, ARRAYS) == {1: {"n": [4], "t": LISTS[1]["t"]}}
    change_feed = engine.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    olds = change_feed.load(str(engine.tables.path((DATABASE, ARRAYS.oid)))).where("_change_type = 'update_preimage'").select("n").toArrow()
    assert olds["n"].to_pylist() == [[1, None, 3]]


def test_array_that_is_not_a_list_is_rejected_and_nothing_is_written(engine: Engine, way: str) -> None:
    made(engine, ARRAYS, FIRST)

    with pytest.raises(Exception, match="Delta arrays") as refused:
        written(engine, ARRAYS, NULLS, (3, "{{1},{2}}", None, None, None))

    error = from_spark(refused.value)
    assert (error.sqlstate, error.message.split(",")[0]) == ("0A000", 'column "n" holds Delta arrays')
    assert error.hint == "Store the column as text: ALTER TABLE … SET (array_storage = text), then ALTER COLUMN … TYPE with its type again."
    assert contents(engine, ARRAYS) == [FIRST]


def test_rows_are_found_by_a_key_that_is_a_list(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, ARRAYS, FIRST, NULLS, (3, "{7}", "{x}", "{2.00}", None))
    reader = engine.begin(DATABASE)
    key = lookup.key_of(ARRAYS, [2, 3, 4, 5])
    wanted_keys = pa.table({f"k{index}": key_column for index, key_column in enumerate(key.arrays(_structs(ARRAYS, FIRST, NULLS)))})

    matches = lookup.find(reader, ARRAYS, key, wanted_keys)

    assert sorted(_values(row) for row in matches["old"].to_pylist()) == [FIRST, NULLS]
    monkeypatch.setattr(lookup, "AFTER", 1)
    by_id = lookup.key_of(ARRAYS, [1])
    ones = pa.table({"k0": by_id.arrays(_structs(ARRAYS, FIRST))[0]})
    assert [_values(row) for row in lookup.find(reader, ARRAYS, by_id, ones)["old"].to_pylist()] == [FIRST]
    assert [_values(row) for row in lookup.find(reader, ARRAYS, by_id, ones)["old"].to_pylist()] == [FIRST]
    reader.rollback()


@pytest.mark.slow
def test_small_files_of_several_writers_are_compacted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST", 4)
    made(engine, ARRAYS, FIRST)
    for number in range(2, 4):
        written(engine, ARRAYS, (number, *NULLS[1:]))
    foreign = engine.spark.createDataFrame(
        [(9, [5], ["z"], None, None)], "id bigint, n array<int>, t array<string>, p array<decimal(8,2)>, s array<timestamp>"
    )
    foreign.write.format("delta").mode("append").save(str(engine.tables.path((DATABASE, ARRAYS.oid))))
    engine.foreign.look()
    for number in range(4, 8):
        written(engine, ARRAYS, (number, *NULLS[1:]))

    Compactor(engine).look()
    expected = [FIRST, *[(number, *NULLS[1:]) for number in range(2, 8)], (9, "{5}", "{z}", None, None)]
    assert contents(engine, ARRAYS) == expected
    assert lists(engine, ARRAYS) == {1: LISTS[1], **dict.fromkeys(range(2, 8), LISTS[2]), 9: {"n": [5], "t": ["z"]}}
    assert len(engine.tables.visible[DATABASE, ARRAYS.oid].state.files) < 8


def test_each_column_keeps_the_storage_of_its_creation(engine: Engine) -> None:
    texts = made(engine, replace(ARRAYS, oid=27001, options=()), FIRST)
    wider = replace(texts, options=("array_storage=array",), all_columns=(*texts.columns, Column(6, "more", INTS, -1)))
    writer = engine.begin(DATABASE)
    writer.ddl.alter(replace(texts, options=wider.options), wider)
    writer.append(wider, rows(wider, (*NULLS, "{5,6}")))
    writer.commit()

    frame = engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, 27001))))
    assert [frame.schema[name].dataType.simpleString() for name in ("n", "more")] == ["string", "array<int>"]
    assert contents(engine, wider) == [(*FIRST, None), (*NULLS, "{5,6}")]


def _structs(table: Relation, *values: tuple[Any, ...]) -> pa.StructArray:
    return rows(table, *values).to_struct_array().combine_chunks()


def _values(row: dict[str, Any] | None) -> tuple[Any, ...] | None:
    return None if row is None else tuple(row.values())
