"""A table that follows its publisher has the publisher's definition and rows after random ALTER TABLE statements between random changes."""

from __future__ import annotations

import contextlib
import random

import psycopg
import pytest
from tests.conftest import until
from tests.subscriber.conftest import READY, Publisher, Subscriber
from tests.system.proxy import Proxy

from headgate.subscriber.apply.apply import MOST_ATTEMPTS

DEFINITION = (
    "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0"
    " AND NOT attisdropped ORDER BY attname"
)
TYPES = {"integer": ("bigint", "numeric", "text"), "bigint": ("numeric", "text"), "numeric": ("text",), "text": ()}


class Alterations:
    """Random ALTER TABLE statements and changes of rows of a publisher, from a seed."""

    def __init__(self, publisher: Publisher, seed: int) -> None:
        self._publisher, self._rng, self._next = publisher, random.Random(seed), 100

    def _columns(self) -> dict[str, str]:
        rows = self._publisher.sql(DEFINITION).split("\n")
        return {name: kind for name, kind, _ in (row.split("|") for row in rows) if name != "id"}

    def script(self) -> str:
        """Return some alterations and changes."""
        columns, count = self._columns(), self._rng.randint(1, 4)
        return "; ".join((self._change if self._rng.random() < 0.5 else self._alteration)(columns) for _ in range(count))

    def _name(self) -> str:
        self._next += 1
        return f"c{self._next}"

    def _value(self, kind: str) -> str:
        return f"'{self._rng.randint(0, 99)}'" if kind == "text" else str(self._rng.randint(0, 99))

    def _change(self, columns: dict[str, str]) -> str:
        values = [self._value(kind) for kind in columns.values()]
        names = ", ".join(["id", *columns])
        self._next += 1
        return self._rng.choice(
            (
                f"INSERT INTO t ({names}) VALUES ({', '.join([str(self._next), *values])})",
                f"INSERT INTO t ({names}) SELECT {', '.join([f'{self._next * 1000} + i', *values])} FROM generate_series(1, 30) i",
                f"DELETE FROM t WHERE id % 7 = {self._rng.randint(0, 6)}",
                *(f"UPDATE t SET {name} = {self._value(kind)} WHERE id % 3 = {self._rng.randint(0, 2)}" for name, kind in columns.items()),
            )
        )

    def _alteration(self, columns: dict[str, str]) -> str:
        kind = self._rng.choice(["add", "add", "drop", "rename", "swap", "type", "not null", "nullable", "replace"])
        names = list(columns)
        self._rng.shuffle(names)
        if kind == "add" or len(names) < 2:
            name, of_type = self._name(), self._rng.choice(list(TYPES))
            columns[name] = of_type
            default = self._rng.choice(("", f"DEFAULT {self._value(of_type)}", f"DEFAULT {self._value(of_type)} NOT NULL"))
            return f"ALTER TABLE t ADD COLUMN {name} {of_type} {default}"
        column, other_column, *_ = names
        match kind:
            case "drop":
                del columns[column]
                return f"ALTER TABLE t DROP COLUMN {column}"
            case "rename":
                new = self._name()
                columns[new] = columns.pop(column)
                return f"ALTER TABLE t RENAME {column} TO {new}"
            case "swap":
                columns[column], columns[other_column] = columns[other_column], columns[column]
                return f"ALTER TABLE t RENAME {column} TO x; ALTER TABLE t RENAME {other_column} TO {column}; ALTER TABLE t RENAME x TO {other_column}"
            case "type" if TYPES[columns[column]]:
                columns[column] = self._rng.choice(TYPES[columns[column]])
                return f"ALTER TABLE t ALTER {column} TYPE {columns[column]}"
            case "not null":
                return f"UPDATE t SET {column} = {self._value(columns[column])} WHERE {column} IS NULL; ALTER TABLE t ALTER {column} SET NOT NULL"
            case "nullable":
                return f"ALTER TABLE t ALTER {column} DROP NOT NULL"
            case _:  # as a column gets another type without a rewrite
                new, columns[column] = self._name(), "text"
                return (
                    f"ALTER TABLE t ADD COLUMN {new} text; UPDATE t SET {new} = {column}::text; ALTER TABLE t DROP COLUMN {column};"
                    f" ALTER TABLE t RENAME {new} TO {column}"
                )


