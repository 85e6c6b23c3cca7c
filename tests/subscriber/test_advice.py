"""`headgate status` suggests the statement that fixes an error. Each error is caused at a real publisher and fixed by that statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.conftest import Server, until
from tests.session import Session
from tests.subscriber.conftest import READY, Publisher
from tests.subscriber.test_limits import behind

from headgate.errors import PostgresError
from headgate.subscriber.advice import Subject, advice
from headgate.subscriber.synchronization.initial_copy import PARALLEL_SIZE

THERE = "On the publisher: "
FAULTS = {
    "REVOKE SELECT ON invoice FROM {user}": "GRANT SELECT ON public.invoice TO {user}",
    "REVOKE USAGE ON SCHEMA public FROM PUBLIC": "GRANT USAGE ON SCHEMA public TO {user}",
    "REVOKE CONNECT ON DATABASE {database} FROM PUBLIC": "GRANT CONNECT ON DATABASE {database} TO {user}",
    "ALTER ROLE {user} NOREPLICATION": "ALTER ROLE {user} REPLICATION",
    "ALTER ROLE {user} NOLOGIN": "ALTER ROLE {user} LOGIN",
    "ALTER DATABASE {database} ALLOW_CONNECTIONS false": "ALTER DATABASE {database} ALLOW_CONNECTIONS true",
}
"""The statement that makes a subscription fail, and the statement that fixes it."""


@pytest.fixture
def reader(publisher, subscriber):
    """A role at the publisher with which a disabled subscription `s` connects."""
    user = f'"Reader_{publisher.name}"'
    publisher.sql(
        f"CREATE ROLE {user} LOGIN REPLICATION; CREATE TABLE invoice (id int PRIMARY KEY); INSERT INTO invoice VALUES (1);"
        f" GRANT SELECT ON invoice TO {user}; CREATE PUBLICATION p FOR TABLE invoice"
    )
    subscriber.sql("CREATE TABLE invoice (id int PRIMARY KEY)")
    subscriber.sql(publisher.subscription("enabled = false").replace("user=postgres", f"user=Reader_{publisher.name}"))
    yield user
    subscriber.unsubscribe()
    publisher.sql(f"DROP OWNED BY {user}; DROP ROLE {user}")


def failing(subscriber) -> dict[str, Any]:
    """Return the error of the database's subscription, once there is one."""
    return until(lambda: behind(subscriber)["failing"] and behind(subscriber)["last_error"], "the subscription reports no error")


FEW = ("REVOKE SELECT ON invoice FROM {user}", "ALTER ROLE {user} NOLOGIN")
"""The faults that the suite tests: one of a table, one of the connection."""


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=() if fault in FEW else pytest.mark.slow) for fault in FAULTS])
def test_suggested_action_names_the_publisher_and_fixes_the_error(publisher, subscriber, reader: str, fault: str) -> None:
    action = FAULTS[fault].format(user=reader, database=publisher.name)
    administrator = Session(publisher.server.conninfo())
    (publisher if "ON invoice" in fault or "SCHEMA" in fault else administrator).sql(fault.format(user=reader, database=publisher.name))
    administrator.close()
    subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    error = failing(subscriber)
    assert error["advice"] == f"{THERE}{action}"
    assert error["message"].startswith("could not")
    publisher.sql(action)
    subscriber.wait(READY, "t")
    until(lambda: not behind(subscriber)["failing"], "the subscription still fails after the action")


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_error_in_a_copy_task_or_a_comparison_is_shown_as_the_publishers_error(publisher, subscriber, reader: str, again: bool) -> None:
    rows = "INSERT INTO invoice SELECT g FROM generate_series(2, 40000) g"
    publisher.sql(f"ALTER TABLE invoice SET (fillfactor = 10); ALTER TABLE invoice ADD t text; UPDATE invoice SET t = ''; {rows}")
    publisher.sql("UPDATE invoice SET t = repeat('x', 900)")
    assert int(publisher.sql("SELECT pg_relation_size('invoice')")) >= PARALLEL_SIZE
    subscriber.sql("ALTER TABLE invoice ADD t text")
    if again:
        subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
        subscriber.wait(READY, "t")
    publisher.sql(f"REVOKE SELECT ON invoice FROM {reader}")
    subscriber.sql("SELECT headgate.reconcile('s', 'invoice')" if again else "ALTER SUBSCRIPTION s ENABLE")
    error = failing(subscriber)
    assert error["message"].startswith(
        'could not start initial contents copy for table "public.invoice": ERROR:  permission denied for table invoice'
    )
    assert error["advice"] == f"{THERE}GRANT SELECT ON public.invoice TO {reader}"
    publisher.sql(error["advice"].removeprefix(THERE))
    subscriber.wait(READY, "t")


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "least"), [("max_replication_slots", 1), ("max_wal_senders", 1)])
def test_exhausted_pool_of_the_publisher_is_named(cluster, subscriber, setting: str, least: int) -> None:
    server = cluster(**{setting: str(least), "wal_level": "logical"})
    database = server.new_database()
    server.psql(database, "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY)")
    subscriber.sql(f"CREATE SUBSCRIPTION s CONNECTION '{server.conninfo(database)}' PUBLICATION p")
    assert failing(subscriber)["advice"].startswith(f"{THERE}ALTER SYSTEM SET {setting} = ")
    server.psql(database, f"ALTER SYSTEM SET {setting} = 10")
    server.stop()
    server.start()
    subscriber.wait(READY, "t")
    subscriber.unsubscribe()


def test_privilege_missing_on_this_node_is_granted_to_the_subscription_owner() -> None:
    error = PostgresError("42501", "permission denied for table invoice")
    action = advice(error, Subject("s", "Owner", "host=there user=reader", "public.invoice"))
    assert action == 'On this node: GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON public.invoice TO "Owner"'


def test_refused_command_hints_at_the_action_on_the_publisher(publisher, subscriber) -> None:
    user = f'"Reader_{publisher.name}"'
    publisher.sql(f"CREATE ROLE {user} LOGIN; CREATE PUBLICATION p FOR ALL TABLES")
    try:
        with pytest.raises(psycopg.Error) as refused:
            subscriber.sql(publisher.subscription().replace("user=postgres", f"user=Reader_{publisher.name}"))
        assert refused.value.diag.message_hint == f"{THERE}ALTER ROLE {user} REPLICATION"
    finally:
        publisher.sql(f"DROP ROLE {user}")


def test_hint_names_wal_level_if_the_publisher_does_not_write_logical_wal(subscriber, cluster: Callable[..., Server]) -> None:
    replica_publisher = Publisher(cluster(wal_level="replica"))
    replica_publisher.sql("CREATE PUBLICATION p FOR ALL TABLES")
    with pytest.raises(psycopg.Error) as refused:
        subscriber.sql(replica_publisher.subscription())
    replica_publisher.session.close()
    assert refused.value.diag.message_hint == f"{THERE}ALTER SYSTEM SET wal_level = logical, and restart it."
