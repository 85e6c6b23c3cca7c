"""Wide rows and types: copies of ten columns of one type into the node and out of it, a table of 30 columns, unsent values, new keys.

Called by `__main__`. Functions that take a publisher and a subscriber give seconds, as those of `replication`.
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
"""Types and the value of row g in column k."""
WIDE = ("text", "numeric", "timestamptz", "jsonb", "int[]", "float8", "date", "uuid", "boolean", "varchar")
KEYS, ONCE = "UPDATE t SET id = id + 10000000", "UPDATE t SET n = id"
_MORE = {"date": "'2026-01-01'::date + g % 1000", "boolean": "g % {k} = 0", "varchar": "'varchar ' || g"}


@contextmanager
def databases(*servers: DemoServer) -> Iterator[list[Side]]:
    """A new database on each server; dropped at the end, subscriptions first."""
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


def columns(kinds: tuple[str, ...], times: int) -> tuple[str, str]:
    """The definition of a table with each type so many times, and the select list that fills it."""
    pairs = [(kind, k) for k in range(1, times + 1) for kind in kinds]
    listed = ", ".join(f"c{place} {kind}" for place, (kind, _) in enumerate(pairs))
    values = ", ".join("(" + (TYPES | _MORE)[kind].replace("{k}", str(k)) + f")::{kind}" for kind, k in pairs)
    return f"CREATE TABLE t (id int PRIMARY KEY, {listed})", f"INSERT INTO t SELECT g, {values} FROM generate_series(1, {{rows}}) g"


def copied(pub: Side, sub: Side, definition: str) -> float:
    """Seconds from CREATE SUBSCRIPTION on table t until it is ready; the name of the subscription is that of the database."""
    if not pub.execute("SELECT 1 FROM pg_publication"):
        pub.execute("CREATE PUBLICATION p FOR TABLE t")
    sub.execute(definition)
    began = time.perf_counter()
    subscribe(pub, sub, f"{sub.database}_{sub.server.port}")
    wait_synced(sub)
    return time.perf_counter() - began


def of_type(source: DemoServer, node: DemoServer, native: DemoServer, kind: str, rows: int) -> tuple[float, float, float]:
    """Seconds of the copies PostgreSQL to PostgreSQL, PostgreSQL to node, node to PostgreSQL of ten columns of a type."""
    definition, filling = columns((kind,), 10)
    with databases(source, native) as (pub, sub):
        pub.execute(definition)
        pub.execute(filling.format(rows=rows))
        fast = copied(pub, sub, definition)
    with databases(source, node, native) as (pub, middle, end):
        pub.execute(definition)
        pub.execute(filling.format(rows=rows))
        into, out = copied(pub, middle, definition), copied(middle, end, definition)
        count = "SELECT count(*), max(c0::text) FROM t"
        assert end.execute(count) == pub.execute(count)
        return fast, into, out


def changed(pub: Side, sub: Side, write: Callable[[], object]) -> float:
    """Seconds of catching up with what is written; the name of the subscription is that of `copied`."""
    return catch_up(pub, sub, f"{sub.database}_{sub.server.port}", write).seconds


def each_thousand(pub: Side, statement: str, count: int) -> None:
    """The statement for the keys 1 to count, a thousand in each transaction."""
    for first in range(1, count + 1, 1000):
        pub.execute(f"{statement} WHERE id BETWEEN {first} AND {min(first + 999, count)}")


def thirty(publisher: DemoServer, subscriber: DemoServer, rows: int, updates: int) -> tuple[float, float]:
    """Seconds of the copy of a table of 30 columns, and of updates of it."""
    definition, filling = columns(WIDE, 3)
    with databases(publisher, subscriber) as (pub, sub):
        pub.execute(definition)
        pub.execute(filling.format(rows=rows))
        copy = copied(pub, sub, definition)
        update = "UPDATE t SET c0 = 'new ' || id, c1 = c1 + 1, c4 = ARRAY[id, 7]"
        seconds = changed(pub, sub, lambda: each_thousand(pub, update, updates))
        count = "SELECT count(*), sum(c1), max(c0) FROM t"
        assert sub.execute(count) == pub.execute(count)
        return copy, seconds


def unsent(publisher: DemoServer, subscriber: DemoServer, updates: int) -> float:
    """Seconds of updates that leave a TOASTed value of 2,500 bytes unsent."""
    definition = "CREATE TABLE t (id int PRIMARY KEY, n int, body text)"
    with databases(publisher, subscriber) as (pub, sub):
        pub.execute(definition)
        pub.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
        pub.execute(f"INSERT INTO t SELECT g, 0, repeat(md5(g::text), 80) FROM generate_series(1, {updates}) g")
        copied(pub, sub, definition)
        seconds = changed(pub, sub, lambda: each_thousand(pub, ONCE, updates))
        count = "SELECT count(*), sum(n), sum(length(body)) FROM t"
        assert sub.execute(count) == pub.execute(count)
        return seconds


def narrow(publisher: DemoServer, subscriber: DemoServer, rows: int, statement: str, *, at_once: bool = False) -> float:
    """Seconds of an update of all rows of a narrow table, in one transaction or a thousand rows in each."""
    definition = "CREATE TABLE t (id int PRIMARY KEY, n int, filler text)"
    with databases(publisher, subscriber) as (pub, sub):
        pub.execute(definition)
        pub.execute(f"INSERT INTO t SELECT g, 0, 'filler ' || g FROM generate_series(1, {rows}) g")
        copied(pub, sub, definition)
        seconds = changed(pub, sub, lambda: pub.execute(statement) if at_once else each_thousand(pub, statement, rows))
        count = "SELECT count(*), sum(n), sum(id::bigint) FROM t"
        assert sub.execute(count) == pub.execute(count)
        return seconds
