"""A publisher that lies in any field of any answer: whatever asks it gets a PostgresError, or the field as data, and soon."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from tests.conftest import Server
from tests.walreceiver.talk import CHANGES, TABLES, Talk, attacked
from tests.wire import Repeated, Tap, known_as

from headgate.lsn import Lsn


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
    postgres.drop_slot(database, slot)
    made.tap = Tap(repeated.port)
    with made.tap:
        yield made
    repeated.close()


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
