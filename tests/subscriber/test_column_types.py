"""Columns of every type, and of domains over them, have the publisher's values after statements, COPY, the initial copy and the stream."""

from __future__ import annotations

import psycopg
import pytest
from tests.subscriber.conftest import READY

KEYS = {
    "boolean": "i % 2 = 0", "int2": "i", "int4": "i", "int8": "i", "float4": "i / 4.0", "float8": "i / 8.0", "numeric": "i * 1.10",
    "numeric(9,2)": "i * 1.10", "text": "'t' || i", "varchar(9)": "'v' || i", "char(5)": "'c' || i", "name": "('n' || i)::name", "bytea": "decode(lpad(to_hex(i), 8, '0'), 'hex')",
    "uuid": "md5(i::text)::uuid", "date": "date '2020-01-01' + i", "timestamp": "timestamp '2020-01-01' + i * interval '1 h'", "timestamptz": "timestamptz '2020-01-01 00:00+00' + i * interval '1 h'",
    "time": "time '00:00' + i * interval '1 s'", "timetz": "timetz '00:00+02' + i * interval '1 s'", "interval": "i * interval '1 h'", "inet": "('10.0.' || i / 256 || '.' || i % 256)::inet",
    "money": "i::money", "varbit": "i::bit(12)", "pg_lsn": "('0/' || to_hex(i))::pg_lsn", "jsonb": "('{\"a\": ' || i || '}')::jsonb", "int4[]": "ARRAY[i, NULL]",
    "int4range": "('[' || i || ',' || i + 5 || ']')::int4range", "tstzrange": "('[\"2020-01-01 00:00:' || i % 60 || '+00\",)')::tstzrange",
}  # fmt: skip
"""Types that a key can have, each with a value for row number i. Composite keys have at most 32 columns."""
BESIDE = {**KEYS, "json": "('{\"a\": ' || i || '}')::json", "nummultirange": "('{[' || i || ',' || i + 1.5 || ')}')::nummultirange"}  # fmt: skip


def definition(table: str, types: dict[str, str], key: str = "") -> str:
    """Return domains over the types, each with a CHECK, and a table with a column of each domain."""
    domains = "".join(
        f"CREATE DOMAIN {table}_{number} AS {kind} CHECK (VALUE IS NULL OR VALUE::text <> 'none');" for number, kind in enumerate(types)
    )
    names = ", ".join(f"c{number}" for number in range(len(types)))
    columns = ", ".join(f"c{number} {table}_{number}" for number in range(len(types)))
    return f"{domains} CREATE TABLE {table} ({columns}, n int, {key or f'PRIMARY KEY ({names})'});"


def rows(table: str, types: dict[str, str], first: int, last: int) -> str:
    """Return an INSERT of this number of rows."""
    return f"INSERT INTO {table} SELECT {', '.join(types.values())}, i FROM generate_series({first}, {last}) i;"


TABLES = {"keyed": KEYS, "beside": BESIDE}
DEFINITIONS = definition("keyed", KEYS) + definition("beside", BESIDE, "PRIMARY KEY (n)")
SHOWN = {table: f"SELECT t::text FROM {table} t ORDER BY n" for table in TABLES}


def same(publisher, subscriber) -> None:
    for table, query in SHOWN.items():
        assert subscriber.rows(query) == publisher.rows(query), table


@pytest.mark.slow
def test_domains_over_every_type_are_copied_and_streamed_in_keys_and_other_columns(publisher, subscriber) -> None:
    publisher.sql(DEFINITIONS + "CREATE PUBLICATION p FOR ALL TABLES;" + "".join(rows(*table, 1, 200) for table in TABLES.items()))
    subscriber.sql(DEFINITIONS)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t", 240)
    same(publisher, subscriber)
    publisher.sql("".join(rows(*table, 201, 400) for table in TABLES.items()))
    publisher.sql("".join(rows(*table, 401, 403) for table in TABLES.items()))
    publisher.sql(
        "UPDATE keyed SET n = n + 1000 WHERE n % 10 = 0; DELETE FROM keyed WHERE n % 10 = 1; UPDATE keyed SET c2 = 7000 WHERE n = 5;"
    )
    publisher.sql("UPDATE beside SET c12 = NULL, c27 = 'empty' WHERE n % 10 = 0; DELETE FROM beside WHERE n % 10 = 1")
    publisher.wait_confirmed(seconds=240)
    same(publisher, subscriber)


