"""From the layout of an earlier version to the present one: `headgate upgrade`.

A step for each format takes the catalog to the next one, in one transaction with its number: a kill leaves the format before or the one
behind, and whoever comes again goes on from there. Called by the command line while no node runs in the directory.

A step uses nothing of the present code but `run`: what it writes must stay what that format was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headgate.catalog.catalog import Catalog
from headgate.catalog.layout.format import FORMAT
from headgate.catalog.physical import EXTRA, Cursor, one, run
from headgate.errors import PostgresError
from headgate.failpoint import Step

OLDEST = 2


def _to_3(cursor: Cursor) -> None:
    """Columns of followed tables, which some directories of format 2 have already; statistics that outlive a clean restart."""
    run(
        cursor,
        "CREATE TABLE IF NOT EXISTS hg.subscription_column (dbid UINTEGER, subid UINTEGER, relid UINTEGER, attnum INTEGER,"
        " attname VARCHAR, former VARCHAR[], remote_type VARCHAR, typoid UINTEGER, typmod INTEGER, local_type VARCHAR, not_null BOOLEAN,"
        " default_text VARCHAR, dropped BOOLEAN, unfilled BIGINT)",
    )
    run(cursor, "CREATE TABLE IF NOT EXISTS hg.kept_statistics (content VARCHAR)")


def _to_4(cursor: Cursor) -> None:
    """Tables to be synchronized again, options of publications, flags of slots, tables of followed columns.

    The first catalogs of format 4 get the columns when they are opened.
    """
    columns = "dbid UINTEGER, subid UINTEGER, relid UINTEGER, method VARCHAR, taken BOOLEAN"
    run(cursor, f"CREATE TABLE IF NOT EXISTS hg.subscription_resync ({columns})")
    run(cursor, "ALTER TABLE hg.pg_publication ADD COLUMN IF NOT EXISTS pubreconcile BOOLEAN")
    run(cursor, "ALTER TABLE hg.pg_publication ADD COLUMN IF NOT EXISTS pubgencols VARCHAR")
    run(cursor, "ALTER TABLE hg.replication_slot ADD COLUMN IF NOT EXISTS failover BOOLEAN")
    run(cursor, "ALTER TABLE hg.replication_slot ADD COLUMN IF NOT EXISTS idle BOOLEAN")
    run(cursor, "ALTER TABLE hg.subscription_column ADD COLUMN IF NOT EXISTS remote_relid UINTEGER")
    for table in ("pg_proc", "pg_trigger"):
        for name, kind in EXTRA[table]:
            run(cursor, f"ALTER TABLE hg.{table} ADD COLUMN IF NOT EXISTS {name} {kind}")


STEPS: Mapping[int, Callable[[Cursor], None]] = {2: _to_3, 3: _to_4}
"""By the format that a step begins with."""


def upgrade(path: Path) -> Iterator[int]:
    """Takes a catalog to the present format, step by step; the format that is reached with each. 0A000 where there is no way."""
    catalog = Catalog.open_as_it_is(path)
    try:
        while (now := _format(catalog)) != FORMAT:
            step = STEPS.get(now)
            if step is None:
                there = f"newer than {FORMAT}" if now > FORMAT else f"older than {OLDEST}"
                raise PostgresError("0A000", f'cannot upgrade catalog "{path}"', detail=f"Its format is {now}, which is {there}.")
            catalog.change(lambda cursor, now=now, step=step: _take(cursor, now, step), Step.DEFINITION)  # type: ignore[misc]
            yield now + 1
    finally:
        catalog.close()


def _take(cursor: Cursor, now: int, step: Callable[[Cursor], None]) -> None:
    step(cursor)
    run(cursor, "UPDATE hg.counter SET value = ? WHERE name = 'format'", [now + 1])


def _format(catalog: Catalog) -> int:
    found = one(catalog.cursor(), "SELECT value FROM hg.counter WHERE name = 'format'")
    assert found is not None
    return int(found[0])
