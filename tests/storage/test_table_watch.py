"""The watch of the table files names a table that cannot be read, until it can be read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, made, relation

from headgate.errors import PostgresError
from headgate.server.table_watch import TableWatch
from headgate.storage.engine import READING, Engine

pytestmark = pytest.mark.on_disk


def moved(path: Path) -> Callable[[], object]:
    away = path.rename(path.with_name("away"))
    return lambda: away.rename(path)


def changed(path: Path, change: Callable[[bytes], bytes]) -> Callable[[], object]:
    content = path.read_bytes()
    path.write_bytes(change(content))
    return lambda: path.write_bytes(content)


def _file(folder: Path) -> Path:
    return next(folder.glob("*.parquet"))


DAMAGES: dict[str, tuple[Callable[[Path], Callable[[], object]], str]] = {
    "file is missing": (lambda folder: moved(_file(folder)), "is missing"),
    "file is cut off": (lambda folder: changed(_file(folder), lambda content: content[:-1]), "bytes, not"),
    "log is missing": (lambda folder: moved(folder / "_delta_log"), "there is no file"),
    "version is damaged": (lambda folder: changed(max((folder / "_delta_log").glob("*.json")), lambda content: content[:-9]), "damaged"),
    "location is missing": (lambda folder: moved(folder.parents[1]), "headgate.owner"),
}
"""Functions that damage a table's folder and return how to undo it, and what the watch reports."""


def unreadable_tables(engine: Engine) -> list[tuple[object, str]]:
    """Return the tables that cannot be read, after one more check."""
    TableWatch(engine).look()
    return [(subject, text) for work, subject, text in engine.obstacles.all() if work == READING]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("used", [True, False])
def test_unreadable_table_is_named_until_it_is_readable(engine: Engine, damage: str, used: bool) -> None:
    engine.recover()
    table = made(engine, relation(20200, "a", id=INT8, v=TEXT), (1, "x"), (2, "y"))
    key = (DATABASE, table.oid)
    if not used:
        engine.make_all_visible()
    hurt, expected_text = DAMAGES[damage]
    assert unreadable_tables(engine) == []
    undo = hurt(Path(str(engine.tables.path(key))))
    [(subject, text)] = unreadable_tables(engine)
    assert subject == ("data location" if damage == "location is missing" else key)
    assert expected_text in text
    undo()
    assert unreadable_tables(engine) == []


def test_file_that_a_statement_found_damaged_is_read_again_until_it_is_intact(engine: Engine) -> None:
    engine.recover()
    table = made(engine, relation(20201, "b", id=INT8, v=TEXT), *((number, f"value {number}") for number in range(1000)))
    path = _file(Path(str(engine.tables.path((DATABASE, table.oid)))))
    undo = changed(path, lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:])
    assert unreadable_tables(engine) == []  # its data is not read unasked
    engine.note_unreadable(PostgresError("XX001", f'file "{path}" is damaged or cannot be read'))
    [(subject, text)] = unreadable_tables(engine)
    assert (subject, "is damaged" in text) == ((DATABASE, table.oid), True)
    undo()
    assert unreadable_tables(engine) == []


def test_dropped_table_is_removed_from_the_watch(engine: Engine) -> None:
    engine.recover()
    table = made(engine, relation(20202, "c", id=INT8, v=TEXT), (1, "x"))
    moved(_file(Path(str(engine.tables.path((DATABASE, table.oid))))))
    assert len(unreadable_tables(engine)) == 1
    writer = engine.begin(DATABASE)
    writer.ddl.drop(table)
    writer.commit()
    assert unreadable_tables(engine) == []
