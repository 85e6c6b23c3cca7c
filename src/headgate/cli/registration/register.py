"""``headgate register``: keep external tables of a catalog in step with the tables that a publication of a node names.

Called by `main`. A round compares the published tables with the tables that earlier rounds have registered from the same publication. It
registers new tables, and tables whose columns or location have changed, and removes those that are no longer published. A table of that
name that this command has not registered stays as it is, and is reported. The catalog contains the tables' files with all rows and
columns: the publication only names the tables.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.cli import control, session
from headgate.cli.message import err, fail, out
from headgate.cli.registration.external_catalog import (
    DEFINITION,
    SOURCE,
    CatalogError,
    ExternalCatalog,
    ExternalTable,
    registered,
)
from headgate.cli.run import read_settings
from headgate.errors import PostgresError
from headgate.storage.delta import delta_log
from headgate.storage.location import data_location
from headgate.walreceiver.connection import literal

FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0
"""The seconds before a failed round is repeated: twice as many after each further failure."""


@dataclass(frozen=True)
class RegisterOptions:
    """The options of the command. `target`: the address of a Hive metastore or of Unity Catalog, or the account of Glue."""

    catalog: str
    target: str | None
    publication: str
    database: str
    username: str | None = None
    interval: float = 10.0
    once: bool = False


@dataclass(frozen=True)
class _Published:
    """A published table: its name, folder, version and columns as the node lists them."""

    schema: str
    name: str
    path: str
    version: int
    columns: str


def register(data_dir: Path, command_line: Mapping[str, str], options: RegisterOptions) -> None:
    """Run rounds until the process is ended; with `once`, one round."""
    control.check_directory(data_dir)
    settings = read_settings(data_dir, command_line)
    delay = FIRST_DELAY
    while True:
        try:
            with contextlib.closing(_open_catalog(options)) as catalog:
                while True:
                    _round(data_dir, settings, options, catalog)
                    if options.once:
                        return
                    delay = FIRST_DELAY
                    time.sleep(options.interval)
        except (CatalogError, PostgresError) as error:
            failure = error.message if isinstance(error, PostgresError) else str(error)
        if options.once:
            fail(failure)
        err(f"headgate: {failure}; retrying in {delay:g} s")
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY)


def _open_catalog(options: RegisterOptions) -> ExternalCatalog:
    if options.catalog == "glue":
        from headgate.cli.registration.glue import Glue

        return Glue(options.target)
    assert options.target is not None
    if options.catalog == "unity":
        from headgate.cli.registration.unity import UnityCatalog

        return UnityCatalog(options.target)
    from headgate.cli.registration.hive_metastore import HiveMetastore

    return HiveMetastore(options.target)


def _round(data_dir: Path, settings: Mapping[str, str], options: RegisterOptions, catalog: ExternalCatalog) -> None:
    source, published = _published_tables(data_dir, options)
    names = registered([(options.database, table.schema, table.name) for table in published])
    known = {schema: catalog.tables(schema) for schema in {*catalog.schemas(source), *(schema for schema, _ in names)}}
    for schema in sorted({schema for schema, _ in names}):
        catalog.create_schema(schema, source)
    for (schema, name), table in zip(names, published, strict=True):
        parameters = known[schema].get(name)
        if parameters is not None and parameters.get(SOURCE) != source:
            err(f'headgate: table "{schema}.{name}" exists in the catalog and was not registered from this publication, skipping')
            continue
        digest = hashlib.sha256(f"{table.path}\n{table.columns}".encode()).hexdigest()
        if parameters is None or parameters.get(DEFINITION) != digest:
            described = _describe(table, settings, schema, name, {SOURCE: source, DEFINITION: digest})
            catalog.put(described, exists=parameters is not None)
            out(f'{"registered" if parameters is None else "changed"} table "{schema}.{name}"')
    for schema, tables in known.items():
        for name, parameters in tables.items():
            if parameters.get(SOURCE) == source and (schema, name) not in names:
                catalog.remove(schema, name)
                out(f'removed table "{schema}.{name}"')


def _published_tables(data_dir: Path, options: RegisterOptions) -> tuple[str, list[_Published]]:
    """Return the source, which identifies the publication, and its tables in the order of their names."""
    with session.opened(data_dir, options.username, options.database) as opened:
        publication = literal(options.publication)
        if not opened.execute(f"SELECT 1 FROM pg_publication WHERE pubname = {publication}".encode()).fetchall():
            raise PostgresError("42704", f'publication "{options.publication}" does not exist')
        query = f"SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = {publication}"
        names = set(opened.execute(query.encode()).fetchall())
        [(identifier, *_)] = opened.execute(b"IDENTIFY_SYSTEM").fetchall()
        listed = opened.execute(f"LIST_TABLES {literal(options.database)}".encode()).fetchall()
    tables = [
        _Published(schema, name, path, int(version), columns)
        for _, schema, name, _, path, version, _, columns in sorted(listed, key=lambda row: row[1:3])
        if (schema, name) in names
    ]
    return f"{identifier}/{options.database}/{options.publication}", tables


def _describe(table: _Published, settings: Mapping[str, str], schema: str, name: str, parameters: Mapping[str, str]) -> ExternalTable:
    """Return the table with the columns that its Delta log has."""
    path = data_location.at(table.path, settings)
    try:
        metadata, _, _ = delta_log.read_state(path, table.version)
    except (OSError, delta_log.ForeignFeature) as error:
        raise PostgresError("58P01", f'could not read the Delta log of table "{table.schema}.{table.name}": {error}') from error
    fields = tuple(json.loads(metadata["schemaString"])["fields"])
    return ExternalTable(schema, name, data_location.uri(path), fields, parameters)
