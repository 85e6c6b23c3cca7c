"""headgate.changes and headgate.change_ranges return the published changes of a table between two LSNs, as PostgreSQL streams them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import SqlError, until
from tests.publisher import slots
from tests.publisher.arrow_changes import as_texts, read


class Source:
    """A database whose log is kept by a slot from the beginning."""

    def __init__(self, node: object) -> None:
        self.node = node
        self.database: str = node.new_database()  # type: ignore[attr-defined]
        self.slot = slots.make(node, self.database, "keeps")
        self.start: str = self.sql("SELECT pg_current_wal_lsn()")

    def sql(self, script: str, **more: str) -> str:
        return self.node.psql(self.database, script, **more)  # type: ignore[attr-defined,no-any-return]

    def end(self) -> str:
        return self.sql("SELECT pg_current_wal_lsn()")

    def arrow(self, publication: str, table: str, start: str | None = None, end: str | None = None, columns: str = "*") -> pa.Table:
        """Return the rows that COPY returns in Arrow."""
        first = start or self.start
        query = f"SELECT {columns} FROM headgate.changes('{publication}', '{table}', {_lsn(first)}, '{end or self.end()}')"
        return self.copied(query)

    def copied(self, query: str) -> pa.Table:
        """Return the rows of a query that COPY returns in Arrow."""
        with psycopg.connect(self.node.conninfo(self.database)) as connection:  # type: ignore[attr-defined]
            return read(connection, query)


def _lsn(position: str) -> str:
    return "NULL" if position == "table" else f"'{position}'"


@pytest.fixture
def source(node) -> Iterator[Source]:
    source = Source(node)
    yield source
    node.drop_slot(source.database, source.slot)


SCRIPTS = {
    "a filter, a column list and the key as identity": """
        CREATE TABLE t (a int PRIMARY KEY, b text, c int); CREATE PUBLICATION p FOR TABLE t (a, b) WHERE (a > 5);
        INSERT INTO t VALUES (1, 'x', 1), (7, 'y', 2), (8, NULL, 3);
        UPDATE t SET a = 9 WHERE a = 1; UPDATE t SET a = 2 WHERE a = 7; UPDATE t SET b = 'z' WHERE a = 8; UPDATE t SET a = 11 WHERE a = 8;
        DELETE FROM t WHERE a = 9; DELETE FROM t WHERE a = 2; TRUNCATE t; INSERT INTO t VALUES (10, 'after', 0)""",
    "the whole old row": """
        CREATE TABLE t (a int, b text); ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t WHERE (b = 'in');
        INSERT INTO t VALUES (1, 'in'), (2, 'out'), (3, NULL);
        UPDATE t SET b = 'in' WHERE a = 2; UPDATE t SET b = 'out' WHERE a = 1; UPDATE t SET a = 4 WHERE a = 2; DELETE FROM t""",
    "some operations only": """
        CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t WITH (publish = 'update, delete');
        INSERT INTO t VALUES (1, 'x'), (2, 'y'); UPDATE t SET b = 'u'; DELETE FROM t WHERE a = 1; TRUNCATE t""",
    "a partitioned table through its root": """
        CREATE TABLE t (a int, b text, PRIMARY KEY (a)) PARTITION BY RANGE (a);
        CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10);
        CREATE TABLE high (b text, a int NOT NULL, PRIMARY KEY (a)); ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (10) TO (100);
        CREATE PUBLICATION p FOR TABLE t WHERE (a <> 3) WITH (publish_via_partition_root = true);
        INSERT INTO t VALUES (1, 'x'), (20, 'y'), (3, 'z'), (30, 'w'); UPDATE t SET b = 'u' WHERE a > 2; UPDATE t SET a = 50 WHERE a = 1;
        DELETE FROM t WHERE a = 20; TRUNCATE t; INSERT INTO t VALUES (5, 'again')""",
    "a transaction with several statements": """
        CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE other (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t;
        BEGIN; INSERT INTO t VALUES (1, 'x'); INSERT INTO other VALUES (1); UPDATE t SET b = 'y'; TRUNCATE t; INSERT INTO t VALUES (2, 'z'); COMMIT;
        BEGIN; INSERT INTO t VALUES (3, 'rolled back'); ROLLBACK; DELETE FROM t""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_changes_are_those_that_postgresql_streams(source, postgres, name) -> None:
    database = postgres.new_database()
    slot = slots.make(postgres, database, "stream")
    for server, where in ((postgres, database), (source.node, source.database)):
        server.psql(where, SCRIPTS[name])
    streamed = [
        message for message in slots.messages(postgres, database, slot) if message.split()[0] in ("Insert", "Update", "Delete", "Truncate")
    ]
    postgres.drop_slot(database, slot)
    assert as_texts(source.arrow("p", "public.t"), "t") == streamed


def test_select_copy_and_a_query_over_changes_agree(source) -> None:
    source.sql(SCRIPTS["the whole old row"])
    call = f"headgate.changes('p', 't', '{source.start}', '{source.end()}')"
    assert source.sql(f"SELECT _op, a, b, _old FROM {call}") == "\n".join(
        ("I|1|in|", "I|2|in|", "D|1|in|(1,in)", "U|4|in|(2,in)", "D|4|in|(4,in)"),
    )
    assert source.sql(f"SELECT c.x, count(*), min(_old::text) FROM {call} AS c (x) WHERE a < 4 GROUP BY 1 ORDER BY 1") == "D|1|(1,in)\nI|2|"
    named = f"SELECT count(*) FROM headgate.changes(to_lsn => '{source.end()}', relation => 't', publication => 'p', from_lsn => '{source.start}')"
    assert source.sql(named) == "5"
    assert source.copied(f"SELECT _op, count(*) AS many FROM {call} GROUP BY 1 ORDER BY 1").to_pydict() == {
        "_op": ["D", "I", "U"],
        "many": [2, 2, 1],
    }
    with psycopg.connect(source.node.conninfo(source.database)) as connection:
        query, values = "SELECT * FROM headgate.changes(%s, %s, %s, %s)", ("p", "t", source.start, source.end())
        rows = psycopg.ClientCursor(connection).execute(query, values).fetchall()
    assert [row[0] for row in rows] == ["I", "I", "D", "U", "D"]


@pytest.mark.parametrize("binary", [False, True])
def test_lsns_may_be_parameters(source, binary) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY, b numeric(10, 2)); CREATE PUBLICATION p FOR TABLE t")
    source.sql("INSERT INTO t VALUES (1, 1.5), (2, NULL); UPDATE t SET a = 3 WHERE a = 2; DELETE FROM t WHERE a = 1")
    query = "SELECT * FROM headgate.changes('p', 't', %s, %s)"
    with psycopg.connect(source.node.conninfo(source.database)) as connection:
        for name in (query, query.replace("*", "a, _op, b, _old")):
            connection.execute(name, (source.start, source.end()), binary=binary)
        cursor = connection.execute(query.replace("*", "_op, a, b, _old"), (source.start, source.end()), binary=binary)
        rows = cursor.fetchall()
    old = ((2, None), (1, None)) if binary else (("2", None), ("1", None))
    assert rows == [
        ("I", 1, Decimal("1.50"), None), ("I", 2, None, None), ("U", 3, None, old[0]), ("D", 1, None, old[1]),
    ]  # fmt: skip


