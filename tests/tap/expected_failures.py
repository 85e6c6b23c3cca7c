"""The checks of PostgreSQL's TAP tests that are expected to fail with nodes, each with its reason.

A check is named by a regular expression that matches its description from the beginning. `HARNESS …` is a failure that `HeadgateTap.pm`
counts, with the line of the test, or a file that ended early, with its last message.
Statements that nodes do not support are removed beforehand where that saves the checks after them (`skips.pl`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Way(StrEnum):
    """Which clusters of a test are nodes."""

    NODE_SUBSCRIBES = "a"
    NODE_PUBLISHES = "b"
    NODES_ALONE = "c"


class ExpectedFailure(NamedTuple):
    """A check that fails in some ways of running its file."""

    file: str
    ways: str
    check: str
    reason: str


EXPECTED = [
    ExpectedFailure("001", "bc", "log_statement_stats in CONNECTION string had effect", "a node rejects log_statement_stats"),
    ExpectedFailure("005", "ac", "HARNESS the file ended early: .*initdb.*--encoding=LATIN1", "the databases of a node are UTF8"),
    ExpectedFailure("012", "ac", "update with primary key with nondeterministic collation", "collations other than C"),
    ExpectedFailure("012", "ac", "update with replica identity full with nondeterministic collation", "collations other than C"),
    ExpectedFailure("022", "ac", "transaction is prepared on subscriber C", "a cascade delivers a prepared transaction at COMMIT PREPARED"),
]


def expected_failures(file: str, way: Way) -> dict[str, str]:
    """Return the checks of a file that are expected to fail, with their reasons."""
    return {entry.check: entry.reason for entry in EXPECTED if entry.file == file.partition("_")[0] and way in entry.ways}
