"""Statements of several concurrent sessions of one database, and their results, on a node or on PostgreSQL.

`run` takes steps that state which sessions wait for a lock. For steps whose waits are not known in advance (`permutation`), `send` sends a
statement, and `settle` returns the results that have arrived. An apply worker can take part like a session (`Speaker`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, Protocol

import psycopg
from psycopg.pq import TransactionStatus
from tests.conftest import Server, until

Step = tuple[str, str]
"""A session and its statement. ``("a", "")`` waits for the result of the statement for which session a is still waiting."""


STEADY = 0.15
"""Seconds for which a session must be seen waiting for a lock before it counts as waiting. PostgreSQL checks for deadlocks after 10 ms."""


class Speaker(Protocol):
    """A participant that is not a session: an apply worker."""

    def say(self, sql: str) -> Any:
        """Run a statement and return its result."""

    def waits(self, watcher: psycopg.Connection[Any]) -> bool:
        """Return whether it waits for a lock."""

    def rest(self) -> None:
        """Cancel the statement that still waits."""


class Play:
    """Sessions of one database, by name."""

    def __init__(self, server: Server, database: str | None = None) -> None:
        self.database = database or server.new_database()
        self._conninfo = server.conninfo(self.database, options="-cdeadlock_timeout=10ms")
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        self._answers: dict[str, Future[Any]] = {}
        self.speakers: dict[str, Speaker] = {}
        self._pool = ThreadPoolExecutor(8)
        self.results: list[tuple[str, str, Any]] = []
        self.waited: list[bool] = []
        """Whether the session has waited for a lock, for each step named with a ``+``."""

    def run(self, steps: Sequence[Step]) -> list[tuple[str, str, Any]]:
        """Run the steps and return their results. A session named with a ``+`` must wait for a lock: a later step has its result."""
        for session_name, sql in steps:
            name = session_name.rstrip("+")
            if not sql:
                self.results.append((name, "answer", self._answers.pop(name).result(60)))
            elif session_name != name:
                session = self._session(name)
                self._answers[name] = self._pool.submit(_answer, session, sql)
                self._wait_until_it_waits(name)
            else:
                self.results.append((name, sql, _answer(self._session(name), sql)))
        return self.results

    def _session(self, name: str) -> psycopg.Connection[Any]:
        if name not in self._sessions:
            self._sessions[name] = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        return self._sessions[name]

    def _wait_until_it_waits(self, name: str) -> None:
        """Wait until the session waits for a lock or has its result."""
        pid, answer = self._session(name).info.backend_pid, self._answers[name]
        query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        waits = lambda: answer.done() or self._session("watcher").execute(query, (pid,)).fetchone() == (True,)  # noqa: E731
        until(waits, f"session {name} waits for no lock")
        self.waited.append(not answer.done())

    def say(self, name: str, sql: str) -> Any:
        """Run a statement that does not wait, and return its result."""
        return _answer(self._session(name), sql)

    def send(self, name: str, *statements: str) -> None:
        """Send statements in a session. `settle` returns the result of the last one."""
        speaker = self.speakers.get(name)
        session = None if speaker else self._session(name)
        run = speaker.say if speaker else lambda sql: _answer(session, sql)
        self._answers[name] = self._pool.submit(lambda: [run(sql) for sql in statements][-1])

    def settle(self, least: float = STEADY) -> list[tuple[str, Any]]:
        """Return the sessions that have a result, with it, as soon as there are any. Return none if all sessions wait for locks.

        `least`: the seconds for which they must wait. On a busy machine a session may seem to wait although it has its lock.
        """
        steady: dict[str, float] = {}
        while self._answers:
            done, _ = wait_for(self._answers.values(), 0.02, "FIRST_COMPLETED")
            if done:
                answered_names = [name for name, answer in self._answers.items() if answer in done]
                return [(name, self._answers.pop(name).result()) for name in answered_names]
            now = time.monotonic()
            steady = {name: steady.get(name, now) for name in self._answers if self._waits(name)}
            if len(steady) == len(self._answers) and all(now - since >= least for since in steady.values()):
                return []
        return []

    def _waits(self, name: str) -> bool:
        watcher = self._session("watcher")
        if name in self.speakers:
            return self.speakers[name].waits(watcher)
        pid = self._session(name).info.backend_pid
        return watcher.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() == (True,)

    def rest(self) -> list[str]:
        """Cancel the waiting statements, and roll back all transactions. Return the names of the prepared ones."""
        for name in self._answers.keys() - self.speakers.keys():
            self._session(name).cancel_safe()
        for name in self._answers.keys() & self.speakers.keys():
            self.speakers[name].rest()
        for answer in self._answers.values():
            answer.result(60)
        self._answers.clear()
        for session in self._sessions.values():
            if session.info.transaction_status != TransactionStatus.IDLE:
                session.execute("ROLLBACK")
        prepared = self.say("watcher", "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY 1")
        for (gid,) in prepared:
            self.say("watcher", f"ROLLBACK PREPARED '{gid}'")
        return [gid for (gid,) in prepared]

    def close(self) -> None:
        for session in self._sessions.values():
            session.cancel_safe()
            session.close()
        self._pool.shutdown()


def _answer(session: psycopg.Connection[Any], sql: str) -> Any:
    try:
        cursor = session.execute(sql.encode())
        return cursor.fetchall() if cursor.description else cursor.statusmessage
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_detail if error.sqlstate != "40P01" else ""
