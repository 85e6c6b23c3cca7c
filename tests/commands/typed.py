"""Run statements in a session, and return what psql would show of each, to compare a node with PostgreSQL.

A `Typist` is a connection of a driver. `differences` runs the same statements on a node and on PostgreSQL, and returns those with different
results. The tests of statements assert that there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import psycopg
from tests.conftest import Server


class Typist:
    """A session on a server. Use it with ``closing``."""

    def __init__(self, conninfo: str) -> None:
        self.connection = psycopg.connect(conninfo, autocommit=True)
        self._said: list[str] = []
        self.connection.add_notice_handler(lambda diagnostic: self._said.append(_shown(str(diagnostic.severity_nonlocalized), diagnostic)))

    def type(self, text: str) -> str:
        """Run a statement. Return its notices, then the rows joined by ``|``, or ``ERROR SQLSTATE: message`` with DETAIL and HINT."""
        self._said = []
        result = self.connection.pgconn.exec_(text.encode())
        if result.error_field(psycopg.pq.DiagnosticField.SQLSTATE):
            lines = [_shown("ERROR", psycopg.errors.Diagnostic(result))]
        else:
            cells = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
            lines = ["|".join("" if cell is None else cell.decode() for cell in row) for row in cells]
        return "\n".join([*self._said, *lines])

    def close(self) -> None:
        """End the session."""
        self.connection.close()


def _shown(word: str, diagnostic: Any) -> str:
    lines = [f"{word} {diagnostic.sqlstate}: {diagnostic.message_primary}"]
    lines += [f"DETAIL: {diagnostic.message_detail}"] if diagnostic.message_detail else []
    lines += [f"HINT: {diagnostic.message_hint}"] if diagnostic.message_hint else []
    return "\n".join(lines)


def _comparable(statement: str, answer: str) -> list[str]:
    """Return the lines of a result, sorted if the statement does not determine the order of its rows."""
    lines = answer.split("\n")
    return lines if "ORDER BY" in statement or "ERROR" in answer else sorted(lines)


def differences(node: Server, postgres: Server, statements: Sequence[str], mask: Callable[[str], str] = str) -> str:
    """Run the statements in an empty database of each server. Return those with different results. `mask` hides texts that may differ."""
    differing = []
    with (
        closing(Typist(node.conninfo(node.new_database()))) as node_session,
        closing(Typist(postgres.conninfo(postgres.new_database()))) as native,
    ):
        for statement in statements:
            expected, actual = mask(native.type(statement)), mask(node_session.type(statement))
            if _comparable(statement, actual) != _comparable(statement, expected):
                differing.append(f"{statement}\n  PostgreSQL: {expected}\n  node:       {actual}")
    return "\n".join(differing)
