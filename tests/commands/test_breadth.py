"""Many kinds of queries and changes give the same results on PostgreSQL and on a node.

`make test-all` runs them. The suite runs those of `test_agreement`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.commands.breadth import CHANGES, QUERIES, ROW_BY_ROW, SEQUENCES, TABLES
from tests.commands.typed import differences
from tests.conftest import Server

PART = 36
EACH = 4


def lots() -> Iterator[Any]:
    """Divide independent queries into lots, each of which a slow machine runs within the time of a test."""
    queries = QUERIES.strip().split("\n")
    for share in range(EACH):
        share_of_queries = queries[share::EACH]
        for start in range(0, len(share_of_queries), PART):
            yield pytest.param(share_of_queries[start : start + PART], id=f"queries {share} {start}")
    for name, script in {"changes": CHANGES, "row by row": ROW_BY_ROW, "sequences": SEQUENCES}.items():
        yield pytest.param(script.strip().split("\n"), id=name)


@pytest.mark.slow
@pytest.mark.parametrize("statements", list(lots()))
def test_statements_in_breadth_answer_as_in_postgresql(node: Server, postgres: Server, statements: list[str]) -> None:
    different = differences(node, postgres, [*TABLES.strip().split("\n"), *statements])
    assert not different, different
