"""Small files are put together without anyone noticing: same rows, same change feed."""

from __future__ import annotations

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows

from headgate.storage import feed
from headgate.storage.delta import compaction
from headgate.storage.engine import Engine

A = relation(20100, "a", id=INT8, v=TEXT)


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
    assert len(engine.visible[DATABASE, A.oid].state.files) < compaction.MOST
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
    table = relation(20101, "b", id=INT8, v=TEXT)
    made(engine, table)
    for number in range(compaction.MOST + 1):
        writer = engine.begin(DATABASE)
        writer.append(table, rows(table, (number, "new")))
        writer.commit()
    writer = engine.begin(DATABASE)
    assert change(writer, table, "id < 30") == 30
    writer.commit()
    assert contents(engine, table) == [(n, "new") for n in range(30, compaction.MOST + 1)]
