"""A stopped node with objects of every kind, and copies of its directory that tests damage."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession
from tests.conftest import NodeServer, Server, until

from headgate.catalog.catalog import Catalog
from headgate.catalog.known_types import KnownTypes
from headgate.catalog.relation import relation as relations
from headgate.check import course, subject
from headgate.storage.engine import Engine
from headgate.types import registry

TABLES = """
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE parent (id int PRIMARY KEY, v text NOT NULL, m mood, CONSTRAINT small CHECK (id < 1000000));
CREATE TABLE child (id positive PRIMARY KEY, parent_id int, word text, n int, CONSTRAINT of_parent FOREIGN KEY (parent_id) REFERENCES parent,
    CONSTRAINT one_null UNIQUE NULLS NOT DISTINCT (n));
CREATE UNIQUE INDEX by_word ON child (lower(word));
CREATE UNIQUE INDEX in_part ON child (parent_id) WHERE n > 100;
CREATE TABLE divided (id int, region text, amount numeric(10,2), twice float8 GENERATED ALWAYS AS (amount * 2) STORED, PRIMARY KEY (id, region))
    PARTITION BY LIST (region);
CREATE TABLE divided_eu PARTITION OF divided FOR VALUES IN ('eu');
CREATE TABLE divided_us PARTITION OF divided FOR VALUES IN ('us');
CREATE TABLE plain (a serial, b jsonb, c timestamptz DEFAULT now(), "strange name" text);
CREATE TABLE empty (id int PRIMARY KEY);
CREATE TABLE mapped (id int PRIMARY KEY, v int, gone int);
ALTER TABLE mapped DROP COLUMN gone;
CREATE VIEW shown AS SELECT id, v FROM parent;
CREATE SEQUENCE counted;
CREATE PUBLICATION published FOR TABLE parent WHERE (id > 5), divided;
"""
ROWS = """
INSERT INTO parent SELECT i, 'v' || i, 'good' FROM generate_series(1, 500) i;
INSERT INTO child SELECT i, i, 'word ' || i, i FROM generate_series(1, 300) i;
INSERT INTO divided SELECT i, CASE WHEN i % 2 = 0 THEN 'eu' ELSE 'us' END, i FROM generate_series(1, 200) i;
INSERT INTO mapped SELECT i, i FROM generate_series(1, 60000) i;
UPDATE mapped SET v = v + 1 WHERE id < 40000;
INSERT INTO plain (b) SELECT '{"a": 1}' FROM generate_series(1, 10);
SELECT pg_create_logical_replication_slot('behind', 'pgoutput');
UPDATE parent SET v = 'changed' WHERE id <= 20;
UPDATE divided SET region = 'us' WHERE id = 2;
DELETE FROM child WHERE id > 290;
SELECT pg_logical_emit_message(false, 'prefix', repeat('message ', 100));
SELECT pg_logical_emit_message(true, 'prefix', repeat('message ', 100));
SELECT pg_switch_wal();
BEGIN; INSERT INTO plain (b) VALUES ('[]'); SAVEPOINT s; INSERT INTO plain (b) VALUES ('{}'); ROLLBACK TO s; COMMIT;
BEGIN; INSERT INTO parent VALUES (1001, 'never', 'bad'); ROLLBACK;
ALTER TABLE plain ADD COLUMN d int DEFAULT 7;
SELECT nextval('counted');
"""
PREPARED = "BEGIN; INSERT INTO empty VALUES (1); CREATE TABLE made (id int); INSERT INTO made VALUES (1); PREPARE TRANSACTION 'kept'"


def build(node: NodeServer, publisher: Server) -> str:
    """Create objects in a running node and stop it. Return the name of the database."""
    source, database = publisher.new_database(), node.new_database()
    publisher.psql(source, "CREATE TABLE copied (id int PRIMARY KEY, v text); INSERT INTO copied VALUES (1, 'a'), (2, 'b')")
    publisher.psql(source, "CREATE PUBLICATION p FOR TABLE copied")
    node.psql(database, TABLES)
    node.psql(database, ROWS)
    node.psql(database, PREPARED)
    node.psql(database, "CREATE TABLE copied (id int PRIMARY KEY, v text)")
    options = f"slot_name = '{source}', two_phase = true"
    node.psql(database, f"CREATE SUBSCRIPTION s CONNECTION '{publisher.conninfo(source)}' PUBLICATION p WITH ({options})")
    until(lambda: node.psql(database, "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not ready", 60)
    enabled = "SELECT subtwophasestate FROM pg_subscription"
    until(lambda: node.psql(database, enabled) == "e", "two_phase is not enabled", 60)
    publisher.psql(source, f"BEGIN; INSERT INTO copied VALUES (3, 'c'); PREPARE TRANSACTION '{source}'")
    until(lambda: node.psql(database, "SELECT count(*) FROM pg_prepared_xacts") == "2", "the transaction does not arrive", 60)
    node.stop()
    publisher.psql(source, f"ROLLBACK PREPARED '{source}'")
    publisher.psql(source, f"SELECT pg_drop_replication_slot('{source}')")
    return database


class Copy:
    """A copy of the node's directory."""

    def __init__(self, original: Path, folder: Path, database: str, spark: SparkSession) -> None:
        self.data = folder / "data"
        shutil.copytree(original, self.data)
        self.name, self.spark = database, spark
        self.database = int(self.catalog(f"SELECT oid FROM hg.pg_database WHERE datname = '{database}'")[0][0])

    def findings(self) -> list[str]:
        """Return the findings of the check, without the names of the folder and the database."""
        with subject.of_stopped(self.data, {}, session=self.spark) as checked:
            return [finding.line.replace(f"{self.data}/", "").replace(f' of database "{self.name}"', "") for finding in course.run(checked)]

    def catalog(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement on the catalog."""
        with duckdb.connect(str(self.data / "catalog.duckdb")) as connection:
            return connection.execute(sql).fetchall()

    def oid(self, table: str) -> int:
        """Return the oid of a relation."""
        return int(self.catalog(f"SELECT oid FROM hg.pg_class WHERE dbid = {self.database} AND relname = '{table}'")[0][0])

    def folder(self, table: str) -> Path:
        """Return a table's folder."""
        return self.data / "base" / str(self.database) / str(self.oid(table))

    def files(self, table: str) -> list[Path]:
        """Return the data files of a table's newest version."""
        return [self.folder(table) / add["path"] for add in self.adds(table)]

    def adds(self, table: str) -> list[dict[str, Any]]:
        """Return the `add` actions of a table's newest version."""
        adds: dict[str, Any] = {}
        for version in self.versions(table):
            actions = [json.loads(line) for line in version.read_text().splitlines()]
            for action in actions:
                if "remove" in action:
                    adds.pop(action["remove"]["path"], None)
            adds |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
        return list(adds.values())

    def versions(self, table: str) -> list[Path]:
        """Return the commit files of a table."""
        return sorted((self.folder(table) / "_delta_log").glob("*.json"))

    @contextlib.contextmanager
    def engine(self) -> Iterator[Engine]:
        """Open the storage of the copy, without the checks of a node."""
        catalog = Catalog.open(self.data / "catalog.duckdb")
        try:
            yield Engine({}, catalog, self.data, session=self.spark)
        finally:
            catalog.close()

    def add_rows(self, table: str, **columns: list[Any]) -> None:
        """Add rows without checking constraints. Columns that are not given are NULL."""
        oid = self.oid(table)
        with self.engine() as engine:
            KnownTypes(engine.catalog, self.database).use()
            transaction = engine.begin(self.database)
            relation = relations.get(transaction.cursor, self.database, oid)
            frame = transaction.reader.frame(relation).limit(0).toArrow()
            count = len(next(iter(columns.values())))
            arrays = [pa.array(columns.get(field.name, [None] * count)).cast(field.type) for field in frame.schema]
            transaction.append(relation, pa.table(arrays, schema=frame.schema))
            transaction.commit()
            registry.use(None)
