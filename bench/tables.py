"""Measure how long a node takes to create many tables, and the memory, threads and file handles that they leave.

Called by `__main__` with a publisher and the node. Heap is the memory that is alive after a full collection (`jcmd GC.run`, `jstat -gc`).
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.memory import proportional, tree
from bench.replication import Side, subscribe, wait_flushed, wait_synced
from headgate.cli.demo.servers import DemoServer

CHANGING = 50
"""The number of tables that change in the stream."""


@dataclass(frozen=True)
class Size:
    """The size of a node: MB of Java's heap after a full collection, MB of PSS of its process tree, threads, open file handles."""

    heap: float
    pss: float
    threads: int
    handles: int

    def __str__(self) -> str:
        return f"heap {self.heap:.0f} MB, PSS {self.pss:.0f} MB, {self.threads} threads, {self.handles} handles"


def size(pid: int) -> Size:
    """Return the size of the node with this process id."""
    processes = tree(pid)
    java = next(process for process in processes if _name(process) == "java")
    subprocess.run(["jcmd", str(java), "GC.run"], capture_output=True, check=True)
    names, values = subprocess.run(["jstat", "-gc", str(java)], capture_output=True, text=True, check=True).stdout.splitlines()
    columns = dict(zip(names.split(), values.split(), strict=True))
    heap = sum(float(columns[name]) for name in ("S0U", "S1U", "EU", "OU")) / 1024
    threads = sum(len(list(Path(f"/proc/{process}/task").iterdir())) for process in (pid, java))
    handles = sum(len(os.listdir(f"/proc/{process}/fd")) for process in (pid, java))  # noqa: PTH208 (the entries are links)
    return Size(heap, sum(map(proportional, processes)) / 2**20, threads, handles)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def definitions(count: int) -> str:
    """Return a script of `count` tables in the form of pg_dump, which adds the primary keys at the end."""
    created = [f"CREATE TABLE public.t_{n} (\n    id integer NOT NULL,\n    a text\n);\n" for n in range(count)]
    keys = [f"ALTER TABLE ONLY public.t_{n}\n    ADD CONSTRAINT t_{n}_pkey PRIMARY KEY (id);\n" for n in range(count)]
    return "\n".join([*created, *keys])


def psql_seconds(side: Side, count: int, folder: Path) -> float:
    """Return the seconds that psql takes to create the tables."""
    script = folder / "tables.sql"
    script.write_text(definitions(count))
    began = time.perf_counter()
    command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", side.conninfo, "-f", str(script)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def create_seconds(side: Side, count: int) -> float:
    """Return the seconds of `count` CREATE TABLE statements with a primary key, through one connection."""
    with psycopg.connect(side.conninfo, autocommit=True) as session:
        began = time.perf_counter()
        for number in range(count):
            session.execute(f"CREATE TABLE k_{number} (id int PRIMARY KEY, a text)".encode())
        return time.perf_counter() - began


def copy_seconds(pub: Side, sub: Side, name: str, count: int, rows: int = 100) -> float:
    """Return the seconds from CREATE SUBSCRIPTION, which creates the tables, until all are copied."""
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        for number in range(count):
            session.execute(f"CREATE TABLE t_{number} (id int PRIMARY KEY, a text)".encode())
            session.execute(f"INSERT INTO t_{number} SELECT g, 'text ' || g FROM generate_series(1, {rows}) g".encode())
    pub.execute("CREATE PUBLICATION p FOR ALL TABLES")
    began = time.perf_counter()
    subscribe(pub, sub, name, "WITH (create_tables = true)")
    wait_synced(sub)
    return time.perf_counter() - began


def stream_seconds(pub: Side, name: str, count: int, rounds: int = 20) -> float:
    """Return the seconds for `rounds` updates of a row of each of up to `CHANGING` tables, until the last one has arrived."""
    began = time.perf_counter()
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        for round_number in range(rounds):
            for number in range(min(count, CHANGING)):
                session.execute(f"UPDATE t_{number} SET a = 'round {round_number}' WHERE id = {round_number + 1}".encode())
    wait_flushed(pub, name)
    return time.perf_counter() - began


def new_database(server: DemoServer, name: str) -> Side:
    """Create a database."""
    Side(server, "postgres").execute(f"CREATE DATABASE {name}")
    return Side(server, name)
