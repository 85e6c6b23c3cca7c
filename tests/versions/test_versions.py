"""PostgreSQL 14 to 18 work as publishers of a node and as its subscribers. Short tests run in every run, detailed ones with --all.

A `Pair` has a database on the PostgreSQL of that version and one on the run's node. Either is the publisher, the other the subscriber.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.conftest import Server
from tests.system.chain import Database, arrived, subscribe

ALL = (14, 15, 16, 17, 18)
OTHERS = (14, 16, 17, 18)
TABLE = "CREATE TABLE t (a int PRIMARY KEY, k text, n numeric(8,2), c text)"
ROWS = "INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END, i / 4.0, 'row ' || i FROM generate_series(1, 40) i"
CHANGES = """INSERT INTO t VALUES (100, 'even', 1.25, NULL), (101, 'odd', -0.5, ''); UPDATE t SET k = 'even', c = 'moved in' WHERE a = 3;
UPDATE t SET k = 'odd' WHERE a = 4; UPDATE t SET a = 200 WHERE a = 6; DELETE FROM t WHERE a IN (8, 9); UPDATE t SET n = NULL WHERE a > 30"""


@dataclass
class Pair:
    publisher: Database
    subscriber: Database
    version: int

    def subscribe(self, publication: str = "p", options: str = "") -> None:
        subscribe(self.subscriber, self.publisher, "s", publication, options)

    def await_equal(self, there: str, here: str | None = None) -> None:
        """Wait until the subscriber has all changes, then compare the results of the queries."""
        arrived(self.publisher, "s")
        assert self.subscriber.sql(here or there) == self.publisher.sql(there)


Make = Callable[[int, str], Pair]


@pytest.fixture
def pair(of_version: Callable[[int], Server], node: Server) -> Iterator[Make]:
    pairs: list[Pair] = []

    def make(version: int, publisher: str) -> Pair:
        other_server_database, node_database = Database.new(of_version(version)), Database.new(node)
        pairs.append(
            Pair(other_server_database, node_database, version)
            if publisher == "postgres"
            else Pair(node_database, other_server_database, version)
        )
        return pairs[-1]

    yield make
    for made_pair in pairs:
        made_pair.subscriber.unsubscribe()
        made_pair.publisher.sql(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active AND database = current_database()"
        )


# ---- smoke tests ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", OTHERS)
def test_every_version_can_publish_to_a_node(pair: Make, version: int) -> None:
    of = pair(version, "postgres")
    filtered = version >= 15
    of.publisher.sql(f"{TABLE}; {ROWS}; ALTER TABLE t REPLICA IDENTITY FULL")
    of.publisher.sql(f"CREATE PUBLICATION p FOR TABLE t {'WHERE (k = $$even$$)' if filtered else ''}")
    of.subscribe(options="create_tables = true")
    of.publisher.sql(CHANGES)
    of.await_equal(f"SELECT * FROM t {'WHERE k = $$even$$' if filtered else ''} ORDER BY a", "SELECT * FROM t ORDER BY a")


@pytest.mark.parametrize("version", [pytest.param(version, marks=pytest.mark.slow if version < 18 else []) for version in OTHERS])
def test_every_version_can_subscribe_to_a_node(pair: Make, version: int) -> None:
    of = pair(version, "node")
    where = "WHERE (k = 'even')" if version >= 15 else ""  # 14 does not know filters, so its initial copy has every row
    of.publisher.sql(f"{TABLE}; {ROWS}; ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t {where}")
    of.subscriber.sql(TABLE)
    of.subscribe()
    of.publisher.sql(CHANGES)
    of.await_equal(f"SELECT * FROM t {where} ORDER BY a", "SELECT * FROM t ORDER BY a")


# ---- detailed tests -------------------------------------------------------------------------------------------------
BOTH = [pytest.param(version, publisher, id=f"{publisher}-{version}") for version in ALL for publisher in ("postgres", "node")]
both = pytest.mark.parametrize(("version", "publisher"), BOTH)


@pytest.mark.slow
@both
def test_filters_and_lists_of_several_publications_are_combined(pair: Make, version: int, publisher: str) -> None:
    if version < 15:
        pytest.skip("row filters and column lists are of 15; the first copy of a subscriber of 14 knows none")
    of = pair(version, publisher)
    of.publisher.sql(
        f"""{TABLE}; {ROWS}; CREATE PUBLICATION p FOR TABLE t (a, n) WHERE (a < 20); CREATE PUBLICATION q FOR TABLE t (a, n) WHERE (a > 35)
        """
    )
    of.subscriber.sql(TABLE)
    of.subscribe("p, q")
    of.publisher.sql(
        "UPDATE t SET n = 9 WHERE a IN (1, 25, 36); UPDATE t SET a = 300 WHERE a = 2; DELETE FROM t WHERE a IN (21, 40); UPDATE t SET a = 21 WHERE a = 3"
    )
    of.await_equal("SELECT a, NULL, n, NULL FROM t WHERE a < 20 OR a > 35 ORDER BY a", "SELECT * FROM t ORDER BY a")


@pytest.mark.slow
@both
def test_partitions_are_replicated_through_their_root_and_as_themselves(pair: Make, version: int, publisher: str) -> None:
    of = pair(version, publisher)
    parted = """CREATE TABLE r (a int, k text, PRIMARY KEY (a, k)) PARTITION BY LIST (k); CREATE TABLE r_x PARTITION OF r FOR VALUES IN ('x');
    CREATE TABLE r_y PARTITION OF r DEFAULT; CREATE TABLE o (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
    CREATE TABLE o_1 PARTITION OF o FOR VALUES FROM (0) TO (10); CREATE TABLE o_2 PARTITION OF o FOR VALUES FROM (10) TO (1000);"""
    rows = "INSERT INTO r SELECT i, CASE WHEN i < 5 THEN 'x' ELSE 'z' END FROM generate_series(1, 9) i; INSERT INTO o SELECT i, 'b' FROM generate_series(1, 19) i"
    of.publisher.sql(
        f"{parted} {rows}; CREATE PUBLICATION p FOR TABLE r WITH (publish_via_partition_root = true); CREATE PUBLICATION q FOR TABLE o"
    )
    of.subscriber.sql("CREATE TABLE r (a int, k text, PRIMARY KEY (a, k));" + parted[parted.index("CREATE TABLE o ") :])
    of.subscribe("p, q")
    of.publisher.sql(
        "UPDATE r SET k = 'moved' WHERE a = 1; INSERT INTO r VALUES (50, 'x'); UPDATE o SET a = a + 100 WHERE a = 3; DELETE FROM o WHERE a = 15"
    )
    of.await_equal("SELECT * FROM r ORDER BY a; SELECT * FROM o ORDER BY a; SELECT * FROM o_2 ORDER BY a")


@pytest.mark.slow
@both
def test_truncate_is_replicated(pair: Make, version: int, publisher: str) -> None:
    of = pair(version, publisher)
    of.publisher.sql(f"{TABLE}; {ROWS}; CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1); CREATE PUBLICATION p FOR TABLE t, u")
    of.subscriber.sql(f"{TABLE}; CREATE TABLE u (a int PRIMARY KEY)")
    of.subscribe()
    of.publisher.sql("TRUNCATE t, u RESTART IDENTITY CASCADE; INSERT INTO t VALUES (7, 'new', 1, 'c')")
    of.await_equal("SELECT * FROM t; SELECT * FROM u")


@pytest.mark.slow
@both
@pytest.mark.parametrize("streaming", ["on", "parallel"])
def test_large_transaction_is_streamed(pair: Make, version: int, publisher: str, streaming: str) -> None:
    of = pair(version, publisher)
    if streaming == "parallel" and publisher == "node" and version < 16:
        pytest.skip("streaming = parallel is of 16")
    of.publisher.sql(
        f"{TABLE}; CREATE PUBLICATION p FOR TABLE t; ALTER SYSTEM SET logical_decoding_work_mem = '64kB'; SELECT pg_reload_conf()"
    )
    of.subscriber.sql(TABLE)
    of.subscribe(options=f"streaming = {streaming}")
    of.publisher.sql(
        """BEGIN; INSERT INTO t SELECT i, 'k', i, 'some text ' || i FROM generate_series(1, 30000) i; SAVEPOINT s;
        UPDATE t SET c = 'gone' WHERE a < 10000; ROLLBACK TO s; UPDATE t SET n = -n WHERE a % 3 = 0; DELETE FROM t WHERE a % 7 = 0; COMMIT;
        ALTER SYSTEM RESET logical_decoding_work_mem; SELECT pg_reload_conf()"""
    )
    of.await_equal("SELECT count(*), sum(n), min(c), max(c) FROM t")


@pytest.mark.slow
@both
def test_prepared_transactions_are_replicated(pair: Make, version: int, publisher: str) -> None:
    if version < 15:
        pytest.skip("two_phase of subscriptions is of 15")
    of = pair(version, publisher)
    of.publisher.sql(f"{TABLE}; {ROWS}; CREATE PUBLICATION p FOR TABLE t")
    of.subscriber.sql(TABLE)
    of.subscribe(options="two_phase = true")
    of.subscriber.wait(
        "SELECT subtwophasestate FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())", "e"
    )
    gid = f"{of.publisher.name}_{version}_{publisher}"
    of.publisher.sql(
        f"BEGIN; UPDATE t SET c = 'prepared' WHERE a < 5; INSERT INTO t VALUES (500, 'k', 1, 'x'); PREPARE TRANSACTION '{gid}'"
    )
    own_transactions = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
    of.subscriber.wait(own_transactions, "1")
    of.publisher.sql(
        f"COMMIT PREPARED '{gid}'; BEGIN; DELETE FROM t WHERE a = 20; PREPARE TRANSACTION '{gid}2'; ROLLBACK PREPARED '{gid}2'"
    )
    of.await_equal("SELECT * FROM t ORDER BY a")
    of.subscriber.wait(own_transactions, "0")


@pytest.mark.slow
@both
def test_binary_values_are_replicated(pair: Make, version: int, publisher: str) -> None:
    of = pair(version, publisher)
    table = """CREATE TABLE v (a int PRIMARY KEY, b bigint, f float8, g real, n numeric, t timestamptz, d date, u uuid, x bytea, j jsonb, y text[], z bool,
        i interval, w varchar(9))"""
    row = """, 2::bigint ^ 40, 0.1, 2.5, 'NaN'::numeric, '2024-02-29 10:30:15.123456+00', 'infinity', '00112233-4455-6677-8899-aabbccddeeff', '\\x00ff',
        '{"a": [1, null]}', '{a,NULL,"b c"}', true, '1 mon 2 days 03:04:05', 'Größe'"""
    of.publisher.sql(f"{table}; INSERT INTO v VALUES (1 {row}); INSERT INTO v (a) VALUES (2); CREATE PUBLICATION p FOR TABLE v")
    of.subscriber.sql(table)
    of.subscribe(options="binary = true")
    of.publisher.sql(f"INSERT INTO v VALUES (3 {row}); UPDATE v SET w = 'new' WHERE a = 1")
    of.await_equal("SELECT * FROM v ORDER BY a")


@pytest.mark.slow
@both
def test_tables_that_differ_are_replicated(pair: Make, version: int, publisher: str) -> None:
    of = pair(version, publisher)
    of.publisher.sql(f"{TABLE}; {ROWS}; CREATE PUBLICATION p FOR TABLE t")
    of.subscriber.sql(
        "CREATE TABLE t (extra text DEFAULT 'here', c varchar(40), n numeric(12,4), k text, a bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (a * 2) STORED)"
    )
    of.subscribe()
    of.publisher.sql(CHANGES)
    of.await_equal("SELECT a, k, n::numeric(12,4), c, 'here', a * 2 FROM t ORDER BY a", "SELECT a, k, n, c, extra, twice FROM t ORDER BY a")


@pytest.mark.slow
@pytest.mark.parametrize("version", ALL)
def test_changes_of_another_origin_are_not_sent_to_a_node(pair: Make, version: int) -> None:
    of = pair(version, "postgres")
    of.publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    of.subscriber.sql(TABLE)
    of.subscribe(options="origin = none")
    of.publisher.sql(
        """SELECT pg_replication_origin_create('elsewhere_' || current_database()); SELECT pg_replication_origin_session_setup('elsewhere_' || current_database());
        INSERT INTO t VALUES (1, 'from elsewhere'); SELECT pg_replication_origin_session_reset(); INSERT INTO t VALUES (2, 'from here');
        SELECT pg_replication_origin_drop('elsewhere_' || current_database())"""
    )
    of.await_equal("SELECT * FROM t WHERE a = 2", "SELECT * FROM t")


@pytest.mark.slow
@pytest.mark.parametrize("version", ALL)
def test_altered_publication_of_a_node_is_followed(pair: Make, version: int) -> None:
    of = pair(version, "node")
    of.publisher.sql(f"{TABLE}; {ROWS}; CREATE PUBLICATION p FOR TABLE t WHERE (a < 0) WITH (reconcile = true)")
    of.subscriber.sql(TABLE)
    of.subscribe(options="copy_data = false")  # a copy to 14 would have every row
    of.publisher.sql("ALTER PUBLICATION p SET TABLE t WHERE (a < 10)")
    of.publisher.sql("ALTER PUBLICATION p SET TABLE t WHERE (a BETWEEN 5 AND 15); UPDATE t SET a = 11 + 100 WHERE a = 11")
    of.await_equal("SELECT * FROM t WHERE a BETWEEN 5 AND 15 ORDER BY a", "SELECT * FROM t ORDER BY a")


@pytest.mark.slow
@pytest.mark.parametrize("version", ALL)
def test_node_verifies_reconciles_and_explains(pair: Make, version: int) -> None:
    of = pair(version, "postgres")
    of.publisher.sql(f"{TABLE}; {ROWS}; CREATE PUBLICATION p FOR TABLE t")
    of.subscriber.sql(TABLE)
    of.subscribe()
    verified = "SELECT result, key FROM headgate.verify('s') ORDER BY 1, 2"
    assert of.subscriber.sql(verified) == "equal|"
    of.subscriber.sql("DELETE FROM t WHERE a = 1; UPDATE t SET c = 'other' WHERE a = 2; INSERT INTO t VALUES (999)")
    assert sorted(of.subscriber.sql(verified).splitlines()) == ["different|", "different|(a)=(2)", "extra|(a)=(999)", "missing|(a)=(1)"]
    explained = "SELECT what, present, passes FROM headgate.explain_row('s', 't', '{\"a\": 1}')"
    assert of.subscriber.sql(explained).splitlines() == ["publication|t|t", "here|f|"]
    of.subscriber.sql("SELECT headgate.reconcile('s', 't')")
    of.subscriber.wait("SELECT srsubstate, resync FROM pg_stat_subscription_rel", "r|")
    of.await_equal("SELECT * FROM t ORDER BY a")
