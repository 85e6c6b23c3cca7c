"""Measure the queries that programs run on the system catalogs, in databases with a few and with many tables.

Called by `__main__`. psql and pg_dump are run on the native server first, and their queries are read from its log. catalogs.sql has the
queries of database browsers, drivers and reflection. Oids in the queries are replaced by those of the server that runs them.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.cost import cpu
from bench.replication import Side
from headgate.cli.demo.servers import DemoServer, postgresql_programs

PSQL = (
    r"\d", r"\dt many.*", r"\d+ many.t0", r"\d many.t1", r"\d+ many.seen", r"\di many.*", r"\df many.*", r"\dRp+", r"\dRs+", r"\dT+",
    r"\dn+", r"\du", r"\l", r"\ds", r"\dp many.*", r"\dd", r"\sv many.seen",
)  # fmt: skip
REPEATED = 3
_QUERY = re.compile(r"(SELECT|WITH|PREPARE|EXECUTE)\b", re.IGNORECASE)
_ENTRY = re.compile(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \w+ \[\d+\] ")
_STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)", re.DOTALL)
_OIDS = """SELECT 'class ' || oid::regclass, oid FROM pg_class WHERE oid >= 16384
UNION ALL SELECT 'type ' || oid::regtype, oid FROM pg_type WHERE oid >= 16384
UNION ALL SELECT 'schema ' || nspname, oid FROM pg_namespace WHERE oid >= 16384
UNION ALL SELECT 'publication ' || pubname, oid FROM pg_publication
UNION ALL SELECT 'database ' || datname, oid FROM pg_database WHERE oid >= 16384"""


@dataclass(frozen=True)
class QueryTimes:
    """Milliseconds of each query the first time, the median of its repetitions, and the average CPU of the server for one query."""

    first: list[float]
    again: list[float]
    cpu: float


def create_database(server: DemoServer, count: int) -> Side:
    """Create a database with `count` tables in schema `many`."""
    side = Side(server, f"bench_catalogs_{count}")
    Side(server, "postgres").execute(f"CREATE DATABASE {side.database}")
    with psycopg.connect(side.conninfo) as session:
        session.execute("CREATE SCHEMA many; CREATE TYPE many.mood AS ENUM ('sad', 'happy')")
        for number in range(count):
            session.execute(
                f"CREATE TABLE many.t{number} (id int PRIMARY KEY, a text NOT NULL, b int DEFAULT 3, c numeric(10,2),"
                " d timestamptz DEFAULT now(), e varchar(20), f text[], h serial, k many.mood, "
                f"g int{f' REFERENCES many.t{number - 1}' if number % 10 == 1 else ''})".encode()
            )
            if number % 5 == 0:
                session.execute(f"CREATE INDEX ON many.t{number} (b); COMMENT ON TABLE many.t{number} IS 'table {number}'".encode())
        session.execute("CREATE VIEW many.seen AS SELECT id, a FROM many.t0 WHERE b > 1; CREATE PUBLICATION two FOR TABLE many.t0 (id, a)")
    return side


def program_queries(side: Side) -> list[str]:
    """Return the queries of psql, pg_dump and catalogs.sql. Of queries that differ only in literals, the first two are returned."""
    before = side.server.logfile.stat().st_size
    environment = {**os.environ, "PGOPTIONS": "-c log_statement=all"}
    commands = [argument for command in PSQL for argument in ("-c", command)]
    subprocess.run(["psql", "-X", "-d", side.conninfo, *commands], check=True, capture_output=True, env=environment)
    pg_dump = str(postgresql_programs() / "pg_dump")
    subprocess.run([pg_dump, "-s", "-d", side.conninfo], check=True, capture_output=True, env=environment)
    with side.server.logfile.open("rb") as log:
        log.seek(before)
        entries = _ENTRY.split(log.read().decode())
    logged = [match[1].replace("\n\t", "\n").strip() for entry in entries if (match := _STATEMENT.match(entry))]
    listed = [text.strip() for text in re.split(r"(?m)^--.*\n", Path(__file__).with_suffix(".sql").read_text())]
    by_shape: dict[str, list[str]] = {}
    for statement in [*logged, *listed]:
        if _QUERY.match(statement) and "set_config" not in statement:
            by_shape.setdefault(re.sub(r"\d+|'[^']*'", "0", statement), []).append(statement)
    return [statement for statements in by_shape.values() for statement in dict.fromkeys(statements[:2])]


def translate_oids(statements: list[str], source: Side, target: Side) -> list[str]:
    """Replace the oids of the objects of `source` by those of the objects of `target` that have the same name."""
    source_oids, target_oids = (dict(map(tuple, side.execute(_OIDS))) for side in (source, target))
    translation = {str(oid): str(target_oids[name]) for name, oid in source_oids.items() if name in target_oids}

    def translate(oid: re.Match[str]) -> str:
        return translation.get(oid[0], oid[0])

    return [re.sub(r"(?<![\w.])\d{5,}(?!\w)", translate, statement) for statement in statements]


def measure(side: Side, statements: list[str], pid: int) -> QueryTimes:
    """Run all statements in one session, `1 + REPEATED` times."""
    times: list[list[float]] = [[] for _ in statements]
    cpu_before = cpu(pid)
    with psycopg.connect(side.conninfo, autocommit=True) as session:
        for turn in range(1 + REPEATED):
            for number, statement in enumerate(statements):
                if turn and statement.startswith("PREPARE"):
                    continue
                start = time.perf_counter()
                cursor = session.execute(statement.encode())
                if cursor.description:
                    cursor.fetchall()
                times[number].append((time.perf_counter() - start) * 1000)
        cpu_milliseconds = 1000 * (cpu(pid) - cpu_before)
    again = [statistics.median(milliseconds[1:]) for milliseconds in times if len(milliseconds) > 1]
    return QueryTimes([milliseconds[0] for milliseconds in times], again, cpu_milliseconds / sum(map(len, times)))
