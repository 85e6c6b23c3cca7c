"""``headgate tables --sql``: the statements by which Spark's catalog, or a Hive metastore, knows the tables of a node by name.

Called by `tables`. A statement names the folder that a table has and keeps: a table that is renamed here is registered anew under its new
name, and nothing moves (decision 0010). Names there have letters, digits and underscores only and no upper case, so others are spelled with
underscores, and where two would be the same the later one gets a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_STRANGE = re.compile(r"[^a-z0-9_]")
LONGEST = 120
"""Bytes of a name: a Hive metastore takes 128, and a number may come behind it."""


def statements(tables: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    """SQL for (database, schema, name, path) of each table: a schema ``database_schema``, in it a table that lies where the node has it."""
    schemas: dict[tuple[str, str], str] = {}
    names: dict[str, set[str]] = {}
    for database, schema, name, path in tables:
        if (database, schema) not in schemas:
            made = schemas[database, schema] = _free(f"{database}_{schema}", set(schemas.values()))
            names[made] = set()
            yield f"CREATE SCHEMA IF NOT EXISTS `{made}`;"
        place = schemas[database, schema]
        chosen = _free(name, names[place])
        names[place].add(chosen)
        yield f"CREATE TABLE IF NOT EXISTS `{place}`.`{chosen}` USING delta LOCATION {_literal(f'file://{path}')};"


def _free(name: str, taken: set[str]) -> str:
    """Return the name in a form that a catalog accepts, with a number if it is already used."""
    plain = _STRANGE.sub("_", name.lower())[:LONGEST] or "_"
    number, chosen = 1, plain
    while chosen in taken:
        number += 1
        chosen = f"{plain}_{number}"
    return chosen


def _literal(text: str) -> str:
    """Return a string literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
