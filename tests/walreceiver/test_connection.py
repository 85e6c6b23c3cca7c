"""A connection to a real publisher runs commands and COPY, describes relations, and reports the publisher's errors."""

from __future__ import annotations

import re
import subprocess
import threading

import pytest
from tests.conftest import PG_BIN

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.walreceiver import remote
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.link import check_conninfo
from headgate.walreceiver.waker import Waker


@pytest.fixture
def database(postgres):
    name = postgres.new_database()
    postgres.psql(
        name,
        """CREATE SCHEMA s; CREATE TABLE s."T x"(id int PRIMARY KEY, region text, "v w" numeric(10,2), gone int, g int GENERATED ALWAYS AS (id * 2) STORED);
        ALTER TABLE s."T x" DROP COLUMN gone; INSERT INTO s."T x" SELECT i, CASE WHEN i % 2 = 0 THEN 'eu' ELSE 'us' END, i FROM generate_series(1, 1000) i;
        CREATE TABLE plain(a int);
        CREATE PUBLICATION p FOR TABLE s."T x" (id, region) WHERE (region = 'eu'); CREATE PUBLICATION q FOR TABLE plain;
        CREATE PUBLICATION r FOR TABLE s."T x" (id, "v w"); CREATE PUBLICATION u FOR TABLE s."T x" (id, region) WHERE (id < 10)""",
    )
    return name


@pytest.fixture
def publisher(postgres, database):
    with PublisherConnection.open(postgres.conninfo(database), "sub") as connection:
        yield connection


def test_session_is_set_up_as_postgresql_does(publisher) -> None:
    values = [
        publisher.query(f"SHOW {name}")[0][0]
        for name in ("datestyle", "intervalstyle", "extra_float_digits", "application_name", "search_path")
    ]
    assert values == ["ISO, MDY", "postgres", "3", "sub", ""]


OTHER = {
    "bytea_output": "escape", "datestyle": "German, DMY", "intervalstyle": "sql_standard", "extra_float_digits": "0",
    "timezone": "Asia/Kolkata", "xmlbinary": "hex", "standard_conforming_strings": "off", "quote_all_identifiers": "on",
    "transform_null_equals": "on", "client_encoding": "LATIN1", "lc_monetary": "C.UTF-8",
}  # fmt: skip


@pytest.mark.parametrize("of", ["ROLE", "DATABASE", "ROLE IN DATABASE"])
def test_texts_and_queries_do_not_depend_on_the_settings_of_the_publisher(postgres, database, of: str) -> None:
    role = f"reader_of_{database}"
    target = {"ROLE": f"ROLE {role}", "DATABASE": f"DATABASE {database}", "ROLE IN DATABASE": f"ROLE {role} IN DATABASE {database}"}[of]
    changes = "; ".join(f"ALTER {target} SET {name} = {value if name == 'datestyle' else repr(value)}" for name, value in OTHER.items())
    postgres.psql(database, f"CREATE ROLE {role} LOGIN SUPERUSER; {changes}")
    query = r"""SELECT '\x00ff'::bytea, date '2024-02-03', interval '1 day 2 hours', 0.1::float8 + 0.2, timestamptz '2024-01-01 00:00+00',
        xmlelement(name a, '\x00'::bytea), length('a\b'), NULL = NULL, 'ä', 1::money, format_type('int4'::regtype, NULL), quote_ident('a')"""
    try:
        with PublisherConnection.open(postgres.conninfo(database), "sub") as connection:
            expected = connection.query(query)
        with PublisherConnection.open(postgres.conninfo(database) + f" user={role}", "sub", replication=False) as connection:
            assert connection.query(query) == expected
    finally:
        postgres.psql(database, f"DROP ROLE {role}")
    assert expected[0][:5] == ("\\x00ff", "2024-02-03", "1 day 02:00:00", "0.30000000000000004", "2024-01-01 00:00:00+00")


def test_options_of_the_user_are_kept(postgres, database) -> None:
    with PublisherConnection.open(postgres.conninfo(database) + " options='-c work_mem=5MB' application_name=mine", "sub") as connection:
        assert [connection.query(f"SHOW {name}")[0][0] for name in ("work_mem", "application_name")] == ["5MB", "mine"]


def test_system_identifies_itself(publisher, database) -> None:
    system = publisher.identify_system()
    assert system.system_id.isdigit()
    assert system.database == database
    assert system.position > 0
    assert not publisher.is_node
    assert publisher.protocol == 3


def test_missing_publications_are_named(publisher) -> None:
    missing = remote.missing_publications(publisher, ["p", "no'pe", "q"])
    assert missing == ["no'pe"]
    assert remote.missing_text(missing) == 'publication "no\'pe" does not exist on the publisher'
    assert remote.missing_text(["a", "b"]) == 'publications "a", "b" do not exist on the publisher'


def test_published_tables_are_returned_with_their_columns(publisher) -> None:
    tables = remote.published_tables(publisher, ["p", "q"])
    assert sorted(tables, key=lambda table: table.name) == [
        remote.PublishedTable("s", "T x", ("id", "region")),
        remote.PublishedTable("public", "plain", ("a",)),
    ]


def test_different_column_lists_are_rejected(publisher) -> None:
    with pytest.raises(PostgresError, match=r'cannot use different column lists for table "s\.T x" in different publications'):
        remote.published_tables(publisher, ["p", "r"])


