"""PostgreSQL's subscribers treat a node that announces version 16, 17 or 18 as a publisher of that version, and the node serves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.conftest import Server
from tests.system.chain import Database, arrived, subscribe

TABLE = "CREATE TABLE t (a int PRIMARY KEY, b text)"


@pytest.fixture
def announcing(spare_node: Callable[..., Server]) -> Callable[[int], Database]:
    """Return a function that creates a database on a node that announces a version."""
    return lambda version: Database.new(spare_node(server_version=f"'{version}.1'"))


@pytest.fixture
def subscriber(of_version: Callable[[int], Server]) -> Iterator[Callable[[int], Database]]:
    """Return a function that creates a database on PostgreSQL of a version. Its subscriptions are dropped at the end."""
    databases: list[Database] = []

    def make(version: int) -> Database:
        databases.append(Database.new(of_version(version)))
        return databases[-1]

    yield make
    for database in databases:
        database.unsubscribe()


@pytest.mark.slow
@pytest.mark.parametrize("version", [16, 17, 18])
def test_subscriber_of_the_announced_version_is_served(
    announcing: Callable[[int], Database], subscriber: Callable[[int], Database], version: int
) -> None:
    lake, downstream = announcing(version), subscriber(version)
    lake.sql(
        f"""{TABLE}; CREATE TABLE r (a int, k text, PRIMARY KEY (a, k)) PARTITION BY LIST (k); CREATE TABLE r_x PARTITION OF r DEFAULT;
        INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 50) i; INSERT INTO r VALUES (1, 'x');
        CREATE PUBLICATION p FOR TABLE t WHERE (a <= 40 OR a >= 1000);
        CREATE PUBLICATION q FOR TABLE r WITH (publish_via_partition_root = true); CREATE PUBLICATION leaves FOR TABLE r_x"""
    )
    downstream.sql(f"{TABLE}; CREATE TABLE r (a int, k text, PRIMARY KEY (a, k))")
    subscribe(downstream, lake, "s", "p, q, leaves", "origin = none, binary = true, streaming = parallel")
    lake.sql(
        "INSERT INTO t SELECT i, repeat('large ', 40) FROM generate_series(1000, 3000) i; DELETE FROM t WHERE a = 3; UPDATE r SET a = 2"
    )
    lake.sql(
        f"""SELECT pg_replication_origin_create('{lake.name}'); SELECT pg_replication_origin_session_setup('{lake.name}');
        INSERT INTO t VALUES (5000, 'from elsewhere'); SELECT pg_replication_origin_session_reset(); INSERT INTO t VALUES (5001, 'from here')"""
    )
    arrived(lake, "s")
    rows = "SELECT * FROM t WHERE a <= 40 OR a >= 1000 AND a <> 5000 ORDER BY a; SELECT * FROM r"
    assert downstream.sql(rows.replace(" WHERE a <= 40 OR a >= 1000 AND a <> 5000", "")) == lake.sql(rows)


@pytest.mark.slow
@pytest.mark.parametrize("version", [16, 17, 18])
def test_prepared_transactions_and_differing_tables_are_replicated(
    announcing: Callable[[int], Database], subscriber: Callable[[int], Database], version: int
) -> None:
    lake, downstream = announcing(version), subscriber(version)
    assert lake.sql("SELECT version()") == f"PostgreSQL {version}.1 (headgate)"
    lake.sql(f"{TABLE}; INSERT INTO t VALUES (1, 'copied'); CREATE PUBLICATION p FOR TABLE t")
    downstream.sql("CREATE TABLE t (extra text DEFAULT 'here', b varchar(40), a bigint PRIMARY KEY)")
    subscribe(downstream, lake, "s", "p", "two_phase = true, streaming = parallel")
    downstream.wait("SELECT subtwophasestate FROM pg_subscription WHERE subname = 's'", "e")
    waiting = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
    for end in ("ROLLBACK", "COMMIT"):
        lake.sql("BEGIN; INSERT INTO t VALUES (2, 'prepared'); UPDATE t SET b = 'changed' WHERE a = 1; PREPARE TRANSACTION 'kept'")
        downstream.wait(waiting, "1")
        assert downstream.sql("SELECT count(*) FROM t") == "1"
        lake.sql(f"{end} PREPARED 'kept'")
        downstream.wait(waiting, "0")
    arrived(lake, "s")
    assert downstream.sql("SELECT a, b, extra FROM t ORDER BY a") == "1|changed|here\n2|prepared|here"


@pytest.mark.slow
def test_missing_publication_is_skipped_if_18_is_announced(
    announcing: Callable[[int], Database], subscriber: Callable[[int], Database]
) -> None:
    lake, downstream = announcing(18), subscriber(18)
    lake.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    downstream.sql(TABLE)
    subscribe(downstream, lake, "s", "p, missing")
    lake.sql("INSERT INTO t VALUES (1, 'published')")
    arrived(lake, "s")
    assert downstream.sql("SELECT * FROM t") == "1|published"
    assert 'skipped loading publication "missing"' in lake.server.log()
    assert lake.sql("SELECT version()") == "PostgreSQL 18.1 (headgate)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("proto_version '4', streaming 'sideways'", 'streaming requires a Boolean value or "parallel"'),
        ("proto_version '3', streaming 'parallel'", "requested proto_version=3 does not support parallel streaming, need 4 or higher"),
        ("proto_version '4', origin 'elsewhere'", 'unrecognized origin value: "elsewhere"'),
        ("proto_version '4', origin 'none', origin 'any'", "conflicting or redundant options"),
        ("proto_version '5'", "client sent proto_version=5 but we only support protocol 4 or lower"),
    ],
)
def test_malformed_options_of_a_stream_are_rejected(announcing: Callable[[int], Database], options: str, message: str) -> None:
    lake = announcing(18)
    with psycopg.connect(f"{lake.conninfo} replication=database", autocommit=True) as session:
        session.execute(f"CREATE_REPLICATION_SLOT \"{lake.name}\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'nothing')")
        with pytest.raises(psycopg.Error, match=message.replace("(", r"\(")):
            session.execute(f"START_REPLICATION SLOT \"{lake.name}\" LOGICAL 0/0 ({options}, publication_names 'p')")
