"""The subject of a check: a node's catalog, log and tables as of one LSN.

`of_running` uses a running node: everything as of the LSN at which it was called. An open transaction keeps all of that until the context
ends. `of_stopped` reads the directory of a stopped node: the catalog is copied into another folder and opened there, so that the directory
stays unchanged, byte for byte.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.catalog import database as databases
from headgate.catalog.catalog import Catalog
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage.delta import delta_log
from headgate.storage.delta.file_action import Action
from headgate.storage.engine import Engine
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.spark.application import spark_session
from headgate.storage.transaction.log import TableVersion
from headgate.storage.transaction.transaction import Transaction

CATALOG = "catalog.duckdb"


@dataclass
class Subject:
    """The subject of a check (see the module). `cursor`: the catalog as of `end`; `tables`: their versions then; `data_dir`: the node's.

    `damaged`: tables whose rows cannot be read because of an earlier finding. Parts that read rows skip them.
    """

    engine: Engine
    cursor: Cursor
    end: Lsn
    tables: Mapping[Key, TableVersion]
    transactions: Mapping[int, Transaction]
    data_dir: Path
    running: bool
    only: int | None = None
    """The only database that is checked, None for all. Shared catalogs, slots and subscriptions are checked in any case."""
    progress: Callable[[str], None] = lambda _: None
    damaged: set[Key] = field(default_factory=set)
    _files: dict[Key, Mapping[str, Action] | None] = field(default_factory=dict)

    @functools.cached_property
    def databases(self) -> dict[int, str]:
        return dict(rows(self.cursor, "SELECT oid, datname FROM hg.pg_database ORDER BY oid"))

    def wanted(self, database: int) -> bool:
        return self.only in (None, database)

    def relations(self, database: int) -> list[Relation]:
        """Return the tables of a database, including partitioned ones. Temporary tables belong to a session and are omitted."""
        return [relation for relation in relations.all_tables(self.cursor, database) if relation.persistence != "t"]

    @functools.cached_property
    def _titles(self) -> dict[Key, str]:
        names = rows(
            self.cursor,
            "SELECT c.dbid, c.oid, n.nspname, c.relname FROM hg.pg_class c JOIN hg.pg_namespace n ON n.oid = c.relnamespace"
            " AND n.dbid IN (0, c.dbid) WHERE c.dbid <> 0",
        )
        return {(database, oid): f'"{schema}"."{name}"' for database, oid, schema, name in names}

    def database(self, oid: int) -> str:
        return f'database "{self.databases[oid]}"' if oid in self.databases else f"database with OID {oid}"

    def title(self, key: Key) -> str:
        """Return the name of a table for findings."""
        name = self._titles.get(key)
        return f"table {name} of {self.database(key[0])}" if name is not None else f"relation with OID {key[1]} of {self.database(key[0])}"

    def path(self, key: Key) -> DataPath:
        return self.engine.tables.path(key)

    def files(self, key: Key) -> Mapping[str, Action] | None:
        """Return the `add` actions of a table as of `end`, by path, or None if its log cannot be read."""
        if key not in self._files:
            try:
                self._files[key] = delta_log.files_at(self.path(key), self.tables[key].version)
            except (PostgresError, OSError, KeyError):
                self._files[key] = None
        return self._files[key]


@contextmanager
def of_running(engine: Engine, data_dir: Path, database: str | None) -> Iterator[Subject]:
    with _open(engine, data_dir, database, running=True) as subject:
        yield subject


@contextmanager
def of_stopped(
    data_dir: Path, settings: Mapping[str, str], database: str | None = None, *, session: SparkSession | None = None
) -> Iterator[Subject]:
    """Yield a stopped node as the subject. `session`: an existing Spark session. Raise XX001 for an unreadable catalog."""
    with tempfile.TemporaryDirectory(prefix="headgate-check-") as folder:
        for file in data_dir.glob(f"{CATALOG}*"):
            shutil.copyfile(file, Path(folder) / file.name)
        catalog = Catalog.open(Path(folder) / CATALOG)
        try:
            location = {"data_location": settings.get("data_location", "") or str(data_dir / "base")}
            spark = spark_session.start(settings, scratch=Path(folder) / "pgsql_tmp") if session is None else session
            try:
                engine = Engine({**settings, **location}, catalog, Path(folder), session=spark)
                with _open(engine, data_dir, database, running=False) as subject:
                    yield subject
            finally:
                if session is None:
                    spark.stop()
        finally:
            catalog.close()


@contextmanager
def _open(engine: Engine, data_dir: Path, database: str | None, *, running: bool) -> Iterator[Subject]:
    transactions: dict[int, Transaction] = {}
    pin = engine.begin(0)
    try:
        with engine.commit_lock:
            pin.isolate(None, serializable=False)
            cursor, end = pin.cursor, engine.log.end
            only = None if database is None else databases.get(cursor, database).oid
            tables = {key: version for key, version in engine.log.versions().items() if only in (None, key[0])}
            for (oid,) in rows(cursor, "SELECT oid FROM hg.pg_database"):
                transactions[oid] = engine.begin(oid)
                transactions[oid].isolate(None, serializable=False)
                _ = transactions[oid].cursor
        yield Subject(engine, cursor, end, tables, transactions, data_dir, running, only)
    finally:
        for transaction in (*transactions.values(), pin):
            transaction.rollback()
