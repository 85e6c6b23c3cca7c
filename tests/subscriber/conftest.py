"""Databases of a real PostgreSQL that publish, and databases of the run's node that subscribe to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.conftest import Server, until
from tests.log import Log
from tests.session import Session
from tests.system.chain import Database

READY = "SELECT count(*) > 0 AND count(*) = count(*) FILTER (WHERE srsubstate = 'r') FROM pg_subscription_rel"
"""A query for whether all tables of a database's subscriptions are ready."""


class Subscriber(Database):
    """An empty database of a node, with an open session, and the node's log since its creation."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, server.new_database())
        self.session = Session(self.conninfo)
        self.log = Log(server)

    def sql(self, script: str) -> str:
        """Run a script and return the output of ``psql -At``. Raise psycopg.Error if a statement fails."""
        return self.session.sql(script)

    def wait(self, query: str, expected: str, seconds: float = 60) -> None:
        """Poll until the query returns the expected text."""
        last_result = [""]

        def holds() -> bool:
            last_result[0] = self.sql(query)
            return last_result[0] == expected

        until(holds, f"{query!r} does not give {expected!r}", seconds)

    def of_subscription(self, column: str, name: str = "s") -> str:
        """Return a column of pg_subscription for a subscription of this database."""
        return self.sql(
            f"SELECT {column} FROM pg_subscription s JOIN pg_database d ON subdbid = d.oid WHERE datname = '{self.name}' AND subname = '{name}'"
        )

    def counted(self, column: str) -> str:
        """Return a column of pg_stat_subscription_stats."""
        return self.sql(f"SELECT {column} FROM pg_stat_subscription_stats WHERE subid = {self.of_subscription('s.oid')}")

    def stop(self) -> None:
        """Stop the node, which ends the session. `sql` opens another one."""
        self.session.close()
        self.server.stop()

    def close(self) -> None:
        """Drop the subscriptions and end the session."""
        self.unsubscribe()
        self.session.close()


class Publisher(Database):
    """An empty database of the real PostgreSQL, with an open session."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, server.new_database())
        self.session = Session(self.conninfo)

    def sql(self, script: str) -> str:
        """Run a script and return the output of ``psql -At``. Raise psycopg.Error if a statement fails."""
        return self.session.sql(script)

    def subscription(self, options: str = "", publication: str = "p", name: str = "s") -> str:
        """Return a CREATE SUBSCRIPTION for this publisher."""
        all_options = f"slot_name = '{self.name}_{name}'{', ' + options if options else ''}"
        return f"CREATE SUBSCRIPTION {name} CONNECTION '{self.conninfo}' PUBLICATION {publication} WITH ({all_options})"

    @property
    def end(self) -> str:
        """The end of the publisher's log."""
        return self.sql("SELECT pg_current_wal_lsn()")

    def wait_confirmed(self, name: str = "s", seconds: float = 60) -> None:
        """Wait until the subscription has confirmed the current end of the log."""
        end = self.end
        query = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{self.name}_{name}'"
        until(lambda: self.sql(query) == "t", f"slot of {name} did not reach {end}", seconds)

    def close(self) -> None:
        """Drop the remaining slots, whose walsenders may still be running, and end the session."""
        own_slots = "FROM pg_replication_slots WHERE database = current_database()"
        self.sql(f"SELECT pg_terminate_backend(active_pid) {own_slots} AND active")
        until(
            lambda: (
                self.sql(f"SELECT count(pg_drop_replication_slot(slot_name)) {own_slots} AND NOT active; SELECT count(*) {own_slots}")[-1]
                == "0"
            )
        )
        self.session.close()


@pytest.fixture
def publisher(postgres: Server) -> Iterator[Publisher]:
    """A database of the real PostgreSQL, whose slots are dropped at the end."""
    publisher = Publisher(postgres)
    yield publisher
    publisher.close()


@pytest.fixture
def subscriber(node: Server) -> Iterator[Subscriber]:
    """A database of the run's node, whose subscriptions are dropped at the end."""
    subscriber = Subscriber(node)
    yield subscriber
    subscriber.close()


@pytest.fixture
def spare(spare_node: Callable[..., Server]) -> Iterator[Callable[..., Subscriber]]:
    """Creates a database of a node that tests may stop, start and configure (`server`)."""
    subscribers: list[Subscriber] = []

    def make(**conf: str) -> Subscriber:
        subscribers.append(Subscriber(spare_node(**conf)))
        return subscribers[-1]

    yield make
    for subscriber in subscribers:
        if not subscriber.server.running:  # the test failed before it started the node again
            subscriber.server.start()
        subscriber.close()


@pytest.fixture
def superuser(subscriber: Subscriber) -> Iterator[str]:
    """A role that may own the database's subscription. Both are dropped at the end."""
    name = f"owner_in_{subscriber.name}"
    subscriber.sql(f"CREATE ROLE {name} SUPERUSER LOGIN")
    yield name
    subscriber.unsubscribe()
    subscriber.sql(f"DROP ROLE {name}")


@pytest.fixture
def set_on_node(node: Server) -> Iterator[Callable[..., None]]:
    """Changes settings of the node that a reload applies. They are reset at the end."""
    session = Session(node.conninfo())
    changed: set[str] = set()

    def reload(settings: dict[str, str]) -> None:
        session.sql("SELECT pg_reload_conf()")
        for name, value in settings.items():
            until(lambda: session.sql(f"SHOW {name}") == value, f"{name} is not {value}")  # noqa: B023

    def given(**settings: str) -> None:
        for name, value in settings.items():
            changed.add(name)
            session.sql(f"ALTER SYSTEM SET {name} = '{value}'")
        reload(settings)

    yield given
    for name in changed:
        session.sql(f"ALTER SYSTEM RESET {name}")
    session.sql("SELECT pg_reload_conf()")
    session.close()
