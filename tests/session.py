"""A session that a test keeps open, with the output of psql but without a process for each statement."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from headgate.sql.parser import parse


class Session:
    """A connection in autocommit mode. It is opened when it is first needed, and again after it was lost."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.notices: list[str] = []
        """The notices of the last script, as "WARNING: text"."""
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The open connection."""
        if self._connection is None or self._connection.closed:
            # do not prepare statements: psql does not
            self._connection = psycopg.connect(self.conninfo, autocommit=True, prepare_threshold=None)
            self._connection.add_notice_handler(lambda notice: self.notices.append(f"{notice.severity}: {notice.message_primary}"))
        return self._connection

    def sql(self, script: str) -> str:
        """Run the statements one by one and return their rows as ``psql -At`` prints them. Raise psycopg.Error at the first error."""
        self.notices = []
        printed: list[str] = []
        for statement in parse(script):
            result = self.connection.execute(statement.source).pgresult  # type: ignore[call-overload]
            if result.status == ExecStatus.TUPLES_OK:
                printed += [
                    "|".join(_text(result.get_value(row, field)) for field in range(result.nfields)) for row in range(result.ntuples)
                ]
        return "\n".join(printed)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()