def test_query_over_changes_has_parameters(source) -> None:
    source.sql(SCRIPTS["the whole old row"])
    query = "SELECT c.a, count(*) FROM headgate.changes('p', 't', %s, %s) c WHERE _op = %s GROUP BY 1 ORDER BY 1"
    with psycopg.connect(source.node.conninfo(source.database)) as connection:
        assert connection.execute(query, (source.start, source.end(), "I")).fetchall() == [(1, 1), (2, 1)]
    prepared = "PREPARE q AS SELECT _op, a FROM headgate.changes('p', 't', $1, $2); EXECUTE q('{}', '{}')"
    assert source.sql(prepared.format(source.start, source.end())).splitlines()[-1] == "D|4"


def test_parameters_give_columns_as_they_are_now_or_an_error(source) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY, b int); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1, 2)")
    before = source.end()
    source.sql("ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN c text; INSERT INTO t VALUES (3, 'x')")
    query = "SELECT * FROM headgate.changes('p', 't', %s, %s)"
    with psycopg.connect(source.node.conninfo(source.database), autocommit=True) as connection:
        assert [row[6:8] for row in connection.execute(query, (before, source.end()))] == [(3, "x")]
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan must not change result type"):
            connection.execute(query, (source.start, before))
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"publication and relation .* must not be parameters"):
            connection.execute("SELECT * FROM headgate.changes('p', %s, %s, %s)", ("t", before, before))


