"""All tables of a node at one LSN as DataFrames, read from their Delta files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from pyspark_headgate.options import parse_lsn


class Tables(dict[str, DataFrame]):
    """The tables by ``schema.name``; `lsn` is the LSN as of which they are."""

    lsn: str = ""


@contextlib.contextmanager
def at(spark: SparkSession, url: str, lsn: str = "latest") -> Iterator[Tables]:
    """Return the tables of a database as of an LSN, as a context. The node keeps their files until the context ends.

    An LSN that is no longer kept raises psycopg.errors.ObjectNotInPrerequisiteState, which names the oldest one. The session needs Delta
    Lake and access to the tables' folder, and the role pg_read_all_settings, to which a node shows its paths.
    """
    if lsn != "latest":
        parse_lsn(lsn, "lsn")
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        tables = Tables()
        query = "SELECT schema, name, path, version, lsn FROM headgate.snapshot(%s::pg_lsn)"
        rows: list[tuple[Any, ...]] = connection.execute(query, (None if lsn == "latest" else lsn,)).fetchall()
        for schema, name, path, version, position in rows:
            if path is None:
                raise PermissionError("the node shows the paths of its tables to members of pg_read_all_settings alone")
            tables.lsn = str(position)
            tables[f"{schema}.{name}"] = spark.read.format("delta").option("versionAsOf", version).load(path)
        yield tables
