"""Rows of pg_constraint, of tables and of domains."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog.physical import Cursor, run


def delete(cursor: Cursor, database: int, scope: str, values: Sequence[object]) -> None:
    """Delete the constraints of a database for which the SQL condition `scope` is true, their comments and their triggers."""
    chosen = f"hg.pg_constraint WHERE dbid = ? AND {scope}"
    triggers = "DELETE FROM hg.pg_trigger WHERE dbid = ? AND tgisinternal"
    run(cursor, f"{triggers} AND tgconstraint IN (SELECT oid FROM {chosen})", [database, database, *values])
    comments = "DELETE FROM hg.pg_description WHERE dbid = ? AND classoid = 2606"
    run(cursor, f"{comments} AND objoid IN (SELECT oid FROM {chosen})", [database, database, *values])
    run(cursor, f"DELETE FROM {chosen}", [database, *values])
