"""Plays: what several sessions of one database say in turn, and what each is answered, on a node and on a PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
from tests.conftest import Server, until

Step = tuple[str, str]
"""The session and what it says; a session that still waits for its last answer is asked for it by ``("a", "")``."""


class Play:
    """Sessions of one database, by name."""

    def __init__(self, server: Server, database: str | None = None) -> None:
        self.database = database or server.new_database()
        self._conninfo = server.conninfo(self.database)
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        self._answers: dict[str, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(4)
        self.said: list[tuple[str, str, Any]] = []
        self.waited: list[bool] = []
        """Of each step named with a ``+``: whether the session has waited for a lock."""

    def run(self, steps: Sequence[Step]) -> list[tuple[str, str, Any]]:
        """What each step answered; ``waits`` for those of a session named with a ``+``, which is answered later."""
        for who, sql in steps:
            name = who.rstrip("+")
            if not sql:
                self.said.append((name, "answer", self._answers.pop(name).result(60)))
            elif who != name:
                session = self._session(name)
                self._answers[name] = self._pool.submit(_answer, session, sql)
                self._wait_until_it_waits(name)
            else:
                self.said.append((name, sql, _answer(self._session(name), sql)))
        return self.said

    def _session(self, name: str) -> psycopg.Connection[Any]:
        if name not in self._sessions:
            self._sessions[name] = psycopg.connect(self._conninfo, autocommit=True)
        return self._sessions[name]

    def _wait_until_it_waits(self, name: str) -> None:
        """Until the session waits for a lock, or has been answered: then it did not wait, and the answers will tell."""
        pid, answer = self._session(name).info.backend_pid, self._answers[name]
        query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        waits = lambda: answer.done() or self._session("watcher").execute(query, (pid,)).fetchone() == (True,)  # noqa: E731
        until(waits, f"session {name} waits for no lock")
        self.waited.append(not answer.done())

    def close(self) -> None:
        for session in self._sessions.values():
            session.cancel_safe()
            session.close()
        self._pool.shutdown()


def _answer(session: psycopg.Connection[Any], sql: str) -> Any:
    try:
        done = session.execute(sql.encode())
        return done.fetchall() if done.description else done.statusmessage
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_detail if error.sqlstate != "40P01" else ""
