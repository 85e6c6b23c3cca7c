"""headgate.changes returns every change of a table that has a history, as the publisher made them, although batches are netted."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import until
from tests.publisher import slots
from tests.publisher.arrow_changes import as_texts, read
from tests.subscriber.conftest import Publisher, Subscriber
from tests.subscriber.test_history import BEGUN, TABLE, is_alive

CHANGES = ("Insert", "Update", "Delete", "Truncate")


class Cascade:
    """A table of PostgreSQL, its copy on a node with a history, and the node's publication of the copy."""

    def __init__(self, publisher: Any, subscriber: Any, table: str = TABLE, filtered: str = "t", options: str = "history = true") -> None:
        """`filtered`: the table in the publication whose changes are compared, with its columns and filter."""
        self.publisher, self.subscriber = publisher, subscriber
        publisher.sql(f"{table}; CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLE {filtered}")
        subscriber.sql(f"{table}; CREATE PUBLICATION q FOR TABLE {filtered}")
        subscriber.sql(publisher.subscription(options))
        subscriber.wait(BEGUN, "1")
        self.slot = slots.make(publisher.server, publisher.name, "compared")
        self.node_slot = slots.make(subscriber.server, subscriber.name, "kept")
        self.start = self.end

    @property
    def end(self) -> str:
        """Return the end of the node's log."""
        return str(self.subscriber.sql("SELECT pg_current_wal_lsn()"))

    def apply_as_one_batch(self, *scripts: str) -> None:
        """Run transactions on the publisher and let the node apply them together."""
        self.subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
        self.subscriber.wait("SELECT count(*) FROM pg_stat_subscription WHERE subname = 's' AND pid IS NOT NULL", "0")
        for script in scripts:
            self.publisher.sql(script)
        self.subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
        self.publisher.wait_confirmed()

    def streamed(self) -> list[str]:
        """The changes that PostgreSQL streams, since the last call."""
        messages = slots.messages(self.publisher.server, self.publisher.name, self.slot, "q")
        return [message for message in messages if message.split()[0] in CHANGES]

    def changes(self, start: str | None = None, end: str | None = None) -> pa.Table:
        """The changes that the node returns."""
        with psycopg.connect(self.subscriber.conninfo) as connection:
            return read(connection, f"SELECT * FROM headgate.changes('q', 't', '{start or self.start}', '{end or self.end}')")

    def remove_log(self, until_lsn: str | None = None) -> None:
        """Make the node remove its log up to an LSN, by default up to its end. No other database of the node may have a slot."""
        lsn = until_lsn or self.end
        self.subscriber.sql("SELECT pg_logical_emit_message(false, '', '')")  # the last entry is never removed
        self.subscriber.sql(f"SELECT pg_replication_slot_advance('{self.node_slot}', '{lsn}')")

        def is_removed() -> bool:
            self.subscriber.sql("CHECKPOINT")
            return "is no longer kept" in self.refusal(f"NULL, '{lsn}'::pg_lsn - 1")

        until(is_removed, "the log is not removed")

    def refusal(self, bounds: str) -> str:
        """Return the error with which the node rejects reading the changes, empty if it returns them."""
        try:
            self.subscriber.sql(f"SELECT count(*) FROM headgate.changes('q', 't', {bounds})")
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            return f"{error.diag.message_primary} {error.diag.message_detail}"
        return ""

    def oldest(self, start: str) -> str:
        """Return the oldest LSN that the node names when it rejects reading the changes after `start`."""
        return re.findall(r"The oldest retained LSN is (\S+)\.", self.refusal(f"'{start}', '{self.end}'"))[0]

    def ranges(self, start: str, end: str, most: int) -> list[str]:
        """Return the ranges into which the node divides the changes between two LSNs."""
        query = f"SELECT * FROM headgate.change_ranges('q', 't', '{start}', '{end}', {most})"
        return self.subscriber.sql(query).splitlines()

    def close(self) -> None:
        """Drop the node's slot."""
        self.subscriber.server.drop_slot(self.subscriber.name, self.node_slot)


