"""If two sessions create an object of the same name, the second waits for the first and gets PostgreSQL's answer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.conftest import Server
from tests.server.play import Play, Step

from headgate.catalog import unique


class Pair(NamedTuple):
    """Two concurrent statements that use one name, the statements that prepare them, and the query that shows the outcome.

    They must not leave objects that databases share.
    """

    first: str
    second: str
    before: str = "SELECT 1"
    after: str = "SELECT 1"


TABLES = "CREATE TABLE one (a int PRIMARY KEY, b int); CREATE TABLE two (a int PRIMARY KEY, b int)"
VIEWS = "CREATE VIEW one AS SELECT 1 AS a; CREATE VIEW two AS SELECT 2 AS a"
SCHEMAS = "CREATE SCHEMA one; CREATE SCHEMA two; CREATE TABLE one.t (a int); CREATE TABLE two.t (b int)"
ROLES = "DROP ROLE IF EXISTS names_new; CREATE ROLE names_one; CREATE ROLE names_two"
NO_ROLES = "DROP ROLE IF EXISTS names_new; DROP ROLE IF EXISTS names_one; DROP ROLE IF EXISTS names_two"
SUBSCRIPTION = "CREATE SUBSCRIPTION {} CONNECTION 'dbname=postgres' PUBLICATION p WITH (connect = false)"

PAIRS: dict[str, Pair] = {
    "table": Pair("CREATE TABLE n (a int)", "CREATE TABLE n (b int)"),
    "table and view": Pair("CREATE TABLE n (a int)", "CREATE VIEW n AS SELECT 1 AS a"),
    "table if not exists": Pair("CREATE TABLE n (a int)", "CREATE TABLE IF NOT EXISTS n (a int)"),
    "table of a query": Pair("CREATE TABLE n AS SELECT 1 AS a", "CREATE TABLE n AS SELECT 2 AS a"),
    "partitioned table": Pair("CREATE TABLE n (a int) PARTITION BY LIST (a)", "CREATE TABLE n (a int) PARTITION BY LIST (a)"),
    "view": Pair("CREATE VIEW n AS SELECT 1 AS a", "CREATE VIEW n AS SELECT 2 AS a"),
    "view or replace": Pair("CREATE VIEW n AS SELECT 1 AS a", "CREATE OR REPLACE VIEW n AS SELECT 2 AS a"),
    "sequence": Pair("CREATE SEQUENCE n", "CREATE SEQUENCE n"),
    "sequence if not exists": Pair("CREATE SEQUENCE n", "CREATE SEQUENCE IF NOT EXISTS n"),
    "sequence of a column": Pair("CREATE TABLE n (a serial)", "CREATE SEQUENCE n_a_seq"),
    "index": Pair("CREATE INDEX n ON one (b)", "CREATE INDEX n ON two (b)", TABLES),
    "index of a constraint": Pair("CREATE INDEX n ON one (b)", "ALTER TABLE two ADD CONSTRAINT n UNIQUE (b)", TABLES),
    "enum": Pair("CREATE TYPE n AS ENUM ('a')", "CREATE TYPE n AS ENUM ('a', 'b')"),
    "enum and table": Pair("CREATE TYPE n AS ENUM ('a')", "CREATE TABLE n (a int)"),
    "domain": Pair("CREATE DOMAIN n AS int", "CREATE DOMAIN n AS text"),
    "schema": Pair("CREATE SCHEMA n", "CREATE SCHEMA n"),
    "schema if not exists": Pair("CREATE SCHEMA n", "CREATE SCHEMA IF NOT EXISTS n"),
    "publication": Pair("CREATE PUBLICATION n", "CREATE PUBLICATION n FOR ALL TABLES"),
    "subscription": Pair(SUBSCRIPTION.format("n"), SUBSCRIPTION.format("n")),
    "role": Pair("CREATE ROLE names_new", "CREATE ROLE names_new", ROLES, NO_ROLES),
    "member": Pair("GRANT names_one TO names_two", "GRANT names_one TO names_two", ROLES, NO_ROLES),
    "renamed table": Pair("ALTER TABLE one RENAME TO n", "ALTER TABLE two RENAME TO n", TABLES),
    "table renamed onto a new one": Pair("CREATE TABLE n (a int)", "ALTER TABLE two RENAME TO n", TABLES),
    "new table onto a renamed one": Pair("ALTER TABLE two RENAME TO n", "CREATE TABLE n (a int)", TABLES),
    "renamed view": Pair("ALTER VIEW one RENAME TO n", "ALTER VIEW two RENAME TO n", VIEWS),
    "renamed index": Pair("ALTER INDEX one_pkey RENAME TO n", "ALTER INDEX two_pkey RENAME TO n", TABLES),
    "renamed constraint": Pair(
        "ALTER TABLE one RENAME CONSTRAINT one_pkey TO n", "ALTER TABLE two RENAME CONSTRAINT two_pkey TO n", TABLES
    ),
    "renamed sequence": Pair(
        "ALTER SEQUENCE one RENAME TO n", "ALTER SEQUENCE two RENAME TO n", "CREATE SEQUENCE one; CREATE SEQUENCE two"
    ),
    "renamed type": Pair(
        "ALTER TYPE one RENAME TO n", "ALTER TYPE two RENAME TO n", "CREATE TYPE one AS ENUM ('a'); CREATE TYPE two AS ENUM ('a')"
    ),
    "renamed domain": Pair(
        "ALTER DOMAIN one RENAME TO n", "ALTER DOMAIN two RENAME TO n", "CREATE DOMAIN one AS int; CREATE DOMAIN two AS int"
    ),
    "renamed schema": Pair("ALTER SCHEMA one RENAME TO n", "ALTER SCHEMA two RENAME TO n", SCHEMAS),
    "renamed publication": Pair(
        "ALTER PUBLICATION one RENAME TO n", "ALTER PUBLICATION two RENAME TO n", "CREATE PUBLICATION one; CREATE PUBLICATION two"
    ),
    "renamed role": Pair("ALTER ROLE names_one RENAME TO names_new", "ALTER ROLE names_two RENAME TO names_new", ROLES, NO_ROLES),
    "renamed subscription": Pair(
        "ALTER SUBSCRIPTION one RENAME TO n", "ALTER SUBSCRIPTION two RENAME TO n",
        f"{SUBSCRIPTION.format('one')}; {SUBSCRIPTION.format('two')}",
    ),
    "table set schema": Pair("ALTER TABLE one.t SET SCHEMA public", "ALTER TABLE two.t SET SCHEMA public", SCHEMAS),
    "type set schema": Pair(
        "ALTER TYPE one.e SET SCHEMA public", "ALTER TYPE two.e SET SCHEMA public",
        f"{SCHEMAS}; CREATE TYPE one.e AS ENUM ('a'); CREATE TYPE two.e AS ENUM ('a')",
    ),
    "table of a publication": Pair(
        "ALTER PUBLICATION p ADD TABLE one", "ALTER PUBLICATION p ADD TABLE one", f"{TABLES}; CREATE PUBLICATION p"
    ),
    "schema of a publication": Pair(
        "ALTER PUBLICATION p ADD TABLES IN SCHEMA one", "ALTER PUBLICATION p ADD TABLES IN SCHEMA one", f"{SCHEMAS}; CREATE PUBLICATION p"
    ),
    "table of a dropped publication": Pair("DROP PUBLICATION p", "ALTER PUBLICATION p ADD TABLE one", f"{TABLES}; CREATE PUBLICATION p"),
    "two tables of a publication": Pair(
        "ALTER PUBLICATION p SET TABLE one", "ALTER PUBLICATION p SET TABLE two", f"{TABLES}; CREATE PUBLICATION p",
        "SELECT tablename FROM pg_publication_tables ORDER BY 1",
    ),
    "publication dropped twice": Pair("DROP PUBLICATION p", "DROP PUBLICATION p, p", "CREATE PUBLICATION p"),
    "two labels": Pair(
        "ALTER TYPE e ADD VALUE 'b'", "ALTER TYPE e ADD VALUE 'c'", "CREATE TYPE e AS ENUM ('a')",
        "SELECT enumlabel, enumsortorder FROM pg_enum ORDER BY enumsortorder",
    ),
    "replaced view": Pair(
        "CREATE OR REPLACE VIEW one AS SELECT 3 AS a", "CREATE OR REPLACE VIEW one AS SELECT 4 AS a, 5 AS b", VIEWS, "TABLE one"
    ),
    "label": Pair("ALTER TYPE e ADD VALUE 'b'", "ALTER TYPE e ADD VALUE 'b'", "CREATE TYPE e AS ENUM ('a')"),
    "constraint": Pair(
        "ALTER TABLE one ADD CONSTRAINT n CHECK (b > 0)", "ALTER TABLE one ADD CONSTRAINT n CHECK (b > 1)", TABLES
    ),
    "default privileges": Pair(
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public", "ALTER DEFAULT PRIVILEGES GRANT INSERT ON TABLES TO public"
    ),
    "policy": Pair("CREATE POLICY n ON one USING (b > 0)", "CREATE POLICY n ON one USING (b > 1)", TABLES),
    "comment": Pair("COMMENT ON TABLE one IS 'first'", "COMMENT ON TABLE one IS 'second'", TABLES, "SELECT obj_description('one'::regclass)"),
}  # fmt: skip


@pytest.mark.parametrize("end", ["COMMIT", pytest.param("ROLLBACK", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if number % 8 else []) for number, name in enumerate(PAIRS)])
def test_second_session_to_use_a_name_waits_for_the_first(plays: tuple[Play, Play], name: str, end: str) -> None:
    pair = PAIRS[name]
    steps: list[Step] = [
        ("a", pair.before), ("a", "BEGIN"), ("a", pair.first), ("b+", pair.second), ("a", end), ("b", ""), ("a", pair.after)
    ]  # fmt: skip
    on_node, on_postgres = (_without_oids(play.run(steps)) for play in plays)
    assert on_node == on_postgres
    assert [play.waited for play in plays] == [[True], [True]]


def _without_oids(results: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    """Remove the oids of new objects from the DETAIL of a duplicate key."""
    return [(session, sql, (*answer[:2], re.sub(r"\d{5,}", "oid", answer[2] or "")) if isinstance(answer, tuple) else answer)
            for session, sql, answer in results]  # fmt: skip


TYPES = (
    "SELECT n.nspname::text, t.typname::text, a.typname::text FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace"
    " LEFT JOIN pg_type a ON a.oid = t.typarray WHERE n.nspname IN ('public', 's') ORDER BY 1, 2"
)
PLAYS: dict[str, list[Step]] = {
    "a table gets the name of an array type, which is renamed": [
        ("a", "CREATE TABLE n (a int)"),
        ("a", "CREATE TABLE _n (a int)"),
        ("a", TYPES),
    ],
    "a renamed table gets the name of an array type, which is renamed": [
        ("a", "CREATE TABLE n (a int)"),
        ("a", "CREATE VIEW other AS SELECT 1 AS a"),
        ("a", "ALTER VIEW other RENAME TO _n"),
        ("a", TYPES),
    ],
    "the array type of a renamed table is renamed": [
        ("a", "CREATE TABLE n (a int)"),
        ("a", "ALTER TABLE n RENAME TO m"),
        ("a", "CREATE TABLE n (a int)"),
        ("a", TYPES),
    ],
    "the array type of a table moves with it to another schema": [
        ("a", "CREATE TABLE n (a int)"),
        ("a", "CREATE SCHEMA s"),
        ("a", "ALTER TABLE n SET SCHEMA s"),
        ("a", "CREATE TABLE n (a int)"),
        ("a", TYPES),
        ("a", "CREATE TYPE m AS ENUM ('a')"),
        ("a", "CREATE TABLE s.m (a int)"),
        ("a", "ALTER TABLE s.m SET SCHEMA public"),
    ],
    "a table cannot get the name of a type": [
        ("a", "CREATE TYPE n AS ENUM ('a')"),
        ("a", "CREATE TABLE n (a int)"),
        ("a", "CREATE TABLE m (a int)"),
        ("a", "ALTER TABLE m RENAME TO n"),
        ("a", TYPES),
    ],
    "long names that differ at the end have different array types": [
        ("a", f"CREATE TABLE {'n' * 62}1 (a int)"),
        ("a", f"CREATE TABLE {'n' * 62}2 (a int)"),
        ("a", TYPES),
    ],
    "a dropped name is free for the transaction that dropped it": [
        ("a", "CREATE TABLE n (a int)"),
        ("a", "BEGIN"),
        ("a", "DROP TABLE n"),
        ("b", "CREATE TABLE other (a int)"),
        ("a", "CREATE TABLE n (b int)"),
        ("a", "COMMIT"),
        ("a", "SELECT b FROM n"),
    ],
    "the name of a dropped view is free for the transaction that dropped it": [
        ("a", "CREATE VIEW n AS SELECT 1 AS a"),
        ("a", "BEGIN ISOLATION LEVEL REPEATABLE READ"),
        ("a", "DROP VIEW n"),
        ("b", "CREATE VIEW other AS SELECT 1 AS a"),
        ("a", "CREATE VIEW n AS SELECT 2 AS a"),
        ("a", "COMMIT"),
        ("a", "SELECT a FROM n"),
    ],
    "a name is free after another transaction has used it and rolled back": [
        ("a", "BEGIN ISOLATION LEVEL REPEATABLE READ"),
        ("a", "SELECT relname FROM pg_class WHERE relname = 'n'"),
        ("b", "CREATE TABLE n (a int)"),
        ("b", "DROP TABLE n"),
        ("a", "CREATE TABLE n (b int)"),
        ("a", "COMMIT"),
        ("a", "SELECT b FROM n"),
    ],
    "a name that another transaction uses twice belongs to that transaction": [
        ("a", "BEGIN"),
        ("a", "CREATE VIEW n AS SELECT 1 AS a"),
        ("a", "DROP VIEW n"),
        ("a", "CREATE VIEW n AS SELECT 2 AS a"),
        ("b+", "CREATE TABLE n (a int)"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "a name that another transaction has used and dropped is free after its commit": [
        ("a", "BEGIN"),
        ("a", "CREATE VIEW n AS SELECT 1 AS a"),
        ("a", "DROP VIEW n"),
        ("b+", "CREATE TABLE n (a int)"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "a transaction continues at a savepoint after its wait for a name has failed": [
        ("a", "BEGIN"),
        ("a", "CREATE TABLE n (a int)"),
        ("b", "BEGIN"),
        ("b", "CREATE TABLE m (a int)"),
        ("b", "SAVEPOINT s"),
        ("b+", "CREATE TABLE n (a int)"),
        ("a", "COMMIT"),
        ("b", ""),
        ("b", "ROLLBACK TO s"),
        ("b", "CREATE TABLE n (a int)"),
        ("b", "ROLLBACK TO s"),
        ("b", "CREATE TABLE o (a int)"),
        ("b", "COMMIT"),
        ("a", "SELECT relname FROM pg_class WHERE relname IN ('m', 'n', 'o') ORDER BY 1"),
    ],
    "a prepared transaction keeps its names": [
        ("a", "BEGIN"),
        ("a", "CREATE TABLE n (a int)"),
        ("a", "PREPARE TRANSACTION 'names'"),
        ("b+", "CREATE VIEW n AS SELECT 1 AS a"),
        ("a", "COMMIT PREPARED 'names'"),
        ("b", ""),
        ("a", "SELECT * FROM n"),
    ],
    "a prepared transaction releases its names when it is rolled back": [
        ("a", "BEGIN"),
        ("a", "CREATE TABLE n (a int)"),
        ("a", "PREPARE TRANSACTION 'names'"),
        ("b+", "CREATE VIEW n AS SELECT 1 AS a"),
        ("a", "ROLLBACK PREPARED 'names'"),
        ("b", ""),
        ("a", "SELECT * FROM n"),
    ],
    "the wait for a name ends at lock_timeout": [
        ("a", "BEGIN"),
        ("a", "CREATE SCHEMA n"),
        ("b", "SET lock_timeout = '100ms'"),
        ("b", "CREATE SCHEMA n"),
        ("a", "COMMIT"),
        ("b", "CREATE SCHEMA n"),
    ],
    "two transactions that use names in different orders are a deadlock": [
        ("a", "BEGIN"),
        ("a", "SET LOCAL deadlock_timeout = '10s'"),
        ("b", "BEGIN"),
        ("a", "CREATE SCHEMA n"),
        ("b", "CREATE SCHEMA m"),
        ("a+", "CREATE SCHEMA m"),
        ("b", "SET LOCAL deadlock_timeout = '10ms'"),
        ("b", "CREATE SCHEMA n"),
        ("b", "ROLLBACK"),
        ("a", ""),
        ("a", "COMMIT"),
    ],
    "CREATE DATABASE waits for another database of the same name": [
        ("a", "CREATE DATABASE names_one"),
        ("a", "BEGIN"),
        ("a", "ALTER DATABASE names_one RENAME TO names_new"),
        ("b+", "CREATE DATABASE names_new"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "DROP DATABASE names_new"),
    ],
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if number % 3 else []) for number, name in enumerate(PLAYS)])
def test_concurrent_uses_of_names_behave_as_in_postgresql(plays: tuple[Play, Play], name: str) -> None:
    on_node, on_postgres = (_without_oids(play.run(PLAYS[name])) for play in plays)
    assert on_node == on_postgres


@pytest.mark.parametrize(
    ("preparation", "first", "second", "sqlstate"),
    [
        ("CREATE PUBLICATION p", "ALTER PUBLICATION p RENAME TO q", "ALTER PUBLICATION p ADD TABLES IN SCHEMA public", "42704"),
        (SUBSCRIPTION.format("n"), *["ALTER SUBSCRIPTION n ADD PUBLICATION q WITH (refresh = false)"] * 2, "42710"),
        (f"{SUBSCRIPTION.format('n')}; ALTER SUBSCRIPTION n SET (slot_name = NONE)", *["DROP SUBSCRIPTION n"] * 2, "42704"),
    ],
)
def test_session_that_waited_for_a_change_of_an_object_looks_it_up_again(
    node: Server, preparation: str, first: str, second: str, sqlstate: str
) -> None:
    """PostgreSQL finds the renamed object, and raises XX000 ``tuple concurrently updated`` for subscriptions."""
    play = Play(node)
    results = play.run([("a", preparation), ("a", "BEGIN"), ("a", first), ("b+", second), ("a", "COMMIT"), ("b", "")])
    assert play.waited == [True]
    assert results[-1][2][0] == sqlstate
    play.close()


@pytest.mark.slow
def test_prepared_transaction_keeps_its_names_across_a_restart(spare_node: Callable[..., Server]) -> None:
    """Otherwise COMMIT PREPARED and another table of the same name could both be committed."""
    server = spare_node()
    play = Play(server)
    play.run([("a", "BEGIN"), ("a", "CREATE TABLE n (a int)"), ("a", "CREATE SCHEMA s"), ("a", "PREPARE TRANSACTION 'names'")])
    server.kill()
    server.start()
    again = Play(server, play.database)
    results = again.run(
        [
            ("b", "SET lock_timeout = '100ms'"),
            ("b", "CREATE SCHEMA s"),
            ("b", "RESET lock_timeout"),
            ("b+", "CREATE VIEW n AS SELECT 1 AS a"),
            ("a", "COMMIT PREPARED 'names'"),
            ("b", ""),
            ("a", "SELECT relkind::text FROM pg_class WHERE relname = 'n'"),
        ]
    )
    assert results[1][2][0] == "55P03"
    assert again.waited == [True]
    assert results[-2][2][:2] == ("23505", 'duplicate key value violates unique constraint "pg_type_typname_nsp_index"')
    assert results[-1][2] == [("r",)]
    again.close()
    play.close()


NAMES = ("x", "y", "z")
STATEMENTS = (
    "CREATE TABLE {} (a int PRIMARY KEY)", "DROP TABLE {}", "ALTER TABLE {} RENAME TO {}", "CREATE VIEW {} AS SELECT 1 AS a", "DROP VIEW {}",
    "CREATE SEQUENCE {}", "DROP SEQUENCE {}", "CREATE TYPE {} AS ENUM ('a')", "DROP TYPE {}", "ALTER TYPE {} RENAME TO {}",
    "CREATE SCHEMA {}", "DROP SCHEMA {}", "CREATE PUBLICATION {}", "DROP PUBLICATION {}", "ALTER PUBLICATION {} RENAME TO {}",
    "ALTER PUBLICATION {} ADD TABLES IN SCHEMA public", "ALTER TYPE {} ADD VALUE 'b'", "COMMENT ON TABLE {} IS 'c'", "BEGIN", "COMMIT",
    "ROLLBACK", "SAVEPOINT {}", "ROLLBACK TO {}", "BEGIN ISOLATION LEVEL REPEATABLE READ",
)  # fmt: skip


def test_concurrent_sessions_leave_no_duplicate_key_in_the_catalogs(node: Server) -> None:
    database = node.new_database()

    def play(seed: int) -> set[str]:
        chance, errors = random.Random(seed), set()
        with psycopg.connect(node.conninfo(database), autocommit=True) as session:
            session.execute("SET lock_timeout = '2s'")
            for _ in range(60):
                sql = chance.choice(STATEMENTS).format(chance.choice(NAMES), chance.choice(NAMES))
                try:
                    session.execute(sql.encode())
                except psycopg.Error as error:
                    errors.add(error.sqlstate or str(error))
        return errors

    with ThreadPoolExecutor(4) as pool:
        all_errors = set().union(*pool.map(play, range(4)))
    assert not {error for error in all_errors if error.startswith(("XX", "58")) or len(error) != 5}
    with psycopg.connect(node.conninfo(database)) as session:
        for index in (index for table_indexes in unique.indexes().values() for index in table_indexes):
            columns = ", ".join(index.columns)
            twice = session.execute(f"SELECT {columns} FROM {index.catalog} GROUP BY {columns} HAVING count(*) > 1".encode()).fetchall()
            assert twice == [], index.name
