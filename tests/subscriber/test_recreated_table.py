"""If the publisher drops a table and creates another with its name, the subscriber gives the results of a PostgreSQL subscriber."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from tests.conftest import Server, until
from tests.subscriber.conftest import READY, Publisher, Subscriber


@pytest.fixture
def mirror(postgres: Server, publisher: Publisher) -> Iterator[Publisher]:
    """A database of the PostgreSQL server that subscribes to the same publication.

    Its slot is created first, because the publisher is the same server.
    """
    database = Publisher(postgres)
    yield database
    database.sql("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
    database.close()


def subscribe(publisher: Publisher, subscriber: Subscriber, mirror: Publisher, options: str) -> None:
    """Subscribe both to a table (id, v int) of the publisher, and wait until it is copied."""
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10); CREATE PUBLICATION p FOR ALL TABLES")
    publisher.sql(f"SELECT pg_create_logical_replication_slot('{publisher.name}_mirror', 'pgoutput')")
    for database in (subscriber, mirror):
        database.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    subscriber.sql(publisher.subscription(options))
    with_options = f"slot_name = '{publisher.name}_mirror', create_slot = false"
    mirror.sql(f"CREATE SUBSCRIPTION s CONNECTION '{publisher.conninfo}' PUBLICATION p WITH ({with_options})")
    for database in (subscriber, mirror):
        until(lambda: database.sql(READY) == "t")  # noqa: B023


def wait_applied(publisher: Publisher) -> None:
    """Wait until both subscribers have confirmed everything."""
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)


CASES = [
    pytest.param(*case, marks=[] if case == ("text", "'20'", "follow", False) else pytest.mark.slow)
    for case in product(("text", "bigint", "smallint"), ("'20'",), ("none", "follow"), (False, True))
]


@pytest.mark.parametrize(("type_name", "value", "evolution", "refresh"), CASES)
def test_changes_of_the_new_table_are_applied_if_its_values_fit(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher, type_name: str, value: str, evolution: str, refresh: bool
) -> None:
    subscribe(publisher, subscriber, mirror, f"schema_evolution = {evolution}")
    publisher.sql(f"DROP TABLE t; CREATE TABLE t (v {type_name}, id int PRIMARY KEY)")
    if refresh:
        for database in (subscriber, mirror):
            database.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
    publisher.sql(f"INSERT INTO t VALUES ({value}, 2), ({value}, 3); UPDATE t SET v = NULL WHERE id = 2; DELETE FROM t WHERE id = 3")
    wait_applied(publisher)
    rows = "SELECT id, v FROM t ORDER BY id"
    assert subscriber.sql(rows) == mirror.sql(rows)


@pytest.mark.slow
@pytest.mark.parametrize("evolution", ["none", "follow"])
@pytest.mark.parametrize(("type_name", "value"), [("text", "word"), ("numeric(6,2)", "20.00")])
def test_value_that_does_not_fit_stops_the_subscription(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher, type_name: str, value: str, evolution: str
) -> None:
    subscribe(publisher, subscriber, mirror, f"schema_evolution = {evolution}")
    publisher.sql(f"DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v {type_name}); INSERT INTO t VALUES (2, '{value}')")
    refused = f'invalid input syntax for type integer: "{value}"'
    error = subscriber.log.error(refused)
    assert 'replication target relation "public.t"' in error.context
    until(lambda: mirror.sql("SELECT apply_error_count > 0 FROM pg_stat_subscription_stats WHERE subname = 's'") == "t")
    for database in (subscriber, mirror):
        assert database.sql("SELECT id, v FROM t") == "1|10"
        database.sql("ALTER TABLE t ALTER v TYPE text")
    wait_applied(publisher)
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == mirror.sql("SELECT * FROM t ORDER BY id") == f"1|10\n2|{value}"


@pytest.mark.slow
def test_new_column_of_the_new_table_stops_the_subscription(publisher: Publisher, subscriber: Subscriber, mirror: Publisher) -> None:
    subscribe(publisher, subscriber, mirror, "schema_evolution = none")
    publisher.sql("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, w int); INSERT INTO t VALUES (2, 2)")
    subscriber.log.error('logical replication target relation "public.t" is missing replicated column: "w"')
    for database in (subscriber, mirror):
        database.sql("ALTER TABLE t ADD w int")
    wait_applied(publisher)
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == mirror.sql("SELECT * FROM t ORDER BY id") == "1|10|\n2||2"
