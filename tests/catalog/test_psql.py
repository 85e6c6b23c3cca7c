"""psql's commands print the same on the catalog as on a real PostgreSQL 15 with the same objects."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from headgate.catalog import namespace
from headgate.catalog.catalog import Catalog
from headgate.catalog.relation import definition, pg_class
from headgate.catalog.relation.constraint import NewCheck
from headgate.catalog.relation.definition import Definition
from headgate.catalog.relation.index import IndexKey
from headgate.catalog.relation.relation import Column
from headgate.catalog.replication import publication, subscription
from headgate.catalog.replication.publication import Member, Publication
from headgate.types import registry as t

OBJECTS = """
CREATE SCHEMA sales;
CREATE TABLE t1 (a int PRIMARY KEY, b text DEFAULT 'x', c numeric(10,2), d varchar(20) NOT NULL);
CREATE TABLE sales.items (id bigint PRIMARY KEY, price numeric(10,2), ts timestamptz, UNIQUE (price, id));
CREATE TABLE "Odd Name" ("Col A" int, b bool, CHECK (b), CHECK ("Col A" > 5));
CREATE TABLE defs (a int DEFAULT 1, g int GENERATED ALWAYS AS (a * 2) STORED, k varchar(5) DEFAULT 'v');
ALTER TABLE sales.items REPLICA IDENTITY FULL;
CREATE PUBLICATION p1 FOR TABLE t1 (a, d) WHERE (a < 10), sales.items;
CREATE PUBLICATION p2 FOR TABLES IN SCHEMA sales WITH (publish_via_partition_root);
CREATE PUBLICATION p3 FOR ALL TABLES WITH (publish = 'insert');
CREATE PUBLICATION p4;
CREATE SUBSCRIPTION s1 CONNECTION 'host=x' PUBLICATION p1, "P 2" WITH (connect = false, enabled = false);
"""

COMMANDS = [
    r"\d", r"\dt", r"\dt *.*items", r"\d t1", r"\d+ t1", r"\d sales.items", r"\d+ sales.items", r'\d "Odd Name"', r"\d defs", r"\dRp",
    r"\dRp+", r"\dRp+ p1", r"\dRp p*", r"\dRs", r"\dRs+", r"\dRs s*", r"\dn", r"\dn+", r"\dn sales", r"\di", r"\df", r"\dT", r"\dp", r"\ds",
    r"\dv", r"\dd", r"\dX", r"\dO", r"\dS pg_cl*", r"\df format_type", r"\dT+ int4", r"\d nosuch", r"\d t1_pkey", r"\d pg_class",
    r"\d pg_publication_tables", r"\dC int4", r"\do =", r"\dAc btree int4",
    "select * from pg_publication_tables order by 1, 2, 3",
    "select * from pg_tables where schemaname in ('public', 'sales') order by 1, 2",
    "select * from pg_indexes where schemaname in ('public', 'sales') order by 1, 2, 3",
    "select table_name, column_name, column_default, is_nullable, data_type, character_maximum_length, numeric_precision, udt_name,"
    " generation_expression from information_schema.columns where table_schema in ('public', 'sales') order by 1, ordinal_position",
    "select table_schema, table_name, table_type from information_schema.tables where table_schema in ('public', 'sales') order by 1, 2",
    "select relname, 5 from pg_class where nosuch = 1",
    "select relname = 5 from pg_class",
    "select * from nosuch",
    "select nosuch(1)",
    "select 'nosuch'::regclass",
    "select 1/0",
    "select 'x', 1 + 2 as \"Sum\", null, true, array[1, null], row(1, 'a b'), '0/16B3748'::pg_lsn - '0/0', 1.50 * 2, 7 / 2",
    "select relkind, count(*) from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind in ('r', 'v')"
    " group by 1 order by 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def both(postgres: Any, empty_catalog: Catalog) -> tuple[str, int]:
    name = postgres.new_database()
    postgres.psql(name, OBJECTS)
    oids = empty_catalog.next_oid
    database = oids()
    from headgate.catalog import database as databases

    with empty_catalog.begin() as transaction:
        cursor = transaction.cursor
        databases.create(cursor, database, name, 10)
        sales = namespace.create(cursor, oids(), database, "sales", 10).oid
        t1 = definition.create(cursor, oids, database, Definition(2200, "t1", [
            Column(0, "a", t.INT4), Column(0, "b", t.TEXT, default="'x'::text", collation=100), Column(0, "c", t.NUMERIC, 655366),
            Column(0, "d", t.VARCHAR, 24, not_null=True, collation=100)], keys=[IndexKey((1,), primary=True)]))  # fmt: skip
        items = definition.create(cursor, oids, database, Definition(sales, "items", [
            Column(0, "id", t.INT8), Column(0, "price", t.NUMERIC, 655366), Column(0, "ts", t.TIMESTAMPTZ)],
            keys=[IndexKey((1,), primary=True), IndexKey((2, 1))]))  # fmt: skip
        definition.create(cursor, oids, database, Definition(2200, "Odd Name", [Column(0, "Col A", t.INT4), Column(0, "b", t.BOOL)],
            checks=[NewCheck("b", attnums=(2,)), NewCheck('("Col A" > 5)', attnums=(1,))]))  # fmt: skip
        definition.create(cursor, oids, database, Definition(2200, "defs", [
            Column(0, "a", t.INT4, default="1"), Column(0, "g", t.INT4, generated="(a * 2)"),
            Column(0, "k", t.VARCHAR, 9, default="'v'::character varying", collation=100)]))  # fmt: skip
        pg_class.set_replica_identity(cursor, items, "f")
        members = (Member(t1.oid, "(a < 10)", "{}", (1, 4)), Member(items.oid))
        publication.create(cursor, oids, database, Publication(0, "p1", members=members))
        publication.create(cursor, oids, database, Publication(0, "p2", schemas=(sales,), via_root=True))
        publication.create(cursor, oids, database, Publication(0, "p3", all_tables=True, update=False, delete=False, truncate=False))
        publication.create(cursor, oids, database, Publication(0, "p4"))
        subscription.create(
            cursor, subscription.Subscription(oids(), database, "s1", 10, "host=x", ("p1", "P 2"), enabled=False, slot_name="s1")
        )
    return name, database


@pytest.mark.parametrize("command", COMMANDS)
def test_psql_prints_the_same_as_on_postgresql(
    both: tuple[str, int], postgres: Any, catalog_psql: Callable[..., str], command: str
) -> None:
    name, database = both
    completed = subprocess.run(
        ["psql", "-X", "-d", postgres.conninfo(name), "-v", "HIDE_TABLEAM=on", "-c", command], capture_output=True, text=True
    )
    assert catalog_psql(database, command) == f"=== {command}\n{completed.stdout}{completed.stderr}"
