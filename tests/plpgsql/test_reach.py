"""Trigger functions that only read the row of their trigger are distinguished from those that insert rows or read tables (`headgate.plpgsql.reach`)."""

from __future__ import annotations

import pytest

from headgate.plpgsql import reach
from headgate.plpgsql.compiler import compiled


@pytest.mark.parametrize(
    ("body", "inserts"),
    [
        ("NEW.a := upper(NEW.b) || now(); IF NEW.c > 1 THEN RETURN NULL; END IF;", []),
        ("FOR i IN 1..3 LOOP NEW.c := NEW.c + i; END LOOP; RAISE NOTICE '%', NEW.c;", []),
        ("NEW.a := (SELECT max(a) FROM t);", None),
        ("NEW.a := own(NEW.a);", None),
        ("NEW.a := nextval('s');", None),
        ("INSERT INTO log VALUES (NEW.a);", ["log"]),
        ("IF NEW.a > 1 THEN INSERT INTO log SELECT NEW.a, now(); ELSE INSERT INTO s.other (a) VALUES (DEFAULT); END IF;", ["log", "other"]),
        ("INSERT INTO log VALUES (NEW.a), (NEW.b);", None),
        ("INSERT INTO log SELECT a FROM t;", None),
        ("INSERT INTO log VALUES (NEW.a) ON CONFLICT DO NOTHING;", None),
        ("INSERT INTO log VALUES (NEW.a) RETURNING a INTO NEW.b;", None),
        ("INSERT INTO log VALUES (own(NEW.a));", None),
        ("INSERT INTO log VALUES ((SELECT max(a) FROM t));", None),
        ("PERFORM pg_notify('a', 'b');", None),
        ("EXECUTE 'DELETE FROM t';", None),
        ("BEGIN NEW.a := 1; EXCEPTION WHEN others THEN NULL; END;", None),
    ],
)
def test_inserts_of_a_trigger_function_are_found(body: str, inserts: list[str] | None) -> None:
    function = compiled(f"BEGIN {body} RETURN NEW; END", "f", (), "trigger", lambda _: False)
    insert_statements = reach.inserts(function)
    assert (None if insert_statements is None else [statement.relation.relname for statement in insert_statements]) == inserts


@pytest.mark.parametrize(
    ("body", "tables"),
    [
        ("SELECT m.a INTO NEW.a FROM m WHERE m.b = NEW.b;", ["m"]),
        ("NEW.a := (SELECT max(m.a) FROM m JOIN s.other USING (b));", ["m", "other"]),
        ("IF EXISTS (SELECT FROM m) THEN RAISE EXCEPTION 'x'; END IF;", ["m"]),
        ("PERFORM a FROM m;", ["m"]),
        ("FOR r IN SELECT a FROM m LOOP NEW.a := r.a; END LOOP;", ["m"]),
        ("SELECT a INTO NEW.a FROM m FOR UPDATE;", None),
        ("SELECT own(a) INTO NEW.a FROM m;", None),
        ("SELECT public.lower(a) INTO NEW.a FROM m;", None),
        ("SELECT pg_catalog.lower(a) INTO NEW.a FROM m;", ["m"]),
        ("SELECT nextval('s') INTO NEW.a;", None),
        ("PERFORM pg_notify('a', 'b');", None),
        ("EXECUTE 'SELECT 1' INTO NEW.a;", None),
        ("INSERT INTO m VALUES (NEW.a);", ["*m"]),
        ("UPDATE m SET a = a + 1 WHERE b = NEW.b;", ["*m"]),
        ("DELETE FROM m USING other WHERE m.b = other.b RETURNING m.a INTO NEW.a;", ["*m", "other"]),
        ("INSERT INTO m SELECT a FROM other ON CONFLICT DO NOTHING;", ["*m", "other"]),
        ("UPDATE m SET a = own(b);", None),
        ("UPDATE m SET a = nextval('s');", None),
        ("WITH w AS (DELETE FROM m RETURNING a) INSERT INTO other SELECT a FROM w;", None),
        ("TRUNCATE m;", None),
        ("WITH w AS (DELETE FROM m RETURNING a) SELECT a INTO NEW.a FROM w;", None),
        ("BEGIN SELECT a INTO NEW.a FROM m; EXCEPTION WHEN others THEN NULL; END;", None),
    ],
)
def test_tables_that_a_function_reads_and_changes_are_found(body: str, tables: list[str] | None) -> None:
    """A star marks the changed tables."""
    function = compiled(f"DECLARE r record; BEGIN {body} RETURN NEW; END", "f", (), "trigger", lambda text: text == "record")
    uses = reach.uses(function)
    named = None
    if uses is not None:
        named = [f"*{relation.relname}" for relation in uses.changed] + [relation.relname for relation in uses.read]
    assert named == tables
