"""Queries and changes in breadth, typed into a real PostgreSQL and into a session of ours: the same answers.

Of the queries the suite takes each fourth; HEADGATE_BREADTH=all takes them all (some minutes).
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from breadth import CHANGES, QUERIES, ROW_BY_ROW, SEQUENCES, TABLES
from local import LocalSession
from test_agreement import Native, comparable, ours

__all__ = ["ours"]


PART = 36


def parts(script: str) -> list[list[str]]:
    """Queries that need nothing of each other, in lots that a slow machine answers within a test's time."""
    statements = script.strip().split("\n")
    if os.environ.get("HEADGATE_BREADTH") != "all":
        statements = statements[::4]
    return [statements[place : place + PART] for place in range(0, len(statements), PART)]


@pytest.mark.parametrize("statements", [*parts(QUERIES), *(each.strip().split("\n") for each in (CHANGES, ROW_BY_ROW, SEQUENCES))])
def test_statements_in_breadth_are_answered_as_postgresql_answers_them(ours: LocalSession, postgres: Any, statements: list[str]) -> None:
    native = Native(postgres.conninfo(postgres.new_database()))
    different = []
    for statement in [*TABLES.strip().split("\n"), *statements]:
        expected, seen = native.type(statement), ours.type(statement)
        if comparable(statement, seen) != comparable(statement, expected):
            different.append(f"{statement}\n  PostgreSQL: {expected}\n  ours:       {seen}")
    native.connection.close()
    assert not different, "\n" + "\n".join(different)
