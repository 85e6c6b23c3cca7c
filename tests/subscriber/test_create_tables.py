"""create_tables and schema_evolution create and alter tables as on the publisher.

Without them, notices, the log and `headgate status` say what to do.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from tests.conftest import until
from tests.subscriber.conftest import READY

from headgate.commands.subscription.remote_expression import accepted
from headgate.errors import PostgresError
from headgate.sql.statement import partition_bound
from headgate.subscriber.advice import Subject, advice
from headgate.walreceiver.answer import PublisherError


def status(subscriber, name: str = "s") -> dict[str, Any]:
    """Return the subscription's part of `headgate status --json`."""
    report = json.loads(subscriber.server.headgate("status", "--json").stdout)
    return next(
        subscription
        for subscription in report["subscriptions"]
        if (subscription["database"], subscription["name"]) == (subscriber.name, name)
    )


def test_unsupported_types_are_text_and_the_status_lists_them(publisher, subscriber) -> None:
    publisher.sql(
        "CREATE TYPE pair AS (a int, b regclass); CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE DOMAIN small AS int CHECK (VALUE < 10);"
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, p pair, m mood DEFAULT 'sad', s small, n int DEFAULT length('abc'),"
        " g int GENERATED ALWAYS AS (n * 2) STORED, u text DEFAULT pg_backend_pid()::text); COMMENT ON TABLE t IS 'it''s t';"
        "INSERT INTO t (p, s) VALUES ('(1,pg_class)', 3); CREATE PUBLICATION p FOR TABLE t"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="are text here"):
        subscriber.sql(publisher.subscription("create_tables = true, binary = true"))
    subscriber.sql(publisher.subscription("create_tables = true"))
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT id, p, m, s, n, g, u IS NULL FROM t") == "1|(1,pg_class)|sad|3|3|6|f"
    assert subscriber.sql("SELECT obj_description('t'::regclass)") == "it's t"
    assert subscriber.sql("INSERT INTO t (id, p) OVERRIDING SYSTEM VALUE VALUES (2, 'x') RETURNING m, n, g, u") == "sad|3|6|"
    assert status(subscriber)["types"] == [{"column": "public.t.p", "there": "public.pair", "here": "text"}]
    with pytest.raises(psycopg.errors.CheckViolation):
        subscriber.sql("INSERT INTO t (s) VALUES (11)")


def test_columns_stored_as_text_are_listed_in_a_notice_before_the_first_table_is_created(publisher, subscriber) -> None:
    publisher.sql(
        "CREATE TABLE t (id int PRIMARY KEY, tags text[], j jsonb, plain numeric, price numeric(10,2)); CREATE TABLE u (id int PRIMARY KEY);"
        "CREATE PUBLICATION p FOR TABLE t, u"
    )
    with psycopg.connect(subscriber.conninfo, autocommit=True) as session:
        notices: list[tuple[str | None, str | None, str | None]] = []
        session.add_notice_handler(lambda notice: notices.append((notice.message_primary, notice.message_detail, notice.message_hint)))
        session.execute(publisher.subscription("create_tables = true").encode())
    message, detail, hint = notices[0]
    assert message == "columns of these types are stored as text in Delta"
    assert detail == "Arrays: public.t.tags.\njson and jsonb: public.t.j.\nnumeric without precision: public.t.plain."
    assert "array_storage = array" in str(hint)
    assert notices[1] == ('created table "public.t" as the publisher has it', None, None)


def test_setting_array_storage_lists_existing_arrays_and_the_statement_to_rewrite_them(subscriber) -> None:
    subscriber.sql('CREATE TABLE t (id int, "Tags" text[], v varchar(5)[])')
    with psycopg.connect(subscriber.conninfo, autocommit=True) as session:
        notices: list[tuple[str | None, str | None]] = []
        session.add_notice_handler(lambda notice: notices.append((notice.message_detail, notice.message_hint)))
        session.execute("ALTER TABLE t SET (array_storage = array)")
        [(detail, hint)] = notices
        assert detail == "Columns that keep their storage: Tags, v."
        statement = str(hint).removeprefix("To write them anew: ")
        assert statement == 'ALTER TABLE public.t ALTER COLUMN "Tags" TYPE text[], ALTER COLUMN v TYPE character varying(5)[]'
        session.execute(statement.encode())


