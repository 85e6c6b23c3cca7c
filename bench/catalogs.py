"""Milliseconds of the queries that programs ask of the system catalogs, in a database of a few and of many tables.

Called by `__main__`. What psql and pg_dump ask is taken from the log of the native server, where they are run first; what browsers, drivers
and reflection ask stands in catalogs.sql. Oids of objects are those of the server that is asked.
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
_ASKING = re.compile(r"(SELECT|WITH|PREPARE|EXECUTE)\b", re.IGNORECASE)
_ENTRY = re.compile(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \w+ \[\d+\] ")
_LOGGED = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)", re.DOTALL)
_OIDS = """SELECT 'class ' || oid::regclass, oid FROM pg_class WHERE oid >= 16384
UNION ALL SELECT 'type ' || oid::regtype, oid FROM pg_type WHERE oid >= 16384
UNION ALL SELECT 'schema ' || nspname, oid FROM pg_namespace WHERE oid >= 16384
UNION ALL SELECT 'publication ' || pubname, oid FROM pg_publication
UNION ALL SELECT 'database ' || datname, oid FROM pg_database WHERE oid >= 16384"""


@dataclass(frozen=True)
class Measured:
    """Milliseconds of each query, the first time and then (the median); CPU milliseconds of the server's processes for one, on average."""

    first: list[float]
    again: list[float]
    cpu: float


def filled(server: DemoServer, count: int) -> Side:
    """A database with so many tables, in schema `many`."""
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


def asked(side: Side) -> list[str]:
    """What psql and pg_dump ask this PostgreSQL server, and what stands in catalogs.sql; of what differs in numbers only, two."""
    before = side.server.logfile.stat().st_size
    environment = {**os.environ, "PGOPTIONS": "-c log_statement=all"}
    commands = [word for each in PSQL for word in ("-c", each)]
    subprocess.run(["psql", "-X", "-d", side.conninfo, *commands], check=True, capture_output=True, env=environment)
    dump = str(postgresql_programs() / "pg_dump")
    subprocess.run([dump, "-s", "-d", side.conninfo], check=True, capture_output=True, env=environment)
    with side.server.logfile.open("rb") as log:
        log.seek(before)
        entries = _ENTRY.split(log.read().decode())
    logged = [matched[1].replace("\n\t", "\n").strip() for each in entries if (matched := _LOGGED.match(each))]
    ours = re.split(r"(?m)^--.*\n", Path(__file__).with_suffix(".sql").read_text())
    found: dict[str, list[str]] = {}
    for statement in [*logged, *(each.strip() for each in ours)]:
        if _ASKING.match(statement) and "set_config" not in statement:
            found.setdefault(re.sub(r"\d+|'[^']*'", "0", statement), []).append(statement)
    return [statement for same in found.values() for statement in dict.fromkeys(same[:2])]


def there(statements: list[str], asked_of: Side, side: Side) -> list[str]:
    """The statements with the oids that the objects have on another server."""
    names, numbers = (dict(map(tuple, each.execute(_OIDS))) for each in (asked_of, side))
    known = {str(oid): str(numbers[name]) for name, oid in names.items() if name in numbers}
    return [re.sub(r"(?<![\w.])\d{5,}(?!\w)", lambda number: known.get(number[0], number[0]), each) for each in statements]


def taken(side: Side, statements: list[str], pid: int) -> Measured:
    """Asks them all, one by one, in one session; then all of them again."""
    times: list[list[float]] = [[] for _ in statements]
    began = cpu(pid)
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
        busy = 1000 * (cpu(pid) - began)
    again = [statistics.median(each[1:]) for each in times if len(each) > 1]
    return Measured([seconds[0] for seconds in times], again, busy / sum(map(len, times)))
