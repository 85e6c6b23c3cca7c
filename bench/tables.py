"""A node with many tables: seconds a table, and what is left of each in memory, threads and handles.

Called by `__main__` with a publisher and the node. Heap is what is alive after a full collection (`jcmd GC.run`, `jstat -gc`).
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
"""So many of the tables change in the stream."""


@dataclass(frozen=True)
class Size:
    """What a node takes: MB of Java's heap after a full collection, MB of PSS of its process tree, threads, open handles."""

    heap: float
    pss: float
    threads: int
    handles: int

    def __str__(self) -> str:
        return f"heap {self.heap:.0f} MB, PSS {self.pss:.0f} MB, {self.threads} threads, {self.handles} handles"


def size(pid: int) -> Size:
    """Of the node with this process id."""
    processes = tree(pid)
    java = next(each for each in processes if _name(each) == "java")
    subprocess.run(["jcmd", str(java), "GC.run"], capture_output=True, check=True)
    names, values = subprocess.run(["jstat", "-gc", str(java)], capture_output=True, text=True, check=True).stdout.splitlines()
    found = dict(zip(names.split(), values.split(), strict=True))
    heap = sum(float(found[name]) for name in ("S0U", "S1U", "EU", "OU")) / 1024
    threads = sum(len(list(Path(f"/proc/{each}/task").iterdir())) for each in (pid, java))
    handles = sum(len(os.listdir(f"/proc/{each}/fd")) for each in (pid, java))  # noqa: PTH208 (each entry is a link)
    return Size(heap, sum(map(proportional, processes)) / 2**20, threads, handles)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def definitions(count: int) -> str:
    """What `psql -f` reads: tables as pg_dump writes them, keys at the end."""
    made = [f"CREATE TABLE public.t_{n} (\n    id integer NOT NULL,\n    a text\n);\n" for n in range(count)]
    keys = [f"ALTER TABLE ONLY public.t_{n}\n    ADD CONSTRAINT t_{n}_pkey PRIMARY KEY (id);\n" for n in range(count)]
    return "\n".join([*made, *keys])


def made_by_psql(side: Side, count: int, folder: Path) -> float:
    """Seconds that psql takes for the tables."""
    script = folder / "tables.sql"
    script.write_text(definitions(count))
    began = time.perf_counter()
    words = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", side.conninfo, "-f", str(script)]
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - began


def keyed(side: Side, count: int) -> float:
    """Seconds of so many CREATE TABLE with a primary key, through one connection."""
    with psycopg.connect(side.conninfo, autocommit=True) as session:
        began = time.perf_counter()
        for number in range(count):
            session.execute(f"CREATE TABLE k_{number} (id int PRIMARY KEY, a text)".encode())
        return time.perf_counter() - began


def copied(pub: Side, sub: Side, name: str, count: int, rows: int = 100) -> float:
    """Seconds from CREATE SUBSCRIPTION, which makes the tables, until all are copied."""
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        for number in range(count):
            session.execute(f"CREATE TABLE t_{number} (id int PRIMARY KEY, a text)".encode())
            session.execute(f"INSERT INTO t_{number} SELECT g, 'text ' || g FROM generate_series(1, {rows}) g".encode())
    pub.execute("CREATE PUBLICATION p FOR ALL TABLES")
    began = time.perf_counter()
    subscribe(pub, sub, name, "WITH (create_tables = true)")
    wait_synced(sub)
    return time.perf_counter() - began


def streamed(pub: Side, name: str, count: int, rounds: int = 20) -> float:
    """Seconds for rounds of transactions that change a row in each of some tables, until the last is there."""
    began = time.perf_counter()
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        for turn in range(rounds):
            for number in range(min(count, CHANGING)):
                session.execute(f"UPDATE t_{number} SET a = 'turn {turn}' WHERE id = {turn + 1}".encode())
    wait_flushed(pub, name)
    return time.perf_counter() - began


def database(server: DemoServer, name: str) -> Side:
    """A new database."""
    Side(server, "postgres").execute(f"CREATE DATABASE {name}")
    return Side(server, name)
