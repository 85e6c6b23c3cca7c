"""A reader uses a slot and reads its changes in Arrow over one replication connection. It needs only psycopg and pyarrow."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import until
from tests.publisher import slots
from tests.publisher.arrow_changes import as_texts, read

FILTERED = """CREATE TABLE t (a int PRIMARY KEY, b text, secret text); CREATE PUBLICATION p FOR TABLE t (a, b) WHERE (a > 5);
    INSERT INTO t VALUES (1, 'x', 's'), (7, 'y', 's'), (8, NULL, 's'); UPDATE t SET a = 9 WHERE a = 1; UPDATE t SET a = 2 WHERE a = 7;
    UPDATE t SET b = 'z' WHERE a = 8; DELETE FROM t WHERE a = 9; TRUNCATE t; INSERT INTO t VALUES (10, 'after', 's')"""


class Reader:
    """A replication connection of a program that reads the changes of a table after its slot's position."""

    def __init__(self, conninfo: str, slot: str) -> None:
        self.session = psycopg.connect(f"{conninfo} replication=database", autocommit=True, prepare_threshold=None)
        self.slot, self.end = slot, ""

    def _value(self, query: str) -> str | None:
        row = self.session.execute(query.encode()).fetchone()
        return None if row is None else str(row[0])

    def read(self, rows: int = 1000) -> pa.Table | None:
        """Return the next changes, or None if there are none. Unless they are confirmed, they are returned again."""
        start = self._value(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{self.slot}'")
        end = self._value(f"SELECT to_lsn FROM headgate.change_ranges('p', 't', '{start}', pg_current_wal_lsn(), {rows}, 1)")
        if end is None:
            return None
        self.end = end
        return read(self.session, f"SELECT * FROM headgate.changes('p', 't', '{start}', '{end}')")

    def confirm(self) -> None:
        """Advance the slot past the changes that were read."""
        self._value(f"SELECT pg_replication_slot_advance('{self.slot}', '{self.end}')")


@pytest.fixture
def place(node) -> Iterator[tuple[str, str]]:
    """A database of the node, and a slot in it."""
    database = node.new_database()
    slot = slots.make(node, database, "arrow")
    yield database, slot
    node.drop_slot(database, slot)


@pytest.mark.slow
def test_slot_advances_as_its_reader_confirms(node, postgres, place) -> None:
    database, slot = place
    of_postgres = postgres.new_database()
    compared = slots.make(postgres, of_postgres, "compared")
    for server, name in ((postgres, of_postgres), (node, database)):
        server.psql(name, FILTERED)
    kinds = ("Insert", "Update", "Delete", "Truncate")
    streamed = [message for message in slots.messages(postgres, of_postgres, compared) if message.split()[0] in kinds]
    postgres.drop_slot(of_postgres, compared)
    reader, parts, positions = Reader(node.conninfo(database), slot), [], []
    while (changes := reader.read(rows=2)) is not None:
        parts += as_texts(changes, "t")
        reader.confirm()
        positions.append(node.psql(database, f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"))
    assert parts == streamed
    assert len(positions) > 3
    reader.session.close()
    assert positions[-1] == reader.end
    assert len(set(positions)) == len(positions)


@pytest.mark.slow
def test_terminated_reader_gets_what_it_has_not_confirmed_again(node, place) -> None:
    database, slot = place
    node.psql(database, FILTERED)
    first = Reader(node.conninfo(database), slot)
    confirmed = first.read(rows=2)
    first.confirm()
    unconfirmed = first.read(rows=2)
    pid = first.session.info.backend_pid
    node.psql(database, f"SELECT pg_terminate_backend({pid})")
    until(lambda: node.psql(database, f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}") == "0")
    with pytest.raises(psycopg.Error):
        first.confirm()
    first.session.close()
    second = Reader(node.conninfo(database), slot)
    again = second.read(rows=2)
    assert again.equals(unconfirmed)
    assert not again.equals(confirmed)
    second.confirm()
    following = second.read(rows=2)
    second.session.close()
    assert following["_lsn"][0].as_py() > again["_lsn"][-1].as_py()


@pytest.mark.slow
def test_reader_needs_replication_and_the_published_columns(node, place) -> None:
    database, slot = place
    role = f"{database}_r"
    node.psql(database, f"{FILTERED}; CREATE ROLE {role} LOGIN; GRANT SELECT (a) ON t TO {role}; GRANT headgate_read_changes TO {role}")
    conninfo = psycopg.conninfo.make_conninfo(node.conninfo(database), user=role)
    with pytest.raises(psycopg.OperationalError, match="must be superuser or replication role to start walsender"):
        Reader(conninfo, slot)
    node.psql(database, f"ALTER ROLE {role} REPLICATION")
    reader = Reader(conninfo, slot)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table t"):
        reader.read()
    node.psql(database, f"GRANT SELECT (b) ON t TO {role}")
    assert "secret" not in reader.read().column_names
    reader.session.close()
    node.psql(database, f"DROP OWNED BY {role}; DROP ROLE {role}")
