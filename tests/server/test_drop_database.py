"""DROP, CREATE and ALTER DATABASE behave on a node as on PostgreSQL while slots, subscriptions and sessions use the database."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import psycopg
import pytest
from psycopg import sql
from tests.conftest import PG_BIN, Server, until

Results = list[tuple[str, Any]]


class Script:
    """Statements and their results. The names of databases and slots differ in each run, so they are replaced."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.database = server.new_database()
        self.slot = f"slot_of_{self.database}"
        self.admin = psycopg.connect(server.conninfo(), autocommit=True)
        self.results: Results = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()

    def ask(self, text: str, session: psycopg.Connection[Any] | None = None) -> None:
        """Run a statement in which DB and SLOT stand for the names."""
        names = {"DB": self.database, "SLOT": self.slot}
        query = text
        for word, name in names.items():
            query = query.replace(word, name)
        try:
            cursor = (session or self.admin).execute(query.encode())
            self.results.append((text, cursor.fetchall() if cursor.description else cursor.statusmessage))
        except psycopg.Error as error:
            message = str(error.diag.message_primary)
            for word, name in names.items():
                message = message.replace(name, word)
            self.results.append((text, (error.sqlstate, message, error.diag.message_detail)))

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.conninfo(self.database), autocommit=True)


SLOTS = "SELECT active FROM pg_replication_slots WHERE slot_name = 'SLOT'"


def test_database_with_a_slot_is_dropped_as_in_postgresql(node: Server, postgres: Server) -> None:
    def run(server: Server) -> Results:
        with Script(server) as script:
            with script.connect() as inside:
                script.ask("SELECT 1 FROM pg_create_logical_replication_slot('SLOT', 'pgoutput')", inside)
                script.ask("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)", inside)
            script.ask(SLOTS)
            script.ask("DROP DATABASE DB")
            script.ask(SLOTS)
            script.ask("SELECT count(*) FROM pg_database WHERE datname = 'DB'")
            script.ask("CREATE DATABASE DB")
            with script.connect() as inside:
                script.ask("SELECT 1 FROM pg_create_logical_replication_slot('SLOT', 'pgoutput')", inside)
                script.ask("SELECT pg_drop_replication_slot('SLOT')", inside)
            return script.results

    assert run(node) == run(postgres)


def test_database_with_an_active_slot_cannot_be_dropped(node: Server, postgres: Server) -> None:
    def run(server: Server) -> Results:
        with Script(server) as script:
            with script.connect() as inside:
                script.ask("CREATE PUBLICATION p FOR ALL TABLES", inside)
                script.ask("SELECT 1 FROM pg_create_logical_replication_slot('SLOT', 'pgoutput')", inside)
                script.ask("SELECT 1 FROM pg_create_logical_replication_slot('SLOT_2', 'pgoutput', true)", inside)
                script.ask("DROP DATABASE DB")
            options = ["-o", "proto_version=1", "-o", "publication_names=p"]
            command = [PG_BIN / "pg_recvlogical", "-d", server.conninfo(script.database), "-S", script.slot, "--start", "-f", "-", *options]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as receiver:
                active = SLOTS.replace("SLOT", script.slot)
                until(lambda: script.admin.execute(active.encode()).fetchone() == (True,), "the walsender does not stream")
                script.ask("DROP DATABASE DB")
                script.ask("DROP DATABASE DB WITH (FORCE)")
                receiver.terminate()
            until(lambda: script.admin.execute(active.encode()).fetchone() == (False,), "the walsender streams on")
            script.ask("DROP DATABASE DB")
            return script.results

    assert run(node) == run(postgres)


def test_database_with_a_subscription_cannot_be_dropped(node: Server, postgres: Server) -> None:
    def run(server: Server) -> Results:
        with Script(server) as script:
            with script.connect() as inside:
                script.ask("CREATE SUBSCRIPTION s CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false)", inside)
            script.ask("DROP DATABASE DB")
            script.ask("DROP DATABASE DB WITH (FORCE)")
            with script.connect() as inside:
                script.ask("ALTER SUBSCRIPTION s SET (slot_name = NONE)", inside)
                script.ask("DROP SUBSCRIPTION s", inside)
            script.ask("DROP DATABASE DB")
            return script.results

    assert run(node) == run(postgres)


@pytest.mark.slow
def test_sessions_and_prepared_transactions_that_use_the_database_are_counted(node: Server, postgres: Server) -> None:
    def run(server: Server) -> Results:
        with Script(server) as script:
            with script.connect() as inside, script.connect():
                script.ask("CREATE TABLE t (a int)", inside)
                script.ask("DROP DATABASE DB")
                script.ask("ALTER DATABASE DB RENAME TO DB_2")
                script.ask("CREATE DATABASE DB_2 TEMPLATE DB")
                script.ask("BEGIN", inside)
                script.ask("INSERT INTO t VALUES (1)", inside)
                script.ask("PREPARE TRANSACTION 'of DB'", inside)
                script.ask("DROP DATABASE DB")
                script.ask("DROP DATABASE DB WITH (FORCE)")
                script.ask("ROLLBACK PREPARED 'of DB'", inside)
            leaving = script.connect()
            script.admin.execute(sql.SQL("SELECT pg_terminate_backend({})").format(leaving.info.backend_pid))
            script.ask("DROP DATABASE DB")
            leaving.close()
            return script.results

    with ThreadPoolExecutor() as pool:  # each waits some seconds for sessions that might leave, four times
        actual, expected = pool.map(run, (node, postgres))
    assert actual == expected


def test_files_of_a_dropped_database_are_removed(node: Server) -> None:
    with Script(node) as script, Script(node) as other_script, other_script.connect() as elsewhere:
        # a lagging slot of another database does not need these files
        elsewhere.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (other_script.slot,))
        with script.connect() as inside:
            inside.execute("CREATE TABLE t (a int PRIMARY KEY)")
            inside.execute("INSERT INTO t VALUES (1)")
            inside.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (script.slot,))
            inside.execute("INSERT INTO t VALUES (2)")
        oid_row = script.admin.execute("SELECT oid FROM pg_database WHERE datname = %s", (script.database,)).fetchone()
        assert oid_row is not None
        folder = node.data / "base" / str(oid_row[0])
        assert list(folder.iterdir())
        script.ask("DROP DATABASE DB")
        assert script.results == [("DROP DATABASE DB", "DROP DATABASE")]
        # a transaction of another session may still read the old state; its files are removed at a checkpoint
        until(lambda: script.admin.execute("CHECKPOINT") and not list(folder.glob("*")), "the files of the database are still there")
        elsewhere.execute("SELECT pg_drop_replication_slot(%s)", (other_script.slot,))
