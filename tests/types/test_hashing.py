"""Hash partitioning routes rows as PostgreSQL does, and hashtext is PostgreSQL's, because every type's hash function is equal bit for bit."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.types import registry as r
from headgate.types.comparable import comparable
from headgate.types.hashing import HASHED, partition_hash, plain_hash
from headgate.types.text.text import read_text

VALUES = {
    "bool": ["t", "f"],
    "int2": ["0", "1", "-1", "32767"],
    "int4": ["0", "1", "-1", "2147483647", "-2147483648"],
    "int8": ["0", "1", "-1", "9223372036854775807", "-9223372036854775808", "4294967296", "-4294967297"],
    "oid": ["0", "4294967295"],
    "xid8": ["0", "1", "4294967296", "18446744073709551615"],
    "date": ["2020-01-01", "1999-12-31", "0001-01-01"],
    "timestamp": ["2020-01-01 10:00:00.123456", "1900-01-01 00:00:00"],
    "timestamptz": ["2020-01-01 10:00:00.123456+00", "1999-12-31 00:00:00+00"],
    "time": ["10:00:00.5", "00:00:00", "23:59:59.999999"],
    "float4": ["0", "-0", "1.5", "-2.1", "NaN", "Infinity"],
    "float8": ["0", "-0", "1.5", "-2.25", "NaN", "-Infinity"],
    "text": ["", "a", "abcdefgh", "abcdefghijk", "abcdefghijkl", "abcdefghijklm", "äöü" * 20, "x" * 36],
    "varchar": ["", "hello world how are you"],
    "name": ["hello world"],
    "bpchar": ["abc   ", "abc", "", "x" * 13 + "  "],
    "bytea": ["\\x", "\\x00ff01", "\\x" + "ab" * 30],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "numeric": [
        "0",
        "0.00",
        "1.50",
        "1.5",
        "10000",
        "100000000",
        "-12345.6789",
        "0.00001234",
        "1234567890123456789.12",
        "NaN",
        "-Infinity",
    ],
}
MODULUS = 1_000_003


def test_every_hashed_type_is_tested() -> None:
    assert {r.by_name(name).oid for name in VALUES} == HASHED


def test_each_value_has_postgresqls_remainder(postgres: Any) -> None:
    wrong = []
    with psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as native:
        for name, values in VALUES.items():
            oid = r.by_name(name).oid
            native.execute(f"CREATE TABLE of_{name} (a {name}) PARTITION BY HASH (a)")
            for value, number in zip(values, partition_hash([(read_text(pa.array(values), oid), oid)]), strict=True):
                sql = f"SELECT satisfies_hash_partition('of_{name}'::regclass, {MODULUS}, {int(number) % MODULUS}, %s::{name})"
                if native.execute(sql, [value]).fetchone() != (True,):
                    wrong.append((name, value))
    assert not wrong


@pytest.mark.parametrize("name", ["text", "int2", "int4", "int8"])
def test_plain_hash_of_each_value_is_postgresqls(postgres: Any, name: str) -> None:
    oid = r.by_name(name).oid
    with psycopg.connect(postgres.conninfo(postgres.new_database())) as native:
        sql = f"SELECT array_agg(hash{name}(value) ORDER BY place) FROM unnest(%s::{name}[]) WITH ORDINALITY AS u (value, place)"
        expected = native.execute(sql, [VALUES[name]]).fetchone()
    assert expected == (plain_hash(oid, read_text(pa.array(VALUES[name]), oid)).to_pylist(),)


def test_hashes_of_several_columns_are_combined_and_nulls_skipped(postgres: Any) -> None:
    rows = [(1, "x"), (None, "y"), (3, None), (None, None)]
    numbers = pa.array([number for number, _ in rows], pa.int32())
    texts = pa.array([text for _, text in rows], pa.string())
    hashes = partition_hash([(numbers, r.INT4), (texts, r.TEXT)])
    with psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as native:
        native.execute("CREATE TABLE two (a int, b text) PARTITION BY HASH (a, b)")
        for row, number in zip(rows, hashes, strict=True):
            sql = f"SELECT satisfies_hash_partition('two'::regclass, {MODULUS}, {int(number) % MODULUS}, %s::int, %s::text)"
            assert native.execute(sql, row).fetchone() == (True,)


@pytest.mark.parametrize("name", ["numeric", "float8", "time", "text", "interval", "inet"])
def test_values_are_ordered_as_in_postgresql(postgres: Any, name: str) -> None:
    values_of_type = {
        "numeric": [
            "0",
            "-0.5",
            "1.5",
            "1.50",
            "10000",
            "9999.9999",
            "-10000",
            "NaN",
            "Infinity",
            "-Infinity",
            "-1.51",
            "0.0001",
            "99999999",
        ],
        "float8": ["NaN", "0", "-0", "1.5", "-Infinity", "Infinity"],
        "time": ["10:00:00.5", "00:00:00", "09:59:59"],
        "text": ["b", "a", "A", "", "aa", "é"],
        "interval": ["1 month", "30 days", "24:00:00", "1 day", "-1 day"],
        "inet": ["10.0.0.1", "10.0.0.0/8", "::1", "192.168.0.1/24"],
    }[name]
    oid = r.by_name(name).oid
    collation = ' COLLATE "C"' if name == "text" else ""
    sql = f"SELECT dense_rank() OVER (ORDER BY v::{name}{collation}) FROM unnest(%s::text[]) WITH ORDINALITY u (v, n) ORDER BY n"
    with psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as native:
        expected = [rank for (rank,) in native.execute(sql, [values_of_type]).fetchall()]
    [column] = comparable([read_text(pa.array(values_of_type), oid)], oid)
    assert pc.rank(column, tiebreaker="dense").to_pylist() == expected
