"""System relations can be queried beyond psql's needs: by subscribers, with dynamic relations, functions with side effects, and parameters."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
from tests.catalog.conftest import analysed_query

from headgate.catalog.catalog import Catalog
from headgate.catalog.relation import definition
from headgate.catalog.relation.definition import Definition
from headgate.catalog.relation.index import IndexKey
from headgate.catalog.relation.relation import Column
from headgate.catalog.replication import publication
from headgate.catalog.replication.publication import Member, Publication
from headgate.catalog.session import SessionContext
from headgate.commands.query.catalog import query
from headgate.commands.session import Parameter
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.sql.parser import parse
from headgate.types import registry as t

Ask = Callable[..., list[tuple[str | None, ...]]]


@pytest.fixture
def published(empty_catalog: Catalog, database: int) -> int:
    """The oid of public.w1 (a, b, c). Publication pw publishes columns a and c of some of its rows."""
    columns = [Column(0, "a", t.INT4), Column(0, "b", t.TEXT, collation=100), Column(0, "c", t.INT4)]
    with empty_catalog.begin() as transaction:
        cursor, oids = transaction.cursor, empty_catalog.next_oid
        created = definition.create(cursor, oids, database, Definition(2200, "w1", columns, keys=[IndexKey((1,), primary=True)]))
        publication.create(cursor, oids, database, Publication(0, "pw", members=(Member(created.oid, "(a > 5)", "{}", (1, 3)),)))
    return created.oid


def test_relation_file_path_has_the_oids_of_database_and_relation(ask: Ask, database: int, published: int) -> None:
    assert ask(database, "SELECT pg_relation_filepath('w1')") == [(f"base/{database}/{published}",)]
    assert ask(database, "SELECT pg_relation_filepath('pg_views')") == [(None,)], "a view has no file"


def test_limit_over_a_join_is_applied(ask: Ask, database: int) -> None:
    assert len(ask(database, "SELECT 'x' FROM pg_roles LIMIT 2")) == 2
    assert len(ask(database, "SELECT rolname FROM pg_authid a LEFT JOIN pg_db_role_setting s ON s.setrole = 1 LIMIT 1")) == 1


def test_columns_of_constraints_are_found_by_a_join(ask: Ask, database: int, published: int) -> None:
    """A cross join of all columns and all constraints would take ten minutes."""
    used = "SELECT table_name, column_name, constraint_name FROM information_schema.constraint_column_usage WHERE table_schema = 'public'"
    assert ask(database, used) == [("w1", "a", "w1_pkey")]


ANY_OF = [
    ("2", "ARRAY[1, NULL]", None), ("1", "ARRAY[1, NULL]", "t"), ("2", "ARRAY[2]", "t"), ("1", "ARRAY[2]", "f"), ("1", "NULL", None),
    ("1", "'{}'", "f"), ("NULL::int", "ARRAY[2]", None), ("NULL::int", "'{}'", "f"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "array", "expected"), ANY_OF)
def test_any_and_all_of_an_array_with_nulls_are_as_in_postgresql(
    ask: Ask, database: int, value: str, array: str, expected: str | None
) -> None:
    columns = f"(SELECT unnest(ARRAY[{value}]) AS n, {array}::int[] AS a) x"
    opposite = {"t": "f", "f": "t", None: None}[expected]
    assert ask(database, f"SELECT n = ANY (a), n <> ALL (a) FROM {columns}") == [(expected, opposite)]


def test_subscribing_postgresql_gets_the_answers_it_needs(ask: Ask, database: int, published: int) -> None:
    assert ask(database, "SELECT t.pubname FROM\n pg_catalog.pg_publication t WHERE\n t.pubname IN ('pw', 'none')") == [("pw",)]
    tables = "SELECT DISTINCT t.schemaname, t.tablename \n, t.attnames\nFROM pg_catalog.pg_publication_tables t\n WHERE t.pubname IN ('pw')"
    assert ask(database, tables) == [("public", "w1", "{a,c}")]
    relation = (
        "SELECT c.oid, c.relreplident, c.relkind  FROM pg_catalog.pg_class c  INNER JOIN pg_catalog.pg_namespace n"
        "        ON (c.relnamespace = n.oid) WHERE n.nspname = 'public'   AND c.relname = 'w1'"
    )
    assert ask(database, relation) == [(str(published), "d", "r")]
    lists = (
        "SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,"
        "  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = {} AND c.oid = gpt.relid"
        "   AND p.pubname IN ( 'pw' )"
    )
    assert ask(database, lists.format(published)) == [("1 3",)]
    columns = (
        "SELECT a.attnum,       a.attname,       a.atttypid,       a.attnum = ANY(i.indkey)  FROM pg_catalog.pg_attribute a"
        "  LEFT JOIN pg_catalog.pg_index i       ON (i.indexrelid = pg_get_replica_identity_index({0})) WHERE a.attnum > 0::pg_catalog.int2"
        "   AND NOT a.attisdropped AND a.attgenerated = ''   AND a.attrelid = {0} ORDER BY a.attnum"
    )
    assert ask(database, columns.format(published)) == [("1", "a", "23", "t"), ("2", "b", "25", "f"), ("3", "c", "23", "f")]
    filters = (
        "SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt"
        " WHERE gpt.relid = {}   AND p.pubname IN ( 'pw' )"
    )
    assert ask(database, filters.format(published)) == [("(a > 5)",)]


def slots() -> list[tuple[object, ...]]:
    common = (None, None, Lsn(100), Lsn(2**32), "reserved", None, False)
    return [
        ("s1", "pgoutput", "logical", 5, "postgres", False, True, 4711, *common),
        ("s2", "pgoutput", "logical", 5, "postgres", False, False, None, *common),
    ]


def test_any_and_all_of_a_null_array_are_null(ask: Ask, database: int, published: int) -> None:
    keyless = (
        "SELECT a.attnum, a.attnum = ANY (i.indkey), a.attnum <> ALL (i.indkey) FROM pg_attribute a LEFT JOIN pg_index i ON false"
        " WHERE a.attrelid = 'w1'::regclass AND a.attnum = 1"
    )
    assert ask(database, keyless) == [("1", None, None)]


def test_dynamic_relation_has_the_rows_of_its_provider(ask: Ask, database: int) -> None:
    sql = (
        "SELECT slot_name, confirmed_flush_lsn, active FROM pg_replication_slots WHERE confirmed_flush_lsn >= '0/FFFFFFFF' ORDER BY 1 DESC"
    )
    assert ask(database, sql, dynamic={"pg_replication_slots": slots}) == [("s2", "1/0", "f"), ("s1", "1/0", "t")]
    assert ask(database, "SELECT * FROM pg_stat_activity") == []


def test_times_are_shown_in_the_sessions_time_zone(empty_catalog: Catalog, database: int) -> None:
    context = SessionContext(database, "test", "postgres", settings={"TimeZone": "Europe/Berlin"})
    moment = datetime.datetime(2024, 7, 1, 12, 0, 0, 500000, tzinfo=datetime.UTC)
    sql = "SELECT stats_reset FROM pg_stat_replication_slots"
    dynamic = {"pg_stat_replication_slots": lambda: [("s", 0, 0, 0, 0, 0, 0, 0, 0, moment)]}
    [statement] = parse(sql)
    cursor = empty_catalog.cursor()
    result = query.answer(analysed_query(statement.node, context, cursor), context, cursor, dynamic)
    assert [batch.to_pylist() for batch in result] == [[{"0": "2024-07-01 14:00:00.5+02"}]]


def test_function_with_side_effects_is_called_once_per_row(ask: Ask, database: int) -> None:
    killed: list[int] = []

    def kill(pid: int, _timeout: int = 0) -> bool:
        killed.append(pid)
        return True

    sql = "SELECT slot_name, pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
    providers = {"dynamic": {"pg_replication_slots": slots}, "functions": {"pg_terminate_backend": kill}}
    assert ask(database, sql, **providers) == [("s1", "t")]
    assert killed == [4711]


def test_function_with_side_effects_returns_a_row_in_from(ask: Ask, database: int) -> None:
    def create(name: str, plugin: str, temporary: bool = False, twophase: bool = False) -> tuple[str, Lsn]:
        assert (plugin, temporary, twophase) == ("pgoutput", False, True)
        return name, Lsn(0x77)

    functions = {"pg_create_logical_replication_slot": create}
    sql = "SELECT lsn, slot_name FROM pg_create_logical_replication_slot('a', 'pgoutput', twophase => true)"
    assert ask(database, sql, functions=functions) == [("0/77", "a")]
    sql = "SELECT pg_create_logical_replication_slot('a', 'pgoutput', false, true)"
    assert ask(database, sql, functions=functions) == [("(a,0/77)",)]


def test_function_with_side_effects_may_be_inside_an_expression_of_one_row(ask: Ask, database: int) -> None:
    calls: list[str] = []

    def create(name: str) -> int:
        calls.append(name)
        return len(calls)

    functions = {"pg_replication_origin_create": create}
    sql = "SELECT pg_replication_origin_create('a') > 0, pg_replication_origin_create('b'), pg_replication_origin_create('c') > 2"
    assert ask(database, sql, functions=functions) == [("t", "2", "t")]
    assert calls == ["a", "b", "c"]
    with pytest.raises(PostgresError, match="only supported in FROM or as a column of its own"):
        ask(database, "SELECT CASE WHEN false THEN pg_replication_origin_create('d') > 0 END", functions=functions)
    assert len(calls) == 3


def test_bytes_are_encoded_in_the_requested_format(ask: Ask, database: int) -> None:
    sql = "SELECT encode({0}, 'hex'), encode({0}, 'base64'), encode({0}, 'escape') FROM pg_namespace WHERE nspname = 'pg_catalog'"
    assert ask(database, sql.format("'\\x00ff5c41'::bytea")) == [("00ff5c41", "AP9cQQ==", "\\000\\377\\\\A")]


def test_function_that_reads_may_be_anywhere(ask: Ask, database: int) -> None:
    sql = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/10') WHERE pg_current_wal_lsn() > '0/FF'"
    assert ask(database, sql, functions={"pg_current_wal_lsn": lambda: Lsn(0x100)}) == [("240",)]


def test_parameters_are_described_and_used(empty_catalog: Catalog, database: int) -> None:
    sql = "SELECT oid::regtype::text, $2::int + 1 FROM pg_type WHERE typname = $1 AND oid = to_regtype($3)"
    [statement] = parse(sql)
    context, cursor, types = SessionContext(database, "test", "postgres"), empty_catalog.cursor(), dict[int, int]()
    analysed = analysed_query(statement.node, context, cursor, parameters=types, infer=True)
    assert types == {1: t.NAME, 2: t.INT4, 3: t.TEXT}
    assert [(column.name, column.type_oid) for column in query.result_columns(analysed)] == [("oid", t.TEXT), ("?column?", t.INT4)]
    parameters = [Parameter(t.NAME, "int4"), Parameter(t.INT4, "41"), Parameter(0, "integer")]
    result = query.answer(analysed, context, cursor, parameters=parameters)
    assert [batch.to_pylist() for batch in result] == [[{"0": "integer", "1": "42"}]]


@pytest.mark.parametrize(
    ("sql", "sqlstate", "message"),
    [
        ("SELECT nosuch FROM pg_class", "42703", 'column "nosuch" does not exist'),
        ("SELECT * FROM nosuch", "42P01", 'relation "nosuch" does not exist'),
        ("SELECT nosuch(1)", "42883", "function nosuch(integer) does not exist"),
        ("SELECT oid FROM pg_class, pg_type", "42702", 'column reference "oid" is ambiguous'),
        ("SELECT 'x'::int", "22P02", 'invalid input syntax for type integer: "x"'),
        ("SELECT 2147483647 + 1", "22003", "integer out of range"),
        ("SELECT (SELECT oid FROM pg_type)", "21000", "more than one row returned by a subquery used as an expression"),
        ("SELECT relname FROM pg_class WHERE relname", "42804", "argument of WHERE must be type boolean, not type name"),
        ("SELECT * FROM pg_get_publication_tables('nosuch')", "42704", 'publication "nosuch" does not exist'),
    ],
)
def test_errors_are_postgresqls(ask: Ask, database: int, sql: str, sqlstate: str, message: str) -> None:
    with pytest.raises(PostgresError) as caught:
        ask(database, sql)
    assert (caught.value.sqlstate, caught.value.message) == (sqlstate, message)
