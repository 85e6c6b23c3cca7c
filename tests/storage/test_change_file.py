"""The changes of many small statements of a transaction are one change file and one write of the log, in the statements' order."""

from __future__ import annotations

from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog import namespace
from headgate.storage import feed
from headgate.storage.delta import delta_log
from headgate.storage.delta.compaction import MOST
from headgate.storage.engine import Engine
from headgate.storage.transaction.log import LogEntry
from headgate.storage.transaction.transaction import Transaction

A = relation(21000, "a", id=INT8, v=TEXT)
B = relation(21001, "b", id=INT8, v=TEXT)


def committed(engine: Engine, writer: Transaction) -> LogEntry:
    lsn_before = engine.log.end
    writer.commit()
    [entry] = engine.log.entries(lsn_before, DATABASE, 10)
    return entry


def changes(engine: Engine, entry: LogEntry, table=A) -> list[tuple[str, object, object]]:
    """Return (op, old v, new v) of the changes of a table, as in a stream."""
    changes_frame = feed.small(engine.tables, table, [write for write in entry.writes if write.relation == table.oid])
    assert changes_frame is not None
    listed = changes_frame.sort_by([("seq", "ascending"), ("position", "ascending")]).to_pylist()
    return [(row["op"], row["old"] and row["old"]["v"], row["new"] and row["new"]["v"]) for row in listed]


def test_consecutive_statements_are_one_write_in_their_order(engine: Engine) -> None:
    made(engine, A, (1, "a"), (2, "b"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "c")))
    change(writer, A, "id = 3", v="'cc'")
    change(writer, A, "id = 1")
    writer.append(A, rows(A, (1, "again")))
    change(writer, A, "id = 3")
    entry = committed(engine, writer)
    assert [(write.seq, write.changes) for write in entry.writes] == [(0, 5)]
    assert changes(engine, entry) == [("I", None, "c"), ("U", "c", "cc"), ("D", "a", None), ("I", None, "again"), ("D", "cc", None)]
    assert contents(engine, A) == [(1, "again"), (2, "b")]
    actions = delta_log.read_version(engine.tables.path((DATABASE, A.oid)), entry.writes[0].version)
    assert sum("cdc" in action for action in actions) == 1


def test_small_files_of_a_transaction_are_one_file_after_its_commit(engine: Engine) -> None:
    made(engine, A, (0, "old"))
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 0", v="'new'")
    for number in range(1, MOST + 1):
        writer.append(A, rows(A, (number, "x")))
    change(writer, A, "id = 7")
    entry = committed(engine, writer)
    assert [write.changes for write in entry.writes] == [MOST + 2]
    path = engine.tables.path((DATABASE, A.oid))
    actions = delta_log.read_version(path, entry.writes[0].version)
    assert sum("add" in action for action in actions) == 1
    assert len(contents(engine, A)) == MOST
    named_files = engine.tables.visible[DATABASE, A.oid].state.files
    base = {action["add"]["path"] for action in delta_log.read_version(path, 1) if "add" in action}
    assert {file.name for file in path.glob("part-*.parquet")} == {*named_files, *base}


def test_changes_rolled_back_to_a_savepoint_are_not_recorded(engine: Engine) -> None:
    made(engine, A, (1, "a"), (2, "b"))
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 1", v="'kept'")
    writer.savepoint("s")
    change(writer, A, "id = 2", v="'undone'")
    writer.append(A, rows(A, (3, "undone")))
    writer.rollback_to("s")
    writer.append(A, rows(A, (4, "d")))
    writer.release("s")
    change(writer, A, "id = 4", v="'dd'")
    entry = committed(engine, writer)
    assert changes(engine, entry) == [("U", "a", "kept"), ("I", None, "d"), ("U", "d", "dd")]
    assert [(write.changes, bool(write.xid)) for write in entry.writes] == [(1, False), (1, True), (1, False)]
    assert contents(engine, A) == [(1, "kept"), (2, "b"), (4, "dd")]


def test_changes_of_another_table_in_between_keep_their_position(engine: Engine) -> None:
    made(engine, A, (1, "a"))
    made(engine, B, (1, "b"))
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 1", v="'a1'")
    change(writer, B, "id = 1", v="'b1'")
    change(writer, A, "id = 1", v="'a2'")
    change(writer, A, "id = 1", v="'a3'")
    writer.truncate([B])
    entry = committed(engine, writer)
    assert [(write.relation, write.changes) for write in entry.writes] == [(A.oid, 1), (B.oid, 1), (A.oid, 2), (B.oid, 0)]
    assert [int(write.lsn) for write in entry.writes] == sorted(int(write.lsn) for write in entry.writes)
    assert changes(engine, entry) == [("U", "a", "a1"), ("U", "a1", "a2"), ("U", "a2", "a3")]
    assert changes(engine, entry, B) == [("U", "b", "b1")]


def between(engine: Engine, *, defines: bool) -> list[int]:
    """Run two statements of a transaction, between which another transaction commits rows or a definition.

    Return how many changes each write has.
    """
    made(engine, A, (1, "a"))
    made(engine, B)
    writer = engine.begin(DATABASE)
    change(writer, A, "id = 1", v="'a1'")
    other_writer = engine.begin(DATABASE)
    other_writer.append(B, rows(B, (1, "b")))
    if defines:
        namespace.create(other_writer.cursor, engine.catalog.next_oid(), DATABASE, "other", 10)
    other_writer.commit()
    change(writer, A, "id = 1", v="'a2'")
    entry = committed(engine, writer)
    assert changes(engine, entry) == [("U", "a", "a1"), ("U", "a1", "a2")]
    return [write.changes for write in entry.writes]


def test_rows_that_another_transaction_commits_do_not_separate_the_statements(engine: Engine) -> None:
    assert between(engine, defines=False) == [2]


def test_statement_after_a_definition_committed_by_another_transaction_is_a_separate_write(engine: Engine) -> None:
    assert between(engine, defines=True) == [1, 1]


def test_changes_of_a_prepared_transaction_are_in_one_file(engine: Engine) -> None:
    made(engine, A, (1, "a"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (2, "b")))
    change(writer, A, "id = 2", v="'bb'")
    writer.prepare("gid", "postgres")
    engine.prepared.commit(engine.prepared.take("gid", DATABASE, None))
    assert contents(engine, A) == [(1, "a"), (2, "bb")]
