"""The unique keys of the catalogs: which there are, and how who writes one claims it for its transaction.

DuckDB's tables of the catalogs have no indexes (`physical`), and two transactions that each look a name up and then insert it see nothing
of each other. So `physical.insert` and `physical.update` claim each key before they write it: the cursor of a transaction has a method
`claim` (`storage.transaction.catalog_transaction`), which waits for whoever else has claimed the key, as PostgreSQL's unique index does,
and raises `violation` where the key has been committed since. Other cursors (initdb, `Catalog.change`) have none, and claim nothing.

The indexes are those of PostgreSQL, from the rows of pg_index that tools/dump_catalog.py took from a real server. Left out are those of
oids, which are never given twice, and those of pg_attribute: a relation has many columns, and who writes them has the relation for himself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.errors import PostgresError
from headgate.initial_catalog.rows import rows

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor

_UNCLAIMED = {"pg_attribute"}


class CatalogKey(NamedTuple):
    """A key of a unique index, in a database (0: in a catalog that all share)."""

    database: int
    constraint: str
    values: tuple[Hashable, ...]


@dataclass(frozen=True)
class UniqueIndex:
    """A unique index of a catalog; `shared`: the catalog is one for all databases."""

    name: str
    catalog: str
    columns: tuple[str, ...]
    shared: bool

    def key(self, row: Mapping[str, Any]) -> CatalogKey:
        """The key of a row, which has at least these columns, and `dbid` where the catalog is not shared."""
        return CatalogKey(0 if self.shared else row["dbid"], self.name, tuple([_hashable(row[column]) for column in self.columns]))


def _hashable(value: Any) -> Any:
    """A value as part of a key: the argument types of a function are a list."""
    return tuple(value) if isinstance(value, list) else value


@functools.cache
def indexes() -> Mapping[str, tuple[UniqueIndex, ...]]:
    """By catalog the indexes whose keys are claimed, in the order in which PostgreSQL looks at them."""
    classes = {row["oid"]: row for row in rows("pg_class", "oid", "relname", "relisshared")}
    names = {(row["attrelid"], row["attnum"]): row["attname"] for row in rows("pg_attribute", "attrelid", "attnum", "attname")}
    found: dict[str, tuple[UniqueIndex, ...]] = {}
    for row in sorted(rows("pg_index", "indexrelid", "indrelid", "indisunique", "indkey"), key=lambda each: each["indexrelid"]):
        catalog = classes[row["indrelid"]]
        columns = tuple(names[row["indrelid"], attnum] for attnum in row["indkey"])
        if row["indisunique"] and columns != ("oid",) and catalog["relname"] not in _UNCLAIMED:
            index = UniqueIndex(classes[row["indexrelid"]]["relname"], catalog["relname"], columns, catalog["relisshared"])
            found[index.catalog] = (*found.get(index.catalog, ()), index)
    return found


@functools.cache
def _by_name() -> Mapping[str, UniqueIndex]:
    return {index.name: index for each in indexes().values() for index in each}


def row_key(database: int, catalog: str, oid: int) -> CatalogKey:
    """The key of the row of an object: who claims it changes the object."""
    return CatalogKey(database, f"{catalog}_oid_index", (oid,))


def of_columns(catalog: str, columns: Collection[str]) -> list[UniqueIndex]:
    """The indexes in which one of the columns is."""
    return [index for index in indexes().get(catalog, ()) if not set(index.columns).isdisjoint(columns)]


def keys(catalog: str, row: Mapping[str, Any]) -> list[CatalogKey]:
    """The keys of a row (see `UniqueIndex.key`)."""
    return [index.key(row) for index in indexes().get(catalog, ())]


def claiming(cursor: CatalogCursor) -> Callable[[CatalogKey], None] | None:
    """How keys are claimed that are written with a cursor; None for one outside of a transaction."""
    return cursor.claim


def is_committed(cursor: CatalogCursor, key: CatalogKey) -> bool:
    """Whether the catalog as the cursor sees it has a row with the key."""
    index = _by_name()[key.constraint]
    scope = () if index.shared else ("dbid",)
    condition = " AND ".join(f"{column} = ?" for column in (*index.columns, *scope))
    parameters = [*(list(each) if isinstance(each, tuple) else each for each in key.values), *((key.database,) if scope else ())]
    return bool(cursor.execute(f"SELECT 1 FROM hg.{index.catalog} WHERE {condition} LIMIT 1", parameters).fetchall())


def violation(key: CatalogKey) -> PostgresError:
    """What PostgreSQL's index says to a key that is there."""
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