@pytest.fixture
def cascade(publisher, subscriber):
    """Return a function that creates a cascade. `on`: the subscriber, by default a database of the run's node."""
    cascades: list[Cascade] = []

    def make(on: Any = None, **more: Any) -> Cascade:
        cascades.append(Cascade(publisher, on or subscriber, **more))
        return cascades[-1]

    yield make
    for one in cascades:
        one.close()


@pytest.fixture
def own_subscriber(own_node):
    """A subscriber on a separate node, on which no other test needs the log."""
    one = Subscriber(own_node())
    yield one
    one.close()


def test_changes_that_cancel_out_in_a_batch_are_returned(cascade) -> None:
    tables = cascade(filtered="t (id, v) WHERE (id < 5)")
    for _ in range(4):  # a batch ends early if the publisher pauses, as it may on a busy machine
        tables.start = tables.end
        tables.streamed()
        tables.apply_as_one_batch(
            "INSERT INTO t VALUES (1, 'a', 1), (6, 'out', 1)",
            "UPDATE t SET v = 'b' WHERE id = 1; UPDATE t SET id = 2 WHERE id = 1",
            "UPDATE t SET id = 7 WHERE id = 2; UPDATE t SET id = 3 WHERE id = 7; DELETE FROM t; TRUNCATE t",
        )
        if len(set(tables.changes()["_lsn"].to_pylist())) == 1:
            break
    streamed = tables.streamed()
    assert len(streamed) == 7
    changes = tables.changes()
    assert as_texts(changes, "t") == streamed
    rows = changes.to_pylist()
    assert len({(row["_lsn"], row["_xid"], row["_commit_time"]) for row in rows}) == 1
    assert [row["_seq"] for row in rows] == sorted({row["_seq"] for row in rows})
    assert {row["_origin"] for row in rows} == {f"pg_{tables.subscriber.of_subscription('s.oid')}"}
    assert tables.subscriber.sql(f"SELECT changes FROM headgate.change_ranges('q', 't', '{tables.start}', '{tables.end}', 1)") == "9"


@pytest.mark.slow
def test_published_history_has_all_its_columns(cascade) -> None:
    tables = cascade()
    tables.subscriber.sql("CREATE PUBLICATION h FOR TABLE t_history")
    tables.apply_as_one_batch("INSERT INTO t VALUES (1, 'a', 1); UPDATE t SET n = 2")
    with psycopg.connect(tables.subscriber.conninfo) as connection:
        rows = read(connection, f"SELECT * FROM headgate.changes('h', 't_history', '{tables.start}', '{tables.end}')").to_pylist()
    assert [(row["id"], row["v"], str(row["n"]), row["_old_n"]) for row in rows] == [(1, "a", "1.00", None), (1, "a", "2.00", None)]


FILTERS = {
    "the key": "t (id, n) WHERE (id % 4 <> 1)",
    "nothing": "t",
    "the whole old row": "t WHERE (v <> 'b' OR n > 3)",
}


def transaction_at_random(chance: random.Random) -> str:
    """Return some changes of few keys, so that a batch changes most keys several times."""
    keys = [chance.randrange(1, 12) for _ in range(chance.randrange(1, 6))]
    statements = []
    for key in keys:
        value = chance.choice("abc")
        statements.append(
            chance.choice((
                f"INSERT INTO t VALUES ({key}, '{value}', {key}) ON CONFLICT DO NOTHING",
                f"UPDATE t SET v = '{value}', n = n + 1 WHERE id >= {key}",
                f"UPDATE t SET id = {key} WHERE id = {key + 1} AND NOT EXISTS (SELECT FROM t WHERE id = {key})",
                f"DELETE FROM t WHERE id = {key}",
                f"INSERT INTO t SELECT i, '{value}', NULL FROM generate_series({key}, 15) i ON CONFLICT DO NOTHING",
            ))
        )  # fmt: skip
    if not chance.randrange(8):
        statements.insert(chance.randrange(len(statements) + 1), "TRUNCATE t")
    return "; ".join(statements)


