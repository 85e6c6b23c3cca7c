"""``headgate tables --sql``: the statements that register the tables of a node in Spark's catalog, or in a Hive metastore.

Called by `tables`. A statement contains the folder of a table, which never changes. So a table that is renamed on the node is registered
again under its new name, and no file moves (decision 0010).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.cli.registration.external_catalog import registered


def statements(tables: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    """Return the SQL for the (database, schema, name, path) of each table. Its schema is called ``database_schema``."""
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
