"""DuckDB's engine evaluates only the regular expressions whose match position is PostgreSQL's."""

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
def test_pattern_with_several_possible_matches_is_not_evaluated_by_duckdb(pattern: str) -> None:
    assert _groups(pattern) is None


def test_groups_in_parentheses_match_as_in_postgresql(postgres: Server, node: Server) -> None:
    values = ", ".join(f"('{subject}')" for subject in SUBJECTS)
    expressions = ", ".join(f"substring(v FROM '{pattern}'), regexp_replace(v, '{pattern}', '<\\1>')" for pattern in ONE_WAY)
    query = f"SELECT {expressions} FROM (VALUES {values}) s (v) JOIN pg_class ON relname = 'pg_class' ORDER BY v COLLATE \"C\""

    assert node.psql(node.new_database(), query) == postgres.psql(postgres.new_database(), query)
