"""A row filter that PostgreSQL rejects is rejected with the same error and DETAIL. One that it accepts is bound or rejected with a reason."""

from __future__ import annotations

import pytest
from tests.expression.comparison import table_of
from tests.expression.table import ACCEPTED, COLUMNS, REJECTED

from headgate.errors import PostgresError
from headgate.rowfilter.filter import bind_filter, load
from headgate.sql.parser import parse_expression

TABLE = table_of(COLUMNS, "r")


@pytest.mark.parametrize(("filter_text", "sqlstate", "message", "detail"), REJECTED)
def test_filter_is_rejected_as_postgresql_rejects_it(filter_text: str, sqlstate: str, message: str, detail: str | None) -> None:
    with pytest.raises(PostgresError) as caught:
        bind_filter(parse_expression(filter_text), TABLE)
    assert (caught.value.sqlstate, caught.value.message, caught.value.detail) == (sqlstate, message, detail)


@pytest.mark.parametrize(("filter_text", "printed"), ACCEPTED)
def test_accepted_filter_is_bound_or_rejected_with_a_reason(filter_text: str, printed: str) -> None:
    try:
        bound = bind_filter(parse_expression(filter_text), TABLE)
    except PostgresError as error:
        bound = None
        refusal = (error.sqlstate, "not supported" in error.message)
    if bound is None:
        assert refusal == ("0A000", True)
        return
    assert bound.text == printed
    assert load(bound.dump()) == bound


def test_columns_of_a_filter_are_returned() -> None:
    assert bind_filter(parse_expression("a > 5 AND b = 'x' OR c IS NULL"), TABLE).columns == {1, 2, 3}
    assert bind_filter(parse_expression("true"), TABLE).columns == set()


def test_errors_point_to_the_offending_word() -> None:
    text = "a > 5 AND b = 1"
    with pytest.raises(PostgresError) as caught:
        bind_filter(parse_expression(text), TABLE)
    assert caught.value.position == len("SELECT a > 5 AND b ") + 1
    assert caught.value.hint is not None
    with pytest.raises(PostgresError) as caught:
        bind_filter(parse_expression("gss = 1"), TABLE)
    assert caught.value.hint == 'Perhaps you meant to reference the column "r.gs".'


@pytest.mark.parametrize(
    ("filter_text", "at"),
    [("a IN (SELECT 1)", "a IN"), ("(a + 5) NOT IN (SELECT 1)", "a + 5"), ("EXISTS (SELECT 1)", "EXISTS"), ("a = (SELECT 1)", "(SELECT")],
)
def test_error_of_a_subquery_points_to_the_expression_before_in(filter_text: str, at: str) -> None:
    with pytest.raises(PostgresError, match="invalid publication WHERE expression") as caught:
        bind_filter(parse_expression(filter_text), TABLE)
    assert caught.value.position == len("SELECT ") + filter_text.index(at) + 1


def test_collation_that_does_not_order_by_bytes_is_rejected() -> None:
    with pytest.raises(PostgresError) as caught:
        bind_filter(parse_expression("""b < 'x' COLLATE "fa-IR-x-icu" """), TABLE)
    assert caught.value.sqlstate == "42704"  # as in pg_collation, where it is not
    for name in ("ucs_basic", '"C.utf8"', '"C"', '"POSIX"'):
        assert bind_filter(parse_expression(f"b < 'x' COLLATE {name}"), TABLE).columns == {2}
