"""COMMIT is atomic, even if the process fails or ends between its steps. No reader of the files sees uncommitted rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows
from tests.storage.test_recovery import again

from headgate.catalog.replication import subscription
from headgate.catalog.replication.subscription import SubscriptionRel, SyncState
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import feed
from headgate.storage.delta.delta_log import newest_version
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.transaction.intent import Intents
from headgate.storage.transaction.transaction import Transaction

A, B = (relation(24000 + number, name, id=INT8, v=TEXT) for number, name in enumerate("ab"))
BEFORE, AFTER = [(1, "x"), (2, "y")], [(1, "changed"), (2, "y"), (3, "new")]


class Killed(BaseException):
    """Raised where the process ends. Nothing after it runs."""


def two_tables(engine: Engine) -> Transaction:
    """Start a transaction that has changed two tables."""
    made(engine, A, *BEFORE)
    made(engine, B, *BEFORE)
    transaction = engine.begin(DATABASE)
    for table in (A, B):
        transaction.append(table, rows(table, (3, "new")))
        change(transaction, table, "id = 1", v="'changed'")
    return transaction


def failing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException, *, at: int = 1, after: bool = False) -> None:
    """Make a method fail at its `at`-th call, before or after its work."""
    method, calls = getattr(owner, name), []

    def fail(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) != at:
            return method(*arguments, **named)
        if after:
            method(*arguments, **named)
        raise error

    monkeypatch.setattr(owner, name, fail)


def versions(engine: Engine) -> list[int | None]:
    return [newest_version(engine.tables.path((DATABASE, table.oid))) for table in (A, B)]


def by_another_reader(engine: Engine, table: Any) -> list[tuple[Any, ...]]:
    """Return the rows as any Spark job reads them."""
    frame = engine.spark.newSession().read.format("delta").load(str(engine.tables.path((DATABASE, table.oid))))
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def files(engine: Engine, table: Any) -> set[str]:
    """Return the data files, change files and deletion vectors in a table's folder."""
    names = [file.name for file in data_location.below(engine.tables.path((DATABASE, table.oid)))]
    return {name for name in names if name.endswith((".parquet", ".bin")) and not name.startswith("_delta_log/")}


def test_readers_of_the_files_see_only_committed_rows(engine: Engine) -> None:
    transaction = two_tables(engine)
    versions_before = versions(engine)
    assert contents(transaction, A) == AFTER
    assert by_another_reader(engine, A) == BEFORE
    assert versions(engine) == versions_before
    transaction.commit()
    assert by_another_reader(engine, A) == AFTER
    assert versions(engine) == [version + 1 for version in versions_before if version is not None]


def test_finished_intent_is_not_carried_out_again_at_startup(engine: Engine) -> None:
    made(engine, A, *BEFORE)
    transaction = engine.begin(DATABASE)
    _ = transaction.cursor  # a session looks at the catalog before it writes: its view of it is older than the intent
    transaction.append(A, rows(A, (3, "new")))
    transaction.commit()
    end, reached = engine.log.end, newest_version(engine.tables.path((DATABASE, A.oid)))
    started = again(engine)
    assert started.recover() == []
    assert (started.log.end, newest_version(started.tables.path((DATABASE, A.oid)))) == (end, reached)
    assert engine.catalog.cursor().execute("SELECT count(*) FROM hg.intent").fetchone() == (0,)


def test_rollback_removes_only_the_files_that_it_made(engine: Engine) -> None:
    made(engine, A, *BEFORE)
    files_before = files(engine, A)
    transaction = engine.begin(DATABASE)
    change(transaction, A, "id = 1", v="'changed'")
    transaction.savepoint("s")
    transaction.append(A, rows(A, (3, "new")))
    change(transaction, A, "id > 1")
    transaction.rollback_to("s")
    assert contents(transaction, A) == [(1, "changed"), (2, "y")]
    transaction.rollback()
    assert files(engine, A) == files_before
    assert contents(engine, A) == BEFORE


STEPS: list[tuple[str, Callable[[pytest.MonkeyPatch], None], bool]] = [
    ("before the intent", lambda patch: failing(patch, Intents, "carry_out", Killed()), False),
    ("behind the intent", lambda patch: failing(patch, Intents, "_write", Killed()), True),
    ("behind one table's version", lambda patch: failing(patch, Intents, "_write", Killed(), at=2), True),
    ("behind both tables' versions", lambda patch: failing(patch, Intents, "finish", Killed()), True),
    ("in the entry's transaction", lambda patch: failing(patch, Intents, "finish", Killed(), after=True), True),
]


@pytest.mark.parametrize(
    ("kill", "committed"),
    # the failpoints kill a whole node at each of them
    [pytest.param(*step, id=name, marks=[pytest.mark.slow] if "one table" not in name else []) for name, *step in STEPS],
)
def test_commit_of_a_killed_node_is_complete_or_absent_after_the_next_start(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kill: Callable[[pytest.MonkeyPatch], None], *, committed: bool
) -> None:
    transaction = two_tables(engine)
    monkeypatch.setattr(Intents, "undo", lambda *_: None)  # a killed node does not undo its commit
    monkeypatch.setattr(Transaction, "rollback", lambda *_: None)
    kill(monkeypatch)
    with pytest.raises(Killed):
        transaction.commit()
    transaction.catalog.rollback()
    monkeypatch.undo()
    started = again(engine)
    messages = started.recover()
    assert [line.split()[0] for line in messages] == (["completed"] if committed else [])
    for table in (A, B):
        assert contents(started, table) == (AFTER if committed else BEFORE)
        assert by_another_reader(started, table) == (AFTER if committed else BEFORE)
    reached = versions(started)
    assert again(started).recover() == []
    assert versions(started) == reached
    writer = started.begin(DATABASE)
    writer.append(B, rows(B, (9, "afterwards")))
    writer.commit()
    assert (9, "afterwards") in contents(started, B)


