"""A prepared transaction is invisible and survives a restart, until it is committed or rolled back."""

from __future__ import annotations

import errno

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows
from tests.storage.test_recovery import again

from headgate import failpoint
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.failpoint import Step
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.transaction.log import EntryKind
from headgate.storage.transaction.transaction import Transaction

A, B = relation(20000, "a", id=INT8, v=TEXT), relation(20001, "b", id=INT8, v=TEXT)


def prepared(engine: Engine, gid: str) -> None:
    """Prepare a transaction that inserts one row and updates another."""
    transaction = engine.begin(DATABASE)
    transaction.append(A, rows(A, (2, "y")))
    change(transaction, A, "id = 1", v="'changed'")
    transaction.prepare(gid, "postgres")


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_prepared_changes_are_visible_after_their_commit(engine: Engine, restarted: bool) -> None:
    made(engine, A, (1, "x"))
    lsn_before = engine.log.end
    prepared(engine, "g")
    if restarted:
        engine = again(engine)
        assert engine.recover() == []
    assert contents(engine, A) == [(1, "x")]
    with pytest.raises(PostgresError, match="lock timeout"):
        engine.locks.acquire((DATABASE, A.oid), 999_999, lock_timeout=0)
    engine.prepared.commit(engine.prepared.take("g", DATABASE, None))
    assert contents(engine, A) == [(1, "changed"), (2, "y")]
    entries = engine.log.entries(lsn_before, DATABASE, 10)
    assert [entry.kind for entry in entries] == [EntryKind.PREPARE, EntryKind.COMMIT_PREPARED]
    assert entries[1].writes == entries[0].writes != ()
    assert engine.prepared.all() == []
    assert contents(again(engine), A) == [(1, "changed"), (2, "y")]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_commit_prepared_that_has_failed_can_be_repeated(engine: Engine, restarted: bool) -> None:
    made(engine, A, (1, "x"))
    lsn_before = engine.log.end
    prepared(engine, "g")
    for _ in range(2):
        failpoint.arm(f"{Step.PREPARED_END} before=error")
        try:
            with pytest.raises(PostgresError, match="failpoint"):
                engine.prepared.commit(engine.prepared.take("g", DATABASE, None))
        finally:
            failpoint.arm("")
        assert contents(engine, A) == [(1, "x")]
        if restarted:
            engine = again(engine)
            engine.recover()
    engine.prepared.commit(engine.prepared.take("g", DATABASE, None))
    entries = engine.log.entries(lsn_before, DATABASE, 10)
    assert [entry.kind for entry in entries] == [EntryKind.PREPARE, EntryKind.COMMIT_PREPARED]
    assert {write.version for write in entries[0].writes} == {engine.tables.visible[DATABASE, A.oid].state.version}
    for _ in range(2):
        assert contents(engine, A) == [(1, "changed"), (2, "y")]
        engine = again(engine)
        assert engine.recover() == []


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_rollback_prepared_discards_the_changes(engine: Engine, restarted: bool) -> None:
    made(engine, A, (1, "x"))
    prepared(engine, "g")
    if restarted:
        engine = again(engine)
        engine.recover()
    engine.prepared.rollback(engine.prepared.take("g", DATABASE, "postgres"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "z")))
    writer.commit()
    assert contents(engine, A) == [(1, "x"), (3, "z")]


def test_rolled_back_transaction_is_finished_even_if_its_files_cannot_be_removed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise OSError(errno.EIO, "no answer")

    made(engine, A, (1, "x"))
    prepared(engine, "g")
    with monkeypatch.context() as cut:
        cut.setattr(data_location, "remove_all", refused)
        engine.prepared.rollback(engine.prepared.take("g", DATABASE, "postgres"))
    assert engine.prepared.all() == []
    assert contents(engine, A) == [(1, "x")]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_rows_read_by_a_serializable_prepared_transaction_cannot_be_changed_before_its_end(engine: Engine, restarted: bool) -> None:
    def skew(written_table: Relation, read: Relation) -> Transaction:
        transaction = engine.begin(DATABASE)
        transaction.isolate(None, serializable=True)
        transaction.reader.state(read)
        transaction.append(written_table, rows(written_table, (3,)))
        return transaction

    first, second, third = (relation(20001 + index, name, id=INT8) for index, name in enumerate("bcd"))
    for table in (first, second, third):
        made(engine, table, (1,))
    skew(first, second).prepare("g", "postgres")
    if restarted:
        engine = again(engine)
        engine.recover()
    with pytest.raises(PostgresError, match="could not serialize access due to read/write dependencies"):
        skew(second, first).commit()
    with pytest.raises(PostgresError, match="could not serialize access due to read/write dependencies"):
        skew(second, first).prepare("h", "postgres")
    with pytest.raises(PostgresError, match="could not serialize access due to read/write dependencies"):
        skew(third, first).prepare("i", "postgres")
    skew(third, first).commit()
    engine.prepared.commit(engine.prepared.take("g", DATABASE, None))
    skew(second, first).commit()
    assert contents(engine, second) == [(1,), (3,)]


def test_table_that_is_only_locked_stays_locked_over_a_restart(engine: Engine) -> None:
    """INSERT locks the tables that its rows reference, so that the referenced rows stay."""
    made(engine, A)
    made(engine, B)
    writer = engine.begin(DATABASE)
    writer.lock(B)
    writer.append(A, rows(A, (1, "x")))
    writer.prepare("locked", "postgres")
    engine = again(engine)
    engine.recover()
    other = engine.begin(DATABASE)
    with pytest.raises(PostgresError, match="lock timeout"):
        other.lock(B, wait=False)
    engine.prepared.commit(engine.prepared.take("locked", DATABASE, None))
    other.lock(B, wait=False)
    other.rollback()


def test_identifier_is_unique_and_only_its_owner_can_finish_it(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    prepared(engine, "g")
    other_transaction = engine.begin(DATABASE)
    with pytest.raises(PostgresError, match='transaction identifier "g" is already in use'):
        other_transaction.prepare("g", "postgres")
    with pytest.raises(PostgresError, match="permission denied to finish prepared transaction"):
        engine.prepared.take("g", DATABASE, "somebody")
    with pytest.raises(PostgresError, match="belongs to another database"):
        engine.prepared.take("g", DATABASE + 1, None)


def test_log_keeps_a_prepare_until_its_end_is_trimmed(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    prepared(engine, "g")
    made(engine, relation(20001, "b", id=INT8), (1,))
    engine.log.trim(engine.log.end)
    assert next(entry.kind for entry in engine.log.entries(engine.log.end - 10**6, DATABASE, 10)) is EntryKind.PREPARE
    engine.prepared.commit(engine.prepared.take("g", DATABASE, None))
    made(engine, relation(20002, "c", id=INT8), (1,))
    engine.log.trim(engine.log.end)
    highest = engine.log.next_xid()
    engine.emit(DATABASE, "prefix", b"has no xid")
    engine.log.trim(engine.log.end)
    assert again(engine).log.next_xid() >= highest
    assert all(entry.kind is not EntryKind.PREPARE for entry in engine.log.entries(engine.log.end - 10**6, DATABASE, 10))
