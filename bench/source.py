"""How fast a node gives published changes as Arrow: one log of changed rows (`gate.log`), read by one reader, by two and by four.

Called by `__main__`. A reader copies a range of LSNs (`COPY (SELECT * FROM headgate.changes(…)) TO STDOUT (FORMAT arrow)`) and decodes its
record batches, as a task of pyspark_headgate does. Several readers have the parts into which `headgate.change_ranges` cuts the log.
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

Part = tuple[str, str]
READERS = (1, 2, 4)
FILTERS = ("none", "simple", "five")


def rates(node: DemoServer, rows: int, runs: int) -> dict[str, list[float]]:
    """Changes a second, by filter and number of readers."""
    found: dict[str, list[float]] = {}
    with gate.log(node, rows) as side, ProcessPoolExecutor(max(READERS), get_context("spawn")) as pool:
        list(pool.map(_warm, [side.conninfo] * max(READERS)))
        with psycopg.connect(side.conninfo, autocommit=True) as session:
            start = session.execute("SELECT restart_lsn::text FROM pg_replication_slots LIMIT 1").fetchone()[0]  # type: ignore[index]
            end = session.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0]  # type: ignore[index]
            for name in FILTERS:
                for readers in READERS if name == "none" else READERS[:1]:
                    cut = f"headgate.change_ranges('{name}', 'changes', '{start}', '{end}', {-(-rows // readers)})"
                    parts = session.execute(f"SELECT from_lsn::text, to_lsn::text FROM {cut}".encode()).fetchall()
                    for _ in range(runs):
                        began = time.perf_counter()
                        count = sum(pool.map(_read, [side.conninfo] * len(parts), [name] * len(parts), parts))
                        found.setdefault(f"{name}, {readers} readers", []).append(count / (time.perf_counter() - began))
    return found


def _warm(conninfo: str) -> None:
    """A process that has imported what it needs."""
    with psycopg.connect(conninfo) as session:
        session.execute("SELECT 1")


def _read(conninfo: str, publication: str, part: Sequence[str]) -> int:
    query = f"COPY (SELECT * FROM headgate.changes('{publication}', 'changes', '{part[0]}', '{part[1]}')) TO STDOUT (FORMAT arrow)"
    with psycopg.connect(conninfo, autocommit=True) as session, session.cursor().copy(query.encode()) as copy:
        reader = pa.ipc.open_stream(io.BufferedReader(_Copied(copy), 1 << 20))
        count = sum(batch.num_rows for batch in reader)
        while copy.read():  # the end of the stream is not yet the end of COPY
            pass
        return count


class _Copied(io.RawIOBase):
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
