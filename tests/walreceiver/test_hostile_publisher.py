"""A publisher that lies in any field of any answer: whatever asks it gets a PostgresError, or the field as data, and soon."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from tests.conftest import Server
from tests.wire import POISONS, Attack, Repeated, Tap, known_as

from headgate.commands import applied_ddl
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.walreceiver import remote
from headgate.walreceiver.connection import Connection
from headgate.walreceiver.progress import Progress
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.receiver import Limits, Receiver
from headgate.walreceiver.spool import Spool
from headgate.walreceiver.waker import Waker

SECONDS = 10
"""No conversation takes longer."""

TABLES = """
    CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE t (id int PRIMARY KEY, name text, feels mood);
    INSERT INTO t VALUES (1, 'one', 'glad'), (2, 'two', 'sad'); CREATE PUBLICATION p FOR TABLE t (id, name, feels) WHERE (id < 1000)"""


CHANGES = "INSERT INTO t VALUES (3, 'three', 'sad'); UPDATE t SET id = 4, name = 'four' WHERE id = 3; DELETE FROM t WHERE id = 4"


class Talk:
    """All that a subscriber says to a publisher, through a proxy that may lie."""

    def __init__(self, port: int, database: str, slot: str, begin: Lsn, folder: Path) -> None:
        self.tap = Tap(port)
        self.database, self.slot, self.begin, self.folder = database, slot, begin, folder

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.tap.port} dbname={self.database} user=postgres sslmode=disable gssencmode=disable"

    def all(self) -> None:
        """Once through everything."""
        with Connection.open(self.conninfo, "sub") as connection:
            connection.identify_system()
            remote.missing_publications(connection, ["p"])
            for table in remote.published_tables(connection, ["p"]):
                applied_ddl.table_definition(connection, table)
            self._copy(connection)
        self._stream()

    def _copy(self, connection: Connection) -> None:
        connection.query("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
        connection.create_slot("hostile_copy", snapshot="use", temporary=True)
        relation = remote.fetch_relation(connection, "public", "t", ["p"])
        list(connection.copy_out(remote.copy_command(relation)))
        connection.query("COMMIT")
        connection.query("ROLLBACK")
        connection.drop_slot("hostile_copy", missing_ok=True)
        connection.drop_slot("hostile_copy", missing_ok=True)

    def _stream(self) -> None:
        """Streams until all transactions have come; then what the publisher keeps is what it kept before."""
        waker = Waker()
        with Connection.open(self.conninfo, "sub", waker=waker) as connection:
            connection.start_streaming(self.slot, self.begin, ["p"])
            folder = self.folder / "spool"
            spool = Spool(folder)
            receiver = Receiver(connection, spool, Progress(), waker, Limits, reassembly=Reassembly(spool))
            receiver.start("hostile")
            known: dict[int, m.Relation] = {}
            try:
                seen = 0
                while seen < 3:
                    segment = spool.take(1, 1 << 30)
                    if segment is None:
                        raise PostgresError("08006", "there was no answer")
                    known |= decode.decode(*segment.read(), relations=known).relations
                    seen += len(segment.transactions)
                    spool.release(segment)
            finally:
                receiver.stop()
                spool.close()
                shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def talk(postgres: Server, tmp_path: Path) -> Iterator[Talk]:
    """With a server that says what PostgreSQL has said."""
    database = postgres.new_database()
    slot = f"hostile_{database}"
    postgres.psql(database, TABLES)
    begin = Lsn.parse(postgres.psql(database, f"SELECT lsn FROM pg_create_logical_replication_slot('{slot}', 'pgoutput')"))
    postgres.psql(database, CHANGES)
    made = Talk(postgres.port, database, slot, begin, tmp_path)
    with made.tap:
        made.all()
        repeated = Repeated(made.tap.answers)
    postgres.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")
    made.tap = Tap(repeated.port)
    with made.tap:
        yield made
    repeated.close()


def attacked(talk: Talk, chosen: Callable[[str, str, str], bool]) -> tuple[int, dict[str, str]]:
    """Every field by every poison that is chosen: how many there were, and what was not answered as it should be."""
    talk.all()
    sites, wrong, count = list(talk.tap.sites), {}, 0
    for asked, name in sites:
        for title, change in POISONS.items():
            if not chosen(asked, name, title):
                continue
            count += 1
            attack = talk.tap.attack = Attack(asked, name, change)
            shown, began = f"{asked} | {name} | {title}", time.monotonic()
            try:
                talk.all()
            except PostgresError as error:
                if error.message.startswith("receiver failed"):
                    wrong[shown] = error.message[:300]
            except Exception as error:  # noqa: BLE001 - what it is is the failure
                wrong[shown] = f"{type(error).__name__}: {str(error)[:300]}"
            if not attack.fired.is_set():
                wrong[shown] = "did not come"
            if time.monotonic() - began > SECONDS:
                wrong[shown] = "took too long"
    talk.tap.attack = None
    talk.all()
    return count, wrong


def test_a_publisher_that_lies_is_told_from_one_that_does_not(talk: Talk) -> None:
    count, wrong = attacked(talk, lambda *site: crc32("".join(site).encode()) % 12 == 0)
    assert not wrong
    assert count > 80
    assert known_as("IDENTIFY_SYSTEM") in {asked for asked, _ in talk.tap.sites}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_publisher_may_lie_in_any_field(talk: Talk) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, wrong = attacked(talk, lambda *_: True)
    assert not wrong
    assert count > 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "kB"
