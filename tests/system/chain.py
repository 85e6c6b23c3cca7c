"""Helpers of the system tests: databases in a chain of servers, subscriptions between them, and waiting for a condition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.conftest import patience


@dataclass
class Database:
    """One database on a server of the test run."""

    server: Any
    name: str
    made: ClassVar[list[Database]] = []

    @classmethod
    def new(cls, server: Any) -> Database:
        """Create an empty database."""
        cls.made.append(cls(server, server.new_database()))
        return cls.made[-1]

    def unsubscribe(self) -> None:
        """Drop the subscriptions, even if their publishers do not run. Otherwise their workers would retry for ever."""
        own_subscriptions = (
            "SELECT subname FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        for name in self.rows(own_subscriptions):
            self.sql(f"ALTER SUBSCRIPTION {name} DISABLE; ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}")

    @property
    def conninfo(self) -> str:
        """The connection string for a subscription."""
        return str(self.server.conninfo(self.name))

    def sql(self, script: str) -> str:
        """Run a script and return the output of ``psql -At``."""
        return str(self.server.psql(self.name, script))

    def rows(self, query: str) -> list[str]:
        """Return the query's rows, sorted."""
        printed = self.sql(query)
        return sorted(printed.split("\n")) if printed else []

    def wait(self, query: str, expected: str, seconds: float = 90) -> None:
        """Poll until the query returns the expected text."""
        seconds *= patience()
        until = time.monotonic() + seconds
        last_result = ""
        while last_result != expected:
            assert time.monotonic() < until, (
                f"waited {seconds:.0f} s for {expected!r} from {query!r}, last {last_result!r}\n{self.server.log()[-4000:]}"
            )
            try:
                last_result = self.sql(query)
            except Exception as error:  # noqa: BLE001 - the server may be starting
                last_result = f"error: {error}"


def subscribe(subscriber: Database, publisher: Database, name: str, publication: str, options: str = "") -> None:
    """Create a subscription and wait for the end of the initial copy."""
    slot = f"{subscriber.name}_{subscriber.server.port}_{name}"  # databases of several servers have the same name
    all_options = f"slot_name = '{slot}'" + (f", {options}" if options else "")
    subscriber.sql(f"CREATE SUBSCRIPTION {name} CONNECTION '{publisher.conninfo}' PUBLICATION {publication} WITH ({all_options})")
    subscriber.wait("SELECT count(*) > 0 AND count(*) = count(*) FILTER (WHERE srsubstate = 'r') FROM pg_subscription_rel", "t")


def arrived(publisher: Database, name: str, seconds: float = 90) -> None:
    """Wait until the subscription has confirmed the publisher's current position."""
    lsn = publisher.sql("SELECT pg_current_wal_lsn()")
    # tests share the servers, but not the publisher's database
    query = f"""SELECT '{lsn}' <= r.flush_lsn FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid
                WHERE r.application_name = '{name}' AND s.database = current_database()"""
    publisher.wait(query, "t", seconds)


@contextmanager
def meanwhile(work: Callable[[int], object]) -> Iterator[None]:
    """Repeat `work` inside the context, at most a hundred times a second. An error in it fails the test."""
    over, failed = threading.Event(), []

    def loop() -> None:
        number = 0
        while not over.wait(0.01):
            number += 1
            try:
                work(number)
            except Exception as error:  # noqa: BLE001
                failed.append(error)
                return

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failed
