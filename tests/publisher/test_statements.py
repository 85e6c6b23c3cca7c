"""psql prints the same for a node as for PostgreSQL, errors included, for scripts about publications, partitions and slots.

Each file below `statements` runs in a new database of both servers. LSNs, oids and widths of columns differ by nature and are made equal
before the comparison. Run a file by hand with ``psql -a -v VERBOSITY=verbose -v db=NAME``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conftest import Server

SCRIPTS = sorted((Path(__file__).parent / "statements").glob("*.sql"))
SAME = (
    (r"^LOCATION: .*\n", ""),
    (r"\b[0-9A-F]+/[0-9A-F]{2,}\b", "LSN"),
    (r"PID [0-9]+", "PID"),
    (r"\b[1-9][0-9]{4}\b", "OID"),
    (r"-{3,}[-+]*", "---"),
    (r" +", " "),
    (r" $", ""),
)


def printed(server: Server, script: Path) -> list[str]:
    """Return what psql prints, including the statements."""
    database = server.new_database()
    text = server.script(database, script, "-v", "VERBOSITY=verbose", "-v", f"db={database}").replace(database, "DB")
    for pattern, word in SAME:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text.splitlines()


@pytest.mark.parametrize(
    "script", [pytest.param(script, id=script.stem, marks=[pytest.mark.slow] if script.stem == "partitions" else []) for script in SCRIPTS]
)
def test_psql_prints_the_same_for_a_node_and_postgresql(postgres: Server, node: Server, script: Path) -> None:
    assert printed(node, script) == printed(postgres, script)
