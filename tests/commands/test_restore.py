"""With `SET headgate.restore = on`, a node restores a schema as pg_dump writes it, without the objects that a replica does not need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg
import pytest
from tests.conftest import PG_BIN, Server
from tests.session import Session

DUMPED = """
    SET client_min_messages = warning;
    SELECT pg_catalog.set_config('search_path', '', false);
    CREATE EXTENSION IF NOT EXISTS hstore WITH SCHEMA public;
    COMMENT ON EXTENSION hstore IS 'data type for storing sets of (key, value) pairs';
    CREATE TYPE public.pair AS (a integer, b integer);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
    CREATE TABLE public.t (id integer NOT NULL, h public.hstore, p public.pair[], n integer DEFAULT 5, d text DEFAULT public.f(), CONSTRAINT c CHECK (n > 0));
    CREATE TABLE public.heir (more integer) INHERITS (public.t);
    ALTER TABLE ONLY public.t ADD CONSTRAINT t_pkey PRIMARY KEY (id);
    CREATE TRIGGER noted BEFORE INSERT ON public.t FOR EACH ROW EXECUTE FUNCTION public.note();
    CREATE INDEX t_h ON public.t USING gin (h);
    GRANT SELECT ON TABLE public.t TO nobody_here;"""


def test_objects_that_a_replica_does_not_need_are_skipped_with_a_notice(node: Server) -> None:
    session = Session(node.conninfo(node.new_database()))
    session.sql(f"SET headgate.restore = on; {DUMPED}")
    session.sql("INSERT INTO public.t (id, h, p) VALUES (1, 'a=>1', '{}')")
    assert session.sql("SELECT id, h, p, n, d FROM public.t") == "1|a=>1|{}|5|"
    assert session.sql("SELECT count(*) FROM public.heir") == "0"
    for wrong in (
        "INSERT INTO public.t VALUES (1)",
        "SELECT 1/0",
        "SELECT * FROM public.none",
        "INSERT INTO public.t (id, n) VALUES (2, 0)",
    ):
        with pytest.raises(psycopg.Error):
            session.sql(wrong)
    session.sql("CREATE RULE again AS ON INSERT TO public.t DO NOTHING")
    assert session.notices == ["WARNING: CREATE RULE is let go: CREATE RULE is not supported"]
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        session.sql("SET headgate.restore = off; CREATE EXTENSION hstore")
    session.close()


@pytest.mark.slow
def test_dump_of_a_real_database_can_be_restored(postgres: Server, node: Server) -> None:
    source, target = postgres.new_database(), node.new_database()
    postgres.psql(source, (Path(__file__).parent.parent / "system" / "real_database.sql").read_text())
    dump = subprocess.run([PG_BIN / "pg_dump", "-s", "-d", postgres.conninfo(source)], capture_output=True, text=True, check=True).stdout
    node.psql(target, f"SET headgate.restore = on;\n{dump}")
    tables = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN ('r', 'p') AND nspname !~ '^(pg_|inf)'"
    assert node.psql(target, tables) == postgres.psql(source, tables)


@pytest.mark.slow
def test_archive_of_pg_dump_can_be_restored_with_its_rows_and_dumped_again(postgres: Server, node: Server, tmp_path: Path) -> None:
    original, restored, back = postgres.new_database(), node.new_database(), postgres.new_database()
    postgres.psql(original, (Path(__file__).parent.parent / "system" / "real_database.sql").read_text())
    options = {"PGOPTIONS": "-c headgate.restore=on"}
    for source, target, name, more in ((postgres, node, (original, restored), options), (node, postgres, (restored, back), {})):
        archive = tmp_path / f"{name[0]}.dump"
        subprocess.run([PG_BIN / "pg_dump", "-Fc", "-f", archive, "-d", source.conninfo(name[0])], check=True, capture_output=True)
        command = [PG_BIN / "pg_restore", "-d", target.conninfo(name[1]), archive]
        completed = subprocess.run(command, capture_output=True, text=True, env=os.environ | more, timeout=300)
        assert completed.returncode == 0, completed.stderr
    tables = postgres.psql(original, "SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND oid >= 16384 ORDER BY 1").split("\n")
    assert len(tables) > 20
    for table in tables:
        counted = f"SELECT count(*) FROM ONLY {table}"  # without the rows of children
        counts = [server.psql(database, counted) for server, database in ((postgres, original), (node, restored), (postgres, back))]
        assert len(set(counts)) == 1, (table, counts)


@pytest.mark.slow
def test_dump_of_user_defined_objects_is_that_of_postgresql_and_restores_on_both(postgres: Server, node: Server) -> None:
    objects = (Path(__file__).parent / "user_defined.sql").read_text()
    databases = {server: server.new_database() for server in (postgres, node)}
    for server, database in databases.items():
        server.psql(database, objects)
    expected = dumped(postgres, databases[postgres])
    assert dumped(node, databases[node]) == expected
    for server in (postgres, node):
        copy = server.new_database()
        server.psql(copy, expected)
        assert dumped(server, copy) == expected


def dumped(server: Server, database: str) -> str:
    """Return the dump of a database without the lines that have the server's version or a random key."""
    command = [PG_BIN / "pg_dump", "--no-owner", "-d", server.conninfo(database)]
    dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in dump.split("\n") if not line.startswith(("-- Dumped from", "\\restrict", "\\unrestrict")))
