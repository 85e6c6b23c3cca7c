"""If a table's newest version is missing at startup, an error names it. Older contents are not shown and its number is not used again."""

from __future__ import annotations

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows
from tests.storage.test_recovery import again

from headgate.errors import PostgresError
from headgate.storage.cleaning import Cleaner
from headgate.storage.delta.delta_log import newest_version
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

A = relation(20000, "a", id=INT8, v=TEXT)
B = relation(20001, "b", id=INT8, v=TEXT)


def hidden(engine: Engine, version: int) -> list[tuple[DataPath, bytes]]:
    """Remove the commit file of a version and its checksums. Return them."""
    log = engine.tables.path((DATABASE, A.oid)) / "_delta_log"
    names = [name for name in data_location.names(log) if name.lstrip(".").startswith(f"{version:020d}.")]
    contents_of_files = [(log / name, (log / name).read_bytes()) for name in names]
    data_location.remove_all(file for file, _ in contents_of_files)
    return contents_of_files


def test_table_with_a_missing_newest_version_is_an_error_and_its_number_is_not_reused(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    made(engine, B, (1, "x"))
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 1", v="'newer'")
    writer.commit()
    path = engine.tables.path((DATABASE, A.oid))
    newest = newest_version(path)
    assert newest is not None
    removed = hidden(engine, newest)
    engine.tables[DATABASE, A.oid].forget()  # a process that starts has an empty cache
    started = again(engine)
    text = f"version {newest} of relation {A.oid} of database {DATABASE} is missing"
    assert [line for line in started.recover() if text in line]

    def append() -> None:
        transaction = started.begin(DATABASE)
        try:
            transaction.append(A, rows(A, (2, "y")))
            transaction.commit()
        finally:
            transaction.rollback()

    for work in (lambda: contents(started, A), append):
        with pytest.raises(PostgresError, match=text) as raised:
            work()
        assert raised.value.sqlstate == "XX001"
        assert str(path / "_delta_log" / f"{newest:020d}.json") in (raised.value.detail or "")
    assert newest_version(path) == newest - 1
    # other tables can be written
    made(started, relation(20002, "c", id=INT8), (3,))
    started.foreign.look()
    Cleaner(started).clean(started.log.end, 0)
    assert contents(started, B) == [(1, "x")]
    for file, content in removed:
        data_location.write_new(file, content.decode())
    assert contents(started, A) == [(1, "newer")]
    append()
    assert contents(started, A) == [(1, "newer"), (2, "y")]


def test_table_that_lacks_its_newest_version_can_be_dropped(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    hidden(engine, newest_version(engine.tables.path((DATABASE, A.oid))) or 0)
    engine.tables[DATABASE, A.oid].forget()
    started = again(engine)
    started.recover()
    transaction = started.begin(DATABASE)
    transaction.own(A)  # DROP TABLE must not raise XX001
    transaction.ddl.drop(A)
    transaction.commit()
    assert not data_location.has_any(engine.tables.path((DATABASE, A.oid)))


def test_missing_version_below_the_newest_is_named(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    hidden(engine, newest_version(engine.tables.path((DATABASE, A.oid))) or 0)
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 1", v="'newer'")
    writer.commit()
    newest = newest_version(engine.tables.path((DATABASE, A.oid))) or 0
    engine.tables[DATABASE, A.oid].forget()
    started = again(engine)
    started.recover()
    with pytest.raises(PostgresError, match=f"version {newest - 1} of relation {A.oid} of database {DATABASE} is missing") as raised:
        contents(started, A)
    assert raised.value.sqlstate == "XX001"