def test_partitions_are_created_as_partitions_and_only_the_root_with_publish_via_partition_root(publisher, subscriber) -> None:
    publisher.sql(
        "CREATE TABLE r (k int, v text, PRIMARY KEY (k)) PARTITION BY RANGE (k); CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (1) TO (10);"
        "INSERT INTO r VALUES (1, 'a'); CREATE PUBLICATION p FOR TABLE r; CREATE PUBLICATION top FOR TABLE r WITH (publish_via_partition_root)"
    )
    subscriber.sql(publisher.subscription("create_tables = true, copy_data = false"))
    kinds = "SELECT string_agg(relname || relkind::text || relispartition::text, ' ' ORDER BY relname) FROM pg_class WHERE relname IN ('r', 'r1')"
    assert subscriber.sql(kinds) == "rpfalse r1rtrue"
    subscriber.unsubscribe()
    subscriber.sql("DROP TABLE r")
    subscriber.sql(publisher.subscription("create_tables = true", publication="top", name="top"))
    assert subscriber.sql(kinds) == "rrfalse"
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT * FROM r") == "1|a"


def test_missing_table_is_reported_with_a_suggested_action(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE here (a int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
    with pytest.raises(psycopg.errors.UndefinedTable) as raised:
        subscriber.sql(publisher.subscription())
    assert "create_tables = true" in raised.value.diag.message_hint
    subscriber.sql("CREATE TABLE here (a int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql("CREATE TABLE later (a int PRIMARY KEY); INSERT INTO later VALUES (1)")
    error = subscriber.log.error('logical replication target relation "public.later" does not exist')
    assert "REFRESH PUBLICATION" in error.fields["HINT"]
    subscriber.sql("CREATE TABLE later (a int PRIMARY KEY)")
    publisher.wait_confirmed()
    publisher.sql("INSERT INTO later VALUES (2), (3)")
    publisher.wait_confirmed()
    subscription = status(subscriber)
    assert subscription["left_out"] == [{"table": "public.later", "changes": 3}]
    assert "ALTER SUBSCRIPTION s REFRESH PUBLICATION" in subscription["problems"][0]["to_do"]
    assert len(subscriber.log.matching('changes of table "public.later" are left out')) == 1
    subscriber.sql("ALTER SUBSCRIPTION s SET (create_tables = true)")
    subscriber.wait("SELECT count(*) FROM later", "3")
    subscriber.wait(READY, "t")
    until(lambda: status(subscriber)["left_out"] == [])
    subscriber.sql("DROP TABLE later")
    assert 'NOTICE: table "later" is dropped out of subscription "s"' in subscriber.session.notices


@pytest.mark.slow
def test_missing_publication_is_a_state_of_the_subscription(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    subscriber.sql(publisher.subscription("create_tables = true", publication="nope"))
    subscription = until(lambda: (current := status(subscriber))["state"] == "waiting for a publication" and current)
    assert subscription["missing_publications"] == ["nope"]
    assert "CREATE" in subscription["problems"][0]["to_do"].upper()
    publisher.sql("CREATE PUBLICATION nope FOR TABLE t")
    subscriber.wait("SELECT count(*) FROM pg_class WHERE relname = 't'", "1")
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT * FROM t") == "1"
    assert status(subscriber)["state"] == "streaming"


@pytest.mark.slow
def test_added_column_is_filled_for_existing_rows_from_the_publisher(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(publisher.subscription("create_tables = true, schema_evolution = add_columns"))
    subscriber.wait(READY, "t")
    publisher.sql("ALTER TABLE t ADD COLUMN b text NOT NULL DEFAULT 'b'; INSERT INTO t VALUES (3); ALTER TABLE t ADD COLUMN e int")
    publisher.wait_confirmed()
    assert subscriber.rows("SELECT a, b FROM t") == ["1|b", "2|b", "3|b"]
    assert not subscriber.log.matching("are filled from the publisher")
    publisher.sql("ALTER TABLE t ADD COLUMN c uuid NOT NULL DEFAULT gen_random_uuid(); INSERT INTO t VALUES (4)")
    publisher.wait_confirmed()
    subscriber.wait("SELECT count(c), count(*) FROM t", "4|4")
    subscriber.wait(READY, "t")
    assert subscriber.rows("SELECT a, b, c, e FROM t") == publisher.rows("SELECT a, b, c, e FROM t")
    assert subscriber.log.matching('the 3 rows that were here before column "c" are filled from the publisher')
    until(lambda: status(subscriber)["unfilled"] == [])


@pytest.mark.slow
def test_column_added_to_the_column_list_is_filled_for_existing_rows(publisher, subscriber) -> None:
    publisher.sql(
        "CREATE TABLE t (a int PRIMARY KEY, b text DEFAULT 'd', c int); INSERT INTO t SELECT i, 'b' || i, i FROM generate_series(1, 50) i"
    )
    publisher.sql("CREATE PUBLICATION p FOR TABLE t (a, c)")
    subscriber.sql(publisher.subscription("create_tables = true, schema_evolution = add_columns"))
    subscriber.wait(READY, "t")
    publisher.sql("ALTER PUBLICATION p SET TABLE t (a, b, c); INSERT INTO t VALUES (51, 'new', 51)")
    publisher.wait_confirmed()
    subscriber.wait("SELECT count(b) FROM t", "51")
    subscriber.wait(READY, "t")
    assert subscriber.rows("SELECT a, b, c FROM t") == publisher.rows("SELECT a, b, c FROM t")


def test_alteration_that_cannot_be_followed_stops_with_the_statement_to_run(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t (a int PRIMARY KEY, b text, c int); INSERT INTO t VALUES (1, 'abc', 5); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(publisher.subscription("create_tables = true, schema_evolution = follow"))
    subscriber.wait(READY, "t")
    publisher.sql("ALTER TABLE t ALTER b TYPE int USING length(b); ALTER TABLE t RENAME c TO d; INSERT INTO t VALUES (2, 7, 8)")
    error = subscriber.log.error('could not follow what the publisher changed in table "public.t"')
    assert "ALTER TABLE public.t ALTER COLUMN b TYPE integer USING" in error.fields["HINT"]
    until(lambda: "ALTER COLUMN b TYPE integer" in (status(subscriber)["last_error"] or {}).get("advice", ""))
    subscriber.sql("ALTER TABLE t ALTER COLUMN b TYPE integer USING length(b)")
    publisher.wait_confirmed()
    assert subscriber.rows("SELECT a, b, d FROM t") == ["1|3|5", "2|7|8"]


def test_update_that_cannot_be_published_further_stops_the_worker(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (a int PRIMARY KEY, b int); CREATE PUBLICATION on_b FOR TABLE t WHERE (b > 0)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql("INSERT INTO t VALUES (2, 2); UPDATE t SET b = 3 WHERE a = 1")
    error = subscriber.log.error('cannot update table "t"')
    assert error.detail == "Column used in the publication WHERE expression is not part of the replica identity."
    assert 'during message type "UPDATE" for replication target relation "public.t"' in error.context
    assert subscriber.rows("SELECT * FROM t") == ["1|1", "2|2"]


def test_advice_for_a_lost_slot_is_a_recipe() -> None:
    error = PublisherError("42704", 'could not start WAL streaming: ERROR:  replication slot "s" does not exist')
    action = advice(error, Subject("S x", "owner", "dbname=d", None))
    assert 'DROP SUBSCRIPTION "S x"' in action
    assert "TRUNCATE" in action


@pytest.mark.parametrize(
    "text", ["0", "'a'::text", "now()", "(CURRENT_DATE + 1)", "lower(('A'::text || b))", "ARRAY[1, 2]", "gen_random_uuid()"]
)
def test_publishers_expression_that_only_computes_is_accepted(text: str) -> None:
    assert accepted(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "pg_terminate_backend(1)", "set_config('a.b', 'c', false)", "(SELECT 1)", "pg_sleep(10)", "nextval('s'::regclass)", "public.f()", "1; DROP TABLE t",
        "current_setting('port')", "query_to_xml('DELETE FROM t', true, true, '')", "pg_drop_replication_slot('s')", "1 FROM pg_class", "count(*)",
        "lower(pg_read_file('/etc/passwd'))", "EXISTS (SELECT 1)", "$1", "x" * 20_000, "pg_catalog.lo_import('/etc/passwd')", "*", "",
        "CASE WHEN true THEN pg_reload_conf() END", "row_number() OVER ()", "(SELECT 1)::text", "ARRAY[pg_sleep(1)]", "1 AS x", "a.b.c()",
    ],
)  # fmt: skip
def test_publishers_expression_with_side_effects_is_rejected(text: str) -> None:
    assert accepted(text) is None


@pytest.mark.parametrize(
    "text",
    ["DEFAULT; DROP TABLE t", "FOR VALUES IN (1) PARTITION BY LIST (a)", "DEFAULT TABLESPACE x", "DEFAULT WITH (a = 1)", "", "IN (1)"],
)
def test_publishers_partition_bound_that_is_more_than_a_bound_is_rejected(text: str) -> None:
    with pytest.raises(PostgresError, match="invalid partition bound"):
        partition_bound(text)


@pytest.mark.slow
def test_tables_of_a_node_are_created_on_another_node(subscriber, spare) -> None:
    upstream = spare()
    upstream.sql(
        "CREATE SCHEMA s; CREATE TYPE s.mood AS ENUM ('glad', 'sad'); CREATE DOMAIN small AS int DEFAULT 3 CHECK (VALUE < 10);"
        "CREATE TABLE s.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, m s.mood DEFAULT 'sad', v small, a s.mood[], u uuid DEFAULT gen_random_uuid());"
        "COMMENT ON COLUMN s.t.m IS 'how'; CREATE TABLE r (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (1) TO (10); INSERT INTO r VALUES (1, 'a'); INSERT INTO s.t (v, a) VALUES (4, '{glad}');"
        "CREATE PUBLICATION p FOR ALL TABLES"
    )
    options = f"slot_name = '{subscriber.name}_n', create_tables = true, schema_evolution = follow"
    subscriber.sql(f"CREATE SUBSCRIPTION s CONNECTION '{upstream.conninfo}' PUBLICATION p WITH ({options})")
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT id, m, v, a, u IS NULL FROM s.t; SELECT * FROM r1") == "1|sad|4|{glad}|f\n1|a"
    assert (
        subscriber.sql("SELECT relispartition FROM pg_class WHERE relname = 'r1'; SELECT col_description('s.t'::regclass, 2)") == "t\nhow"
    )
    upstream.sql("ALTER TABLE s.t RENAME v TO w; ALTER TABLE s.t ADD COLUMN x int; ALTER TYPE s.mood ADD VALUE 'so so'")
    upstream.sql("CREATE TABLE later (a int PRIMARY KEY); INSERT INTO later VALUES (1); INSERT INTO s.t (m, w, x) VALUES ('so so', 5, 6)")
    subscriber.wait("SELECT count(*) FROM s.t", "2")
    subscriber.wait("SELECT count(*) FROM pg_class WHERE relname = 'later'", "1")
    subscriber.wait("SELECT string_agg(m || w::text || coalesce(x::text, ''), ' ' ORDER BY id) FROM s.t", "sad4 so so56")
    subscriber.wait("SELECT count(*) FROM later", "1")


def test_composite_types_are_created_with_the_types_of_their_attributes(publisher, subscriber) -> None:
    publisher.sql("CREATE SCHEMA s; CREATE TYPE s.mood AS ENUM ('sad', 'happy'); CREATE TYPE s.inside AS (m s.mood, r int4range)")
    publisher.sql("CREATE TYPE thing AS (a int, b s.inside[], c numeric(6,2)); CREATE TYPE lacking AS (a int, r regclass)")
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, v thing, l lacking, k tid); CREATE TABLE k (v thing PRIMARY KEY, n int)")
    publisher.sql("INSERT INTO t VALUES (1, ROW(1, ARRAY[ROW('sad', '[1,2]')::s.inside], 2.5), ROW(1, 'pg_class'), '(0,1)')")
    publisher.sql("INSERT INTO k VALUES (ROW(1, NULL, 1), 1), (ROW(2, NULL, 1), 2); CREATE PUBLICATION p FOR TABLE t, k")
    subscriber.sql(publisher.subscription("create_tables = true"))
    subscriber.wait(READY, "t")
    columns = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert subscriber.sql(columns) == "id|integer\nv|thing\nl|text\nk|text"
    publisher.sql("INSERT INTO t VALUES (2, ROW(NULL, '{NULL,\"(,empty)\"}', NULL), NULL, NULL); UPDATE t SET v.a = 7 WHERE id = 1")
    publisher.sql("UPDATE k SET n = 3 WHERE v = ROW(1, NULL, 1)::thing; DELETE FROM k WHERE n = 2")
    publisher.wait_confirmed()
    for query in ("SELECT * FROM t ORDER BY id", "SELECT * FROM k"):
        assert subscriber.sql(query) == publisher.sql(query)
