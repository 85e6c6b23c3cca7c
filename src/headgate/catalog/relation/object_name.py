"""Names that PostgreSQL generates for relations and constraints (t_a_key, t_a_key1), and checks whether a name is free.

Called by the modules of this package that create or rename relations and constraints, and by commands that need the name in advance.
A generated name has at most 63 bytes and is not in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.catalog.physical import Cursor, one, rows
from headgate.errors import PostgresError

NAME_LENGTH = 63


def choose_name(
    cursor: Cursor, database: int, namespace: int, name: str, middle: str | None, label: str, *, constraint: bool = False
) -> str:
    """Return name_middle_label, truncated to 63 bytes, with a number appended if it is in use (ChooseRelationName).

    The name of an index of a `constraint` must also differ from those of the constraints in the schema.
    """
    sql = "SELECT 1 FROM hg.pg_constraint WHERE dbid = ? AND connamespace = ? AND conname = ?"

    def is_taken(candidate: str) -> bool:
        if namespace in by_name(cursor, database, candidate):
            return True
        return constraint and one(cursor, sql, [database, namespace, candidate]) is not None

    return _free(name, middle, label, is_taken)


def by_name(cursor: Cursor, database: int, name: str) -> dict[int, int]:
    """Return the oids of the relations with this name, by the oids of their schemas."""
    return dict(rows(cursor, "SELECT relnamespace, oid FROM hg.pg_class WHERE dbid IN (0, ?) AND relname = ?", [database, name]))


def free_name(name: str, middle: str | None, label: str, used: Iterable[str]) -> str:
    """Return name_middle_label, truncated to 63 bytes, with a number appended if it is in `used`."""
    return _free(name, middle, label, lambda candidate: candidate in used)


def _free(name: str, middle: str | None, label: str, is_taken: Callable[[str], bool]) -> str:
    count = 0
    while True:
        candidate = _object_name(name, middle, label + (str(count) if count else ""))
        if not is_taken(candidate):
            return candidate
        count += 1


def _object_name(name: str, middle: str | None, label: str) -> str:
    """Return name_middle_label of at most 63 bytes. The longer of the first two parts is truncated first (makeObjectName)."""
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
    """Raise 42P07 if a relation of the schema has the name."""
    if namespace in by_name(cursor, database, name):
        raise PostgresError("42P07", f'relation "{name}" already exists')
