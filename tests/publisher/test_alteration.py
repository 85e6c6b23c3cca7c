"""After an ALTER PUBLICATION with ``reconcile = true``, its streams send the rows that enter or leave the publication, and no others.

`scene` is a node's database with a table of nine rows, published as `p` WHERE (a > 5), and a slot. The tests read the slot as texts
(`slots`). The last tests check that real subscribers are equal afterwards, also across restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from tests.conftest import NodeServer, Server, SqlError, until
from tests.publisher import slots
from tests.session import Session
from tests.system.chain import Database, arrived, subscribe

ROWS = "INSERT INTO t SELECT i, i % 3, 'row ' || i FROM generate_series(1, 9) i"


@dataclass
class Scene:
    """A database of the node, and a slot that has read all changes so far."""

    server: Server
    database: str
    slot: str

    def sql(self, script: str) -> str:
        return self.server.psql(self.database, script)

    def changes(self, publication: str = "p") -> list[str]:
        """Return the next changes of the slot, without the Relation, Begin and Commit messages."""
        messages = slots.messages(self.server, self.database, self.slot, publication)
        return [message for message in messages if message.split()[0] not in ("Begin", "Commit", "Relation")]


@pytest.fixture
def scene(node: Server) -> Iterator[Scene]:
    database = node.new_database()
    node.psql(
        database,
        f"""CREATE TABLE t (a int PRIMARY KEY, b int, c text); {ROWS};
        CREATE PUBLICATION p FOR TABLE t WHERE (a > 5) WITH (reconcile = true)""",
    )
    scene = Scene(node, database, slots.make(node, database, "s"))
    yield scene
    node.psql(database, f"SELECT pg_drop_replication_slot('{scene.slot}')")


def test_wider_filter_sends_the_rows_that_enter(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 3)")
    assert scene.changes() == ["Insert t (4, 1, row 4)", "Insert t (5, 2, row 5)"]
    assert scene.changes() == []


def test_narrower_filter_sends_deletes_of_the_rows_that_leave_by_their_key(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.changes() == ["Delete t (6, null, null)", "Delete t (7, null, null)"]


def test_changed_filter_sends_inserts_and_deletes_and_skips_rows_of_both_filters(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a BETWEEN 4 AND 7)")
    assert sorted(scene.changes()) == [
        "Delete t (8, null, null)", "Delete t (9, null, null)", "Insert t (4, 1, row 4)", "Insert t (5, 2, row 5)",
    ]  # fmt: skip


def test_filter_evaluated_by_spark_sends_the_same_rows(scene: Scene) -> None:
    scene.sql("ALTER TABLE t REPLICA IDENTITY FULL; ALTER PUBLICATION p SET TABLE t WHERE (substring(c from '[0-9]+') > '6')")
    assert scene.changes() == ["Delete t (6, 0, row 6)"]


def test_dropping_a_table_sends_deletes_and_adding_it_sends_inserts(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p DROP TABLE t")
    assert [message.split()[0] for message in scene.changes()] == ["Delete"] * 4
    scene.sql("ALTER PUBLICATION p ADD TABLE t WHERE (a = 1)")
    assert scene.changes() == ["Insert t (1, 1, row 1)"]


def test_columns_added_to_the_list_are_sent_as_updates(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t (a, b) WHERE (a > 7)")
    assert scene.changes() == ["Delete t (6, null)", "Delete t (7, null)"]
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.changes() == ["Update t (8, 2, row 8)", "Update t (9, 0, row 9)"]


def test_rows_that_another_publication_of_the_stream_publishes_stay(scene: Scene) -> None:
    scene.sql("CREATE PUBLICATION q FOR TABLE t WHERE (a = 6)")
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.changes("p,q") == ["Delete t (7, null, null)"]


def test_nothing_is_sent_without_reconcile(scene: Scene) -> None:
    assert scene.sql("SELECT * FROM headgate.publications()") == "p|t"
    scene.sql("ALTER PUBLICATION p SET (reconcile = false)")
    assert scene.sql("SELECT * FROM headgate.publications()") == "p|f"
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.changes() == []


def test_rows_sent_are_those_of_the_time_of_the_alteration(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 4)")
    scene.sql("UPDATE t SET c = 'later' WHERE a = 5; DELETE FROM t WHERE a = 9; ALTER TABLE t DROP COLUMN b")
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 3)")
    assert scene.changes() == ["Insert t (5, 2, row 5)", "Update t (5, 2, later)", "Delete t (9, null, null)", "Insert t (4, row 4)"]


def test_rows_of_several_files_enter_and_leave_around_deleted_rows(scene: Scene) -> None:
    """A file from which rows enter is read twice, or once if all its rows enter.

    Of the other files, only the columns of the filters are read.
    """
    for start in (10, 20, 30, 40):
        scene.sql(f"INSERT INTO t SELECT i, i % 3, 'row ' || i FROM generate_series({start}, {start + 9}) i")
    scene.sql("DELETE FROM t WHERE a % 10 = 2; ALTER PUBLICATION p SET TABLE t WHERE (a IN (4, 13, 18) OR a BETWEEN 20 AND 38)")
    scene.changes()
    present = {key for key in range(1, 50) if key % 10 != 2}
    first, second, third = (
        ({4, 13, 18} | (present & {*range(20, 39)})),
        ({1, 11, 19, 29} | (present & {*range(41, 50)})),
        present - {*range(1, 6)},
    )
    for condition, old_rows, new_rows in (("a IN (1, 11, 12, 19, 29) OR a > 40", first, second), ("a > 5", second, third)):
        scene.sql(f"ALTER PUBLICATION p SET TABLE t WHERE ({condition})")
        entering, leaving = (
            (f"Insert t ({key}, {key % 3}, row {key})" for key in new_rows - old_rows),
            (f"Delete t ({key}, null, null)" for key in old_rows - new_rows),
        )
        assert sorted(scene.changes()) == sorted([*entering, *leaving])


def test_rows_written_by_the_altering_transaction_follow_the_filter_of_their_time(scene: Scene) -> None:
    scene.sql(
        """BEGIN; INSERT INTO t VALUES (10, 0, 'ten'), (0, 0, 'zero'); ALTER PUBLICATION p SET TABLE t WHERE (a < 2);
        INSERT INTO t VALUES (-1, 0, 'less'), (11, 0, 'eleven'); UPDATE t SET b = 7 WHERE a = 1; COMMIT"""
    )
    keys = {6, 7, 8, 9}
    for message in scene.changes():
        word, key = message.split()[0], int(message.split("(")[1].split(",")[0])
        assert (word == "Insert") != (key in keys), message
        keys = keys | {key} if word == "Insert" else keys - {key}
    assert keys == {-1, 0, 1}


@pytest.mark.parametrize("has_added", [False, True])
def test_alteration_waits_for_open_writers_and_their_rows_follow_the_old_filter(scene: Scene, has_added: bool) -> None:
    writer = Session(scene.server.conninfo(scene.database))
    writer.sql(f"BEGIN; INSERT INTO t VALUES (20, 0, 'new'){'' if has_added else '; UPDATE t SET b = 9 WHERE a = 1'}")
    added = "INSERT INTO t VALUES (30, 0, 'own');" if has_added else ""
    with ThreadPoolExecutor(1) as pool:
        altering = pool.submit(scene.sql, f"BEGIN; {added} ALTER PUBLICATION p SET TABLE t WHERE (a < 2); COMMIT")
        waiting = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '{scene.database}'"
        until(lambda: scene.sql(waiting) == "1", "the alteration does not wait")
        writer.sql("COMMIT")
        altering.result()
    writer.close()
    messages = scene.changes()
    assert messages[0] == "Insert t (20, 0, new)"
    own = ["Delete t (30, null, null)"] if has_added else []
    inserted = ["Insert t (1, 1, row 1)", "Insert t (30, 0, own)"] if has_added else ["Insert t (1, 9, row 1)"]
    assert sorted(messages[1:]) == [
        "Delete t (20, null, null)",
        *own,
        *[f"Delete t ({key}, null, null)" for key in (6, 7, 8, 9)],
        *inserted,
    ]


@pytest.mark.parametrize(
    ("statement", "state", "word"),
    [
        ("ALTER PUBLICATION p SET (publish = 'insert')", "22023", "does not publish updates"),
        ("CREATE PUBLICATION q FOR TABLE t WITH (reconcile = true, publish = 'insert, update')", "22023", "does not publish deletes"),
        ("CREATE TABLE u (a int); ALTER PUBLICATION p ADD TABLE u", "55000", "does not have a replica identity"),
        ("ALTER PUBLICATION p SET TABLE t WHERE (b = 1)", "42P10", "WHERE expression is not part of the replica identity"),
        ("ALTER PUBLICATION p SET TABLE t (b, c)", "42P10", "does not cover the replica identity"),
        ("ALTER TABLE t REPLICA IDENTITY FULL; ALTER PUBLICATION p SET TABLE t WHERE (1 / b > 0)", "22012", "division by zero"),
        ("BEGIN; ALTER PUBLICATION p SET TABLE t WHERE (a > 1); PREPARE TRANSACTION 'g'", "0A000", "publication with reconcile"),
        ("CREATE PUBLICATION q WITH (reconcile = maybe)", "42601", "requires a Boolean value"),
    ],
)
def test_alteration_that_cannot_be_followed_is_rejected(scene: Scene, statement: str, state: str, word: str) -> None:
    with pytest.raises(SqlError, match=rf"(?s){state}.*{word}"):
        scene.server.psql(scene.database, statement, "-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=1")
    assert scene.changes() == []


def test_partitions_follow_under_the_table_that_they_are_published_as(node: Server) -> None:
    database = node.new_database()
    node.psql(
        database,
        """CREATE TABLE r (a int, k text, PRIMARY KEY (a, k)) PARTITION BY LIST (k);
        CREATE TABLE r1 PARTITION OF r FOR VALUES IN ('x'); CREATE TABLE r2 (k text NOT NULL, a int NOT NULL, PRIMARY KEY (a, k));
        ALTER TABLE r ATTACH PARTITION r2 FOR VALUES IN ('y'); INSERT INTO r VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, 'y');
        CREATE PUBLICATION p FOR TABLE r WHERE (a > 2) WITH (publish_via_partition_root = true, reconcile = true)""",
    )
    scene = Scene(node, database, slots.make(node, database, "s"))
    scene.sql("ALTER PUBLICATION p SET TABLE r WHERE (a < 4)")
    assert sorted(scene.changes()) == ["Delete r (4, y)", "Insert r (1, x)", "Insert r (2, y)"]
    scene.sql("ALTER PUBLICATION p SET TABLE r; ALTER PUBLICATION p SET (publish_via_partition_root = false)")
    messages = scene.changes()
    assert messages[:1] == ["Insert r (4, y)"]
    assert sorted(messages[1:]) == sorted(
        [f"Delete r ({row})" for row in ("1, x", "2, y", "3, x", "4, y")]
        + [f"Insert {row}" for row in ("r1 (1, x)", "r1 (3, x)", "r2 (y, 2)", "r2 (y, 4)")]
    )
    scene.sql(f"SELECT pg_drop_replication_slot('{scene.slot}')")


EQUAL = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY a)) FROM (SELECT * FROM t{}) t"


@pytest.mark.slow
def test_subscribers_follow_a_filter_across_a_crash_of_the_publisher(
    postgres: Server, node: Server, spare_node: Callable[..., NodeServer]
) -> None:
    source = spare_node()
    publisher = Database.new(source)
    table = "CREATE TABLE t (a int PRIMARY KEY, b int, c text)"
    publisher.sql(f"{table}; {ROWS}; CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0) WITH (reconcile = true)")
    native, lake = Database.new(postgres), Database.new(node)
    for subscriber, name in ((native, "native"), (lake, "lake")):
        subscriber.sql(table)
        subscribe(subscriber, publisher, name, "p")
    native.sql("ALTER SUBSCRIPTION native DISABLE")
    publisher.sql("INSERT INTO t SELECT i, i % 3, 'more ' || i FROM generate_series(10, 5000) i")
    publisher.sql("ALTER PUBLICATION p SET TABLE t WHERE (a % 3 = 0)")
    source.kill()
    source.start()
    publisher.sql("DELETE FROM t WHERE a % 5 = 0; ALTER PUBLICATION p SET TABLE t WHERE (a % 7 < 3)")
    native.sql("ALTER SUBSCRIPTION native ENABLE")
    expected = publisher.sql(EQUAL.format(" WHERE a % 7 < 3"))
    for subscriber, name in ((native, "native"), (lake, "lake")):
        subscriber.wait(EQUAL.format(""), expected)
        arrived(publisher, name)
        assert subscriber.sql(EQUAL.format("")) == expected
        subscriber.unsubscribe()