@pytest.mark.slow
@pytest.mark.parametrize("filtered", FILTERS)
@pytest.mark.parametrize("small_batch_rows", ["75000", "0"])
def test_changes_of_random_batches_are_those_that_the_publisher_streams(cascade, set_on_node, filtered, small_batch_rows) -> None:
    set_on_node(small_batch_rows=small_batch_rows)
    table = TABLE if filtered != "the whole old row" else f"{TABLE}; ALTER TABLE t REPLICA IDENTITY FULL"
    tables = cascade(table=table, filtered=FILTERS[filtered])
    subscriber = tables.subscriber
    chance = random.Random(f"{filtered} {small_batch_rows}")
    ends, streamed = [tables.start], []
    for number in range(4):
        tables.apply_as_one_batch(*(transaction_at_random(chance) for _ in range(chance.randrange(5, 20))))
        if number == 2:
            subscriber.sql(
                "INSERT INTO t VALUES (100, 'local', 1); UPDATE t SET v = 'local 2' WHERE id = 100; DELETE FROM t WHERE id = 100"
            )
        ends.append(tables.end)
        streamed.append(tables.streamed())
    assert sum(map(len, streamed)) > 100
    whole = tables.changes()
    parts = [as_texts(tables.changes(start, end), "t") for start, end in itertools.pairwise(ends)]
    local, parts[2] = parts[2][len(streamed[2]) :], parts[2][: len(streamed[2])]
    assert parts == streamed
    assert len(local) == 3, "changes of other sessions are read from the log"
    order = [(row["_lsn"], row["_seq"]) for row in whole.to_pylist()]
    assert order == sorted(set(order))
    assert as_texts(whole, "t") == [change for part in (*parts[:3], local, parts[3]) for change in part]
    ranges = subscriber.sql(f"SELECT from_lsn, to_lsn FROM headgate.change_ranges('q', 't', '{tables.start}', '{tables.end}', 10)")
    cut = [tables.changes(*line.split("|")) for line in ranges.splitlines()]
    assert len(cut) > 3
    assert pa.concat_tables(cut).to_pylist() == whole.to_pylist()


@pytest.mark.slow
def test_changes_of_a_batch_follow_the_columns(cascade) -> None:
    tables = cascade(options="history = true, schema_evolution = follow")
    tables.apply_as_one_batch("INSERT INTO t VALUES (1, 'a', 1); UPDATE t SET v = 'b'")
    tables.apply_as_one_batch("ALTER TABLE t ADD COLUMN w text; INSERT INTO t VALUES (2, 'a', 1, 'x'); UPDATE t SET w = 'y'; DELETE FROM t")
    ranges = tables.subscriber.sql(f"SELECT * FROM headgate.change_ranges('q', 't', '{tables.start}', '{tables.end}', 1)").splitlines()
    parts = [tables.changes(*line.split("|")[:2]) for line in ranges]
    assert [line.split("|")[2:] for line in ranges] == [["2", "f"], ["5", "t"]]
    assert [change for part in parts for change in as_texts(part, "t")] == tables.streamed()


