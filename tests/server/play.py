"""Plays: what several sessions of one database say in turn, and what each is answered, on a node and on a PostgreSQL alike.

`run` plays what was written by hand: who waits is named beforehand. `send` and `settle` play what nobody has foreseen (`permutation`):
a session says something, and it turns out who was answered and who waits for a lock. An apply worker may be one of the sessions (`Speaker`).
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
"""The session and what it says; a session that still waits for its last answer is asked for it by ``("a", "")``."""


STEADY = 0.15
"""A session that has waited for a lock at every look of so many seconds waits; PostgreSQL looks for deadlocks after 10 ms (`Play`)."""


class Speaker(Protocol):
    """Who takes part in a play without being a session of it: an apply worker."""

    def say(self, sql: str) -> Any:
        """Returns the answer when there is one."""

    def waits(self, watcher: psycopg.Connection[Any]) -> bool:
        """Whether it waits for a lock."""

    def rest(self) -> None:
        """Gives up what it still waits for."""


class Play:
    """Sessions of one database, by name."""

    def __init__(self, server: Server, database: str | None = None) -> None:
        self.database = database or server.new_database()
        self._conninfo = server.conninfo(self.database, options="-cdeadlock_timeout=10ms")
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        self._answers: dict[str, Future[Any]] = {}
        self.speakers: dict[str, Speaker] = {}
        self._pool = ThreadPoolExecutor(8)
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
            self._sessions[name] = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        return self._sessions[name]

    def _wait_until_it_waits(self, name: str) -> None:
        """Until the session waits for a lock, or has been answered: then it did not wait, and the answers will tell."""
        pid, answer = self._session(name).info.backend_pid, self._answers[name]
        query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        waits = lambda: answer.done() or self._session("watcher").execute(query, (pid,)).fetchone() == (True,)  # noqa: E731
        until(waits, f"session {name} waits for no lock")
        self.waited.append(not answer.done())

    def say(self, name: str, sql: str) -> Any:
        """What a session is answered that waits for nobody."""
        return _answer(self._session(name), sql)

    def send(self, name: str, *statements: str) -> None:
        """A session says something, and `settle` tells what came of it; the answer is that to the last statement."""
        speaker = self.speakers.get(name)
        session = None if speaker else self._session(name)
        ask = speaker.say if speaker else lambda sql: _answer(session, sql)
        self._answers[name] = self._pool.submit(lambda: [ask(sql) for sql in statements][-1])

    def settle(self, least: float = STEADY) -> list[tuple[str, Any]]:
        """Who is answered now, and what: returns as soon as somebody is, or when all who were asked wait for locks (nobody).

        `least`: for so many seconds; on a busy machine who has its lock may seem to wait for a moment more.
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
        """Ends what is still waited for, all transactions, and those that are prepared; their names."""
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
        done = session.execute(sql.encode())
        return done.fetchall() if done.description else done.statusmessage
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_detail if error.sqlstate != "40P01" else ""
