"""NOTIFY is delivered once, at the commit, to the sessions of the same database that listen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.conftest import Server, until

SCRIPT = Path(__file__).parent / "statements" / "notifications.sql"


@pytest.fixture
def links(server: Server) -> Iterator[list[psycopg.Connection]]:
    """Two sessions of one database and one of another."""
    first, second = server.new_database(), server.new_database()
    sessions = [psycopg.connect(server.conninfo(name), autocommit=True) for name in (first, first, second)]
    yield sessions
    for session in sessions:
        session.close()


def heard(link: psycopg.Connection, count: int) -> list[tuple[str, str]]:
    """Return the notifications that arrive while a session waits."""
    return [
        (notification.channel, notification.payload)
        for notification in link.notifies(timeout=20 if count else 0.2, stop_after=count or None)
    ]


def test_session_prints_what_it_prints_in_postgresql(postgres: Server, node: Server) -> None:
    printed = [re.sub(r"PID \d+", "PID", server.script(server.new_database(), SCRIPT)) for server in (node, postgres)]
    assert printed[0].splitlines() == printed[1].splitlines()


def test_idle_session_is_notified_at_the_commit_and_another_database_is_not(links: list[psycopg.Connection]) -> None:
    listens, tells, elsewhere = links
    for listener in (listens, elsewhere):
        listener.execute("LISTEN news")
    with tells.transaction():
        tells.execute("NOTIFY news, 'first'; NOTIFY news, 'first'; NOTIFY other, 'nobody'")
        tells.execute("SELECT pg_notify('news', 'größer')")
        assert heard(listens, 0) == []
    assert heard(listens, 2) == [("news", "first"), ("news", "größer")]
    with tells.transaction(force_rollback=True):
        tells.execute("NOTIFY news, 'taken back'")
    tells.execute("NOTIFY news")
    assert heard(listens, 1) == [("news", "")]
    assert heard(elsewhere, 0) == []


def test_session_in_a_transaction_is_notified_after_its_end(links: list[psycopg.Connection]) -> None:
    listens, tells, _ = links
    listens.execute("LISTEN news")
    with listens.transaction():
        listens.execute("SELECT 1")
        tells.execute("NOTIFY news, 'waits'")
        assert heard(listens, 0) == []
    assert heard(listens, 1) == [("news", "waits")]
    listens.execute("UNLISTEN *")
    tells.execute("NOTIFY news")
    assert heard(listens, 0) == []


def test_notifications_are_in_the_encoding_of_the_listener(links: list[psycopg.Connection]) -> None:
    listens, tells, _ = links
    listens.execute("SET client_encoding = 'LATIN1'; LISTEN news")
    tells.execute("NOTIFY news, 'grün'")
    assert heard(listens, 1) == [("news", "grün")]


def tell(session: psycopg.Connection, statements: str, times: int, *, at_once: bool) -> None:
    """Run the statements repeatedly: with a different payload each time in one transaction, or unchanged in separate transactions."""
    for number in range(times):
        session.execute(statements.replace("x'", f"y{number}'").encode() if at_once else statements.encode())
        if not at_once:
            session.commit()


@pytest.mark.slow
def test_notifications_for_a_session_that_does_not_read_are_limited(node: Server) -> None:
    database = node.new_database()
    with psycopg.connect(node.conninfo(database), autocommit=True) as listens, psycopg.connect(node.conninfo(database)) as tells:
        listens.execute("LISTEN news")
        listens.execute("BEGIN")  # notifications are delivered only after the transaction
        notifications = ";".join(f"NOTIFY news, '{number}{'x' * 7000}'" for number in range(500))
        refused = pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too many notifications in the NOTIFY queue")
        with refused:
            tell(tells, notifications, 30, at_once=False)
        tells.rollback()
        with refused:
            tell(tells, notifications, 30, at_once=True)
        tells.rollback()
        [usage] = tells.execute("SELECT pg_notification_queue_usage() > 0.9").fetchone() or ()
        listens.execute("COMMIT")
        assert len(list(listens.notifies(timeout=5, stop_after=500))) >= 500
        assert usage is True
    with psycopg.connect(node.conninfo(database), autocommit=True) as later_session:
        until(
            lambda: later_session.execute("SELECT pg_notification_queue_usage()").fetchone() == (0,),
            "the notifications for a disconnected session are kept",
        )
