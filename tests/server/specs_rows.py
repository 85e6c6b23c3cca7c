"""Specs of sessions that read and write rows: Hermitage's anomalies, keys, foreign keys, row locks, TRUNCATE, savepoints, two-phase commit."""

from __future__ import annotations

from dataclasses import replace

from tests.server.judgement import Verdict
from tests.server.permutation import LEVELS, READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE, Spec

T = "CREATE TABLE t (a int PRIMARY KEY, b int)"
ROWS = "INSERT INTO t VALUES (1, 10), (2, 20)"
REFUSING = frozenset({Verdict.EQUAL, Verdict.WAITED, Verdict.REFUSED})
ALL = "SELECT * FROM t ORDER BY a"


def of_t(take: int = 4, **sessions: tuple[str, ...]) -> Spec:
    """Return a spec of sessions that use the table t."""
    return Spec(T, ROWS, sessions, (ALL,), take)


def at(levels: tuple[str, ...], specs: dict[str, Spec]) -> dict[str, Spec]:
    """Return the specs at each isolation level."""
    return {f"{name}, {level.lower()}": replace(spec, level=level) for name, spec in specs.items() for level in levels}


def read(a: int) -> str:
    """Return a statement that reads a row."""
    return f"SELECT * FROM t WHERE a = {a}"


def write(a: int, b: int) -> str:
    """Return a statement that changes a row."""
    return f"UPDATE t SET b = {b} WHERE a = {a}"


HERMITAGE = at(
    LEVELS,
    {
        "G0, dirty writes": of_t(
            3, a=("BEGIN", write(1, 11), write(2, 21), "COMMIT"), b=("BEGIN", write(1, 12), write(2, 22), "COMMIT")
        ),
        "G1a, aborted reads": of_t(3, a=("BEGIN", write(1, 101), "ROLLBACK"), b=("BEGIN", ALL, ALL, "COMMIT")),
        "G1b, intermediate reads": of_t(3, a=("BEGIN", write(1, 101), write(1, 11), "COMMIT"), b=("BEGIN", ALL, ALL, "COMMIT")),
        "G1c, circular information flow": of_t(
            3, a=("BEGIN", write(1, 11), read(2), "COMMIT"), b=("BEGIN", write(2, 22), read(1), "COMMIT")
        ),
        "OTV, an observed transaction vanishes": of_t(
            3, a=("BEGIN", write(1, 11), write(2, 19), "COMMIT"), b=("BEGIN", write(1, 12), write(2, 18), "COMMIT"),
            c=("BEGIN", read(1), read(2), ALL, "COMMIT"),
        ),
        "PMP, predicates and many predecessors": of_t(
            3, a=("BEGIN", "SELECT * FROM t WHERE b = 30", "SELECT * FROM t WHERE b % 3 = 0", "COMMIT"),
            b=("BEGIN", "INSERT INTO t VALUES (3, 30)", "COMMIT"),
        ),
        "PMP, of a write": of_t(
            3, a=("BEGIN", "UPDATE t SET b = b + 10", "COMMIT"), b=("BEGIN", ALL, "DELETE FROM t WHERE b = 20", ALL, "COMMIT")
        ),
        "P4, lost update": of_t(3, a=("BEGIN", read(1), write(1, 11), "COMMIT"), b=("BEGIN", read(1), write(1, 12), "COMMIT")),
        "G-single, read skew": of_t(3, a=("BEGIN", read(1), read(2), "COMMIT"), b=("BEGIN", ALL, write(1, 12), write(2, 18), "COMMIT")),
        "G-single, of a write": of_t(
            3, a=("BEGIN", read(1), "DELETE FROM t WHERE b = 20", "COMMIT"), b=("BEGIN", ALL, write(1, 12), write(2, 18), "COMMIT")
        ),
        "G2-item, write skew": of_t(3, a=("BEGIN", ALL, write(1, 11), "COMMIT"), b=("BEGIN", ALL, write(2, 21), "COMMIT")),
        "G2, anti-dependency cycles": of_t(
            3, a=("BEGIN", "SELECT * FROM t WHERE b % 3 = 0", "INSERT INTO t VALUES (3, 30)", "COMMIT"),
            b=("BEGIN", "SELECT * FROM t WHERE b % 3 = 0", "INSERT INTO t VALUES (4, 42)", "COMMIT"),
        ),
        "G2, of three": of_t(
            3, a=("BEGIN", ALL, write(1, 0), "COMMIT"), b=("BEGIN", "UPDATE t SET b = b + 5 WHERE a = 2", "COMMIT"), c=("BEGIN", ALL, "COMMIT")
        ),
    },
)  # fmt: skip

