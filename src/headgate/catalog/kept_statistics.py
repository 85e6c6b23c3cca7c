"""What a node has counted, kept from a clean end to the next start: hg.kept_statistics, one row.

Called by the server. Whoever takes it removes it, so that a crash begins anew.
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor, one, run

DEFINITION = "CREATE TABLE IF NOT EXISTS hg.kept_statistics (content VARCHAR)"


def write(cursor: Cursor, content: str) -> None:
    """Keeps what has been counted."""
    run(cursor, "DELETE FROM hg.kept_statistics")
    run(cursor, "INSERT INTO hg.kept_statistics VALUES (?)", [content])


def read(cursor: Cursor) -> str | None:
    """What was kept."""
    found = one(cursor, "SELECT content FROM hg.kept_statistics")
    return None if found is None else str(found[0])


def remove(cursor: Cursor) -> None:
    """Forgets it."""
    run(cursor, "DELETE FROM hg.kept_statistics")
