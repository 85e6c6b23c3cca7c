"""What the gate costs: one log of changed rows read by subscriptions with no filter, a simple one, one of five terms, and by eight at once.

Called by `__main__`. The publisher is a node or a PostgreSQL; the readers are the same for both: sockets that take what the walsender
sends and look at nothing but its last row, so that what is measured is the publisher. A slot is never confirmed, so every run reads
the same changes. The single filters let every row pass: what they cost is the judging alone. Of the eight, the k-th lets k eighths pass.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from bench.replication import NUMBERS, Side
from headgate.cli.demo.servers import DemoServer

TABLE = (
    "CREATE TABLE changes (id bigint PRIMARY KEY, a int, b int, n numeric(12,2), s text, d date);"
    "ALTER TABLE changes REPLICA IDENTITY FULL; CREATE TABLE ending (word text); CREATE PUBLICATION ending FOR TABLE ending;"
)
ROWS = (
    "SELECT g, (g * 7919 % 1000003)::int, (g * 31 % 1009)::int, (g % 100000 / 8.0)::numeric(12,2),"
    " CASE g % 4 WHEN 0 THEN 'new' WHEN 1 THEN 'Paid' WHEN 2 THEN 'sent' ELSE 'held' END, date '2015-01-01' + (g % 4000)::int"
)
FILTERS = {
    "none": "",
    "simple": " WHERE (a > -1)",
    "five": " WHERE (a > -1 AND b BETWEEN 0 AND 2000 AND s IN ('new', 'Paid', 'sent', 'held') AND n >= 0.00 AND d >= '2015-01-01')",
    **{f"eighth_{k}": f" WHERE (a >= {1000003 - 125001 * k})" for k in range(1, 9)},
}
EIGHT = tuple(name for name in FILTERS if name.startswith("eighth"))
LAST = b"this is the last row"
TRANSACTION = 10_000
"""Rows of one transaction."""


@contextmanager
def log(publisher: DemoServer, rows: int) -> Iterator[Side]:
    """A database whose slots lie before `rows` changed rows: six tenths inserts, then updates, then deletes."""
    number = next(NUMBERS)
    Side(publisher, "postgres").execute(f"CREATE DATABASE gate_{number}")
    side = Side(publisher, f"gate_{number}")
    with psycopg.connect(side.conninfo, autocommit=True) as session:
        session.execute(TABLE.encode())
        for name, where in FILTERS.items():
            session.execute(f"CREATE PUBLICATION {name} FOR TABLE changes{where}".encode())
        for place in range(len(EIGHT)):
            session.execute(f"SELECT pg_create_logical_replication_slot('{side.database}_{place}', 'pgoutput')".encode())
        inserts, updates, deletes = rows * 6 // 10, rows * 25 // 100, rows * 15 // 100
        for first in range(1, inserts + 1, TRANSACTION):
            last = min(first + TRANSACTION - 1, inserts)
            session.execute(f"INSERT INTO changes {ROWS} FROM generate_series({first}::bigint, {last}) g".encode())
        for first in range(1, updates + 1, TRANSACTION):
            last = min(first + TRANSACTION - 1, updates)
            session.execute(f"UPDATE changes SET n = n + 1 WHERE id BETWEEN {first} AND {last}".encode())
        for first in range(1, deletes + 1, TRANSACTION):
            last = min(first + TRANSACTION - 1, deletes)
            session.execute(f"DELETE FROM changes WHERE id BETWEEN {first} AND {last}".encode())
        session.execute("INSERT INTO ending VALUES (%s)", (LAST.decode(),))
    try:
        yield side
    finally:
        Side(publisher, "postgres").execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{side.database}'"
        )
        Side(publisher, "postgres").execute(f"DROP DATABASE {side.database} WITH (FORCE)")


def seconds(side: Side, names: Sequence[str]) -> float:
    """Until the streams of these publications have all come to the last row."""
    readers = [threading.Thread(target=read, args=(side, f"{side.database}_{place}", name)) for place, name in enumerate(names)]
    began = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    taken = time.perf_counter() - began
    while side.execute(f"SELECT 1 FROM pg_replication_slots WHERE active AND database = '{side.database}'"):
        time.sleep(0.05)
    return taken


def read(side: Side, slot: str, name: str) -> int:
    """Reads what a slot streams of one publication, up to the last row; gives its bytes."""
    with socket.create_connection(("127.0.0.1", side.server.port)) as link:
        words = f"user\0postgres\0database\0{side.database}\0replication\0database\0options\0-c wal_sender_timeout=0\0\0".encode()
        link.sendall(struct.pack(">II", 8 + len(words), 196608) + words)
        _until(link, b"Z\0\0\0\5I")
        command = f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names '{name},ending')".encode() + b"\0"
        link.sendall(b"Q" + struct.pack(">I", 4 + len(command)) + command)
        return _until(link, LAST)


def _until(link: socket.socket, wanted: bytes) -> int:
    """Takes bytes until these have come; gives how many."""
    total, held = 0, b""
    buffer = bytearray(1 << 20)
    while True:
        count = link.recv_into(buffer)
        if not count:
            raise ConnectionError(f"the stream ended: {held[-300:]!r}")
        total += count
        if buffer.find(wanted, 0, count) >= 0 or wanted in held + buffer[: min(count, 64)]:
            return total
        held = (held + buffer[max(0, count - 64) : count])[-64:]
