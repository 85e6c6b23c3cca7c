"""Writes the data files of headgate.types from a real PostgreSQL: the rows of pg_type and the time zone abbreviations.

Run by hand when the PostgreSQL version that headgate follows changes, against a fresh cluster (``initdb``, nothing created)::

    .venv/bin/python tools/dump_types.py "host=/tmp port=5432 user=postgres dbname=template1"

Writes ``src/headgate/types/pg_type.csv`` (read by headgate.types.registry) and ``timezone_abbrev.csv`` (headgate.types.datetime.time_zone).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import psycopg

TARGET = Path(__file__).resolve().parent.parent / "src" / "headgate" / "types"

TYPES = """
SELECT t.oid, t.typname, n.nspname, t.typtype::text, t.typcategory::text, t.typispreferred, t.typlen, t.typbyval, t.typdelim::text,
       t.typelem, t.typarray, t.typbasetype, t.typtypmod, t.typcollation, t.typrelid, t.typmodin <> 0 AS has_typmod,
       format_type(t.oid, NULL) AS plain, format_type(t.oid, -1) AS unmodified
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid < 16384 ORDER BY t.oid
"""

ABBREVIATIONS = r"""
WITH line AS (SELECT regexp_match(line, '^([A-Z]+) +([A-Z][a-z]+/\S+)') AS found
                FROM regexp_split_to_table(pg_read_file((SELECT setting FROM pg_config WHERE name = 'SHAREDIR') || '/timezonesets/Default'), '\n') AS line)
SELECT abbrev, extract(epoch FROM utc_offset)::int AS seconds, is_dst, found[2] AS zone
FROM pg_timezone_abbrevs LEFT JOIN line ON found[1] = abbrev ORDER BY abbrev
"""


def dump(connection: psycopg.Connection[tuple[object, ...]], query: str, path: Path) -> None:
    """Writes the rows of `query` to `path` as CSV with a heading; booleans as t and f."""
    with connection.cursor() as cursor, path.open("w", newline="", encoding="utf-8") as file:
        cursor.execute(query.encode())
        assert cursor.description is not None
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in cursor.description])
        for row in cursor:
            writer.writerow([("t" if value else "f") if isinstance(value, bool) else value for value in row])


def main() -> None:
    """Writes both files."""
    with psycopg.connect(sys.argv[1]) as connection:
        dump(connection, TYPES, TARGET / "pg_type.csv")
        dump(connection, ABBREVIATIONS, TARGET / "timezone_abbrev.csv")


if __name__ == "__main__":
    main()
