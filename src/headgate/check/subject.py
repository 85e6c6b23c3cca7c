"""What is checked: a node's catalog, log and tables as of one LSN.

`of_running` takes them from a node that runs: all of it as of the LSN at which it was called, and nothing that belongs to that is
removed before `close`, because a transaction is open. `of_stopped` reads the directory of a stopped node: the catalog is copied into a
folder of its own and opened there, so that the directory stays as it is, byte for byte.
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
from headgate.storage.lock import Key
from headgate.storage.spark.application import spark_session
from headgate.storage.transaction.log import TableVersion
from headgate.storage.transaction.transaction import Transaction

CATALOG = "catalog.duckdb"


@dataclass
class Subject:
    """See the module. `cursor`: the catalog as of `end`; `tables`: the version of each table then; `data_dir`: the node's.

    `damaged`: tables of which something was found that keeps their rows from being read; those who read rows pass them over.
    """

    engine: Engine
    cursor: Cursor
    end: Lsn
    tables: Mapping[Key, TableVersion]
    transactions: Mapping[int, Transaction]
    data_dir: Path
    running: bool
    only: int | None = None
    """The one database that is checked, None for all; shared catalogs, slots and subscriptions are looked at in any case."""
    progress: Callable[[str], None] = lambda _: None
    damaged: set[Key] = field(default_factory=set)
    _files: dict[Key, Mapping[str, Action] | None] = field(default_factory=dict)

    @functools.cached_property
    def databases(self) -> dict[int, str]:
        """Names by oid."""
        return dict(rows(self.cursor, "SELECT oid, datname FROM hg.pg_database ORDER BY oid"))

    def wanted(self, database: int) -> bool:
        """Whether a database is checked."""
        return self.only in (None, database)

    def relations(self, database: int) -> list[Relation]:
        """The tables of a database, partitioned ones too; temporary ones are their session's."""
        return [each for each in relations.all_tables(self.cursor, database) if each.persistence != "t"]

    @functools.cached_property
    def _titles(self) -> dict[Key, str]:
        found = rows(
            self.cursor,
            "SELECT c.dbid, c.oid, n.nspname, c.relname FROM hg.pg_class c JOIN hg.pg_namespace n ON n.oid = c.relnamespace"
            " AND n.dbid IN (0, c.dbid) WHERE c.dbid <> 0",
        )
        return {(database, oid): f'"{schema}"."{name}"' for database, oid, schema, name in found}

    def database(self, oid: int) -> str:
        """A database as findings name it."""
        return f'database "{self.databases[oid]}"' if oid in self.databases else f"database with OID {oid}"

    def title(self, key: Key) -> str:
        """A table as findings name it."""
        name = self._titles.get(key)
        return f"table {name} of {self.database(key[0])}" if name is not None else f"relation with OID {key[1]} of {self.database(key[0])}"

    def path(self, key: Key) -> DataPath:
        """A table's folder."""
        return self.engine.path(key)

    def files(self, key: Key) -> Mapping[str, Action] | None:
        """The `add` actions of a table as of `end`, by path; None where its log cannot be read."""
        if key not in self._files:
            try:
                self._files[key] = delta_log.files_at(self.path(key), self.tables[key].version)
            except (PostgresError, OSError, KeyError):
                self._files[key] = None
        return self._files[key]


@contextmanager
def of_running(engine: Engine, data_dir: Path, database: str | None) -> Iterator[Subject]:
    """A node that runs; of one database where it is named."""
    with _opened(engine, data_dir, database, running=True) as subject:
        yield subject


@contextmanager
def of_stopped(
    data_dir: Path, settings: Mapping[str, str], database: str | None = None, *, session: SparkSession | None = None
) -> Iterator[Subject]:
    """A node that does not run, with its settings; `session`: a Spark session that is there. XX001 for a catalog that cannot be read."""
    with tempfile.TemporaryDirectory(prefix="headgate-check-") as folder:
        for file in data_dir.glob(f"{CATALOG}*"):
            shutil.copyfile(file, Path(folder) / file.name)
        catalog = Catalog.open(Path(folder) / CATALOG)
        try:
            where = {"data_location": settings.get("data_location", "") or str(data_dir / "base")}
            started = spark_session.start(settings, scratch=Path(folder) / "pgsql_tmp") if session is None else session
            try:
                engine = Engine({**settings, **where}, catalog, Path(folder), session=started)
                with _opened(engine, data_dir, database, running=False) as subject:
                    yield subject
            finally:
                if session is None:
                    started.stop()
        finally:
            catalog.close()


@contextmanager
def _opened(engine: Engine, data_dir: Path, database: str | None, *, running: bool) -> Iterator[Subject]:
    transactions: dict[int, Transaction] = {}
    pin = engine.begin(0)
    try:
        with engine.commit_lock:
            pin.isolate(None, serializable=False)
            cursor, end = pin.cursor, engine.log.end
            only = None if database is None else databases.get(cursor, database).oid
            tables = {key: found for key, found in engine.log.versions().items() if only in (None, key[0])}
            for (oid,) in rows(cursor, "SELECT oid FROM hg.pg_database"):
                transactions[oid] = engine.begin(oid)
                transactions[oid].isolate(None, serializable=False)
                _ = transactions[oid].cursor
        yield Subject(engine, cursor, end, tables, transactions, data_dir, running, only)
    finally:
        for each in (*transactions.values(), pin):
            each.rollback()
