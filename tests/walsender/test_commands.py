"""Replication commands on a node answer as on PostgreSQL."""

from __future__ import annotations

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
