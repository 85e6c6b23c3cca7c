"""The writes of a transaction to several tables become visible together or not at all."""

from __future__ import annotations

import threading

import pytest
from tests.storage.tables import DATABASE, INT4, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog import history
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage.engine import Engine
from headgate.storage.location import data_location

A = relation(20000, "a", id=INT8, v=TEXT)
B = relation(20001, "b", id=INT4)


def test_writes_are_visible_to_their_own_transaction_and_to_others_after_commit(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    writer = engine.begin(DATABASE)
    assert writer.append(A, rows(A, (2, "y"))) == 1
    assert contents(writer, A) == [(1, "x"), (2, "y")]
    assert contents(engine, A) == [(1, "x")]
    writer.commit()
    assert contents(engine, A) == [(1, "x"), (2, "y")]


def test_two_tables_become_visible_with_one_log_entry(engine: Engine) -> None:
    made(engine, A)
    made(engine, B)
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (1, "x"), (2, "y")))
    writer.append(B, rows(B, (7,)))
    lsn_before = engine.log.end
    end = writer.commit()
    entry = engine.log.entries(lsn_before, DATABASE, 10)[0]
    assert entry.end_lsn == end == engine.log.end
    assert [(logged_write.seq, logged_write.relation, logged_write.changes) for logged_write in entry.writes] == [
        (0, A.oid, 2),
        (1, B.oid, 1),
    ]
    assert lsn_before < entry.writes[0].lsn < entry.writes[0].lsn + 8 * 2 <= entry.writes[1].lsn < entry.commit_lsn < entry.end_lsn


def test_rollback_undoes_inserts_updates_and_truncates(engine: Engine) -> None:
    made(engine, A, (1, "x"), (2, "y"))
    made(engine, B, (7,))
    end = engine.log.end
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "z")))
    assert change(writer, A, "id < 3", v="'changed'") == 2
    writer.truncate([B])
    assert contents(writer, A) == [(1, "changed"), (2, "changed"), (3, "z")]
    assert contents(writer, B) == []
    writer.rollback()
    assert contents(engine, A) == [(1, "x"), (2, "y")]
    assert contents(engine, B) == [(7,)]
    assert engine.log.end == end
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (4, "after")))
    writer.commit()
    assert contents(engine, A) == [(1, "x"), (2, "y"), (4, "after")]


def test_table_of_a_rolled_back_transaction_leaves_no_directory(engine: Engine) -> None:
    writer = engine.begin(DATABASE)
    writer.ddl.create(A)
    writer.append(A, rows(A, (1, "x")))
    assert data_location.has_any(engine.tables.path((DATABASE, A.oid)))
    writer.rollback()
    assert not data_location.has_any(engine.tables.path((DATABASE, A.oid)))


def test_failure_behind_the_commit_is_no_error_of_the_transaction(engine: Engine) -> None:
    def fail() -> None:
        raise PostgresError("58030", "a failure behind the commit")

    writer = engine.begin(DATABASE)
    writer.ddl.create(A)
    writer.append(A, rows(A, (1, "x")))
    writer.until_end.callback(fail)
    writer.commit()
    assert contents(engine, A) == [(1, "x")]


def test_dropped_table_is_removed_after_its_last_reader(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    reader = engine.begin(DATABASE)
    reader.statement()
    dropper = engine.begin(DATABASE)
    dropper.ddl.drop(A)
    dropper.commit()
    assert contents(reader, A) == [(1, "x")]
    reader.rollback()
    engine.clean()
    assert not data_location.has_any(engine.tables.path((DATABASE, A.oid)))
    with pytest.raises(PostgresError) as raised:
        contents(engine, A)
    assert raised.value.sqlstate == "42P01"


def test_rollback_to_a_savepoint_keeps_earlier_changes(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (2, "kept")))
    writer.savepoint("s")
    writer.append(A, rows(A, (3, "gone")))
    writer.ddl.create(B)
    writer.rollback_to("s")
    assert contents(writer, A) == [(1, "x"), (2, "kept")]
    writer.append(A, rows(A, (4, "again")))
    writer.rollback_to("s")
    writer.append(A, rows(A, (5, "last")))
    writer.release("s")
    with pytest.raises(PostgresError) as raised:
        writer.rollback_to("s")
    assert (raised.value.sqlstate, raised.value.message) == ("3B001", 'savepoint "s" does not exist')
    lsn_before = engine.log.end
    writer.commit()
    assert contents(engine, A) == [(1, "x"), (2, "kept"), (5, "last")]
    assert [logged_write.changes for logged_write in engine.log.entries(lsn_before, DATABASE, 1)[0].writes] == [1, 1]
    assert not data_location.has_any(engine.tables.path((DATABASE, B.oid)))


