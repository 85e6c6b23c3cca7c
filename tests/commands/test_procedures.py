"""Procedures that end transactions, over the extended protocol: PostgreSQL and a node give the same outcomes."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import Server

PROCEDURE = """CREATE PROCEDURE every_second(n int, INOUT kept int) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..n LOOP
    INSERT INTO t VALUES (i);
    IF i % 2 = 0 THEN COMMIT; kept := kept + 1; ELSE ROLLBACK; END IF;
  END LOOP;
END $$"""


def test_prepared_call_keeps_what_the_procedure_has_committed(server: Server) -> None:
    with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int)")
        session.execute(PROCEDURE)
        for prepare in (False, True):
            assert session.execute("CALL every_second(%s, %s)", [4, 5], prepare=prepare).fetchall() == [(7,)]
        assert session.execute("CALL every_second(%s, %s)", [2, 0], binary=True).fetchone() == (1,)
        assert session.execute("SELECT a FROM t ORDER BY a").fetchall() == [(2,), (2,), (2,), (4,), (4,)]


def test_call_in_a_block_cannot_end_the_transaction(server: Server) -> None:
    with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int)")
        session.execute(PROCEDURE)
        with pytest.raises(psycopg.errors.InvalidTransactionTermination) as raised, session.transaction():
            session.execute("CALL every_second(%s, %s)", [2, 0])
        assert raised.value.diag.context == "PL/pgSQL function every_second(integer,integer) line 5 at ROLLBACK"
        assert session.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_parameter_of_a_call_has_the_type_of_the_argument_that_it_names(server: Server) -> None:
    with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
        session.execute("CREATE PROCEDURE p(a int, b date, INOUT c text) LANGUAGE plpgsql AS $$ BEGIN c := a + 1 || ' ' || b; END $$")
        assert session.execute("CALL p(c => NULL, b => %s, a => %s)", ["2026-01-02", "7"]).fetchone() == ("8 2026-01-02",)
