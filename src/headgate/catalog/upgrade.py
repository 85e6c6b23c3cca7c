"""Upgrade a catalog from the format of an earlier version to the present one: `headgate upgrade`.

One step per format takes the catalog to the next format, in one transaction with the format's number. If the upgrade is interrupted, the
catalog has the format before or after the step, and running the upgrade again continues from there. Called by the command line while no
node runs in the directory.

Of the present code, a step uses only `run`, because its effect must stay that of the format it was written for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headgate.catalog import reference_upgrade, trigger_upgrade
from headgate.catalog.catalog import Catalog
from headgate.catalog.layout.format import FORMAT
from headgate.catalog.physical import EXTRA, Cursor, one, run
from headgate.errors import PostgresError
from headgate.failpoint import Step

OLDEST = 2


def _to_3(cursor: Cursor) -> None:
    """Add the table of followed columns, which some directories of format 2 already have, and the table of kept statistics."""
    run(
        cursor,
        "CREATE TABLE IF NOT EXISTS hg.subscription_column (dbid UINTEGER, subid UINTEGER, relid UINTEGER, attnum INTEGER,"
        " attname VARCHAR, former VARCHAR[], remote_type VARCHAR, typoid UINTEGER, typmod INTEGER, local_type VARCHAR, not_null BOOLEAN,"
        " default_text VARCHAR, dropped BOOLEAN, unfilled BIGINT)",
    )
    run(cursor, "CREATE TABLE IF NOT EXISTS hg.kept_statistics (content VARCHAR)")


def _to_4(cursor: Cursor) -> None:
    """Add the tables of resynchronizations and histories, options of publications and subscriptions, and flags of slots.

    The publisher's table is added to followed columns.
    """
    columns = "dbid UINTEGER, subid UINTEGER, relid UINTEGER, method VARCHAR, taken BOOLEAN"
    run(cursor, f"CREATE TABLE IF NOT EXISTS hg.subscription_resync ({columns})")
    columns = "dbid UINTEGER, subid UINTEGER, relid UINTEGER, histid UINTEGER, begun BOOLEAN"
    run(cursor, f"CREATE TABLE IF NOT EXISTS hg.subscription_history ({columns})")
    run(cursor, "ALTER TABLE hg.subscription_history ADD COLUMN IF NOT EXISTS expired BIGINT")
    run(cursor, "ALTER TABLE hg.subscription_option ADD COLUMN IF NOT EXISTS subhistory VARCHAR")
    run(cursor, "ALTER TABLE hg.pg_publication ADD COLUMN IF NOT EXISTS pubreconcile BOOLEAN")
    run(cursor, "ALTER TABLE hg.pg_publication ADD COLUMN IF NOT EXISTS pubgencols VARCHAR")
    run(cursor, "ALTER TABLE hg.replication_slot ADD COLUMN IF NOT EXISTS failover BOOLEAN")
    run(cursor, "ALTER TABLE hg.replication_slot ADD COLUMN IF NOT EXISTS idle BOOLEAN")
    run(cursor, "ALTER TABLE hg.subscription_column ADD COLUMN IF NOT EXISTS remote_relid UINTEGER")
    for table in ("pg_proc", "pg_trigger"):
        for name, kind in EXTRA[table]:
            run(cursor, f"ALTER TABLE hg.{table} ADD COLUMN IF NOT EXISTS {name} {kind}")


def _to_5(cursor: Cursor) -> None:
    """Write the texts of expressions, functions and views with references to types and functions.

    Triggers of foreign keys are added, and each database gets its own rows of the languages.
    """
    _to_4(cursor)  # the first catalogs of format 4 lack some of its columns
    for table in ("pg_attrdef", "pg_class", "pg_constraint", "pg_index", "pg_rewrite"):
        for name, kind in EXTRA[table]:
            run(cursor, f"ALTER TABLE hg.{table} ADD COLUMN IF NOT EXISTS {name} {kind}")
    reference_upgrade.refer(cursor)
    trigger_upgrade.create_triggers(cursor)
    if not one(cursor, "SELECT 1 FROM hg.pg_language WHERE lanname = 'plpgsql'"):
        columns = "dbid, oid, lanname, lanowner, lanispl, lanpltrusted, lanplcallfoid, laninline, lanvalidator"
        run(cursor, f"INSERT INTO hg.pg_language ({columns}) VALUES (0, 13563, 'plpgsql', 10, true, true, 0, 0, 0)")
    run(cursor, "INSERT INTO hg.pg_language SELECT d.oid, l.* EXCLUDE (dbid) FROM hg.pg_language l, hg.pg_database d WHERE l.dbid = 0")
    run(cursor, "DELETE FROM hg.pg_language WHERE dbid = 0")


STEPS: Mapping[int, Callable[[Cursor], None]] = {2: _to_3, 3: _to_4, 4: _to_5}
"""The steps by the format that they start from."""


def upgrade(path: Path) -> Iterator[int]:
    """Upgrade a catalog to the present format, step by step. Yield each format that is reached. Raise 0A000 if that is not possible."""
    catalog = Catalog.open_as_it_is(path)
    try:
        while (now := _format(catalog)) != FORMAT:
            step = STEPS.get(now)
            if step is None:
                range_text = f"newer than {FORMAT}" if now > FORMAT else f"older than {OLDEST}"
                raise PostgresError("0A000", f'cannot upgrade catalog "{path}"', detail=f"Its format is {now}, which is {range_text}.")
            catalog.change(functools.partial(_take, now=now, step=step), Step.DEFINITION)
            yield now + 1
    finally:
        catalog.close()


def _take(cursor: Cursor, now: int, step: Callable[[Cursor], None]) -> None:
    step(cursor)
    run(cursor, "UPDATE hg.counter SET value = ? WHERE name = 'format'", [now + 1])


def _format(catalog: Catalog) -> int:
    row = one(catalog.cursor(), "SELECT value FROM hg.counter WHERE name = 'format'")
    assert row is not None
    return int(row[0])
