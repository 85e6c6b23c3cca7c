"""Published generated columns (18) are replicated by a node that announces 18, and to a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.conftest import Server, SqlError
from tests.system.chain import Database, arrived, subscribe

TABLES = """CREATE TABLE t (a int PRIMARY KEY, b int, g int GENERATED ALWAYS AS (b * 2) STORED, c text);
CREATE TABLE listed (a int PRIMARY KEY, b int, g int GENERATED ALWAYS AS (b + 1) STORED, c text);
CREATE TABLE parted (a int, k text, g text GENERATED ALWAYS AS (k || a::text) STORED, PRIMARY KEY (a, k)) PARTITION BY LIST (k);
CREATE TABLE parted_x PARTITION OF parted FOR VALUES IN ('x'); CREATE TABLE parted_y PARTITION OF parted DEFAULT;
INSERT INTO t (a, b, c) SELECT i, i * 10, 'row ' || i FROM generate_series(1, 30) i; INSERT INTO listed (a, b, c) SELECT i, i, 'c' FROM generate_series(1, 5) i;
INSERT INTO parted SELECT i, CASE WHEN i < 4 THEN 'x' ELSE 'z' END FROM generate_series(1, 7) i;"""
ORDINARY = """CREATE TABLE t (a int PRIMARY KEY, b int, g int, c text); CREATE TABLE listed (a int PRIMARY KEY, g int);
CREATE TABLE parted (a int, k text, g text, PRIMARY KEY (a, k));"""
PUBLISHED = """CREATE PUBLICATION p FOR TABLE t WHERE (a < 1000) WITH (publish_generated_columns = stored);
CREATE PUBLICATION q FOR TABLE listed (a, g); CREATE PUBLICATION r FOR TABLE parted
WITH (publish_via_partition_root, publish_generated_columns = 'STORED');"""
CHANGES = """INSERT INTO t (a, b, c) VALUES (100, 7, 'late'), (101, NULL, NULL), (2000, 1, 'outside'); UPDATE t SET b = -b WHERE a < 5; UPDATE t SET c = 'x' WHERE a = 6;
UPDATE t SET a = 500 WHERE a = 9; DELETE FROM t WHERE a = 8; UPDATE listed SET b = 77 WHERE a = 2; INSERT INTO listed (a, b, c) VALUES (9, 9, 'x');
UPDATE parted SET k = 'y' WHERE a = 1; INSERT INTO parted VALUES (50, 'x'); DELETE FROM parted WHERE a = 7;"""
ROWS = "SELECT * FROM t WHERE a < 1000 ORDER BY a; SELECT a, g FROM listed ORDER BY a; SELECT * FROM parted ORDER BY a"


@pytest.fixture
def announcing(spare_node: Callable[..., Server]) -> Database:
    """A database on a node that announces 18."""
    return Database.new(spare_node(server_version="'18.1'"))


@pytest.fixture
def subscriber() -> Iterator[Callable[[Server], Database]]:
    """Return a function that creates databases. Their subscriptions are dropped at the end."""
    databases: list[Database] = []

    def make(server: Server) -> Database:
        databases.append(Database.new(server))
        return databases[-1]

    yield make
    for database in databases:
        database.unsubscribe()


@pytest.mark.slow
def test_subscriber_of_18_gets_published_generated_columns(
    announcing: Database, of_version: Callable[[int], Server], subscriber: Callable[[Server], Database]
) -> None:
    downstream = subscriber(of_version(18))
    announcing.sql(TABLES + PUBLISHED)
    downstream.sql(ORDINARY)
    subscribe(downstream, announcing, "s", "p, q, r")
    assert downstream.sql(ROWS) == announcing.sql(ROWS)
    announcing.sql(CHANGES)
    arrived(announcing, "s")
    assert downstream.sql(ROWS) == announcing.sql(ROWS)
    announcing.sql("ALTER PUBLICATION p SET (publish_generated_columns = none); INSERT INTO t (a, b, c) VALUES (600, 6, 'none')")
    arrived(announcing, "s")
    assert downstream.sql("SELECT * FROM t WHERE a = 600") == "600|6||none"


@pytest.mark.slow
@pytest.mark.parametrize("version", [16, 17, 18])
def test_table_with_an_unpublished_generated_column_is_replicated(
    spare_node: Callable[..., Server], of_version: Callable[[int], Server], subscriber: Callable[[Server], Database], version: int
) -> None:
    lake, downstream = Database.new(spare_node(server_version=f"'{version}.1'")), subscriber(of_version(version))
    lake.sql(TABLES + "CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLE t (a, b, c)")
    downstream.sql("CREATE TABLE t (a int PRIMARY KEY, b int, g int GENERATED ALWAYS AS (b * 3) STORED, c text)")
    subscribe(downstream, lake, "s", "p" if version < 18 else "p, q")
    lake.sql("INSERT INTO t (a, b, c) VALUES (100, 7, 'late'); UPDATE t SET b = 0 WHERE a = 1")
    arrived(lake, "s")
    assert downstream.sql("SELECT a, b, c, g FROM t ORDER BY a") == lake.sql("SELECT a, b, c, b * 3 FROM t ORDER BY a")


@pytest.mark.slow
@pytest.mark.parametrize("publisher", ["postgres", "node"])
@pytest.mark.parametrize("options", ["", "create_tables = true", "binary = true"])
def test_node_gets_the_generated_columns_of_18(
    spare_node: Callable[..., Server],
    node: Server,
    of_version: Callable[[int], Server],
    subscriber: Callable[[Server], Database],
    publisher: str,
    options: str,
) -> None:
    source = Database.new(of_version(18) if publisher == "postgres" else spare_node(server_version="'18.1'"))
    lake = subscriber(node)
    source.sql(TABLES + PUBLISHED)
    if not options.startswith("create"):
        lake.sql(ORDINARY)
    subscribe(lake, source, "s", "p, q, r", options)
    assert lake.sql(ROWS) == source.sql(ROWS)
    source.sql(CHANGES)
    arrived(source, "s")
    assert lake.sql(ROWS) == source.sql(ROWS)


STATEMENTS = (
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_columns)",
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_columns = true)",
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_columns = '')",
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_columns = virtual)",
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_columns = 's''; DROP TABLE t; --')",
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_columns = stored, publish_generated_columns = stored)",
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_column = stored)",
    "CREATE PUBLICATION x FOR TABLE t WITH (publish_generated_columns = StoreD, publish = 'insert')",
    "CREATE PUBLICATION y FOR TABLE t (g, a)",
    "CREATE PUBLICATION z FOR TABLE t (a, b, c)",
    "CREATE PUBLICATION v FOR TABLE t (a, b, c, g)",
    "CREATE PUBLICATION w FOR ALL TABLES",
    "CREATE PUBLICATION u FOR TABLE t (a, g, g)",
    "CREATE PUBLICATION u FOR TABLE t (a, tableoid)",
    "ALTER PUBLICATION x SET (publish_generated_columns = perhaps)",
    "ALTER PUBLICATION w SET (publish_generated_columns = 'none', publish_via_partition_root = true)",
    "SELECT * FROM pg_publication WHERE false",
    "SELECT pubname, pubgencols, pubviaroot, pubinsert, pubupdate FROM pg_publication ORDER BY 1",
    "SELECT pubname, tablename, attnames::text FROM pg_publication_tables WHERE tablename IN ('t', 'parted', 'listed') ORDER BY 1, 2",
    "SELECT p.pubname, g.attrs::text FROM pg_publication p, LATERAL pg_get_publication_tables(p.pubname) g WHERE g.relid = 't'::regclass ORDER BY 1",
    *(
        f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('SLOT', NULL, NULL, 'proto_version', '1', 'publication_names', '{names}')"
        for names in ("x,w", "x", "w", "w,z", "x,v", "x,z", "y,z")
    ),
)


def results_of(database: Database) -> list[str]:
    """Return the server's result of each statement."""
    database.sql(TABLES)
    slot, results = f"{database.name}_told", []
    with psycopg.connect(database.conninfo, autocommit=True) as session:
        session.execute("SET statement_timeout = '30s'")
        for statement in STATEMENTS:
            if "peek" in statement and not any("peek" in result for result in results):
                session.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')".encode())
                session.execute("INSERT INTO t (a, b, c) VALUES (900, 1, 'x')")
            try:
                result_rows = session.execute(statement.replace("SLOT", slot).encode())
                names = [column.name for column in result_rows.description or ()]
                results.append(f"{statement}: {names} {result_rows.fetchall() if result_rows.description else ''}")
            except psycopg.Error as error:
                results.append(f"{statement}: {error.sqlstate} {error.diag.message_primary} {error.diag.message_detail}")
        session.execute(f"SELECT pg_drop_replication_slot('{slot}')".encode())
    return results


