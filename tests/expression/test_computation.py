"""Expressions over few rows have PostgreSQL's values in the driver, whether or not Arrow has a form of them, or are left to Spark."""

from __future__ import annotations

from collections import Counter
from random import Random

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.expression.agreement import SESSION
from tests.expression.comparison import raised, scope_of
from tests.expression.generated import GRAMMAR
from tests.expression.grammar import hidden, plain
from tests.expression.test_columnwise import COLUMNS, ROW, arrays, expected_results, judge

from headgate.commands.query.driver import computation
from headgate.errors import PostgresError
from headgate.expression import columnwise
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Const, Expression
from headgate.sql.parser import parse_expression
from headgate.types import registry
from headgate.types.text import text

__all__ = ["judge"]
ROWS, ROUND = 12, 40
BY_ROW = (
    "c || a", "format('%s/%s', c, b)", "upper(left(c, 1)) || v", "n / 7", "d - 5", "date_trunc('hour', t)", "md5(c)", "c ~ '^x'",
    "CASE WHEN g THEN c || 1 ELSE 'n' END", "nullif(c, 'x')", "greatest(a, b, 4)", "n::text::varchar(1)",
)  # fmt: skip


def bound(expression: str, columns: tuple[tuple[str, str], ...] = COLUMNS) -> Expression:
    return binder.bind_raw(parse_expression(expression), scope_of(columns), BindContext())


def texts(expression: Expression, values: pa.Array) -> list[str | None]:
    """Return values as a cast to text prints them, which removes the blanks at the end of a char(n)."""
    if expression.type.oid == registry.BPCHAR:
        values = pc.utf8_rtrim(values, " ")
    printed = text.write_text(values, expression.type.oid).to_pylist()
    words = {"t": "true", "f": "false"} if expression.type.oid == registry.BOOL else {}
    return [words.get(value, value) for value in printed]


@pytest.mark.parametrize("expression", BY_ROW)
def test_expression_without_a_form_in_arrow_is_computed_for_few_rows(judge: psycopg.Connection, expression: str) -> None:
    [expected] = expected_results(judge, COLUMNS, ROW, [expression])
    known = bound(expression)
    assert not columnwise.is_known(known)
    assert computation.is_known(known)
    assert texts(known, computation.value(known, arrays(COLUMNS, ROW), len(ROW), SESSION)) == expected


def test_expression_without_a_form_in_arrow_is_left_to_spark_for_many_rows() -> None:
    rows = ROW * computation.MOST
    with pytest.raises(NotColumnwise):
        computation.value(bound("c || a"), arrays(COLUMNS, rows), len(rows), SESSION)


def test_part_without_columns_is_computed_once() -> None:
    known = computation.folded(bound("c = upper('x' || 1) AND c > 'a'"), SESSION)
    assert columnwise.is_known(known)
    remainder = bound("5 % 3")
    assert computation.folded(remainder, SESSION) == Const(type=remainder.type, value="2")


def test_part_that_calls_a_volatile_function_is_no_constant() -> None:
    drawn = bound("random()")
    assert computation.folded(drawn, SESSION) == drawn


@pytest.mark.parametrize("expression", ["1 / (a - 1)", "c::int"])
def test_error_is_left_to_spark(expression: str) -> None:
    with pytest.raises(NotColumnwise):
        computation.value(bound(expression), arrays(COLUMNS, ROW), len(ROW), SESSION)


@pytest.mark.parametrize("expression", ["nextval('s')", "row(a, b)", "pg_backend_pid()"])
def test_expression_that_needs_the_session_is_not_known(expression: str) -> None:
    assert not computation.is_known(bound(expression))


def test_timeout_of_a_lock_is_raised_at_once() -> None:
    with pytest.raises(PostgresError), computation.usual_way_says():
        raise PostgresError("55P03", "canceling statement due to lock timeout")


@pytest.mark.parametrize(("rounds", "seed"), [pytest.param(1, 1), pytest.param(60, 2, marks=pytest.mark.slow)])
def test_generated_expressions_have_postgresqls_values_or_are_left_to_spark(judge: psycopg.Connection, rounds: int, seed: int) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(rounds):
        random = Random(f"{seed}/{number}")
        rows = [GRAMMAR.row(random) for _ in range(ROWS)]
        expressions = [GRAMMAR.expression(random, 1 + index % 3) for index in range(ROUND)]
        answers = expected_results(judge, GRAMMAR.columns, rows, [hidden(generated) for generated in expressions])
        for expression, expected in zip(expressions, answers, strict=True):
            try:
                known = bound(plain(expression), GRAMMAR.columns)
                if not computation.is_known(known) or known.type.oid == registry.INET:  # a cast of inet to text prints more than the value
                    continue
                known = computation.folded(known, SESSION)
                values = computation.value(known, arrays(GRAMMAR.columns, rows), ROWS, SESSION)
            except (NotColumnwise, PostgresError) as error:
                outcomes[type(error).__name__] += 1
                continue
            outcomes["evaluated"] += 1
            assert not any(map(raised, expected)), plain(expression)
            assert texts(known, values) == expected, plain(expression)
    assert outcomes["evaluated"] > rounds * ROUND / 4
