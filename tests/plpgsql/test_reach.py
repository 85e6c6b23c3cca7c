"""Which functions look at the rows of their trigger only: each row of the table in `headgate.plpgsql.reach`."""

from __future__ import annotations

import pytest

from headgate.plpgsql import reach
from headgate.plpgsql.compiler import compiled


@pytest.mark.parametrize(
    ("body", "is_of_rows_only"),
    [
        ("NEW.a := upper(NEW.b) || now(); IF NEW.c > 1 THEN RETURN NULL; END IF;", True),
        ("FOR i IN 1..3 LOOP NEW.c := NEW.c + i; END LOOP; RAISE NOTICE '%', NEW.c;", True),
        ("NEW.a := (SELECT max(a) FROM t);", False),
        ("NEW.a := own(NEW.a);", False),
        ("NEW.a := nextval('s');", False),
        ("INSERT INTO log VALUES (NEW.a);", False),
        ("PERFORM pg_notify('a', 'b');", False),
        ("EXECUTE 'DELETE FROM t';", False),
        ("BEGIN NEW.a := 1; EXCEPTION WHEN others THEN NULL; END;", False),
    ],
)
def test_a_trigger_function(body: str, is_of_rows_only: bool) -> None:
    function = compiled(f"BEGIN {body} RETURN NEW; END", "f", (), "trigger", lambda _: False)
    assert reach.of_rows_only(function) is is_of_rows_only
