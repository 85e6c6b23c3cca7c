"""Trigger functions that only read the row of their trigger are distinguished from those that also insert rows (the table in `headgate.plpgsql.reach`)."""

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
