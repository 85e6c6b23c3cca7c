"""Scripts of statements about who may do and see what: psql prints the same for a node as for PostgreSQL, errors and all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Server
from tests.publisher.test_statements import shown

SCRIPTS = sorted((Path(__file__).parent / "statements").glob("*.sql"))
LONG = {"by_key", "by_key_of_each_type", "literals_of_set_operations", "reports", "terms_of_joins"}


@pytest.mark.parametrize(
    "script", [pytest.param(each, id=each.stem, marks=[pytest.mark.slow] if each.stem in LONG else []) for each in SCRIPTS]
)
def test_psql_prints_the_same(postgres: Server, node: Server, script: Path) -> None:
    assert shown(node, script) == shown(postgres, script)