def test_each_change_has_its_transaction_and_its_position_in_it(source) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    source.sql(
        "SELECT pg_replication_origin_create('far'); SELECT pg_replication_origin_session_setup('far'); INSERT INTO t VALUES (1), (2)"
    )
    source.sql("BEGIN; INSERT INTO t VALUES (3); DELETE FROM t WHERE a < 3; COMMIT; SELECT pg_replication_origin_drop('far')")
    rows = source.arrow("p", "t").to_pylist()
    assert [row["_op"] for row in rows] == ["I", "I", "I", "D", "D"]
    assert [row["_origin"] for row in rows] == ["far", "far", None, None, None]
    assert len({row["_xid"] for row in rows}) == len({row["_lsn"] for row in rows}) == len({row["_commit_time"] for row in rows}) == 2
    assert [row["_seq"] for row in rows] == sorted({row["_seq"] for row in rows})
    between = source.sql(f"SELECT '0/0'::pg_lsn + {rows[0]['_lsn']}")
    assert source.arrow("p", "t", end=between)["a"].to_pylist() == [1, 2]
    assert source.arrow("p", "t", start=between)["a"].to_pylist() == [3, 1, 2]


def test_prepared_transaction_is_returned_at_its_commit(source) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    source.sql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'one'")
    prepared = source.end()
    assert source.arrow("p", "t").num_rows == 0
    source.sql("COMMIT PREPARED 'one'; INSERT INTO t VALUES (2)")
    source.sql("BEGIN; INSERT INTO t VALUES (3); PREPARE TRANSACTION 'two'")
    source.sql("ROLLBACK PREPARED 'two'")
    assert source.arrow("p", "t")["a"].to_pylist() == source.arrow("p", "t", prepared)["a"].to_pylist() == [1, 2]


def test_table_as_of_an_lsn_has_the_rows_of_a_first_copy(source) -> None:
    source.sql(
        "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t (a) WHERE (a > 1); INSERT INTO t SELECT 1, 'x'"
    )
    source.sql("INSERT INTO t VALUES (2, 'x'), (3, 'y')")
    then = source.end()
    source.sql("DELETE FROM t WHERE a = 2; INSERT INTO t VALUES (4, 'z')")
    rows = source.arrow("p", "t", "table", then)
    assert rows["_op"].to_pylist() == ["R", "R"]
    assert sorted(rows["a"].to_pylist()) == [2, 3]
    assert rows.column_names == ["_op", "_lsn", "_seq", "_xid", "_commit_time", "_origin", "a", "_old"]
    assert sorted(source.arrow("p", "t", "table")["a"].to_pylist()) == [3, 4]


def test_range_continues_a_copy_by_the_publication_as_of_the_copy(source) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY)")
    with psycopg.connect(source.node.conninfo(source.database)) as session:
        session.execute("INSERT INTO t VALUES (1), (6)")
        source.sql("CREATE PUBLICATION p FOR TABLE t; ALTER PUBLICATION p SET TABLE t WHERE (a > 5)")
        start = source.end()
        assert source.arrow("p", "t", "table", start).num_rows == 0
    assert source.arrow("p", "t", start)["a"].to_pylist() == [6]
    assert source.sql(f"SELECT changes FROM headgate.change_ranges('p', 't', '{start}', '{source.end()}', 10)") == "2"


def test_large_write_is_returned_in_many_batches(source) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0)")
    source.sql("INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 100000) n")
    changes = source.arrow("p", "t")
    assert changes.num_rows == 50_000
    assert changes["a"].to_pylist() == list(range(2, 100_001, 2))
    assert changes["a"].num_chunks > 2
    assert max(len(chunk) for chunk in changes["a"].chunks) <= 32_768


