"""Names that PostgreSQL makes up for relations and constraints (t_a_key, t_a_key1), and whether one is free.

Called by the modules of this floor that make or rename relations and constraints, and by the commands that need the name before.
A made name has at most 63 bytes and is not among those that are in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.catalog.physical import Cursor, rows
from headgate.errors import PostgresError

NAME_LENGTH = 63


def choose_name(cursor: Cursor, database: int, namespace: int, name: str, middle: str | None, label: str) -> str:
    """PostgreSQL's ChooseRelationName: name_middle_label, cut to 63 bytes, with a number behind it if that is in use."""
    return _free(name, middle, label, lambda found: namespace in by_name(cursor, database, found))


def by_name(cursor: Cursor, database: int, name: str) -> dict[int, int]:
    """Return the oids of the relations of this name by the oids of their schemas."""
    return dict(rows(cursor, "SELECT relnamespace, oid FROM hg.pg_class WHERE dbid IN (0, ?) AND relname = ?", [database, name]))


def free_name(name: str, middle: str | None, label: str, taken: Iterable[str]) -> str:
    """name_middle_label, cut to 63 bytes, with a number behind it if it is among `taken`."""
    return _free(name, middle, label, lambda found: found in taken)


def _free(name: str, middle: str | None, label: str, is_taken: Callable[[str], bool]) -> str:
    count = 0
    while True:
        found = _object_name(name, middle, label + (str(count) if count else ""))
        if not is_taken(found):
            return found
        count += 1


def _object_name(name: str, middle: str | None, label: str) -> str:
    """PostgreSQL's makeObjectName: the longer of the two parts is cut first."""
    first, second = name.encode(), (middle or "").encode()
    room = NAME_LENGTH - len(label) - 1 - (1 if middle else 0)
    while len(first) + len(second) > room:
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
    parts = [first.decode(errors="ignore"), *([second.decode(errors="ignore")] if middle else []), label]
    return "_".join(parts)


def require_free(cursor: Cursor, database: int, namespace: int, name: str) -> None:
    """42P07 if a relation of the schema has the name."""
    if namespace in by_name(cursor, database, name):
        raise PostgresError("42P07", f'relation "{name}" already exists')
