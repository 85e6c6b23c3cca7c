"""In tables without deletion vectors, any reader of Parquet files and of Delta's first protocol finds the rows that the node shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from tests.storage.tables import DATABASE, INT4, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.storage import feed, write
from headgate.storage.compactor import Compactor
from headgate.storage.delta import compaction, copy_on_write, delta_log, parquet
from headgate.storage.engine import Engine
from headgate.storage.location import data_location

PLAIN = replace(relation(26000, "plain", id=INT8, v=TEXT), options=("deletion_vectors=off",))
VECTORS = replace(PLAIN, options=())
SMALL, LARGE = 10_000, -1


def plainly(engine: Engine, table: Relation) -> list[tuple[Any, ...]]:
    """Return the rows as a reader finds them that knows only the log and the data files."""
    path = engine.tables.path((DATABASE, table.oid))
    newest = delta_log.newest_version(path)
    assert newest is not None
    files = delta_log.files_at(path, newest)
    assert not any(add.get("deletionVector") for add in files.values())
    plain_rows = [tuple(row.values()) for name in files for row in pq.read_table(data_location.local(path / unquote(name))).to_pylist()]
    return sorted(plain_rows, key=repr)


def protocol(engine: Engine, table: Relation) -> tuple[int, list[str]]:
    state = engine.tables[DATABASE, table.oid].state()
    return state.protocol["minReaderVersion"], state.protocol.get("readerFeatures", [])


@pytest.mark.parametrize("small", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_rows_are_changed_without_deletion_vectors(engine: Engine, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(write, "SMALL_ROWS", small)
    monkeypatch.setattr(copy_on_write, "FILE_BYTES", 8 << 10)
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 200)
    made(engine, PLAIN, *[(number, "x") for number in range(1500)])
    assert protocol(engine, PLAIN) == (1, [])
    lsn_before = engine.log.end
    writer = engine.begin(DATABASE)
    assert change(writer, PLAIN, "id % 5 = 0", v="'y'") == 300
    assert change(writer, PLAIN, "id % 7 = 3") == 214
    expected = sorted([(number, "y" if number % 5 == 0 else "x") for number in range(1500) if number % 7 != 3], key=repr)
    assert contents(writer, PLAIN) == expected
    assert len(contents(engine, PLAIN)) == 1500
    writer.commit()
    assert contents(engine, PLAIN) == plainly(engine, PLAIN) == expected
    [entry] = engine.log.entries(lsn_before, DATABASE, 1)
    assert sum(logged_write.bytes for logged_write in entry.writes) < 200_000
    counts = feed.changes(engine, PLAIN, entry.writes).groupBy("op").count().toArrow().to_pylist()
    assert {row["op"]: row["count"] for row in counts} == {"U": 300, "D": 214}
    writer = engine.begin(DATABASE)
    change(writer, PLAIN, "id >= 0")
    assert writer.reader.state(PLAIN).files == {}
    writer.rollback()
    assert contents(engine, PLAIN) == expected


def test_rows_inserted_changed_and_truncated_in_one_transaction_are_written(engine: Engine) -> None:
    made(engine, PLAIN, (1, "a"), (2, "b"))
    lsn_before = engine.log.end
    writer = engine.begin(DATABASE)
    writer.append(PLAIN, rows(PLAIN, (3, "c"), (4, "d")))
    change(writer, PLAIN, "id = 3", v="'C'")
    change(writer, PLAIN, "id = 1")
    writer.savepoint("s")
    change(writer, PLAIN, "id = 4")
    writer.rollback_to("s")
    assert contents(writer, PLAIN) == [(2, "b"), (3, "C"), (4, "d")]
    writer.truncate([PLAIN])
    writer.append(PLAIN, rows(PLAIN, (5, "e")))
    writer.commit()
    assert contents(engine, PLAIN) == plainly(engine, PLAIN) == [(5, "e")]
    [entry] = engine.log.entries(lsn_before, DATABASE, 1)
    rows_written = [logged_write for logged_write in entry.writes if logged_write.kind == "write"]
    changes = feed.changes(engine, PLAIN, rows_written).orderBy("seq", "position").toArrow().to_pylist()
    ids = [(row["op"], (row["new"] or row["old"])["id"]) for row in changes]
    assert ids == [("I", 3), ("I", 4), ("U", 3), ("D", 1), ("I", 5)]


def test_repeatable_read_transaction_can_change_rows_that_no_other_has_changed(engine: Engine) -> None:
    made(engine, PLAIN, (1, "a"), (2, "b"))
    other_writer = engine.begin(DATABASE)
    other_writer.append(PLAIN, rows(PLAIN, (3, "c")))
    other_writer.commit()
    late = engine.begin(DATABASE)
    late.isolate(None, serializable=False)
    assert len(contents(late, PLAIN)) == 3
    other_writer = engine.begin(DATABASE)
    change(other_writer, PLAIN, "id = 3", v="'other'")
    other_writer.commit()
    change(late, PLAIN, "id = 1", v="'late'")
    assert contents(late, PLAIN) == [(1, "late"), (2, "b"), (3, "c")]
    with pytest.raises(PostgresError, match="could not serialize access due to concurrent update"):
        change(late, PLAIN, "id = 3", v="'late'")
    late.rollback()
    assert contents(engine, PLAIN) == plainly(engine, PLAIN) == [(1, "a"), (2, "b"), (3, "other")]


@pytest.mark.slow
def test_deletion_vectors_can_be_removed_from_a_table_and_added_again(engine: Engine) -> None:
    made(engine, VECTORS, *[(number, "x") for number in range(10)])
    writer = engine.begin(DATABASE)
    change(writer, VECTORS, "id < 3", v="'y'")
    writer.commit()
    rows_before = contents(engine, VECTORS)
    assert protocol(engine, VECTORS) == (3, ["deletionVectors"])
    writer = engine.begin(DATABASE)
    writer.ddl.alter_settings(PLAIN)
    assert contents(writer, PLAIN) == rows_before
    writer.rollback()
    assert protocol(engine, VECTORS) == (3, ["deletionVectors"])
    writer = engine.begin(DATABASE)
    writer.ddl.alter_settings(PLAIN)
    change(writer, PLAIN, "id = 9")
    writer.commit()
    assert protocol(engine, PLAIN) == (1, [])
    assert contents(engine, PLAIN) == plainly(engine, PLAIN) == rows_before[:-1]
    writer = engine.begin(DATABASE)
    writer.ddl.alter_settings(VECTORS)
    change(writer, VECTORS, "id = 8")
    writer.commit()
    assert protocol(engine, VECTORS) == (3, ["deletionVectors"])
    assert contents(engine, VECTORS) == rows_before[:-2]
    plain = engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, PLAIN.oid))))
    assert plain.count() == 8


def test_removal_of_deletion_vectors_is_undone_with_its_protocol(engine: Engine) -> None:
    made(engine, VECTORS, (1, "x"), (2, "y"))
    writer = engine.begin(DATABASE)
    change(writer, VECTORS, "id = 1")
    writer.commit()
    table = engine.tables[DATABASE, VECTORS.oid]
    state_before = table.state()
    writer = engine.begin(DATABASE)
    writer.ddl.alter_settings(PLAIN)
    writer.commit()
    undone = table.undo(table.state(), state_before, "undone")
    assert undone.has_vectors
    assert table.state().protocol == state_before.protocol
    assert table.frame(undone).count() == 1


@pytest.mark.slow
def test_protocol_states_the_features_that_a_column_needs(engine: Engine) -> None:
    made(engine, PLAIN, (1, "x"))
    narrow = replace(PLAIN, all_columns=(Column(1, "id", INT8), Column(3, "w", INT4)))
    writer = engine.begin(DATABASE)
    with pytest.raises(PostgresError, match="would need column mapping"):
        writer.ddl.alter(replace(PLAIN, options=("deletion_vectors=off", "column_mapping=off")), narrow)
    writer.ddl.alter(PLAIN, narrow)
    change(writer, narrow, "id = 1", w="7")
    writer.append(narrow, rows(narrow, (2, 8), (3, 9)))
    writer.commit()
    assert protocol(engine, narrow) == (3, ["columnMapping"])
    writer = engine.begin(DATABASE)
    with pytest.raises(PostgresError, match='table "plain" has column mapping already'):
        writer.ddl.alter_settings(replace(narrow, options=("column_mapping=off",)))
    change(writer, narrow, "id = 3")
    writer.commit()
    assert contents(engine, narrow) == [(1, 7), (2, 8)]
    plain = engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, PLAIN.oid))))
    assert sorted(map(tuple, plain.collect())) == [(1, 7), (2, 8)]


def test_small_files_are_compacted_without_deletion_vectors(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST", 4)
    made(engine, PLAIN, (0, "x"))
    for number in range(1, 8):
        writer = engine.begin(DATABASE)
        writer.append(PLAIN, rows(PLAIN, (number, "x")))
        change(writer, PLAIN, f"id = {number - 1}", v="'y'")
        writer.commit()
    Compactor(engine).look()
    assert len(engine.tables[DATABASE, PLAIN.oid].state().files) < 8
    assert contents(engine, PLAIN) == plainly(engine, PLAIN) == [*[(number, "y") for number in range(7)], (7, "x")]


def test_deletion_vectors_off_is_the_default_of_new_tables_of_the_node(engine: Engine) -> None:
    engine.deletion_vectors = False
    made(engine, VECTORS, (1, "x"))
    assert protocol(engine, VECTORS) == (1, [])
    made(engine, replace(PLAIN, oid=PLAIN.oid + 1, options=("deletion_vectors=on",)), (1, "x"))
    assert protocol(engine, replace(PLAIN, oid=PLAIN.oid + 1)) == (3, ["deletionVectors"])