@pytest.mark.slow
def test_batch_whose_history_lacks_values_is_read_from_the_table(cascade) -> None:
    tables = cascade(table=f"{TABLE}; ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    long = "repeat(md5('x'), 400)"
    tables.apply_as_one_batch(f"INSERT INTO t VALUES (1, {long}, 1)")
    tables.apply_as_one_batch("UPDATE t SET n = 2", "UPDATE t SET n = 3")
    tables.subscriber.sql("DELETE FROM t")
    tables.apply_as_one_batch("UPDATE t SET n = 4, v = 'a'", "INSERT INTO t VALUES (2, 'b', 1)", "UPDATE t SET n = 2 WHERE id = 2")
    changes = [(row["_op"], row["id"], row["n"] and int(row["n"]), len(row["v"] or "")) for row in tables.changes().to_pylist()]
    assert changes == [("I", 1, 1, 12800), ("U", 1, 3, 12800), ("D", 1, None, 0), ("I", 2, 2, 1)]


@pytest.mark.slow
def test_batch_of_a_table_with_triggers_is_read_from_the_table(cascade) -> None:
    tables = cascade()
    tables.subscriber.sql(
        """CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := 'by trigger'; RETURN NEW; END $$;
        CREATE TRIGGER g BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f(); ALTER TABLE t ENABLE ALWAYS TRIGGER g"""
    )
    tables.apply_as_one_batch("INSERT INTO t VALUES (1, 'a', 1)", "UPDATE t SET n = 2")
    assert {row["v"] for row in tables.changes().to_pylist()} == {"by trigger"}


@pytest.mark.slow
def test_old_rows_that_the_publisher_does_not_send_come_from_the_table(cascade) -> None:
    tables = cascade(filtered="t WHERE (n < 5)")
    tables.subscriber.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    tables.apply_as_one_batch("INSERT INTO t VALUES (1, 'a', 1)")
    tables.publisher.sql("DROP PUBLICATION q")  # PostgreSQL would reject the UPDATE: n is not in the replica identity
    tables.apply_as_one_batch("UPDATE t SET n = 7", "UPDATE t SET n = 8")
    assert as_texts(tables.changes(), "t") == ["Insert t (1, a, 1.00)", "Delete t (1, a, 1.00)"]


@pytest.mark.slow
@pytest.mark.parametrize("small_batch_rows", ["75000", "0"])
def test_changes_are_complete_if_arrays_are_stored_as_lists(own_node, cascade, small_batch_rows) -> None:
    subscriber = Subscriber(own_node(array_storage="array", small_batch_rows=small_batch_rows))
    tables = cascade(on=subscriber, table="CREATE TABLE t (id int PRIMARY KEY, a int[])")
    tables.apply_as_one_batch("INSERT INTO t VALUES (0, NULL)")
    start = tables.end
    tables.apply_as_one_batch(
        "INSERT INTO t VALUES (1, '{1,NULL}')", "UPDATE t SET a = '{2}' WHERE id = 1", "UPDATE t SET a = '{}' WHERE id = 1"
    )
    changes = tables.changes(start)
    assert changes["a"].to_pylist() == ["{1,NULL}", "{2}", "{}"]
    tables.remove_log()
    assert tables.changes(start).equals(changes)
    subscriber.close()


@pytest.mark.slow
@pytest.mark.parametrize("log", ["kept", "removed"])
def test_history_is_read_to_the_end_although_it_is_dropped_or_expires(own_subscriber, cascade, log) -> None:
    tables = cascade(on=own_subscriber)
    tables.apply_as_one_batch("INSERT INTO t VALUES (0, 'v', 1)")
    start = tables.end
    tables.apply_as_one_batch(*(f"INSERT INTO t SELECT i, 'v', 1 FROM generate_series({n}, {n + 9999}) i" for n in (1, 20000, 40000)))
    tables.apply_as_one_batch("UPDATE t SET n = 2 WHERE id > 0", "UPDATE t SET n = 3 WHERE id > 0")
    if log == "removed":
        tables.remove_log()
    query = f"COPY (SELECT * FROM headgate.changes('q', 't', '{start}', '{tables.end}')) TO STDOUT (FORMAT arrow)"
    with psycopg.connect(own_subscriber.conninfo) as connection, connection.cursor().copy(query.encode()) as copy:
        pieces = [bytes(copy.read())]
        own_subscriber.sql("ALTER SYSTEM SET history_retention = '1s'; SELECT pg_reload_conf()")
        own_subscriber.wait("SELECT count(*) FROM t_history", "0")
        own_subscriber.sql("ALTER SUBSCRIPTION s SET (history = false); DROP TABLE t_history; CHECKPOINT")
        pieces += [bytes(piece) for piece in copy]
    changes = pa.ipc.open_stream(b"".join(pieces)).read_all()
    assert changes.num_rows == 90_000
    assert changes["_op"].to_pylist() == ["I"] * 30_000 + ["U"] * 60_000
    if log == "kept":
        assert tables.changes(start).equals(changes), "the node's slot keeps the files"
    else:
        assert tables.oldest(start) > start


@pytest.mark.slow
def test_subscription_without_a_history_nets_its_changes_of_the_table(subscriber, cascade, postgres) -> None:
    tables, second_publisher = cascade(), Publisher(postgres)
    second_publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(second_publisher.subscription("copy_data = false", name="other"))
    tables.apply_as_one_batch("INSERT INTO t VALUES (1, 'a', 1)", "UPDATE t SET v = 'b'")
    second_publisher.sql("BEGIN; INSERT INTO t VALUES (2, 'a', 1); UPDATE t SET v = 'b'; COMMIT")
    second_publisher.wait_confirmed("other")
    tables.apply_as_one_batch("UPDATE t SET v = 'c'", "DELETE FROM t")
    changes = [(row["_op"], row["id"], row["v"]) for row in tables.changes().to_pylist()]
    assert changes == [("I", 1, "a"), ("U", 1, "b"), ("I", 2, "b"), ("U", 1, "c"), ("D", 1, None)]
    subscriber.unsubscribe()
    second_publisher.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cleaning before", "cleaning behind"])
def test_changes_are_complete_after_a_kill_during_the_removal_of_the_log(own_subscriber, cascade, fault) -> None:
    tables = cascade(on=own_subscriber)
    tables.apply_as_one_batch("INSERT INTO t VALUES (1, 'a', 1)")
    start = tables.end
    tables.apply_as_one_batch("UPDATE t SET v = 'b'", "UPDATE t SET v = 'c'")
    end, changes = tables.end, tables.changes(start)
    own_subscriber.sql(f"SELECT pg_logical_emit_message(false, '', ''); SELECT pg_replication_slot_advance('{tables.node_slot}', '{end}')")
    conf = own_subscriber.server.data / "headgate.conf"
    conf_before = conf.read_text()
    conf.write_text(f"{conf_before}headgate.failpoints = '{fault}=kill'\n")
    own_subscriber.sql("SELECT pg_reload_conf()")
    own_subscriber.wait("SHOW headgate.failpoints", f"{fault}=kill")
    pid = own_subscriber.server.pid
    with pytest.raises(psycopg.OperationalError):
        own_subscriber.sql("CHECKPOINT")
    until(lambda: not is_alive(pid), "the node was not killed")
    own_subscriber.session.close()
    conf.write_text(conf_before)
    own_subscriber.server.start()
    assert tables.changes(start, end).equals(changes)
    tables.remove_log(end)
    assert tables.changes(start, end).equals(changes)


@pytest.mark.slow
@pytest.mark.parametrize("small_batch_rows", ["75000", "0"])
def test_changes_that_the_log_no_longer_has_come_from_the_history(own_subscriber, cascade, small_batch_rows) -> None:
    own_subscriber.sql(f"ALTER SYSTEM SET small_batch_rows = {small_batch_rows}; SELECT pg_reload_conf()")
    tables = cascade(on=own_subscriber, filtered="t (id, v) WHERE (id % 4 <> 1)")
    chance = random.Random(f"removed {small_batch_rows}")
    ends = [tables.start]
    for number in range(4):
        tables.apply_as_one_batch(*(transaction_at_random(chance) for _ in range(chance.randrange(3, 12))))
        ends.append(tables.end)
        if number == 1:
            own_subscriber.sql("ALTER PUBLICATION q SET TABLE t (id, v, n) WHERE (id % 4 <> 2)")
    first, last = ends[1], ends[-1]
    ranges = tables.ranges(first, last, 10)
    assert {line.split("|")[3] for line in ranges} == {"f", "t"}, "the published columns change"

    def changes() -> list[pa.Table]:
        return [tables.changes(*line.split("|")[:2]) for line in ranges]

    before = changes()
    assert sum(part.num_rows for part in before) > 30
    for removed in (ends[-2], None):  # first, the last batch remains in the log
        tables.remove_log(removed)
        assert tables.ranges(first, last, 10) == ranges
        assert all(part.equals(other) for part, other in zip(changes(), before, strict=True))
    assert tables.oldest("0/1") == ends[1]


@pytest.mark.slow
def test_removed_changes_that_the_history_does_not_have_are_an_error_that_names_the_oldest_lsn(own_subscriber, cascade) -> None:
    tables = cascade(on=own_subscriber)
    numbers = itertools.count()

    def batches(count: int) -> list[str]:
        """Apply batches of two changes. Return the ends of the log."""
        ends = []
        for number in itertools.islice(numbers, count):
            tables.apply_as_one_batch(f"INSERT INTO t VALUES ({number}, 'a', 1)", f"UPDATE t SET v = 'b' WHERE id = {number}")
            ends.append(tables.end)
        return ends

    first = batches(2)
    own_subscriber.sql("UPDATE t SET n = 7 WHERE id = 0")
    second = batches(2)
    tables.remove_log()
    assert [tables.oldest(lsn) for lsn in (*first, tables.start)] == [second[0]] * 3, "another session has changed the table"
    assert tables.changes(second[0]).num_rows == 2

    own_subscriber.sql("ALTER PUBLICATION q SET (reconcile = true)")
    altered = tables.end
    own_subscriber.sql("ALTER PUBLICATION q SET TABLE t WHERE (id <> 0)")
    third = batches(2)
    tables.remove_log()
    lsn = tables.oldest(second[0])
    assert altered < lsn < third[0], "rows that an alteration adds or removes are not in the history"
    assert tables.changes(lsn).num_rows == 4

    own_subscriber.sql("ALTER TABLE t REPLICA IDENTITY FULL; ALTER PUBLICATION q SET (reconcile = false)")
    [fourth] = batches(1)
    tables.remove_log()
    assert tables.oldest(lsn) == fourth, "the publisher has not sent the old row"

    own_subscriber.sql("ALTER SYSTEM SET history_retention = '1s'; SELECT pg_reload_conf()")
    own_subscriber.sql("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    fifth = batches(2)
    tables.remove_log()
    until(lambda: fifth[0] < tables.oldest(fourth) <= tables.end, "no change expires")


@pytest.mark.slow
@pytest.mark.parametrize("alteration", ["ALTER COLUMN n TYPE int8", "ALTER COLUMN v TYPE varchar(40)", "DROP COLUMN n, ADD COLUMN n text"])
def test_removed_changes_before_a_change_of_a_columns_type_are_an_error_that_names_the_oldest_lsn(
    own_subscriber, cascade, alteration
) -> None:
    tables = cascade(on=own_subscriber)
    tables.apply_as_one_batch("INSERT INTO t VALUES (1, 'a', 1)", "UPDATE t SET v = 'b'")
    first = tables.end
    tables.apply_as_one_batch("INSERT INTO t VALUES (2, 'a', 1)", "UPDATE t SET v = 'c'")
    second = tables.end
    for server in (tables.publisher, own_subscriber):
        server.sql(f"ALTER TABLE t {alteration}")
    for number in (3, 4):
        tables.apply_as_one_batch(f"INSERT INTO t VALUES ({number}, 'a', 1)", f"UPDATE t SET v = 'd' WHERE id = {number}")
    tables.remove_log()
    assert tables.oldest(first) == second
    assert as_texts(tables.changes(second), "t") == tables.streamed()[-4:]