def test_ranges_end_at_transactions_and_where_the_columns_change(source) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    begin = source.end()
    for first in (0, 10, 20):
        source.sql(f"INSERT INTO t SELECT n FROM generate_series({first}, {first + 9}) n")
    source.sql(
        "ALTER TABLE t ADD COLUMN b text; CREATE TABLE u (a int); INSERT INTO u VALUES (1); INSERT INTO t VALUES (100, 'x'), (101, 'y')"
    )
    ranges = f"SELECT * FROM headgate.change_ranges('p', 't', '{begin}', '{source.end()}', 20)"
    rows = [line.split("|") for line in source.sql(ranges).splitlines()]
    assert [(int(changes), altered) for _, _, changes, altered in rows] == [(20, "f"), (10, "f"), (2, "t")]
    assert rows[0][0] == begin
    assert rows[-1][1] == source.end()
    assert [row[0] for row in rows[1:]] == [row[1] for row in rows[:-1]]
    parts = [source.arrow("p", "t", start, end) for start, end, _, _ in rows]
    assert [part.num_rows for part in parts] == [20, 10, 2]
    assert ["b" in part.column_names for part in parts] == [False, False, True]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"the published columns of table .* change within the range"):
        source.arrow("p", "t", begin)


def test_max_ranges_limits_the_number_of_ranges(source) -> None:
    source.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    begin = source.end()
    for first in range(0, 60, 10):
        source.sql(f"INSERT INTO t SELECT n FROM generate_series({first}, {first + 9}) n")
    call = f"SELECT * FROM headgate.change_ranges('p', 't', '{begin}', '{source.end()}', 20, {{}})"
    ranges = source.sql(call.format("NULL")).splitlines()
    assert [line.split("|")[2] for line in ranges] == ["20", "20", "20"]
    for count in (1, 2, 5):
        assert source.sql(call.format(count)).splitlines() == ranges[:count]
    with pytest.raises(SqlError, match="max_ranges must be greater than zero"):
        source.sql(call.format(0))


def test_every_division_into_ranges_gives_the_same_changes(source) -> None:
    source.sql(SCRIPTS["a partitioned table through its root"])
    whole = source.arrow("p", "t").to_pylist()
    assert len(whole) > 5
    for most in (1, 3, 100):
        ranges = source.sql(f"SELECT from_lsn, to_lsn FROM headgate.change_ranges('p', 't', '{source.start}', '{source.end()}', {most})")
        parts = [source.arrow("p", "t", *line.split("|")).to_pylist() for line in ranges.splitlines()]
        assert [row for part in parts for row in part] == whole


@pytest.mark.slow
def test_lsn_that_is_no_longer_kept_is_an_error_that_names_the_oldest(own_node) -> None:
    source = Source(own_node())  # on a shared node, sessions and slots of other tests can keep the log
    source.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1)")
    source.sql(f"INSERT INTO t VALUES (2); SELECT pg_replication_slot_advance('{source.slot}', pg_current_wal_lsn())")

    def oldest() -> str | None:
        source.sql("CHECKPOINT")
        try:
            source.arrow("p", "t")
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            return error.diag.message_detail
        return None

    detail = until(oldest, "the log is not trimmed")
    assert detail.startswith("The oldest retained LSN is ")
    source.sql("INSERT INTO t VALUES (3)")
    assert source.arrow("p", "t", detail.split()[-1].rstrip("."))["a"].to_pylist()[-1] == 3


