"""Measure how fast a node returns published changes as Arrow, to one, two and four concurrent readers of one log (`gate.log`).

Called by `__main__`. A reader copies a range of LSNs (`COPY (SELECT * FROM headgate.changes(…)) TO STDOUT (FORMAT arrow)`) and decodes its
record batches, as a task of pyspark_headgate does. `headgate.change_ranges` splits the log into one range for each reader.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import psycopg
import pyarrow as pa

from bench import gate
from headgate.cli.demo.servers import DemoServer

Range = tuple[str, str]
READERS = (1, 2, 4)
FILTERS = ("none", "simple", "five")


def rates(node: DemoServer, rows: int, runs: int) -> dict[str, list[float]]:
    """Return the changes per second of each run, by filter and number of readers."""
    by_case: dict[str, list[float]] = {}
    with gate.log(node, rows) as side, ProcessPoolExecutor(max(READERS), get_context("spawn")) as pool:
        list(pool.map(_warm, [side.conninfo] * max(READERS)))
        with psycopg.connect(side.conninfo, autocommit=True) as session:
            start = session.execute("SELECT restart_lsn::text FROM pg_replication_slots LIMIT 1").fetchone()[0]  # type: ignore[index]
            end = session.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0]  # type: ignore[index]
            for name in FILTERS:
                for readers in READERS if name == "none" else READERS[:1]:
                    ranges = f"headgate.change_ranges('{name}', 'changes', '{start}', '{end}', {-(-rows // readers)})"
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
