"""If a publisher falsifies a field of an answer, the reader soon raises a PostgresError, or takes the field for data."""

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
    """A conversation with a server that repeats PostgreSQL's recorded answers."""
    database = postgres.new_database()
    slot = f"hostile_{database}"
    postgres.psql(database, TABLES)
    begin = Lsn.parse(postgres.psql(database, f"SELECT lsn FROM pg_create_logical_replication_slot('{slot}', 'pgoutput')"))
    postgres.psql(database, CHANGES)
    talk = Talk(postgres.port, database, slot, begin, tmp_path)
    with talk.tap:
        talk.all()
        repeated = Repeated(talk.tap.answers)
    postgres.drop_slot(database, slot)
    talk.tap = Tap(repeated.port)
    with talk.tap:
        yield talk
    repeated.close()


@pytest.mark.slow
def test_publisher_that_falsifies_some_fields_is_detected(talk: Talk) -> None:
    count, wrong = attacked(talk, lambda *site: crc32("".join(site).encode()) % 12 == 0)
    assert not wrong
    assert count > 80
    assert known_as("IDENTIFY_SYSTEM") in {query for query, _ in talk.tap.sites}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_publisher_may_falsify_any_field(talk: Talk) -> None:
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, wrong = attacked(talk, lambda *_: True)
    assert not wrong
    assert count > 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 300_000, "kB"
