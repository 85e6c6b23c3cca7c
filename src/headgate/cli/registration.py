"""``headgate tables --sql``: the statements that register the tables of a node in Spark's catalog, or in a Hive metastore.

Called by `tables`. A statement contains the folder of a table, which never changes. So a table that is renamed on the node is registered
again under its new name, and no file moves (decision 0010). Registered names contain only lower-case letters, digits and underscores. Other
characters are replaced by underscores. If two names would then be equal, the later one gets a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_STRANGE = re.compile(r"[^a-z0-9_]")
LONGEST = 120
"""Bytes of a name: a Hive metastore takes 128, and a number may come behind it."""


def statements(tables: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    """Return the SQL for the (database, schema, name, path) of each table. Its schema is called ``database_schema``."""
    schemas: dict[tuple[str, str], str] = {}
    names: dict[str, set[str]] = {}
    for database, schema, name, path in tables:
        if (database, schema) not in schemas:
            schema_name = schemas[database, schema] = _free(f"{database}_{schema}", set(schemas.values()))
            names[schema_name] = set()
            yield f"CREATE SCHEMA IF NOT EXISTS `{schema_name}`;"
        place = schemas[database, schema]
        chosen = _free(name, names[place])
        names[place].add(chosen)
        yield f"CREATE TABLE IF NOT EXISTS `{place}`.`{chosen}` USING delta LOCATION {_literal(f'file://{path}')};"


def _free(name: str, used: set[str]) -> str:
    """Return the name in a form that a catalog accepts, with a number if it is already used."""
    plain = _STRANGE.sub("_", name.lower())[:LONGEST] or "_"
    number, chosen = 1, plain
    while chosen in used:
        number += 1
        chosen = f"{plain}_{number}"
    return chosen


def _literal(text: str) -> str:
    """Return a string literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
