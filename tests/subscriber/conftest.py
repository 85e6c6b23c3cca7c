"""A subscriber without a server: engine, launcher and a session that types statements, in the test's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.commands.local import LocalSession, LocalSlots
from tests.conftest import until

from headgate.catalog.catalog import Catalog
from headgate.commands.applied_ddl import add_columns
from headgate.commands.applied_rows import applied_rows
from headgate.commands.uniqueness import check_applied
from headgate.settings import Settings
from headgate.storage.engine import Engine
from headgate.subscriber.launcher import Launcher

SETTINGS = {"wal_retrieve_retry_interval": "300ms", "wal_receiver_status_interval": "1s", "TimeZone": "UTC"}


class Subscriber:
    """A node's subscribing side on a directory."""

    def __init__(self, spark: Any, folder: Path, settings: dict[str, str]) -> None:
        path = folder / "catalog.duckdb"
        self.catalog = Catalog.open(path) if path.exists() else Catalog.create(path)
        self.engine = Engine({}, self.catalog, folder, session=spark)
        self.engine.recover()
        self.node: Any = SimpleNamespace(
            catalog=self.catalog,
            engine=self.engine,
            settings=Settings.of({**SETTINGS, **settings}),
            data_dir=folder,
            system_identifier="7000000000000000001",
            slots=LocalSlots(),
        )
        self.node.applied_rows = partial(applied_rows, self.node)
        self.node.applied_columns = partial(add_columns, self.node)
        self.node.applied_unique = check_applied
        self.launcher = self.node.launcher = Launcher(self.node)
        self.launcher.start()
        self._session = LocalSession(self.engine)
        self._session.node = self.node

    def sql(self, text: str) -> str:
        """What psql would print."""
        return self._session.type(text)

    def wait(self, query: str, expected: str, seconds: float = 60) -> None:
        """Polls until the query gives what is expected."""
        deadline = time.monotonic() + seconds
        while (seen := self.sql(query)) != expected:
            assert time.monotonic() < deadline, f"{query!r} gives {seen!r}, not {expected!r}"
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends workers, engine and catalog."""
        self.launcher.stop()
        self.engine.stop()
        self.catalog.close()


@pytest.fixture
def subscribers(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Subscriber]]:
    """Makes subscribers on the test's directory (one at a time: stop the last one first)."""
    made: list[Subscriber] = []

    def make(**settings: str) -> Subscriber:
        made.append(Subscriber(spark, tmp_path, settings))
        return made[-1]

    yield make
    for each in made:
        if not each.launcher.stopping:
            each.stop()


class Publisher:
    """A database of the real PostgreSQL."""

    def __init__(self, server: Any) -> None:
        self.server, self.database = server, server.new_database()

    def sql(self, text: str) -> str:
        """What psql prints."""
        return str(self.server.psql(self.database, text))

    def subscription(self, options: str = "", publication: str = "p", name: str = "s") -> str:
        """CREATE SUBSCRIPTION to it."""
        words = f"slot_name = '{self.database}_{name}'{', ' + options if options else ''}"
        return f"CREATE SUBSCRIPTION {name} CONNECTION '{self.server.conninfo(self.database)}' PUBLICATION {publication} WITH ({words})"

    @property
    def end(self) -> str:
        """The end of its log."""
        return self.sql("SELECT pg_current_wal_lsn()")

    def wait_confirmed(self, name: str = "s", seconds: float = 60) -> None:
        """Waits until the subscription has confirmed everything up to now."""
        end = self.end
        query = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{self.database}_{name}'"
        until(lambda: self.sql(query) == "t", f"slot of {name} did not reach {end}", seconds)


@pytest.fixture
def publisher(postgres: Any) -> Iterator[Publisher]:
    """A database of the real PostgreSQL, whose slots go away at the end."""
    made = Publisher(postgres)
    yield made
    made.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = current_database()")
    made.sql("DO $$ BEGIN PERFORM pg_sleep(0.1); PERFORM pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
             " WHERE NOT active AND database = current_database(); END $$")  # fmt: skip


@pytest.fixture
def subscriber(subscribers: Callable[..., Subscriber]) -> Subscriber:
    """One subscriber with the usual settings."""
    return subscribers()
