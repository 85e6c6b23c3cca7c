"""``headgate tables``: lists the tables of a node for programs that read their files: path, Delta version, LSN, rows, bytes, columns.

Called by `main`. A running node returns them over a connection (LIST_TABLES), all as of one LSN. For a stopped node, a copy of the
catalog is read. Rows and bytes come from the tables' own logs, read here without Spark. Exit code 1 if the node cannot be queried.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from headgate.catalog.catalog import Catalog
from headgate.cli import control, initdb, pidfile, session
from headgate.cli.message import out
from headgate.cli.registration.external_catalog import registered
from headgate.cli.run import read_settings
from headgate.errors import PostgresError
from headgate.storage import inventory
from headgate.storage.delta import delta_log
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import TableFolders
from headgate.storage.transaction.log import TransactionLog
from headgate.walreceiver.connection import literal


class ListedColumn(TypedDict):
    """A column and its type in PostgreSQL's notation."""

    name: str
    type: str


class ListedTable(TypedDict):
    """A table in its JSON form. Its size is read last, and is unknown if its log cannot be read."""

    database: str
    schema: str
    name: str
    oid: int
    path: str
    version: int
    lsn: str
    columns: list[ListedColumn]
    rows: NotRequired[int | None]
    bytes: NotRequired[int | None]


def tables(
    data_dir: Path, command_line: Mapping[str, str], username: str | None, database: str | None, *, as_json: bool, as_sql: bool
) -> None:
    """Print the tables of a node, or of one database of it."""
    control.check_directory(data_dir)
    settings = read_settings(data_dir, command_line)
    if pidfile.alive(data_dir):
        tables_of_node = _of_running(data_dir, username, database)
    else:
        tables_of_node = _of_stopped(data_dir, settings, database)
    listed = list(tables_of_node)
    if as_sql:
        for line in statements([(table["database"], table["schema"], table["name"], table["path"]) for table in listed]):
            out(line)
        return
    for table in listed:
        table["rows"], table["bytes"] = _size(data_location.at(table["path"], settings), table["version"])
    if as_json:
        out(json.dumps(listed, indent=2))
    else:
        _print(listed)


def _of_running(data_dir: Path, username: str | None, database: str | None) -> Iterator[ListedTable]:
    with session.opened(data_dir, username) as opened:
        command = "LIST_TABLES" if database is None else f"LIST_TABLES {literal(database)}"
        for base, schema, name, oid, path, version, lsn, columns in opened.execute(command.encode()).fetchall():
            yield _row(base, schema, name, int(oid), path, int(version), lsn, json.loads(columns))


def _of_stopped(data_dir: Path, settings: Mapping[str, str], database: str | None) -> Iterator[ListedTable]:
    """Return the tables of a stopped node, from a copy of the catalog, so that the directory is not changed."""
    with pidfile.occupied(data_dir), tempfile.TemporaryDirectory(prefix="headgate-tables-") as folder:
        for file in data_dir.glob(f"{initdb.CATALOG}*"):
            shutil.copyfile(file, Path(folder) / file.name)
        catalog = Catalog.open(Path(folder) / initdb.CATALOG)
        try:
            log = TransactionLog(catalog)
            folders = TableFolders(data_location.base(settings, data_dir))
            for table in inventory.tables(catalog.cursor(), folders, log.versions(), database):
                yield _row(table.database, table.schema, table.name, table.oid, str(table.path), table.version, str(log.end), table.columns)
        finally:
            catalog.close()


def _row(
    database: str, schema: str, name: str, oid: int, path: str, version: int, lsn: str, columns: Iterable[tuple[str, str]]
) -> ListedTable:
    return {
        "database": database, "schema": schema, "name": name, "oid": oid, "path": path, "version": version, "lsn": lsn,
        "columns": [{"name": column, "type": kind} for column, kind in columns],
    }  # fmt: skip


def _size(path: DataPath, version: int) -> tuple[int | None, int | None]:
    """Return rows and bytes. They are unknown if a table's log cannot be read, or cannot be read without Delta itself."""
    try:
        return inventory.size(path, version)
    except (PostgresError, OSError, delta_log.ForeignFeature):
        return None, None


def _print(listed: list[ListedTable]) -> None:
    out(f"Tables: {len(listed)}" + (f" (as of LSN {listed[0]['lsn']})" if listed else ""))
    for table in listed:
        rows, count = table.get("rows"), table.get("bytes")
        size = "unknown: its log cannot be read" if rows is None else f"{rows:,} in {count:,} bytes"
        out(f"\n{table['schema']}.{table['name']} (database {table['database']})")
        out(f"  path     {table['path']}")
        out(f"  version  {table['version']}")
        out(f"  rows     {size}")
        out(f"  columns  {', '.join(column['name'] + ' ' + column['type'] for column in table['columns']) or 'none'}")


def statements(tables: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    """Return the SQL that registers tables in Spark's catalog or in a Hive metastore, from their (database, schema, name, path).

    A table's schema is called ``database_schema``. A table's folder never changes. So a table that is renamed on the node is registered
    again under its new name, and no file moves (decision 0010).
    """
    created: set[str] = set()
    names = registered([(database, schema, name) for database, schema, name, _ in tables])
    for (schema, name), (*_, path) in zip(names, tables, strict=True):
        if schema not in created:
            created.add(schema)
            yield f"CREATE SCHEMA IF NOT EXISTS `{schema}`;"
        yield f"CREATE TABLE IF NOT EXISTS `{schema}`.`{name}` USING delta LOCATION {_literal(f'file://{path}')};"


def _literal(text: str) -> str:
    """Return a string literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
