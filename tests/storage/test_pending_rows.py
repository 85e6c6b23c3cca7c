"""Rows can be added without the table's lock. They are written at commit, and their keys are checked again if others have added rows."""

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
from headgate.types import buffers

A, B = relation(20000, "a", id=INT8, v=TEXT), relation(20001, "b", id=INT8, v=TEXT)


def later(transaction: Transaction, *values: tuple[int, str], table: object = A, check: pending_rows.Check = lambda _: None) -> None:
    """Add rows that are pending if the table permits it, as INSERT does."""
    assert transaction.claim(table, {1: {value[0] for value in values}})
    transaction.add_later(table, rows(table, *values), check)  # type: ignore[arg-type]


def taken(_: pa.Table) -> None:
    raise PostgresError("23505", "duplicate key value")


def test_rows_are_written_at_commit_in_one_version(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start, version = engine.log.end, engine.tables.visible[DATABASE, A.oid].state.version
    writer = engine.begin(DATABASE)
    later(writer, (2, "y"))
    later(writer, (3, "z"))
    assert contents(writer, A) == [(1, "x"), (2, "y"), (3, "z")]
    assert contents(engine, A) == [(1, "x")]
    assert engine.tables[DATABASE, A.oid].state().version == version
    writer.commit()
    assert changes(engine, start) == [("write", 2)]
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "z")]


def test_writes_are_in_the_log_in_the_order_of_the_statements(engine: Engine) -> None:
    made(engine, A)
    made(engine, B)
    start = engine.log.end
    writer = engine.begin(DATABASE)
    later(writer, (1, "x"))
    later(writer, (2, "y"), table=B)
    later(writer, (3, "z"))
    writer.commit()
    relations = [write.relation for entry in engine.log.entries(start, DATABASE, 10) for write in entry.writes]
    assert relations == [A.oid, B.oid, A.oid]


def test_two_concurrent_commits_do_not_deadlock(engine: Engine) -> None:
    made(engine, A)
    made(engine, B)
    first, second, third = (engine.begin(DATABASE) for _ in range(3))
    later(second, (1, "x"))
    later(second, (1, "x"), table=B)
    later(third, (2, "y"), table=B)
    later(third, (2, "y"))
    later(first, (3, "z"))
    first.lock(A)
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(writer.commit) for writer in (second, third)]
        while not {second.xid, third.xid} <= engine.locks._waiting.keys():
            assert not any(end.done() for end in ends)
        first.commit()
        assert all(end.result(60) for end in ends)
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "z")]
    assert contents(engine, B) == [(1, "x"), (2, "y")]


def test_rows_are_several_writes_if_an_entry_was_logged_between_their_statements(engine: Engine) -> None:
    made(engine, A)
    start, writer = engine.log.end, engine.begin(DATABASE)
    later(writer, (1, "x"))
    later(writer, (2, "y"))
    middle = engine.emit(DATABASE, "prefix", b"between")
    later(writer, (3, "z"))
    writer.commit()
    [_, entry] = engine.log.entries(start, DATABASE, 10)
    assert [(write.changes, write.seen < middle) for write in entry.writes] == [(2, True), (1, False)]


def test_update_writes_the_rows_that_were_added_before_it(engine: Engine) -> None:
    made(engine, A)
    writer = engine.begin(DATABASE)
    later(writer, (1, "x"), (2, "y"))
    assert change(writer, A, "id = 1", v="'new'") == 1
    writer.commit()
    assert contents(engine, A) == [(1, "new"), (2, "y")]


def test_many_rows_are_written_immediately(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_rows, "SMALL_ROWS", 2)
    made(engine, A)
    first_writer, second_writer = engine.begin(DATABASE), engine.begin(DATABASE)
    later(first_writer, (1, "x"), (2, "y"))
    later(first_writer, (3, "z"))
    assert not second_writer.claim(A, {1: {9}}), "the first has taken the lock"
    first_writer.commit()
    second_writer.rollback()
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "z")]


@pytest.mark.parametrize(("single_rows", "expected_piles"), [(3, 3), (10, 6)])
def test_savepoints_share_the_pending_rows(engine: Engine, monkeypatch: pytest.MonkeyPatch, single_rows: int, expected_piles: int) -> None:
    monkeypatch.setattr(pending_rows, "SINGLE_BYTES", single_rows * buffers.memory(rows(A, (0, "x"))))
    made(engine, A)
    made(engine, B)
    writer = engine.begin(DATABASE)
    for number in range(6):
        writer.savepoint(f"s{number}")
        later(writer, (number, "x"), table=(A, B)[number % 2])
    saved = [savepoint.saved.pending for savepoint in writer._savepoints._all]
    assert len({id(pending.inserts) for pending in saved}) == 1, "otherwise their size grows with the square of their number"
    piles = {id(insert.piece.pile) for insert in saved[0].inserts}
    assert len(piles) == expected_piles, "both tables have the same columns"
    writer.rollback_to("s4")
    later(writer, (7, "y"))
    writer.savepoint("t")
    writer.lock(A)
    writer.append(B, rows(B, (8, "y")))
    writer.rollback_to("t")
    writer.append(A, rows(A, (9, "y")))
    assert contents(writer, A) == [(0, "x"), (2, "x"), (7, "y"), (9, "y")]
    writer.commit()
    assert contents(engine, A) == [(0, "x"), (2, "x"), (7, "y"), (9, "y")]
    assert contents(engine, B) == [(1, "x"), (3, "x")]


def test_rollback_drops_pending_rows(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    end, writer = engine.log.end, engine.begin(DATABASE)
    later(writer, (2, "y"))
    writer.rollback()
    assert contents(engine, A) == [(1, "x")]
    assert engine.log.end == end


@pytest.mark.slow
def test_keys_are_looked_up_again_if_others_have_added_rows(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    first_writer, second_writer = engine.begin(DATABASE), engine.begin(DATABASE)
    later(first_writer, (2, "y"), check=taken)
    later(second_writer, (3, "z"))
    foreign_append(engine, (2, "foreign"))
    second_writer.commit()
    with pytest.raises(PostgresError, match="duplicate key value"):
        first_writer.commit()
    assert contents(engine, A) == [(1, "x"), (2, "foreign"), (3, "z")]


def test_keys_are_not_looked_up_again_if_nothing_has_changed(engine: Engine) -> None:
    made(engine, A)
    writer = engine.begin(DATABASE)
    later(writer, (2, "y"), check=taken)
    writer.commit()
    assert contents(engine, A) == [(2, "y")]


@pytest.mark.slow
def test_rows_that_could_not_be_written_count_as_a_write(engine: Engine) -> None:
    """Otherwise the statement that was to write them would run again without them."""
    made(engine, A, (1, "x"))
    writer = engine.begin(DATABASE)
    later(writer, (2, "y"), check=taken)
    foreign_append(engine, (2, "foreign"))
    before = writer.place
    with pytest.raises(PostgresError, match="duplicate key value"):
        writer.lock(A)
    assert writer.place != before
    writer.rollback()


def test_prepared_transaction_contains_its_pending_rows(engine: Engine) -> None:
    made(engine, A)
    writer = engine.begin(DATABASE)
    later(writer, (1, "x"))
    writer.prepare("later", "postgres")
    assert contents(engine, A) == []
    engine.prepared.commit(engine.prepared.take("later", DATABASE, None))
    assert contents(engine, A) == [(1, "x")]
