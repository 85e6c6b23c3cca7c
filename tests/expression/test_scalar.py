"""Expressions of integers, booleans and texts that are computed in Python have PostgreSQL's values."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Server

from headgate.errors import PostgresError
from headgate.expression import scalar
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.sql.parser import parse_expression

INTEGERS = st.sampled_from(["NULL", "0", "1", "-1", "2", "-3", "7", "2147483647", "(-2147483648)", "3000000000", "9223372036854775807"])
OPERATORS = st.sampled_from(["+", "-", "*", "/", "%"])
COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
SUMS = st.recursive(INTEGERS, lambda part: st.tuples(part, OPERATORS, part).map(lambda parts: f"({' '.join(parts)})"), max_leaves=4)
TESTS = st.one_of(
    st.tuples(SUMS, COMPARED, SUMS).map(lambda parts: f"({' '.join(parts)})"),
    SUMS.map(lambda operand: f"({operand} IS NULL)"),
    st.sampled_from(["true", "false", "NULL::boolean", "('a' || 'b' = 'ab'::text)"]),
)
CONDITIONS = st.recursive(
    TESTS, lambda part: st.one_of(st.tuples(part, st.sampled_from(["AND", "OR"]), part).map(" ".join).map("({})".format), part.map("(NOT {})".format)),
    max_leaves=4,
)  # fmt: skip


def computed(text: str) -> tuple[bool, str | None]:
    """Return whether an expression is computed in Python, and its value or SQLSTATE."""
    try:
        function = scalar.compiled(binder.bind_raw(parse_expression(text), EMPTY, BindContext()))
        return function is not None, None if function is None else scalar.printed(function(()))
    except PostgresError as error:
        return True, error.sqlstate


@given(expressions=st.lists(st.one_of(SUMS, CONDITIONS), min_size=10, max_size=10))
@settings(max_examples=30, deadline=None)
def test_values_and_errors_equal_postgresqls(postgres: Server, expressions: list[str]) -> None:
    with psycopg.connect(postgres.conninfo(), autocommit=True) as connection:
        for text in expressions:
            is_here, value = computed(text)
            if not is_here or "AND" in text or "OR" in text:  # PostgreSQL may leave out what would raise
                continue
            try:
                row = connection.execute(f"SELECT ({text})::text").fetchone()  # type: ignore[arg-type]
                assert row is not None
                expected = {"true": "t", "false": "f"}.get(row[0], row[0])
            except psycopg.Error as error:
                expected = error.sqlstate
            assert value == expected, text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NULL::boolean AND false", "f"), ("NULL::boolean AND true", None), ("NULL::boolean OR true", "t"), ("NULL::boolean OR false", None),
        ("NOT NULL::boolean", None), ("false AND 1 / 0 = 1", "f"), ("-7 / 2", "-3"), ("-7 % 2", "-1"),
        ("coalesce(NULL, 3, 1 / 0)", "3"), ("coalesce(NULL::int, NULL)", None), ("CASE WHEN NULL THEN 1 / 0 WHEN 2 > 1 THEN 5 END", "5"),
        ("CASE WHEN false THEN 1 END", None), ("'a' || 5", "a5"), ("(1 > 0) || 'a'", "truea"), ("'a' || NULL::int", None),
    ],
)  # fmt: skip
def test_null_and_signs_are_computed_as_in_postgresql(text: str, value: str | None) -> None:
    assert computed(text) == (True, value)
