"""Run a subscriber's whole conversation with a publisher, through a proxy that can falsify either side."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.wire import CORRUPTIONS, Attack, Tap

from headgate.commands.subscription import remote_expression
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.sql import type_name
from headgate.walreceiver import definition, remote
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.progress import StreamProgress
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.receiver import Limits, Receiver
from headgate.walreceiver.spool import Spool
from headgate.walreceiver.waker import Waker

SECONDS = 10
"""The limit for one conversation."""
TRIES = 5
"""A message may be missing from a conversation: a subscriber that has all rows may end before it reports its position.

So an attack is tried several times.
"""

TABLES = """
    CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE t (id int PRIMARY KEY, name text, feels mood);
    INSERT INTO t VALUES (1, 'one', 'glad'), (2, 'two', 'sad'); CREATE PUBLICATION p FOR TABLE t (id, name, feels) WHERE (id < 1000)"""


CHANGES = "INSERT INTO t VALUES (3, 'three', 'sad'); UPDATE t SET id = 4, name = 'four' WHERE id = 3; DELETE FROM t WHERE id = 4"


class Talk:
    """A subscriber's whole conversation with a publisher, through a proxy that may falsify messages."""

    def __init__(self, port: int, database: str, slot: str, begin: Lsn, folder: Path, *, user: str = "postgres") -> None:
        self.tap, self.user = Tap(port), user
        self.database, self.slot, self.begin, self.folder = database, slot, begin, folder

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.tap.port} dbname={self.database} user={self.user} sslmode=disable gssencmode=disable"

    def all(self, *, patience: float = SECONDS) -> None:
        """Run the conversation once. It is stopped after `patience` seconds."""
        wakers = Waker(), Waker()
        timers = [threading.Timer(patience, waker.stop) for waker in wakers]
        for timer in timers:
            timer.start()
        try:
            self._all(*wakers, patience)
        finally:
            for timer in timers:
                timer.cancel()
            for waker in wakers:
                waker.close()

    def _all(self, waker: Waker, of_stream: Waker, patience: float) -> None:
        with PublisherConnection.open(self.conninfo, "sub", waker=waker) as connection:
            connection.identify_system()
            remote.missing_publications(connection, ["p"])
            tables = definition.read(connection, remote.published_tables(connection, ["p"]))
            for column in (column for table in tables.tables.values() for column in table.columns):
                type_name.parsed(column.shown)
                remote_expression.accepted(column.default)
            self._copy(connection)
        self._stream(of_stream, patience)

    def _copy(self, connection: PublisherConnection) -> None:
        connection.query("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
        connection.create_slot("hostile_copy", snapshot="use", temporary=True)
        relation = remote.fetch_relation(connection, "public", "t", ["p"])
        list(connection.copy_out(remote.copy_command(relation)))
        connection.query("COMMIT")
        connection.query("ROLLBACK")
        connection.drop_slot("hostile_copy", missing_ok=True)
        connection.drop_slot("hostile_copy", missing_ok=True)

    def _stream(self, waker: Waker, patience: float) -> None:
        """Stream until all transactions have arrived. They are not confirmed, so the publisher keeps them for the next conversation."""
        with PublisherConnection.open(self.conninfo, "sub", waker=waker) as connection:
            connection.start_streaming(self.slot, self.begin, ["p"])
            folder = self.folder / "spool"
            spool = Spool(folder)
            receiver = Receiver(connection, spool, StreamProgress(), waker, Limits, reassembly=Reassembly(spool))
            receiver.start("hostile")
            known: dict[int, m.Relation] = {}
            try:
                transactions = 0
                while transactions < 3:
                    segment = spool.take(min(patience, 5), 1 << 30)
                    if segment is None:
                        raise PostgresError("08006", "there was no answer")
                    known |= decode.decode(*segment.read(), relations=known).relations
                    transactions += len(segment.transactions)
                    spool.release_oldest()
            finally:
                receiver.stop()
                spool.close()
                shutil.rmtree(folder, ignore_errors=True)


def attacked(
    talk: Talk, is_chosen: Callable[[str, str, str], bool], ready: Callable[[], None] = lambda: None
) -> tuple[int, dict[str, str]]:
    """Run a conversation for each is_chosen corruption of each field. `ready` is called before each.

    Return the number of corruptions, and a description of each one that was not rejected or read as it should be.
    """
    talk.all(patience=6 * SECONDS)  # without corruptions; it may take long on a busy machine
    sites, wrong, count = list(talk.tap.sites), {}, 0
    for query, name in sites:
        for title, change in CORRUPTIONS.items():
            if not is_chosen(query, name, title):
                continue
            count += 1
            attack = talk.tap.attack = Attack(query, name, change)
            message, fault = "", None
            for _ in range(TRIES):
                ready()
                message, fault = _once(talk)
                if attack.fired.is_set() or message or fault:
                    break
            if not attack.fired.is_set():
                fault = f"the field did not occur: {message}"
            if fault:
                wrong[f"{query} | {name} | {title}"] = fault
    talk.tap.attack = None
    ready()
    talk.all()
    return count, wrong


def _once(talk: Talk) -> tuple[str, str | None]:
    """Run a conversation. Return the error with which it was rejected, and the fault if it ended wrongly."""
    began, message, fault = time.monotonic(), "", None
    try:
        talk.all()
    except PostgresError as error:
        message = error.message
        if message.startswith("receiver failed"):
            fault = message[:300]
    except Exception as error:  # noqa: BLE001 (any other error is a fault)
        fault = f"{type(error).__name__}: {str(error)[:300]}"
    return message, "took too long" if time.monotonic() - began > SECONDS else fault
