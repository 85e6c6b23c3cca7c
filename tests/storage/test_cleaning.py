"""Cleaning: what a reader needs stays, the rest goes."""

from __future__ import annotations

from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows

from headgate.lsn import Lsn
from headgate.storage import feed
from headgate.storage.cleaning import Cleaner
from headgate.storage.engine import Engine

A = relation(20000, "a", id=INT8, v=TEXT)


def files(engine: Engine) -> int:
    """Data files, change files and deletion vectors of the table."""
    path = engine.path((DATABASE, A.oid))
    return len([*path.glob("*.parquet"), *path.glob("_change_data/*.parquet"), *path.glob("*.bin")])


def commit(engine: Engine, condition: str, **values: str) -> Lsn:
    """UPDATE, or DELETE without values, in a transaction of its own."""
    writer = engine.begin(DATABASE)
    change(writer, A, condition, **values)
    end = writer.commit()
    assert end is not None
    return end


def test_what_a_slot_needs_stays_and_goes_when_it_needs_it_no_more(engine: Engine) -> None:
    made(engine, A, *[(n, "x") for n in range(20)])
    start = engine.log.end
    for n in range(4):
        last = commit(engine, f"id = {n}", v=f"'v{n}'")
    before = files(engine)
    cleaner = Cleaner(engine)
    cleaner.clean(start, 0)
    assert files(engine) == before
    entries = engine.log.entries(start, DATABASE, 10)
    changed = feed.changes(engine, A, [write for entry in entries for write in entry.writes])
    assert sorted(row[0] for row in changed.select("new.v").collect()) == ["v0", "v1", "v2", "v3"]
    commit(engine, "id = 9", v="'last'")
    cleaner.clean(last, 3600)
    assert files(engine) >= before
    cleaner.clean(last, 0)
    assert files(engine) < before
    assert [row[1] for row in contents(engine, A)].count("x") == 15
    [rest] = engine.log.entries(start, DATABASE, 10)
    assert feed.changes(engine, A, rest.writes).count() == 1


def test_a_table_is_whole_after_cleaning_and_further_writes(engine: Engine) -> None:
    made(engine, A, *[(n, "x") for n in range(5)])
    cleaner = Cleaner(engine)
    for n in range(3):
        commit(engine, f"id <= {n}", v=f"'v{n}'")
        cleaner.clean(engine.log.end, 0)
    commit(engine, "id = 4")
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (7, "new")))
    writer.rollback()
    cleaner.clean(engine.log.end, 0)
    assert contents(engine, A) == [(0, "v2"), (1, "v2"), (2, "v2"), (3, "x")]
    assert engine.table((DATABASE, A.oid)).state().rows == 4