def test_reading_changes_needs_its_own_privilege(source) -> None:
    source.sql(
        f"""CREATE TABLE t (a int PRIMARY KEY, secret text); CREATE PUBLICATION p FOR TABLE t (a); CREATE PUBLICATION whole FOR TABLE t;
        INSERT INTO t VALUES (1, 's'); CREATE ROLE {source.database}_r; GRANT SELECT (a) ON t TO {source.database}_r"""
    )
    role = f"SET ROLE {source.database}_r;"
    call = f"headgate.changes('{{}}', 't', '{source.start}', '{source.end()}')"
    ranges = f"SELECT changes FROM headgate.change_ranges('p', 't', '{source.start}', '{source.end()}', 10)"
    for query in (f"SELECT a FROM {call.format('p')}", f"SELECT count(*) FROM {call.format('p')}", ranges):
        with pytest.raises(SqlError, match="permission denied to read changes"):
            source.sql(role + query)
    source.sql(f"GRANT headgate_read_changes TO {source.database}_r")
    assert source.sql(f"{role} SELECT a FROM {call.format('p')}") == "1"
    assert source.sql(role + ranges) == "1"
    with pytest.raises(SqlError, match="permission denied for table t"):
        source.sql(f"{role} SELECT a FROM {call.format('whole')}")
    source.sql(f"REVOKE headgate_read_changes FROM {source.database}_r; ALTER ROLE {source.database}_r REPLICATION")
    assert source.sql(f"{role} SELECT a FROM {call.format('p')}") == "1"
    source.sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    with pytest.raises(SqlError, match='query would be affected by row-level security policy for table "t"'):
        source.sql(f"{role} SELECT a FROM {call.format('p')}")
    with pytest.raises(SqlError, match="cannot drop role headgate_read_changes because it is required by the database system"):
        source.sql("DROP ROLE headgate_read_changes")
    source.sql(f"DROP OWNED BY {source.database}_r; DROP ROLE {source.database}_r")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'nosuch', 't', {0}, {0}", 'publication "nosuch" does not exist'),
        ("'p', 'nosuch', {0}, {0}", 'relation "nosuch" does not exist'),
        ("'p', 'u', {0}, {0}", 'table "public.u" is not part of publication "p"'),
        ("'p', 'part', {0}, {0}", 'table "public.part" is not part of publication "p"'),
        ("'p', 't', {0}", "function headgate.changes does not exist with these arguments"),
        ("'p', 't', {0}, 'x'", 'invalid input syntax for type pg_lsn: "x"'),
        ("'p', 't', {0}, NULL", "publication, relation and to_lsn of headgate.changes must not be null"),
        ("'p', 'a.b.c', {0}, {0}", "invalid name syntax"),
    ],
)
def test_invalid_arguments_are_rejected(source, arguments, message) -> None:
    source.sql(
        """CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int); CREATE TABLE root (a int) PARTITION BY LIST (a);
        CREATE TABLE part PARTITION OF root FOR VALUES IN (1);
        CREATE PUBLICATION p FOR TABLE t, root WITH (publish_via_partition_root = true)"""
    )
    with pytest.raises(SqlError, match=message):
        source.sql(f"SELECT * FROM headgate.changes({arguments.format(repr(source.end()))})")


def test_arrow_is_a_format_of_copy_to_only(source) -> None:
    source.sql(
        "CREATE TABLE t (a int, b numeric(6, 2), c timestamptz, d date[], e bool); INSERT INTO t VALUES (1, 2.5, '2026-01-02 03:04:05Z', '{2026-01-02}', true)"
    )
    expected = ["int32", "decimal128(6, 2)", "timestamp[us, tz=UTC]", "string", "bool"]
    whole, query = source.copied("TABLE t"), source.copied("SELECT a + 0 AS a, b, c, d, e FROM t WHERE a > 0")
    assert [str(kind) for kind in whole.schema.types] == [str(kind) for kind in query.schema.types] == expected
    assert whole.to_pylist() == query.to_pylist()
    assert source.copied("SELECT oid::int8 AS oid, datname FROM pg_database WHERE datname = 'postgres'").to_pydict() == {
        "oid": [5],
        "datname": ["postgres"],
    }
    for wrong, message in (
        ("COPY t FROM STDIN (FORMAT arrow)", "COPY FROM in format arrow is not supported"),
        ("COPY t TO STDOUT (FORMAT arrow, HEADER)", "cannot specify HEADER in ARROW mode"),
        ("COPY t TO STDOUT (FORMAT arrow, DELIMITER ',')", "cannot specify DELIMITER in ARROW mode"),
    ):
        with pytest.raises(SqlError, match=message):
            source.sql(wrong)
