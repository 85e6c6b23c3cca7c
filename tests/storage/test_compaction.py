"""Compaction merges small files. Rows and the change feed stay the same, and no commit waits for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows

from headgate import failpoint
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.storage import cleaning, compactor, feed
from headgate.storage.compactor import Compactor
from headgate.storage.delta import compaction, delta_log, file_action
from headgate.storage.engine import Engine

A = relation(20100, "a", id=INT8, v=TEXT)


def small_commits(engine: Engine, table: Relation, numbers: range) -> None:
    """Insert each row in a separate transaction."""
    for number in numbers:
        writer = engine.begin(DATABASE)
        writer.append(table, rows(table, (number, "new")))
        writer.commit()


def grown(engine: Engine, oid: int, rows_of_table: int = compaction.MOST) -> Relation:
    """Return a table that has a small file for each of its rows."""
    table = made(engine, relation(oid, f"t{oid}", id=INT8, v=TEXT))
    small_commits(engine, table, range(rows_of_table))
    return table


def files(engine: Engine, table: Relation) -> int:
    """Return how many data files the visible version has."""
    return len(engine.tables.visible[DATABASE, table.oid].state.files)


def unnamed_files(engine: Engine, table: Relation) -> list[Path]:
    """Return the data and deletion-vector files in the table's folder that no version names."""
    folder = engine.tables.path((DATABASE, table.oid))
    named_files = cleaning.named_files(folder, -1)
    return [file for pattern in ("*.parquet", "*.bin") for file in folder.glob(pattern) if file.name not in named_files]


def delete(engine: Engine, table: Relation, condition: str) -> None:
    """Delete rows in a separate transaction."""
    writer = engine.begin(DATABASE)
    change(writer, table, condition)
    writer.commit()


