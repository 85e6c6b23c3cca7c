"""The statistics that a node keeps over a clean restart: hg.kept_statistics, one row.

Called by the server. It removes the row when it reads it at start, so that after a crash counting starts from zero.
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor, one, run


def write(cursor: Cursor, content: str) -> None:
    run(cursor, "DELETE FROM hg.kept_statistics")
    run(cursor, "INSERT INTO hg.kept_statistics VALUES (?)", [content])


def read(cursor: Cursor) -> str | None:
    row = one(cursor, "SELECT content FROM hg.kept_statistics")
    return None if row is None else str(row[0])


def remove(cursor: Cursor) -> None:
    run(cursor, "DELETE FROM hg.kept_statistics")
