"""A publication with ``reconcile = true`` that is altered: its streams send the rows that cross the gate, and no others.

`scene` is a node's database with a table of nine rows, published as `p` WHERE (a > 5), and a slot. What a slot gives is looked at in words
(`slots`); that real subscribers are equal afterwards, over restarts too, in the tests below.
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
    """A database of the node with a slot that has seen all until now."""

    server: Server
    database: str
    slot: str

    def sql(self, script: str) -> str:
        return self.server.psql(self.database, script)

    def said(self, publication: str = "p") -> list[str]:
        """What the slot gives next, without Relation, Begin and Commit of each transaction."""
        found = slots.messages(self.server, self.database, self.slot, publication)
        return [each for each in found if each.split()[0] not in ("Begin", "Commit", "Relation")]


@pytest.fixture
def scene(node: Server) -> Iterator[Scene]:
    database = node.new_database()
    node.psql(
        database,
        f"""CREATE TABLE t (a int PRIMARY KEY, b int, c text); {ROWS};
        CREATE PUBLICATION p FOR TABLE t WHERE (a > 5) WITH (reconcile = true)""",
    )
    made = Scene(node, database, slots.make(node, database, "s"))
    yield made
    node.psql(database, f"SELECT pg_drop_replication_slot('{made.slot}')")


def test_a_wider_filter_sends_the_rows_that_it_lets_through(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 3)")
    assert scene.said() == ["Insert t (4, 1, row 4)", "Insert t (5, 2, row 5)"]
    assert scene.said() == []


def test_a_narrower_filter_takes_rows_away_by_their_key(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.said() == ["Delete t (6, null, null)", "Delete t (7, null, null)"]


def test_another_filter_does_both_and_leaves_what_is_in_both(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a BETWEEN 4 AND 7)")
    assert sorted(scene.said()) == [
        "Delete t (8, null, null)", "Delete t (9, null, null)", "Insert t (4, 1, row 4)", "Insert t (5, 2, row 5)",
    ]  # fmt: skip


def test_a_filter_for_spark_is_judged_alike(scene: Scene) -> None:
    scene.sql("ALTER TABLE t REPLICA IDENTITY FULL; ALTER PUBLICATION p SET TABLE t WHERE (substring(c from '[0-9]+') > '6')")
    assert scene.said() == ["Delete t (6, 0, row 6)"]


def test_a_table_that_leaves_takes_its_rows_along_and_brings_them_back(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p DROP TABLE t")
    assert [each.split()[0] for each in scene.said()] == ["Delete"] * 4
    scene.sql("ALTER PUBLICATION p ADD TABLE t WHERE (a = 1)")
    assert scene.said() == ["Insert t (1, 1, row 1)"]


def test_columns_that_join_the_list_come_with_updates(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t (a, b) WHERE (a > 7)")
    assert scene.said() == ["Delete t (6, null)", "Delete t (7, null)"]
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.said() == ["Update t (8, 2, row 8)", "Update t (9, 0, row 9)"]


def test_what_another_publication_of_the_stream_lets_through_stays(scene: Scene) -> None:
    scene.sql("CREATE PUBLICATION q FOR TABLE t WHERE (a = 6)")
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.said("p,q") == ["Delete t (7, null, null)"]


def test_without_reconcile_nothing_is_sent(scene: Scene) -> None:
    assert scene.sql("SELECT * FROM headgate.publications()") == "p|t"
    scene.sql("ALTER PUBLICATION p SET (reconcile = false)")
    assert scene.sql("SELECT * FROM headgate.publications()") == "p|f"
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 7)")
    assert scene.said() == []


def test_the_rows_are_those_of_the_alteration_not_of_the_reading(scene: Scene) -> None:
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 4)")
    scene.sql("UPDATE t SET c = 'later' WHERE a = 5; DELETE FROM t WHERE a = 9; ALTER TABLE t DROP COLUMN b")
    scene.sql("ALTER PUBLICATION p SET TABLE t WHERE (a > 3)")
    assert scene.said() == ["Insert t (5, 2, row 5)", "Update t (5, 2, later)", "Delete t (9, null, null)", "Insert t (4, row 4)"]


def test_rows_of_several_files_cross_both_ways_with_deleted_ones_between_them(scene: Scene) -> None:
    """A file of which rows come is read twice and the next, which is whole then, once; of others only what the filters ask of is read."""
    for start in (10, 20, 30, 40):
        scene.sql(f"INSERT INTO t SELECT i, i % 3, 'row ' || i FROM generate_series({start}, {start + 9}) i")
    scene.sql("DELETE FROM t WHERE a % 10 = 2; ALTER PUBLICATION p SET TABLE t WHERE (a IN (4, 13, 18) OR a BETWEEN 20 AND 38)")
    scene.said()
    there = {a for a in range(1, 50) if a % 10 != 2}
    first, second, third = (
        ({4, 13, 18} | (there & {*range(20, 39)})),
        ({1, 11, 19, 29} | (there & {*range(41, 50)})),
        there - {*range(1, 6)},
    )
    for condition, before, now in (("a IN (1, 11, 12, 19, 29) OR a > 40", first, second), ("a > 5", second, third)):
        scene.sql(f"ALTER PUBLICATION p SET TABLE t WHERE ({condition})")
        comes, goes = (f"Insert t ({a}, {a % 3}, row {a})" for a in now - before), (f"Delete t ({a}, null, null)" for a in before - now)
        assert sorted(scene.said()) == sorted([*comes, *goes])


def test_what_the_altering_transaction_wrote_is_judged_by_what_was(scene: Scene) -> None:
    scene.sql(
        """BEGIN; INSERT INTO t VALUES (10, 0, 'ten'), (0, 0, 'zero'); ALTER PUBLICATION p SET TABLE t WHERE (a < 2);
        INSERT INTO t VALUES (-1, 0, 'less'), (11, 0, 'eleven'); UPDATE t SET b = 7 WHERE a = 1; COMMIT"""
    )
    held = {6, 7, 8, 9}
    for each in scene.said():
        word, key = each.split()[0], int(each.split("(")[1].split(",")[0])
        assert (word == "Insert") != (key in held), each
        held = held | {key} if word == "Insert" else held - {key}
    assert held == {-1, 0, 1}


def test_who_has_written_is_waited_for_and_judged_by_what_was(scene: Scene) -> None:
    writer = Session(scene.server.conninfo(scene.database))
    writer.sql("BEGIN; INSERT INTO t VALUES (20, 0, 'new'); UPDATE t SET b = 9 WHERE a = 1")
    with ThreadPoolExecutor(1) as beside:
        altering = beside.submit(scene.sql, "ALTER PUBLICATION p SET TABLE t WHERE (a < 2)")
        waiting = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '{scene.database}'"
        until(lambda: scene.sql(waiting) == "1", "nobody waits")
        writer.sql("COMMIT")
        altering.result()
    writer.close()
    said = scene.said()
    assert said[0] == "Insert t (20, 0, new)"
    assert sorted(said[1:]) == [
        "Delete t (20, null, null)",
        *[f"Delete t ({key}, null, null)" for key in (6, 7, 8, 9)],
        "Insert t (1, 9, row 1)",
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
def test_what_cannot_be_followed_is_refused_when_the_publication_is_altered(scene: Scene, statement: str, state: str, word: str) -> None:
    with pytest.raises(SqlError, match=rf"(?s){state}.*{word}"):
        scene.server.psql(scene.database, statement, "-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=1")
    assert scene.said() == []


def test_partitions_are_followed_as_what_they_are_sent_as(node: Server) -> None:
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
    assert sorted(scene.said()) == ["Delete r (4, y)", "Insert r (1, x)", "Insert r (2, y)"]
    scene.sql("ALTER PUBLICATION p SET TABLE r; ALTER PUBLICATION p SET (publish_via_partition_root = false)")
    said = scene.said()
    assert said[:1] == ["Insert r (4, y)"]
    assert sorted(said[1:]) == sorted(
        [f"Delete r ({row})" for row in ("1, x", "2, y", "3, x", "4, y")]
        + [f"Insert {row}" for row in ("r1 (1, x)", "r1 (3, x)", "r2 (y, 2)", "r2 (y, 4)")]
    )
    scene.sql(f"SELECT pg_drop_replication_slot('{scene.slot}')")


EQUAL = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY a)) FROM (SELECT * FROM t{}) t"


@pytest.mark.slow
def test_subscribers_follow_a_filter_over_a_crash_of_the_publisher(
    postgres: Server, node: Server, spare_node: Callable[..., NodeServer]
) -> None:
    source = spare_node()
    publisher = Database.new(source)
    table = "CREATE TABLE t (a int PRIMARY KEY, b int, c text)"
    publisher.sql(f"{table}; {ROWS}; CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0) WITH (reconcile = true)")
    native, lake = Database.new(postgres), Database.new(node)
    for each, name in ((native, "native"), (lake, "lake")):
        each.sql(table)
        subscribe(each, publisher, name, "p")
    native.sql("ALTER SUBSCRIPTION native DISABLE")
    publisher.sql("INSERT INTO t SELECT i, i % 3, 'more ' || i FROM generate_series(10, 5000) i")
    publisher.sql("ALTER PUBLICATION p SET TABLE t WHERE (a % 3 = 0)")
    source.kill()
    source.start()
    publisher.sql("DELETE FROM t WHERE a % 5 = 0; ALTER PUBLICATION p SET TABLE t WHERE (a % 7 < 3)")
    native.sql("ALTER SUBSCRIPTION native ENABLE")
    expected = publisher.sql(EQUAL.format(" WHERE a % 7 < 3"))
    for each, name in ((native, "native"), (lake, "lake")):
        each.wait(EQUAL.format(""), expected)
        arrived(publisher, name)
        assert each.sql(EQUAL.format("")) == expected
        each.unsubscribe()