@pytest.mark.slow
def test_domains_over_every_type_are_filled_by_copy_and_by_statements(publisher, subscriber) -> None:
    publisher.sql(DEFINITIONS + "".join(rows(*table, 1, 300) for table in TABLES.items()))
    subscriber.sql(DEFINITIONS)
    for table, types in TABLES.items():
        for form, where in (("text", "n <= 200"), ("binary", "n > 200")):
            query = f"COPY (SELECT * FROM {table} WHERE {where}) TO STDOUT (FORMAT {form})"
            with publisher.session.connection.cursor().copy(query) as out:
                data = b"".join(bytes(part) for part in out)
            with subscriber.session.connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT {form})") as into:
                into.write(data)
        for first, last in ((301, 302), (303, 500)):
            publisher.sql(rows(table, types, first, last))
            literals = publisher.rows(f"SELECT t::text FROM {table} t WHERE n BETWEEN {first} AND {last} ORDER BY n")
            assert len(literals) == last - first + 1
            subscriber.sql(rows(table, types, first, last))
    same(publisher, subscriber)


def test_domain_over_bytea_with_a_check_is_copied_and_streamed_in_keys_and_other_columns(publisher, subscriber) -> None:
    definition = "CREATE DOMAIN hash AS bytea CHECK (octet_length(VALUE) = 4); CREATE TABLE t (id hash PRIMARY KEY, other hash, n int);"
    publisher.sql(definition + "CREATE PUBLICATION p FOR TABLE t;")
    added = "INSERT INTO t SELECT decode(lpad(to_hex(i), 8, '0'), 'hex'), decode(lpad(to_hex(i * 7), 8, '0'), 'hex'), i FROM generate_series({}, {}) i"
    publisher.sql(added.format(1, 200))
    subscriber.sql(definition)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql(added.format(201, 400) + "; UPDATE t SET other = NULL WHERE n % 10 = 0; DELETE FROM t WHERE n % 10 = 1")
    publisher.wait_confirmed()
    query = "SELECT t::text FROM t ORDER BY n"
    assert subscriber.rows(query) == publisher.rows(query)


@pytest.mark.slow
def test_constraint_of_a_domain_that_one_of_many_rows_violates_is_named(subscriber) -> None:
    subscriber.sql("CREATE DOMAIN hash AS bytea CHECK (octet_length(VALUE) = 4); CREATE TABLE t (id hash PRIMARY KEY, other hash)")
    refused = (
        "INSERT INTO t SELECT decode(lpad(to_hex(i), 8, '0'), 'hex'), decode(repeat('00', i / 200), 'hex') FROM generate_series(1, 300) i"
    )
    with pytest.raises(psycopg.errors.CheckViolation, match='value for domain hash violates check constraint "hash_check"'):
        subscriber.sql(refused)
    with pytest.raises(psycopg.errors.NotNullViolation) as raised:
        subscriber.sql(
            "INSERT INTO t SELECT CASE WHEN i < 300 THEN decode(lpad(to_hex(i), 8, '0'), 'hex') END FROM generate_series(1, 300) i"
        )
    assert raised.value.diag.message_detail == "Failing row contains (null, null)."
    assert subscriber.sql("SELECT count(*) FROM t") == "0"


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE u (a regclass)",
        "CREATE TABLE u (a tid[])",
        "ALTER TABLE t ADD COLUMN a regtype",
        "ALTER TABLE t ALTER COLUMN v TYPE regclass USING NULL",
        "CREATE DOMAIN d AS regproc",
        "CREATE TABLE u AS SELECT 'pg_class'::regclass AS a",
    ],
)
def test_column_of_an_unsupported_type_is_rejected(subscriber, statement: str) -> None:
    subscriber.sql("CREATE TABLE t (v text)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"columns of type \S+ are not supported"):
        subscriber.sql(statement)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TYPE pair ADD ATTRIBUTE c int", 'cannot alter type "pair" because column "t.v" uses it'),
        ("ALTER TYPE pair RENAME ATTRIBUTE a TO c", 'cannot alter type "pair" because column "t.v" uses it'),
        ("CREATE TYPE other AS (a positive)", "attributes of domains with constraints are not supported"),
        ("CREATE TYPE other AS (a regclass)", "columns of type regclass are not supported"),
        ("SELECT '{0}'::positive[]", "arrays of domains with constraints are not supported"),
        ("SELECT a::above_zero[] FROM (VALUES (array[0])) v(a)", "arrays of domains with constraints are not supported"),
    ],
)
def test_unsupported_use_of_a_user_defined_type_is_rejected(subscriber, statement: str, message: str) -> None:
    subscriber.sql("CREATE TYPE pair AS (a int, b int); CREATE TABLE t (v pair[]); CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    subscriber.sql("CREATE DOMAIN above_zero AS positive")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=message):
        subscriber.sql(statement)
