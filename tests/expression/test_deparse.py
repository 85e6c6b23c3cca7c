"""Expressions print as pg_get_expr prints them: the accepted filters of the table, and many others that are compared with PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest
from tests.expression.comparison import scope_of
from tests.expression.table import ACCEPTED, COLUMNS, MORE

from headgate.expression import serialization
from headgate.expression.binding.binder import bind, bind_condition
from headgate.expression.binding.context import BindContext
from headgate.expression.deparsing.deparse import deparse
from headgate.sql.parser import parse_expression


@pytest.mark.parametrize(("written", "printed"), ACCEPTED)
def test_filter_prints_as_postgresql_prints_it(written: str, printed: str) -> None:
    bound = bind_condition(parse_expression(written), scope_of(COLUMNS, table="r"), "PUBLICATION WHERE", context=BindContext())
    assert deparse(bound) == printed


@pytest.mark.parametrize(("written", "printed"), ACCEPTED)
def test_stored_expression_loads_unchanged(written: str, printed: str) -> None:
    bound = bind_condition(parse_expression(written), scope_of(COLUMNS, table="r"), "PUBLICATION WHERE", context=BindContext())
    loaded = serialization.load(serialization.dump(bound))
    assert loaded == bound
    assert deparse(loaded) == printed


def test_default_and_check_expressions_print_as_by_pg_get_expr(oracle: psycopg.Connection) -> None:
    """The deparser prints column defaults and checks as pg_get_expr does, plain and pretty."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS)
    oracle.execute(f"DROP TABLE IF EXISTS golden; CREATE TABLE golden ({columns})".encode())
    wrong = []
    for expression in MORE:
        oracle.execute(f"ALTER TABLE golden ADD CONSTRAINT c CHECK (({expression}) IS NULL)".encode())
        row = oracle.execute(
            "SELECT pg_get_expr(conbin, conrelid), pg_get_expr(conbin, conrelid, true) FROM pg_constraint WHERE conname = 'c'"
        ).fetchone()
        oracle.execute("ALTER TABLE golden DROP CONSTRAINT c")
        bound = bind(parse_expression(f"({expression}) IS NULL"), scope_of(COLUMNS, table="golden"), context=BindContext())
        actual = (deparse(bound), deparse(bound, pretty=True))
        if actual != row:
            wrong.append((expression, row, actual))
    assert not wrong
