"""Measure copies of each type, a table of 30 columns, updates with unsent TOASTed values, and updates of keys.

Called by `__main__`. Functions that take a publisher and a subscriber return seconds, like those of `replication`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.replication import NUMBERS, Side, catch_up, subscribe, wait_synced
from headgate.cli.demo.servers import DemoServer

TYPES = {
    "int[]": "ARRAY[g, g % 1000, -(g * {k}), {k}]",
    "text[]": "ARRAY['word ' || g, 'x' || g % 7, NULL, 'a{k}']",
    "jsonb": """jsonb_build_object('id', g, 'name', 'name ' || g, 'tags', ARRAY['a', 'b{k}'], 'price', g / 100.0)""",
    "interval": "make_interval(0, g % 12, 0, g % 30, g % 24, 0, g % 60 + 0.25)",
    "inet": "('10.' || g % 256 || '.' || g / 256 % 256 || '.{k}')::inet",
    "cidr": "('10.' || g % 256 || '.' || g / 256 % 256 || '.0/24')::cidr",
    "bytea": "decode(md5((g * {k})::text), 'hex')",
    "uuid": "md5((g * {k})::text)::uuid",
    "text": "md5((g * {k})::text)",
    "numeric": "(g * {k})::numeric / 100",
    "timestamptz": "'2026-01-01'::timestamptz + g * interval '1 s'",
    "float8": "g / 7.0",
    "bigint": "g::bigint * {k}",
    "json": """json_build_object('id', g, 'name', 'name ' || g)""",
    "timestamptz[]": "ARRAY['2026-01-01'::timestamptz + g * interval '1 s', '2026-01-01']",
}
"""Each type, and the expression for the value of row g in column k."""
WIDE = ("text", "numeric", "timestamptz", "jsonb", "int[]", "float8", "date", "uuid", "boolean", "varchar")
UPDATE_KEY, UPDATE_VALUE = "UPDATE t SET id = id + 10000000", "UPDATE t SET n = id"
_MORE_TYPES = {"date": "'2026-01-01'::date + g % 1000", "boolean": "g % {k} = 0", "varchar": "'varchar ' || g"}


@contextmanager
def databases(*servers: DemoServer) -> Iterator[list[Side]]:
    """Create a database on each server. At the end, drop the subscriptions and then the databases."""
    number = next(NUMBERS)
    sides = []
    for server in servers:
        Side(server, "postgres").execute(f"CREATE DATABASE bench_wide_{number}")
        sides.append(Side(server, f"bench_wide_{number}"))
    try:
        yield sides
    finally:
        for side in reversed(sides):
            for (name,) in side.execute("SELECT subname FROM pg_subscription s JOIN pg_database d ON d.oid = subdbid"
                                        " WHERE datname = current_database()"):  # fmt: skip
                side.execute(f"DROP SUBSCRIPTION {name}")
        for side in reversed(sides):
            Side(side.server, "postgres").execute(f"DROP DATABASE {side.database} WITH (FORCE)")


def columns(type_names: tuple[str, ...], times: int) -> tuple[str, str]:
    """Return the CREATE TABLE with `times` columns of each type, and the INSERT with a place for {rows}."""
    pairs = [(type_name, k) for k in range(1, times + 1) for type_name in type_names]
    definitions = ", ".join(f"c{index} {type_name}" for index, (type_name, _) in enumerate(pairs))
    values = ", ".join("(" + (TYPES | _MORE_TYPES)[type_name].replace("{k}", str(k)) + f")::{type_name}" for type_name, k in pairs)
    return f"CREATE TABLE t (id int PRIMARY KEY, {definitions})", f"INSERT INTO t SELECT g, {values} FROM generate_series(1, {{rows}}) g"


def _subscription(sub: Side) -> str:
    return f"{sub.database}_{sub.server.port}"


def copy_seconds(pub: Side, sub: Side, definition: str) -> float:
    """Return the seconds from CREATE SUBSCRIPTION until table t is ready. `_subscription` is the name of the subscription."""
    if not pub.execute("SELECT 1 FROM pg_publication"):
        pub.execute("CREATE PUBLICATION p FOR TABLE t")
    sub.execute(definition)
    began = time.perf_counter()
    subscribe(pub, sub, _subscription(sub))
    wait_synced(sub)
    return time.perf_counter() - began


def type_seconds(source: DemoServer, node: DemoServer, native: DemoServer, type_name: str, rows: int) -> tuple[float, float, float]:
    """Return the seconds of the copies PostgreSQL → PostgreSQL, PostgreSQL → node and node → PostgreSQL of ten columns of a type."""
    definition, filling = columns((type_name,), 10)
    with databases(source, native) as (pub, sub):
        pub.execute(definition)
        pub.execute(filling.format(rows=rows))
        native_seconds = copy_seconds(pub, sub, definition)
    with databases(source, node, native) as (pub, middle, end):
        pub.execute(definition)
        pub.execute(filling.format(rows=rows))
        into, out = copy_seconds(pub, middle, definition), copy_seconds(middle, end, definition)
        count = "SELECT count(*), max(c0::text) FROM t"
        assert end.execute(count) == pub.execute(count)
        return native_seconds, into, out


def change_seconds(pub: Side, sub: Side, write: Callable[[], object]) -> float:
    """Return the seconds of catching up with the changes that `write` makes. `copy_seconds` has created the subscription."""
    return catch_up(pub, sub, _subscription(sub), write).seconds


def execute_in_parts(pub: Side, statement: str, count: int) -> None:
    """Run the statement for the keys 1 to `count`, 1,000 keys in each transaction."""
    for first in range(1, count + 1, 1000):
        pub.execute(f"{statement} WHERE id BETWEEN {first} AND {min(first + 999, count)}")


def thirty_columns_seconds(publisher: DemoServer, subscriber: DemoServer, rows: int, updates: int) -> tuple[float, float]:
    """Return the seconds of the copy of a table of 30 columns, and of updates of it."""
    definition, filling = columns(WIDE, 3)
    with databases(publisher, subscriber) as (pub, sub):
        pub.execute(definition)
        pub.execute(filling.format(rows=rows))
        copy = copy_seconds(pub, sub, definition)
        update = "UPDATE t SET c0 = 'new ' || id, c1 = c1 + 1, c4 = ARRAY[id, 7]"
        seconds = change_seconds(pub, sub, lambda: execute_in_parts(pub, update, updates))
        count = "SELECT count(*), sum(c1), max(c0) FROM t"
        assert sub.execute(count) == pub.execute(count)
        return copy, seconds


def unsent_seconds(publisher: DemoServer, subscriber: DemoServer, updates: int) -> float:
    """Return the seconds of updates that leave a TOASTed value of 2,560 bytes unsent."""
    definition = "CREATE TABLE t (id int PRIMARY KEY, n int, body text)"
    with databases(publisher, subscriber) as (pub, sub):
        pub.execute(definition)
        pub.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
        pub.execute(f"INSERT INTO t SELECT g, 0, repeat(md5(g::text), 80) FROM generate_series(1, {updates}) g")
        copy_seconds(pub, sub, definition)
        seconds = change_seconds(pub, sub, lambda: execute_in_parts(pub, UPDATE_VALUE, updates))
        count = "SELECT count(*), sum(n), sum(length(body)) FROM t"
        assert sub.execute(count) == pub.execute(count)
        return seconds


def narrow_seconds(publisher: DemoServer, subscriber: DemoServer, rows: int, statement: str, *, one_transaction: bool = False) -> float:
    """Return the seconds of an update of all rows of a narrow table, in one transaction or in transactions of 1,000 rows."""
    definition = "CREATE TABLE t (id int PRIMARY KEY, n int, filler text)"
    with databases(publisher, subscriber) as (pub, sub):
        pub.execute(definition)
        pub.execute(f"INSERT INTO t SELECT g, 0, 'filler ' || g FROM generate_series(1, {rows}) g")
        copy_seconds(pub, sub, definition)
        seconds = change_seconds(pub, sub, lambda: pub.execute(statement) if one_transaction else execute_in_parts(pub, statement, rows))
        count = "SELECT count(*), sum(n), sum(id::bigint) FROM t"
        assert sub.execute(count) == pub.execute(count)
        return seconds