INSERT = "INSERT INTO t VALUES (3, 30)"
KEYS = at(
    (READ_COMMITTED, REPEATABLE_READ),
    {
        "two add a key": of_t(a=("BEGIN", INSERT, "COMMIT"), b=("BEGIN", "INSERT INTO t VALUES (3, 31)", ALL, "COMMIT")),
        "one adds a key and takes it back": of_t(
            a=("BEGIN", INSERT, "ROLLBACK"), b=("BEGIN", "INSERT INTO t VALUES (3, 31)", "INSERT INTO t VALUES (4, 40)", "COMMIT")
        ),
        "three add a key": of_t(
            3, a=("BEGIN", INSERT, "ROLLBACK"), b=("BEGIN", "INSERT INTO t VALUES (3, 31)", "COMMIT"), c=("INSERT INTO t VALUES (3, 32)", ALL)
        ),
        "a key that another updates to": of_t(
            a=("BEGIN", "UPDATE t SET a = 3 WHERE a = 1", "COMMIT"), b=("BEGIN", INSERT, "INSERT INTO t VALUES (1, 11)", "COMMIT")
        ),
        "a key that another deletes": of_t(
            a=("BEGIN", "DELETE FROM t WHERE a = 1", "COMMIT"), b=("BEGIN", "INSERT INTO t VALUES (1, 11)", "COMMIT", ALL)
        ),
        "a key deleted and added again": of_t(
            a=("BEGIN", "DELETE FROM t WHERE a = 1", "INSERT INTO t VALUES (1, 11)", "COMMIT"), b=("BEGIN", write(1, 12), ALL, "COMMIT")
        ),
        "ON CONFLICT DO NOTHING": of_t(
            a=("BEGIN", INSERT, "COMMIT"), b=("BEGIN", "INSERT INTO t VALUES (3, 31), (4, 41) ON CONFLICT DO NOTHING", ALL, "COMMIT")
        ),
        "ON CONFLICT DO UPDATE": of_t(
            a=("BEGIN", INSERT, "COMMIT"),
            b=("BEGIN", "INSERT INTO t VALUES (3, 31) ON CONFLICT (a) DO UPDATE SET b = t.b + 100 RETURNING *", "COMMIT"),
        ),
        "two ON CONFLICT DO UPDATE": of_t(
            a=("BEGIN", "INSERT INTO t VALUES (1, 1), (3, 1) ON CONFLICT (a) DO UPDATE SET b = t.b + 1", "COMMIT"),
            b=("BEGIN", "INSERT INTO t VALUES (3, 2), (1, 2) ON CONFLICT (a) DO UPDATE SET b = t.b + 2", "COMMIT"),
        ),
        "ON CONFLICT DO NOTHING behind a read": of_t(
            a=(INSERT, write(1, 11)), b=("BEGIN", ALL, "INSERT INTO t VALUES (3, 31) ON CONFLICT DO NOTHING", "COMMIT")
        ),
        "ON CONFLICT DO UPDATE behind a read": of_t(
            a=(INSERT, write(1, 11)),
            b=("BEGIN", ALL, "INSERT INTO t VALUES (3, 31) ON CONFLICT (a) DO UPDATE SET b = t.b + 100", "COMMIT"),
        ),
        "ON CONFLICT DO UPDATE of a row changed behind a read": of_t(
            a=(write(1, 11),), b=("BEGIN", ALL, "INSERT INTO t VALUES (1, 5) ON CONFLICT (a) DO UPDATE SET b = t.b + 100", "COMMIT")
        ),
        "ON CONFLICT beside DELETE": of_t(
            a=("BEGIN", "DELETE FROM t WHERE a = 1", "COMMIT"),
            b=("BEGIN", "INSERT INTO t VALUES (1, 5) ON CONFLICT (a) DO UPDATE SET b = t.b + 100", "COMMIT"),
        ),
        "ON CONFLICT with a partial index": replace(
            of_t(
                a=("BEGIN", INSERT, "UPDATE t SET b = -1 WHERE a = 1", "COMMIT"),
                b=("BEGIN", "INSERT INTO t VALUES (3, 31), (1, -5) ON CONFLICT (a) WHERE b > 0 DO UPDATE SET b = t.b + 100", ALL, "COMMIT"),
            ),
            setup="CREATE TABLE t (a int, b int); CREATE UNIQUE INDEX ON t (a) WHERE b > 0",
        ),
        "UPDATE of a range in a table that is not small": Spec(
            T,
            "INSERT INTO t SELECT g, 10 * g FROM generate_series(1, 3000) g",
            {
                "a": ("BEGIN", "UPDATE t SET b = b + 5 WHERE a < 4", "DELETE FROM t WHERE b BETWEEN 30 AND 40", "COMMIT"),
                "b": ("BEGIN", "UPDATE t SET b = b + 100 WHERE b <= 30 RETURNING *", "COMMIT"),
            },
            ("SELECT * FROM t WHERE a < 10 ORDER BY a",),
        ),
        "keys in different order": of_t(
            a=("BEGIN", INSERT, "INSERT INTO t VALUES (4, 40)", "COMMIT"),
            b=("BEGIN", "INSERT INTO t VALUES (4, 41)", "INSERT INTO t VALUES (3, 31)", "COMMIT"),
        ),
        "INSERT SELECT beside DML": of_t(
            a=("BEGIN", "INSERT INTO t SELECT a + 10, b FROM t", "COMMIT"), b=("BEGIN", INSERT, write(1, 11), "COMMIT")
        ),
        "MERGE beside INSERT": of_t(
            a=("BEGIN", INSERT, "COMMIT"),
            b=(
                "BEGIN",
                "MERGE INTO t USING (VALUES (1), (3)) v (k) ON a = k WHEN MATCHED THEN UPDATE SET b = b + 1 WHEN NOT MATCHED THEN INSERT VALUES (k, 0)",
                "COMMIT",
            ),
        ),
        "rows are moved out of and into a predicate": of_t(
            a=("BEGIN", "UPDATE t SET b = 20 WHERE a = 1", "UPDATE t SET b = 10 WHERE a = 2", "COMMIT"),
            b=("BEGIN", "UPDATE t SET b = b + 1 WHERE b = 20 RETURNING *", "COMMIT"),
        ),
    },
)  # fmt: skip


