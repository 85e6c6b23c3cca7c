"""Small files are put together without anyone noticing: same rows, same change feed, and no commit waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows

from headgate import failpoint
from headgate.catalog.relation.relation import Relation
from headgate.storage import feed
from headgate.storage.delta import compaction
from headgate.storage.engine import Engine

A = relation(20100, "a", id=INT8, v=TEXT)


def small_commits(engine: Engine, table: Relation, numbers: range) -> None:
    """Insert each row in a transaction of its own."""
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
    return len(engine.visible[DATABASE, table.oid].state.files)


def before_the_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have `act` done each time a compaction has written its file, before it has the lock."""
    replaced = compaction.replaced

    def and_then(*given: Any) -> Any:
        actions = replaced(*given)
        act()
        return actions

    monkeypatch.setattr(compaction, "replaced", and_then)


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

    engine.compactor.run_due()

    assert files(engine, A) < compaction.MOST
    expected = [(n, "changed" if n == 3 else "new") for n in range(compaction.MOST + 8) if n != 4]
    assert contents(engine, A) == sorted(expected, key=repr)
    entries = engine.log.entries(begin, DATABASE, 1000)
    writes = [write for entry in entries for write in entry.writes]
    assert any(not entry.writes for entry in entries)
    changes = feed.small(engine, A, writes)
    assert changes is not None
    assert sorted(changes["op"].to_pylist()) == ["D"] + ["I"] * (compaction.MOST + 8) + ["U"]
    early = entries[20]
    assert len(engine.frame_at(A, early.end_lsn).toArrow()) == 21 - 1


def test_rows_changed_after_a_compaction_are_found_in_the_new_file(engine: Engine) -> None:
    table = grown(engine, 20101, compaction.MOST + 1)
    engine.compactor.run_due()
    assert files(engine, table) == 1

    writer = engine.begin(DATABASE)
    assert change(writer, table, "id < 30") == 30
    writer.commit()

    assert contents(engine, table) == [(n, "new") for n in range(30, compaction.MOST + 1)]


def test_a_writer_that_is_faster_loses_nothing_and_leaves_no_file(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20102, compaction.MOST + 8)
    turns = iter(range(1))

    def change_once() -> None:
        for _ in turns:
            writer = engine.begin(DATABASE)
            change(writer, table, "id = 7", v="'faster'")
            change(writer, table, "id = 8")
            writer.commit()

    before_the_lock(monkeypatch, change_once)
    engine.compactor.run_due()

    assert contents(engine, table) == sorted([(n, "faster" if n == 7 else "new") for n in range(compaction.MOST + 8) if n != 8], key=repr)
    assert files(engine, table) == 1
    log = "".join(each.read_text() for each in (engine.path((DATABASE, table.oid)) / "_delta_log").glob("*.json"))
    assert [each for each in engine.path((DATABASE, table.oid)).glob("part-*.parquet") if each.name not in log] == []


def test_writers_that_are_always_faster_wait_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20103, compaction.MOST + 8)
    victims = iter(range(compaction.ATTEMPTS))

    def delete_one() -> None:
        for victim in victims:
            writer = engine.begin(DATABASE)
            change(writer, table, f"id = {victim}")
            writer.commit()
            return

    before_the_lock(monkeypatch, delete_one)
    engine.compactor.run_due()

    assert contents(engine, table) == sorted([(n, "new") for n in range(compaction.ATTEMPTS, compaction.MOST + 8)], key=repr)
    assert files(engine, table) == 1


def test_a_transaction_that_reads_as_of_its_begin_is_waited_for(engine: Engine) -> None:
    table = grown(engine, 20104)
    reader = engine.begin(DATABASE)
    with engine.isolation.noted(reader):
        reader.isolate(None, serializable=True)
    assert len(reader.frame(table).toArrow()) == compaction.MOST

    engine.compactor.run_due()

    assert files(engine, table) == compaction.MOST
    change(reader, table, "id = 1", v="'changed'")
    reader.commit()
    engine.compactor.run_due()
    assert files(engine, table) == 1
    assert (1, "changed") in contents(engine, table)


def test_a_long_transaction_is_not_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20105)
    monkeypatch.setattr(compaction, "LONG_SECONDS", 0.0)
    reader = engine.begin(DATABASE)
    with engine.isolation.noted(reader):
        reader.isolate(None, serializable=False)

    engine.compactor.run_due()

    assert files(engine, table) == 1
    assert len(reader.frame(table).toArrow()) == compaction.MOST
    reader.rollback()


def test_a_table_whose_lock_is_held_is_looked_at_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20106)
    monkeypatch.setattr(compaction, "LOCK_SECONDS", 0.05)
    writer = engine.begin(DATABASE)
    writer.lock(table)

    engine.compactor.run_due()

    assert files(engine, table) == compaction.MOST
    writer.rollback()
    engine.compactor.run_due()
    assert files(engine, table) == 1


def test_a_compaction_that_fails_is_an_obstacle_until_it_succeeds_by_itself(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20108)
    monkeypatch.setattr(compaction, "RETRY_SECONDS", 0.0)
    failpoint.arm("compaction before=error")
    seen = []
    for _ in range(3):
        engine.compactor.run_due()
        seen.append([(work, subject) for work, subject, _ in engine.obstacles.all()])
    failpoint.arm("")

    assert seen == [[("compacting", (DATABASE, table.oid))]] * 2 + [[]]
    assert files(engine, table) == 1


def test_a_dropped_table_is_left_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(engine, 20107)

    def drop() -> None:
        writer = engine.begin(DATABASE)
        writer.drop_table(table)
        writer.commit()

    before_the_lock(monkeypatch, drop)
    engine.compactor.run_due()

    assert (DATABASE, table.oid) not in engine.visible
