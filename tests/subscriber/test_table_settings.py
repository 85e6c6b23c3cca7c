"""Files of tables WITH (deletion_vectors = off) contain exactly the rows that SELECT shows, after writes by sessions and subscriptions."""

from __future__ import annotations

import json
from urllib.parse import unquote

import psycopg
import pyarrow.parquet as pq
import pytest
from tests.place import Surroundings
from tests.subscriber.conftest import READY

from headgate.storage.delta import delta_log
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath


def plainly(path: DataPath) -> list[str]:
    """Return the rows as a reader finds them that knows only the log and the data files.

    Check that the protocol requires no other features.
    """
    newest = delta_log.newest_version(path)
    assert newest is not None
    _, protocol, files = delta_log.read_state(path, newest)
    assert protocol["minReaderVersion"] == 1, json.dumps(protocol)
    assert not any(add.get("deletionVector") for add in files.values())
    return sorted(
        f"{row['a']} {row['b']}" for name in files for row in pq.read_table(data_location.local(path / unquote(name))).to_pylist()
    )


def test_files_without_deletion_vectors_contain_exactly_the_visible_rows(publisher, subscriber, surroundings: Surroundings) -> None:
    definition = "CREATE TABLE t (a int PRIMARY KEY, b text)"
    publisher.sql(f"{definition}; INSERT INTO t SELECT i, 'x' FROM generate_series(1, 100) i; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(f"{definition} WITH (deletion_vectors = off)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    path = surroundings.path(subscriber.sql("SELECT path FROM headgate.snapshot() WHERE name = 't'"))
    publisher.sql("UPDATE t SET b = 'y' WHERE a % 10 = 0; DELETE FROM t WHERE a > 50; INSERT INTO t VALUES (200, 'new')")
    publisher.wait_confirmed()
    query = "SELECT a || ' ' || b FROM t"
    assert subscriber.rows(query) == publisher.rows(query)
    subscriber.sql("UPDATE t SET b = 'z' WHERE a = 7; DELETE FROM t WHERE a = 8; BEGIN; DELETE FROM t; ROLLBACK")
    subscriber.sql("INSERT INTO t VALUES (9, 'c') ON CONFLICT (a) DO UPDATE SET b = excluded.b || '+'")
    assert subscriber.sql("SELECT b FROM t WHERE a = 9") == "c+"
    assert plainly(path) == subscriber.rows(query)
    rows_before = subscriber.rows(query)
    subscriber.sql("ALTER TABLE t SET (deletion_vectors = on); DELETE FROM t WHERE a = 1; ALTER TABLE t RESET (deletion_vectors)")
    with pytest.raises(AssertionError, match="deletionVectors"):
        plainly(path)
    subscriber.sql("ALTER TABLE t SET (deletion_vectors = off, column_mapping = off)")
    assert plainly(path) == subscriber.rows(query) == rows_before[1:]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="would need column mapping"):
        subscriber.sql("ALTER TABLE t RENAME b TO c")
    publisher.sql("UPDATE t SET b = 'late' WHERE a = 2")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT b FROM t WHERE a = 2") == "late"
    assert subscriber.sql("SELECT reloptions FROM pg_class WHERE relname = 't'") == "{deletion_vectors=off,column_mapping=off}"