def family(reference: str) -> str:
    """Return statements that create a parent and a child table."""
    return f"CREATE TABLE parent (a int PRIMARY KEY, b int); CREATE TABLE child (n int PRIMARY KEY, a int REFERENCES parent {reference})"


PARTITIONS = """ PARTITION BY RANGE (n); CREATE TABLE low PARTITION OF child FOR VALUES FROM (MINVALUE) TO (8);
    CREATE TABLE high PARTITION OF child FOR VALUES FROM (8) TO (MAXVALUE)"""


def of_family(reference: str, take: int = 4, partitions: str = "", **sessions: tuple[str, ...]) -> Spec:
    """Return a spec of sessions that use both tables."""
    rows = "INSERT INTO parent VALUES (1, 10), (2, 20); INSERT INTO child VALUES (7, 2)"
    return Spec(family(reference) + partitions, rows, sessions, ("SELECT * FROM parent ORDER BY a", "SELECT * FROM child ORDER BY n"), take)


CHILD = "INSERT INTO child VALUES (8, 1)"
FOREIGN_KEYS = {
    **at(
        (READ_COMMITTED, REPEATABLE_READ),
        {
            "parent deleted beside a child": of_family("", a=("BEGIN", CHILD, "COMMIT"), b=("BEGIN", "DELETE FROM parent WHERE a = 1", "COMMIT")),
            "cascading": of_family(
                "ON DELETE CASCADE", a=("BEGIN", CHILD, "COMMIT"), b=("BEGIN", "DELETE FROM parent WHERE a = 1", "COMMIT")
            ),
            "cascading behind a read": of_family(
                "ON DELETE CASCADE", a=(CHILD,), b=("BEGIN", "SELECT * FROM child ORDER BY n", "DELETE FROM parent WHERE a = 1", "COMMIT")
            ),
            "a child of a parent that went behind a read": replace(
                of_family("", a=("DELETE FROM parent WHERE a = 1",), b=("BEGIN", "SELECT * FROM parent ORDER BY a", CHILD, "COMMIT")),
                may=REFUSING,
            ),
            "parent's key updated": of_family(
                "ON UPDATE CASCADE", a=("BEGIN", CHILD, "COMMIT"), b=("BEGIN", "UPDATE parent SET a = 3 WHERE a = 1", "COMMIT")
            ),
        },
    ),
    "parent deleted and taken back": of_family("ON DELETE RESTRICT", a=(CHILD,), b=("BEGIN", "DELETE FROM parent WHERE a = 1", "SELECT * FROM child ORDER BY n", "ROLLBACK")),
    "parent updated beside a child": of_family(
        "", a=("BEGIN", CHILD, "COMMIT"), b=("BEGIN", "UPDATE parent SET b = 11 WHERE a = 1", "UPDATE child SET a = 1 WHERE n = 7", "COMMIT")
    ),
    "deferred": of_family(
        "DEFERRABLE INITIALLY DEFERRED",
        a=("BEGIN", "INSERT INTO child VALUES (9, 3)", "COMMIT"), b=("BEGIN", "INSERT INTO parent VALUES (3, 30)", "COMMIT"),
    ),
    "deferred, parent deleted": of_family(
        "DEFERRABLE INITIALLY DEFERRED", a=("BEGIN", CHILD, "COMMIT"), b=("BEGIN", "DELETE FROM parent WHERE a = 1", "COMMIT")
    ),
    "set null": of_family(
        "ON DELETE SET NULL", a=("BEGIN", "UPDATE child SET a = 1 WHERE n = 7", "COMMIT"), b=("BEGIN", "DELETE FROM parent WHERE a IN (1, 2)", "COMMIT")
    ),
    "parent deleted beside a child in a partition": of_family(
        "", 4, PARTITIONS, a=("BEGIN", CHILD, "COMMIT"), b=("BEGIN", "DELETE FROM parent WHERE a = 1", "COMMIT")
    ),
    "cascading beside a child that moves to another partition": of_family(
        "ON DELETE CASCADE", 4, PARTITIONS,
        a=("BEGIN", "UPDATE child SET n = 9, a = 1 WHERE n = 7", "COMMIT"), b=("BEGIN", "DELETE FROM parent WHERE a = 1", "COMMIT"),
    ),
    "two children and the parent": of_family(
        "", 6, a=("BEGIN", CHILD, "COMMIT"), b=("BEGIN", "INSERT INTO child VALUES (9, 1)", "COMMIT"), c=("BEGIN", "DELETE FROM parent WHERE a = 1", "COMMIT")
    ),
}  # fmt: skip