@pytest.mark.slow
def test_statements_about_generated_columns_answer_as_in_postgresql_18(announcing: Database, of_version: Callable[[int], Server]) -> None:
    assert results_of(announcing) == results_of(Database.new(of_version(18)))
    assert "Via root" in announcing.server.psql(announcing.name, "\\dRp+", "-A")


def test_node_that_announces_15_does_not_know_published_generated_columns(node: Server) -> None:
    lake = Database.new(node)
    lake.sql("CREATE TABLE t (a int PRIMARY KEY, g int GENERATED ALWAYS AS (a) STORED)")
    with pytest.raises(SqlError, match='unrecognized publication parameter: "publish_generated_columns"'):
        lake.sql("CREATE PUBLICATION p FOR TABLE t WITH (publish_generated_columns = stored)")
    with pytest.raises(SqlError, match='cannot use generated column "g" in publication column list'):
        lake.sql("CREATE PUBLICATION p FOR TABLE t (a, g)")
    with pytest.raises(SqlError, match='column "pubgencols" does not exist'):
        lake.sql("SELECT pubgencols FROM pg_publication")


def test_different_column_lists_are_an_error_of_the_function_that_reads_the_slot(node: Server) -> None:
    """The error is its own cause, so the session must not follow causes endlessly."""
    lake = Database.new(node)
    lake.sql("CREATE TABLE t (a int PRIMARY KEY, b int); CREATE PUBLICATION p FOR TABLE t (a); CREATE PUBLICATION q FOR TABLE t")
    slot = f"{lake.name}_differ"
    lake.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput'); INSERT INTO t VALUES (1, 2)")
    with pytest.raises(SqlError, match="cannot use different column lists for table"):
        lake.sql(
            f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, NULL, 'proto_version', '1', 'publication_names', 'p,q')"
        )
    lake.server.drop_slot(lake.name, slot)
