"""Random expressions have PostgreSQL's values on the catalogs, or are rejected. Expressions that had a different value once have tests too.

The grammar is that of `tests/expression`, whose tests use it for queries on tables and for filters, because they have the same binder. For
many examples: ``.venv/bin/python -m pytest --all tests/catalog/test_expressions.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from tests.expression.generated import GRAMMAR
from tests.expression.grammar import plain

from headgate.catalog.catalog import Catalog
from headgate.errors import PostgresError

Ask = Callable[..., list[tuple[str | None, ...]]]
TYPES = dict(GRAMMAR.columns)


@pytest.fixture(scope="module")
def judge(postgres: Any) -> Iterator[psycopg.Connection]:
    """A PostgreSQL session in UTC."""
    with psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


def quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def random_query(seed: int) -> str:
    """Return a query of one row: a random expression over columns that are constants."""
    random = Random(seed)
    expression = plain(GRAMMAR.expression(random, 1 + seed % 3))
    row = dict(zip(TYPES, GRAMMAR.row(random), strict=True))
    names = [name for name in dict.fromkeys(re.findall(r"[a-z]\w*", expression)) if name in TYPES] or ["i"]
    values = ", ".join(f"{quoted(row[name])}::{TYPES[name]} AS {name}" for name in names)
    return f"SELECT {expression} FROM (SELECT {values}) t, pg_catalog.pg_am WHERE amname = 'btree'"


def catalog_result(ask: Ask, database: int, query: str) -> str | None:
    """Return the result on the catalog: the value's text, or ! and the SQLSTATE."""
    try:
        return ask(database, query)[0][0]
    except PostgresError as error:
        return f"!{error.sqlstate}"


def postgresql_result(judge: psycopg.Connection, query: str) -> str | None:
    """Return PostgreSQL's result."""
    result = judge.pgconn.exec_(query.encode())
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        return f"!{(result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b'').decode()}"
    value = result.get_value(0, 0)
    return None if value is None else value.decode()


def difference_of(ask: Ask, database: int, judge: psycopg.Connection, seed: int, outcomes: Counter[str]) -> str | None:
    """Return the difference, or None."""
    query = random_query(seed)
    actual = catalog_result(ask, database, query)
    if actual == "!0A000":
        outcomes["refused"] += 1
        return None
    expected_value = postgresql_result(judge, query)
    if actual == expected_value:
        outcomes["agree"] += 1
        return None
    if (actual or "").startswith("!") and (
        expected_value is None or expected_value.startswith("!")
    ):  # PostgreSQL's planner returns NULL before it evaluates a part that raises
        outcomes["another error"] += 1
        return None
    if (
        actual == "!22025" and expected_value == "f"
    ):  # PostgreSQL does not evaluate a pattern that ends in its escape to the end (docs/compatibility.md)
        outcomes["another error"] += 1
        return None
    return f"{seed}: {query}\n  PostgreSQL {expected_value!r}, here {actual!r}"


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(1000, 20_000, 1000))])
def test_drawn_expression_has_postgresqls_value_on_a_catalog(ask: Ask, database: int, judge: psycopg.Connection, first: int) -> None:
    outcomes: Counter[str] = Counter()
    seeds = range(first, first + 1000)
    differing = [difference for seed in seeds if (difference := difference_of(ask, database, judge, seed, outcomes)) is not None]
    assert differing == []
    assert outcomes["agree"] >= 40, outcomes


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_thousand_drawn_expressions_have_postgresqls_values_on_a_table(postgres: Any) -> None:
    """This runs in a separate process, whose Spark session has the settings of a long run."""
    options = ["--count", "20000", "--seed", "1", "--database", postgres.conninfo(postgres.new_database())]
    run = subprocess.run([sys.executable, "-m", "tests.expression.agreement", *options], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]


ONCE_WRONG = (
    ("to_hex(-1)", "ffffffff"),
    ("to_hex(-1::int8)", "ffffffffffffffff"),
    ("substr('hello', -1, 3)", "h"),
    ("substr('hello', 0)", "hello"),
    ("substring('abc' from 'x*')", ""),
    ("substring('abc' from 'x+')", None),
    ("concat(true, 1)", "t1"),
    ("'b' ~ ANY (ARRAY['a', NULL])", None),
    ("1 = ANY (ARRAY[2, NULL])", None),
    ("('{1,2}'::int2[])[-1]", None),
    ("json_build_object('a', 1, 'b', NULL)", '{"a" : 1, "b" : null}'),
    ("(2147483648::int8)::oid", "2147483648"),
    ("(-1)::int4::oid", "4294967295"),
    ("split_part('a,b', '', 1)", "a,b"),
    ("string_to_array('abc', NULL)", "{a,b,c}"),
)


@pytest.mark.parametrize(("expression", "value"), ONCE_WRONG)
def test_expression_on_a_catalog_has_postgresqls_value(ask: Ask, database: int, expression: str, value: str | None) -> None:
    query = f"SELECT {expression} FROM pg_catalog.pg_am WHERE amname = 'btree'"
    assert ask(database, query) == [(value,)]


@pytest.mark.parametrize("nothing", ["ANY ('{}'::bool[])", "ALL (ARRAY[]::bool[])"])
def test_operand_is_evaluated_even_if_it_is_compared_with_no_element(
    ask: Ask, database: int, judge: psycopg.Connection, nothing: str
) -> None:
    query = f"SELECT ('ab' LIKE q) <= {nothing} FROM (SELECT 'a\\'::text AS q) t, pg_catalog.pg_am WHERE amname = 'btree'"
    assert catalog_result(ask, database, query) == postgresql_result(judge, query) == "!22025"


def test_information_schema_shows_grants_to_others(empty_catalog: Catalog, ask: Ask, database: int) -> None:
    """The view has aclexplode in its SELECT list."""
    query = (
        "SELECT grantee, privilege_type, is_grantable FROM information_schema.table_privileges"
        " WHERE table_name = 'pg_class' AND grantee = 'PUBLIC'"
    )
    assert ask(database, query) == [("PUBLIC", "SELECT", "NO")]