def contents(database: Publisher | Subscriber, names: list[str]) -> tuple[list[str], list[str]]:
    """Return the definition of the table, and its rows in columns with these names, if it has them."""
    definition, rows = database.sql(DEFINITION).split("\n"), ""
    with contextlib.suppress(psycopg.errors.UndefinedColumn):
        rows = database.sql(f"SELECT {', '.join(names)} FROM t")
    return definition, sorted(rows.split("\n"))


def wait_equal(publisher: Publisher, subscriber: Subscriber, seed: int) -> None:
    """Wait until the subscriber has the publisher's definition and rows."""
    names = [line.split("|")[0] for line in publisher.sql(DEFINITION).split("\n")]
    expected = contents(publisher, names)
    with contextlib.suppress(AssertionError):
        until(lambda: contents(subscriber, names) == expected, seconds=120)
    assert contents(subscriber, names) == expected, f"seed {seed}"


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 26))]


@pytest.mark.parametrize("seed", SEEDS)
def test_table_follows_random_alterations_between_random_changes(publisher: Publisher, subscriber: Subscriber, seed: int) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, a int, b text, c bigint NOT NULL DEFAULT 0); CREATE PUBLICATION p FOR TABLE t")
    publisher.sql("INSERT INTO t SELECT i, i, 'b' || i, i FROM generate_series(1, 20) i")
    subscriber.sql(publisher.subscription("create_tables = true, schema_evolution = follow"))
    subscriber.wait(READY, "t")
    alterations, together = Alterations(publisher, seed), random.Random(seed)
    for _ in range(2 if seed == 1 else 4):  # the first is in the short suite
        count = together.choice([1, 1, 2, 5])
        if count > 1:
            subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
        for _ in range(count):
            publisher.sql(f"BEGIN; {alterations.script()}; COMMIT" if together.random() < 0.5 else alterations.script())
        publisher.sql("UPDATE t SET id = id")  # a table follows with its next change
        subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
        publisher.wait_confirmed(seconds=120)
        wait_equal(publisher, subscriber, seed)


def test_columns_are_nullable_for_rows_written_while_the_publisher_allowed_nulls(publisher: Publisher, subscriber: Subscriber) -> None:
    columns = [f"b{number}" for number in range(MOST_ATTEMPTS + 1)]  # each is found by an attempt of its own

    def each(text: str) -> str:
        return ", ".join(text.format(column) for column in columns)

    publisher.sql(f"CREATE TABLE t (id int PRIMARY KEY, {each('{} text NOT NULL DEFAULT 1')}); CREATE PUBLICATION p FOR TABLE t")
    publisher.sql("INSERT INTO t VALUES (1)")
    subscriber.sql(publisher.subscription("create_tables = true, schema_evolution = follow"))
    subscriber.wait(READY, "t")
    subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    publisher.sql(f"ALTER TABLE t {each('ALTER {} DROP NOT NULL')}; INSERT INTO t VALUES (2, {each('NULL')})")
    publisher.sql(f"UPDATE t SET {each('{} = 2')} WHERE id = 2; ALTER TABLE t {each('ALTER {} SET NOT NULL')}")
    publisher.sql("INSERT INTO t VALUES (3)")
    subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    publisher.wait_confirmed()
    wait_equal(publisher, subscriber, 0)
    assert subscriber.counted("apply_error_count") == "0"


@pytest.mark.slow
def test_table_altered_between_the_sync_snapshot_and_the_lock_is_synchronized_again(publisher: Publisher, subscriber: Subscriber) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, a int, b int); CREATE PUBLICATION p FOR TABLE t")
    publisher.sql("INSERT INTO t SELECT i, i, -i FROM generate_series(1, 20) i")
    swap = "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b"
    alterations = [swap, "ALTER TABLE t RENAME b TO c; ALTER TABLE t ADD d text NOT NULL DEFAULT 'd'"]

    def alter(message: bytes) -> None:
        if b"LIMIT 0" in message and alterations:  # the sync has read the publisher's catalog, and now locks the table
            with psycopg.connect(publisher.conninfo) as session:
                session.execute(alterations.pop(0).encode())

    with Proxy(publisher.server.port) as proxy:
        proxy.before = alter
        created = publisher.subscription("create_tables = true, schema_evolution = follow")
        subscriber.sql(created.replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        subscriber.wait(READY, "t", seconds=180)
        assert not alterations
        assert len(subscriber.log.matching('table "public.t" was altered after the slot')) == 2
        wait_equal(publisher, subscriber, 0)
        subscriber.unsubscribe()