def test_relation_is_described_with_columns_and_filters(publisher) -> None:
    relation = remote.fetch_relation(publisher, "s", "T x", ["p", "u"])
    assert [(column.name, column.type_oid, column.key) for column in relation.columns] == [("id", 23, True), ("region", 25, False)]
    assert sorted(relation.filters) == ["(id < 10)", "(region = 'eu'::text)"]
    sql = remote.copy_command(relation)
    assert sql.startswith('COPY (SELECT id, region FROM ONLY s."T x" WHERE (')
    lines = b"".join(publisher.copy_out(sql)).decode().splitlines()
    assert len(lines) == 505
    assert "2\teu" in lines


def test_plain_table_is_copied_by_its_name(publisher) -> None:
    relation = remote.fetch_relation(publisher, "public", "plain", ["q"])
    assert remote.copy_command(relation) == "COPY public.plain (a) TO STDOUT"
    assert (
        remote.copy_command(relation, where="a > 1", binary=True)
        == "COPY (SELECT a FROM ONLY public.plain WHERE a > 1) TO STDOUT WITH (FORMAT binary)"
    )


def test_relation_without_column_list_has_no_generated_columns(publisher, postgres, database) -> None:
    postgres.psql(database, "CREATE PUBLICATION everything FOR ALL TABLES")
    relation = remote.fetch_relation(publisher, "s", "T x", ["everything"])
    assert [column.name for column in relation.columns] == ["id", "region", "v w"]
    assert relation.filters == ()


def test_table_that_is_missing_on_the_publisher_is_named(publisher) -> None:
    with pytest.raises(PostgresError, match=r'table "public\.no" not found on publisher'):
        remote.fetch_relation(publisher, "public", "no", ["p"])


def test_slots_are_created_once_and_dropped(publisher) -> None:
    assert publisher.create_slot("walreceiver_slot").consistent_point > Lsn(0)
    with pytest.raises(PostgresError) as caught:
        publisher.create_slot("walreceiver_slot")
    assert caught.value.message == (
        'could not create replication slot "walreceiver_slot": ERROR:  replication slot "walreceiver_slot" already exists'
    )
    assert caught.value.sqlstate == "08P01"
    assert publisher.drop_slot("walreceiver_slot")
    with pytest.raises(PostgresError) as caught:
        publisher.drop_slot("walreceiver_slot")
    assert caught.value.message == (
        'could not drop replication slot "walreceiver_slot" on publisher: ERROR:  replication slot "walreceiver_slot" does not exist'
    )
    assert not publisher.drop_slot("walreceiver_slot", missing_ok=True)


def test_streaming_from_a_missing_slot_fails_with_the_publishers_error(publisher) -> None:
    with pytest.raises(PostgresError) as caught:
        publisher.start_streaming("none_such", Lsn(0), ["p"])
    assert caught.value.message == 'could not start WAL streaming: ERROR:  replication slot "none_such" does not exist'


def test_error_that_ends_a_stream_is_reported_by_the_first_call_that_meets_it(postgres, database) -> None:
    with PublisherConnection.open(postgres.conninfo(database), "sub") as connection:
        connection.create_slot("ended", temporary=True)
        connection.start_streaming("ended", Lsn(0), ["p"])
        postgres.psql(database, f"SELECT pg_terminate_backend({connection._pgconn.backend_pid}, 10000)")
        connection.wait(10)
        connection._pgconn.consume_input()
        while connection._pgconn.get_copy_data(1)[0] > 0:
            pass
        with pytest.raises(PostgresError, match="FATAL:  terminating connection due to administrator command"):
            connection.send_status(m.StatusUpdate(Lsn(1), Lsn(1), Lsn(1), 0, reply_requested=False))


def test_unreachable_publisher_is_a_connection_error(postgres) -> None:
    with pytest.raises(PostgresError) as caught:
        PublisherConnection.open("host=127.0.0.1 port=1 dbname=x user=y", "sub")
    assert caught.value.sqlstate == "08006"
    assert caught.value.message.startswith(
        'could not connect to the publisher: connection to server at "127.0.0.1", port 1 failed: Connection refused'
    )
    with pytest.raises(PostgresError, match='FATAL:  database "none" does not exist'):
        PublisherConnection.open(postgres.conninfo("none"), "sub")


def test_malformed_conninfo_is_rejected() -> None:
    with pytest.raises(PostgresError) as caught:
        check_conninfo("foo bar")
    assert caught.value.message == 'invalid connection string syntax: missing "=" after "foo" in connection info string\n'


@pytest.mark.parametrize("value", ["soon", "1.5", "99999999999"])
def test_invalid_connect_timeout_is_rejected_as_by_libpq(postgres, database, value: str) -> None:
    problem = f'invalid integer value "{value}" for connection option "connect_timeout"'
    conninfo = postgres.conninfo(database, connect_timeout=value)
    psql = subprocess.run([PG_BIN / "psql", "-X", "-d", conninfo, "-c", "SELECT 1"], capture_output=True, text=True)
    assert problem in psql.stderr
    with pytest.raises(PostgresError, match=re.escape(problem)) as caught:
        PublisherConnection.open(conninfo, "sub")
    assert caught.value.sqlstate == "08006"


def test_waiting_query_ends_when_the_worker_is_stopped(postgres, database) -> None:
    waker = Waker()
    with PublisherConnection.open(postgres.conninfo(database), "sub", waker=waker) as connection:
        threading.Timer(0.2, waker.stop).start()
        with pytest.raises(PostgresError, match="terminating logical replication worker due to administrator command"):
            connection.query("SELECT pg_sleep(60)")
