"""Versions that other Delta writers commit next to the node's own are adopted. They are never undone, and never mistaken for the node's."""

from __future__ import annotations

import datetime
import importlib
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from tests.storage.tables import DATABASE, INT8, TEXT, change, contents, made, relation, rows
from tests.storage.test_intent import Killed, failing
from tests.storage.test_recovery import again

from headgate.catalog.relation import relation as relations
from headgate.changes import lookup
from headgate.errors import PostgresError
from headgate.failpoint import Step
from headgate.lsn import Lsn
from headgate.storage import feed
from headgate.storage.compactor import Compactor
from headgate.storage.delta import compaction, delta_log, fsync, parquet
from headgate.storage.delta.commit_mark import transaction_mark
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.statistics import TableCounts
from headgate.storage.transaction import foreign_writer
from headgate.storage.transaction.log import TransactionLog
from headgate.types import registry

A = relation(20000, "a", id=INT8, v=TEXT)


def foreign_append(engine: Engine, *values: tuple[int, str]) -> None:
    """Add rows by another Spark job."""
    job = engine.spark.newSession()
    job.createDataFrame(list(values), "id bigint, v string").write.format("delta").mode("append").save(
        str(engine.tables.path((DATABASE, A.oid)))
    )


def changes(engine: Engine, lsn: Lsn) -> list[tuple[str, int]]:
    """Return the kind and number of the changes in the log."""
    return [(write.kind, write.changes) for entry in engine.log.entries(lsn, DATABASE, 100) for write in entry.writes]


