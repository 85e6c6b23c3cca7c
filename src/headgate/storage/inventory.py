"""The tables of a node as of one LSN, for readers of their files: their names, paths and Delta versions.

Called by `headgate.snapshot()` (the tables that a session may read, as its statement sees them) and by ``headgate tables`` (all of a node).
Partitioned tables have no files of their own: their leaves are listed. Temporary tables belong to a session and are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headgate.catalog import database as databases
from headgate.catalog import known_types
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.storage.delta import delta_log
from headgate.storage.delta.table_state import TableState
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import OWN, Key, TableFolders
from headgate.storage.transaction.log import TableVersion


@dataclass(frozen=True)
class InventoryTable:
    """One table. `columns`: name and type of each, as PostgreSQL spells the type."""

    database: str
    schema: str
    name: str
    oid: int
    path: DataPath
    version: int
    columns: tuple[tuple[str, str], ...]


LOG_TABLE = (OWN, "log")
"""The path of `log_table` below the folder of the tables."""


def log_table(base: DataPath) -> DataPath:
    """Return the folder of the table of the transaction log."""
    return base / LOG_TABLE[0] / LOG_TABLE[1]


def tables(cursor: Cursor, folders: TableFolders, versions: Mapping[Key, TableVersion], only: str | None) -> Iterator[InventoryTable]:
    """Yield the tables with a version, of all databases or of one (3D000). `cursor`: the catalog as of the same LSN, or later."""
    for database in sorted(
        databases.all_databases(cursor) if only is None else [databases.get(cursor, only)], key=lambda database: database.name
    ):
        yield from of_database(cursor, folders, versions, database.oid, database.name)


def of_database(
    cursor: Cursor,
    folders: TableFolders,
    versions: Mapping[Key, TableVersion],
    database: int,
    name: str,
    among: Iterable[Relation] | None = None,
) -> Iterator[InventoryTable]:
    """Yield the tables of one database. `among`: its relations as of the LSN of the versions, by default those of the cursor."""
    types = known_types.registry_of(cursor, database, None)
    relation_list = relations.all_tables(cursor, database, {RelationKind.TABLE}) if among is None else among
    tables_of_database = [table for table in relation_list if table.kind is RelationKind.TABLE and table.persistence != "t"]
    for table in sorted(tables_of_database, key=lambda table: (table.schema, table.name)):
        key = (database, table.oid)
        if key in versions:
            columns = tuple((column.name, types.format_type(column.type_oid, column.typmod)) for column in table.columns)
            yield InventoryTable(name, table.schema, table.name, table.oid, folders.path(key).absolute(), versions[key].version, columns)


def size(path: DataPath, version: int) -> tuple[int, int]:
    """Return the rows and bytes of the data files of a table at a version. Raises as `delta_log.read_state` does."""
    state = TableState.of(version, *delta_log.read_state(path, version))
    return state.rows, sum(int(add["size"]) for add in state.files.values())
