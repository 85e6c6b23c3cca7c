"""The unique keys of the catalogs, and how a transaction claims a key before it writes it.

DuckDB's catalog tables have no indexes (`physical`), and two transactions that each look a name up and then insert it do not see each
other. So `physical.insert` and `physical.update` claim each key before they write it. The cursor of a transaction has a method `claim`
(`storage.transaction.recorded_catalog`), which waits for any transaction that has claimed the key, as PostgreSQL's unique index does,
and raises `violation` if the key has been committed since. Other cursors (initdb, `Catalog.change`) do not have the method and claim
nothing.

The indexes are those of PostgreSQL, from the rows of pg_index that tools/dump_catalog.py dumped from a real server. Omitted are indexes
on oid, because an oid is never assigned twice, and those of pg_attribute, because a relation has many columns and a transaction that
writes them holds the relation alone.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headgate.errors import PostgresError
from headgate.initial_catalog.rows import rows

_UNCLAIMED = {"pg_attribute"}


class CatalogKey(NamedTuple):
    """A key of a unique index, in a database (0: in a shared catalog)."""

    database: int
    constraint: str
    values: tuple[Hashable, ...]


@dataclass(frozen=True)
class UniqueIndex:
    """A unique index of a catalog. `shared` means that all databases share the catalog."""

    name: str
    catalog: str
    columns: tuple[str, ...]
    shared: bool

    def key(self, row: Mapping[str, Any]) -> CatalogKey:
        """Return the key of a row, which has at least the index's columns, and `dbid` unless the catalog is shared."""
        return CatalogKey(0 if self.shared else row["dbid"], self.name, tuple([_hashable(row[column]) for column in self.columns]))


def _hashable(value: object) -> Hashable:
    """Return a value in hashable form. The argument types of a function are a list."""
    return tuple(value) if isinstance(value, list) else value


@functools.cache
def indexes() -> Mapping[str, tuple[UniqueIndex, ...]]:
    """Return the indexes whose keys are claimed, by catalog, in the order in which PostgreSQL checks them."""
    classes = {row["oid"]: row for row in rows("pg_class", "oid", "relname", "relisshared")}
    names = {(row["attrelid"], row["attnum"]): row["attname"] for row in rows("pg_attribute", "attrelid", "attnum", "attname")}
    by_catalog: dict[str, tuple[UniqueIndex, ...]] = {}
    for row in sorted(rows("pg_index", "indexrelid", "indrelid", "indisunique", "indkey"), key=lambda entry: entry["indexrelid"]):
        catalog = classes[row["indrelid"]]
        columns = tuple(names[row["indrelid"], attnum] for attnum in row["indkey"])
        if row["indisunique"] and columns != ("oid",) and catalog["relname"] not in _UNCLAIMED:
            index = UniqueIndex(classes[row["indexrelid"]]["relname"], catalog["relname"], columns, catalog["relisshared"])
            by_catalog[index.catalog] = (*by_catalog.get(index.catalog, ()), index)
    return by_catalog


@functools.cache
def _by_name() -> Mapping[str, UniqueIndex]:
    return {index.name: index for catalog_indexes in indexes().values() for index in catalog_indexes}


def row_key(database: int, catalog: str, oid: int) -> CatalogKey:
    """Return the key of an object's row. A transaction claims it to change the object."""
    return CatalogKey(database, f"{catalog}_oid_index", (oid,))


def of_columns(catalog: str, columns: Collection[str]) -> list[UniqueIndex]:
    return [index for index in indexes().get(catalog, ()) if not set(index.columns).isdisjoint(columns)]


def keys(catalog: str, row: Mapping[str, Any]) -> list[CatalogKey]:
    """Return the keys of a row (see `UniqueIndex.key`)."""
    return [index.key(row) for index in indexes().get(catalog, ())]


def lookup(key: CatalogKey) -> tuple[str, list[object]]:
    """Return the query for the row that has a key, and its parameters."""
    index = _by_name()[key.constraint]
    scope = () if index.shared else ("dbid",)
    condition = " AND ".join(f"{column} = ?" for column in (*index.columns, *scope))
    values: list[object] = [list(value) if isinstance(value, tuple) else value for value in key.values]
    parameters = [*values, key.database] if scope else values
    return f"SELECT 1 FROM hg.{index.catalog} WHERE {condition} LIMIT 1", parameters


def violation(key: CatalogKey) -> PostgresError:
    """Return the error of PostgreSQL's index for a duplicate key."""
    index = _by_name()[key.constraint]
    values = ", ".join(str(value) for value in key.values)
    return PostgresError(
        "23505",
        f'duplicate key value violates unique constraint "{index.name}"',
        detail=f"Key ({', '.join(index.columns)})=({values}) already exists.",
        schema="pg_catalog",
        table=index.catalog,
        constraint=index.name,
    )