def before_the_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Call `act` each time a compaction has written its files, before it acquires the lock."""
    rewrite = compaction.rewrite

    def and_then(*arguments: Any) -> Any:
        rewritten = rewrite(*arguments)
        act()
        return rewritten

    monkeypatch.setattr(compaction, "rewrite", and_then)


@pytest.mark.slow
def test_many_small_commits_leave_few_files_the_same_rows_and_every_change(engine: Engine) -> None:
    made(engine, A)
    begin = engine.log.end
    for number in range(compaction.MOST + 8):
        writer = engine.begin(DATABASE)
        writer.append(A, rows(A, (number, "new")))
        if number == 10:
            change(writer, A, "id = 3", v="'changed'")
        if number == 12:
            change(writer, A, "id = 4")
        writer.commit()

    Compactor(engine).look()

    assert files(engine, A) < compaction.MOST
    expected = [(number, "changed" if number == 3 else "new") for number in range(compaction.MOST + 8) if number != 4]
    assert contents(engine, A) == sorted(expected, key=repr)
    entries = engine.log.entries(begin, DATABASE, 1000)
    writes = [write for entry in entries for write in entry.writes]
    assert any(not entry.writes for entry in entries)
    changes = feed.small(engine.tables, A, writes)
    assert changes is not None
    assert sorted(changes["op"].to_pylist()) == ["D"] + ["I"] * (compaction.MOST + 8) + ["U"]
    early = entries[20]
    assert len(engine.frame_at(A, early.end_lsn).toArrow()) == 21 - 1


def test_rows_changed_after_a_compaction_are_found_in_the_new_file(engine: Engine) -> None:
    table = grown(engine, 20101, compaction.MOST + 1)
    Compactor(engine).look()
    assert files(engine, table) == 1

    writer = engine.begin(DATABASE)
    assert change(writer, table, "id < 30") == 30
    writer.commit()

    assert contents(engine, table) == [(number, "new") for number in range(30, compaction.MOST + 1)]


def test_concurrent_removal_of_a_file_loses_no_row_and_leaves_no_file(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20102, compaction.MOST + 8)
    turns = iter(range(1))

    def change_once() -> None:
        for _ in turns:
            writer = engine.begin(DATABASE)
            change(writer, table, "id = 7", v="'faster'")
            change(writer, table, "id = 8")
            writer.commit()

    before_the_lock(monkeypatch, change_once)
    Compactor(engine).look()

    assert contents(engine, table) == sorted(
        [(number, "faster" if number == 7 else "new") for number in range(compaction.MOST + 8) if number != 8], key=repr
    )
    assert files(engine, table) == 1
    assert unnamed_files(engine, table) == []


def test_rows_deleted_while_a_file_is_rewritten_are_deleted_in_the_new_file(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_ROWS", 100)
    table = made(engine, relation(20109, "sparse", id=INT8, v=TEXT), *[(number, "new") for number in range(200)])
    delete(engine, table, "id % 3 = 0")
    begin = engine.log.end
    turns = iter(["id IN (1, 5, 50) OR id > 190", "id = 2"])

    def delete_more() -> None:
        delete(engine, table, next(turns))

    before_the_lock(monkeypatch, delete_more)
    Compactor(engine).look()

    [file] = engine.tables.visible[DATABASE, table.oid].state.files.values()
    remaining = [number for number in range(200) if number % 3 and number not in (1, 5, 50) and number <= 190]
    assert file_action.records(file) == len([number for number in range(200) if number % 3])
    assert contents(engine, table) == sorted([(number, "new") for number in remaining], key=repr)
    delete(engine, table, "id = 100")
    changes = feed.small(engine.tables, table, [write for entry in engine.log.entries(begin, DATABASE, 100) for write in entry.writes])
    assert changes is not None
    assert sorted(row["id"] for row in changes["old"].to_pylist()) == sorted(
        [1, 5, 50, 100, *(number for number in range(191, 200) if number % 3)]
    )
    assert unnamed_files(engine, table) == []


def test_rows_that_another_writer_restores_while_a_file_is_rewritten_stay(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_ROWS", 100)
    table = made(engine, relation(20113, "restored", id=INT8, v=TEXT), *[(number, "new") for number in range(200)])
    key, turns = (DATABASE, table.oid), iter(range(1))
    [whole] = engine.tables.visible[key].state.files.values()
    delete(engine, table, "id >= 100")

    def restore_once() -> None:
        for _ in turns:
            state = engine.tables.visible[key].state
            actions = [file_action.removal(add, data_change=True) for add in state.files.values()]
            delta_log.write_version(engine.tables.path(key), state.version + 1, [*actions, {"add": whole}], "other")
            engine.foreign.adopt(key)

    monkeypatch.setattr(relations, "find", lambda *_: table)
    before_the_lock(monkeypatch, restore_once)
    Compactor(engine).look()

    assert contents(engine, table) == sorted([(number, "new") for number in range(200)], key=repr)
    assert unnamed_files(engine, table) == []


def test_file_that_is_emptied_while_it_is_rewritten_is_removed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_ROWS", 100)
    table = made(engine, relation(20110, "emptied", id=INT8, v=TEXT), *[(number, "new") for number in range(200)])
    delete(engine, table, "id >= 100")
    turns = iter(["id < 100"])
    before_the_lock(monkeypatch, lambda: [delete(engine, table, condition) for condition in turns] and None)

    Compactor(engine).look()

    assert files(engine, table) == 0
    assert unnamed_files(engine, table) == []


@pytest.mark.parametrize(("deleted", "is_rewritten"), [(40, False), (41, True)])
def test_file_is_rewritten_if_more_than_a_fifth_of_its_rows_is_deleted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, deleted: int, is_rewritten: bool
) -> None:
    monkeypatch.setattr(compaction, "SMALL_ROWS", 100)
    table = made(engine, relation(20111 + deleted, f"fifth{deleted}", id=INT8, v=TEXT), *[(number, "new") for number in range(200)])
    delete(engine, table, f"id < {deleted}")

    Compactor(engine).look()

    [file] = engine.tables.visible[DATABASE, table.oid].state.files.values()
    assert file_action.records(file) == (200 - deleted if is_rewritten else 200)
    assert contents(engine, table) == sorted([(number, "new") for number in range(deleted, 200)], key=repr)


def test_writers_that_are_always_faster_wait_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20103, compaction.MOST + 8)
    victims = iter(range(compactor.ATTEMPTS))

    def delete_one() -> None:
        for victim in victims:
            writer = engine.begin(DATABASE)
            change(writer, table, f"id = {victim}")
            writer.commit()
            return

    before_the_lock(monkeypatch, delete_one)
    Compactor(engine).look()

    assert contents(engine, table) == sorted([(number, "new") for number in range(compactor.ATTEMPTS, compaction.MOST + 8)], key=repr)
    assert files(engine, table) == 1


def test_compaction_waits_for_a_transaction_that_reads_as_of_its_begin(engine: Engine) -> None:
    table = grown(engine, 20104)
    transaction = engine.begin(DATABASE)
    with engine.running.noted(transaction):
        transaction.isolate(None, serializable=True)
    assert len(transaction.reader.frame(table).toArrow()) == compaction.MOST

    Compactor(engine).look()

    assert files(engine, table) == compaction.MOST
    change(transaction, table, "id = 1", v="'changed'")
    transaction.commit()
    Compactor(engine).look()
    assert files(engine, table) == 1
    assert (1, "changed") in contents(engine, table)


def test_compaction_does_not_wait_for_a_long_transaction(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20105)
    monkeypatch.setattr(compactor, "LONG_SECONDS", 0.0)
    transaction = engine.begin(DATABASE)
    with engine.running.noted(transaction):
        transaction.isolate(None, serializable=False)

    Compactor(engine).look()

    assert files(engine, table) == 1
    assert len(transaction.reader.frame(table).toArrow()) == compaction.MOST
    transaction.rollback()


def test_table_whose_lock_is_held_is_compacted_later(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20106)
    monkeypatch.setattr(compactor, "LOCK_SECONDS", 0.05)
    writer = engine.begin(DATABASE)
    writer.lock(table)

    worker = Compactor(engine)
    worker.look()

    assert files(engine, table) == compaction.MOST
    writer.rollback()
    worker.look()
    assert files(engine, table) == 1


def test_failing_compaction_is_an_obstacle_until_it_succeeds(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20108)
    monkeypatch.setattr(compactor, "RETRY_SECONDS", 0.0)
    failpoint.arm("compaction before=error")
    worker, obstacles = Compactor(engine), []
    for _ in range(3):
        worker.look()
        obstacles.append([(work, subject) for work, subject, _ in engine.obstacles.all()])
    failpoint.arm("")

    assert obstacles == [[("compacting", (DATABASE, table.oid))]] * 2 + [[]]
    assert files(engine, table) == 1


def test_dropped_table_is_not_compacted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20107)

    def drop() -> None:
        writer = engine.begin(DATABASE)
        writer.ddl.drop(table)
        writer.commit()

    before_the_lock(monkeypatch, drop)
    Compactor(engine).look()

    assert (DATABASE, table.oid) not in engine.tables.visible