def test_state_of_a_copied_table_is_kept_if_a_start_completes_the_copy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows and the state FINISHEDCOPY are in one commit."""
    made(engine, A)
    state = SubscriptionRel(16500, A.oid, SyncState.FINISHEDCOPY, Lsn(7))
    engine.catalog.change(
        lambda cursor: cursor.execute(
            "INSERT INTO hg.pg_subscription_rel (dbid, srsubid, srrelid, srsubstate) VALUES (?, ?, ?, 'd')", [DATABASE, 16500, A.oid]
        )
    )
    transaction = engine.begin(DATABASE)
    transaction.append(A, rows(A, *BEFORE))
    assert subscription.set_table(transaction.cursor, state)
    monkeypatch.setattr(Intents, "undo", lambda *_: None)
    monkeypatch.setattr(Transaction, "rollback", lambda *_: None)
    failing(monkeypatch, Intents, "_write", Killed())
    with pytest.raises(Killed):
        transaction.commit()
    transaction.catalog.rollback()
    monkeypatch.undo()
    started = again(engine)
    assert [line.split()[0] for line in started.recover()] == ["completed"]
    assert contents(started, A) == BEFORE
    assert subscription.table(started.catalog.cursor(), 16500, A.oid) == state


def test_batch_is_applied_once_if_an_error_follows_the_commit_file(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = two_tables(engine)
    failing(monkeypatch, DeltaTable, "commit_version", MemoryError("heap"), after=True)
    transaction.commit()
    engine.foreign.look()
    for table in (A, B):
        assert contents(engine, table) == AFTER


@pytest.mark.parametrize("at", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_failed_commit_leaves_nothing_visible_and_no_lock(engine: Engine, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    transaction = two_tables(engine)
    failing(monkeypatch, DeltaTable, "commit_version", OSError(28, "No space left on device"), at=at)
    with pytest.raises(OSError, match="No space"):
        transaction.commit()
    monkeypatch.undo()
    engine.foreign.look()
    for table in (A, B):
        assert contents(engine, table) == BEFORE
        assert by_another_reader(engine, table) == BEFORE
    writer = engine.begin(DATABASE)
    writer.lock(A, wait=False)
    change(writer, A, "id = 1", v="'mine'")
    writer.commit()
    assert contents(engine, A) == [(1, "mine"), (2, "y")]
    assert again(engine).recover() == []


def test_table_stays_locked_until_its_failed_commit_is_undone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = two_tables(engine)
    failing(monkeypatch, Intents, "finish", OSError(28, "No space left on device"))
    failing(monkeypatch, Intents, "_undo", OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        transaction.commit()
    monkeypatch.undo()
    writer = engine.begin(DATABASE)
    with pytest.raises(PostgresError, match="lock timeout"):
        writer.lock(A, wait=False)
    assert contents(engine, A) == BEFORE
    engine.intents.settle()
    writer.lock(A, wait=False)
    writer.rollback()
    assert by_another_reader(engine, A) == BEFORE


def test_each_statement_of_a_transaction_is_published_and_the_change_feed_has_all_of_them(engine: Engine) -> None:
    made(engine, A, *BEFORE)
    start = engine.log.end
    transaction = engine.begin(DATABASE)
    transaction.append(A, rows(A, (3, "new"), (4, "gone")))
    change(transaction, A, "id = 4")
    change(transaction, A, "id = 3", v="'newer'")
    transaction.truncate([A])
    transaction.append(A, rows(A, (5, "last")))
    end = transaction.commit()
    assert contents(engine, A) == [(5, "last")]
    (entry,) = engine.log.entries(start, DATABASE, 10)
    assert [(write.kind, write.changes) for write in entry.writes] == [
        ("write", 4),  # the changes of three statements are in one file
        ("truncate", 0),
        ("write", 1),
    ]
    changes_table = feed.changes(engine, A, entry.writes).orderBy("seq", "position").toArrow()
    assert list(zip(changes_table["seq"].to_pylist(), changes_table["op"].to_pylist(), strict=True)) == [
        (0, "I"),
        (0, "I"),
        (0, "D"),
        (0, "U"),
        (4, "I"),
    ]
    assert [new_row and new_row["v"] for new_row in changes_table["new"].to_pylist()] == ["new", "gone", None, "newer", "last"]
    version = newest_version(engine.tables.path((DATABASE, A.oid)))
    reader = engine.spark.newSession().read.format("delta").option("readChangeFeed", "true")
    read = (
        reader.option("startingVersion", version)
        .option("endingVersion", version)
        .load(str(engine.tables.path((DATABASE, A.oid))))
        .collect()
    )
    assert sorted((row["_change_type"], row["id"], row["v"]) for row in read) == [
        ("delete", 1, "x"), ("delete", 2, "y"), ("delete", 3, "newer"), ("delete", 4, "gone"),
        ("insert", 3, "new"), ("insert", 4, "gone"), ("insert", 5, "last"), ("update_postimage", 3, "newer"), ("update_preimage", 3, "new"),
    ]  # fmt: skip
    assert engine.frame_at(A, start).toArrow().num_rows == 2
    assert end == entry.end_lsn
