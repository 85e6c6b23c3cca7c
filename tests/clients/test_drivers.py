"""A short test of each driver gives the same results on a PostgreSQL and on a node."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.conftest import DRIVERS, Table

PRINTED = r"""1|Größe 'q' \ 😀|12345678.90|-9223372036854775808|t|0.1|2024-02-29 10:30:15.123456+00|\x00ff5c27|00112233-4455-6677-8899-aabbccddeeff|{x,NULL,"y,z\""}|{1,NULL,-3}
2||||||||||"""
ROW = [
    1, "Größe 'q' \\ 😀", "12345678.90", "-9223372036854775808", True, 0.1, "2024-02-29T10:30:15.123456", "00ff5c27",
    "00112233-4455-6677-8899-aabbccddeeff", ["x", None, 'y,z"'], [1, None, -3],
]  # fmt: skip
NULLS: list[Any] = [2, *[None] * 10]
SUM = 20000 * 20001 // 2


def having(*without: str) -> pytest.MarkDecorator:
    """Run a test with each driver except these."""
    return pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver not in without])


@having()
def test_parameters_of_every_type_and_nulls_are_returned_as_sent(table: Table, driver: str) -> None:
    rows_read = table.play(driver, "values")
    assert table.sql("SET TimeZone = 'UTC'; SELECT * FROM items ORDER BY id") == PRINTED
    assert rows_read == [ROW, NULLS]


@having()
def test_error_has_its_sqlstate_and_constraint_and_the_connection_stays_usable(table: Table, driver: str) -> None:
    answers = table.play(driver, "errors")
    constraint = None if driver == "arrow" else "items_pkey"  # ADBC has it only in the message text
    assert answers == [["23505", constraint], ["42601", None], ["22P02", None], ["42703", None], 1]


@having()
def test_transaction_keeps_all_but_its_failed_savepoint_and_a_rollback_keeps_nothing(table: Table, driver: str) -> None:
    table.play(driver, "transaction")
    assert table.sql("SELECT id, name FROM items ORDER BY id") == "1|outer\n3|behind"


@having("sqlalchemy")
def test_rows_are_copied_in_and_out(table: Table, driver: str) -> None:
    answers = table.play(driver, "copy")
    assert answers == [3, '1,"a,b"\n2,\n3,""\n']
    assert table.sql("SELECT id, name IS NULL FROM items ORDER BY id") == "1|f\n2|t\n3|f"


@having()
def test_large_result_is_fetched_in_parts(table: Table, driver: str) -> None:
    assert table.play(driver, "parts") == [20000, SUM]


@having("pg8000", "sqlalchemy")  # these cannot cancel a statement
def test_statement_can_be_cancelled_and_its_connection_stays_usable(table: Table, driver: str) -> None:
    assert table.play(driver, "cancel") == ["57014", 1]


def test_polars_and_connectorx_read_tables_whole_and_in_partitions(table: Table) -> None:
    table.sql(
        "INSERT INTO items (id, name, big, good, real8) SELECT g, nullif('n' || g, 'n3'), g * 10, g > 4, g / 4.0 FROM generate_series(1, 6) g"
    )
    frame = table.play("arrow", "polars_read")
    read = table.play("arrow", "connectorx_read")
    assert frame[:3] == [
        [number, None if number == 3 else f"n{number}", number * 10, False, number / 4, "2024-02-29"] for number in (1, 2, 3)
    ]
    assert read == [[6, 21, 1], True]


def test_polars_creates_appends_to_and_replaces_a_table(table: Table) -> None:
    assert table.play("arrow", "polars_write") == [2, 2, 2, [2, 1, "2024-02-29"]]
    assert table.sql("SELECT * FROM frames ORDER BY id") == "1|one|2024-02-29 10:00:00|2024-02-29\n2|||"


def test_sqlalchemy_stores_loads_changes_and_deletes_objects(table: Table) -> None:
    answers = table.play("sqlalchemy", "mapped")
    assert answers == [
        ["c0", 6], ["c1", 9], ["c2", 12], ["c3", 15], ["c4", 18],
        [["c0", 105], ["c2", 12], ["c3", 15], ["c4", 18]], "positive",
    ]  # fmt: skip
