"""Versions of other Delta writers beside the node's own: adopted, never taken back, never mistaken."""

from __future__ import annotations

import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, contents, made, relation, rows
from tests.storage.test_recovery import again

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage.engine import Engine

A = relation(20000, "a", id=INT8, v=TEXT)


def foreign_append(engine: Engine, *values: tuple[int, str]) -> None:
    """Another Spark job adds rows."""
    job = engine.spark.newSession()
    job.createDataFrame(list(values), "id bigint, v string").write.format("delta").mode("append").save(str(engine.path((DATABASE, A.oid))))


def changes(engine: Engine, after: Lsn) -> list[tuple[str, int]]:
    """Kind and number of the changes that the log has."""
    return [(write.kind, write.changes) for entry in engine.log.entries(after, DATABASE, 100) for write in entry.writes]


def test_a_look_adopts_and_a_second_one_does_not(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start = engine.log.end
    foreign_append(engine, (2, "y"), (3, "z"))
    for _ in range(2):
        engine.foreign.look()
        assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "z")]
        assert changes(engine, start) == [("write", 2)]


def test_recovery_keeps_what_others_wrote_and_undoes_what_the_node_did_not_commit(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start = engine.log.end
    lost = engine.begin(DATABASE)
    lost.append(A, rows(A, (9, "lost")))
    foreign_append(engine, (2, "y"))
    started = again(engine)
    said = started.recover()
    assert [line.split()[0] for line in said] == ["undid", "adopted"]
    assert contents(started, A) == [(1, "x"), (2, "y")]
    assert changes(started, start) == [("write", 1)]
    assert again(started).recover() == []


def test_a_writer_adopts_first_what_came_before_it(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start = engine.log.end
    foreign_append(engine, (2, "y"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "own"), (4, "own")))
    writer.commit()
    assert changes(engine, start) == [("write", 1), ("write", 2)]
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "own"), (4, "own")]


def test_a_version_between_two_of_a_transaction_makes_it_fail_and_stays(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start = engine.log.end
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "own")))
    foreign_append(engine, (2, "y"))
    with pytest.raises(PostgresError, match="could not serialize access"):
        writer.append(A, rows(A, (4, "own")))
    writer.rollback()
    assert contents(engine, A) == [(1, "x"), (2, "y")]
    assert changes(engine, start) == [("write", 1)]


def test_a_rollback_takes_back_only_its_own_version(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "own")))
    foreign_append(engine, (2, "y"))
    writer.rollback()
    assert contents(engine, A) == [(1, "x"), (2, "y")]
