"""Replication commands on a node answer as on PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.errors import SerializationFailure
from tests.conftest import Server
from tests.versions.test_failover_slots import answers

IN_TRANSACTIONS = tuple(
    statement
    for begin, command in (
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", "(SNAPSHOT 'use')"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT s", "(SNAPSHOT 'use')"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", "USE_SNAPSHOT"),
        ("BEGIN; CREATE TABLE t (a int)", "(SNAPSHOT 'nothing')"),
        ("BEGIN", "(SNAPSHOT 'export')"),
        ("SELECT 1", "(SNAPSHOT)"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "USE_SNAPSHOT"),
    )
    for statement in (begin, f"CREATE_REPLICATION_SLOT {{0}}_s TEMPORARY LOGICAL pgoutput {command}", "ROLLBACK")
)


def test_slot_is_created_in_the_transactions_in_which_postgresql_creates_it(node: Server, postgres: Server) -> None:
    assert answers(node, IN_TRANSACTIONS) == answers(postgres, IN_TRANSACTIONS)


def test_copy_as_of_a_slot_never_has_old_rows_in_new_columns(node: Server) -> None:
    database = node.new_database()
    node.psql(database, "CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 1)")
    replaced = "ALTER TABLE t DROP b; ALTER TABLE t ADD b text DEFAULT 'new'"
    slot = f"CREATE_REPLICATION_SLOT {database}_s TEMPORARY LOGICAL pgoutput".encode()
    with (
        psycopg.connect(f"{node.conninfo(database)} replication=database", autocommit=True, prepare_threshold=None) as walsender,
        psycopg.connect(node.conninfo(database)) as importer,
    ):
        walsender.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        walsender.execute(slot + b" USE_SNAPSHOT")
        node.psql(database, replaced)
        assert walsender.execute("SELECT * FROM t").fetchall() == [(1, 1)]
        walsender.execute("COMMIT")
        walsender.execute(f"DROP_REPLICATION_SLOT {database}_s".encode())
        exported = walsender.execute(slot).fetchone()
        assert exported is not None
        node.psql(database, replaced)
        importer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        importer.execute(f"SET TRANSACTION SNAPSHOT '{exported[2]}'".encode())
        with pytest.raises(SerializationFailure):
            importer.execute("SELECT * FROM t")
