"""A walsender rejects a subscriber that falsifies any word of its messages, and other sessions are not affected."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import psycopg
import pytest
from psycopg.pq import ExecStatus
from tests.conftest import Server, until
from tests.log import Log
from tests.session import Session
from tests.walreceiver.talk import CHANGES, TABLES, Talk, attacked
from tests.wire import Tap

from headgate.lsn import Lsn

UNEXPECTED = ("unforeseen", "Traceback", "failed")


class Scene:
    """A node's database that publishes to a role that may only replicate and read."""

    def __init__(self, node: Server, folder: Path) -> None:
        self.node = node
        self.database = node.new_database()
        self.role = f"subscribes_to_{self.database}"
        self.session = Session(node.conninfo(self.database))
        self.session.sql(f"{TABLES}; CREATE ROLE {self.role} LOGIN REPLICATION; GRANT SELECT ON t TO {self.role}")
        self.log = Log(node)
        self.talk = Talk(node.port, self.database, f"hostile_{self.database}", Lsn(0), folder, user=self.role)
        self._make_slot()
        self.talk.tap.__exit__()
        self.talk.tap = Tap(node.port, hostile="client")

    def _make_slot(self) -> None:
        rows = self.session.sql(f"SELECT lsn FROM pg_create_logical_replication_slot('{self.talk.slot}', 'pgoutput')")
        self.talk.begin = Lsn.parse(rows)
        self.session.sql(CHANGES)

    def ready(self) -> None:
        """Create the slot again if a falsified acknowledgement has advanced it, so that it has changes to send."""
        own_slots = f"FROM pg_replication_slots WHERE slot_name = '{self.talk.slot}'"
        if self.session.sql(f"SELECT confirmed_flush_lsn {own_slots}") != str(self.talk.begin):
            until(lambda: self.session.sql(f"SELECT active {own_slots}") == "f", "the slot stays active")
            self.session.sql(f"SELECT pg_drop_replication_slot('{self.talk.slot}')")
            self._make_slot()

    def unharmed(self) -> None:
        """Check that no falsified statement was executed, that no unexpected error was logged, and that no session or slot is left."""
        assert self.session.sql("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'pwned%'") == "0"
        messages = [entry.message for entry in self.log.entries() if any(word in entry.message for word in UNEXPECTED)]
        assert not messages, messages[:5]
        sessions = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{self.role}'"
        until(lambda: self.session.sql(sessions) == "0", "walsenders are left")
        slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND (temporary OR active)"
        until(lambda: self.session.sql(slots) == "0", "slots are left")

    def close(self) -> None:
        """Drop the slot and the role."""
        self.talk.tap.__exit__()
        self.session.sql(f"SELECT pg_drop_replication_slot('{self.talk.slot}'); DROP OWNED BY {self.role}; DROP ROLE {self.role}")
        self.session.close()


@pytest.fixture
def scene(node: Server, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(node, tmp_path)
    yield scene
    scene.close()


@pytest.mark.slow
def test_subscriber_that_falsifies_some_words_is_rejected(scene: Scene) -> None:
    count, wrong = attacked(scene.talk, lambda *site: crc32("".join(site).encode()) % 40 == 0, scene.ready)
    assert not wrong
    assert count > 15
    scene.unharmed()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_subscriber_that_falsifies_any_word_is_rejected(scene: Scene) -> None:
    threads_before = threading.active_count()
    count, wrong = attacked(scene.talk, lambda *_: True, scene.ready)
    assert not wrong
    assert count > 900
    scene.unharmed()
    assert threading.active_count() <= threads_before + 5


@pytest.mark.parametrize("rows", [1, pytest.param(30_000, marks=pytest.mark.slow)])
def test_subscriber_that_never_acknowledges_times_out_and_its_slot_does_not_advance(scene: Scene, rows: int) -> None:
    where = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{scene.talk.slot}'"
    lsn_before = scene.session.sql(where)
    scene.session.sql(f"CREATE TABLE many (a int, b text); ALTER PUBLICATION p ADD TABLE many; GRANT SELECT ON many TO {scene.role}")
    scene.session.sql(f"INSERT INTO many SELECT g, repeat('x', 1000) FROM generate_series(1, {rows}) g")
    parameters = {"replication": "database", "options": "'-c wal_sender_timeout=1s'"}
    with contextlib.closing(psycopg.connect(scene.node.conninfo(scene.database, scene.role, **parameters), autocommit=True)) as silent:
        start = f"START_REPLICATION SLOT {scene.talk.slot} LOGICAL 0/0 (proto_version '1', publication_names 'p')"
        silent.pgconn.send_query(start.encode())
        result = silent.pgconn.get_result()  # the walsender streams
        assert result is not None
        assert result.status == ExecStatus.COPY_BOTH
        active = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.talk.slot}'"
        until(lambda: scene.session.sql(active) == "f", "the walsender does not time out")
        lines = [line for line in scene.node.log().splitlines() if f"[{silent.info.backend_pid}]" in line]
        assert lines[-1].endswith("LOG:  terminating walsender process due to replication timeout"), lines
    assert scene.session.sql(where) == lsn_before
    scene.unharmed()
