"""Rows of pg_constraint, of tables and of domains."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog.physical import Cursor, run


def delete(cursor: Cursor, database: int, scope: str, values: Sequence[object]) -> None:
    """Delete the constraints of a database for which the SQL condition `scope` is true, and their comments."""
    chosen = f"hg.pg_constraint WHERE dbid = ? AND {scope}"
    comments = "DELETE FROM hg.pg_description WHERE dbid = ? AND classoid = 2606"
    run(cursor, f"{comments} AND objoid IN (SELECT oid FROM {chosen})", [database, database, *values])
    run(cursor, f"DELETE FROM {chosen}", [database, *values])
