"""Generate a random workload for a real PostgreSQL. The replication property and the fault tests run it.

There are five tables: one with a key of two columns and NULLs among the values, one with out-of-line values that an UPDATE does not send,
one without a key under REPLICA IDENTITY FULL with equal rows, one whose key has types with equal values that are written differently (1.0
and 1.00, 0 and -0, 'a' and 'a '), and one whose replica identity is not the primary key. Transactions of up to `batch` rows change keys,
exchange keys of rows, roll back to savepoints and truncate.
"""

from __future__ import annotations

import random

TABLES = """
CREATE TABLE wide (k int, region text, v text, n numeric(12,3), f float8, s timestamp, PRIMARY KEY (k, region));
CREATE TABLE toasted (id int PRIMARY KEY, big text, note text);
CREATE TABLE keyless (x int, y text);
CREATE TABLE mixed (f float8, c char(3), n numeric, v text, PRIMARY KEY (f, c, n));
CREATE TABLE named (id int PRIMARY KEY, name text NOT NULL, tag smallint NOT NULL, big text, UNIQUE (tag, name));
ALTER TABLE named REPLICA IDENTITY USING INDEX named_tag_name_key;
"""
PUBLISHED = """
ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL; ALTER TABLE named ALTER big SET STORAGE EXTERNAL;
ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE wide, toasted, keyless, mixed, named;
"""
CONTENTS = {
    "wide": "SELECT k, region, v, n, f, s FROM wide ORDER BY k, region",
    "toasted": "SELECT id, md5(big), length(big), note FROM toasted ORDER BY id",
    "keyless": "SELECT x, y FROM keyless ORDER BY x, y",
    "mixed": "SELECT f, c, n, v FROM mixed ORDER BY f, c, n",
    "named": "SELECT id, name, tag, md5(big) FROM named ORDER BY id",
}
"""For each table, a query of its contents that both kinds of server answer in the same way."""
READY = f"SELECT count(*) = {len(CONTENTS)} AND count(*) = count(*) FILTER (WHERE srsubstate = 'r') FROM pg_subscription_rel"
"""A query for whether all tables of a subscription are ready."""