def test_rollback_to_a_savepoint_undoes_catalog_rows(engine: Engine) -> None:
    writer = engine.begin(DATABASE)
    writer.cursor.execute("INSERT INTO hg.counter VALUES ('kept', 1)")
    writer.savepoint("s")
    writer.cursor.execute("INSERT INTO hg.counter VALUES ('gone', 2)")
    writer.rollback_to("s")
    writer.cursor.execute("INSERT INTO hg.counter VALUES ('after', 3)")
    writer.commit()
    names = engine.catalog.cursor().execute("SELECT name FROM hg.counter WHERE name IN ('kept', 'gone', 'after') ORDER BY 1").fetchall()
    assert names == [("after",), ("kept",)]


def test_a_statement_sees_all_tables_as_of_one_lsn(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    made(engine, B, (1,))
    reader = engine.begin(DATABASE)
    reader.statement()
    first = contents(reader, A)
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (2, "y")))
    writer.append(B, rows(B, (2,)))
    writer.commit()
    assert first == contents(reader, A) == [(1, "x")]
    assert contents(reader, B) == [(1,)]
    reader.statement()
    assert contents(reader, B) == [(1,), (2,)]
    reader.rollback()


def test_a_table_can_be_read_as_of_an_earlier_lsn(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    then = engine.log.end
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 1", v="'new'")
    writer.commit()
    assert engine.frame_at(A, then).toArrow().to_pylist() == [{"id": 1, "v": "x"}]
    assert engine.frame_at(A, engine.log.end).toArrow().to_pylist() == [{"id": 1, "v": "new"}]
    assert engine.frame_at(A, Lsn(1)).toArrow().num_rows == 0


def test_transaction_without_writes_has_no_log_entry(engine: Engine) -> None:
    made(engine, A)
    end = engine.log.end
    reader = engine.begin(DATABASE)
    assert reader.append(A, rows(A)) == 0
    assert reader.commit() is None
    assert engine.log.end == end


def test_two_writers_that_wait_for_each_other_are_a_deadlock(engine: Engine) -> None:
    made(engine, A)
    made(engine, B)
    first_writer, second_writer = engine.begin(DATABASE), engine.begin(DATABASE)
    first_writer.append(A, rows(A, (1, "one")))
    second_writer.append(B, rows(B, (2,)))
    waits = threading.Thread(target=lambda: first_writer.append(B, rows(B, (1,))))
    waits.start()
    while first_writer.xid not in engine.locks._waiting:
        threading.Event().wait(0.01)
    with pytest.raises(PostgresError) as raised:
        second_writer.append(A, rows(A, (2, "two")))
    assert (raised.value.sqlstate, raised.value.message) == ("40P01", "deadlock detected")
    second_writer.rollback()
    waits.join(60)
    first_writer.commit()
    assert contents(engine, A) == [(1, "one")]
    assert contents(engine, B) == [(1,)]
    counted = engine.statistics.of(DATABASE)
    assert (counted.deadlocks, counted.commits >= 1) == (1, True)


def test_a_wait_for_a_lock_can_be_cancelled(engine: Engine) -> None:
    made(engine, A)
    holder, waiter = engine.begin(DATABASE), engine.begin(DATABASE)
    holder.append(A, rows(A, (1, "x")))

    def cancel() -> None:
        raise PostgresError("57014", "canceling statement due to user request")

    waiter.locks.cancelled = cancel
    with pytest.raises(PostgresError) as raised:
        waiter.append(A, rows(A, (2, "y")))
    assert raised.value.sqlstate == "57014"
    waiter.rollback()
    holder.rollback()


def test_a_relation_without_columns_has_rows(engine: Engine) -> None:
    bare = relation(20002, "bare")
    made(engine, bare)
    writer = engine.begin(DATABASE)
    assert writer.append(bare, engine.spark.range(3).select()) == 3
    writer.commit()
    reader = engine.begin(DATABASE)
    assert (reader.reader.frame(bare).columns, reader.reader.frame(bare).count()) == ([], 3)
    reader.rollback()


def test_column_names_that_parquet_rejects_are_kept(engine: Engine) -> None:
    odd = relation(20003, "odd", **{"a b": INT8, "x;y{z}(w)=,": TEXT, 'tick`ed "q"': INT4, "ä.b": INT4})
    made(engine, odd, (1, "one", 2, 3))
    writer = engine.begin(DATABASE)
    writer.append(odd, engine.spark.createDataFrame(rows(odd, (2, "two", 3, 4))))
    assert change(writer, odd, "`a b` = 1", **{"x;y{z}(w)=,": "'changed'"}) == 1
    writer.commit()
    assert contents(engine, odd) == [(1, "changed", 2, 3), (2, "two", 3, 4)]
    plain = engine.spark.read.format("delta").load(str(engine.tables.path((DATABASE, odd.oid))))
    assert plain.columns == ["a b", "x;y{z}(w)=,", 'tick`ed "q"', "ä.b"]
    assert plain.count() == 2


def test_columns_that_differ_only_in_case_are_rejected(engine: Engine) -> None:
    writer = engine.begin(DATABASE)
    with pytest.raises(PostgresError) as raised:
        writer.ddl.create(relation(20004, "c", a=INT8, A=INT8))
    assert raised.value.sqlstate == "0A000"
    writer.rollback()


def test_history_is_recorded_at_its_position_in_the_transaction(engine: Engine) -> None:
    from headgate.catalog import namespace

    lsn_before = engine.log.end
    writer = engine.begin(DATABASE)
    namespace.create(writer.cursor, engine.catalog.next_oid(), DATABASE, "early", 10)
    writer.catalog_changed()
    writer.ddl.create(A)
    writer.append(A, rows(A, (1, "x")))
    namespace.create(writer.cursor, engine.catalog.next_oid(), DATABASE, "late", 10)
    writer.catalog_changed()
    writer.commit()
    lsn = engine.log.entries(lsn_before, DATABASE, 1)[0].commit_lsn
    cursor = engine.catalog.cursor()
    assert "early" not in history.at(cursor, DATABASE, lsn_before, 9).schemas.values()
    assert {"early"} == {"early", "late"} & set(history.at(cursor, DATABASE, lsn, 0).schemas.values())
    assert {"early", "late"} <= set(history.at(cursor, DATABASE, lsn, 1).schemas.values())


def test_waiting_for_the_log_ends_with_the_next_commit(engine: Engine) -> None:
    made(engine, A)
    end = engine.log.end
    assert not engine.log.wait(end, 0.01)
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(engine.log.wait(end, 60)))
    waiter.start()
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (1, "x")))
    writer.commit()
    waiter.join(60)
    assert woken == [True]


def test_entries_of_other_databases_and_earlier_ones_are_skipped_and_can_be_trimmed(engine: Engine) -> None:
    made(engine, A)
    for number in range(3):
        writer = engine.begin(DATABASE)
        writer.append(A, rows(A, (number, "x")))
        writer.commit()
    entries = engine.log.entries(Lsn(0), DATABASE, 100)
    assert [len(entry.writes) for entry in entries] == [0, 1, 1, 1]
    assert engine.log.entries(entries[1].end_lsn, DATABASE, 1) == [entries[2]]
    assert engine.log.entries(Lsn(0), DATABASE + 1, 100) == []
    engine.log.trim(entries[2].end_lsn)
    assert engine.log.entries(Lsn(0), DATABASE, 100) == [entries[3]]
    assert engine.log.versions()[DATABASE, A.oid].version == 3
    assert len(contents(engine, A)) == 3
