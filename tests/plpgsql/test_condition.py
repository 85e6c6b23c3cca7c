"""Names of conditions are those of PostgreSQL's errcodes.txt."""

from __future__ import annotations

import pytest

from headgate.errors import PostgresError
from headgate.plpgsql import condition


@pytest.mark.parametrize(
    ("name", "sqlstate", "covers"),
    [
        ("division_by_zero", "22012", True),
        ("data_exception", "22012", True),
        ("division_by_zero", "22003", False),
        ("22012", "22012", True),
        ("others", "22012", True),
        ("others", "57014", False),
        ("others", "P0004", False),
        ("query_canceled", "57014", True),
    ],
)
def test_handler_covers_the_errors_of_its_condition(name: str, sqlstate: str, covers: bool) -> None:
    assert condition.covers(name, sqlstate) is covers


def test_unknown_condition_is_rejected() -> None:
    with pytest.raises(PostgresError, match='unrecognized exception condition "nonsense"'):
        condition.covers("nonsense", "22012")
