"""A statement that a session runs again sees every change of the objects that it names, in a function and prepared by a client.

The session has run it several times before the change, so a node has cached its analysis, and PostgreSQL its plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pytest
from tests.conftest import NodeServer, Server

SCHEMA = """CREATE TABLE t (id int, v int);
INSERT INTO t VALUES (1, 10);
CREATE SCHEMA beside;
CREATE TABLE beside.t (id int, v int);
INSERT INTO beside.t VALUES (1, 20);
CREATE FUNCTION twice(numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN 'numeric ' || $1 * 2; END $$;
CREATE VIEW w AS SELECT id, 10 AS v FROM t;
CREATE FUNCTION reading(k int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE x text;
BEGIN
  SELECT {value} INTO x FROM {table} WHERE id = k;
  RETURN x;
END $$;
PREPARE reading(int) AS SELECT ({value})::text FROM {table} WHERE id = $1"""


@dataclass(frozen=True)
class Change:
    """A change and the outcome of the statement after it: a value or a SQLSTATE. `function`: that of the function, if it differs."""

    sql: str
    outcome: str | None
    value: str = "v"
    table: str = "t"
    function: str | None = None
    of_session: bool = False
    """Whether the change affects only the session that makes it."""
    is_late: bool = False
    """Whether PostgreSQL's plan ignores the change: PostgreSQL plans again only if an object that the plan uses has changed."""


CHANGES = {
    "type of a column": Change("ALTER TABLE t ALTER v TYPE numeric(5, 2)", "10.00"),
    "name of a column": Change("ALTER TABLE t RENAME v TO w", "42703"),
    "column with the name of a variable": Change("ALTER TABLE t ADD COLUMN k int", "10", function="42702"),
    "new table of the same name": Change("DROP TABLE t CASCADE; CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'new')", "new"),
    "dropped table": Change("DROP TABLE t CASCADE", "42P01"),
    "other table of the same name": Change("ALTER TABLE t RENAME TO u; ALTER TABLE beside.t SET SCHEMA public", "20"),
    "closer overload": Change(
        "CREATE FUNCTION twice(int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN 'int ' || $1 * 2; END $$", "int 20", "twice(v)",
        is_late=True,
    ),
    "dropped function": Change("DROP FUNCTION twice", "42883", "twice(v)"),
    "view": Change("CREATE OR REPLACE VIEW w AS SELECT id, 11 AS v FROM t", "11", table="w"),
    "order of an enum": Change("CREATE TYPE mood AS ENUM ('sad'); ALTER TABLE t ADD COLUMN m mood DEFAULT 'sad'", "10"),
    "search_path": Change("SET search_path = beside, public", "20", of_session=True),
    "temporary table": Change("CREATE TEMP TABLE t (id int, v text); INSERT INTO t VALUES (1, 'temporary')", "temporary", of_session=True),
    "DateStyle": Change("SET DateStyle = 'ISO, DMY'", "2020-02-01", "'01/02/2020'::date", of_session=True, is_late=True),
    "role": Change("CREATE ROLE {role}; SET ROLE {role}", "42501", of_session=True),
    "policy": Change(
        "CREATE ROLE {role}; GRANT SELECT ON t TO {role}; CREATE POLICY p ON t USING (v > 10); ALTER TABLE t ENABLE ROW LEVEL SECURITY;"
        " SET ROLE {role}",
        None,
        of_session=True,
    ),
    "right of a schema": Change(
        "CREATE ROLE {role}; GRANT SELECT ON beside.t TO {role}; SET ROLE {role}", "42501", table="beside.t", of_session=True
    ),
}  # fmt: skip
USUAL = {"v": "10", "twice(v)": "numeric 20", "'01/02/2020'::date": "2020-01-02"}
QUICK = {"type of a column", "temporary table"}
CALLS = {"function": "SELECT reading(1)", "prepared": "EXECUTE reading(1)"}


def outcomes(session: psycopg.Connection) -> dict[str, str | None]:
    """Return the value or the SQLSTATE of the statement in the function, and of the prepared one."""
    values: dict[str, str | None] = {}
    for name, call in CALLS.items():
        for _ in range(3):
            try:
                with session.transaction():
                    row = session.execute(call, prepare=False).fetchone()
                    values[name] = None if row is None else row[0]
            except psycopg.Error as error:
                values[name] = error.sqlstate
    return values


def named(change: Change, database: str) -> str:
    """Return the statements of a change with the name of its role."""
    return change.sql.format(role=f"role_of_{database}")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in CHANGES])
def test_repeated_statement_sees_a_change_and_its_rollback(server: Server, name: str) -> None:
    change, database = CHANGES[name], server.new_database()
    usual = dict.fromkeys(CALLS, "20" if change.table == "beside.t" else USUAL[change.value])
    changed = {"function": change.function or change.outcome, "prepared": change.outcome}
    if change.is_late and not isinstance(server, NodeServer):
        changed = usual
    with psycopg.connect(server.conninfo(database), autocommit=True) as session:
        session.execute(SCHEMA.format(value=change.value, table=change.table))
        assert outcomes(session) == usual
        session.execute("BEGIN")
        assert outcomes(session) == usual
        session.execute("SAVEPOINT s")
        session.execute(named(change, database))
        assert outcomes(session) == changed
        session.execute("ROLLBACK TO s")
        assert outcomes(session) == usual
        session.execute(named(change, database))
        assert outcomes(session) == changed
        session.execute("ROLLBACK")
        assert outcomes(session) == usual
        if change.of_session:
            session.execute(named(change, database))
        else:
            with psycopg.connect(server.conninfo(database), autocommit=True) as second:
                second.execute(named(change, database))
        assert outcomes(session) == changed


def test_function_reads_names_by_the_search_path_of_each_call(server: Server) -> None:
    database = server.new_database()
    with psycopg.connect(server.conninfo(database), autocommit=True) as one, psycopg.connect(server.conninfo(database)) as second_session:
        one.execute("CREATE DOMAIN amount AS int; CREATE SCHEMA beside; CREATE DOMAIN beside.amount AS numeric(5, 2)")
        one.execute("CREATE FUNCTION paid(n numeric) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN n::amount; END $$")
        second_session.execute("SET search_path = beside, public")
        for _ in range(2):
            assert one.execute("SELECT paid(1.234)").fetchone() == ("1",)
            assert second_session.execute("SELECT paid(1.234)").fetchone() == ("1.23",)
        one.execute("SET search_path = beside, public")
        assert one.execute("SELECT paid(1.234)").fetchone() == ("1.23",)


def test_repeated_statement_in_a_loop_sees_what_the_loop_changes(server: Server) -> None:
    with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE t (id int, v int); INSERT INTO t VALUES (1, 10)")
        session.execute("CREATE TABLE log (text text)")
        session.execute("""DO $$ DECLARE x text; BEGIN FOR i IN 1..6 LOOP
            IF i = 3 THEN ALTER TABLE t ALTER v TYPE numeric(5, 2); END IF;
            IF i = 5 THEN CREATE TEMP TABLE t (id int, v text); INSERT INTO t VALUES (1, 'temporary'); END IF;
            SELECT v INTO x FROM t WHERE id = 1;
            INSERT INTO log VALUES (x); END LOOP; END $$""")
        assert [text for (text,) in session.execute("SELECT text FROM log")] == ["10", "10", "10.00", "10.00", "temporary", "temporary"]