FOR_UPDATE = "SELECT * FROM t WHERE a = 1 FOR UPDATE"
LOCKS = {
    **at(
        (READ_COMMITTED, REPEATABLE_READ),
        {
            "FOR UPDATE beside UPDATE": of_t(4, a=("BEGIN", FOR_UPDATE, write(1, 11), "COMMIT"), b=("BEGIN", FOR_UPDATE, write(1, 12), "COMMIT")),
            "FOR SHARE beside UPDATE": of_t(
                4, a=("BEGIN", "SELECT * FROM t WHERE a = 1 FOR SHARE", "COMMIT"), b=("BEGIN", write(1, 12), ALL, "COMMIT")
            ),
        },
    ),
    "FOR UPDATE behind a read, repeatable read": replace(
        of_t(4, a=(write(1, 11),), b=("BEGIN", ALL, FOR_UPDATE, "COMMIT")), level=REPEATABLE_READ
    ),
    "two FOR SHARE that then update": of_t(
        4, a=("BEGIN", "SELECT * FROM t WHERE a = 1 FOR SHARE", write(1, 11), "COMMIT"),
        b=("BEGIN", "SELECT * FROM t WHERE a = 1 FOR SHARE", write(1, 12), "COMMIT"),
    ),
    "SKIP LOCKED": of_t(
        4, a=("BEGIN", FOR_UPDATE, "DELETE FROM t WHERE a = 1", "COMMIT"), b=("BEGIN", "SELECT * FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED", "COMMIT", ALL)
    ),
    "NOWAIT": of_t(4, a=("BEGIN", write(1, 11), "COMMIT"), b=("BEGIN", f"{FOR_UPDATE} NOWAIT", write(1, 12), "COMMIT")),
    "FOR UPDATE beside DELETE and INSERT": of_t(
        4, a=("BEGIN", "DELETE FROM t WHERE a = 1", INSERT, "COMMIT"), b=("BEGIN", "SELECT * FROM t ORDER BY a FOR UPDATE", "COMMIT")
    ),
    "LOCK TABLE beside DML": of_t(
        4, a=("BEGIN", "LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE", ALL, "COMMIT"), b=("BEGIN", INSERT, write(1, 11), "COMMIT"), c=(write(2, 22),)
    ),
}  # fmt: skip

