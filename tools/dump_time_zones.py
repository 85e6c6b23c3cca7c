"""Write the time zone abbreviations of PostgreSQL to ``timezone_abbrev.csv``, which headgate.types.datetime.time_zone reads.

Run it when headgate follows a new PostgreSQL version, against a newly initialized cluster::

    .venv/bin/python tools/dump_time_zones.py "host=/tmp port=5432 user=postgres dbname=template1"
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import psycopg

TARGET = Path(__file__).resolve().parent.parent / "src" / "headgate" / "types"

ABBREVIATIONS = r"""
WITH line AS (SELECT regexp_match(line, '^([A-Z]+) +([A-Z][a-z]+/\S+)') AS entry
                FROM regexp_split_to_table(pg_read_file((SELECT setting FROM pg_config WHERE name = 'SHAREDIR') || '/timezonesets/Default'), '\n') AS line)
SELECT abbrev, extract(epoch FROM utc_offset)::int AS seconds, is_dst, entry[2] AS zone
FROM pg_timezone_abbrevs LEFT JOIN line ON entry[1] = abbrev ORDER BY abbrev
"""


def dump(connection: psycopg.Connection[tuple[object, ...]], query: str, path: Path) -> None:
    """Write the rows of `query` to `path` as CSV with a heading. Booleans are t and f."""
    with connection.cursor() as cursor, path.open("w", newline="", encoding="utf-8") as file:
        cursor.execute(query.encode())
        assert cursor.description is not None
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in cursor.description])
        for row in cursor:
            writer.writerow([("t" if value else "f") if isinstance(value, bool) else value for value in row])


def main() -> None:
    """Write the file. The first argument is the conninfo of the server."""
    with psycopg.connect(sys.argv[1]) as connection:
        dump(connection, ABBREVIATIONS, TARGET / "timezone_abbrev.csv")


if __name__ == "__main__":
    main()
