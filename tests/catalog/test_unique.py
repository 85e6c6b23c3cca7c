"""The claimed keys are those of PostgreSQL's unique indexes."""

from __future__ import annotations

import psycopg
from tests.conftest import Server

from headgate.catalog import physical, unique


def test_indexes_are_those_of_a_real_server_in_its_order(postgres: Server) -> None:
    with psycopg.connect(postgres.conninfo()) as session:
        index_rows = session.execute(
            "SELECT i.relname, c.relname, c.relisshared, array_agg(a.attname::text ORDER BY k.place) FROM pg_index x"
            " JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid,"
            " unnest(x.indkey::int2[]) WITH ORDINALITY k(number, place) JOIN pg_attribute a ON a.attnum = k.number"
            " WHERE a.attrelid = x.indrelid AND x.indisunique AND c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r'"
            " GROUP BY i.oid, i.relname, c.relname, c.relisshared ORDER BY i.oid"
        ).fetchall()
    expected: dict[str, list[unique.UniqueIndex]] = {}
    for name, catalog, shared, columns in index_rows:
        if columns != ["oid"] and catalog != "pg_attribute":
            expected.setdefault(catalog, []).append(unique.UniqueIndex(name, catalog, tuple(columns), shared))
    assert {catalog: list(catalog_indexes) for catalog, catalog_indexes in unique.indexes().items()} == expected


def test_each_index_has_columns_of_its_catalog() -> None:
    for catalog, indexes in unique.indexes().items():
        columns = {column.name for column in physical.tables()[catalog].columns}
        for index in indexes:
            assert columns.issuperset(index.columns)
            assert index.shared == physical.tables()[catalog].shared