def test_foreign_version_is_adopted_once(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start, key = engine.log.end, (DATABASE, A.oid)
    before = engine.statistics.of_table(key)
    foreign_append(engine, (2, "y\u2028"), (3, "z\x85"))
    for _ in range(2):
        engine.foreign.look()
        assert contents(engine, A) == [(1, "x"), (2, "y\u2028"), (3, "z\x85")]
        assert changes(engine, start) == [("write", 2)]
        assert engine.statistics.of_table(key) == before + TableCounts(inserted=2)


def test_foreign_version_in_the_same_tick_of_the_clock_as_the_last_look_is_adopted(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    engine.foreign.look()
    key, start = (DATABASE, A.oid), engine.log.end
    log, state = data_location.local(engine.tables.path(key) / "_delta_log"), engine.tables.visible[key].state
    modified = log.stat().st_mtime_ns
    delta_log.write_version(engine.tables.path(key), state.version + 1, [{"txn": {"appId": "other", "version": 1}}], "other")
    os.utime(log, ns=(modified, modified))
    engine.foreign.look()
    assert engine.tables.visible[key].state.version == state.version + 1
    assert changes(engine, start) == []


def test_timestamps_that_another_writer_stores_as_int96_are_in_utc(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark stores timestamps with time zone so by default."""
    z = relation(20001, "z", id=INT8, z=registry.TIMESTAMPTZ)
    moments = [(number, datetime.datetime.fromtimestamp(number, datetime.UTC)) for number in range(400)]
    made(engine, z, *moments[::2])
    job = engine.spark.newSession()
    job.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    odd = job.range(1, 400, 2).selectExpr("id", "timestamp_seconds(id) AS z").coalesce(1)
    odd.write.format("delta").mode("append").save(str(engine.tables.path((DATABASE, z.oid))))
    engine.foreign.look()
    monkeypatch.setenv("TZ", "America/New_York")  # the time zone of the machine
    for cache in (lookup._database.cache_clear, lookup._functions.clear):
        cache()
    transaction = engine.begin(DATABASE)
    for number, values in ((1, [3, 4]), (2, [moment for _, moment in moments[3:5]])):
        stored = lookup.find(transaction, z, lookup.key_of(z, [number]), pa.table({"k0": values}))
        assert sorted((row["id"], row["z"]) for row in stored["old"].to_pylist()) == moments[3:5]
    transaction.rollback()
    monkeypatch.setattr(compaction, "MOST", 2)
    Compactor(engine).look()
    assert contents(engine, z) == sorted(moments, key=repr)
    [added] = engine.tables.visible[DATABASE, z.oid].state.files.values()
    assert '"z":"1970-01-01T00:06:39.000Z"' in added["stats"]


def test_files_with_other_arrow_types_are_read_and_compacted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that use Arrow, such as delta-rs, store its types in their files."""
    made(engine, A, (0, "v0"))
    key, expected = (DATABASE, A.oid), [(0, "v0")]
    for version, kind in enumerate((pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())), 2):
        numbers = range(version * 100, version * 100 + 60)
        expected += [(number, f"v{number}") for number in numbers]
        file = pa.table({"id": numbers, "v": pa.array([f"v{number}" for number in numbers]).cast(kind)})
        pq.write_table(file, engine.tables.path(key) / f"{version}.parquet")
        size = (engine.tables.path(key) / f"{version}.parquet").stat().st_size
        add = {"path": f"{version}.parquet", "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
        delta_log.write_version(engine.tables.path(key), version, [{"add": {**add, "stats": '{"numRecords":60}'}}], "other")
    engine.foreign.adopt(key)
    transaction = engine.begin(DATABASE)
    for number, column in enumerate(zip(*expected[::30], strict=True), 1):
        stored = lookup.find(transaction, A, lookup.key_of(A, [number]), pa.table({"k0": list(column)}))
        assert sorted((row["id"], row["v"]) for row in stored["old"].to_pylist()) == expected[::30]
    transaction.rollback()
    monkeypatch.setattr(compaction, "MOST", 2)
    Compactor(engine).look()
    assert len(engine.tables.visible[key].state.files) == 1
    assert contents(engine, A) == sorted(expected, key=repr)


def test_definition_of_another_writer_that_the_node_would_not_respect_stops_the_table(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(engine, A, (1, "x"))
    key, start = (DATABASE, A.oid), engine.log.end
    state = engine.tables.visible[key].state
    metadata, other_file = state.metadata, "file:/tmp/other.parquet"
    tracked = {**state.protocol, "writerFeatures": [*state.protocol["writerFeatures"], "rowTracking"]}
    restricted = {**metadata, "configuration": {**metadata["configuration"], "delta.constraints.c": "id < 9"}}
    not_null = {**metadata, "schemaString": metadata["schemaString"].replace("true", "false")}
    definitions = (
        ([{"protocol": tracked}], "features rowTracking"),
        ([{"protocol": state.protocol}, {"metaData": restricted}], "property delta.constraints.c"),
        ([{"metaData": not_null}], 'column "id" was set NOT NULL'),
        ([{"metaData": metadata}, {"add": {**next(iter(state.files.values())), "path": other_file}}], "is not in its folder"),
    )
    for number, (actions, reason) in enumerate(definitions, state.version + 1):
        delta_log.write_version(engine.tables.path(key), number, actions, "other")
        with pytest.raises(PostgresError, match=reason):
            engine.foreign.adopt(key)
    delta_log.write_version(engine.tables.path(key), number + 1, [{"remove": {"path": other_file}}], "other")
    monkeypatch.setattr(relations, "find", lambda *_: A)
    engine.foreign.adopt(key)
    assert changes(engine, start) == []
    assert contents(engine, A) == [(1, "x")]


def test_differences_of_a_foreign_version_are_fsynced(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, A, (1, "x"), (2, "y"))
    key, synced = (DATABASE, A.oid), list[object]()
    table, before = engine.tables.path(key), engine.tables.visible[key].state
    DeltaTable.forPath(engine.spark.newSession(), str(table)).delete("id = 1")
    monkeypatch.setattr(fsync, "sync", synced.append)
    after = engine.tables[key].state()
    assert foreign_writer.write_difference(engine, A, before, after, single=True)[0] == 1
    folder = foreign_writer.folder(table, after.version)
    parts = {folder / name for name in data_location.names(folder) if name.startswith("part-")}
    assert parts
    assert {*parts, folder, folder.parent, table} <= set(synced)


@pytest.mark.slow
def test_recovery_keeps_foreign_versions_and_drops_uncommitted_own_ones(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start = engine.log.end
    lost = engine.begin(DATABASE)
    lost.append(A, rows(A, (9, "lost")))
    foreign_append(engine, (2, "y"))
    started = again(engine)
    messages = started.recover()
    assert [line.split()[0] for line in messages] == ["adopted"]
    assert contents(started, A) == [(1, "x"), (2, "y")]
    assert changes(started, start) == [("write", 1)]
    assert again(started).recover() == []


@pytest.mark.slow
def test_streams_get_each_foreign_version_after_an_own_one_that_recovery_undoes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, A, (1, "x"))
    start, path = engine.log.end, engine.tables.path((DATABASE, A.oid))
    failed = engine.begin(DATABASE)
    xid, base = failed.xid, engine.tables.visible[DATABASE, A.oid].state.version
    failed.rollback()
    engine.catalog.change(lambda cursor: cursor.execute("INSERT INTO hg.intent VALUES (?, ?)", [xid, b""]), Step.INTENT)
    delta_log.write_version(path, base + 1, [parquet.write(path, rows(A, (9, "failed")), {})], transaction_mark(xid))
    foreign_append(engine, (2, "y"))
    DeltaTable.forPath(engine.spark.newSession(), str(path)).update("id = 1", {"v": "'z'"})
    monkeypatch.setattr(relations, "find", lambda *_: A)
    with monkeypatch.context() as patch:
        failing(patch, TransactionLog, "append", Killed(), after=True)
        with pytest.raises(Killed):
            again(engine).recover()
    started = again(engine)
    started.recover()
    assert contents(started, A) == [(1, "z"), (2, "y")]
    writes = [write for entry in started.log.entries(start, DATABASE, 100) for write in entry.writes]
    sent = feed.small(started.tables, A, writes)
    assert sent is not None
    assert [(row["op"], (row["new"] or row["old"])["id"]) for row in sent.to_pylist()] == [("I", 2), ("D", 1), ("I", 1)]


@pytest.mark.slow
def test_foreign_version_is_adopted_before_the_nodes_next_write(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start = engine.log.end
    foreign_append(engine, (2, "y"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "own"), (4, "own")))
    writer.commit()
    assert changes(engine, start) == [("write", 1), ("write", 2)]
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "own"), (4, "own")]


@pytest.mark.slow
def test_foreign_version_committed_during_a_transaction_is_adopted_before_it(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    start = engine.log.end
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "own")))
    foreign_append(engine, (2, "y"))
    writer.append(A, rows(A, (4, "own")))
    writer.commit()
    assert contents(engine, A) == [(1, "x"), (2, "y"), (3, "own"), (4, "own")]
    assert changes(engine, start) == [("write", 1), ("write", 1), ("write", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("imported", [False, True])
def test_transaction_whose_rows_another_writer_has_deleted_fails_and_leaves_nothing(engine: Engine, *, imported: bool) -> None:
    if imported:  # after this import, Delta's conflicts have their own classes in the whole process
        importlib.import_module("delta.tables")
    other_table = relation(20001, "b", id=INT8, v=TEXT)
    made(engine, A, (1, "x"), (2, "y"))
    made(engine, other_table)
    writer = engine.begin(DATABASE)
    writer.append(other_table, rows(other_table, (3, "own")))
    change(writer, A, "id = 2", v="'own'")
    engine.spark.newSession().sql(f"DELETE FROM delta.`{engine.tables.path((DATABASE, A.oid))}` WHERE id = 2")
    with pytest.raises(PostgresError, match="could not serialize access"):
        writer.commit()
    delta_rows = engine.spark.newSession().read.format("delta").load(str(engine.tables.path((DATABASE, A.oid)))).collect()
    assert [tuple(row) for row in delta_rows] == [(1, "x")]
    assert contents(engine, other_table) == []
    next_one = engine.begin(DATABASE)
    next_one.lock(other_table, wait=False)
    next_one.rollback()


@pytest.mark.slow
def test_late_version_of_a_failed_transaction_is_not_adopted(engine: Engine) -> None:
    """The store writes a version late, after its request has failed."""
    made(engine, A, (1, "x"))
    start, path = engine.log.end, engine.tables.path((DATABASE, A.oid))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (2, "own")))
    late = parquet.write(path, rows(A, (9, "failed")), {})
    delta_log.write_version(path, engine.tables.visible[DATABASE, A.oid].state.version + 1, [late], transaction_mark(writer.xid - 1))
    with pytest.raises(PostgresError, match="could not serialize access"):
        writer.commit()
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (2, "own")))
    writer.commit()
    assert contents(engine, A) == [(1, "x"), (2, "own")]
    assert changes(engine, start) == [("write", 1)]
    delta_rows = engine.spark.newSession().read.format("delta").load(str(path)).collect()
    assert sorted(tuple(row) for row in delta_rows) == [(1, "x"), (2, "own")]


@pytest.mark.slow
def test_rollback_keeps_the_versions_of_other_writers(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (3, "own")))
    foreign_append(engine, (2, "y"))
    writer.rollback()
    engine.foreign.look()
    assert contents(engine, A) == [(1, "x"), (2, "y")]
