"""psql prints the same for a node as for PostgreSQL, errors included, for scripts about privileges and visibility.

`make test-all` also runs the scripts in `statements/long`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Server
from tests.publisher.test_statements import printed

SCRIPTS = Path(__file__).parent / "statements"


@pytest.mark.parametrize(
    "script",
    [
        *(pytest.param(script, id=script.stem) for script in sorted(SCRIPTS.glob("*.sql"))),
        *(pytest.param(script, id=script.stem, marks=pytest.mark.slow) for script in sorted(SCRIPTS.glob("long/*.sql"))),
    ],
)
def test_psql_prints_the_same_for_a_node_and_postgresql(postgres: Server, node: Server, script: Path) -> None:
    assert printed(node, script) == printed(postgres, script)
