"""headgate.changes and headgate.change_ranges: the published changes of a table between two LSNs, compared with the stream of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import SqlError, until
from tests.publisher import slots


class Kept:
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
        """The rows that COPY gives in Arrow."""
        first = start or self.start
        query = f"SELECT {columns} FROM headgate.changes('{publication}', '{table}', {_lsn(first)}, '{end or self.end()}')"
        return self.copied(query)

    def copied(self, query: str) -> pa.Table:
        """The rows of a query that COPY gives in Arrow."""
        with psycopg.connect(self.node.conninfo(self.database)) as connection:  # type: ignore[attr-defined]
            return read(connection, query)


def _lsn(position: str) -> str:
    return "NULL" if position == "table" else f"'{position}'"


def read(connection: psycopg.Connection, query: str) -> pa.Table:
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT arrow)") as copy:  # type: ignore[call-overload]
        return pa.ipc.open_stream(b"".join(bytes(piece) for piece in copy)).read_all()


@pytest.fixture
def kept(node) -> Iterator[Kept]:
    made = Kept(node)
    yield made
    node.drop_slot(made.database, made.slot)


def words(changes: pa.Table, table: str) -> list[str]:
    """Changes in the words of `slots.messages`."""
    names = {"I": "Insert", "U": "Update", "D": "Delete", "T": "Truncate"}
    columns = [name for name in changes.column_names if not name.startswith("_")]
    said = []
    for row in changes.to_pylist():
        new, old = _row(row, columns), "" if row["_old"] is None else f" {_row(row['_old'], columns)}"
        end = "" if row["_op"] == "T" else f" {table}{old}{'' if row['_op'] == 'D' else f' {new}'}"
        said.append(names[row["_op"]] + end)
    return said


def _row(row: dict[str, object], columns: list[str]) -> str:
    return "(" + ", ".join("null" if row[name] is None else str(row[name]) for name in columns) + ")"


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
def test_changes_are_those_that_postgresql_streams(kept, postgres, name) -> None:
    database = postgres.new_database()
    slot = slots.make(postgres, database, "stream")
    for server, where in ((postgres, database), (kept.node, kept.database)):
        server.psql(where, SCRIPTS[name])
    streamed = [each for each in slots.messages(postgres, database, slot) if each.split()[0] in ("Insert", "Update", "Delete", "Truncate")]
    postgres.drop_slot(database, slot)
    assert words(kept.arrow("p", "public.t"), "t") == streamed


def test_plain_select_copy_and_a_query_over_changes_agree(kept) -> None:
    kept.sql(SCRIPTS["the whole old row"])
    call = f"headgate.changes('p', 't', '{kept.start}', '{kept.end()}')"
    assert kept.sql(f"SELECT _op, a, b, _old FROM {call}") == "\n".join(
        ("I|1|in|", "I|2|in|", "D|1|in|(1,in)", "U|4|in|(2,in)", "D|4|in|(4,in)"),
    )
    assert kept.sql(f"SELECT c.x, count(*), min(_old::text) FROM {call} AS c (x) WHERE a < 4 GROUP BY 1 ORDER BY 1") == "D|1|(1,in)\nI|2|"
    named = (
        f"SELECT count(*) FROM headgate.changes(to_lsn => '{kept.end()}', relation => 't', publication => 'p', from_lsn => '{kept.start}')"
    )
    assert kept.sql(named) == "5"
    assert kept.copied(f"SELECT _op, count(*) AS many FROM {call} GROUP BY 1 ORDER BY 1").to_pydict() == {
        "_op": ["D", "I", "U"],
        "many": [2, 2, 1],
    }
    with psycopg.connect(kept.node.conninfo(kept.database)) as connection:
        query, values = "SELECT * FROM headgate.changes(%s, %s, %s, %s)", ("p", "t", kept.start, kept.end())
        rows = psycopg.ClientCursor(connection).execute(query, values).fetchall()
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match=r"columns of headgate\.changes are not known before its parameters are"
        ):
            connection.execute(query, values)
    assert [row[0] for row in rows] == ["I", "I", "D", "U", "D"]


def test_each_change_has_its_transaction_and_its_place_in_it(kept) -> None:
    kept.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    kept.sql("SELECT pg_replication_origin_create('far'); SELECT pg_replication_origin_session_setup('far'); INSERT INTO t VALUES (1), (2)")
    kept.sql("BEGIN; INSERT INTO t VALUES (3); DELETE FROM t WHERE a < 3; COMMIT; SELECT pg_replication_origin_drop('far')")
    rows = kept.arrow("p", "t").to_pylist()
    assert [row["_op"] for row in rows] == ["I", "I", "I", "D", "D"]
    assert [row["_origin"] for row in rows] == ["far", "far", None, None, None]
    assert len({row["_xid"] for row in rows}) == len({row["_lsn"] for row in rows}) == len({row["_commit_time"] for row in rows}) == 2
    assert [row["_seq"] for row in rows] == sorted({row["_seq"] for row in rows})
    between = kept.sql(f"SELECT '0/0'::pg_lsn + {rows[0]['_lsn']}")
    assert kept.arrow("p", "t", end=between)["a"].to_pylist() == [1, 2]
    assert kept.arrow("p", "t", start=between)["a"].to_pylist() == [3, 1, 2]


def test_a_prepared_transaction_stands_where_it_commits(kept) -> None:
    kept.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    kept.sql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'one'")
    prepared = kept.end()
    assert kept.arrow("p", "t").num_rows == 0
    kept.sql("COMMIT PREPARED 'one'; INSERT INTO t VALUES (2)")
    kept.sql("BEGIN; INSERT INTO t VALUES (3); PREPARE TRANSACTION 'two'")
    kept.sql("ROLLBACK PREPARED 'two'")
    assert kept.arrow("p", "t")["a"].to_pylist() == kept.arrow("p", "t", prepared)["a"].to_pylist() == [1, 2]


def test_the_table_as_of_an_lsn_is_what_a_first_copy_has(kept) -> None:
    kept.sql("CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t (a) WHERE (a > 1); INSERT INTO t SELECT 1, 'x'")
    kept.sql("INSERT INTO t VALUES (2, 'x'), (3, 'y')")
    then = kept.end()
    kept.sql("DELETE FROM t WHERE a = 2; INSERT INTO t VALUES (4, 'z')")
    rows = kept.arrow("p", "t", "table", then)
    assert rows["_op"].to_pylist() == ["R", "R"]
    assert sorted(rows["a"].to_pylist()) == [2, 3]
    assert rows.column_names == ["_op", "_lsn", "_seq", "_xid", "_commit_time", "_origin", "a", "_old"]
    assert sorted(kept.arrow("p", "t", "table")["a"].to_pylist()) == [3, 4]


def test_a_large_write_comes_in_many_batches(kept) -> None:
    kept.sql("CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0)")
    kept.sql("INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 100000) n")
    changes = kept.arrow("p", "t")
    assert changes.num_rows == 50_000
    assert changes["a"].to_pylist() == list(range(2, 100_001, 2))
    assert changes["a"].num_chunks > 2
    assert max(len(chunk) for chunk in changes["a"].chunks) <= 32_768


def test_a_range_is_cut_at_transactions_and_where_the_columns_change(kept) -> None:
    kept.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    begin = kept.end()
    for first in (0, 10, 20):
        kept.sql(f"INSERT INTO t SELECT n FROM generate_series({first}, {first + 9}) n")
    kept.sql(
        "ALTER TABLE t ADD COLUMN b text; CREATE TABLE u (a int); INSERT INTO u VALUES (1); INSERT INTO t VALUES (100, 'x'), (101, 'y')"
    )
    ranges = f"SELECT * FROM headgate.change_ranges('p', 't', '{begin}', '{kept.end()}', 20)"
    rows = [line.split("|") for line in kept.sql(ranges).splitlines()]
    assert [(int(changes), altered) for _, _, changes, altered in rows] == [(20, "f"), (10, "f"), (2, "t")]
    assert rows[0][0] == begin
    assert rows[-1][1] == kept.end()
    assert [row[0] for row in rows[1:]] == [row[1] for row in rows[:-1]]
    parts = [kept.arrow("p", "t", start, end) for start, end, _, _ in rows]
    assert [part.num_rows for part in parts] == [20, 10, 2]
    assert ["b" in part.column_names for part in parts] == [False, False, True]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"the published columns of table .* change within the range"):
        kept.arrow("p", "t", begin)


def test_only_the_first_ranges_are_cut_if_no_more_are_asked_for(kept) -> None:
    kept.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    begin = kept.end()
    for first in range(0, 60, 10):
        kept.sql(f"INSERT INTO t SELECT n FROM generate_series({first}, {first + 9}) n")
    call = f"SELECT * FROM headgate.change_ranges('p', 't', '{begin}', '{kept.end()}', 20, {{}})"
    ranges = kept.sql(call.format("NULL")).splitlines()
    assert [line.split("|")[2] for line in ranges] == ["20", "20", "20"]
    for count in (1, 2, 5):
        assert kept.sql(call.format(count)).splitlines() == ranges[:count]
    with pytest.raises(SqlError, match="max_ranges must be greater than zero"):
        kept.sql(call.format(0))


def test_any_cut_of_a_range_gives_the_same_changes(kept) -> None:
    kept.sql(SCRIPTS["a partitioned table through its root"])
    whole = kept.arrow("p", "t").to_pylist()
    assert len(whole) > 5
    for most in (1, 3, 100):
        ranges = kept.sql(f"SELECT from_lsn, to_lsn FROM headgate.change_ranges('p', 't', '{kept.start}', '{kept.end()}', {most})")
        parts = [kept.arrow("p", "t", *line.split("|")).to_pylist() for line in ranges.splitlines()]
        assert [row for part in parts for row in part] == whole


def test_an_lsn_that_is_no_longer_kept_is_an_error_that_names_the_oldest(spare_node) -> None:
    kept = Kept(spare_node())  # on the shared node, sessions and slots of other tests can keep the log
    kept.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1)")
    kept.sql(f"INSERT INTO t VALUES (2); SELECT pg_replication_slot_advance('{kept.slot}', pg_current_wal_lsn())")

    def oldest() -> str | None:
        kept.sql("CHECKPOINT")
        try:
            kept.arrow("p", "t")
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            return error.diag.message_detail
        return None

    detail = until(oldest, "the log is trimmed")
    assert detail.startswith("The oldest LSN that is kept is ")
    kept.sql("INSERT INTO t VALUES (3)")
    assert kept.arrow("p", "t", detail.split()[-1].rstrip("."))["a"].to_pylist()[-1] == 3


def test_reading_changes_is_a_right_of_its_own(kept) -> None:
    kept.sql(
        f"""CREATE TABLE t (a int PRIMARY KEY, secret text); CREATE PUBLICATION p FOR TABLE t (a); CREATE PUBLICATION whole FOR TABLE t;
        INSERT INTO t VALUES (1, 's'); CREATE ROLE {kept.database}_r; GRANT SELECT (a) ON t TO {kept.database}_r"""
    )
    role = f"SET ROLE {kept.database}_r;"
    call = f"headgate.changes('{{}}', 't', '{kept.start}', '{kept.end()}')"
    ranges = f"SELECT changes FROM headgate.change_ranges('p', 't', '{kept.start}', '{kept.end()}', 10)"
    for query in (f"SELECT a FROM {call.format('p')}", f"SELECT count(*) FROM {call.format('p')}", ranges):
        with pytest.raises(SqlError, match="permission denied to read changes"):
            kept.sql(role + query)
    kept.sql(f"GRANT headgate_read_changes TO {kept.database}_r")
    assert kept.sql(f"{role} SELECT a FROM {call.format('p')}") == "1"
    assert kept.sql(role + ranges) == "1"
    with pytest.raises(SqlError, match="permission denied for table t"):
        kept.sql(f"{role} SELECT a FROM {call.format('whole')}")
    kept.sql(f"REVOKE headgate_read_changes FROM {kept.database}_r; ALTER ROLE {kept.database}_r REPLICATION")
    assert kept.sql(f"{role} SELECT a FROM {call.format('p')}") == "1"
    kept.sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    with pytest.raises(SqlError, match='query would be affected by row-level security policy for table "t"'):
        kept.sql(f"{role} SELECT a FROM {call.format('p')}")
    with pytest.raises(SqlError, match="cannot drop role headgate_read_changes because it is required by the database system"):
        kept.sql("DROP ROLE headgate_read_changes")
    kept.sql(f"DROP OWNED BY {kept.database}_r; DROP ROLE {kept.database}_r")


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
def test_wrong_arguments_are_refused(kept, arguments, message) -> None:
    kept.sql(
        """CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int); CREATE TABLE root (a int) PARTITION BY LIST (a);
        CREATE TABLE part PARTITION OF root FOR VALUES IN (1);
        CREATE PUBLICATION p FOR TABLE t, root WITH (publish_via_partition_root = true)"""
    )
    with pytest.raises(SqlError, match=message):
        kept.sql(f"SELECT * FROM headgate.changes({arguments.format(repr(kept.end()))})")


def test_arrow_is_a_format_of_copy_to_alone(kept) -> None:
    kept.sql(
        "CREATE TABLE t (a int, b numeric(6, 2), c timestamptz, d date[], e bool); INSERT INTO t VALUES (1, 2.5, '2026-01-02 03:04:05Z', '{2026-01-02}', true)"
    )
    expected = ["int32", "decimal128(6, 2)", "timestamp[us, tz=UTC]", "string", "bool"]
    whole, query = kept.copied("TABLE t"), kept.copied("SELECT a + 0 AS a, b, c, d, e FROM t WHERE a > 0")
    assert [str(kind) for kind in whole.schema.types] == [str(kind) for kind in query.schema.types] == expected
    assert whole.to_pylist() == query.to_pylist()
    assert kept.copied("SELECT oid::int8 AS oid, datname FROM pg_database WHERE datname = 'postgres'").to_pydict() == {
        "oid": [5],
        "datname": ["postgres"],
    }
    for wrong, message in (
        ("COPY t FROM STDIN (FORMAT arrow)", "COPY FROM in format arrow is not supported"),
        ("COPY t TO STDOUT (FORMAT arrow, HEADER)", "cannot specify HEADER in ARROW mode"),
        ("COPY t TO STDOUT (FORMAT arrow, DELIMITER ',')", "cannot specify DELIMITER in ARROW mode"),
    ):
        with pytest.raises(SqlError, match=message):
            kept.sql(wrong)
