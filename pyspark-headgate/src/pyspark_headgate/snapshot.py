"""All tables of a node at one LSN as DataFrames, read from their Delta files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession


class Tables(dict[str, DataFrame]):
    """The tables by ``schema.name``; `lsn` is the LSN as of which they are."""

    lsn: str = ""


@contextlib.contextmanager
def at(spark: SparkSession, url: str) -> Iterator[Tables]:
    """Give the tables of a database at the latest LSN. The node keeps their files as long as the context lasts.

    The session needs Delta Lake and access to the tables' folder, the role pg_read_all_settings, to which a node tells its paths.
    """
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        tables = Tables()
        found: list[tuple[Any, ...]] = connection.execute("SELECT schema, name, path, version, lsn FROM headgate.snapshot()").fetchall()
        for schema, name, path, version, lsn in found:
            if path is None:
                raise PermissionError("the node tells the paths of its tables to members of pg_read_all_settings alone")
            tables.lsn = str(lsn)
            tables[f"{schema}.{name}"] = spark.read.format("delta").option("versionAsOf", version).load(path)
        yield tables
