"""Which regular expressions DuckDB's engine takes as PostgreSQL's does, where the place of the match counts."""

from __future__ import annotations

import pytest
from tests.conftest import Server

from headgate.expression.duckdb.regex import _groups

ONE_WAY = ["fillfactor=([0-9]*)", "([0-9]*[.]?[0-9]*)", r"CHECK \((.*)\).*", "WHEN (.*) EXECUTE (PROCEDURE|FUNCTION)", "^a(b*)b$", "x(y?)z"]
SUBJECTS = [
    "",
    "a",
    "abbb",
    "xz",
    "xyz",
    "fillfactor=70,x=1",
    "12.5.3",
    "CHECK ((a > 0)) x",
    "WHEN (a) EXECUTE b EXECUTE FUNCTION f()",
    "zxyzb",
]


@pytest.mark.parametrize("pattern", ["(a|ab)c", "(a*)(b*)", "x(a?)a", "(a+)a*b?a", "[[:alpha:]]*(x)", "(x", "a" * 2000])
def test_a_pattern_that_may_match_in_several_ways_is_none_of_duckdbs(pattern: str) -> None:
    assert _groups(pattern) is None


def test_what_stands_in_parentheses_is_what_postgresql_finds(postgres: Server, node: Server) -> None:
    values = ", ".join(f"('{subject}')" for subject in SUBJECTS)
    asked = ", ".join(f"substring(v FROM '{pattern}'), regexp_replace(v, '{pattern}', '<\\1>')" for pattern in ONE_WAY)
    query = f"SELECT {asked} FROM (VALUES {values}) s (v) JOIN pg_class ON relname = 'pg_class' ORDER BY v COLLATE \"C\""

    assert node.psql(node.new_database(), query) == postgres.psql(postgres.new_database(), query)
