"""Measure the cost of row filters in a publisher: no filter, a simple one, one of five terms, and eight filters at once.

Called by `__main__`. The publisher is a node or a PostgreSQL server. The readers are sockets that receive what the walsender sends and
look only for the last row, so that only the publisher is measured. No slot is confirmed, so every run reads the same changes. The single
filters let every row pass, so that they cost only their evaluation. Of the eight filters, the k-th lets k eighths of the rows pass.
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
"""The number of rows that one transaction changes."""


@contextmanager
def log(publisher: DemoServer, rows: int) -> Iterator[Side]:
    """Create a database with slots, then change `rows` rows: 60 % inserts, then 25 % updates, then 15 % deletes."""
    number = next(NUMBERS)
    Side(publisher, "postgres").execute(f"CREATE DATABASE gate_{number}")
    side = Side(publisher, f"gate_{number}")
    with psycopg.connect(side.conninfo, autocommit=True) as session:
        session.execute(TABLE.encode())
        for name, where in FILTERS.items():
            session.execute(f"CREATE PUBLICATION {name} FOR TABLE changes{where}".encode())
        for index in range(len(EIGHT)):
            session.execute(f"SELECT pg_create_logical_replication_slot('{side.database}_{index}', 'pgoutput')".encode())
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
    """Return the seconds until the streams of all these publications have sent the last row."""
    readers = [threading.Thread(target=read, args=(side, f"{side.database}_{index}", name)) for index, name in enumerate(names)]
    began = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    elapsed = time.perf_counter() - began
    while side.execute(f"SELECT 1 FROM pg_replication_slots WHERE active AND database = '{side.database}'"):
        time.sleep(0.05)
    return elapsed


def read(side: Side, slot: str, publication: str) -> int:
    """Receive the stream of a slot up to the last row. Return the number of bytes."""
    with socket.create_connection(("127.0.0.1", side.server.port)) as connection:
        parameters = f"user\0postgres\0database\0{side.database}\0replication\0database\0options\0-c wal_sender_timeout=0\0\0".encode()
        connection.sendall(struct.pack(">II", 8 + len(parameters), 196608) + parameters)
        _receive_until(connection, b"Z\0\0\0\5I")
        options = f"proto_version '1', publication_names '{publication},ending'"
        command = f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode() + b"\0"
        connection.sendall(b"Q" + struct.pack(">I", 4 + len(command)) + command)
        return _receive_until(connection, LAST)


def _receive_until(connection: socket.socket, end: bytes) -> int:
    """Receive bytes until `end`, of at most 64 bytes, has arrived. Return the number of bytes."""
    total, tail = 0, b""
    buffer = bytearray(1 << 20)
    while True:
        count = connection.recv_into(buffer)
        if not count:
            raise ConnectionError(f"the stream ended: {tail!r}")
        total += count
        if buffer.find(end, 0, count) >= 0 or end in tail + buffer[: min(count, 64)]:
            return total
        tail = (tail + buffer[max(0, count - 64) : count])[-64:]
