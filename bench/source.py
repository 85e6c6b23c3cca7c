"""Measure how fast a node returns published changes as Arrow, to concurrent readers of one log (`gate.log`) and to Spark.

Called by `__main__`. One, two and four readers run at once. A reader copies a range of LSNs (`COPY (SELECT * FROM headgate.changes(…)) TO
STDOUT (FORMAT arrow)`) and decodes its record batches, as a task of pyspark_headgate does. `headgate.change_ranges` splits the log into one
range for each reader. `spark_source` measures the package itself.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import psycopg
import pyarrow as pa

from bench import gate, spark_source
from bench.replication import Side
from headgate.cli.demo.servers import DemoServer

Range = tuple[str, str]
READERS = (1, 2, 4)
FILTERS = ("none", "simple", "five")


@dataclass(frozen=True)
class Figures:
    """Changes per second, and the seconds of restarts of a streaming query, each for every run."""

    rates: dict[str, list[float]]
    restarts: list[float]


def measure(node: DemoServer, rows: int, runs: int) -> Figures:
    """Read the changes of one log by all readers and queries."""
    with gate.log(node, rows) as side:
        with psycopg.connect(side.conninfo, autocommit=True) as session:
            start = session.execute("SELECT restart_lsn::text FROM pg_replication_slots LIMIT 1").fetchone()[0]  # type: ignore[index]
            end = session.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0]  # type: ignore[index]
            rates = _reader_rates(side, session, (start, end), rows, runs)
        with spark_source.session() as spark:
            spark_source.read_seconds(spark, side, "none", (start, end), max(spark_source.TASKS))  # start the workers
            for tasks in spark_source.TASKS:
                all_seconds = [spark_source.read_seconds(spark, side, "none", (start, end), tasks) for _ in range(runs)]
                rates[f"by Spark, {tasks} tasks"] = [rows / seconds for seconds in all_seconds]
            return Figures(rates, spark_source.restart_seconds(spark, side, "none", runs))


def _reader_rates(side: Side, session: psycopg.Connection, bounds: Range, rows: int, runs: int) -> dict[str, list[float]]:
    by_case: dict[str, list[float]] = {}
    with ProcessPoolExecutor(max(READERS), get_context("spawn")) as pool:
        list(pool.map(_warm, [side.conninfo] * max(READERS)))
        for name in FILTERS:
            for readers in READERS if name == "none" else READERS[:1]:
                ranges = f"headgate.change_ranges('{name}', 'changes', '{bounds[0]}', '{bounds[1]}', {-(-rows // readers)})"
                parts = session.execute(f"SELECT from_lsn::text, to_lsn::text FROM {ranges}".encode()).fetchall()
                for _ in range(runs):
                    began = time.perf_counter()
                    count = sum(pool.map(_read, [side.conninfo] * len(parts), [name] * len(parts), parts))
                    by_case.setdefault(f"{name}, {readers} readers", []).append(count / (time.perf_counter() - began))
    return by_case


def _warm(conninfo: str) -> None:
    """Connect once, so that the process has started and imported its modules before the measurement."""
    with psycopg.connect(conninfo) as session:
        session.execute("SELECT 1")


def _read(conninfo: str, publication: str, part: Sequence[str]) -> int:
    query = f"COPY (SELECT * FROM headgate.changes('{publication}', 'changes', '{part[0]}', '{part[1]}')) TO STDOUT (FORMAT arrow)"
    with psycopg.connect(conninfo, autocommit=True) as session, session.cursor().copy(query.encode()) as copy:
        reader = pa.ipc.open_stream(io.BufferedReader(_CopyStream(copy), 1 << 20))
        count = sum(batch.num_rows for batch in reader)
        while copy.read():  # the Arrow stream ends before COPY does
            pass
        return count


class _CopyStream(io.RawIOBase):
    """The bytes of a COPY as a raw stream."""

    def __init__(self, copy: psycopg.Copy) -> None:
        super().__init__()
        self._copy, self._rest = copy, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(self._copy.read())
        count = min(len(target), len(self._rest))
        target[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
