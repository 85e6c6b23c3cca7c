"""Rows that are added without the table's lock: when they are written, and what is then looked at again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows
from tests.storage.test_foreign_writer import changes, foreign_append

from headgate.errors import PostgresError
from headgate.storage.engine import Engine
from headgate.storage.transaction import pending_rows
from headgate.storage.transaction.transaction import Transaction

A, B = relation(20000, "a", id=INT8, v=TEXT), relation(20001, "b", id=INT8, v=TEXT)


def later(transaction: Transaction, *values: tuple[int, str], table: object = A, check: pending_rows.Check = lambda _: None) -> None:
    """Adds rows if the table lets them be pending, as INSERT does."""
    assert transaction.claim(table, {1: {value[0] for value in values}})
    transaction.add_later(table, rows(table, *values), check)  # type: ignore[arg-type]


def taken(_: pa.Table) -> None:
    raise PostgresError("23505", "duplicate key value")


def test_nothing_is_written_before_the_commit_and_then_one_version_for_all_that_were_added_in_a_row(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start, version = engine.log.end, engine.visible[DATABASE, A.oid].state.version
    one = engine.begin(DATABASE)
    later(one, (2, "y"))
    later(one, (3, "z"))
    assert contents(one, A) == [(1, "x"), (2, "y"), (3, "z")]
    assert contents(engine, A) == [(1, "x")]
    assert engine.table((DATABASE, A.oid)).state().version == version
    one.commit()
    assert changes(engine, start) == [("write", 2)]
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "z")]


def test_writes_stand_in_the_log_in_the_order_of_the_statements(engine: Engine) -> None:
    made(engine, A)
    made(engine, B)
    start = engine.log.end
    one = engine.begin(DATABASE)
    later(one, (1, "x"))
    later(one, (2, "y"), table=B)
    later(one, (3, "z"))
    one.commit()
    written = [write.relation for entry in engine.log.entries(start, DATABASE, 10) for write in entry.writes]
    assert written == [A.oid, B.oid, A.oid]


def test_two_that_commit_at_the_same_time_are_no_deadlock(engine: Engine) -> None:
    made(engine, A)
    made(engine, B)
    first, one, two = (engine.begin(DATABASE) for _ in range(3))
    later(one, (1, "x"))
    later(one, (1, "x"), table=B)
    later(two, (2, "y"), table=B)
    later(two, (2, "y"))
    later(first, (3, "z"))
    first.lock(A)
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(each.commit) for each in (one, two)]
        while not {one.xid, two.xid} <= engine.locks._waiting.keys():
            assert not any(each.done() for each in ends)
        first.commit()
        assert all(each.result(60) for each in ends)
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "z")]
    assert contents(engine, B) == [(1, "x"), (2, "y")]


def test_rows_are_several_writes_where_something_was_logged_between_their_statements(engine: Engine) -> None:
    made(engine, A)
    start, one = engine.log.end, engine.begin(DATABASE)
    later(one, (1, "x"))
    later(one, (2, "y"))
    middle = engine.emit(DATABASE, "prefix", b"between")
    later(one, (3, "z"))
    one.commit()
    [_, entry] = engine.log.entries(start, DATABASE, 10)
    assert [(write.changes, write.seen <= middle) for write in entry.writes] == [(2, True), (1, False)]


def test_a_change_writes_what_was_added_before_it(engine: Engine) -> None:
    made(engine, A)
    one = engine.begin(DATABASE)
    later(one, (1, "x"), (2, "y"))
    assert change(one, A, "id = 1", v="'new'") == 1
    one.commit()
    assert contents(engine, A) == [(1, "new"), (2, "y")]


def test_many_rows_are_written_at_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_rows, "SMALL_ROWS", 2)
    made(engine, A)
    one, two = engine.begin(DATABASE), engine.begin(DATABASE)
    later(one, (1, "x"), (2, "y"))
    later(one, (3, "z"))
    assert not two.claim(A, {1: {9}}), "the first has taken the lock"
    one.commit()
    two.rollback()
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "z")]


def test_a_rollback_forgets_them(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    end, one = engine.log.end, engine.begin(DATABASE)
    later(one, (2, "y"))
    one.rollback()
    assert contents(engine, A) == [(1, "x")]
    assert engine.log.end == end


def test_keys_are_looked_up_again_where_somebody_who_did_not_ask_has_added_rows(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    one, two = engine.begin(DATABASE), engine.begin(DATABASE)
    later(one, (2, "y"), check=taken)
    later(two, (3, "z"))
    foreign_append(engine, (2, "foreign"))
    two.commit()
    with pytest.raises(PostgresError, match="duplicate key value"):
        one.commit()
    assert contents(engine, A) == [(1, "x"), (2, "foreign"), (3, "z")]


def test_keys_are_not_looked_up_again_where_nothing_has_changed(engine: Engine) -> None:
    made(engine, A)
    one = engine.begin(DATABASE)
    later(one, (2, "y"), check=taken)
    one.commit()
    assert contents(engine, A) == [(2, "y")]


def test_a_prepared_transaction_has_them(engine: Engine) -> None:
    made(engine, A)
    one = engine.begin(DATABASE)
    later(one, (1, "x"))
    engine.prepared.prepare(one, "later", "postgres")
    assert contents(engine, A) == []
    engine.prepared.commit(engine.prepared.take("later", DATABASE, None))
    assert contents(engine, A) == [(1, "x")]