TRUNCATE = {
    **at(
        (READ_COMMITTED, REPEATABLE_READ),
        {
            "TRUNCATE beside INSERT": of_t(3, a=("BEGIN", "TRUNCATE t", "COMMIT"), b=("BEGIN", INSERT, "INSERT INTO t VALUES (1, 11)", "COMMIT")),
            "TRUNCATE beside UPDATE": replace(
                of_t(3, a=("BEGIN", "TRUNCATE t", "INSERT INTO t VALUES (1, 0)", "COMMIT"), b=("BEGIN", write(1, 12), "COMMIT")), may=REFUSING
            ),
        },
    ),
    "TRUNCATE beside SELECT": of_t(3, a=("BEGIN", "TRUNCATE t", "COMMIT"), b=("BEGIN", ALL, ALL, "COMMIT")),
    "TRUNCATE that is taken back": of_t(3, a=("BEGIN", "TRUNCATE t", "ROLLBACK"), b=("BEGIN", "DELETE FROM t WHERE a = 1", INSERT, "COMMIT")),
}  # fmt: skip

SAVEPOINTS = {
    "a savepoint gives a key back": of_t(
        a=("BEGIN", "SAVEPOINT s", INSERT, "ROLLBACK TO s", "INSERT INTO t VALUES (4, 40)", "COMMIT"), b=("BEGIN", "INSERT INTO t VALUES (3, 31)", "COMMIT")
    ),
    "a savepoint gives a row back": of_t(
        a=("BEGIN", "SAVEPOINT s", write(1, 11), "ROLLBACK TO s", "COMMIT"), b=("BEGIN", write(1, 12), ALL, "COMMIT")
    ),
    "a savepoint behind a violated key": of_t(
        a=("BEGIN", INSERT, "COMMIT"), b=("BEGIN", write(2, 22), "SAVEPOINT s", "INSERT INTO t VALUES (3, 31)", "ROLLBACK TO s", "COMMIT")
    ),
    "a released savepoint": replace(
        of_t(a=("BEGIN", "SAVEPOINT s", write(1, 11), "RELEASE s", "COMMIT"), b=("BEGIN", ALL, write(1, 12), "COMMIT")), level=REPEATABLE_READ
    ),
}  # fmt: skip

PREPARE, COMMIT, ROLLBACK = "PREPARE TRANSACTION 'one'", "COMMIT PREPARED 'one'", "ROLLBACK PREPARED 'one'"
PREPARED = {
    **at(
        LEVELS,
        {
            "prepared beside UPDATE": of_t(4, a=("BEGIN", write(1, 11), PREPARE, COMMIT), b=("BEGIN", ALL, write(1, 12), "COMMIT")),
        },
    ),
    "prepared and rolled back": of_t(3, a=("BEGIN", "DELETE FROM t WHERE a = 1", PREPARE, ROLLBACK), b=("BEGIN", write(1, 12), ALL, "COMMIT")),
    "prepared beside INSERT": of_t(3, a=("BEGIN", INSERT, PREPARE, COMMIT), b=("BEGIN", "INSERT INTO t VALUES (3, 31)", "COMMIT"), c=(ALL, write(1, 9))),
    "prepared beside TRUNCATE": of_t(3, a=("BEGIN", INSERT, PREPARE, COMMIT), b=("BEGIN", "TRUNCATE t", ALL, "COMMIT")),
    "two prepared": of_t(
        5, a=("BEGIN", write(1, 11), PREPARE, COMMIT), b=("BEGIN", "UPDATE t SET b = b + 1", "PREPARE TRANSACTION 'two'", "COMMIT PREPARED 'two'")
    ),
    "prepared child, parent deleted": of_family(
        "", 5, a=("BEGIN", CHILD, PREPARE, COMMIT), b=("BEGIN", "DELETE FROM parent WHERE a = 1", "COMMIT")
    ),
    "prepared serializable write skew": replace(
        of_t(3, a=("BEGIN", ALL, write(1, 11), PREPARE, COMMIT), b=("BEGIN", ALL, write(2, 21), "COMMIT")), level=SERIALIZABLE
    ),
    "two prepared, serializable write skew": replace(
        of_t(3, a=("BEGIN", "SELECT * FROM u", write(1, 11), PREPARE, COMMIT), b=("BEGIN", ALL, "INSERT INTO u VALUES (2)", "PREPARE TRANSACTION 'two'", "COMMIT PREPARED 'two'")),
        setup=f"{T}; CREATE TABLE u (c int)", level=SERIALIZABLE,
    ),
}  # fmt: skip

SPECS = {**HERMITAGE, **KEYS, **FOREIGN_KEYS, **LOCKS, **TRUNCATE, **SAVEPOINTS, **PREPARED}