class Workload:
    """Random transactions, from a seed."""

    def __init__(self, seed: int, batch: int) -> None:
        self._rng = random.Random(seed)
        self._batch = batch
        self._next = 1

    def transaction(self) -> str:
        """Return a transaction of some changes, which ends with COMMIT, or sometimes with ROLLBACK."""
        rng = self._rng
        parts = ["BEGIN"]
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.2:
                inner = ["SAVEPOINT i", self._change(), rng.choice(("ROLLBACK TO i", "RELEASE i"))] if rng.random() < 0.4 else []
                undone = [self._change() for _ in range(rng.randint(1, 2))]
                parts += ["SAVEPOINT s", *undone, *inner, "ROLLBACK TO s" if rng.random() < 0.5 else "RELEASE s"]
            else:
                parts.append(self._change())
        parts.append("ROLLBACK" if rng.random() < 0.1 else "COMMIT")
        return "; ".join(parts) + ";"

    def _change(self) -> str:
        kinds = (self._wide, self._wide, self._toasted, self._toasted, self._keyless, self._keyless, self._mixed, self._named)
        return self._rng.choice(kinds)()

    def _range(self) -> tuple[int, int]:
        """Return new numbers, and how many numbers there are so far."""
        first, count = self._next, self._rng.choice((1, 3, 20, self._batch))
        self._next += count
        return first, first + count - 1

    def _wide(self) -> str:
        rng = self._rng
        rest, modulus = rng.randint(2, 7), rng.randint(0, 6)
        return rng.choice(
            (
                "INSERT INTO wide SELECT i, CASE i % 3 WHEN 0 THEN 'eu' WHEN 1 THEN 'us' ELSE '' END, CASE WHEN i % 5 > 0 THEN 'v' || i END,"
                " i / 7.0, nullif(i % 4, 0) / 3.0, timestamp '2020-01-01' + i * interval '1 min' FROM generate_series({}, {}) i".format(
                    *self._range()
                ),
                f"UPDATE wide SET v = CASE WHEN k % 2 = 0 THEN NULL ELSE 'u{modulus}' END, n = n + 1 WHERE k % {rest} = {modulus % rest}",
                f"UPDATE wide SET k = k + {1_000_000 + self._range()[0]}, region = 'moved' WHERE k % {rest * 5} = {modulus}",
                f"DELETE FROM wide WHERE k % {rest * 3} = {modulus}",
                "UPDATE wide SET k = -5 - k WHERE k IN ({0}, {1}); UPDATE wide SET k = {1} WHERE k = -5 - {0};"
                " UPDATE wide SET k = {0} WHERE k = -5 - {1}".format(rest, modulus + 8),
                "TRUNCATE wide" if rng.random() < 0.15 else f"UPDATE wide SET f = NULL WHERE k % {rest} = 0",
            )
        )

    def _toasted(self) -> str:
        rng = self._rng
        r, m = rng.randint(2, 6), rng.randint(0, 5)
        first, last = self._range()
        return rng.choice(
            (
                f"INSERT INTO toasted SELECT i, repeat(md5(i::text), 100), 'n' || i FROM generate_series({first}, {min(last, first + 30)}) i",
                f"UPDATE toasted SET note = 'u{m}' WHERE id % {r} = {m % r}",
                f"UPDATE toasted SET big = repeat('changed', 600) WHERE id % {r * 2} = {m}",
                f"UPDATE toasted SET id = -id WHERE id % {r * 2} = {m} AND id > 0",
                f"INSERT INTO toasted VALUES ({first}, repeat('fresh', 900), 'a'); UPDATE toasted SET note = 'b' WHERE id = {first}",
                f"DELETE FROM toasted WHERE id % {r * 4} = {m}",
            )
        )

    def _keyless(self) -> str:
        rng = self._rng
        r, m = rng.randint(2, 5), rng.randint(0, 4)
        return rng.choice(
            (
                "INSERT INTO keyless SELECT i % 7, CASE WHEN i % 3 > 0 THEN 'y' || i % 4 END FROM generate_series({}, {}) i".format(
                    *self._range()
                ),
                f"UPDATE keyless SET y = 'u{m}' WHERE ctid IN (SELECT ctid FROM keyless WHERE x % {r} = {m % r} ORDER BY x, y LIMIT 40)",
                f"DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE x = {m} ORDER BY y LIMIT 20)",
                "TRUNCATE keyless" if rng.random() < 0.2 else f"UPDATE keyless SET x = NULL WHERE x = {m}",
            )
        )

    def _mixed(self) -> str:
        rng = self._rng
        r, m = rng.randint(2, 5), rng.randint(0, 4)
        return rng.choice(
            (
                "INSERT INTO mixed SELECT i * 0.1, chr(97 + i % 5), i % 3, 'v' || i FROM generate_series({}, {}) i".format(*self._range()),
                f"UPDATE mixed SET n = n + 0.{'0' * rng.randint(1, 3)}, f = f * 1.0, v = 'same key' WHERE n = {m}",
                f"UPDATE mixed SET f = -f, n = n * 2.50 WHERE f > 0 AND c = '{chr(97 + m)}'",
                f"UPDATE mixed SET v = NULL WHERE c = '{chr(97 + m)} '",
                f"DELETE FROM mixed WHERE (f * 10)::int % {r * 2} = {m}",
                "TRUNCATE mixed, keyless" if rng.random() < 0.2 else "DELETE FROM mixed WHERE v IS NULL",
            )
        )

    def _named(self) -> str:
        rng = self._rng
        r, m = rng.randint(2, 5), rng.randint(0, 4)
        first, last = self._range()
        return rng.choice(
            (
                "INSERT INTO named SELECT i, 'n' || i, i % 3, repeat(md5(i::text), i % 120)"
                f" FROM generate_series({first}, {min(last, first + 200)}) i",
                f"UPDATE named SET name = name || '{m}' WHERE id % {r * 2} = {m}",
                f"UPDATE named SET id = id + 10000000 WHERE id % {r * 3} = {m} AND id < 10000000",
                f"UPDATE named SET big = NULL, tag = tag + 3 WHERE id % {r * 3} = {m} AND tag < 30000",
                f"DELETE FROM named WHERE id % {r * 4} = {m}",
            )
        )
