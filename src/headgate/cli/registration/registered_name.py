"""The names under which tables are registered in Spark's catalog, a Hive metastore or AWS Glue.

Called by `statement` and `register`. Registered names contain only lower-case letters, digits and underscores. Other characters are
replaced by underscores. If two names would then be equal, the later one gets a number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
