"""A catalog of other programs in which a node's tables are registered as external tables, and such a table.

`register` uses the protocol, `hive_metastore`, `glue` and `unity` implement it. A table that `register` has created has the parameters
`SOURCE` and `DEFINITION`. Others are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_STRANGE = re.compile(r"[^a-z0-9_]")
LONGEST = 120
"""Bytes of a name: a Hive metastore takes 128, and a number may come behind it."""


def registered(tables: Sequence[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """Return the registered (schema, name) of each (database, schema, name). The registered schema is called ``database_schema``."""
    schemas: dict[tuple[str, str], str] = {}
    names: dict[str, set[str]] = {}
    chosen = []
    for database, schema, name in tables:
        if (database, schema) not in schemas:
            registered_schema = schemas[database, schema] = _free(f"{database}_{schema}", set(schemas.values()))
            names[registered_schema] = set()
        place = schemas[database, schema]
        free_name = _free(name, names[place])
        names[place].add(free_name)
        chosen.append((place, free_name))
    return chosen


def _free(name: str, used_names: set[str]) -> str:
    """Return the name in a form that a catalog accepts, with a number if it is already used."""
    plain = _STRANGE.sub("_", name.lower())[:LONGEST] or "_"
    number, chosen = 1, plain
    while chosen in used_names:
        number += 1
        chosen = f"{plain}_{number}"
    return chosen


SOURCE = "headgate.source"
"""The parameter that says which node, database and publication a table was registered from."""
DEFINITION = "headgate.definition"
"""The parameter with the digest of the location and the columns that were registered."""
INPUT_FORMAT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
SERIALIZATION = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"

_SPARK_TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Names of Delta's types that differ in Spark's SQL."""


@dataclass(frozen=True)
class ExternalTable:
    """A table as it is to be registered. `fields`: the columns as Delta's schema has them (`name`, `type`, `nullable`, `metadata`)."""

    schema: str
    name: str
    location: str
    fields: tuple[Mapping[str, Any], ...]
    parameters: Mapping[str, str]


class ExternalCatalog(Protocol):
    """A connection to a catalog. Its methods raise `CatalogError`."""

    def tables(self, schema: str) -> Mapping[str, Mapping[str, str]]:
        """Return the parameters of the tables of a schema, by name. A schema that does not exist has none."""

    def schemas(self, source: str) -> Sequence[str]:
        """Return the schemas that were created for a source."""

    def create_schema(self, name: str, source: str) -> None:
        """Create a schema unless it exists."""

    def put(self, table: ExternalTable, *, exists: bool) -> None:
        """Create a table, or replace the definition of one that exists. Its files are not touched."""

    def remove(self, schema: str, name: str) -> None:
        """Remove a table from the catalog. Its files stay."""

    def close(self) -> None:
        """End the connection."""


class CatalogError(Exception):
    """The catalog cannot be reached, or has rejected a request."""


def spark_type(kind: str | Mapping[str, Any]) -> str:
    """Return the type of a column of Delta's schema as Spark's SQL spells it."""
    return _SPARK_TYPES.get(kind, kind) if isinstance(kind, str) else f"array<{spark_type(kind['elementType'])}>"


def hive_columns(table: ExternalTable) -> list[tuple[str, str]]:
    """Return the names and types of the columns as a Hive metastore spells them."""
    return [(field["name"], spark_type(field["type"]).replace("timestamp_ntz", "timestamp")) for field in table.fields]


def table_parameters(table: ExternalTable) -> dict[str, str]:
    """Return the parameters by which Spark, Athena and Trino know an external Delta table."""
    return {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "delta", "table_type": "DELTA", **table.parameters}
