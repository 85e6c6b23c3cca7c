"""Random functions and triggers give the same rows, errors and messages on a node as on PostgreSQL, for the statements of a client."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conftest import Server
from tests.plpgsql.generated import ROWS, STATE, TABLES, Generator


def outcomes(server: Server, statements: list[str]) -> list[Any]:
    """Return, for each statement, its rows or its SQLSTATE, and its messages. Each statement is a transaction."""
    results: list[Any] = []
    messages: list[str | None] = []
    with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: messages.append(notice.message_primary))
        connection.execute(TABLES)
        for statement in statements:
            messages.clear()
            try:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
                rows: Any = cursor.fetchall() if cursor.description else cursor.statusmessage
            except psycopg.Error as error:
                rows = error.sqlstate
            results.append((statement, rows, list(messages)))
    return results


def scenario(seed: int, steps: int) -> list[str]:
    """Return the statements of a seed."""
    generator = Generator(seed, raises=seed % 2 == 1)
    statements = [ROWS, *(generator.function() for _ in range(4))]
    for number in range(3):
        statements += generator.trigger(number)
    for step in range(steps):
        statements.append(generator.query() if step % 3 == 2 else generator.change())
    return [*statements, *STATE]


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(7, 9), *(pytest.param(seed, 20, marks=[pytest.mark.slow, pytest.mark.timeout(600)]) for seed in range(20, 45))],
)
def test_generated_functions_and_triggers_do_what_those_of_postgresql_do(postgres: Server, node: Server, seed: int, steps: int) -> None:
    statements = scenario(seed, steps)
    for got, expected in zip(outcomes(node, statements), outcomes(postgres, statements), strict=True):
        assert got == expected
