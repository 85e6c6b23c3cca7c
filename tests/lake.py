"""Delta tables that a node has not created, for tests of CREATE TABLE … WITH (location = …)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from tests.conftest import Server

COLUMNS = "(a int PRIMARY KEY, b text)"
ROWS = "SELECT string_agg(a || ':' || b, ' ' ORDER BY a) FROM "


def create(location: object, name: str = "t", columns: str = COLUMNS) -> str:
    return f"CREATE TABLE {name} {columns} WITH (location = '{location}')"


class Lake:
    """Delta tables that a node has not created, in the same store as the node's tables."""

    def __init__(self, node: Server, spark: SparkSession, folder: Path) -> None:
        place = node.psql("postgres", "SHOW data_location")
        self.folder = f"{place.rsplit('/', 1)[0]}/{uuid.uuid4()}" if "://" in place else str(folder)
        self.spark = spark.newSession()

    def table(self, name: str, rows: Sequence[tuple[object, ...]], columns: str = "a int, b string", **properties: str) -> str:
        """Create a table in one file. Return its location."""
        return self.written(name, self.spark.createDataFrame(list(rows), columns).coalesce(1), **properties)

    def written(self, name: str, frame: DataFrame, **properties: str) -> str:
        """Create a table with the rows of a frame. Return its location."""
        location = f"{self.folder}/{name}"
        frame.write.format("delta").options(**properties).save(location)
        return location

    def rows(self, location: str) -> list[tuple[object, ...]]:
        """Return the rows of a table as Spark reads them."""
        return sorted(tuple(row) for row in self.spark.read.format("delta").load(location).collect())
